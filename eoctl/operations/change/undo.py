"""Make the plan that puts a change of the journal back."""

from collections.abc import Callable

from eoctl.operations.change.acting import kind_module
from eoctl.settings.context import Context
from recovery.change.journal import JournalEntry, ways_out
from recovery.change.plan import Plan
from recovery.errors import RefusedError


def undo_plan(entry: JournalEntry, context: Context, timeout: float | None) -> Plan:
    """Return the plan that undoes what an entry changed. Raises RefusedError if none can."""
    if entry.state in ("failed", "abandoned", "undone"):
        raise RefusedError(f"it is {entry.state}: there is nothing to undo", where=entry.id)
    plan = entry.plan
    make: Callable[[JournalEntry, Context, float | None], Plan] | None = getattr(
        kind_module(plan.kind), "undo_plan", None
    )
    if make is None:
        raise RefusedError(
            f"{plan.action} cannot be undone",
            where=entry.id,
            remedy=ways_out(entry.id, can_undo=False) if entry.state == "unfinished" else None,
        )
    return make(entry, context, timeout)
