"""How much of a log's newest part is read where the line is slow, in a time that passes by itself.

A broker is a function here: it gives ten offsets at a time, each after as long as the line takes.
"""

import asyncio
import selectors
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import recent_log
from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.recent_log import Bounds, Tail, newest
from recovery.inspect.log_part import LogPart
from tests.unit.formats.test_state_log import key, value
from tests.unit.formats_build import Item, batch

TOPIC, NOW = "__transaction_state", 1_700_000_000_000
SECONDS = 20.0


class Seconds(selectors.DefaultSelector):
    """Waits for nothing, and says that it has waited."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.waits = Seconds()
        super().__init__(self.waits)

    def time(self) -> float:
        return self.waits.passed


class Offsets:
    """Keeps the offsets of each partition."""

    full = False

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = {}

    def add(self, part: LogPart, partition: int) -> None:
        rows = range(len(part.scan))
        self.of.setdefault(partition, []).extend(part.header(row).base_offset for row in rows)


def record(offset: int) -> bytes:
    """Written a second after the one before."""
    return batch(offset, [Item(0, NOW + 1000 * offset, key("a"), value(7, 0, 1))])


class Cluster:
    """What a reading asks of a cluster: how long the command may take."""

    def __init__(self, timeout: float | None = None) -> None:
        self.deadline = Deadline(timeout)


def tail_of(
    monkeypatch: pytest.MonkeyPatch,
    sizes: Sequence[int],
    per_offset: float,
    bounds: Bounds,
    later: float | None = None,
    *,
    asking: float = 0.0,
    timeout: float | None = None,
    readings: list[int] | None = None,
) -> tuple[Tail[Offsets], float]:
    """What is read of partitions with so many offsets, and in how many seconds.

    per_offset: what each takes on this line, in seconds. later: from the second reading on. asking:
    how long the ends of partitions take. timeout: of the command. readings: takes how many offsets
    each reading is of.
    """
    takes = iter([per_offset])

    async def ranges_since(*_: object) -> tuple[list[Range], dict[int, str]]:
        await asyncio.sleep(asking)
        return [Range(TOPIC, number, 0, size) for number, size in enumerate(sizes)], {}

    async def read(_: object, ranges: Sequence[Range]) -> AsyncGenerator[Chunk | Ended, None]:
        seconds = next(takes, per_offset if later is None else later)
        if readings is not None:
            readings.append(sum(r.end - r.start for r in ranges))
        for r in ranges:
            for start in range(r.start, r.end, 10):
                end = min(start + 10, r.end)
                await asyncio.sleep(seconds * (end - start))
                data = b"".join(map(record, range(start, end)))
                yield Chunk(TOPIC, r.partition, start, end, data, None, r.end, r.end, 0)
            yield Ended(TOPIC, r.partition, r.end)

    monkeypatch.setattr(recent_log, "ranges_since", ranges_since)
    monkeypatch.setattr(recent_log, "read", read)
    monkeypatch.setattr(recent_log, "FIRST_OFFSETS", 100)
    with asyncio.Runner(loop_factory=Loop) as runner:
        cluster: Any = Cluster(timeout)
        reading = newest(cluster, TOPIC, sizes, NOW, Offsets, bounds)  # type: ignore[arg-type]
        tail = runner.run(reading)
        return tail, runner.get_loop().time()


def whole(size: int) -> list[int]:
    return list(range(size))


def test_a_quick_line_gives_all_of_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tail, seconds = tail_of(monkeypatch, [900, 50, 0], 0.0001, Bounds(5_000, 16 << 20, SECONDS))
    assert tail.sink.of == {0: whole(900), 1: whole(50)}
    assert (tail.read_from, tail.late, tail.ends) == (None, False, {})
    assert seconds < 1


def test_a_little_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tail, seconds = tail_of(monkeypatch, [60, 40], 0.01, Bounds(5_000, 16 << 20, SECONDS))
    assert tail.sink.of == {0: whole(60), 1: whole(40)}
    assert seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("per_offset", "read"),
    [
        (0.005, 800),  # 100 in 0.5 s and 800 in 4 s; 5,000 would take 25 s
        (0.02, 800),  # 100 in 2 s, 800 in 16 s
        (0.03, 100),  # 100 in 3 s; 800 would take 24 s
    ],
)
def test_a_slow_line_gives_the_newest(
    monkeypatch: pytest.MonkeyPatch, per_offset: float, read: int
) -> None:
    tail, seconds = tail_of(monkeypatch, [20_000], per_offset, Bounds(5_000, 16 << 20, SECONDS))
    assert tail.sink.of == {0: list(range(20_000 - read, 20_000))}
    assert tail.read_from == NOW + 1000 * (20_000 - read)
    assert (tail.ends, tail.not_reached("x")) == ({}, [])
    assert seconds <= SECONDS


def test_a_line_too_slow_for_a_few_says_what_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tail, seconds = tail_of(monkeypatch, [50, 20_000], 0.3, Bounds(5_000, 16 << 20, SECONDS))
    assert seconds == pytest.approx(SECONDS)
    assert (tail.late, tail.sink.of[0]) == (True, whole(50))
    assert set(tail.ends) == {1}
    [missing] = tail.not_reached("ids there are not seen", partly=True)
    assert missing.error == "NOT_READ"
    assert missing.detail == (
        "1 of 2 partitions of __transaction_state were not read to the end, since that takes "
        "longer than 20 s from here, so ids there are not seen"
    )


def test_a_line_that_becomes_slow_leaves_what_was_read_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longer reading is dropped: a gap in it would look like records that nobody wrote."""
    bounds = Bounds(5_000, 16 << 20, SECONDS)
    tail, seconds = tail_of(monkeypatch, [20_000], 0.02, bounds, later=0.05)
    assert tail.sink.of == {0: list(range(19_900, 20_000))}
    assert seconds == pytest.approx(SECONDS)


@pytest.mark.parametrize(
    ("most", "read"),
    [
        (5_000, [100, 5_000]),  # not 100, 800 and 5,000
        (50_000, [100, 800, 50_000]),  # not 100, 800, 6,400 and 50,000
        (700, [100, 700]),
        (100, [100]),
    ],
)
def test_the_last_step_goes_as_far_as_the_bound(
    monkeypatch: pytest.MonkeyPatch, most: int, read: list[int]
) -> None:
    readings: list[int] = []
    bounds = Bounds(most, 1 << 30, SECONDS)
    tail, _ = tail_of(monkeypatch, [90_000], 0.0001, bounds, readings=readings)
    assert readings == read
    assert tail.sink.of == {0: list(range(90_000 - most, 90_000))}


def test_large_records_are_read_as_far_as_the_bytes_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a step that is dropped because it is over the bytes."""
    size, readings = len(record(0)), list[int]()
    bounds = Bounds(5_000, 2_000 * size, SECONDS)
    tail, _ = tail_of(monkeypatch, [20_000], 0.0001, bounds, readings=readings)
    assert readings == [100, 1_600]
    assert (len(tail.sink.of[0]), tail.ends, tail.stopped) == (1_600, {}, False)


def test_the_time_is_that_of_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = Bounds(5_000, 16 << 20, SECONDS)
    tail, seconds = tail_of(monkeypatch, [20_000], 0.3, bounds, asking=15)
    assert seconds == pytest.approx(SECONDS)
    assert tail.late


@pytest.mark.parametrize(("timeout", "most", "said"), [(30.0, 15.0, "15 s"), (300.0, 20.0, "20 s")])
def test_half_of_what_a_command_has_left_is_for_the_rest_of_it(
    monkeypatch: pytest.MonkeyPatch, timeout: float, most: float, said: str
) -> None:
    """Else the command is over before it can say what was not read."""
    bounds = Bounds(5_000, 16 << 20, SECONDS)
    tail, seconds = tail_of(monkeypatch, [20_000], 0.3, bounds, timeout=timeout)
    assert seconds == pytest.approx(most, abs=0.5)
    [missing] = tail.not_reached("x", partly=True)
    assert f"since that takes longer than {said} from here" in missing.detail
