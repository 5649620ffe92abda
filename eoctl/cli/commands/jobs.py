"""`jobs list|show|cancel`: recovery jobs launched from here, running and past."""

import shutil
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from eoctl.cli.emit import View, emit
from eoctl.cli.options import Format
from eoctl.operations.jobs import records as jobs
from eoctl.operations.session.session import now_ms
from eoctl.render.sanitise import visible
from eoctl.render.shell import command
from eoctl.render.tables import Column
from eoctl.render.words import counted
from eoctl.stores.jobs import Jobs
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.jobs import JobRow
from recovery.times import format_duration, rfc3339

JobId = Annotated[str, typer.Argument(metavar="ID", help="as `jobs list` shows it, or its start")]


def _cells(row: JobRow) -> Mapping[str, object]:
    stages = None if row.stages_total is None else f"{row.stages_done}/{row.stages_total}"
    return {
        "mark": row.mark,
        "id": row.id,
        "state": row.state,
        "job": row.job,
        "engine": row.engine,
        "records": row.records,
        "stages": stages,
        "eta": None if row.eta_seconds is None else format_duration(round(row.eta_seconds)),
        "exit": row.exit_status,
        "context": row.context,
        "started": rfc3339(row.started),
        "ended": rfc3339(row.ended),
        "what": row.error or row.summary,
    }


def _summary(answer: Answer) -> str:
    running = sum(row.state == "running" for row in answer.rows if isinstance(row, JobRow))
    return f"{counted(len(answer.rows), 'job')}, {running} running"


VIEW = View(
    columns=(
        Column("mark", "", "mark"),
        Column("id", "JOB", "number", align="left"),
        Column("state", "STATE", "number", align="left"),
        Column("job", "KIND", "number", align="left"),
        Column("engine", "ENGINE", "number", align="left", wide_only=True),
        Column("records", "RECORDS", "number"),
        Column("stages", "STAGES", "number", spare="any"),
        Column("eta", "ETA", "number"),
        Column("exit", "EXIT", "number", spare="zero"),
        Column("context", "CONTEXT", "name"),
        Column("started", "STARTED", "number", align="left", wide_only=True),
        Column("ended", "ENDED", "number", align="left", wide_only=True),
        Column("what", "WHAT", "text"),
    ),
    cells=_cells,
    name_keys=("id",),
    fields=tuple(JobRow.model_fields),
    summary=_summary,
)


def list_(
    output: Format,
    running: Annotated[bool, typer.Option("--running", help="only those that run now")] = False,
) -> int:
    """Recovery jobs launched from here, the oldest first."""
    rows = [row for row in jobs.list_jobs() if not running or row.state == "running"]
    answer = Answer("jobs-list", None, now_ms(), rows)
    emit(answer, VIEW, output)
    return answer.exit_status


def show(
    output: Format,
    job: JobId,
    log: Annotated[bool, typer.Option("--log", help="write the job's whole log to stdout")] = False,
) -> int:
    """One job: its state, progress, command line and the end of its log."""
    if log:
        path = Jobs().get(job).log
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                shutil.copyfileobj(file, sys.stdout)
        except FileNotFoundError:
            raise UsageError("this job kept no log", where=job) from None
        return 0
    row, tail = jobs.show(job)
    answer = Answer("jobs-show", row.cluster_id, now_ms(), [row], extra={"log": tail})
    emit(answer, VIEW, output)
    if output.output in ("table", "wide"):
        print(f"{row.log} ends with:", file=sys.stderr)
        for line in tail:
            print(visible(f"  {line}", spaces=False), file=sys.stderr)
        print(f"by {row.user} on {row.host}: {command(row.argv)}", file=sys.stderr)
    return answer.exit_status


def cancel(output: Format, job: JobId) -> int:
    """Stop a job cleanly; what is left of it after a while is killed."""
    row = jobs.cancel(job)
    answer = Answer("jobs-cancel", row.cluster_id, now_ms(), [row])
    emit(answer, VIEW, output)
    return answer.exit_status
