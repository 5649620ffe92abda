"""What `restart verify` finds of a process that should be dead, fact by fact."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.restart import restart_verify
from eoctl.operations.restart.observe import RestartLook
from eoctl.operations.restart.restart_plan import KIND, _producers
from eoctl.operations.restart.restart_verify import _compared, _outputs, _same_log, _zombies
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import Contents
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import RefusedError
from recovery.facts import GroupOffsetFacts, PartitionFacts, TopicPartition
from recovery.restart.decision import OutputDecision, RestartPlan
from recovery.restart.observed import Count, Counted, Log, LogEnd, Observed
from recovery.restart.producers import ProducerRun, Producers
from recovery.shared.store_tables import FileStore

OUT = OutputDecision("out", 0, 3, 10, 5, 7, ())


def plan(producers: dict[str, list[int]]) -> Plan:
    return Plan(
        kind=KIND,
        action="restart",
        created_at=0,
        expires_at=VALID_MS,
        context="here",
        argv=(),
        cluster_id="c",
        scope="g",
        summary="moved",
        lock="this host only",
        observed={"out:0": {"topic_id": "id"}},
        steps=(Step(action="keep", target="g", does="nothing", stands_on=()),),
        details={"producers": producers},
    )


def test_a_producer_of_another_output_is_from_before_the_plan() -> None:
    """It wrote out:1 only, and now out:0 behind the counted end."""
    found = Producers(last={7: (0, 2), 9: (0, 0)})
    rows = list(_zombies(plan({"out:0": [], "out:1": [7]}), TopicPartition("out", 0), OUT, found))
    assert [(r.finding, r.where, r.producer_id) for r in rows] == [("written-beyond", "out:0", 7)]


def test_who_wrote_the_range_is_kept_where_the_leader_knows_nobody_any_more() -> None:
    """Its producer state has expired, the batches are there."""
    log = Log("out", 0, "id", 5, 0, (LogEnd(10, 10, 10),) * 2, producers=())
    told = Counted(Any, Producers(last={7: (0, 2)}))  # type: ignore[arg-type]
    observed = Observed(
        "c", {"out": 1}, {TopicPartition("out", 0): log}, answers={Count("out", 0, 3, 10): told}
    )
    decision = RestartPlan("a", "commit-pair", (), (OUT,), (), "exactly-once", "", (), ())
    assert _producers(RestartLook(observed, decision, None, None)) == {"out:0": [7]}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_commit_in_an_open_transaction_is_a_finding(tmp_path: Path, number: int) -> None:
    pending = tuple(GroupOffsetFacts("g", "in", p, 3, pending=True) for p in range(number))

    async def look() -> list[Any]:
        async with open_store(FileStore(kind="file", path=str(tmp_path / "p.json"))) as store:
            return list(_compared("store", store, Contents(True, pending=pending), {}))

    found = [(r.finding, r.where) for r in asyncio.run(look())]
    assert found == [("pending", f"in:{p}") for p in range(number)]


@pytest.mark.parametrize(("epoch", "findings"), [(5, []), (6, ["another-epoch"]), (None, [])])
def test_another_leader_epoch_is_a_finding(epoch: int | None, findings: list[str]) -> None:
    facts = PartitionFacts("out", 0, "id", leader_epoch=epoch, high_watermark=10)
    assert [r.finding for r in _same_log(plan({}), facts, OUT)] == findings


def test_a_producer_without_an_id_is_a_finding_whoever_it_is() -> None:
    """It is in no list of those before: nobody can tell it from the application."""
    found = Producers(runs=(ProducerRun(-1, 10, 12, False),))
    rows = list(_zombies(plan({"out:0": [7]}), TopicPartition("out", 0), OUT, found))
    assert [(r.finding, r.where, r.producer_id) for r in rows] == [
        ("written-beyond", "out:0", None)
    ]
    assert "a producer without an id wrote after offset 10" in rows[0].detail


@pytest.mark.parametrize(("log_end", "findings"), [(10, []), (11, ["written-beyond"])])
def test_records_that_are_not_replicated_yet_are_a_finding(
    monkeypatch: pytest.MonkeyPatch, log_end: int, findings: list[str]
) -> None:
    """High watermark and last stable offset are as counted; the leader's log goes on."""
    there = PartitionMetadata("out", 0, 1, 5, (1, 2), None, "id")
    facts = PartitionFacts("out", 0, "id", 1, 5, (1, 2), 0, 10, 10)

    class OneTopic(Cluster):
        async def metadata(self, topics: Any = None) -> ClusterMetadata:
            topic = TopicMetadata("out", "id", False, (there,), None)
            return ClusterMetadata("c", 1, {}, {"out": topic})

    async def read_ends(*given: Any) -> Any:
        return [facts], {("out", 0): log_end}, []

    monkeypatch.setattr(restart_verify, "read_ends", read_ends)
    cluster = OneTopic(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    rows, missing = asyncio.run(_outputs(cluster, plan({}), {TopicPartition("out", 0): OUT}))
    assert missing == []
    assert [r.finding for r in rows] == findings
    assert all("from 10 on that are not replicated" in r.detail for r in rows)


def test_another_cluster_s_plan_is_refused() -> None:
    """Its offsets say nothing of this one's."""
    other = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    other.cluster_id = "another"
    with pytest.raises(RefusedError, match="the plan is for cluster c, but another answers"):
        asyncio.run(restart_verify.verify(other, plan({}), pause=0))


@pytest.mark.parametrize(
    ("finding", "shown"), [("store", "overwritten"), ("mirror", "mirror-overwritten")]
)
def test_a_position_that_was_written_over_is_a_finding_of_its_store(
    tmp_path: Path, finding: str, shown: str
) -> None:
    """With the group's state, where the store is a group."""
    kept = {TopicPartition("in", 0): {"offset": 6}}
    contents = Contents(True, facts={"state": "Stable"}, sources=kept)
    target = {"in:0": {"offset": 12}, "in:1": None}

    async def look() -> list[Any]:
        async with open_store(FileStore(kind="file", path=str(tmp_path / "p.json"))) as store:
            return list(_compared(finding, store, contents, target))

    [row] = asyncio.run(look())
    assert (row.finding, row.where) == (shown, "in:0")
    assert "was 12 when planned, is 6 now; the group is Stable" in row.detail


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        ({"high_watermark": 11}, []),
        ({"high_watermark": 9}, ["lost"]),
        ({"high_watermark": None}, []),
        ({"topic_id": "new"}, ["another-topic"]),
    ],
)
def test_an_output_is_the_log_that_was_counted(
    changes: dict[str, Any], findings: list[str]
) -> None:
    facts = PartitionFacts("out", 0, **{"topic_id": "id", "high_watermark": 10, **changes})
    assert [r.finding for r in _same_log(plan({}), facts, OUT)] == findings
