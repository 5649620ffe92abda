"""How far a copy and its source are read, and what was read of decisions. Answers are scripted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import producer_markers
from eoctl.operations.diagnose import copied
from eoctl.operations.diagnose.copied import InSource, compared_with_source
from eoctl.operations.inspect.source import StateLogs
from recovery.diagnose.copied import CopiedBatch, CopyDoubt
from recovery.errors import IncompleteError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.inspect.history import Marker, StateLog
from recovery.inspect.lost_markers import OwnMarker
from recovery.inspect.observation import OpenTransaction
from recovery.values import replace
from tests.unit.diagnose.test_source_decision import BEFORE, V2, log

A, B = (cast("Cluster", SimpleNamespace(cluster_id=name)) for name in "AB")
ABOUT = OpenTransaction("copy", 0, 7, 10)
THERE = TopicPartition("t", 0)
Item = CopiedBatch | Marker


def batch(offset: int, epoch: int = 1) -> CopiedBatch:
    return CopiedBatch(offset, offset, epoch, 1, 120, b"%d" % offset)


def ended(outcome: str, epoch: int = 2) -> Marker:
    return Marker(20, outcome, epoch, 0, 135)


def compared(
    monkeypatch: pytest.MonkeyPatch,
    theirs: Sequence[Item],
    mine: Sequence[Item] = (batch(10), batch(12)),
    state: StateLogs | None = None,
    own: tuple[OwnMarker, ...] | None = (),
) -> tuple[InSource, list[int]]:
    """The result, and the offsets that were read in the source."""
    read: list[int] = []

    async def described(cluster: Any, partition: TopicPartition) -> PartitionFacts:
        return PartitionFacts(*partition, "id", 1, 0, (1,), 0, 10, 30 if cluster is A else 13)

    async def of_producer(cluster: Any, about: Any, p: Any) -> AsyncIterator[Item]:
        for item in theirs if cluster is A else mine:
            if cluster is A:
                read.append(item.offset if isinstance(item, Marker) else item.base_offset)
            yield item

    async def markers(cluster: Any, abouts: Any, facts: Any) -> Any:
        assert abouts == [replace(ABOUT, topic="t")]
        return {abouts[0]: SimpleNamespace(found=[BEFORE], first=0)}

    async def state_logs(cluster: Any, ids: Any, wanted: Any) -> StateLogs:
        assert cluster is A
        return StateLogs(1, (log(*V2, version=2),)) if state is None else state

    monkeypatch.setattr(copied, "_described", described)
    monkeypatch.setattr(copied, "_of_producer", of_producer)
    monkeypatch.setattr(producer_markers, "markers", markers)
    monkeypatch.setattr(copied, "read_state_logs", state_logs)
    monkeypatch.setattr(copied, "own_markers", lambda cluster_id: own)
    return asyncio.run(compared_with_source(A, B, ABOUT, "t", 50)), read


SAME: list[Item] = [batch(10), batch(12), batch(14)]


def test_the_sources_decision_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = compared(monkeypatch, [*SAME, ended("commit"), batch(21, 2)])
    assert (found.copied.outcome, found.copied.compared, found.copied.missing) == ("commit", 2, 1)
    assert (found.partition, found.ahead) == (THERE, 17)


def test_the_source_is_read_to_its_marker_or_to_the_first_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest: list[Item] = [batch(n) for n in range(15, 20)]
    found, read = compared(monkeypatch, [batch(10), batch(13), *rest])
    assert (found.copied.doubt, read) == ("not-the-same", [10, 13])
    _, read = compared(monkeypatch, [*SAME, ended("commit"), *rest])
    assert read[-1] == 20


OURS = OwnMarker(THERE, 7, 2, "abort", 15)
BROKEN = replace(log(*V2, version=2), error="NOT_LEADER_OR_FOLLOWER")
OTHER = StateLog(4, (), 0, "TOPIC_AUTHORIZATION_FAILED")
DENIED = Missing("cluster", "TOPIC_AUTHORIZATION_FAILED", "no READ")


@pytest.mark.parametrize(
    ("marker", "state", "own", "doubt"),
    [
        (ended("abort"), None, (), "foreign-marker"),
        # an operator's guess there decides nothing here, even if the journal says that it was ours
        (ended("abort"), None, (OURS,), "ours"),
        (ended("abort"), None, None, "foreign-marker"),  # the journal here was not read
        # and where a coordinator decided, it is not asked who else sent it
        (ended("commit"), None, (replace(OURS, outcome="commit"),), None),
        (ended("commit"), None, None, None),
        (ended("abort", 3), None, (), "order-unclear"),  # of a later one, but for Kafka 4.0.0
        (ended("commit"), StateLogs(1, ()), (), "decision-gone"),
        (ended("commit"), StateLogs(1, (BROKEN,)), (), "decisions-not-read"),
        (ended("commit"), StateLogs(2, (log(*V2, version=2), OTHER)), (), "decisions-not-read"),
        (ended("commit"), StateLogs(0, (), (DENIED,)), (), "decisions-not-read"),
    ],
)
def test_what_is_not_decided_by_a_coordinator_there(
    monkeypatch: pytest.MonkeyPatch,
    marker: Marker,
    state: StateLogs | None,
    own: tuple[OwnMarker, ...] | None,
    doubt: CopyDoubt | None,
) -> None:
    found, _ = compared(monkeypatch, [*SAME, marker], state=state, own=own)
    assert found.copied.doubt == doubt
    assert (found.copied.outcome is None) == (doubt is not None)


def test_a_mirror_that_ended_it_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    mine: list[Item] = [batch(10), ended("commit")]
    with pytest.raises(IncompleteError, match="it ended meanwhile"):
        compared(monkeypatch, [*SAME, ended("commit")], mine)


def test_a_topic_that_may_not_be_described_is_no_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def selected(*given: Any) -> Any:
        return SimpleNamespace(topics={}), [], [DENIED]

    async def offsets(*given: Any) -> Any:
        return [], []

    monkeypatch.setattr(copied, "selected", selected)
    monkeypatch.setattr(collect, "partition_offsets", offsets)
    with pytest.raises(IncompleteError, match="no READ"):
        asyncio.run(compared_with_source(A, B, ABOUT, "t", 50))
