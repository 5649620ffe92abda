"""The rows of `jobs list`, `jobs show`, `jobs cancel` and `jobs export`."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from recovery.errors import Exit
from recovery.row import Row, Timestamp

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
