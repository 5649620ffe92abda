"""Search an output for the keys of records, to find out whether these are already there.

Only committed records count, and only in the offsets that were read: what is not found there may
still be elsewhere in the output.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.chunks import visible_records
from eoctl.kafka.read.fetch import READ_COMMITTED, Chunk, Range, read
from eoctl.operations.inspect.lists import Scope, selected
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record
from recovery.inspect.cluster_rows import BesideRangeRow, BesideRow
from recovery.selectors import Selector
from recovery.shared.offset_bounds import Bound
from recovery.values import Value, replace

SLACK_MS = 600_000  # before the transaction's first record: outputs may be older by their clocks
CHUNKS = 64  # of 4 MiB, of each partition
LEFT_SECONDS = 1.0  # for the answer


class Beside(Value):
    """An output, and where to begin reading: an offset or an instant; None: SLACK_MS before."""

    output: Selector
    begin: Bound | None = None


async def found_beside(
    cluster: Cluster, beside: Beside, held: Sequence[Record]
) -> tuple[dict[int, BesideRow], list[BesideRangeRow], list[Missing]]:
    """Return for each record (by offset) what the output has, and which offsets were read."""
    answers = {r.offset: BesideRow(found="no-key") for r in held if r.key is None}
    keyed = [r for r in held if r.key is not None]
    if not keyed:
        return answers, [], []
    metadata, partitions, missing = await selected(cluster, Scope((beside.output,)))
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    missing += more
    begin = beside.begin or _shortly_before(keyed)
    ranges, more = await _ranges(cluster, partitions, facts, begin)
    missing += more
    search = _Search(keyed)
    read_rows, more = await _search(cluster, ranges, search)
    return answers | search.answers, read_rows, missing + more


def _shortly_before(held: Iterable[Record]) -> Bound:
    """Return the instant SLACK_MS before the first record; without one the log's beginning."""
    times = [r.timestamp for r in held if r.timestamp is not None]
    if not times:
        return Bound("earliest", "earliest")
    return Bound("", "time", max(0, min(times) - SLACK_MS))


async def _ranges(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    facts: Iterable[PartitionFacts],
    begin: Bound,
) -> tuple[dict[TopicPartition, BesideRangeRow], list[Missing]]:
    """Return what to read of each partition: up to its last stable offset."""
    at_time: dict[TopicPartition, int | None] = {}
    missing: list[Missing] = []
    if begin.kind == "time":
        by_partition, missing = await collect.offsets_at(cluster, partitions, [begin.value])
        at_time = {p: found.get(begin.value) for p, found in by_partition.items()}
    ranges = {}
    for p in facts:
        known = p.log_start_offset is not None and p.last_stable_offset is not None
        if not known or (begin.kind == "time" and p.topic_partition not in at_time):
            continue
        assert p.last_stable_offset is not None
        start = max(begin.resolve(p, at_time.get(p.topic_partition)), p.log_start_offset or 0)
        ranges[p.topic_partition] = BesideRangeRow(
            topic=p.topic,
            partition=p.partition,
            start=min(start, p.last_stable_offset),
            end=p.last_stable_offset,
            last_stable_offset=p.last_stable_offset,
            from_timestamp=begin.value if begin.kind == "time" else None,
            complete=True,
        )
    return ranges, missing


async def _search(
    cluster: Cluster, ranges: dict[TopicPartition, BesideRangeRow], search: "_Search"
) -> tuple[list[BesideRangeRow], list[Missing]]:
    """Read the ranges, as far as time and CHUNKS allow; return them as they were read."""
    read_to = {p: r.start for p, r in ranges.items()}
    missing: list[Missing] = []
    asked = [Range(*p, r.start, r.end) for p, r in ranges.items() if r.start < r.end]
    reading = read(cluster, asked, isolation=READ_COMMITTED, most_chunks=CHUNKS)
    async with aclosing(reading) as items:
        async for item in items:
            here = item.topic_partition
            if isinstance(item, Chunk):
                try:
                    search.add(item, ranges[here])
                except CorruptError as error:
                    missing.append(Missing("partition", "NOT_OPENED", error.sentence, None, *here))
                    break
                read_to[here] = min(item.next_offset, ranges[here].end)
            elif item.error is None:
                read_to[here] = ranges[here].end
            elif item.error != "ENOUGH":
                missing.append(Missing("partition", item.error, item.detail, None, *here))
            left = cluster.deadline.seconds_left
            if search.done or (left is not None and left < LEFT_SECONDS):
                break
    rows = [
        replace(r, end=read_to[p], complete=read_to[p] == r.end) for p, r in sorted(ranges.items())
    ]
    return rows, missing


class _Search:
    """Finds the first record with each key, preferring one with the same value."""

    def __init__(self, held: Iterable[Record]) -> None:
        self._wanted: dict[bytes, list[Record]] = {}
        self.answers: dict[int, BesideRow] = {}
        for record in held:
            assert record.key is not None
            self._wanted.setdefault(record.key, []).append(record)
            self.answers[record.offset] = BesideRow(found="not-in-range")

    @property
    def done(self) -> bool:
        """Return True if every record was found with its value."""
        return all(answer.found == "same-value" for answer in self.answers.values())

    def add(self, chunk: Chunk, r: BesideRangeRow) -> None:
        """Compare the committed records of a chunk. Raises CorruptError."""
        for record in visible_records(chunk, max(r.start, chunk.fetch_offset), r.end):
            for held in self._wanted.get(record.key, ()) if record.key is not None else ():
                before = self.answers[held.offset].found
                same = record.value == held.value
                if before == "not-in-range" or (same and before == "same-key"):
                    self.answers[held.offset] = BesideRow(
                        found="same-value" if same else "same-key",
                        topic=r.topic,
                        partition=r.partition,
                        offset=record.offset,
                    )
