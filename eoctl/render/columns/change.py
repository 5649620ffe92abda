"""The columns of plans, their steps and the journal."""

from eoctl.render.columns.table import Table, marked, plain
from eoctl.render.shell import command
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.change.journal_rows import JournalEventRow, JournalRow, PlanRow, PlanStepRow
from recovery.plurals import counted
from recovery.times import rfc3339

_STEP_MARKS = {"refused": "!", "unverified": "?", "beyond-plan": "!"}
_MARKS = {"unfinished": "!", "failed": "!"}


def own_words(row: PlanStepRow | JournalEventRow) -> str | None:
    """Return the detail without the name next to it."""
    return row.detail and row.detail.removeprefix(f"{row.target}: ")


def _second(epoch_ms: int | None) -> str | None:
    """Return a time to the second: what people compare."""
    return None if epoch_ms is None else f"{(rfc3339(epoch_ms) or '')[:19]}Z"


PLAN = Table(PlanRow, names=("scope",))  # its lines: eoctl.cli.dialog.acting
STEPS = Table(
    PlanStepRow,
    (
        marked(lambda row: _STEP_MARKS.get(row.status or "")),
        Column("step", "STEP", "number"),
        Column("action", "ACTION", "word"),
        Column("target", "TARGET", "name"),
        Column("status", "STATUS", "word"),
        Column("detail", "DETAIL", "text", own_words),
    ),
)
JOURNAL = Table(
    JournalRow,
    (
        marked(lambda row: _MARKS.get(row.state)),
        Column("started", "STARTED", "word", lambda row: _second(row.started)),
        *plain("word", id="ENTRY", state="STATE", action="ACTION"),
        Column("context", "CONTEXT", "name", spare="any"),
        Column("scope", "WHERE", "name"),
        Column("steps", "STEPS", "number", lambda r: f"{r.steps_done}/{r.steps}", spare="any"),
        Column("user", "WHO", "name", lambda row: f"{row.user}@{row.host}", spare="any"),
        Column("ended", "ENDED", "word", lambda row: _second(row.ended), wide_only=True),
        Column("summary", "WHAT", "text"),
    ),
    names=("id",),
    summary=lambda answer: (
        f"{counted(len(answer.rows), 'change')}, {answer.extra['unfinished']} unfinished"
    ),
)


def _event(row: JournalEventRow) -> str:
    return row.event + (" (found)" if row.found else "")


def _show_summary(answer: Answer) -> str:
    entry = answer.extra["entry"]
    by = f"{entry['user']} on {entry['host']} (pid {entry['pid']})"
    return f"{entry['id']} is {entry['state']}; by {by}: {command(entry['argv'])}"


EVENTS = Table(
    JournalEventRow,
    (
        Column("at", "AT", "time"),
        Column("event", "EVENT", "word", _event),
        Column("step", "STEP", "number"),
        Column("target", "TARGET", "name"),
        Column("detail", "DETAIL", "text", own_words),
    ),
    names=("id", "step", "event"),
    summary=_show_summary,
)
