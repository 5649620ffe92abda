"""Emitting a merged stream again, in its log's order, each record once whatever happens between.

A state machine without I/O. Outputs are sent in a transaction that also commits `position` for the
merge log's partition, so a dead replay resumes there; its metadata says how many outputs are still
to be dropped. Beyond the tip, `extend` says what to append to the log before it may be emitted.
"""

import json
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.merge_log import Entry

T = TypeVar("T")


class Position(NamedTuple):
    """The next entry of the merge log, and how many outputs from there on are there already."""

    merge_offset: int
    drop_left: int = 0

    @property
    def metadata(self) -> str:
        """What the commit of merge_offset carries."""
        return json.dumps({"drop_first": self.drop_left}, separators=(",", ":"))

    @classmethod
    def committed(cls, merge_offset: int, metadata: str | None) -> "Position":
        """Raises CorruptError for metadata that no replay wrote."""
        try:
            found = json.loads(metadata or "")
        except (ValueError, RecursionError):
            found = None
        left = found.get("drop_first") if isinstance(found, dict) else None
        if type(left) is not int or left < 0:
            raise CorruptError(
                "its metadata is not of a merge replay", where=f"commit of {merge_offset}"
            )
        return cls(merge_offset, left)


class Emit(NamedTuple, Generic[T]):
    """One record of the merged stream. send: False where the output has it already."""

    merge_offset: int
    entry: Entry
    record: T
    send: bool


class _Source(Generic[T]):
    """One input: records that arrived and were not emitted, as (arrival, offset, record), and how
    many of them, or of those to come, the log names."""

    __slots__ = ("named", "place", "records")

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.records: deque[tuple[int, int, T]] = deque()
        self.named = 0


class Replay(Generic[T]):
    """Matches the entries of a merge log's partition with the records of its inputs.

    Start reading the log at position.merge_offset and each input at the first offset that the log
    names of it from there on (`recovery.merge_log.Tail`).
    """

    def __init__(self, merge: TopicPartition, position: Position) -> None:
        self._merge = merge
        self._next, self._left = position
        self._logged = position.merge_offset - 1
        self._order: deque[tuple[int, Entry, _Source[T]]] = deque()
        self._sources: dict[TopicPartition, _Source[T]] = {}
        self._arrivals = 0

    @property
    def position(self) -> Position:
        """What is to be committed with all that was emitted until now."""
        return Position(self._next, self._left)

    def log(self, merge_offset: int, entry: Entry) -> None:
        """The next data record of the merge log, read or just appended."""
        if merge_offset <= self._logged:
            raise ValueError(f"entry {merge_offset} out of order")
        self._logged = merge_offset
        source = self._source(entry[:2])
        source.named += 1
        self._order.append((merge_offset, entry, source))

    def record(self, place: TopicPartition, offset: int, record: T) -> None:
        """The next visible data record of an input."""
        self._arrivals += 1
        self._source(place).records.append((self._arrivals, offset, record))

    def _source(self, place: TopicPartition) -> _Source[T]:
        source = self._sources.get(place)
        if source is None:
            source = self._sources[place] = _Source(place)
        return source

    @property
    def waits_for(self) -> TopicPartition | None:
        """The input whose record is the next one, where it has not arrived; None: not the inputs
        are waited for, but the log."""
        if self._order and not self._order[0][2].records:
            return self._order[0][2].place
        return None

    def ready(self) -> Iterator[Emit[T]]:
        """What may be emitted now. `position` moves with each one that is taken.

        Raises RefusedError where the next record of an input is not the one in the log.
        """
        order = self._order
        while order and order[0][2].records:
            merge_offset, entry, source = order[0]
            _, offset, record = source.records[0]
            if offset != entry[2]:
                self._refuse(merge_offset, entry, offset)
            order.popleft()
            source.records.popleft()
            source.named -= 1
            self._next = merge_offset + 1
            if self._left:
                self._left -= 1
                yield Emit(merge_offset, entry, record, False)
            else:
                yield Emit(merge_offset, entry, record, True)

    def extend(self, most: int | None = None) -> tuple[Entry, ...]:
        """Entries for the records that arrived and that the log does not name, in the order in
        which they arrived: to be appended to the log, then told by `log`. Only once the log was
        read to its tip, and by one process alone.
        """
        unnamed = sorted(
            (arrival, source.place, offset)
            for source in self._sources.values()
            for arrival, offset, _ in islice(source.records, source.named, None)
        )
        return tuple(Entry(*place, offset) for _, place, offset in unnamed[:most])

    def _refuse(self, merge_offset: int, entry: Entry, offset: int) -> None:
        where = f"{self._merge[0]}:{self._merge[1]} at {merge_offset}"
        name = f"{entry.topic}:{entry.partition}"
        remedy = "look at the log with `eoctl merge verify`"
        if offset < entry.offset:
            raise RefusedError(
                f"it names {name} at {entry.offset}, but the record at {offset} comes before it "
                "and is not in the log",
                where=where,
                remedy=remedy,
            )
        raise RefusedError(
            f"it names {name} at {entry.offset}, where there is no record: the next is at {offset}",
            where=where,
            remedy=remedy,
        )
