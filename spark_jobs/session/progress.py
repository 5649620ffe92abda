"""How far a job is, once a second: in its record, else in the console or notebook of its user."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from eoctl.stores.job_folders import JobFolder
from recovery.change.job_rows import bar
from spark_jobs.session.executors import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT_SECONDS = 1.0
NOTEBOOK_COLUMNS = 100


class Console:
    """Shows reports on stderr: one changing line in a terminal or notebook, else JSON lines."""

    def __init__(self) -> None:
        self._in_notebook = "ipykernel" in sys.modules
        self._changes = self._in_notebook or sys.stderr.isatty()
        self._length = 0

    def show(self, report: Mapping[str, Any]) -> None:
        if not self._changes:
            print(json.dumps(dict(report)), file=sys.stderr)
            return
        most = NOTEBOOK_COLUMNS if self._in_notebook else shutil.get_terminal_size().columns
        line = bar(report)[: most - 1]
        sys.stderr.write(f"\r{line:{self._length}}")  # over all of the line before
        sys.stderr.flush()
        self._length = len(line)

    def end(self) -> None:
        """Leave the last line."""
        if self._length:
            sys.stderr.write("\n")
            self._length = 0


class JobProgress:
    """Reports the job's progress once a second, in a thread, from `look`, within a `with`.

    folder: None reports to the console.
    """

    def __init__(self, folder: JobFolder | None) -> None:
        self._folder = folder
        self._console = Console()
        self._began = time.monotonic()
        self._look: Callable[[], Mapping[str, Any]] | None = None
        self._application: Mapping[str, str | None] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eoctl-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop after a last report."""
        self._ended.set()
        self._thread.join(5)
        self._tell()
        self._console.end()

    def of(self, spark: "SparkSession") -> None:
        """Report from now on which Spark application does the work, and where its pages are.

        Spark Connect does not say where its server's pages are.
        """
        self._application = {
            "application_id": spark.conf.get("spark.app.id", None),
            "ui": None if is_connect(spark) else spark.sparkContext.uiWebUrl,
        }

    def watch(self, look: Callable[[], Mapping[str, Any]]) -> None:
        """Report from now on what `look` returns: stage, stages_done, stages_total, records,
        records_total, bytes. The time left and, unless it is there, the pace are added."""
        self._began, self._look = time.monotonic(), look

    def _run(self) -> None:
        while not self._ended.wait(REPORT_SECONDS):
            self._tell()

    def _tell(self) -> None:
        if self._look is None:
            return
        with suppress(OSError):
            report = {**self._look(), **self._application}
            done, total = report.get("records"), report.get("records_total")
            seconds = time.monotonic() - self._began
            report.setdefault("records_per_second", round(done / seconds, 1) if done else None)
            report["eta_seconds"] = (
                round(seconds * (total - done) / done, 1) if done and total else None
            )
            if self._folder is not None:
                self._folder.report(report)
            else:
                self._console.show(report)
