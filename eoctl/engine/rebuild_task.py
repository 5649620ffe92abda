"""Do one process's work in a rebuild: read a range, combine it, write the live rows.

Local processes and Spark tasks alike call `run_task`; tasks and their rows can be pickled. A small
partition is one task. A big one is read in ranges, each leaving runs sorted by their keys' hashes,
tombstones kept; then each task merges one bucket: an equal part of all hashes.
"""

import asyncio
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read.chunks import Givers, Range
from eoctl.kafka.read.columns import read_columns
from eoctl.stores.state.files import StateFile, StateWriter, read_rows
from eoctl.stores.state.folder import Attempts, TaskRow
from eoctl.stores.state.runs import (
    Run,
    RunFile,
    RunReader,
    damaged,
    planned,
    windows,
    write_run,
)
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.audit.range_counts import RangeCounts
from recovery.shared.digest import Digest, digest
from recovery.state import task_sizes
from recovery.state.changelogs.changelog import ChangelogFormat, changelog_format
from recovery.state.latest import HASHES, Latest, latest_of_runs
from recovery.values import Value, replace

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 256 << 20
MOST_RUNS = 64  # merged at once
AHEAD_BYTES = 256 << 20  # of all runs that are merged at once, read ahead

TaskProgress = Callable[[int, int], None]
"""Called with bytes and offsets more."""


class Making(Value):
    """The way a state is made: the part that a command, its resolved request and each task share.

    output: the state's folder or address, seen by every task and by the publisher. max_rate: bytes
    a second. range_offsets: a partition with more is read in ranges; None: as many as bytes and
    tasks that run at once suggest, see RebuildJob. memory_bytes: of records held before they are
    spilt, and of runs that one task merges. token: of the request that was begun; what a task of
    another one, or of one before --clean, has done is not its.
    """

    format: str
    options: Mapping[str, Any]
    output: str
    check_crc: bool = True
    max_rate: float | None = None
    range_offsets: int | None = None
    memory_bytes: int = MEMORY_BYTES
    token: str = ""

    @property
    def storage(self) -> Storage:
        """Return the storage in which the state is made. Raises UsageError."""
        return storage_at(self.output)

    def form(self) -> ChangelogFormat:
        """Return the format with its options. Raises UsageError."""
        return changelog_format(self.format, self.options)


class RangeTask(Value):
    """Offsets [start, end) of a partition, all below the last stable offset.

    in_parts: the partition is read in ranges, so leave runs. base: the files of an earlier state up
    to `start`, in base_folder, and what its format had seen.
    """

    access: Access
    topic: str
    partition: int
    start: int
    end: int
    how: Making
    in_parts: bool = False
    base_folder: str = ""
    base: tuple[StateFile, ...] = ()
    base_seen: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def key(self) -> str:
        """Return this task's name among the tasks of its rebuild; its row has the same key."""
        return f"{self.topic}-{self.partition}-range-{self.start}-{self.end}"

    def token(self) -> str:
        """Return what a row must have to be this task's."""
        return self.how.token


class BucketTask(Value):
    """The keys of a partition's runs in part `bucket` of all hashes in `buckets` equal parts.

    plan: the file that lists the runs, see `plan_merge`.
    """

    topic: str
    partition: int
    plan: str
    bucket: int
    buckets: int
    seen: Mapping[str, Any]
    how: Making

    def key(self) -> str:
        """Return this task's name, as RangeTask.key does."""
        return f"{self.topic}-{self.partition}-bucket-{self.bucket}-of-{self.buckets}"

    def token(self) -> str:
        """Return what a row must have, as RangeTask.token does: other runs are another task."""
        return f"{self.how.token} {self.plan}"


Task = RangeTask | BucketTask


def sharing_rate(tasks: "Sequence[Task]", at_once: int) -> "list[Task]":
    """Return the tasks, each with its share of the rate, so that concurrent ones keep it together:
    all of them may read from one broker."""
    shared: dict[int, Making] = {}  # one object for many tasks: it is sent once

    def share(how: Making) -> Making:
        if how.max_rate is not None and id(how) not in shared:
            shared[id(how)] = replace(how, max_rate=how.max_rate / at_once)
        return shared.get(id(how), how)

    return [
        replace(task, how=share(task.how)) if isinstance(task, RangeTask) else task
        for task in tasks
    ]


def run_or_find(task: Task, progress: TaskProgress | None = None) -> tuple[TaskRow, bool]:
    """Return a task's row, and whether an earlier attempt did it; if none did, do it, keep its row.

    So what is finished is verified by tasks, side by side. Raises what `run_task` does.
    """
    attempts = Attempts(task.how.storage)
    row = attempts.find(task.key(), task.token())
    if row is not None:
        return row, True
    row = replace(run_task(task, progress), token=task.token())
    attempts.keep(task.key(), row)
    return row, False


def run_task(task: Task, progress: TaskProgress | None = None) -> TaskRow:
    """Do one task. Raises IncompleteError, RefusedError, UsageError; then leaves unlisted files."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # returns free memory, and is no slower
    began = time.monotonic()
    form = task.how.form()
    if isinstance(task, BucketTask):
        row = _combine(task, form)
    else:
        row = _Range(task, form, progress).run()
    return replace(row, seconds=time.monotonic() - began)


class _Range:
    """One RangeTask at work."""

    def __init__(
        self, task: RangeTask, form: ChangelogFormat, progress: TaskProgress | None
    ) -> None:
        self._task = task
        self._form = form
        self._progress = progress
        self._storage = task.how.storage
        self._runs: list[RunFile] = []
        self._seen: Mapping[str, Any] = task.base_seen
        self._counts = RangeCounts(task.start, task.end)
        self._bytes = 0
        self._givers = Givers()
        self._latest = Latest(form, task.how.memory_bytes, self._spill)

    def run(self) -> TaskRow:
        task = self._task
        for file in task.base:
            for rows in read_rows(storage_at(task.base_folder), file):
                self._latest.add(rows)
        asyncio.run(self._read())
        last_read_ms = now_ms()
        files: tuple[StateFile, ...] = ()
        digest, expired = Digest(), 0
        if task.in_parts:
            self._latest.spill()
        else:
            if self._runs:
                self._latest.spill()
                runs = [Run(run) for run in self._runs]
                parts = _merged(self._form, self._storage, task.key(), runs, 0, HASHES, {})
            else:
                parts = iter([self._latest.table()])
            files, digest, expired = _finish(
                self._form, self._storage, task.topic, task.partition, parts, self._seen
            )
        return TaskRow(
            topic=task.topic,
            partition=task.partition,
            start=task.start,
            end=task.end,
            bucket=None,
            buckets=None,
            counts=self._counts.counts(),
            files=files,
            runs=tuple(self._runs) if task.in_parts else (),
            digest_rows=digest.rows,
            digest=digest.hex,
            expired=expired,
            seen=self._seen,
            producers=self._counts.producers(),
            bytes_read=self._bytes,
            seconds=0.0,
            last_read_ms=last_read_ms,
            peak_bytes=peak_bytes(),
            versions=versions(),
            brokers=tuple(sorted(self._givers.brokers)),
            bytes_by_followers=self._givers.by_followers,
        )

    async def _read(self) -> None:
        task = self._task
        async with Cluster(task.access.settings(), Deadline(None), read_only=True) as cluster:
            stream = read_columns(
                cluster,
                Range(task.topic, task.partition, task.start, task.end),
                last_stable_offset=task.end,  # no transaction is open below a cut
                control=True,
                check_crc=task.how.check_crc,
                max_rate=task.how.max_rate,
                progress=self._moved,
                nearest=True,
                givers=self._givers,
            )
            async with aclosing(stream):
                async for records in stream:
                    self._add(self._counts.visible(records).rows())

    def _add(self, rows: "pa.RecordBatch") -> None:
        """Add visible records to the state, in ascending order of offset."""
        valid = self._form.valid(rows)
        if not valid.all():
            rows = rows.filter(_mask(valid))
        self._counts.add_rows(rows, invalid=int((~valid).sum()))
        kept = self._form.keep(rows, self._seen)
        self._seen = self._form.observe(rows, self._seen)
        ignored = 0
        if kept is not None and not kept.all():
            ignored = int((~kept).sum())
            rows = rows.filter(_mask(kept))
        self._counts.add_ignored(ignored)
        self._latest.add(rows)

    def _spill(self, table: "pa.Table") -> None:
        self._runs.append(write_run(self._storage, self._task.key(), [table]))

    def _moved(self, size: int, offsets: int) -> None:
        self._bytes += size
        if self._progress is not None:
            self._progress(size, offsets)


def _combine(task: BucketTask, form: ChangelogFormat) -> TaskRow:
    storage = task.how.storage
    low, behind = (HASHES * n // task.buckets for n in (task.bucket, task.bucket + 1))
    runs, read = planned(storage, task.plan), dict[str, int]()
    parts = _merged(form, storage, task.key(), runs, low, behind, read)
    files, digest, expired = _finish(form, storage, task.topic, task.partition, parts, task.seen)
    return TaskRow(
        topic=task.topic,
        partition=task.partition,
        start=None,
        end=None,
        bucket=task.bucket,
        buckets=task.buckets,
        counts={},
        files=files,
        runs=(),
        digest_rows=digest.rows,
        digest=digest.hex,
        expired=expired,
        seen={},
        producers={},
        bytes_read=0,
        seconds=0.0,
        last_read_ms=None,
        peak_bytes=peak_bytes(),
        versions=versions(),
        merged=tuple(read[run.file.path] for run in runs),
    )


def _merged(
    form: ChangelogFormat,
    storage: Storage,
    name: str,
    runs: Sequence[Run],
    low: int,
    behind: int,
    read: dict[str, int],
) -> Iterator["pa.Table"]:
    """Yield the last record of each identity with a hash in [low, behind), some hashes at a time.

    Too many runs are first merged into fewer, so that memory does not grow with them. read: filled
    with the rows read of each run, by its path. Raises RefusedError if a run is damaged, or is
    wholly in [low, behind) and has not all of its rows.
    """
    left, made = list(runs), list[Run]()
    for number in task_sizes.merges(len(left), runs_at_once(storage)):
        parts = _merged_at_once(form, storage, left[:number], low, behind, read)
        made.append(Run(write_run(storage, name, parts)))
        left = [*left[number:], made[-1]]
    yield from _merged_at_once(form, storage, left, low, behind, read)
    for file in (run.file for run in (made if behind - low < HASHES else (*runs, *made))):
        if read[file.path] != file.rows:
            raise damaged(storage, file.path)
    storage.delete(run.file.path for run in made)


def runs_at_once(storage: Storage) -> int:
    """Return how many runs are merged at once: what is read ahead of each is in memory."""
    return min(MOST_RUNS, AHEAD_BYTES // storage.read_bytes)


def _merged_at_once(
    form: ChangelogFormat,
    storage: Storage,
    runs: Sequence[Run],
    low: int,
    behind: int,
    read: dict[str, int],
) -> Iterator["pa.Table"]:
    readers = [RunReader(storage, run.file, low, behind) for run in runs]
    for edge in windows(readers, low, behind):
        yield latest_of_runs(
            form,  # no name for the parts: it would hold them until the next ones are read
            [
                _kept_after(form, table, run.before)
                for reader, run in zip(readers, runs, strict=True)
                for table in reader.below(edge)
            ],
        )
    read.update((run.file.path, reader.rows) for run, reader in zip(runs, readers, strict=True))


def _kept_after(form: ChangelogFormat, rows: "pa.Table", before: Mapping[str, Any]) -> "pa.Table":
    kept = form.keep_after(rows, before)
    return rows if kept is None else rows.filter(_mask(kept))


def _finish(
    form: ChangelogFormat,
    storage: Storage,
    topic: str,
    partition: int,
    parts: Iterator["pa.Table"],
    summary: Mapping[str, Any],
) -> tuple[tuple[StateFile, ...], Digest, int]:
    """Write the live rows of each part; return the file, the digest, and the expired rows."""
    writer = StateWriter(storage, topic, partition)
    total, expired = Digest(), 0
    for part in parts:
        live = form.finish(part, summary)
        expired += len(part) - part.column("value").null_count - len(live)
        total += digest(partition, live)
        writer.write(live)
    return (writer.close(),), total, expired


def _mask(mask: Any) -> "pa.BooleanArray":
    import numpy as np
    import pyarrow as pa

    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def peak_bytes() -> int:
    """Return the most memory this process has had resident.

    On Linux not ru_maxrss: there a process begins with its parent's.
    """
    with suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        (line,) = (line for line in lines if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def versions() -> dict[str, str]:
    """Return the versions of what did the work, for the manifest."""
    import numpy as np
    import pyarrow as pa

    from eoctl import __version__

    return {
        "eoctl": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }
