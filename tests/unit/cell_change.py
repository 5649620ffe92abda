"""A change whose cluster is a JSON file of numbered cells, for tests of what all changes share.

`register` gives `eoctl` two more commands: `set A=5 B=7 [--out PLAN]`, `apply PLAN`.
The seam is the one of every operation: eoctl.operations.change.steps.Operation. CELLS names the
file; each write is also appended to FILE.log, so that a test sees a write that was sent twice.
CELL_TROUBLE, of words `WORD:CELL`, makes trouble at a cell: lose the answer, refuse, ignore the
write, write half of it, wait before it or pause after it, be blind when it is read, report that it
may not be written; zombie: cell a is overwritten during it.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.main import run
from eoctl.cli.options import Connection, Format
from eoctl.cli.tree import TREE, Leaf
from eoctl.host.clock import now_ms
from eoctl.operations.change import steps
from eoctl.operations.change.acting import KINDS
from eoctl.operations.change.steps import Effect
from eoctl.settings.context import Context
from eoctl.stores import plan_files
from eoctl.stores.locks.lock import lock_words
from recovery.change.journal import JournalEntry
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import IncompleteError, RefusedError, UnreachableError, UnverifiedError

CLUSTER = "cells-1"
HALF = "half"  # of a write: our own, so it counts as not changed


def path() -> Path:
    return Path(os.environ["CELLS"])


def cells() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path().read_text())
    return found


def put(name: str, value: Any) -> None:
    """One write, as atomic as a broker's."""
    part = path().with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({**cells(), name: value}))
    part.replace(path())
    with path().with_suffix(".log").open("a") as log:
        log.write(f"{name}={value}\n")


def wait_for_file(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


def trouble(word: str, cell: str) -> bool:
    return f"{word}:{cell}" in os.environ.get("CELL_TROUBLE", "").split()


class CellOperation:
    def __init__(self, expected: Mapping[str, Any]) -> None:
        self._expected = expected

    async def cluster_id(self) -> str:
        return os.environ.get("CELL_CLUSTER", CLUSTER)

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        now = cells()
        found = {step.target: {"value": now.get(step.target)} for step in steps}
        half = {name for name, fact in found.items() if fact["value"] == HALF}
        return {n: self._expected[n] if n in half else fact for n, fact in found.items()}

    async def refuse_ungranted(self, steps: Sequence[Step]) -> None:
        if ungranted := [step.target for step in steps if trouble("ungranted", step.target)]:
            raise RefusedError(f"WRITE on {ungranted[0]} is not granted", remedy="grant WRITE")

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        if trouble("refuse", step.target):
            raise RefusedError("the file said no", where=step.target, remedy="ask the file")
        if trouble("deny", step.target):
            raise RefusedError("no right", where=step.target, remedy="grant WRITE on the file")
        if trouble("wait", step.target):
            path().with_suffix(".waiting").touch()
            await asyncio.sleep(60)
        if trouble("half", step.target):
            put(step.target, HALF)
            raise UnverifiedError("only a half was taken", where=step.target)
        if not trouble("ignore", step.target):
            put(step.target, step.parameters["value"])
        if trouble("zombie", step.target):
            put("a", 99)
        if trouble("pause", step.target):
            path().with_suffix(".waiting").touch()
            await asyncio.to_thread(wait_for_file, path().with_suffix(".go"))
        if trouble("lose", step.target):
            raise UnreachableError("the connection broke", where=step.target)
        return {"error": 0}

    async def verify(self, step: Step) -> Effect:
        if trouble("blind", step.target):
            raise IncompleteError("cannot be read", where=step.target)
        value = cells().get(step.target)
        return Effect(
            value == step.parameters["value"],
            {"value": value},
            f"{step.target} is {value}",
            untouched=self._expected.get(step.target) == {"value": value},
            beyond="one cell more was written" if trouble("beyond", step.target) else None,
        )


@asynccontextmanager
async def opened(
    plan: Plan, context: Context, seconds: float | None
) -> AsyncIterator[CellOperation]:
    yield CellOperation(plan.observed)


def plan(
    values: Mapping[str, Any],
    context: Context | None = None,
    *,
    kind: str = "test-cells",
    independent: bool = False,
    all_or_none: bool = False,
    valid_ms: int = VALID_MS,
    scope: str = "cells",
) -> Plan:
    """Set these cells, standing on what they hold now."""
    now, ms = cells(), now_ms()
    changes = tuple(
        Step(
            action="set",
            target=name,
            parameters={"value": value},
            does=f"sets {name} to {value}",
            stands_on=(name,),
        )
        for name, value in values.items()
    )
    return Plan(
        kind=kind,
        action="undo" if kind == "test-cells-undo" else "set",
        created_at=ms,
        expires_at=ms + valid_ms,
        context=context.title if context else "here",
        argv=context.argv if context else ("--bootstrap-server", "here:1"),
        cluster_id=CLUSTER,
        scope=scope,
        summary=", ".join(f"{name} becomes {value}" for name, value in values.items()),
        lock=lock_words(context.lock_zookeeper if context else None),
        observed={name: {"value": now.get(name)} for name in values},
        steps=changes,
        independent=independent,
        all_or_none=all_or_none,
    )


def undo_plan(entry: JournalEntry, context: Context, timeout: float | None) -> Plan:
    """Put back what the steps that were sent found, if they hold what was written."""
    before = entry.plan
    back = {}
    for number in entry.steps("step-started"):
        step = before.steps[number - 1]
        value = cells().get(step.target)
        if value in (step.parameters["value"], HALF):
            back[step.target] = before.observed[step.target]["value"]
        elif number in entry.steps("step-done"):
            raise RefusedError(f"it holds {value}, not what was written", where=step.target)
    return plan(back, context, kind="test-cells-undo", scope=before.scope)


def set_(
    connection: Connection,
    said: Execute,
    output: Format,
    words: Annotated[list[str], typer.Argument(metavar="CELL=N...")],
    out: Annotated[Path | None, typer.Option("--out")] = None,
    independent: Annotated[bool, typer.Option("--independent")] = False,
    all_or_none: Annotated[bool, typer.Option("--all-or-none")] = False,
    valid_ms: Annotated[int, typer.Option("--valid-ms")] = VALID_MS,
) -> int:
    context = connection.one()
    pairs = [word.split("=") for word in words]
    made = plan(
        {name: int(value) for name, value in pairs},
        context,
        independent=independent or all_or_none,
        all_or_none=all_or_none,
        valid_ms=valid_ms,
    )
    if out is not None:
        plan_files.write(made, out)
    return CommandChange("set", made, context).run(said, output, connection.seconds())


def apply(connection: Connection, said: Execute, output: Format, file: Path) -> int:
    made = plan_files.read(file)
    return CommandChange("apply", made, connection.one()).run(said, output, connection.seconds())


def register() -> None:
    """Make the kinds known to this process, and the commands."""
    KINDS["test-cells"] = KINDS["test-cells-undo"] = lambda: sys.modules[__name__]
    sys.modules["eoctl.cli.commands.cell_change"] = sys.modules[__name__]
    commands: Any = TREE.commands
    commands["set"] = Leaf("cell_change:set_", "set cells", "eoctl set")
    commands["apply"] = Leaf("cell_change:apply", "carry out a plan file", "eoctl apply")


def main() -> None:
    """eoctl with two more commands, and with the time it waits that the environment says."""
    from eoctl.__main__ import main

    if settle := os.environ.get("CELL_SETTLE"):
        steps.SETTLE_SECONDS = float(settle)
    register()
    main()


if __name__ == "__main__":
    register()
    raise SystemExit(run())
