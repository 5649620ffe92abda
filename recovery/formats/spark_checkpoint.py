"""Spark Structured Streaming's checkpoint directory: which batch is in flight, with which offsets.

`offsets/N` is written before batch N runs, `commits/N` after it: the last N without a commit is
replayed in exactly its ranges. Pure: `read` gets the files' texts by name.
Source: Spark's classes OffsetSeqLog (versions 1 and 2), CommitLog, HDFSMetadataLog, and of the
Kafka source KafkaSourceOffset, KafkaSourceInitialOffsetWriter.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.values import Value

Offsets = Mapping[TopicPartition, int]
VOID = "-"  # SERIALIZED_VOID_OFFSET: the source has no offset in this batch
MOST_DIGITS = 10  # of a partition: an int of 32 bits

_BATCH = re.compile(r"(offsets|commits)/(0|[1-9][0-9]*)")
_SOURCE = re.compile(r"sources/([0-9]+)/0")
_VERSION = re.compile(r"v([1-9][0-9]{0,8})")


class Checkpoint(Value):
    """A query's progress in its Kafka sources; other sources are left out.

    query_id: the query's own. batch: the last one planned, None = none yet. committed: the last one
    that is done. start, end: where `batch` begins and ends; a partition that is missing in `start`
    was not known earlier.
    """

    query_id: str | None
    batch: int | None
    committed: int | None
    start: Offsets
    end: Offsets

    @property
    def in_flight(self) -> bool:
        """Return True if the last batch will run again."""
        return self.batch is not None and self.batch != self.committed


def relevant(name: str) -> bool:
    """Return True if `read` needs this file, named relative to the directory."""
    return name == "metadata" or bool(_BATCH.fullmatch(name) or _SOURCE.fullmatch(name))


def read(files: Mapping[str, str]) -> Checkpoint:
    """Read a checkpoint. files: text by name relative to the directory; others are skipped.

    The last two batches' offsets are read, and the sources' first ones. Raises CorruptError if a
    file is not what it should be, or if offsets and commits do not fit each other.
    """
    planned, done = _numbers(files, "offsets"), _numbers(files, "commits")
    if done and (not planned or done[-1] > planned[-1]):
        raise CorruptError(f"commits/{done[-1]} is there, offsets/{done[-1]} is not")
    if not planned:
        return Checkpoint(query_id(files), None, None, {}, {})
    batch = planned[-1]
    committed = done[-1] if done else None
    if committed is not None and committed < batch - 1:
        # One batch at a time: Spark writes offsets/N+1 after commits/N.
        raise CorruptError(
            f"offsets/{batch} is the last, commits/{committed}: more than one batch is open"
        )
    if committed is not None:
        _body(files[f"commits/{committed}"], f"commits/{committed}")
    elif batch > 0:
        raise CorruptError(f"offsets/{batch} is there, and no commit at all")
    end = _offsets(files[f"offsets/{batch}"], f"offsets/{batch}")
    start: dict[TopicPartition, int] = {}
    if batch == 0:
        for name in sorted(files):
            if _SOURCE.fullmatch(name):
                start |= _initial(files[name], name)
    elif batch - 1 in planned:
        start = _offsets(files[f"offsets/{batch - 1}"], f"offsets/{batch - 1}")
    else:
        raise CorruptError(f"offsets/{batch - 1} is missing: where batch {batch} begins")
    for partition, offset in start.items():
        if end.get(partition, offset) < offset:
            raise CorruptError(
                f"{partition} ends at {end[partition]}, below its start {offset}",
                where=f"offsets/{batch}",
            )
    return Checkpoint(query_id(files), batch, committed, start, end)


class BatchOffsets(Value):
    """The content of `offsets/N`. metadata: of the batch. sources: a line each, in version 2 with
    the source's name before a colon."""

    version: int
    metadata: Mapping[str, Any]
    sources: tuple[str, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """Return the sources' offsets; one that is not JSON as its text."""
        lines = [s.partition(":")[2] if self.version == 2 else s for s in self.sources]
        return tuple(offset_value(line.strip()) for line in lines)

    @property
    def watermark_ms(self) -> int | None:
        """Return the watermark with which the batch runs; None: none is written."""
        value = self.metadata.get("batchWatermarkMs")
        return value if type(value) is int else None


def batch_offsets(text: str, where: str) -> BatchOffsets:
    """Read an `offsets/N`, for any kind of sources. Raises CorruptError if it is cut."""
    version, lines = _body(text, where)
    if version > 2:
        raise CorruptError(f"version {version} is not known", where=where)
    metadata = _json(lines[0], where) if lines[0].strip() else {}
    sources = tuple(line for line in lines[1:] if line.strip())
    if not isinstance(metadata, dict) or not sources:
        raise CorruptError("it is not complete: it has no source's offset", where=where)
    return BatchOffsets(version, metadata, sources)


def write_batch_offsets(offsets: BatchOffsets) -> str:
    """Return the text of an `offsets/N`."""
    metadata = json.dumps(offsets.metadata, separators=(",", ":"))
    return "\n".join([f"v{offsets.version}", metadata, *offsets.sources])


def commit_metadata(text: str, where: str) -> Mapping[str, Any]:
    """Read a `commits/N`. Raises CorruptError if it is cut.

    Spark reads one that ends after its version as a watermark of 0.
    """
    version, lines = _body(text, where)
    if version > 2:
        raise CorruptError(f"version {version} is not known", where=where)
    content = _json(lines[0], where)
    if not isinstance(content, dict) or type(content.get("nextBatchWatermarkMs")) is not int:
        raise CorruptError("it names no watermark", where=where)
    return content


def offset_value(text: str) -> Any:
    """Return a source's offset: its value if it is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def starting_offsets(offsets: Offsets) -> str:
    """Return a value for the Kafka source's option `startingOffsets` (or `endingOffsets`)."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics, separators=(",", ":"))


def _numbers(files: Mapping[str, str], folder: str) -> list[int]:
    matches = (_BATCH.fullmatch(name) for name in files)
    return sorted(int(match[2]) for match in matches if match and match[1] == folder)


def query_id(files: Mapping[str, str]) -> str | None:
    """Return the query's id from `metadata`; None if that is missing. Raises CorruptError."""
    if "metadata" not in files:
        return None
    metadata = _json(files["metadata"], "metadata")
    query = metadata.get("id") if isinstance(metadata, dict) else None
    if not isinstance(query, str):
        raise CorruptError("it has no id", where="metadata")
    return query


def _body(text: str, where: str) -> tuple[int, list[str]]:
    """Return the version and the lines after it; in an empty file the writer died."""
    lines = text.split("\n")
    match = _VERSION.fullmatch(lines[0].strip()) if lines else None
    if match is None or len(lines) < 2:
        raise CorruptError("it is not complete: version and metadata expected", where=where)
    return int(match[1]), lines[1:]


def _offsets(text: str, where: str) -> dict[TopicPartition, int]:
    version, lines = _body(text, where)
    if version > 2:
        raise CorruptError(f"version {version} is not known", where=where)
    if lines[0].strip():
        _json(lines[0], where)
    offsets: dict[TopicPartition, int] = {}
    for line in lines[1:]:
        written = line.partition(":")[2] if version == 2 else line
        if written.strip() != VOID and written.strip():
            offsets |= _kafka_offsets(_json(written, where), where)
    return offsets


def _initial(text: str, where: str) -> dict[TopicPartition, int]:
    """Read `sources/N/0`: a zero byte (Spark 2.1 needed it), `v1`, then the first offsets."""
    version, lines = _body(text.lstrip("\0"), where)
    if version > 1:
        raise CorruptError(f"version {version} is not known", where=where)
    return _kafka_offsets(_json("".join(lines), where), where)


def _kafka_offsets(value: Any, where: str) -> dict[TopicPartition, int]:
    """Return the offsets in {topic: {partition: offset}}; {} for a source that is not Kafka."""
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        for partition, offset in partitions.items():
            number = partition.isdecimal() and len(partition) <= MOST_DIGITS
            if not number or type(offset) is not int:
                return {}
            topic_partition = TopicPartition(topic, int(partition))
            if offset < 0:
                raise CorruptError(f"{topic_partition} has the offset {offset}", where=where)
            offsets[topic_partition] = offset
    return offsets


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not JSON: {error}", where=where) from None
