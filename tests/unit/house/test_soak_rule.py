"""When `make soak` says that memory is not flat."""

import pytest

from benchmarks.soak import Sample, Subject


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
