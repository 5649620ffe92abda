"""Emit a merged stream again in its log's order, each record exactly once even after failures.

A state machine without I/O. Outputs are sent in a transaction that also commits `position` for the
merge log's partition, so a dead replay resumes there; its metadata says how many outputs are still
to be dropped. Beyond the tip, `extend` says what to append to the log before it may be emitted.
"""

import json
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from itertools import count, islice
from typing import Generic, NamedTuple, TypeVar

from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.merge.log import Columns, MergeEntry, MergePlan
from recovery.merge.log_rows import MergeOutput, MergePlanRow
from recovery.merge.reading import mismatch

T = TypeVar("T")


class Base(NamedTuple):
    """The commit at which a replay begins: the next merge log entry and the output's next offset.
    From that offset on, the output holds only outputs of entries from that entry on."""

    merge_offset: int
    output: TopicPartition
    output_offset: int


class ReplayPosition(NamedTuple):
    """The next entry of the merge log, and how many outputs from there on already exist.

    base: the commit at which the replay began.
    """

    merge_offset: int
    drop_left: int = 0
    base: Base | None = None

    @property
    def metadata(self) -> str:
        """Return the metadata of the commit of merge_offset."""
        content: dict[str, object] = {"drop_first": self.drop_left}
        if self.base is not None:
            merge_offset, (topic, partition), offset = self.base
            output = {"topic": topic, "partition": partition, "offset": offset}
            content |= {"from": merge_offset, "output": output}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def committed(cls, merge_offset: int, metadata: str | None) -> "ReplayPosition":
        """Parse a commit. Raises CorruptError if no replay wrote its metadata."""
        try:
            position = json.loads(metadata or "")
            left = _number(position["drop_first"])
            base = None
            if "from" in position:
                output = position["output"]
                partition = TopicPartition(str(output["topic"]), _number(output["partition"]))
                base = Base(_number(position["from"]), partition, _number(output["offset"]))
        except (ValueError, RecursionError, KeyError, TypeError):
            raise CorruptError(
                "its metadata is not of a merge replay", where=f"commit of {merge_offset}"
            ) from None
        return cls(merge_offset, left, base)


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


class _Source(Generic[T]):
    """One input: records that arrived and were not emitted, as (arrival, offset, record), the
    offset up to which they arrived, and how many records, arrived or to come, the log names."""

    __slots__ = ("arrived", "named", "partition", "records")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.records: deque[tuple[int, int, T]] = deque()
        self.named = 0
        self.arrived = -1


class Replay(Generic[T]):
    """Matches the entries of a merge log's partition with the records of its inputs.

    Start reading the log at position.merge_offset, and each input at the first offset that the log
    names for it from there on (`recovery.merge.log.Tail`).
    """

    def __init__(self, merge: TopicPartition, position: ReplayPosition) -> None:
        self._merge = merge
        self._next, self._left, self._base = position
        self._logged = position.merge_offset - 1
        self._order: deque[tuple[int, int, _Source[T]]] = deque()
        self._sources: dict[TopicPartition, _Source[T]] = {}
        self._arrivals = 0

    @property
    def position(self) -> ReplayPosition:
        """Return the position to commit with everything taken so far."""
        return ReplayPosition(self._next, self._left, self._base)

    @property
    def logged(self) -> int:
        """Return how many entries were logged and not taken."""
        return len(self._order)

    def log(self, merge_offset: int, entry: MergeEntry) -> None:
        """Add the next data record of the merge log, read or just appended."""
        self.log_all([merge_offset], ([entry.topic_partition], [entry.offset]))

    def log_all(self, merge_offsets: Sequence[int], entries: Columns) -> None:
        """Add the next data records of the merge log, in order."""
        if not merge_offsets:
            return
        if merge_offsets[0] <= self._logged:
            raise ValueError(f"entry {merge_offsets[0]} out of order")
        self._logged = merge_offsets[-1]
        partitions, offsets = entries
        counts = Counter(partitions)
        sources = {partition: self._source(partition) for partition in counts}
        for partition, number in counts.items():
            sources[partition].named += number
        self._order.extend(zip(merge_offsets, offsets, map(sources.get, partitions), strict=True))  # type: ignore[arg-type]

    def record(self, partition: TopicPartition, offset: int, record: T) -> None:
        """Add the next visible data record of an input."""
        self.records(partition, [offset], [record])

    def records(
        self, partition: TopicPartition, offsets: Sequence[int], records: Sequence[T]
    ) -> None:
        """Add the next visible data records of an input. Those that arrived before are skipped."""
        source = self._source(partition)
        if offsets[0] <= source.arrived:
            begin = bisect_right(offsets, source.arrived)
            offsets, records = offsets[begin:], records[begin:]
        if offsets:
            source.arrived = offsets[-1]
            self._arrivals += len(offsets)
            first = self._arrivals - len(offsets) + 1
            source.records.extend(zip(count(first), offsets, records, strict=False))

    def _source(self, partition: TopicPartition) -> _Source[T]:
        source = self._sources.get(partition)
        if source is None:
            source = self._sources[partition] = _Source(partition)
        return source

    def waiting(self, partition: TopicPartition) -> int:
        """Return how many records of an input arrived and were not taken."""
        source = self._sources.get(partition)
        return 0 if source is None else len(source.records)

    @property
    def waits_for(self) -> MergeEntry | None:
        """Return the next entry if its record has not arrived. None: the replay does not wait for
        an input, but for the log."""
        if self._order and not self._order[0][2].records:
            _, offset, source = self._order[0]
            return MergeEntry(*source.partition, offset)
        return None

    def take(self, most: int) -> list[T]:
        """Return up to `most` next records to send. `position` moves past them, and past those that
        the output already has.

        Raises RefusedError if an input's next record is not the one in the log; the records before
        that have to be taken first.
        """
        order, taken = self._order, list[T]()
        while order and len(taken) < most:
            merge_offset, offset, source = order[0]
            records = source.records
            if not records:
                break
            _, actual, record = records[0]
            if actual != offset:
                if taken:
                    break
                raise mismatch(
                    self._merge, merge_offset, MergeEntry(*source.partition, offset), actual
                )
            order.popleft()
            records.popleft()
            source.named -= 1
            self._next = merge_offset + 1
            if self._left:
                self._left -= 1
            else:
                taken.append(record)
        return taken

    def extend(self, most: int | None = None) -> tuple[MergeEntry, ...]:
        """Return entries for the records that arrived but are not named by the log, in order of
        arrival. Append them to the log, then pass them to `log`. Allowed only once the log was read
        to its tip, and for one process alone.
        """
        unnamed = sorted(
            (arrival, source.partition, offset)
            for source in self._sources.values()
            for arrival, offset, _ in islice(source.records, source.named, None)
        )
        return tuple(MergeEntry(*partition, offset) for _, partition, offset in unnamed[:most])


def merge_plan_row(
    plan: MergePlan,
    base: Base,
    output_end: int,
    reached: ReplayPosition | None,
    transactional_id: str,
) -> MergePlanRow:
    """Return the row. base: the commit; reached: what an earlier replay from there committed."""
    return MergePlanRow.of(
        plan,
        entries=sum(i.entries for i in plan.inputs),
        output=MergeOutput(
            topic=base.output[0],
            partition=base.output[1],
            start=base.output_offset,
            end=output_end,
        ),
        position=None if reached is None else reached.merge_offset,
        drop_left=None if reached is None else reached.drop_left,
        transactional_id=transactional_id,
    )
