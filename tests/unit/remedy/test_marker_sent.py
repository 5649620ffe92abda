"""A marker: what is looked at right before it, what an answer proves, and what ended a transaction.

The answers are scripted; real leaders are asked in tests/kafka/test_remedies.py.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.chunks import Chunk
from eoctl.kafka.write import markers
from eoctl.kafka.write.markers import MARKER_REFUSED
from eoctl.operations.change.steps import Effect
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import Missing, PartitionFacts, ProducerFacts, TopicPartition, TransactionFacts
from recovery.remedy.repairs import MarkerRequest
from tests.unit.formats_build import ABORT, COMMIT, Item, batch
from tests.unit.formats_build import marker as marker_batch

AT, PID = TopicPartition("t", 0), 7
REQUEST = MarkerRequest("t", 0, PID, 4, "abort", 12, 0)
PLANNED: dict[str, Any] = REQUEST.as_dict() | {
    "leader": 1,
    "start_offset": 20,
    "described_epoch": 4,
    "last_sequence": 9,
    "end_offset": 30,
    "without_proof": False,
}


def step(**changed: Any) -> Step:
    given = {k: v for k, v in (PLANNED | changed).items() if v is not ...}
    return Step(action="write-marker", target="t:0", parameters=given, does="", stands_on=())


def producer(
    producer_id: int = PID, epoch: int = 4, sequence: int = 9, start: int | None = 20
) -> ProducerFacts:
    return ProducerFacts(*AT, producer_id, epoch, sequence, 1, 0, start)


def owner(epoch: int | None = 5, state: str = "Empty", producer_id: int = PID) -> TransactionFacts:
    here = (AT,) if state.startswith("Prepare") else ()
    return TransactionFacts("x", 1, producer_id, state, epoch, 60_000, 1, here)


class Partition(Cluster):
    """One partition. asked: what was asked, in order, and what was written."""

    def __init__(self, *producers: ProducerFacts) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
        self.producers: tuple[ProducerFacts, ...] | None = producers or (producer(),)
        self.owners: tuple[TransactionFacts, ...] = ()
        self.listed = SimpleNamespace(rows=(), complete=True, missing=())
        self.undescribed: list[Missing] = []
        self.asked: list[object] = []
        self.answer: str | WireError = "NONE"
        self.lso, self.high = 25, 40
        self.log: tuple[bytes, ...] = ()
        self.ranges: list[tuple[int, int]] = []

    async def metadata(self, topics: Any = None) -> ClusterMetadata:
        both = tuple(PartitionMetadata("t", n, 1, 0, (1,), None) for n in (0, 1))
        return ClusterMetadata("c", 1, {}, {"t": TopicMetadata("t", "t", False, both, None)})


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Partition:
    here = Partition()

    async def producers(cluster: Any, members: Any) -> Any:
        assert [m.partition for m in members] == [0]
        here.asked.append("producers")
        return ({} if here.producers is None else {AT: here.producers}), []

    async def transactions(cluster: Any, *, producer_ids: Any) -> Any:
        here.asked.append(list(producer_ids))
        return here.listed

    async def described(cluster: Any, rows: Any) -> Any:
        return here.owners, here.undescribed

    async def write_marker(cluster: Any, leader: int, request: MarkerRequest) -> str:
        here.asked.append((leader, request))
        if isinstance(here.answer, WireError):
            raise here.answer
        return here.answer

    async def partition_offsets(cluster: Any, topics: Any, members: Any) -> Any:
        assert [m.partition for m in members] == [0]
        facts = PartitionFacts(
            *AT, "t", 1, 0, (1,), log_start_offset=0, last_stable_offset=here.lso,
            high_watermark=here.high,
        )  # fmt: skip
        return [facts], []

    async def read_all(cluster: Any, ranges: Any, **options: Any) -> Any:
        here.ranges += [(r.start, r.end) for r in ranges]
        return {AT: [Chunk(*AT, 0, 99, one, None, 99, 99, 0) for one in here.log]}, {}

    monkeypatch.setattr(collect, "producers", producers)
    monkeypatch.setattr(collect, "partition_offsets", partition_offsets)
    monkeypatch.setattr(coordinators, "transactions", transactions)
    monkeypatch.setattr(coordinators, "described", described)
    monkeypatch.setattr(markers, "write_marker", write_marker)
    monkeypatch.setattr(remedy_marker, "read_all", read_all)
    return here


def written(at: Partition, planned: Step | None = None, *, held: bool = True) -> object:
    def ensure_held() -> None:
        at.asked.append("lock")
        if not held:
            raise UnverifiedError("the lock is lost")

    return asyncio.run(remedy_marker.write(at, planned or step(), ensure_held))


def test_a_marker_is_sent_as_planned_after_a_last_look(at: Partition) -> None:
    assert written(at) == {"error": "NONE"}
    assert at.asked == ["producers", [PID], "lock", (1, REQUEST)]


@pytest.mark.parametrize(
    "now",
    [
        producer(start=None),  # it ended
        producer(start=21),
        producer(epoch=5),
        producer(sequence=10),  # its owner wrote
        producer(producer_id=8),  # another's
    ],
)
def test_a_producer_that_moved_on_gets_no_marker(at: Partition, now: ProducerFacts) -> None:
    at.producers = (now,)
    with pytest.raises(RefusedError, match="changed right before the marker; nothing was sent"):
        written(at)
    assert at.asked == ["producers"]


def test_a_leader_that_does_not_say_its_producers_gets_no_marker(at: Partition) -> None:
    at.producers = None
    with pytest.raises(RefusedError, match="could not be read; nothing was sent"):
        written(at)
    assert at.asked == ["producers"]


def test_a_plan_without_the_epoch_it_was_made_for_sends_nothing(at: Partition) -> None:
    with pytest.raises(RefusedError, match="for which epoch"):
        written(at, step(described_epoch=...))
    assert at.asked == []


@pytest.mark.parametrize(
    ("found", "may_write"),
    [
        (owner(5), False),
        (owner(4), True),
        (owner(3, "Ongoing"), True),
        (owner(None), True),
        (owner(4, "PrepareAbort"), False),
        (owner(4, producer_id=8), False),
    ],
)
def test_whoever_may_still_write_with_its_epoch_forbids_it(
    at: Partition, found: TransactionFacts, *, may_write: bool
) -> None:
    at.owners = (found,)
    if may_write:
        with pytest.raises(RefusedError, match=rf"x \({found.state}\) may write with epoch 4"):
            written(at)
        assert at.asked == ["producers", [PID]]
    else:
        written(at)


@pytest.mark.parametrize(
    ("complete", "missing", "undescribed", "why"),
    [
        (False, (), [], "a coordinator was not seen"),
        (False, (Missing("coordinator", "X", "it is silent"),), [], "it is silent"),
        (True, (), [Missing("id", "X", "it says nothing")], "it says nothing"),
    ],
)
def test_who_may_write_must_be_known(
    at: Partition, complete: bool, missing: Any, undescribed: list[Missing], why: str
) -> None:
    at.listed = SimpleNamespace(rows=(), complete=complete, missing=missing)
    at.undescribed = undescribed
    with pytest.raises(RefusedError, match=f"{why}: who may write is unknown; nothing was sent"):
        written(at)
    assert at.asked == ["producers", [PID]]


def test_without_the_lock_no_marker_is_sent(at: Partition) -> None:
    with pytest.raises(RefusedError, match="the lock is lost; nothing was sent"):
        written(at, held=False)
    assert at.asked[-1] == "lock"


@pytest.mark.parametrize("error", [*sorted(MARKER_REFUSED), "NOT_LEADER_OR_FOLLOWER", "X"])
def test_what_the_leaders_error_proves(at: Partition, error: str) -> None:
    at.answer = error
    kind = RefusedError if error in MARKER_REFUSED else UnverifiedError
    with pytest.raises(kind, match=error):
        written(at)
    at.answer = WireError("NO_ANSWER", "none came")
    with pytest.raises(WireError, match="none came"):
        written(at)


def ended(at: Partition, **changed: Any) -> Effect:
    return asyncio.run(remedy_marker.ended(at, step(**changed)))


def test_a_transaction_that_is_still_open_is_untouched(at: Partition) -> None:
    effect = ended(at)
    assert (effect.done, effect.untouched) == (False, True)
    assert effect.saw == {"last_stable_offset": 25}


@pytest.mark.parametrize(
    ("lso", "others", "done", "held_from"),
    [
        (20, [], False, None),  # nobody is open there, and the LSO did not move
        (19, [], False, None),
        (21, [], True, None),
        (15, [15], True, 15),
        (20, [20], True, 20),
        (15, [18, 15], True, 15),
        (20, [21], False, None),  # a later one does not hold it
    ],
)
def test_a_transaction_is_over_once_the_lso_moved_or_others_hold_it(
    at: Partition, lso: int, others: list[int], *, done: bool, held_from: int | None
) -> None:
    at.lso, at.log = lso, (marker_batch(30, PID, ABORT),)
    at.producers = (producer(start=None), *(producer(8, start=start) for start in others))
    effect = ended(at)
    assert effect.done is done
    assert not effect.untouched
    if held_from is not None:
        assert f"held by another transaction from {held_from}" in effect.detail
    else:
        assert "held" not in effect.detail


def test_what_cannot_be_read_is_not_known(at: Partition) -> None:
    at.producers = None
    assert ended(at).done is None


@pytest.mark.parametrize(
    ("log", "outcome", "beyond", "saw"),
    [
        ([marker_batch(30, PID, ABORT)], "abort", None, {"marker_offset": 30}),
        ([marker_batch(30, PID, COMMIT)], "commit", None, {"marker_offset": 30}),
        (
            [marker_batch(30, PID, COMMIT)],
            "abort",
            "another marker ended it first: commit at offset 30",
            {"marker_offset": 30},
        ),
        ([], "abort", "which marker ended it was not found", {"marker_offset": None}),
        (
            [
                batch(30, [Item(0), Item(1)], producer=(PID, 4, 10), transactional=True),
                marker_batch(32, PID, ABORT),
            ],
            "abort",
            "wrote 2 more records, from offset 30 on, before the marker at offset 32: dropped too",
            {"marker_offset": 32, "records_beyond": 2, "first_beyond": 30},
        ),
        (
            [
                batch(30, [Item(0)], producer=(PID, 4, 10), transactional=True),
                marker_batch(31, PID, COMMIT),
            ],
            "commit",
            "wrote 1 more record, from offset 30 on, before the marker at offset 31: delivered too",
            {"marker_offset": 31, "records_beyond": 1, "first_beyond": 30},
        ),
    ],
)
def test_what_ended_it_beyond_its_plan(
    at: Partition, log: list[bytes], outcome: str, beyond: str | None, saw: dict[str, Any]
) -> None:
    at.producers, at.log = (producer(start=None),), (b"".join(log),)
    effect = ended(at, outcome=outcome)
    assert effect.done is True
    assert (effect.beyond is None) is (beyond is None)
    assert beyond is None or beyond in str(effect.beyond)
    assert effect.saw == {"last_stable_offset": 25, "planned_end": 30} | saw
    assert at.ranges == [(30, 40)]


def test_without_a_planned_end_the_log_is_not_read(at: Partition) -> None:
    """As plans of earlier versions are."""
    at.producers = (producer(start=None),)
    effect = ended(at, end_offset=...)
    assert (effect.done, effect.beyond, effect.saw) == (True, None, {"last_stable_offset": 25})
    assert ended(at, end_offset=40).beyond == "which marker ended it was not found"
    assert at.ranges == []  # nothing is from the planned end on


@pytest.mark.parametrize(
    ("given", "hits"),
    [
        (("abort", None, False), "t:0"),
        (("resolve", "commit", False), "commit-t:0"),
        (("resolve", "abort", True), "abort-without-proof-t:0"),
    ],
)
@pytest.mark.parametrize("raised", [False, True])
def test_what_must_be_typed(given: Any, hits: str, *, raised: bool) -> None:
    action, outcome, without = given
    request = RemedyRequest(action, "t:0", PID, 20, outcome=outcome, without_proof=without)
    idle = Step(action="raise-id", target="x", does="", stands_on=())
    steps = [idle, step()] if raised else [step()]
    assert remedy_marker._hits(steps, request) == hits + ("-restart-x" if raised else "")


def test_an_unreachable_leader_makes_no_plan() -> None:
    cluster = Partition()

    async def connection(broker: int) -> Any:
        raise WireError("SILENT", "it is silent")

    cluster.connection = connection  # type: ignore[method-assign]
    with pytest.raises(IncompleteError, match="it is silent"):
        asyncio.run(remedy_marker._write_version(cluster, 1))


@pytest.mark.parametrize(("highest", "version"), [(1, 1), (2, 2)])
def test_the_highest_version_that_both_speak(highest: int, version: int) -> None:
    cluster = Partition()

    async def connection(broker: int) -> Any:
        return SimpleNamespace(supports=lambda question, least: least <= highest)

    cluster.connection = connection  # type: ignore[method-assign]
    assert asyncio.run(remedy_marker._write_version(cluster, 1)) == version
