"""Read a broker's own files: segments, checkpoints, properties. Never writes.

Source: Kafka's LogFileUtils, OffsetCheckpointFile, MetaProperties.
"""

import mmap
import re
from pathlib import Path

from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.broker_files import log_end

FOLDER_NAME = re.compile(r"(.+)-([0-9]+)(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")
SEGMENT_NAME = re.compile(r"([0-9]{20})\.log")


def partition_of(folder: Path) -> TopicPartition:
    """Return the topic and partition that a folder is named for. Raises UsageError."""
    name = FOLDER_NAME.fullmatch(folder.resolve().name)
    if name is None:
        raise UsageError(
            "not a partition's folder", where=str(folder), remedy="give LOG_DIR/TOPIC-PARTITION"
        )
    return TopicPartition(name.group(1), int(name.group(2)))


def segments_in(folder: Path) -> list[Path]:
    """Return the segments (.log) of a partition, by offset. Raises UsageError if there is none."""
    try:
        logs = sorted(p for p in folder.iterdir() if SEGMENT_NAME.fullmatch(p.name))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(folder)) from None
    if not logs:
        raise UsageError(
            "holds no segment (.log)", where=str(folder), remedy="give LOG_DIR/TOPIC-PARTITION"
        )
    return logs


def mapped(path: Path) -> memoryview:
    """Return a segment's bytes up to where batches end, without preallocated zeros."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except ValueError:
        return memoryview(b"")  # an empty file cannot be mapped
    except OSError as error:
        raise _gone(path, error) from None
    return data[: log_end(data)]


def contents(path: Path) -> bytes:
    """Return a small file's bytes. Raises UsageError, IncompleteError if it disappeared."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _gone(path, error) from None


def _gone(path: Path, error: OSError) -> EoctlError:
    if isinstance(error, FileNotFoundError):
        return IncompleteError(
            "went away while it was read", where=str(path), remedy="run it again"
        )
    return UsageError(f"cannot be read: {error.strerror}", where=str(path))


def checkpoint(path: Path, topic: str, partition: int) -> int | None:
    """Return a partition's offset in a checkpoint file of the broker (OffsetCheckpointFile)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines[2:]:
        words = line.split()
        if words[:2] == [topic, str(partition)] and len(words) == 3 and words[2].isdigit():
            return int(words[2])
    return None


def property_in(path: Path, key: str, *, separator: str = "=") -> str | None:
    """Return a value from a file of `key=value` lines, or None."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    pairs = (line.partition(separator) for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key), None)
