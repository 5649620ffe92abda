"""A plan has what was asked for, and rests on what is seen now: else there is none."""

import asyncio
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.remedy import group_offsets, salvage_change
from eoctl.operations.remedy.many_remedies import fences_named
from eoctl.operations.remedy.remedy_change import RemedyOperation
from eoctl.operations.remedy.salvage_change import Found, SalvageRequest, of_transaction
from eoctl.settings.context import Connect, resolve
from recovery.change.plan import Plan, Step
from recovery.diagnose.diagnosis import Diagnosis
from recovery.diagnose.remedies import Remedy
from recovery.errors import IncompleteError
from recovery.facts import Missing, Transactions
from recovery.formats.flink_checkpoint import Committable
from recovery.remedy.repairs import MARKER_ACTION
from recovery.values import Reason, replace
from tests.unit.check_facts import judged

LOST = Committable("sink-0-1", 7, 0, 3, "")


def test_a_plan_of_many_fences_only_ids_of_the_verdicts_asked_for() -> None:
    def fenced(verdict: str, pid: int, name: str) -> Any:
        one = judged(verdict, pid)
        remedy = Remedy(
            "fence", Reason("abort"), transactional_id=name, producer_id=pid, producer_epoch=1
        )
        return replace(one, verdict=replace(one.verdict, remedy=remedy))

    found = (fenced("overdue", 7, "pay"), fenced("long", 8, "slow"), judged("overdue", 9))
    diagnosis = Diagnosis("c", 0, 9, 2, 1, 1, (), found, Transactions(), ())
    assert [r.transactional_id for r in fences_named(diagnosis, ["overdue"])] == ["pay"]
    assert [r.transactional_id for r in fences_named(diagnosis, ["overdue", "long"])] == [
        "pay",
        "slow",
    ]


class Forgiving:
    """A cluster with a broker that was silent when the plan was made."""

    forgiven = False

    def forgive(self) -> None:
        self.forgiven = True


def plan(**changes: Any) -> Plan:
    fixed: dict[str, Any] = {
        "kind": "txn-abort",
        "action": "abort",
        "created_at": 1,
        "expires_at": 2,
        "context": "prod",
        "argv": (),
        "cluster_id": "c",
        "scope": "t:0",
        "summary": "",
        "lock": "",
        "observed": {},
        "steps": (),
    }
    return Plan(**fixed | changes)


def test_a_broker_that_was_silent_before_is_asked_again() -> None:
    cluster = Forgiving()
    limits = {"long_after_ms": 1, "stuck_after_ms": 1, "clock_skew_ms": 1, "sample_interval_ms": 1}
    operation = RemedyOperation(
        cast("Cluster", cluster), resolve(Connect(bootstrap_server="h:1")), plan(details=limits)
    )
    assert asyncio.run(operation.observe([])) == {}
    assert cluster.forgiven


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(*_: object) -> Found:
        return Found((), (), (Missing("broker", "TIMED_OUT", "broker 2 is silent"),))

    monkeypatch.setattr(salvage_change, "find", find)


@pytest.mark.usefixtures("unseen")
def test_nothing_is_salvaged_of_what_was_not_all_seen() -> None:
    cluster, context = cast("Cluster", Forgiving()), resolve(Connect(bootstrap_server="h:1"))
    request = SalvageRequest(of_transaction(LOST))
    with pytest.raises(IncompleteError, match="broker 2 is silent"):
        asyncio.run(salvage_change.plan(cluster, context, request, "sink"))
    step = Step(
        action="salvage",
        target=LOST.transactional_id,
        parameters={"producer_id": 7, "producer_epoch": 0, "checkpoint_id": 3, "pieces": {}},
        does="",
        stands_on=(),
    )
    details: dict[str, Any] = {"topics": [], "to": None, "never_before": False}
    operation = salvage_change.SalvageOperation(
        cluster, context, plan(details=details, steps=(step,))
    )
    with pytest.raises(IncompleteError, match="broker 2 is silent"):
        asyncio.run(operation.observe([step]))


@pytest.mark.parametrize(
    ("action", "partitions", "asked"),
    [
        ("fence", ["__consumer_offsets:7"], True),
        ("fence", ["t:0", "__consumer_offsets:7"], True),
        ("fence", ["t:0"], False),  # it holds no group's offset
        ("abort", ["t:0"], True),  # a marker's producer may hold some elsewhere
    ],
)
def test_offsets_of_groups_are_looked_for_where_a_step_may_hold_some(
    monkeypatch: pytest.MonkeyPatch, action: str, partitions: list[str], *, asked: bool
) -> None:
    hidden = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "grant READ", topic="x")

    async def homes(_: object) -> Missing:
        return hidden

    monkeypatch.setattr(group_offsets, "offsets_partitions", homes)
    name = MARKER_ACTION if action == "abort" else action
    step = Step(
        action=name,
        target="t:0",
        parameters={"producer_id": 7, "partitions": partitions},
        does="",
        stands_on=(),
    )
    _, missing = asyncio.run(group_offsets._pending(cast("Cluster", Forgiving()), [step]))
    assert missing == ([hidden] if asked else [])
