"""The lists of plans, the journal and jobs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.render.columns import change, jobs
from eoctl.render.tables import Column
from eoctl.render.words import age as age_words
from recovery.change.job_rows import JobRow
from recovery.change.journal_rows import JournalRow, PlanFileRow
from recovery.values import replace
from tui.widgets.shared_rows import AGE, Picked, Text, aged, cells_of, numbered, since, table_row
from tui.widgets.tables import MARK, TableData, TableRow, table_data

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

_entry, _job = Picked(change.JOURNAL), Picked(jobs.JOBS)
PLAN_COLUMNS = (
    MARK,
    _entry("id", 22, "I", 1, title="PLAN OR ENTRY", kind="name"),
    _entry("state", 10, "S", worth=2),
    _entry("action", 9, "A"),
    _entry("context", 16, "X", 1, worth=-1),
    _entry("scope", 16, "W", 2, worth=1),
    _entry("steps", 5, "E"),
    replace(AGE, letter="O", worth=2),
    _entry("user", 16, "B", worth=-1),
    _entry("summary", 20, "", 3),
)
JOB_COLUMNS = (
    MARK,
    _job("id", 20, "I", 1, kind="name"),
    _job("state", 9, "S", worth=1),
    _job("job", 8, "D"),
    _job("stages", 14, "T", kind="text"),
    _job("records", 10, "R"),
    Column("rate", "REC/S", "number", usual=8, letter="P"),
    _job("eta", 6, "L", title="LEFT"),
    replace(AGE, usual=6, worth=1),
    _job("what", 14, "", 3),
)
RATE = next(i for i, c in enumerate(JOB_COLUMNS) if c.key == "rate")
MARKS = {"unfinished": "!", "failed": "!", "unusable": "?"}


def plans_table(s: "Snapshot", text: Text) -> TableData:
    """Return the table: unfinished changes first, then plans, then the journal, newest first."""
    now = s.taken_at
    rows = [_entry_row(r, now, text) for r in rows_of(s.journal, JournalRow)]
    rows.reverse()
    plans = [_plan_row(r, now, text) for r in rows_of(s.plans, PlanFileRow)]
    unfinished = [r for r in rows if r.cells[2] in ("unfinished", "running")]
    rest = [r for r in rows if r.cells[2] not in ("unfinished", "running")]
    return table_data(
        PLAN_COLUMNS,
        [*unfinished, *plans, *rest],
        collected_at=s.journal.collected_at if s.journal else None,
        empty="no plans, and no changes made from here",
    )


def rows_of(answer: "Answer | None", model: type) -> list[Any]:
    """Return the rows of one model; none without an answer."""
    return [r for r in (answer.rows if answer else ()) if isinstance(r, model)]


def _entry_row(r: JournalRow, now: int, text: Text) -> TableRow:
    steps = (f"{r.steps_done}/{r.steps}", r.steps)
    cells = cells_of(PLAN_COLUMNS, r, text, steps=steps, age=aged(since(r.started, now)))
    return table_row(r.id, MARKS.get(r.state, ""), cells, r, ("change", r.id))


def _plan_row(r: PlanFileRow, now: int, text: Text) -> TableRow:
    state = "unusable" if r.error else "expired" if (r.expires or 0) <= now else "planned"
    name = Path(r.path).name
    summary = r.summary or r.error or ""
    cells = cells_of(
        PLAN_COLUMNS,
        r,
        text,
        id=(text(name), name),
        state=(state, state),
        steps=numbered(r.steps),
        age=aged(since(r.created, now)),
        user=("-", "-"),
        summary=(text(summary), summary),
    )
    key = f"plan {r.path}"
    return table_row(key, MARKS.get(state, ""), cells, r, ("change", key))


def jobs_table(
    s: "Snapshot", rates: Callable[[JobRow], float | None], text: Text, *, ascii_only: bool
) -> TableData:
    """Return the table: running jobs first, then the newest. rates: records a second by job."""
    rows = [_job_row(r, rates(r), s.taken_at, text, ascii_only) for r in rows_of(s.jobs, JobRow)]
    rows.reverse()
    rows.sort(key=lambda row: row.cells[2] != "running")
    return table_data(
        JOB_COLUMNS,
        rows,
        collected_at=s.jobs.collected_at if s.jobs else None,
        empty="no job was launched from here",
    )


def rate_of(jobs: Mapping[str, TableRow], job: str) -> str | None:
    """Return how many records a second a running job reads; None: not known."""
    row = jobs.get(job)
    return row.cells[RATE] if row is not None and row.sort[RATE] is not None else None


def _job_row(r: JobRow, rate: float | None, now: int, text: Text, ascii_only: bool) -> TableRow:
    share = (r.stages_done or 0) / r.stages_total if r.stages_total else None
    rate = rate if rate is not None else r.records_per_second
    left = "" if r.eta_seconds is None else age_words(max(r.eta_seconds, 0))
    cells = cells_of(
        JOB_COLUMNS,
        r,
        text,
        stages=(stage_bar(r, 6, ascii_only=ascii_only), share),
        rate=("-" if rate is None else str(round(rate)), rate),
        eta=(left, r.eta_seconds),
        age=aged(since(r.started, now)),
    )
    return table_row(r.id, r.mark or "", cells, r, ("job", f"job {r.id}"))


def stage_bar(r: JobRow, width: int, *, ascii_only: bool = False) -> str:
    """Return `######.... 3/5`; `-` if no stage was reported."""
    if not r.stages_total:
        return "-"
    done = min(r.stages_done or 0, r.stages_total)
    full = done * width // r.stages_total
    block, rest = ("#", ".") if ascii_only else ("█", "░")
    return f"{block * full}{rest * (width - full)} {r.stages_done or 0}/{r.stages_total}"
