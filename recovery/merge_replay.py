"""Emitting a merged stream again, in its log's order, each record once whatever happens between.

A state machine without I/O. Outputs are sent in a transaction that also commits `position` for the
merge log's partition, so a dead replay resumes there; its metadata says how many outputs are still
to be dropped. Beyond the tip, `extend` says what to append to the log before it may be emitted.
"""

import json
from collections import deque
from collections.abc import Iterator
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


class Replay(Generic[T]):
    """Matches the entries of a merge log's partition with the records of its inputs.

    Start reading the log at position.merge_offset and each input at the first offset that the log
    names of it from there on (`recovery.merge_log.Tail`).
    """

    def __init__(self, merge: TopicPartition, position: Position) -> None:
        self._merge = merge
        self.position = position
        self._order: deque[tuple[int, Entry]] = deque()
        self._records: dict[TopicPartition, deque[tuple[int, int, T]]] = {}
        self._named: dict[TopicPartition, int] = {}
        self._arrivals = 0

    def log(self, merge_offset: int, entry: Entry) -> None:
        """The next data record of the merge log, read or just appended."""
        if merge_offset < self.position.merge_offset or (
            self._order and merge_offset <= self._order[-1][0]
        ):
            raise ValueError(f"entry {merge_offset} out of order")
        self._order.append((merge_offset, entry))
        self._named[entry.place] = self._named.get(entry.place, 0) + 1

    def record(self, place: TopicPartition, offset: int, record: T) -> None:
        """The next visible data record of an input."""
        self._arrivals += 1
        self._records.setdefault(place, deque()).append((self._arrivals, offset, record))

    @property
    def waits_for(self) -> TopicPartition | None:
        """The input whose record is the next one, where it has not arrived; None: not the inputs
        are waited for, but the log."""
        if self._order and not self._records.get(self._order[0][1].place):
            return self._order[0][1].place
        return None

    def ready(self) -> Iterator[Emit[T]]:
        """What may be emitted now. `position` moves with each one that is taken.

        Raises RefusedError where the next record of an input is not the one in the log.
        """
        while self._order and self.waits_for is None:
            merge_offset, entry = self._order[0]
            _, offset, record = self._records[entry.place][0]
            if offset != entry.offset:
                self._refuse(merge_offset, entry, offset)
            self._order.popleft()
            self._records[entry.place].popleft()
            self._named[entry.place] -= 1
            left = self.position.drop_left
            self.position = Position(merge_offset + 1, max(left - 1, 0))
            yield Emit(merge_offset, entry, record, send=left == 0)

    def extend(self, most: int | None = None) -> tuple[Entry, ...]:
        """Entries for the records that arrived and that the log does not name, in the order in
        which they arrived: to be appended to the log, then told by `log`. Only once the log was
        read to its tip, and by one process alone.
        """
        unnamed = sorted(
            (arrival, place, offset)
            for place, records in self._records.items()
            for arrival, offset, _ in list(records)[self._named.get(place, 0) :]
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
