"""What a remedy's plan stands for, and what it says of each transaction that it ends."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.remedy.remedy_plan import (
    Counts,
    RemedyRequest,
    amounts,
    ensure_held_first,
    exact,
    is_for,
    judged_with,
    refusal,
    step_evidence,
    told_without_partition,
)
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import PartitionFacts, ProducerFacts, TransactionFacts
from recovery.inspect.observation import Settings, StartBatch
from recovery.values import Reason, replace
from tests.unit.change.test_plan import make
from tests.unit.check_facts import judged


def plan(action: str, target: str, **parameters: Any) -> Plan:
    """Whose last step is this one, after the raise of an id."""
    raised = Step(
        action="raise-id", target="other", parameters={"producer_id": 1}, does="", stands_on=()
    )
    last = Step(action=action, target=target, parameters=parameters, does="", stands_on=())
    return make(steps=(raised, last))


FENCE: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3}
MARKER: dict[str, Any] = {"producer_id": 7, "start_offset": 10, "outcome": "abort"}


@pytest.mark.parametrize(
    ("change", "requested", "is_it"),
    [
        ({}, {}, True),
        ({}, {"producer_id": 7, "producer_epoch": 3}, True),
        ({}, {"transactional_id": "y"}, False),
        ({}, {"producer_id": 8}, False),
        ({}, {"producer_id": 7, "producer_epoch": 4}, False),
        ({}, {"owner_is_gone": True}, False),
        ({}, {"is_stopped": True}, False),
        ({"owner_is_gone": True}, {"owner_is_gone": True}, True),
        ({"owner_is_gone": True}, {}, False),
        ({"is_stopped": True}, {"is_stopped": True}, True),
        ({"is_stopped": True}, {}, False),
    ],
)
def test_a_fence_that_was_begun_is_gone_on_with_only_where_it_is_asked_for(
    change: dict[str, Any], requested: dict[str, Any], is_it: bool
) -> None:
    asked = RemedyRequest("fence", **{"transactional_id": "x"} | requested)
    assert is_for(plan("fence", "x", **FENCE | change), asked) is is_it


@pytest.mark.parametrize(
    ("change", "requested", "is_it"),
    [
        ({}, {}, True),
        ({}, {"outcome": "abort"}, True),
        ({}, {"outcome": "commit"}, False),
        ({"outcome": "commit"}, {"outcome": "commit"}, True),
        ({"outcome": "commit"}, {}, False),
        ({}, {"producer_id": 8}, False),
        ({}, {"start_offset": 11}, False),
        ({}, {"owner_is_gone": True}, False),
        ({"owner_is_gone": True}, {}, False),
        ({"owner_is_gone": True}, {"owner_is_gone": True}, True),
    ],
)
def test_a_marker_that_was_begun_is_gone_on_with_only_where_it_is_asked_for(
    change: dict[str, Any], requested: dict[str, Any], is_it: bool
) -> None:
    asked = RemedyRequest("resolve", **{"producer_id": 7, "start_offset": 10} | requested)
    assert is_for(plan("write-marker", "t:0", **MARKER | change), asked) is is_it


def test_what_cannot_be_judged_is_no_refusal() -> None:
    """And the evidence of its own rule says what could not be seen."""
    unknown = judged("unknown", 7)
    evidence = (Reason("earlier-unclear"), Reason("no-rule"))
    told = replace(unknown, verdict=replace(unknown.verdict, rule="no-rule", evidence=evidence))
    error = refusal(told, Reason("seen-once"), 2, "t:0")
    assert isinstance(error, IncompleteError)
    why = "it was looked at only once"
    assert (error.what, error.where) == (f"{why} (no rule fits what was seen)", "t:0")
    assert refusal(unknown, Reason("seen-once"), 2).what == why
    refused = refusal(judged("open", 7), Reason("may-be-alive", {"name": "pay"}), 2, "t:0")
    assert isinstance(refused, RefusedError)
    assert (refused.what, refused.where) == ("pay may be alive", "t:0")


def test_a_lock_that_is_lost_before_the_first_request_has_sent_nothing() -> None:
    asked: list[str] = []
    ensure_held_first(lambda: asked.append("lock"), "t:0")
    assert asked == ["lock"]

    def lost() -> None:
        raise UnverifiedError("the lock is lost")

    with pytest.raises(RefusedError, match="the lock is lost; nothing was sent"):
        ensure_held_first(lost, "t:0")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"dropped": None, "freed": None, "counted_whole": False}, "records not counted"),
        ({"records": 3, "dropped": 3, "freed": 4}, "3 records dropped, 4 freed"),
        ({"records": 0, "dropped": 0, "freed": 4}, "none dropped, 4 freed"),
        ({"dropped": 0, "freed": 0}, "none dropped, 0 freed"),
        ({"records": 2, "dropped": 0, "freed": 2}, "2 records delivered"),
        ({"records": 1, "dropped": 0, "freed": 2}, "1 record delivered, 1 other freed"),
        (
            {"records": 3, "dropped": 3, "freed": 4, "counted_whole": False},
            "at least 3 records dropped, at least 4 freed",
        ),
    ],
)
def test_how_many_records_it_is_about(about: dict[str, Any], words: str) -> None:
    assert amounts({"counted_whole": True} | about) == words


def test_what_a_plan_holds_is_exact() -> None:
    held = {1: (2.0, 2.5), "x": {"y": [3, None, "z", True]}}
    assert exact(held) == {"1": [2, "2.5"], "x": {"y": [3, None, "z", True]}}
    assert type(exact(2.0)) is int


def test_the_limits_are_kept() -> None:
    settings = Settings(long_after=1, stuck_after=2, clock_skew=3)
    assert judged_with(settings, 5.0, [{"reason": "x"}]) == {
        "left_out": [{"reason": "x"}],
        "sample_interval_ms": 5000,
        "long_after_ms": 1,
        "stuck_after_ms": 2,
        "clock_skew_ms": 3,
    }


WAITING = SimpleNamespace(mine=3, freed=4, mine_bytes=99, complete=True)


def evidence_of(one: Any, outcome: str, waiting: object = WAITING) -> dict[str, Any]:
    class Read:
        async def waiting(self, partition: object, producer_id: int | None) -> object:
            assert (partition, producer_id) == (one.partition, one.about.producer_id)
            return waiting

    nobody, counts = cast("Cluster", None), cast("Counts", Read())
    return asyncio.run(step_evidence(nobody, one, outcome, counts))


def test_an_abort_drops_and_a_commit_delivers() -> None:
    keys = ("records", "dropped", "freed", "bytes", "counted_whole")
    one = judged("orphan", 7)
    told = {outcome: evidence_of(one, outcome) for outcome in ("abort", "commit")}
    assert [told["abort"][key] for key in keys] == [3, 3, 4, 99, True]
    assert [told["commit"][key] for key in keys] == [3, 0, 7, 99, True]
    least = SimpleNamespace(**vars(WAITING) | {"complete": False})
    assert evidence_of(one, "abort", least)["counted_whole"] is False
    unread = evidence_of(one, "abort", None)
    assert [unread[key] for key in keys] == [None, None, None, None, False]


def test_a_partition_of_a_plan_is_read_once_for_all_its_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless its batches are too many to be kept."""
    read: list[str] = []

    class Partitions:
        async def held(self, p: PartitionFacts) -> object:
            read.append(p.topic)
            if p.topic == "away":
                return None
            buffers = [b"x" * 6, b"x" * (5 if p.topic == "large" else 4)]
            return SimpleNamespace(buffers=buffers, waiting=lambda pid: (p.topic, pid))

    def partition(topic: str, end: int = 9) -> PartitionFacts:
        return PartitionFacts(topic, 0, leader=1, last_stable_offset=3, high_watermark=end)

    async def counted() -> list[Any]:
        counts = Counts(cast("Cluster", None))
        monkeypatch.setattr(counts, "_live", Partitions())
        monkeypatch.setattr(Counts, "MOST_BYTES", 10)
        ends = [("t", 9), ("t", 9), ("t", 11), ("large", 9), ("large", 9), ("away", 9)]
        return [await counts.waiting(partition(*at), n) for n, at in enumerate(ends)]

    found = asyncio.run(counted())
    assert found == [("t", 0), ("t", 1), ("t", 2), ("large", 3), ("large", 4), None]
    assert read == ["t", "t", "large", "large", "away"]


def test_its_owner_its_looks_and_its_groups() -> None:
    one = judged("orphan", 7)
    said = evidence_of(one, "abort")
    assert (said["transactional_id"], said["looks"], said["groups_held"]) == (None, None, [])
    known = replace(one, history=cast("Any", SimpleNamespace(transactional_ids=("pay",))))
    assert evidence_of(known, "abort")["transactional_id"] == "pay"
    two = replace(one, history=cast("Any", SimpleNamespace(transactional_ids=("pay", "x"))))
    assert evidence_of(two, "abort")["transactional_id"] is None
    owner = TransactionFacts("mine", 1, 7, "Ongoing")
    owned = replace(known, verdict=replace(one.verdict, owner=owner))
    assert evidence_of(owned, "abort")["transactional_id"] == "mine"
    start = StartBatch(7, 1, groups=("b", "a"))
    assert evidence_of(replace(one, start=start), "abort")["groups_held"] == ["a", "b"]


def test_two_looks_at_its_producer() -> None:
    one = judged("orphan", 7)

    def at(sequence: int | None, when: int) -> Any:
        row = ProducerFacts("t", 0, 7, 1, sequence, 1_000, 0, 100)
        rows = None if sequence is None else (row,)
        return replace(one.first, producers=rows, collected_at=when)

    def looks(first: Any, second: Any) -> Any:
        found = evidence_of(replace(one, first=first, second=second), "abort")["looks"]
        return found and (found["apart_ms"], found["wrote"])

    assert looks(at(3, 1_000), at(3, 1_300)) == (300, False)
    assert looks(at(3, 1_000), at(4, 1_300)) == (300, True)
    assert looks(at(3, 1_300), at(3, 1_000)) == (0, False)  # our clock was set back
    assert looks(at(None, 1_000), at(3, 1_300)) == (None, None)
    assert looks(at(3, 1_000), at(None, 1_300)) == (None, None)
    assert looks(at(3, 1_000), None) is None
    hidden = replace(one, about=replace(one.about, producer_id=None))
    assert evidence_of(replace(hidden, second=one.first), "abort")["looks"] is None


def test_an_id_without_a_partition_holds_and_drops_nothing() -> None:
    row = TransactionFacts("pay", 1, 7, "Ongoing")
    told = told_without_partition(row, "open", "r", [])
    assert (told["partition"], amounts(told)) == (None, "none dropped, 0 freed")
