"""`restart` as an operation: what a look at its store proves, and when a dry run looks at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.restart import applying
from eoctl.operations.restart.applying import Restarting, check
from eoctl.operations.restart.observe import Stores
from eoctl.operations.restart.restart_plan import KIND, STORE, parameters
from eoctl.operations.restart.restart_request import asked_again
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import Write
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import RefusedError, UnreachableError
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import FileStore
from tests.offset_stores import free

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
ASKED: dict[str, Any] = {"group": "g", "offsets": {}}


def plan(*steps: Step, kind: str = KIND, **details: Any) -> Plan:
    now = now_ms()
    return Plan(
        kind=kind,
        action="restart",
        created_at=now,
        expires_at=now + VALID_MS,
        context="here",
        argv=(),
        cluster_id="c",
        scope="g",
        summary="moved",
        lock="this host only",
        observed={},
        steps=steps,
        details={"asked": ASKED, "target": {}, "pause_ms": 0} | details,
    )


def step(*writes: Write) -> Step:
    return Step(
        action="write",
        target="store",
        parameters=parameters(STORE, writes),
        does="moves",
        stands_on=(),
    )


@pytest.mark.parametrize(
    ("then", "untouched"),
    [({0: 3, 1: 3}, True), ({0: 7, 1: 3}, False), ({0: 9, 1: 3}, False), ({0: 3}, False)],
)
def test_only_what_stands_as_it_was_is_proven_not_to_be_written(
    tmp_path: Path, then: dict[int, int], untouched: bool
) -> None:
    """Both partitions go from 3 to 7: one of them written is a step that was begun."""

    async def look() -> tuple[bool | None, bool]:
        described = FileStore(kind="file", path=str(tmp_path / "positions.json"))
        async with open_store(described) as store:

            def kept(partition: int, offset: int) -> Any:
                at = StoredOffset(topic="t", partition=partition, offset=offset)
                return store.kept(StoredPartition(input=at))

            await store.write([Write("t", p, None, kept(p, o)) for p, o in then.items()], free)
            mine = step(*(Write("t", p, kept(p, 3), kept(p, 7)) for p in (0, 1)))
            cluster = Cluster(client_settings(NOBODY), Deadline(5))
            operation = Restarting(plan(mine), asked_again(ASKED), cluster, Stores(store, None))
            seen = await operation.verify(mine)
            return seen.done, seen.untouched

    assert asyncio.run(look()) == (False, untouched)


@pytest.mark.parametrize(
    ("closed", "looks"), [(None, False), ("verified", False), ("failed", True), ("undone", True)]
)
def test_a_dry_run_looks_unless_the_plan_is_begun_or_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: Any, looks: bool
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    made = plan(step(Write("t", 0, None, {"offset": 7})))
    writer = Journal().begin(made, ["eoctl"], None)
    if closed is not None:
        writer.append(closed)
        writer.finished()
    writer.close()
    context = Context(name="here", argv=(), properties=NOBODY)
    if not looks:
        check(made, context, 5)
        return
    with pytest.raises(UnreachableError):
        check(made, context, 5)


@pytest.mark.parametrize(("gone", "more"), [(3, ""), (5, " (and 2 more)")])
def test_a_dry_run_says_how_many_facts_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int, more: str
) -> None:
    async def answer(value: Any) -> Any:
        return value

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(cluster_id=lambda: answer("c"), observe=lambda _: answer({}))

    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(applying, "opened", opened)
    facts = {f"t:{n}": n for n in range(gone)}
    steps = (step().model_copy(update={"stands_on": tuple(facts)}),)
    made = plan().model_copy(update={"observed": facts, "steps": steps})
    with pytest.raises(RefusedError) as refused:
        check(made, Context("here", NOBODY, ()), 5)
    changes = "; ".join(f"t:{n}: was {n} when planned, is gone now" for n in range(3))
    assert refused.value.what == f"changed since the plan: {changes}{more}"
