"""`jobs list|show|cancel`: recovery jobs launched from here, running and past."""

import shutil
import sys
from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.options import Format, argument, option
from eoctl.host.clock import now_ms
from eoctl.operations.jobs import job_records as jobs
from eoctl.render.columns.jobs import JOBS
from eoctl.render.sanitise import visible
from eoctl.render.shell import command
from eoctl.stores.job_folders import Jobs
from recovery.answers import Answer
from recovery.errors import UsageError

JobId = Annotated[str, argument("ID", "as `jobs list` shows it, or its start")]


def list_(
    output: Format,
    running: Annotated[bool, option("--running", "only those that run now")] = False,
) -> int:
    """List recovery jobs launched from here, the oldest first."""
    rows = [row for row in jobs.list_jobs() if not running or row.state == "running"]
    answer = Answer("jobs-list", None, now_ms(), rows)
    emit(answer, JOBS, output)
    return answer.exit_status


def show(
    output: Format,
    job: JobId,
    log: Annotated[bool, option("--log", "write the job's complete log to stdout")] = False,
) -> int:
    """Show one job: its state, progress, command line and the end of its log."""
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
    emit(answer, JOBS, output)
    if output.output in ("table", "wide"):
        if row.application_id is not None:
            pages = f", {row.ui}" if row.ui is not None and row.state == "running" else ""
            words = visible(f"Spark application: {row.application_id}{pages}", spaces=False)
            print(words, file=sys.stderr)
        print(f"{row.log} ends with:", file=sys.stderr)
        for line in tail:
            print(visible(f"  {line}", spaces=False), file=sys.stderr)
        print(f"by {row.user} on {row.host}: {command(row.argv)}", file=sys.stderr)
    return answer.exit_status


def cancel(output: Format, job: JobId) -> int:
    """Stop a job cleanly; what is left of it after a while is killed."""
    row = jobs.cancel(job)
    answer = Answer("jobs-cancel", row.cluster_id, now_ms(), [row])
    emit(answer, JOBS, output)
    return answer.exit_status
