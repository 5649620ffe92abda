"""What a reader in a rack takes for proven, of brokers whose answers the test writes."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import PartitionMetadata
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.raw_fetch import FetchAnswer, PartitionData
from eoctl.kafka.read import fetch, fetch_reader, log_checks
from eoctl.kafka.read.chunks import Chunk, Ended, Givers, Range
from eoctl.kafka.read.pump import Pump, Reading
from recovery.facts import BrokerFacts
from tests.unit.formats_build import Item, batch

LEADER, FOLLOWER = 1, 2
NONE, FENCED_LEADER_EPOCH, UNKNOWN_SERVER_ERROR = 0, 74, -1


class Brokers:
    """A leader and the follower that it names, of topic `t`, whose partition 0 each keeps.

    logs: broker -> (offset, leader epoch) of its batches, of one record each. high: what both show.
    ends: what the leader answers, (error, end offset), to the n-th question about a leader epoch.
    gives: batches that the follower gives before it is gone. led: it leads until then. cuts: how
    many it has given when its log becomes the leader's.
    """

    def __init__(
        self,
        logs: dict[int, list[tuple[int, int]]],
        high: int,
        ends: Callable[[int, int], tuple[int, int]],
        gives: int,
        *,
        led: bool = False,
        cuts: int | None = None,
    ) -> None:
        self.logs, self.high, self.ends, self.gives = logs, high, ends, gives
        self.brokers = {b: BrokerFacts(b, "h", 1, rack=str(b)) for b in logs}
        self.settings = SimpleNamespace(client_rack=str(FOLLOWER))
        self.deadline = Deadline(60)
        self.led, self.cuts = led, cuts
        self.asked_ends = 0

    def awaits(self, _what: object, _withheld: bool) -> bool:
        return False

    def forgive(self) -> None:
        pass

    async def metadata(self, topics: list[str]) -> Any:
        leader, epoch = (FOLLOWER, 3) if self.led and self.gives else (LEADER, 5)
        partition = PartitionMetadata("t", 0, leader, epoch, (), None)
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=[partition], error=None)})

    async def ask_each(self, questions: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        answers, failures = {}, {}
        for key, ask in questions.items():
            try:
                answers[key] = await ask()
            except WireError as error:
                failures[key] = error
        return answers, failures

    async def ask(self, broker: int, question: Any, **_: int) -> Any:
        if isinstance(question, messages.RawFetchRequest):
            return self.fetched(broker, question)
        if isinstance(question, messages.OffsetForLeaderEpochRequest):
            [topic] = question.topics
            [asked] = topic.partitions
            self.asked_ends += 1
            error, end = self.ends(self.asked_ends, asked.leader_epoch)
            epochs = {e for _, e in self.logs[LEADER] if e <= asked.leader_epoch}
            latest = max(epochs, default=-1)
            row = SimpleNamespace(
                partition=0, error_code=error, leader_epoch=latest, end_offset=end
            )
            return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[row])])
        row = SimpleNamespace(partition_index=0, error_code=0, offset=0, leader_epoch=5)
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[row])])

    async def connection(self, broker: int) -> Any:
        async def ask(question: Any, bound: Deadline, **_: int) -> Any:
            if broker == FOLLOWER:
                if not self.gives:
                    raise WireError("CONNECTION_CLOSED", "it is gone")
                self.gives -= 1
                if self.cuts is not None:
                    if not self.cuts:
                        self.logs[FOLLOWER] = self.logs[LEADER]
                    self.cuts -= 1
            return self.fetched(broker, question)

        return SimpleNamespace(ask=ask, close=lambda: None)

    def fetched(self, broker: int, question: Any) -> FetchAnswer:
        [topic] = question.topics
        [asked] = topic.partitions
        preferred, records = -1, b""
        if broker == LEADER and question.rack_id:
            preferred = FOLLOWER
        else:
            behind = [(o, e) for o, e in self.logs[broker] if asked.fetch_offset <= o < self.high]
            for offset, epoch in behind[:1]:
                records = batch(offset, [Item(0)], leader_epoch=epoch)
        view = memoryview(records)
        part = PartitionData("t", 0, NONE, self.high, self.high, 0, (), view, preferred)
        return FetchAnswer(NONE, (part,))


def read(brokers: Any, end: int) -> tuple[list[Chunk], Ended]:
    async def run() -> list[Any]:
        reading = fetch.read(brokers, [Range("t", 0, 0, end)], isolation=0, nearest=True)
        return [item async for item in reading]

    *chunks, ended = asyncio.run(run())
    return chunks, ended


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reader, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(fetch_reader, "WITHOUT_PROGRESS_SECONDS", 0.5)


def diverged(answered_from: int, *, led: bool = False, silent: bool = False) -> Brokers:
    """A leader of epoch 5 whose log has not what the follower's has of epoch 3, from 2 on.

    answered_from: the question about epochs that is the first to be answered with no error.
    silent: those before are not answered at all.
    """

    def ends(asked: int, epoch: int) -> tuple[int, int]:
        if asked < answered_from and silent:
            raise WireError("TIMED_OUT", "it was silent")
        if asked < answered_from:
            return FENCED_LEADER_EPOCH, -1
        return NONE, {3: 2, 5: 10}[epoch]

    leader = [(o, 3) for o in range(2)] + [(o, 5) for o in range(2, 10)]
    return Brokers(
        {LEADER: leader, FOLLOWER: [(o, 3) for o in range(10)]}, 10, ends, gives=5, led=led
    )


@pytest.mark.parametrize("led", [False, True], ids=["of a follower", "of the leader before"])
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
@pytest.mark.parametrize("answered_from", [1, 2, 3])
def test_records_are_proven_before_a_leader_is_read(
    answered_from: int, *, silent: bool, led: bool
) -> None:
    """An answer about the leader's own records, which come next, would prove nothing of them."""
    chunks, ended = read(diverged(answered_from, led=led, silent=silent), 10)
    assert (ended.error, ended.position) == ("LOG_TRUNCATED", 5)
    assert [c.broker for c in chunks] == [FOLLOWER] * 5


@pytest.mark.parametrize("led", [False, True], ids=["of a follower", "of the leader before"])
def test_an_end_of_an_earlier_leader_epoch_proves_nothing(*, led: bool) -> None:
    """Two unclean elections: its log goes on in epoch 3 where epoch 4, of which was read, began."""
    leader = [(o, 3) for o in range(8)] + [(o, 5) for o in range(8, 10)]
    other = [(o, 3) for o in range(2)] + [(o, 4) for o in range(2, 10)]
    brokers = Brokers({LEADER: leader, FOLLOWER: other}, 10, lambda *_: (NONE, 8), gives=5, led=led)
    chunks, ended = read(brokers, 10)
    assert ended.error == "LOG_TRUNCATED"
    assert [c.broker for c in chunks] == [FOLLOWER] * ended.position
    for epoch, end in ((3, 8), (4, None)):  # so it is of a cached log
        asked = {("t", 0): (LEADER, 5, epoch)}
        assert asyncio.run(log_checks.record_epoch_ends(brokers, asked)) == {("t", 0): end}  # type: ignore[arg-type]


def test_records_of_an_earlier_leader_epoch_than_those_before_are_of_another_log() -> None:
    log = [(o, 4) for o in range(3)] + [(o, 3) for o in range(3, 10)]
    brokers = Brokers({LEADER: log, FOLLOWER: []}, 10, lambda *_: (NONE, 10), gives=0)
    brokers.settings.client_rack = ""
    chunks, ended = read(brokers, 10)
    assert (ended.error, ended.position) == ("LOG_TRUNCATED", 3)
    assert ended.detail == "records of leader epoch 3 follow those of 4"
    assert len(chunks) == 3


def test_a_follower_that_cuts_its_log_off_has_given_what_is_proven_of_no_later_records() -> None:
    """An unclean election in the leader's epoch: before it follows, it gives what it had."""
    brokers = diverged(1)
    brokers.gives, brokers.cuts = 100, 5
    chunks, ended = read(brokers, 10)
    assert (ended.error, ended.position) == ("LOG_TRUNCATED", 5)
    assert [c.broker for c in chunks] == [FOLLOWER] * 5


def test_each_leader_epoch_of_a_follower_is_proven_and_its_records_come_once() -> None:
    log = [(o, 3 + o // 4) for o in range(20)]

    def ends(asked: int, epoch: int) -> tuple[int, int]:
        return NONE, 4 * (epoch - 2)

    brokers = Brokers({LEADER: log, FOLLOWER: log}, 20, ends, gives=100)
    chunks, ended = read(brokers, 20)
    assert ended == Ended("t", 0, 20)
    assert [c.fetch_offset for c in chunks] == list(range(20))
    assert {c.broker for c in chunks} == {FOLLOWER}
    assert brokers.asked_ends == 5


def test_a_leader_that_never_tells_leaves_the_range_unread() -> None:
    began = time.process_time()
    chunks, ended = read(diverged(10**9), 10)
    assert (ended.error, ended.position) == ("FENCED_LEADER_EPOCH", 5)
    assert [c.broker for c in chunks] == [FOLLOWER] * 5
    assert time.process_time() - began < 2


def test_the_broker_that_had_nothing_more_is_one_of_those_that_were_read() -> None:
    """Its copy, compacted by itself, may have lost the tombstone of a value in another's."""

    def ends(asked: int, epoch: int) -> tuple[int, int]:
        return NONE, 10

    logs = {LEADER: [(o, 5) for o in range(3)], FOLLOWER: [(o, 5) for o in range(10)]}
    brokers = Brokers(logs, 10, ends, gives=5)
    chunks, ended = read(brokers, 10)
    assert ended.error is None
    assert {c.broker for c in chunks} == {FOLLOWER}
    givers = Givers()
    for chunk in chunks:
        givers.add(chunk)
    givers.add(ended)
    assert givers.brokers == {LEADER, FOLLOWER}


def test_answers_grow_up_to_what_may_be_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that answers at once is asked for more each time, and never for more than that."""
    log = [(o, 5) for o in range(20)]
    brokers = Brokers({LEADER: [], FOLLOWER: log}, 20, lambda asked, epoch: (NONE, 20), gives=100)
    brokers.led = True
    sizes: list[int] = []
    fetched = brokers.fetched

    def noted(broker: int, question: Any) -> FetchAnswer:
        sizes.append(question.max_bytes)
        return fetched(broker, question)

    monkeypatch.setattr(brokers, "fetched", noted)
    _, ended = read(brokers, 20)
    assert ended.error is None
    assert sizes[0] < max(sizes)
    assert sizes == sorted(sizes)
    assert max(sizes) <= fetch_reader.RESPONSE_BYTES


def test_a_refusal_of_the_leader_is_not_called_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(
        {LEADER: [], FOLLOWER: []}, 5, lambda asked, epoch: (NONE, 5), gives=9, led=True
    )

    def refused(broker: int, question: Any) -> FetchAnswer:
        part = PartitionData("t", 0, UNKNOWN_SERVER_ERROR, -1, -1, -1, (), memoryview(b""), -1)
        return FetchAnswer(NONE, (part,))

    monkeypatch.setattr(brokers, "fetched", refused)
    chunks, ended = read(brokers, 5)
    assert not chunks
    assert (ended.error, ended.position) == ("UNKNOWN_SERVER_ERROR", 0)
    assert "moved" not in ended.detail


def test_progress_follows_the_records() -> None:
    """Not the end of what is read: that would be 100% at the first answer."""
    brokers = Brokers(
        {LEADER: [], FOLLOWER: [(o, 5) for o in range(9)]},
        9,
        lambda asked, epoch: (NONE, 9),
        gives=100,
        led=True,
    )
    done: list[tuple[int, int]] = []
    reading = Reading(progress=lambda read, at, total: done.append((at, total)), nearest=True)
    pump = Pump(brokers, reading, 9)  # type: ignore[arg-type]
    asyncio.run(pump.run([Range("t", 0, 2, 9)], lambda chunk: None))
    assert not pump.failed
    assert done == [*[(n, 9) for n in range(1, 8)], (7, 9)]


class Alone(Brokers):
    """A leader alone. log: the offsets of its batches. lso: its last stable offset."""

    def __init__(self, log: list[int], high: int, lso: int | None = None) -> None:
        super().__init__(
            {LEADER: [(o, 5) for o in log], FOLLOWER: []}, high, lambda *_: (NONE, high), gives=0
        )
        self.settings.client_rack = ""
        self.lso = high if lso is None else lso
        self.asked: list[int] = []
        self.error = NONE

    def fetched(self, broker: int, question: Any) -> FetchAnswer:
        [topic] = question.topics
        [asked] = topic.partitions
        self.asked.append(asked.fetch_offset)
        limit = self.lso if question.isolation_level else self.high
        there = [o for o, _ in self.logs[LEADER] if asked.fetch_offset <= o < limit]
        records = b"".join(batch(o, [Item(0)], leader_epoch=5) for o in there[:1])
        if self.error:
            records = b""
        part = PartitionData(
            "t", 0, self.error, self.high, self.lso, 0, ((7, 1),), memoryview(records), -1
        )
        return FetchAnswer(NONE, (part,))


def read_alone(brokers: Any, *ranges: tuple[int, int], isolation: int = 0, **more: Any) -> Any:
    async def run() -> list[Any]:
        wanted = [Range("t", 0, *r) for r in ranges]
        return [item async for item in fetch.read(brokers, wanted, isolation=isolation, **more)]

    *chunks, ended = asyncio.run(run())
    return chunks, ended


@pytest.mark.parametrize(("start", "end"), [(3, 3), (4, 3)])
def test_an_empty_range_ends_where_it_begins_and_nobody_is_asked(start: int, end: int) -> None:
    brokers = Alone([0, 1, 2], 3)
    assert read_alone(brokers, (start, end)) == ([], Ended("t", 0, start))
    assert brokers.asked == []


@pytest.mark.parametrize("isolation", [0, 1])
def test_each_chunk_says_where_it_stands(isolation: int) -> None:
    chunks, ended = read_alone(Alone([0, 1, 2], 9, 7), (1, 3), isolation=isolation)
    assert ended == Ended("t", 0, 3)
    assert [(c.fetch_offset, c.next_offset, c.broker, c.by_follower) for c in chunks] == [
        (1, 2, LEADER, False),
        (2, 3, LEADER, False),
    ]
    assert {(c.high_watermark, c.last_stable_offset, c.log_start_offset) for c in chunks} == {
        (9, 7, 0)
    }
    assert {c.aborted for c in chunks} == {((7, 1),) if isolation else None}


@pytest.mark.parametrize(
    ("most", "expected", "error"),
    [(1, 1, fetch.ENOUGH), (2, 2, fetch.ENOUGH), (3, 3, None), (4, 3, None)],
)
def test_as_many_chunks_as_are_enough(most: int, expected: int, error: str | None) -> None:
    chunks, ended = read_alone(Alone([0, 1, 2], 3), (0, 3), most_chunks=most)
    assert len(chunks) == expected
    assert (ended.error, ended.position) == (error, expected)


@pytest.mark.parametrize(
    ("isolation", "limit", "what"), [(0, 5, "high watermark"), (1, 3, "last stable offset")]
)
def test_a_range_beyond_what_is_shown(isolation: int, limit: int, what: str) -> None:
    """Where records are shown up to it, its end is not an end of the log."""
    chunks, ended = read_alone(Alone([0, 1, 2, 3, 4, 5], 5, 3), (0, 6), isolation=isolation)
    assert len(chunks) == limit
    assert (ended.error, ended.position) == (fetch.ABOVE, limit)
    assert ended.detail == f"the {what} is {limit}"


@pytest.mark.parametrize("end", [6, 8])
def test_offsets_that_compaction_left_empty_are_passed(end: int) -> None:
    """After several answers without a record; the broker that gave none is named."""
    brokers = Alone([0, 1], 8)
    chunks, ended = read_alone(brokers, (0, end))
    assert len(chunks) == 2
    assert ended == Ended("t", 0, end, broker=LEADER)
    assert brokers.asked.count(2) >= fetch_reader.SURE_EMPTY


@pytest.mark.parametrize(
    ("code", "name", "detail"),
    [
        (1, "OFFSET_OUT_OF_RANGE", "offset 0 is no longer in the log, or not yet"),
        (29, "TOPIC_AUTHORIZATION_FAILED", "READ on the topic is not granted"),
        (42, "INVALID_REQUEST", "the leader refused the read"),
        (6, "NOT_LEADER_OR_FOLLOWER", "the leader moved"),
        (56, "KAFKA_STORAGE_ERROR", "its leader cannot read it"),
    ],
)
def test_what_a_leader_refuses(code: int, name: str, detail: str) -> None:
    """What a move could explain is asked again for a while; the rest is told at once."""
    brokers = Alone([0], 1)
    brokers.error = code
    chunks, ended = read_alone(brokers, (0, 1))
    assert (chunks, ended.error, ended.detail) == ([], name, detail)
    assert (len(brokers.asked) > 1) is (name in fetch_reader.MOVED)
