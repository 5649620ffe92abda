"""The folder of a state: rows of finished tasks until the manifest, the manifest, and tidying up.

manifest.json              published last; the state is what it lists
cut.json                   the same cut again: `--at DIR/cut.json`
data/TOPIC/P-UUID.parquet
request.json, tasks/, runs/    only while a rebuild is unfinished
.lock                      only while one is at work
"""

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eoctl.stores import private
from eoctl.stores.plan_files import sync_folder
from eoctl.stores.state.files import DATA, RUNS, StateFile, check_file, not_written, write_run
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.shared import cut as cuts
from recovery.state import manifest as manifests
from recovery.state.manifest import Manifest

MANIFEST, CUT, REQUEST, TASKS = "manifest.json", "cut.json", "request.json", "tasks"
LOCK = ".lock"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # of file systems without hard links


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task's result; JSON can hold it.

    counts: see RangeCounts; empty of a BucketTask. files, digest: of live rows; expired: last
    records that the format no longer counts as live. runs: of a range in parts, and then there are
    no files. seen: what the format remembers. producers: the last transaction of each producer, see
    RangeCounts. last_read_ms: when the last byte had come. peak_bytes: most memory the process had.
    """

    topic: str
    partition: int
    start: int | None
    end: int | None
    first_bucket: int | None
    counts: Mapping[str, int | None]
    files: tuple[StateFile, ...]
    runs: tuple[str, ...]
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

    def key(self) -> str:
        """The key of the task."""
        place = f"{self.topic}-{self.partition}"
        if self.first_bucket is not None:
            return f"{place}-buckets-{self.first_bucket}"
        return f"{place}-range-{self.start}-{self.end}"


class Attempts:
    """The rows of tasks that are done, by the tasks' keys."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> TaskRow | None:
        """The row of an earlier run; None when there is none, or a file of it is gone."""
        path = self._folder / TASKS / f"{key}.json"
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
            files = tuple(StateFile(**f) for f in fields.pop("files"))
            row = TaskRow(**{**fields, "files": files, "runs": tuple(fields["runs"])})
            for file in files:
                check_file(self._folder, file)
            if not all((self._folder / run).exists() for run in row.runs):
                return None
        except (OSError, ValueError, TypeError, KeyError, EoctlError):
            return None
        return row

    def keep(self, key: str, row: TaskRow) -> None:
        """Record the task as done. Raises RefusedError when its files are not visible here."""
        for path, size in (*((f.path, f.size) for f in row.files), *((r, None) for r in row.runs)):
            if not _there(self._folder / path, size):
                raise RefusedError(
                    "the executors write where this process cannot see it",
                    where=str(self._folder / path),
                    remedy="give an --output that all of them share",
                )
        write(self._folder / TASKS / f"{key}.json", json.dumps(asdict(row)))


def _there(path: Path, size: int | None) -> bool:
    """Return True if a file exists, with its size where that is known."""
    try:
        return path.stat().st_size == size or size is None
    except OSError:
        return False


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is missing, as the only one.

    Raises RefusedError, UsageError; IncompleteError: disk full.

    The lock ends with this process, however that ends; the file goes when the work is done.
    """
    path = folder / LOCK
    try:
        private.make_folder(folder)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise not_written(path, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(descriptor), path.stat())
        except (BlockingIOError, FileNotFoundError):  # the latter: another has just ended
            ours = False
        except OSError as error:
            raise UsageError(f"cannot be locked: {error.strerror}", where=str(path)) from None
        if not ours:
            raise RefusedError(
                "another rebuild is at work there",
                where=str(folder),
                remedy="wait until it has ended, or give another --output",
            )
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(descriptor)


def write(path: Path, text: str, *, new: bool = False) -> None:
    """Write atomically (temporary file, fsync, rename). new: never over another file.

    Raises UsageError; IncompleteError: disk full; RefusedError when there is one.
    """
    name = None
    try:
        private.make_folder(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        if new:
            _link(Path(name), path)
        else:
            Path(name).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if name is not None:
            with suppress(OSError):
                Path(name).unlink()
        raise not_written(path, error) from None


def _link(written: Path, path: Path) -> None:
    """Rename, unless there is a file of that name. Raises RefusedError."""
    try:
        os.link(written, path)
    except OSError as error:
        if error.errno in _NO_LINKS and not path.exists():
            written.replace(path)
            return
        written.unlink()
        if path.exists():
            raise _published(path.parent) from None
        raise
    written.unlink()


def _published(folder: Path) -> RefusedError:
    return RefusedError(
        "there is a state already", where=str(folder), remedy="give another --output"
    )


def unfinished(folder: Path) -> str | None:
    """The request that is unfinished there. Raises RefusedError for a folder of something else."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise UsageError("is no folder", where=str(folder))
    if (folder / MANIFEST).exists():
        raise _published(folder)
    with suppress(FileNotFoundError):
        return (folder / REQUEST).read_text(encoding="ascii")
    names = (path.name for path in folder.iterdir())
    others = sorted(n for n in names if n != LOCK and not n.startswith(f".{REQUEST}."))
    if others:
        raise RefusedError(
            f"holds other files ({others[0]}, ...)",
            where=str(folder),
            remedy="give a new folder, or an empty one",
        )
    return None


def begin(folder: Path, request: str, left: str | None) -> None:
    """Note what is being made here. left: the unfinished request that was found.

    Raises RefusedError where another rebuild is at work, or has begun since.
    """
    with held(folder):
        if unfinished(folder) != left:
            raise _another(folder)
        write(folder / REQUEST, request)


def check_begun(folder: Path, request: str) -> None:
    """Raises RefusedError where what was begun last is another request, or is a state already."""
    begun = unfinished(folder)
    if begun is not None and json.loads(begun) != json.loads(request):
        raise _another(folder)


def _another(folder: Path) -> RefusedError:
    return RefusedError(
        "another rebuild has begun there meanwhile",
        where=str(folder),
        remedy="give another --output",
    )


def publish(folder: Path, manifest: Manifest) -> None:
    """Make the state the folder's; then remove what it does not need.

    Raises RefusedError where there is a state already, or a file of this one is not there.
    """
    if (folder / MANIFEST).exists():
        raise _published(folder)
    for part in manifest.partitions:
        for file in part.files:
            if not _there(folder / file.path, file.size):
                raise RefusedError(
                    "a file of the state is gone or has changed",
                    where=str(folder / file.path),
                    remedy="run it again",
                )
        sync_folder(folder / DATA / part.topic)
    write_cut(folder / CUT, manifest.cut)
    write(folder / MANIFEST, manifests.dump(manifest), new=True)
    tidy(folder, manifest)


def write_cut(path: Path, cut: cuts.Cut) -> None:
    """A cut file. Raises UsageError."""
    write(path, cuts.dump(cut))


def tidy(folder: Path, manifest: Manifest) -> None:
    """Remove unlisted attempts, runs and rows of tasks."""
    listed = {folder / f.path for p in manifest.partitions for f in p.files}
    for path in (folder / DATA).glob("*/*.parquet"):
        if path not in listed:
            path.unlink(missing_ok=True)
    for name in (RUNS, TASKS):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REQUEST).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what attempts of earlier runs have left and no finished task lists: it takes room."""
    listed: set[Path] = set()
    for path in (folder / TASKS).glob("*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            row = json.loads(path.read_text(encoding="ascii"))
            listed |= {folder / f["path"] for f in row["files"]} | {folder / r for r in row["runs"]}
    for path in (*(folder / DATA).glob("*/*.parquet"), *(folder / RUNS).glob("*.arrow")):
        if path not in listed:
            path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Remove what an unfinished rebuild has left. Raises RefusedError where it is at work."""
    with held(folder):
        unfinished(folder)  # it may have become a state meanwhile
        for name in (DATA, RUNS, TASKS):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / REQUEST).unlink(missing_ok=True)


def read(folder: Path) -> Manifest:
    """The manifest of a folder, or of a path to it. Raises UsageError."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        hint = "no state was finished there" if folder.is_dir() else None
        raise UsageError(f"cannot be read: {reason}", where=str(path), remedy=hint) from None
    return manifests.load(text, str(path))


def empty_run(folder: Path) -> str:
    """A run without records."""
    import pyarrow as pa

    from eoctl.stores.state.files import BUCKETS
    from recovery.formats.columns import rows_schema

    nothing = pa.Table.from_batches([], schema=rows_schema())
    return write_run(folder, "empty", [nothing] * BUCKETS)
