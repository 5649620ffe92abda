"""Verify a merge log entry by entry against its inputs, in bounded memory.

In steps of any size: pass entries to `entry` in the log's order, ask `needs` which offsets of the
inputs are required, pass them to `input`, and collect results with `findings`. At the end `needs`
is empty.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recovery.facts import TopicPartition
from recovery.merge.log import MergeEntry
from recovery.merge.log_rows import Finding, MergeFindingRow
from recovery.plurals import counted
from recovery.values import Value


@dataclass(slots=True)
class _Source:
    """One input partition.

    told: its data offsets are known up to here. expected: those that no entry has named yet.
    skipped: those that entries went past. waiting: (merge offset, offset) of unjudged entries.
    """

    log_start: int
    end: int
    told: int | None
    expected: deque[int] = field(default_factory=deque)
    skipped: set[int] = field(default_factory=set)
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    highest: int = -1  # of the waiting entries
    last: int = -1


class MergeVerifier:
    """Verifies one partition of a merge log.

    inputs: the log start and the end of every input partition, as the application sees them;
    entries below the log start are counted in `unproven`. begin: where each input's entries begin;
    an input without a value begins with its first entry.
    """

    def __init__(
        self,
        merge: TopicPartition,
        inputs: Mapping[TopicPartition, tuple[int, int]],
        begin: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        begin = begin or {}
        self._merge = merge
        self._sources = {
            partition: _Source(
                start, end, max(begin[partition], start) if partition in begin else None
            )
            for partition, (start, end) in inputs.items()
        }
        self._found: list[MergeFindingRow] = []
        self.entries = 0
        self.unproven = 0

    def entry(self, merge_offset: int, entry: MergeEntry) -> None:
        """Add the next data record of the merge log."""
        self.entries += 1
        partition = entry.topic_partition
        source = self._sources.get(partition)
        if source is None:
            text = f"{partition} is not an input of the application"
            self._find("foreign", merge_offset, partition, entry.offset, text)
            return
        if entry.offset >= source.end:
            text = f"the input ends at {source.end}"
            self._find("absent", merge_offset, partition, entry.offset, text)
            return
        if source.told is None:
            source.told = max(entry.offset, source.log_start)
        source.waiting.append((merge_offset, entry.offset))
        source.highest = max(source.highest, entry.offset)
        self._judge(partition, source)

    def unreadable(self, merge_offset: int, why: str) -> None:
        """Add a data record of the merge log that is no entry."""
        self._find("unreadable", merge_offset, None, None, why)

    def needs(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets [from, until) of the inputs that `input` has to pass next."""
        return {
            partition: (source.told, source.highest + 1)
            for partition, source in self._sources.items()
            if source.waiting and source.told is not None and source.told <= source.highest
        }

    def input(self, partition: TopicPartition, offsets: Iterable[int], until: int) -> None:
        """Add the offsets of an input's data records, as the application sees them, ascending. Pass
        all of [from, until) from `needs`, or as much from its beginning as fits in memory."""
        source = self._sources[partition]
        source.expected.extend(offsets)
        source.told = until
        self._judge(partition, source)

    def findings(self) -> list[MergeFindingRow]:
        """Return the findings since the last call."""
        new, self._found = self._found, []
        return new

    def _judge(self, partition: TopicPartition, source: _Source) -> None:
        while source.waiting:
            merge_offset, offset = source.waiting[0]
            goes_back = offset <= source.last
            if not goes_back and (source.told or 0) <= offset and offset >= source.log_start:
                return
            source.waiting.popleft()
            if goes_back:
                self._goes_back(partition, source, merge_offset, offset)
                continue
            if offset < source.log_start:
                self.unproven += 1
                source.last = offset
            elif offset in source.expected:
                source.last = offset
                self._pass_over(partition, source, merge_offset, offset)
            else:
                # Without a record, the entry says nothing about the order of the others.
                text = "no data record has this offset"
                self._find("absent", merge_offset, partition, offset, text)

    def _goes_back(
        self, partition: TopicPartition, source: _Source, merge_offset: int, offset: int
    ) -> None:
        if offset in source.skipped:
            source.skipped.remove(offset)
            text = f"it comes after {source.last}"
            self._find("disorder", merge_offset, partition, offset, text)
        else:
            text = f"the log has come to {source.last} already"
            self._find("repeat", merge_offset, partition, offset, text)

    def _pass_over(
        self, partition: TopicPartition, source: _Source, merge_offset: int, offset: int
    ) -> None:
        """Report a hole: data records below `offset`, itself expected, that no entry named."""
        missing = []
        while (expected := source.expected.popleft()) < offset:
            missing.append(expected)
        if missing:
            source.skipped.update(missing)
            text = f"{counted(len(missing), 'record is', 'records are')} not in the log"
            self._find("hole", merge_offset, partition, missing[0], text, missing[-1], len(missing))

    def _find(
        self,
        finding: Finding,
        merge_offset: int | None,
        topic_partition: TopicPartition | None,
        offset: int | None,
        detail: str,
        last_offset: int | None = None,
        records: int = 1,
    ) -> None:
        self._found.append(
            MergeFindingRow(
                topic=self._merge[0],
                partition=self._merge[1],
                merge_offset=merge_offset,
                finding=finding,
                input_topic=None if topic_partition is None else topic_partition[0],
                input_partition=None if topic_partition is None else topic_partition[1],
                offset=offset,
                last_offset=last_offset,
                records=records,
                detail=detail,
            )
        )


class Identity(Value):
    """What makes two records the same. timestamp: epoch ms; None: set by a broker, or none."""

    content: int
    timestamp: int | None

    def is_of(self, other: "Identity") -> bool:
        """Return True if the content is equal, and also the timestamp if both have their own."""
        times = {self.timestamp, other.timestamp} - {None}
        return self.content == other.content and len(times) < 2


class OutputComparison:
    """Compares each output with the record that the entry of the same number names.

    copies: a replay wrote the output, so every output is a copy of its record. Otherwise an
    application may have made something else of each record: if no output is a copy, nothing is
    reported. compared: pairs with both records present.
    """

    def __init__(
        self, merge: TopicPartition, output: TopicPartition, *, copies: bool = False
    ) -> None:
        self._merge, self._output, self._copies = merge, output, copies
        self._found: list[MergeFindingRow] = []
        self._run: tuple[int, MergeEntry, int, int] | None = None  # the first of those that differ
        self.compared = self._equal = 0

    def pair(
        self,
        merge_offset: int,
        entry: MergeEntry,
        record: Identity | None,
        output: tuple[int, Identity | None],
    ) -> None:
        """Compare the next entry's record with the output of the same number; None = missing."""
        at, actual = output
        if record is None or actual is None:
            return
        self.compared += 1
        if record.is_of(actual):
            self._equal += 1
            self._end_run()
        elif self._run is None:
            self._run = merge_offset, entry, at, 1
        else:
            self._run = (*self._run[:3], self._run[3] + 1)

    def findings(self) -> list[MergeFindingRow]:
        """Return all findings; call it at the end."""
        self._end_run()
        return self._found if self._copies or self._equal else []

    def _end_run(self) -> None:
        if self._run is None:
            return
        merge_offset, entry, at, records = self._run
        self._run = None
        others = "another record" if records == 1 else f"{counted(records, 'other record')}"
        self._found.append(
            MergeFindingRow(
                topic=self._merge[0],
                partition=self._merge[1],
                merge_offset=merge_offset,
                finding="output-differs",
                input_topic=entry.topic,
                input_partition=entry.partition,
                offset=entry.offset,
                last_offset=None,
                records=records,
                detail=f"{self._output} holds {others} from {at} on",
            )
        )


def output_ahead(
    merge: TopicPartition, tip: int, entries: int, output: TopicPartition, outputs: int
) -> MergeFindingRow | None:
    """Report more outputs than entries if each entry makes exactly one output. The log is written
    first, so the order of the excess outputs is not recorded."""
    if outputs <= entries:
        return None
    return MergeFindingRow(
        topic=merge[0],
        partition=merge[1],
        merge_offset=tip,
        finding="output-ahead",
        input_topic=None,
        input_partition=None,
        offset=None,
        last_offset=None,
        records=outputs - entries,
        detail=f"{output} holds {counted(outputs, 'record')}, the log "
        f"{counted(entries, 'entry', 'entries')}",
    )
