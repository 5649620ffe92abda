"""When `make soak` says that what runs all day is not flat, or was not tried."""

import pytest

from benchmarks.soak import RATE, Sample, Soaked, Subject


@pytest.mark.parametrize(
    ("minutes", "a_minute", "noise", "flat"),
    [
        (2, 0.0, 6, True),
        (2, 60.0, 0, False),  # what follows the log
        (2, 1.0, 0, True),  # too short to tell
        (20, 0.2, 0, True),
        (20, 1.0, 0, False),  # 190 MiB in two hours
        (20, 0.0, 12, True),
    ],
)
def test_flat_is_said_of_what_stays(
    minutes: int, a_minute: float, noise: int, *, flat: bool
) -> None:
    found = Subject("dashboard")
    for at in range(0, 60 * minutes, 5):
        grown = a_minute * at / 60 + noise * (at // 5 % 3) / 2
        found.samples.append(Sample(at, int((50 + grown) * (1 << 20)), 30, 9))
    assert (found.faults() == []) is flat


def steady(name: str, looks: int = 24, *, files: int = 0, threads: int = 0) -> Subject:
    """Something that opens so many files more, and starts threads, at each look."""
    samples = [Sample(5 * at, 50 << 20, 30 + files * at, 9 + threads * at) for at in range(looks)]
    return Subject(name, samples)


@pytest.mark.parametrize(
    ("files", "threads", "faults"),
    [
        (0, 0, []),
        (1, 0, ["exporter: its open files grow"]),
        (0, 1, ["exporter: its threads grow"]),
    ],
)
def test_files_and_threads_that_grow(files: int, threads: int, faults: list[str]) -> None:
    assert steady("exporter", files=files, threads=threads).faults() == faults


@pytest.mark.parametrize(
    ("transactions", "statuses", "looks", "faults"),
    [
        (RATE * 120, [0, 1] * 12, 24, []),
        (0, [0] * 24, 24, ["the cluster was not busy: 0 transactions"]),
        (RATE * 120, [70] * 23 + [0], 24, ["check ended with 70"]),
        (RATE * 120, [3, 5] * 12, 24, ["check ended with 3, 5"]),
        (RATE * 120, [0] * 24, 12, ["dashboard: it ended"]),
    ],
)
def test_what_was_not_tried_is_a_fault(
    transactions: int, statuses: list[int], looks: int, faults: list[str]
) -> None:
    ran = Soaked(120.0, transactions, statuses, [steady("dashboard", looks), steady("check")])
    assert ran.faults() == faults
