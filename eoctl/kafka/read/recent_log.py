"""Read the newest part of the coordinators' topics: what ids and groups do now, without all of it.

What that costs is bounded: the records since a time, at most so many offsets, bytes and seconds in
all. Where there is more, every partition gets an equal share of its newest records.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

import msgspec

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from recovery.facts import Missing, TopicPartition, grouped
from recovery.formats.batches import verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.log_part import LogPart, part_of
from recovery.inspect.rights import and_grant
from recovery.plurals import counted
from recovery.values import Value, replace


class Bounds(Value):
    """What is read at most: offsets, bytes and seconds, of all partitions together."""

    offsets: int
    size: int
    seconds: float = 20.0


OF_RECORDS = Bounds(40_000, 16 << 20)
"""Where each record is decoded."""
OF_HEADS = Bounds(100_000, 40 << 20)
"""Where most records are read by their heads alone, which needs numpy."""
OF_CONTESTS = Bounds(400_000, 160 << 20)
"""Where records are counted as they arrive: a minute of 5,000 records a second, and some more."""
FIRST_OFFSETS = 5_000
"""The newest ones, some MB, which are read first: how long they take says what else there is time
for."""
LONGER = 8
"""How many times as much is read next, from its oldest record on, since sinks take records in
order, so that what was read before is read again; if two such steps reach a bound, one does."""
SPARE = 0.8
"""The part of the bytes that the next step may take, since older records may be larger."""

R = TypeVar("R")
S = TypeVar("S", bound="Sink")
Decode = Callable[[LogPart, int], Iterable[R]]
"""Decodes the records of a chunk and its partition's number. May raise CorruptError."""


class Sink(Protocol):
    """What takes the parts of a log, each partition's in the order of its offsets."""

    @property
    def full(self) -> bool:
        """Return True if no more should be read."""
        ...

    def add(self, part: LogPart, partition: int) -> None:
        """Take a part. Raises CorruptError."""
        ...


class Records(Generic[R]):
    """Keeps the decoded records."""

    full = False

    def __init__(self, decode: Decode[R]) -> None:
        self._decode = decode
        self.records: list[R] = []

    def add(self, part: LogPart, partition: int) -> None:
        self.records += self._decode(part, partition)


async def newest_states(
    cluster: Cluster, since: int, sink: Callable[[], S], bounds: Bounds
) -> "Tail[S] | Missing":
    """Give a sink from `sink` the newest records of `__transaction_state`. since: epoch ms.

    Missing: the topic may not be seen.
    """
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return partitions
    return await newest(cluster, coordinators.TRANSACTION_STATE, partitions, since, sink, bounds)


async def newest(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[PartitionMetadata],
    since: int,
    sink: Callable[[], S],
    bounds: Bounds,
) -> "Tail[S]":
    """Give a sink from `sink` the newest records of these partitions of a topic. since: epoch ms.

    On a slow line fewer are read, the newest ones: a longer reading that cannot be completed is
    dropped, and the shorter one before it counts.
    """
    # half of what the command has left is for the rest of it, as to say what was not read
    seconds = cluster.deadline.half_for(bounds.seconds)
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    bounds = replace(bounds, seconds=seconds)
    every = await _tails(cluster, topic, partitions, since, bounds)
    offsets = min(FIRST_OFFSETS, bounds.offsets)
    tail = await _read(cluster, every.newest(offsets), sink(), until - clock())
    while not tail.ends:
        left = until - clock()
        longer = next_step(tail, offsets, min(every.offsets, bounds.offsets), left)
        if longer <= offsets:
            break
        again = await _read(cluster, every.newest(longer), sink(), left)
        if again.ends:
            break
        tail, offsets = again, longer
    return tail


def next_step(tail: "Tail[S]", offsets: int, most: int, left: float) -> int:
    """Return how many offsets to read next: as many as `most`, the bytes and the time allow.

    tail: what `offsets` of them took. left: seconds. No more than `offsets`: do not read again.
    """
    by_size = int(offsets * tail.tails.bounds.size * SPARE // max(1, tail.size))
    most = min(most, by_size)
    step = offsets * LONGER
    steps = [most, step] if most <= step * LONGER else [step]
    return next((n for n in steps if n * tail.seconds <= left * offsets), offsets)


async def _read(cluster: Cluster, tails: "Tails", sink: S, seconds: float) -> "Tail[S]":
    """Read the ranges, at most for some seconds."""
    clock = asyncio.get_running_loop().time
    tail, began = Tail(tails, sink), clock()
    try:
        async with asyncio.timeout(seconds), aclosing(read(cluster, tails.ranges)) as reading:
            async for item in reading:
                tail.take(item)
                if tail.stopped:
                    break
    except TimeoutError:
        tail.late = True
    tail.seconds = clock() - began
    return tail


async def ranges_since(
    cluster: Cluster, partitions: Sequence[PartitionMetadata], since: int | None
) -> tuple[list[Range], dict[int, str]]:
    """Return the ranges from a time to the high watermark, and the errors by partition.

    since: epoch ms; None: from the log start. A range may begin earlier, never later.
    """
    facts, _ = await collect.partition_offsets(cluster, (), partitions)
    first: Mapping[TopicPartition, Mapping[int, int]] = {}
    if since is not None:
        first, _ = await collect.offsets_at(cluster, partitions, [since])
    ranges: list[Range] = []
    failed: dict[int, str] = {}
    for p in facts:
        if p.error is not None or p.log_start_offset is None or p.high_watermark is None:
            failed[p.partition] = p.error or "NOT_SEEN"
            continue
        start, end = p.log_start_offset, p.high_watermark
        if since is not None and p.topic_partition in first:
            # without an answer, as of a leader that moved in between, all of it is read
            start = first[p.topic_partition].get(since, end)
        ranges.append(Range(p.topic, p.partition, min(start, end), end))
    return ranges, failed


class Tails(Value):
    """The ranges to read. partitions: how many were asked for, those without new records too.

    since: epoch ms. cut: those that begin later than that. failed: partition → why not.
    """

    topic: str
    partitions: int
    since: int
    bounds: Bounds
    ranges: tuple[Range, ...] = ()
    cut: frozenset[int] = frozenset()
    failed: dict[int, str] = msgspec.field(default_factory=dict)

    @property
    def offsets(self) -> int:
        """Return how many offsets the ranges have."""
        return sum(r.end - r.start for r in self.ranges)

    def newest(self, offsets: int) -> "Tails":
        """Return the ranges shortened to their newest offsets, at most so many in all."""
        most = fair_share([r.end - r.start for r in self.ranges], offsets)
        cut = frozenset(r.partition for r in self.ranges if r.end - r.start > most)
        shortened = (replace(r, start=max(r.start, r.end - most)) for r in self.ranges)
        wanted = tuple(r for r in shortened if r.start < r.end)
        return replace(self, ranges=wanted, cut=cut)


async def _tails(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[PartitionMetadata],
    since: int,
    bounds: Bounds,
) -> Tails:
    """Return all ranges from an epoch ms on."""
    ranges, failed = await ranges_since(cluster, partitions, since)
    return Tails(topic, len(partitions), since, bounds, tuple(ranges), failed=failed)


def fair_share(sizes: Iterable[int], most: int) -> int:
    """Return how much each may take, so that all together take at most `most`.

    >>> fair_share([10, 500, 900], 1010)
    500
    >>> fair_share([10, 20], 100)
    20
    """
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        share = most // (len(ordered) - number)
        if size > share:
            return share
        most -= size
    return ordered[-1] if ordered else 0


class Tail(Generic[S]):
    """What was read of the ranges. ends: of those that are not read to their end yet.

    unreached: partitions of ranges of which nothing was read. newest: partition → epoch ms of the
    newest record that was read, by its coordinator's clock. size: bytes read. seconds: how long it
    took; late: it was ended since that was too long.
    """

    def __init__(self, tails: Tails, sink: S) -> None:
        self.tails = tails
        self.sink = sink
        self.ends = {r.partition: r.end for r in tails.ranges}
        self.unreached = set(self.ends)
        self.failed = dict(tails.failed)
        self.newest: dict[int, int] = {}
        self.seconds = 0.0
        self.late = False
        self.size = 0
        self._oldest: dict[int, int] = {}

    @property
    def stopped(self) -> bool:
        """Return True if a bound was reached."""
        return self.sink.full or self.size >= self.tails.bounds.size

    def take(self, item: Chunk | Ended) -> None:
        """Add what the reader gives; after an error nothing more of that partition."""
        number = item.partition
        self.unreached.discard(number)
        if isinstance(item, Ended):
            self.ends.pop(number, None)
            if item.error is not None:
                self.failed.setdefault(number, item.error)
            return
        self.size += len(item.records)
        if item.next_offset >= self.ends.get(number, 0):
            self.ends.pop(number, None)
        if number not in self.failed:
            try:
                self._add(item)
            except CorruptError:
                self.failed[number] = "CORRUPT"

    def _add(self, chunk: Chunk) -> None:
        """Give a chunk to the sink. Raises CorruptError."""
        part, number = part_of(chunk.records), chunk.partition
        verify_crcs(chunk.records, part.scan)
        if number in self.tails.cut and number not in self._oldest:
            times = (part.header(row).max_timestamp for row in range(len(part.scan)))
            if (oldest := next((t for t in times if t > self.tails.since), None)) is not None:
                self._oldest[number] = oldest
        if len(part.scan):
            self.newest[number] = max(self.newest.get(number, 0), part.header(-1).max_timestamp)
        self.sink.add(part, number)

    @property
    def read_from(self) -> int | None:
        """Return the epoch ms from which on all partitions were read; None: since the time that
        was asked for."""
        return max(self._oldest.values(), default=None)

    def not_reached(self, result: str, *, partly: bool = False) -> list[Missing]:
        """Return a `Missing` of partitions that a bound left out completely, if any.

        result: what follows for what is in them. partly: also those that were read in part.
        """
        left_out = self.ends if partly else self.unreached
        if not left_out:
            return []
        topic, partitions = self.tails.topic, counted(self.tails.partitions, "partition")
        read = "read to the end" if partly else "read"
        text = (
            f"{len(left_out)} of {partitions} of {topic} were not {read}, {self._why}, so {result}"
        )
        return [Missing("topic", "NOT_READ", text, topic=topic)]

    @property
    def _why(self) -> str:
        """Return which bound ended the reading."""
        if self.late:
            return f"since that takes longer than {self.tails.bounds.seconds:.2g} s from here"
        if self.sink.full:
            return "since there are more ids than are kept"
        return f"since there are more than {self.tails.bounds.size >> 20} MiB"

    def not_read(self, result: str) -> list[Missing]:
        """Return a `Missing` per error, each of all partitions that it concerns.

        result: what follows for what is in those that failed.
        """
        topic = self.tails.topic
        by_error = grouped((error, number) for number, error in sorted(self.failed.items()))
        return [
            Missing(
                "topic",
                error,
                and_grant(
                    f"{len(numbers)} of {counted(self.tails.partitions, 'partition')} of {topic} "
                    f"could not be read, so {result}",
                    error,
                    "READ on that topic",
                ),
                topic=topic,
            )
            for error, numbers in by_error.items()
        ]
