"""The rows of `jobs list`, `jobs show`, `jobs cancel` and `jobs export`; a job's bar."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from recovery.errors import Exit
from recovery.plurals import counted
from recovery.row import Row, Timestamp
from recovery.times import format_duration

_BAR = 24  # signs
JobState = Literal["running", "succeeded", "failed", "cancelled", "lost"]


class JobRow(Row):
    """One recovery job launched from here.

    lost: it has no end and its process is gone. records, bytes, stages: as last reported; null
    where nothing was. records_per_second: of the stage that reads, up to the last report or its
    end. eta_seconds: by the pace so far, null once ended. application_id, ui: Spark's
    name of the application that does the work, and the address of its pages while it runs.
    """

    id: str
    state: JobState
    job: Annotated[str, Meta(description="rebuild, sink, ...")]
    engine: str
    master: str | None
    context: str | None
    cluster_id: str | None
    summary: str
    user: str
    host: str
    pid: int
    argv: Annotated[list[str], Meta(description="the command line, secrets hidden")]
    started: Timestamp
    ended: Timestamp
    exit_status: int | None
    error: str | None
    output: str | None
    log: str
    stage: str | None
    stages_done: int | None
    stages_total: int | None
    records: int | None
    records_total: int | None
    bytes: int | None
    eta_seconds: float | None
    application_id: str | None = None
    ui: str | None = None
    reported: Timestamp
    result: dict[str, Any]
    records_per_second: float | None = None

    @property
    def mark(self) -> str | None:
        """Mark a failed job `!`, and one that could not prove its result `?`."""
        if self.state in ("failed", "lost"):
            return "!"
        return "?" if self.state == "succeeded" and self.exit_status == Exit.INCOMPLETE else None


class JobExportRow(Row):
    """A job as a scheduler submits it. code, entry, spec and text are files of the folder."""

    job: Annotated[str, Meta(description="rebuild")]
    folder: str
    code: Annotated[str, Meta(description="a zip of eoctl's packages, for --py-files")]
    entry: Annotated[str, Meta(description="the program that spark-submit runs")]
    spec: Annotated[str, Meta(description="what the job does, and how it reaches the cluster")]
    text: Annotated[str, Meta(description="the file that holds the command line")]
    argv: Annotated[list[str], Meta(description="the command line, to be run in the folder")]


def bar(report: Mapping[str, Any]) -> str:
    """Return a job's report: `read ranges [#####...] 41% 2,050,000 offsets, 12s left`.

    What is not printable ASCII is escaped: the report may be another process's.
    """
    done, total = report.get("records"), report.get("records_total")
    words = [ascii(str(report.get("stage") or "working"))[1:-1]]
    if done is not None and total:
        filled = min(_BAR, _BAR * done // total)
        words.append(f"[{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // total}%")
    more = []
    if done is not None:
        more.append(counted(done, "offset"))
    if report.get("bytes") is not None:
        more.append(f"{report['bytes'] / (1 << 20):,.0f} MiB")
    if report.get("records_per_second"):
        more.append(f"{report['records_per_second']:,.0f} a second")
    if report.get("eta_seconds") is not None:
        more.append(f"{format_duration(round(report['eta_seconds']))} left")
    return " ".join([*words, ", ".join(more)]).rstrip()
