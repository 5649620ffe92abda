"""A Flink checkpoint or savepoint on this host: read only, Flink alone writes it."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recovery.errors import IncompleteError, UsageError
from recovery.formats.flink_checkpoint import FlinkCheckpoint, places, read_states
from recovery.formats.flink_metadata import Place, read_metadata
from recovery.formats.reader import CorruptError

MOST_BYTES = 256 << 20

_CHECKPOINT = re.compile(r"chk-(\d+)")


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A checkpoint as it lies here. is_savepoint: its folder is not named as checkpoints are.

    newer: numbers of later checkpoints of the same job that lie beside it, each with its
    `_metadata`, ascending.
    """

    path: Path
    content: FlinkCheckpoint
    is_savepoint: bool
    newer: tuple[int, ...]


def is_one(path: str) -> bool:
    """Return True if a word is meant as a checkpoint: it is a path that exists, or a URI."""
    return "://" in path or path.startswith("file:") or Path(path).exists()


def read(path: str) -> CheckpointFolder:
    """Read a checkpoint: its folder, or the `_metadata` in it.

    Raises UsageError for a remote path, IncompleteError where a file cannot be read or is damaged,
    RefusedError for what is not understood.
    """
    folder = _local(path, "the checkpoint")
    if folder.name == "_metadata":
        folder = folder.parent
    where = str(folder)
    try:
        metadata = read_metadata(_bytes(folder / "_metadata"))
        content = read_states(metadata, {place: _part(place, folder) for place in places(metadata)})
    except CorruptError as error:
        raise error.within(where) from None
    number = _CHECKPOINT.fullmatch(folder.resolve().name)
    return CheckpointFolder(folder, content, number is None, _newer(folder, content.checkpoint_id))


def _local(path: str, what: str) -> Path:
    if "://" in path or path.startswith("file:"):
        parts = urlsplit(path)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise UsageError(
                f"{what} is not on this host, and {parts.scheme or parts.netloc} is not read here",
                where=path,
                remedy="copy the checkpoint's folder to this host",
            )
        return Path(unquote(parts.path))
    return Path(path)


def _bytes(path: Path, start: int = 0, size: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(MOST_BYTES + 1 if size < 0 else min(size, MOST_BYTES + 1))
    except OSError as error:
        raise IncompleteError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            remedy="name the folder of a checkpoint, such as .../chk-42, with all of its files",
        ) from None
    if len(data) > MOST_BYTES:
        raise IncompleteError(f"is larger than {MOST_BYTES >> 20} MiB", where=str(path))
    return data


def _part(place: Place, folder: Path) -> bytes:
    """The bytes of a state that does not stand in `_metadata`."""
    path = folder / place.path if place.relative else _local(place.path, "a state of it")
    data = _bytes(path, place.start, place.size)
    if 0 <= place.size != len(data):
        raise CorruptError(f"it has {len(data)} of {place.size} bytes", where=str(path))
    return data


def _newer(folder: Path, number: int) -> tuple[int, ...]:
    found = (
        int(match[1])
        for path in folder.resolve().parent.glob("chk-*/_metadata")
        if (match := _CHECKPOINT.fullmatch(path.parent.name))
    )
    return tuple(sorted(other for other in found if other > number))
