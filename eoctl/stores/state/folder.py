"""The place of a state: rows of finished tasks until the manifest, the manifest, and tidying up.

manifest.json              published last; the state is what it lists
cut.json                   the same cut again: `--at DIR/cut.json`
data/TOPIC/P-UUID.parquet
request.json, tasks/, runs/    only while a rebuild is unfinished
.lock                      only while one is at work, and only in a folder
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.stores.state.files import DATA, StateFile, check_file
from eoctl.stores.state.runs import RUNS, SUFFIX, RunFile
from eoctl.stores.state.sealed import sealed, unsealed
from eoctl.stores.storage import LOCK, PROBE, Storage
from eoctl.stores.storage_address import storage_and_name
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.facts import HasPartition
from recovery.shared import cut as cuts
from recovery.state import manifest as manifests
from recovery.state.manifest import Manifest
from recovery.values import Value

MANIFEST, CUT, REQUEST, TASKS = "manifest.json", "cut.json", "request.json", "tasks"


class TaskRow(HasPartition, Value):
    """A task's result; JSON can hold it.

    bucket, buckets: of a BucketTask. counts: see RangeCounts; empty of a BucketTask. files, digest:
    of live rows; expired: last records that the format no longer counts as live. runs: of a range
    in parts, and then there are no files. seen: what the format remembers. producers: the last
    transaction of each producer, see RangeCounts. last_read_ms: when the last byte had come.
    peak_bytes: most memory the process had. brokers: those that gave a range's records;
    bytes_by_followers: of bytes_read, what did not come from the leader. token: the task's. merged:
    of a BucketTask, the rows that it has read of each run of its plan.
    """

    topic: str
    partition: int
    start: int | None
    end: int | None
    bucket: int | None
    buckets: int | None
    counts: Mapping[str, int | None]
    files: tuple[StateFile, ...]
    runs: tuple[RunFile, ...]
    digest_rows: int
    digest: str
    expired: int
    seen: Mapping[str, Any]
    producers: Mapping[str, Any]
    bytes_read: int
    seconds: float
    last_read_ms: int | None
    peak_bytes: int
    versions: Mapping[str, str]
    brokers: tuple[int, ...] = ()
    bytes_by_followers: int = 0
    token: str = ""
    merged: tuple[int, ...] = ()

    def key(self) -> str:
        """Return the task's key."""
        name = f"{self.topic}-{self.partition}"
        if self.bucket is not None:
            return f"{name}-bucket-{self.bucket}-of-{self.buckets}"
        return f"{name}-range-{self.start}-{self.end}"


class Attempts:
    """The rows of tasks that are done, by the tasks' keys. Only tasks call it, none the driver."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def find(self, key: str, token: str) -> TaskRow | None:
        """Return the row of an earlier run of a task; None if there is none, or it has changed, or
        one of its files is gone. token: what the task had; another request's row is not found."""
        try:
            row = _row(unsealed(self._storage.get(f"{TASKS}/{key}.json")))
            if (row.key(), row.token) != (key, token):
                return None
            for file in row.files:
                check_file(self._storage, file)
        except (OSError, ValueError, TypeError, KeyError, RefusedError):
            return None
        there = self._storage.sizes(f"{RUNS}/{key}") if row.runs else {}
        return row if all(there.get(run.path) == run.size for run in row.runs) else None

    def keep(self, key: str, row: TaskRow) -> None:
        """Record the task as done."""
        self._storage.put(f"{TASKS}/{key}.json", sealed(row.as_dict()))


def _row(fields: dict[str, Any]) -> TaskRow:
    """Return the row that `keep` has written. Raises TypeError, KeyError."""
    files = tuple(StateFile(**f) for f in fields.pop("files"))
    runs = tuple(RunFile(**f) for f in fields.pop("runs"))
    brokers, merged = tuple(fields.pop("brokers")), tuple(fields.pop("merged"))
    return TaskRow(**fields, files=files, runs=runs, brokers=brokers, merged=merged)


def _published(storage: Storage) -> RefusedError:
    return RefusedError(
        "there is a state already", where=storage.address, remedy="give another --output"
    )


def unfinished(storage: Storage) -> str | None:
    """Return the unfinished request in a storage. Raises RefusedError for other content."""
    names = storage.top()
    if MANIFEST in names:
        raise _published(storage)
    with suppress(FileNotFoundError):
        return storage.get(REQUEST).decode("ascii")
    ours = (LOCK, REQUEST)  # the request: created or removed since
    others = [n for n in names if n not in ours and not n.startswith((f".{REQUEST}.", PROBE))]
    if others:
        raise RefusedError(
            f"holds other files ({others[0]}, ...)",
            where=storage.address,
            remedy="give a new folder, or an empty one",
        )
    return None


def begin(storage: Storage, request: str, left: str | None) -> None:
    """Record what is made here. left: the unfinished request that was found.

    Raises RefusedError if another rebuild is at work, or has begun since.
    """
    with storage.held():
        storage.prove()
        if unfinished(storage) != left:
            raise _another(storage)
        data = request.encode("ascii")
        if left is not None:
            storage.put(REQUEST, data)
        elif not storage.put_new(REQUEST, data):
            raise _another(storage)


def check_begun(storage: Storage, request: str) -> str:
    """Return the request as it was begun; one of its runs may have added its ranges to it.

    Raises RefusedError if another request was begun last, or the state is already published.
    """
    begun = unfinished(storage)
    if begun is not None and _without_ranges(begun) != _without_ranges(request):
        raise _another(storage)
    return request if begun is None else begun


def _without_ranges(request: str) -> dict[str, Any]:
    return {**json.loads(request), "range_offsets": None}


def _another(storage: Storage) -> RefusedError:
    return RefusedError(
        "another rebuild has begun there meanwhile",
        where=storage.address,
        remedy="give another --output",
    )


def publish(storage: Storage, manifest: Manifest) -> None:
    """Publish the state in the storage; then remove files that it does not need.

    Raises RefusedError if a state is already published, or a file of this one is missing.
    """
    if MANIFEST in storage.top():
        raise _lost(storage)
    there = storage.sizes(DATA)
    for file in (file for part in manifest.partitions for file in part.files):
        if there.get(file.path) != file.size:
            raise RefusedError(
                "a file of the state is gone or has changed, or this process cannot see it",
                where=storage.shown(file.path),
                remedy="run it again, with an --output that this process and the executors share",
            )
    for topic in {part.topic for part in manifest.partitions}:
        storage.settle(f"{DATA}/{topic}")
    write_cut(storage, manifest.cut)
    if not storage.put_new(MANIFEST, manifests.dump(manifest).encode("ascii")):
        raise _lost(storage)
    tidy(storage, manifest)


def _lost(storage: Storage) -> RefusedError:
    """Return the error of a run when another run has published its result."""
    if not storage.exclusive:  # nobody needs this run's files now
        tidy(storage, read(storage.shown(MANIFEST)))
    return _published(storage)


def write_cut(storage: Storage, cut: cuts.Cut) -> None:
    """Write the cut file of a storage. Raises UsageError."""
    storage.put(CUT, cuts.dump(cut).encode("ascii"))


def tidy(storage: Storage, manifest: Manifest) -> None:
    """Remove unlisted attempts, runs and rows of tasks. The published state is complete without
    them, even if they cannot be removed now."""
    listed = {f.path for p in manifest.partitions for f in p.files}
    with suppress(EoctlError):
        storage.delete(name for name in _attempts(storage) if name not in listed)
        for folder in (RUNS, TASKS):
            storage.delete_folder(folder)
        storage.delete([REQUEST])


def _attempts(storage: Storage) -> list[str]:
    """Return the names of the Parquet files that tasks have written."""
    return [name for name in storage.names(DATA) if name.endswith(".parquet")]


def sweep(storage: Storage) -> None:
    """Remove leftovers of earlier runs that no finished task lists, to free space.

    Does nothing if another run may be active: its files are not listed yet.
    """
    if not storage.exclusive:
        return
    listed: set[str] = set()
    for name in storage.names(TASKS):
        with suppress(OSError, ValueError, TypeError, KeyError):
            row = json.loads(storage.get(name))
            listed |= {f["path"] for f in (*row["files"], *row["runs"])}
    runs = [name for name in storage.names(RUNS) if name.endswith(SUFFIX)]
    storage.delete(name for name in (*_attempts(storage), *runs) if name not in listed)


def discard(storage: Storage) -> None:
    """Remove what an unfinished rebuild has left. Raises RefusedError if it is, or might be, at
    work."""
    if not storage.exclusive:
        raise RefusedError(
            "object storage has no lock that shows whether the unfinished rebuild is still running",
            where=storage.address,
            remedy="give another --output, or remove the objects when nothing writes there",
        )
    with storage.held():
        unfinished(storage)  # another run may have published meanwhile
        for folder in (DATA, RUNS, TASKS):
            storage.delete_folder(folder)
        storage.delete([REQUEST])


def read(given: str | Path) -> Manifest:
    """Return the manifest of a state. given: its folder or address, or the manifest's. Raises
    UsageError."""
    return opened(given)[1]


def opened(given: str | Path) -> tuple[Storage, Manifest]:
    """Return the storage of a state and its manifest, given as for `read`. Raises UsageError."""
    storage, manifest, _ = read_bytes(given)
    return storage, manifest


def read_bytes(given: str | Path) -> tuple[Storage, Manifest, bytes]:
    """Return what `opened` does, and the manifest's bytes. Raises UsageError."""
    storage, name = storage_and_name(given, MANIFEST)
    where = storage.shown(name)
    try:
        content = storage.get(name)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        hint = "no state was finished there" if name == MANIFEST else None
        raise UsageError(f"cannot be read: {reason}", where=where, remedy=hint) from None
    return storage, manifests.load(text, where), content
