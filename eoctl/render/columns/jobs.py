"""The columns of recovery jobs."""

from eoctl.render.columns.table import Table, plain
from eoctl.render.shell import command
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.change.job_rows import JobExportRow, JobRow
from recovery.plurals import counted
from recovery.times import format_duration


def _stages(row: JobRow) -> str | None:
    return None if row.stages_total is None else f"{row.stages_done}/{row.stages_total}"


def _rate(row: JobRow) -> str | None:
    return None if row.records_per_second is None else f"{row.records_per_second:.0f}"


def _eta(row: JobRow) -> str | None:
    return None if row.eta_seconds is None else format_duration(round(row.eta_seconds))


def _summary(answer: Answer) -> str:
    running = sum(row.state == "running" for row in answer.rows if isinstance(row, JobRow))
    return f"{counted(len(answer.rows), 'job')}, {running} running"


JOBS = Table(
    JobRow,
    (
        Column("mark", "", "mark"),
        *plain("word", id="JOB", state="STATE", job="KIND"),
        Column("engine", "ENGINE", "word", wide_only=True),
        Column("records", "RECORDS", "number"),
        Column("rate", "REC/S", "number", _rate),
        Column("stages", "STAGES", "number", _stages, spare="any"),
        Column("eta", "ETA", "number", _eta),
        Column("exit", "EXIT", "number", lambda row: row.exit_status, spare="zero"),
        Column("context", "CONTEXT", "name"),
        Column("started", "STARTED", "time", wide_only=True),
        Column("ended", "ENDED", "time", wide_only=True),
        Column("what", "WHAT", "text", lambda row: row.error or row.summary),
    ),
    names=("id",),
    summary=_summary,
)


def _exported(answer: Answer) -> str:
    rows = [row for row in answer.rows if isinstance(row, JobExportRow)]
    return "; ".join(f"run the line of {row.folder}/{row.text} in that folder" for row in rows)


EXPORT = Table(
    JobExportRow,
    (
        *plain("word", job="KIND"),
        *plain("name", folder="FOLDER"),
        Column("submit", "COMMAND", "text", lambda row: command(row.argv)),
    ),
    names=("folder",),
    summary=_exported,
)
