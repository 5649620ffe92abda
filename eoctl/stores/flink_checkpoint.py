"""Read a Flink checkpoint or savepoint, on this host or in object storage. Flink alone writes
checkpoints."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import OBJECTS, storage_at
from recovery.errors import IncompleteError, UsageError
from recovery.formats.flink_checkpoint import FlinkCheckpoint, handles, read_states
from recovery.formats.flink_metadata import StateHandle, read_metadata
from recovery.formats.reader import CorruptError
from recovery.plurals import counted
from recovery.values import Value

MOST_BYTES = 256 << 20

_CHECKPOINT = re.compile(r"chk-(\d+)")
_METADATA = "_metadata"


class CheckpointFolder(Value):
    """A checkpoint as found. path: its folder or address. is_savepoint: by the folder's name.

    newer: numbers of later checkpoints of the same job next to this one, each with its `_metadata`,
    ascending.
    """

    path: str
    content: FlinkCheckpoint
    is_savepoint: bool
    newer: tuple[int, ...]


def is_one(path: str) -> bool:
    """Return True if a word means a checkpoint: an existing path, or a URI."""
    return "://" in path or path.startswith("file:") or Path(path).exists()


def read(path: str) -> CheckpointFolder:
    """Read a checkpoint: its folder or address, or the `_metadata` in it.

    Raises UsageError for an address of another kind, IncompleteError if a file cannot be read or is
    damaged, RefusedError for an unknown format, UnreachableError for object storage.
    """
    where = _address(path.rstrip("/") or path, "the checkpoint")
    if where.rpartition("/")[2] == _METADATA:
        where = where.rpartition("/")[0] or "."
    storage = storage_at(where)
    try:
        metadata = read_metadata(_bytes(storage, _METADATA))
        content = read_states(metadata, {at: _part(at, storage) for at in handles(metadata)})
    except CorruptError as error:
        raise error.within(where) from None
    parent, _, name = _resolved(where).rpartition("/")
    newer = _newer(storage_at(parent), content.checkpoint_id) if parent else ()
    return CheckpointFolder(where, content, _CHECKPOINT.fullmatch(name) is None, newer)


def _address(path: str, what: str) -> str:
    """Return a path of this host, or an address of object storage. Raises UsageError."""
    if not ("://" in path or path.startswith("file:")):
        return path
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    scheme, _, rest = path.partition("://")
    if scheme == "s3p":  # Flink's name for S3 by its Presto plugin
        return f"s3://{rest}"
    if scheme in OBJECTS:
        return path
    raise UsageError(
        f"{what} is not on this host, and {parts.scheme or parts.netloc} is not read here",
        where=path,
        remedy="copy the checkpoint's folder to this host",
    )


def _resolved(where: str) -> str:
    """Return the path without links: a link may give a checkpoint another name."""
    return where if "://" in where else str(Path(where).resolve())


def _bytes(storage: Storage, name: str, start: int = 0, size: int = -1) -> bytes:
    try:
        left = max(0, storage.size(name) - start)
        wanted = left if size < 0 else min(size, left)
        if wanted <= MOST_BYTES:
            return storage.get_range(name, start, wanted) if wanted else b""
    except OSError as error:
        raise IncompleteError(
            f"cannot be read: {error.strerror}",
            where=storage.shown(name),
            remedy="name the folder of a checkpoint, such as .../chk-42, with all of its files",
        ) from None
    raise IncompleteError(f"is larger than {MOST_BYTES >> 20} MiB", where=storage.shown(name))


def _part(handle: StateHandle, storage: Storage) -> bytes:
    """Return the bytes of a state that is outside `_metadata`."""
    name = handle.path
    if not handle.relative:
        folder, _, name = _address(handle.path, "a state of it").rpartition("/")
        storage = storage_at(folder or "/")
    data = _bytes(storage, name, handle.start, handle.size)
    if 0 <= handle.size != len(data):
        where = storage.shown(name)
        raise CorruptError(f"it has {len(data):,} of {counted(handle.size, 'byte')}", where=where)
    return data


def _newer(beside: Storage, number: int) -> tuple[int, ...]:
    found = (int(match[1]) for name in beside.top() if (match := _CHECKPOINT.fullmatch(name)))
    return tuple(sorted(n for n in found if n > number and _whole(beside, n)))


def _whole(beside: Storage, number: int) -> bool:
    """Return True if a checkpoint has its `_metadata`."""
    try:
        return beside.size(f"chk-{number}/{_METADATA}") >= 0
    except OSError:
        return False
