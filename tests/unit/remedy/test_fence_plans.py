"""What a fence plans of an idle id, what its limits forbid, and when it counts as done before.

The coordinator's answers are scripted; real ones are asked in tests/kafka/test_remedies.py.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs, coordinators
from eoctl.kafka.connection.failures import WireError
from eoctl.operations.change.steps import NOT_PLANNED
from eoctl.operations.remedy import fence, raising, shutting_out
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import Missing, TransactionFacts
from recovery.inspect.observation import Settings
from tests.unit.id_coordinator import PID, nobody

GONE = RemedyRequest("fence", transactional_id="x", owner_is_gone=True)


def row(
    state: str = "Empty", epoch: int | None = 4, timeout: int | None = 60_000
) -> TransactionFacts:
    return TransactionFacts("x", 1, PID, state, epoch, timeout, 1, ())


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return Journal()


def described_as(monkeypatch: pytest.MonkeyPatch, now: TransactionFacts | None) -> None:
    async def described(*given: Any) -> TransactionFacts | None:
        return now

    monkeypatch.setattr(shutting_out, "described", described)


def planned(
    monkeypatch: pytest.MonkeyPatch,
    now: TransactionFacts | None,
    request: RemedyRequest = GONE,
    *,
    version: int | None = 5,
    most: str | None = "900000",
    contested: Sequence[str] = (),
) -> Plan:
    """version: EndTxn raises an idle id; most: the coordinator's transaction.max.timeout.ms."""
    described_as(monkeypatch, now)

    async def nothing(*given: Any) -> None:
        return None

    async def end_version(*given: Any) -> int | None:
        return version

    async def broker_configs(cluster: Any, keys: Any) -> Any:
        return {"1": {keys[0]: most}, "2": {keys[0]: "1"}}, []

    async def harms(cluster: Any, name: str) -> list[str]:
        assert name == "x"
        return list(contested)

    monkeypatch.setattr(raising, "refuse_short_log", nothing)
    monkeypatch.setattr(raising, "end_version", end_version)
    monkeypatch.setattr(configs, "broker_configs", broker_configs)
    monkeypatch.setattr(fence, "_contested", harms)
    cluster = nobody()
    cluster.cluster_id = "c"
    made = fence.plan(cluster, Context("here", {}, ()), request, Settings(), 0)
    return asyncio.run(made)


@pytest.mark.parametrize("version", [5, None])
def test_an_idle_id_is_raised_by_a_fence(
    monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    made = planned(monkeypatch, row(), version=version, contested=["it is contested"])
    [step] = made.steps
    assert step.action == raising.ACTION
    assert step.parameters == {
        "producer_id": PID,
        "producer_epoch": 4,
        "timeout_ms": 60_000,
        "above": 4,
        "end_version": version,
        "coordinator": 1,
        "owner_is_gone": True,
    }
    assert step.harms[0] == "it is contested"
    assert len(step.harms) == 2
    assert [(a["transactional_id"], a["verdict"], a["dropped"]) for a in step.about] == [
        ("x", "at rest", 0)
    ]
    assert made.observed == {
        "id x": {"state": "Empty", "producer_id": PID, "producer_epoch": 4, "timeout_ms": 60_000}
    }
    assert (made.kind, made.scope, made.hits) == ("txn-fence", "id x", "x-owner-is-gone")
    assert "it is idle; its owner is shut out" in made.summary


def test_an_idle_id_is_left_alone_unless_its_owner_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="nothing is open that a fence could end"):
        planned(monkeypatch, row(), RemedyRequest("fence", transactional_id="x"))


@pytest.mark.parametrize("now", [row(epoch=None), row(timeout=None)])
def test_an_idle_id_that_was_not_described(
    monkeypatch: pytest.MonkeyPatch, now: TransactionFacts
) -> None:
    with pytest.raises(IncompleteError, match="could not be described"):
        planned(monkeypatch, now)


def test_an_id_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="no coordinator knows"):
        planned(monkeypatch, None)


@pytest.mark.parametrize(
    ("version", "most", "refused"),
    [(None, "59999", True), (None, "60000", False), (None, None, False), (5, "59999", False)],
)
def test_a_timeout_that_the_coordinator_would_refuse(
    monkeypatch: pytest.MonkeyPatch, version: int | None, most: str | None, *, refused: bool
) -> None:
    """Before anything is sent; EndTxn v5 names no timeout."""
    if refused:
        with pytest.raises(RefusedError, match="INVALID_TRANSACTION_TIMEOUT"):
            planned(monkeypatch, row(), version=version, most=most)
    else:
        planned(monkeypatch, row(), version=version, most=most)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "over"),
    [(PID, 4, False), (None, 4, False), (PID, None, False), (PID, 3, True), (PID + 1, 4, True)],
)
def test_another_incarnation_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, producer_id: int | None, epoch: int | None, *, over: bool
) -> None:
    request = RemedyRequest(
        "fence",
        transactional_id="x",
        producer_id=producer_id,
        producer_epoch=epoch,
        owner_is_gone=True,
    )
    if over:
        with pytest.raises(RefusedError, match="that transaction is over"):
            planned(monkeypatch, row(), request)
    else:
        planned(monkeypatch, row(), request)


@pytest.mark.parametrize("supports", [True, False])
def test_whether_the_coordinator_raises_an_id_by_its_end(*, supports: bool) -> None:
    cluster = nobody()

    async def connection(broker: int) -> Any:
        assert broker == 1
        return SimpleNamespace(supports=lambda question, least: supports and least == 5)

    async def silent(broker: int) -> Any:
        raise WireError("SILENT", "it is silent")

    cluster.connection = connection  # type: ignore[method-assign]
    assert asyncio.run(raising.end_version(cluster, 1)) == (5 if supports else None)
    cluster.connection = silent  # type: ignore[method-assign]
    with pytest.raises(IncompleteError, match="it is silent"):
        asyncio.run(raising.end_version(cluster, 1))


def done(
    journal: Journal,
    *,
    kind: str = "txn-fence",
    cluster: str = "c",
    scope: str = "id x",
    **saw: Any,
) -> str:
    """An entry that ended so. Return its id."""
    now = now_ms()
    given = {"producer_id": PID, "producer_epoch": 4, "owner_is_gone": True, "is_stopped": False}
    step = Step(action="fence", target="x", parameters=given, does="", stands_on=())
    made = Plan(
        kind=kind,
        action="fence",
        created_at=now,
        expires_at=now + VALID_MS,
        context="here",
        argv=(),
        cluster_id=cluster,
        scope=scope,
        summary="",
        lock="",
        observed={},
        steps=(step,),
        details={},
    )
    detail = saw.pop("detail", "it is over")
    writer = journal.begin(made, ("eoctl",), None)
    writer.append("step-started", step=1)
    writer.append("step-done", step=1, saw=saw, detail=detail)
    writer.append("verified")
    writer.finished()
    writer.close()
    return writer.entry


def before(monkeypatch: pytest.MonkeyPatch, request: RemedyRequest = GONE) -> str | None:
    described_as(monkeypatch, row("Empty", 7))
    cluster = nobody()
    cluster.cluster_id = "c"
    return asyncio.run(fence.done_before(cluster, request))


LEFT: dict[str, Any] = {
    "state": "Empty",
    "producer_epoch": 7,
    "shut_out": {"used": [PID, 4], "at": [PID, 7]},
}


def test_a_fence_whose_id_is_as_it_left_it_is_done(
    monkeypatch: pytest.MonkeyPatch, journal: Journal
) -> None:
    assert before(monkeypatch) is None
    done(journal, **LEFT | {"producer_epoch": 5})
    entry = done(journal, **LEFT)
    assert before(monkeypatch) == f"done already: it is Empty, as journal entry {entry} left it"
    stopped = RemedyRequest("fence", transactional_id="x", is_stopped=True)
    assert before(monkeypatch, stopped) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "Ongoing"},
        {"producer_epoch": 6},
        {"detail": f"it is over; {NOT_PLANNED} its owner committed"},
        {"kind": "txn-abort"},
        {"cluster": "another"},
        {"scope": "id y"},
    ],
)
def test_a_fence_that_left_something_else_is_not_done(
    monkeypatch: pytest.MonkeyPatch, journal: Journal, changed: dict[str, Any]
) -> None:
    done(journal, **LEFT | changed)
    assert before(monkeypatch) is None


@pytest.mark.parametrize(
    ("listed", "missing", "error", "why"),
    [
        (["x"], [], None, None),
        (["y"], [], RefusedError, "open and within its limits"),
        (["x"], [Missing("feature", "X", "too old")], IncompleteError, "too old"),
    ],
)
@pytest.mark.parametrize(
    ("timeout", "limit"), [(60_000, 60_000), (10**9, 300_000), (None, 300_000)]
)
def test_limits_are_by_the_coordinators_clock(
    monkeypatch: pytest.MonkeyPatch,
    listed: list[str],
    missing: list[Missing],
    error: type[Exception] | None,
    why: str | None,
    timeout: int | None,
    limit: int,
) -> None:
    """The shorter one: its own timeout, or what the operator calls long."""

    async def look_for_life(cluster: Any, late: Any) -> Any:
        return SimpleNamespace(groups=(), groups_missing=())

    async def transactions(cluster: Any, **asked: Any) -> Any:
        assert asked == {
            "states": ["Ongoing"],
            "producer_ids": [PID],
            "running_longer_than_ms": limit,
        }
        rows = [TransactionFacts(name, 1, PID, "Ongoing") for name in listed]
        return SimpleNamespace(rows=rows, missing=missing)

    monkeypatch.setattr(fence, "look_for_life", look_for_life)
    monkeypatch.setattr(coordinators, "transactions", transactions)
    settings = Settings(long_after=300_000)
    refuse = fence._refuse_within_limits(nobody(), row("Ongoing", 4, timeout), settings)
    if error is None:
        asyncio.run(refuse)
    else:
        with pytest.raises(error, match=str(why)):
            asyncio.run(refuse)
