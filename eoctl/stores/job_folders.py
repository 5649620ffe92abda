"""Records of recovery jobs launched from here: one folder each, which outlives the job.

`STATE/jobs/ID/` holds `job.json` (what runs, who started it, which process it is; rewritten
completely when the job ends), `progress.jsonl` (a line per report) and `log` (the job's output).
For a job without an end, its process shows whether it still runs:
`eoctl.operations.jobs.job_records`.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.settings.folders import state_dir
from eoctl.stores import private
from recovery.errors import UsageError
from recovery.values import Value, replace


class Job(Value):
    """One job and what is known of it. Times are epoch ms; None: not yet, or not known.

    pid, process: the job's own process (before it has one, the launcher's), distinguished from
    later ones with the same pid by the opaque `process`. argv: the command line, secrets hidden.
    master: where Spark runs, None without Spark. exit_status, error, result: of a job that has
    ended; cancelled: it ended on request.
    """

    id: str
    job: str
    engine: str
    summary: str
    argv: tuple[str, ...]
    user: str
    host: str
    pid: int
    process: str
    started: int
    master: str | None = None
    context: str | None = None
    cluster_id: str | None = None
    output: str | None = None
    ended: int | None = None
    cancelled: bool = False
    exit_status: int | None = None
    error: str | None = None
    result: Mapping[str, Any] = msgspec.field(default_factory=dict)


class JobFolder:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def progress(self) -> Path:
        return self.path / "progress.jsonl"

    def write(self, job: Job) -> None:
        """Write job.json completely or not at all. Raises UsageError."""
        text = json.dumps(job.as_dict(), indent=1)
        target, temporary = self.path / "job.json", self.path / f".job.json.{os.getpid()}"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            private.sync_folder(self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise UsageError(f"cannot be written: {error.strerror}", where=str(target)) from None

    def read(self) -> Job:
        """Return the record. Raises UsageError for a folder that holds none."""
        path = self.path / "job.json"
        try:
            fields = json.loads(path.read_bytes())
            return Job(**{**fields, "argv": tuple(fields["argv"])})
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
        except (ValueError, TypeError, KeyError):
            raise UsageError("not a job's record", where=str(path)) from None

    def end(
        self,
        exit_status: int,
        *,
        error: str | None = None,
        cancelled: bool = False,
        result: Mapping[str, Any] | None = None,
    ) -> Job:
        """Record how the job ended; only the first call counts."""
        job = self.read()
        if job.ended is None:
            job = replace(
                job,
                ended=now_ms(),
                exit_status=exit_status,
                error=error,
                cancelled=cancelled,
                result=dict(result or {}),
            )
            self.write(job)
        return job

    def report(self, fields: Mapping[str, Any]) -> None:
        """Append one line of progress; a full disk must not end the job."""
        line = json.dumps({"at": now_ms(), **fields}) + "\n"
        with suppress(OSError):
            descriptor = os.open(self.progress, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def reports(self) -> list[dict[str, Any]]:
        """Return all progress lines that can be read."""
        values: list[dict[str, Any]] = []
        with suppress(OSError):
            for line in self.progress.read_bytes().splitlines():
                with suppress(ValueError):
                    values.append(json.loads(line))
        return values

    def last_report(self) -> dict[str, Any] | None:
        """Return the newest complete line of progress, read from the file's end."""
        with suppress(OSError), self.progress.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8192))
            for line in reversed(file.read().splitlines()):
                with suppress(ValueError):
                    report = json.loads(line)
                    if isinstance(report, dict):
                        return report
        return None

    def log_tail(self, lines: int) -> list[str]:
        """Return the last lines of the log; [] if there is none."""
        with suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 500 * lines))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
        return []


class Jobs:
    """All jobs of a state folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else state_dir() / "jobs"

    def new(self) -> JobFolder:
        """Return an empty folder for a new job, named by the job's id. Raises UsageError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            while True:
                stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
                path = self.folder / f"{stamp}-{os.urandom(2).hex()}"
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                    return JobFolder(path)
        except OSError as error:
            raise UsageError(
                f"cannot be written: {error.strerror}", where=str(self.folder)
            ) from None

    def get(self, job_id: str) -> JobFolder:
        """Return the folder of the only job with this id prefix. Raises UsageError if not one."""
        if not job_id:
            raise UsageError("the id is empty", remedy="see `eoctl jobs list`")
        matching = [folder for folder in self.all() if folder.path.name.startswith(job_id)]
        exact = [folder for folder in matching if folder.path.name == job_id]
        if len(exact or matching) != 1:
            raise UsageError(
                f"no job {job_id!r}"
                if not matching
                else f"{len(matching)} jobs begin with {job_id!r}",
                remedy="see `eoctl jobs list`",
            )
        return (exact or matching)[0]

    def all(self) -> list[JobFolder]:
        """Return the folders of all jobs, oldest first."""
        try:
            names = sorted(path for path in self.folder.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=str(self.folder)) from None
        return [JobFolder(path) for path in names]
