"""Decode merge logs, which record the order in which several inputs were read, and plan replays.

A merge log's partition has one entry for each record of the merged stream. Its format is coast's
(`recovery.formats.coast`) or JSON {"topic", "partition", "offset"}. `recovery.merge.log_findings`
finds faults in a log, and `recovery.merge.replay` emits its stream again.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from operator import ge
from typing import Any, NamedTuple, Protocol

from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.coast import MergeRecord, decode_merge, encode_merge
from recovery.formats.reader import CorruptError
from recovery.merge.log_rows import MergeInput
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.restart.observed import SourceRange
from recovery.values import Value


class MergeEntry(NamedTuple):
    """An entry: the next record of the merged stream is at `offset` of topic:partition."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


Columns = tuple[list[TopicPartition], list[int]]
"""Entries as two columns: the input partitions and the offsets."""

_USUAL = re.compile(  # what `encode` and most other writers produce
    rb'^\{"topic": ?"([!#-\[\]-~]+)", ?"partition": ?(0|[1-9][0-9]{0,8}), ?'
    rb'"offset": ?(0|[1-9][0-9]{0,17})\}$',
    re.MULTILINE,
)


class MergeFormat(Protocol):
    """The format of an entry in a record."""

    def decode(self, key: bytes | None, value: bytes | None) -> MergeEntry:
        """Return the entry. Raises CorruptError if there is none."""
        ...

    def decode_usual(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Columns | None:
        """Decode many entries at a fraction of the cost. None: not all have the usual form; then
        use `decode` on each of them, which finds the fault."""
        ...

    def encode(self, entry: MergeEntry) -> tuple[bytes | None, bytes]:
        """Return key and value."""
        ...


class CoastFormat:
    """coast's format: empty key; stream name, partition and offset in binary."""

    _MOST_PARTITIONS = 10_000

    def __init__(self) -> None:
        # The bytes before the offset are decoded once per input partition.
        self._partitions: dict[bytes, TopicPartition] = {}

    def decode(self, key: bytes | None, value: bytes | None) -> MergeEntry:
        if key:
            raise CorruptError(
                f"its key has {counted(len(key), 'byte')}", where="record of a coast merge log"
            )
        entry = MergeEntry(*decode_merge(value))
        if value is not None and len(self._partitions) < self._MOST_PARTITIONS:
            self._partitions[value[:-8]] = entry.topic_partition
        return entry

    def decode_usual(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Columns | None:
        if any(keys) or None in values:
            return None
        contents: Sequence[bytes] = values  # type: ignore[assignment]
        partitions = list(map(self._partitions.get, [value[:-8] for value in contents]))
        numbers = b"".join([value[-8:] for value in contents])
        if None in partitions or len(numbers) != 8 * len(contents):
            return None
        offsets = list(struct.unpack(f">{len(contents)}q", numbers))
        if offsets and min(offsets) < 0:
            return None
        return partitions, offsets  # type: ignore[return-value]

    def encode(self, entry: MergeEntry) -> tuple[bytes | None, bytes]:
        return b"", encode_merge(MergeRecord(*entry))


class JsonFormat:
    """The JSON format: any key; an object with topic, partition, offset and any other fields."""

    def decode(self, key: bytes | None, value: bytes | None) -> MergeEntry:
        try:
            fields: Any = json.loads(value or b"")
            topic, partition, offset = (fields[name] for name in MergeEntry._fields)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _no_entry(value) from None
        if not isinstance(topic, str) or not topic:
            raise _no_entry(value)
        for number in (partition, offset):
            if type(number) is not int or number < 0:
                raise _no_entry(value)
        return MergeEntry(topic, partition, offset)

    def decode_usual(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Columns | None:
        if None in values:
            return None
        lines = b"\n".join(values)  # type: ignore[arg-type]
        matches = _USUAL.findall(lines)
        # the usual form has no line break: with equal counts, each value is one fully matched line
        if len(matches) != len(values) or lines.count(b"\n") + 1 != len(values):
            return None
        partitions = {
            each: TopicPartition(each[0].decode("ascii"), int(each[1]))
            for each in {f[:2] for f in matches}
        }
        return [partitions[f[:2]] for f in matches], [int(f[2]) for f in matches]

    def encode(self, entry: MergeEntry) -> tuple[bytes | None, bytes]:
        return None, json.dumps(entry._asdict(), separators=(",", ":")).encode()


def _no_entry(value: bytes | None) -> CorruptError:
    text = "null" if value is None else quoted(value.decode("utf-8", "replace"))
    return CorruptError(f"{text} names no topic, partition and offset", where="merge log's record")


FORMATS: Mapping[str, MergeFormat] = {"coast": CoastFormat(), "json": JsonFormat()}


def merge_format(name: str) -> MergeFormat:
    """Return the format with this name. Raises UsageError if there is none."""
    if name not in FORMATS:
        raise UsageError(f"{quoted(name)} is not a format", remedy=f"write {' or '.join(FORMATS)}")
    return FORMATS[name]


class Tail:
    """The sources that a range of a merge log names; `add` its entries in order."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, int], list[int]] = {}  # first, last, entries, back
        self.entries = 0

    def add(self, entry: MergeEntry) -> None:
        self.entries += 1
        source = self._sources.get(entry[:2])
        offset = entry[2]
        if source is None:
            self._sources[entry[:2]] = [offset, offset, 1, 0]
            return
        if offset <= source[1]:
            source[3] += 1
        source[1] = offset
        source[2] += 1

    def add_all(self, entries: Columns) -> None:
        """Add many entries."""
        each: dict[TopicPartition, list[int]] = {partition: [] for partition in set(entries[0])}
        for partition, offset in zip(*entries, strict=True):
            each[partition].append(offset)
        self.entries += len(entries[0])
        for partition, offsets in each.items():
            back = sum(map(ge, offsets, offsets[1:]))
            source = self._sources.get(partition)
            if source is None:
                self._sources[partition] = [offsets[0], offsets[-1], len(offsets), back]
                continue
            source[3] += back + (offsets[0] <= source[1])
            source[1] = offsets[-1]
            source[2] += len(offsets)

    @property
    def sources(self) -> dict[TopicPartition, SourceRange]:
        return {
            TopicPartition(*partition): SourceRange(first, last, entries, not back)
            for partition, (first, last, entries, back) in self._sources.items()
        }


class MergePlan(Value):
    """A replay from a commit to the tip of a merge log's partition: the entries [start, tip), the
    inputs they name, and how many outputs to drop because they were already written."""

    topic: str
    partition: int
    start: int
    tip: int
    inputs: tuple[MergeInput, ...]
    drop_first: int


def merge_plan(
    merge: TopicPartition,
    start: int,
    tip: int,
    sources: Mapping[TopicPartition, SourceRange],
    *,
    drop_first: int,
    committed: Mapping[TopicPartition, int] | None = None,
) -> MergePlan:
    """Return what a replay of [start, tip) reads.

    committed: each input's offset in the same commit; an input without one begins with its first
    entry.

    Raises RefusedError if an input's entries go below its commit or are not ascending.
    """
    committed = committed or {}
    inputs = []
    for partition in sorted(sources.keys() | committed.keys()):
        source = sources.get(partition)
        begin = committed.get(partition, source.first if source else 0)
        if source is not None and (not source.rising or source.first < begin):
            raise RefusedError(
                f"the merge log [{start}, {tip}) names its offsets backwards: committed "
                f"{begin}, entries from {source.first} to {source.last}",
                where=str(partition),
                remedy="check the log with `eoctl merge verify`",
            )
        end, entries = (begin, 0) if source is None else (source.last + 1, source.entries)
        inputs.append(MergeInput(*partition, begin, end, entries))
    return MergePlan(*merge, start, tip, tuple(inputs), drop_first)
