"""Run `state rebuild` on Spark: executors run the local engine's tasks.

Each task reads its range from Kafka, combines it, writes its files into the output's storage,
records there what it has done and returns one row; the job's process publishes. No record passes
through the JVM.
"""

import base64
import json
import os
import pickle
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection.access import Access
from eoctl.stores import private
from eoctl.stores.storage import LocalFolder, Storage
from recovery.errors import Exit
from spark_jobs.session import executors, job, slots
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eoctl.engine.rebuild_task import Task
    from eoctl.stores.state.folder import TaskRow

TOLD_SECONDS = 1.0
PROBES = 4


class SparkEngine:
    """Runs tasks of a rebuild on Spark's executors: call it with tasks, and it returns their rows.

    storage: seen by executors and by this process. counters: over all tasks so far, see `Counters`.
    Raises what tasks raise.
    """

    def __init__(
        self, spark: "SparkSession", storage: Storage, progress: JobProgress | None = None
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._progress = progress
        self._stages = 0
        self._read: dict[str, Any] = {}  # the last report of a stage that has read
        self.counters = Counters()

    def __call__(self, tasks: "Sequence[Task]") -> "Iterator[TaskRow]":
        from eoctl.engine.rebuild_task import sharing_rate

        self._check(min(PROBES, len(tasks)))
        tasks = sharing_rate(tasks, slots.at_once(self._spark, len(tasks)))
        progress_folder = None
        if isinstance(self._storage, LocalFolder):  # an object store would get a file a second
            progress_folder = self._storage.path / "runs" / f"progress-{uuid.uuid4().hex}"
            private.make_folder(progress_folder)
        ended = executors.EndedTasks(self._spark)
        self._stages += 1
        look = self._looking(tasks, progress_folder, ended)
        began, started = look(), time.monotonic()
        topics = sorted({task.topic for task in tasks})
        others = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
        stage = f"stage {self._stages} of {began['stages_total']}"
        if self._progress is not None:
            self._progress.watch(look)
        answers = executors.run(
            self._spark,
            _work(list(tasks), None if progress_folder is None else str(progress_folder), ended),
            len(tasks),
            f"eoctl state rebuild: {began['stage']} of {topics[0]}{others}, {stage}",
        )
        before = self.counters.offsets
        rows = [self._row(answer) for answer in answers]
        read = (self.counters.offsets - before) / (time.monotonic() - started)
        self._ended({**look(), "stages_done": self._stages, "records_per_second": round(read, 1)})
        yield from rows

    def _row(self, answer: str) -> "TaskRow":
        row, kept, requests = pickle.loads(base64.b64decode(answer))  # noqa: S301 - our own
        self.counters.add(row, requests, kept=kept)
        return row  # type: ignore[no-any-return]

    def _ended(self, last: dict[str, Any]) -> None:
        """Report the end of a stage: the tasks' files are gone when the result is published."""
        last["records"] = last["records_total"]
        if last["records"] is None:
            last["records_per_second"] = None
        else:
            self._read = last
        if self._progress is not None:
            self._progress.watch(last.copy)

    def end(self) -> None:
        """Report what was read, and at which pace, once the state is published."""
        if self._progress is not None and self._read:
            done = {"stage": "published", "stages_done": self._stages}
            self._progress.watch({**self._read, **done}.copy)

    def slots(self) -> int | None:
        """Return how many tasks run at once; None if nobody knows."""
        self._check(PROBES)  # by now executors have registered
        return slots.task_slots(self._spark)

    def _check(self, tasks: int) -> None:
        """Check with one Spark job that workers write where this session reads."""
        shared = self._storage
        if isinstance(shared, LocalFolder):
            folder = shared.path
            shared = LocalFolder(folder if folder.is_mount() else folder.resolve().parent)
        executors.check_storage(self._spark, self._storage, shared, tasks)

    def _looking(
        self, tasks: "Sequence[Task]", progress_folder: Path | None, ended: executors.EndedTasks
    ) -> Callable[[], dict[str, Any]]:
        """Return a function that gives the progress, from the tasks' files or from ended tasks."""
        total = sum(getattr(t, "end", 0) - getattr(t, "start", 0) for t in tasks)
        reading, stage = total > 0, self._stages
        stages = max(stage, 2 if getattr(tasks[0], "in_parts", False) else 1)

        def look() -> dict[str, Any]:
            told = reading and (progress_folder is not None or ended.told)
            by_task = {} if progress_folder is None else _by_task(progress_folder)
            by_task |= ended.by_task
            size, records = (sum(column) for column in zip((0, 0), *by_task.values(), strict=True))
            return {
                "stage": "read ranges" if reading else "combine buckets",
                "stages_done": stage - 1,
                "stages_total": stages,
                "records": records if told else None,
                "records_total": total if told else None,
                "bytes": size if told else None,
            }

        return look


@dataclass
class Counters:
    """Counts what the tasks of a rebuild did, for the job's record.

    kept: the tasks that an earlier run had ended. offsets, bytes, task_seconds: of this run's
    reading. peak_bytes: the most memory that one process used. requests: to object storage, by the
    tasks that ended well and by the job itself.
    """

    tasks: int = 0
    kept: int = 0
    offsets: int = 0
    bytes: int = 0
    bytes_by_followers: int = 0
    task_seconds: float = 0.0
    peak_bytes: int = 0
    requests: int = 0

    def add(self, row: "TaskRow", requests: int, *, kept: bool) -> None:
        self.tasks += 1
        self.requests += requests
        self.kept += kept
        if not kept:
            self.offsets += (row.end or 0) - (row.start or 0)
            self.bytes += row.bytes_read
            self.bytes_by_followers += row.bytes_by_followers
            self.task_seconds = round(self.task_seconds + row.seconds, 3)
            self.peak_bytes = max(self.peak_bytes, row.peak_bytes)


def _work(tasks: "list[Task]", progress_folder: str | None, ended: executors.EndedTasks) -> Any:
    """Return the function that Spark calls with a task's number; it closes over the tasks.

    A task keeps its row: Spark collects rows only when all tasks have ended, so a job that is
    killed earlier has collected none. A task that is tried again may have kept its row already.
    """

    def work(number: int) -> str:
        from eoctl.engine.rebuild_task import run_or_find

        task = tasks[number]
        teller = None if progress_folder is None else _Teller(progress_folder, number)
        storage = task.how.storage
        before = storage.requests
        row, kept = run_or_find(task, teller)
        requests = storage.requests - before
        ended.add(number, row.bytes_read, (row.end or 0) - (row.start or 0))
        if teller is not None and ended.told:
            teller.end()
        return base64.b64encode(pickle.dumps((row, kept, requests))).decode()

    return work


class _Teller:
    """Writes a task's progress into a file of the attempt, once a second."""

    def __init__(self, folder: str, number: int) -> None:
        self._path = Path(folder) / f"{number}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._size = self._records = 0
        self._due = 0.0

    def __call__(self, size: int, records: int) -> None:
        self._size += size
        self._records += records
        if (now := time.monotonic()) < self._due:
            return
        self._due = now + TOLD_SECONDS
        with suppress(OSError):  # the result does not depend on it
            descriptor, name = tempfile.mkstemp(prefix=".", dir=self._path.parent)
            with os.fdopen(descriptor, "w") as file:
                json.dump([self._size, self._records], file)
            Path(name).replace(self._path)

    def end(self) -> None:
        """Remove the file: the driver reads all that exist, each second."""
        self._path.unlink(missing_ok=True)


def _by_task(folder: Path) -> dict[int, tuple[int, int]]:
    """Return bytes and records of each task; if a task was tried twice, of the further attempt."""
    best: dict[int, tuple[int, int]] = {}
    for path in folder.glob("[0-9]*"):
        with suppress(OSError, ValueError):
            size, records = json.loads(path.read_text())
            number = int(path.name.partition("-")[0])
            if records >= best.get(number, (0, 0))[1]:
                best[number] = (size, records)
    return best


def work(
    spark: "SparkSession", rebuild_job: Mapping[str, Any], access: Access, progress: JobProgress
) -> Mapping[str, Any]:
    """Run the job: rebuild, publish, return where. An exported job's request is resolved here."""
    from eoctl.engine.rebuild import RebuildJob, rebuild
    from eoctl.engine.rebuild_request import RebuildRequest, begin

    text = json.dumps(dict(rebuild_job))
    if "cut" in rebuild_job:
        rebuild_request = job.understood(lambda _: RebuildJob.from_json(text), rebuild_job)
        storage = rebuild_request.how.storage
        before = storage.requests
    else:
        request = job.understood(lambda _: RebuildRequest.from_json(text), rebuild_job)
        storage = request.how.storage
        before = storage.requests
        rebuild_request = begin(request, lambda use: access.ask(use, read_only=True))
    engine = SparkEngine(spark, storage, progress)
    manifest = rebuild(rebuild_request, access, engine, "spark", engine.slots)
    engine.end()
    engine.counters.requests += storage.requests - before
    return {
        "manifest": storage.shown("manifest.json"),
        "digest": manifest.digest.model_dump(mode="json"),
        "complete": manifest.complete,
        "counters": asdict(engine.counters),
        "exit_status": int(Exit.OK if manifest.complete else Exit.INCOMPLETE),
    }


if __name__ == "__main__":
    job.main("rebuild", work)
