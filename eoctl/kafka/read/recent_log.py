"""Read the newest part of the coordinators' topics: what ids and groups do now, without all of it.

What that costs is bounded: the records since a time, at most MOST_RECORDS offsets and MOST_BYTES in
all. Where there is more, every partition gets an equal share of its newest records.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from eoctl.kafka.ask import clocks, collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from recovery.diagnose.contest import MOST_BYTES, MOST_RECORDS
from recovery.facts import Missing, grouped
from recovery.formats.batches import verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import LogPart, part_of
from recovery.plurals import counted
from recovery.values import Value, replace


class Timed(Protocol):
    """A decoded record. timestamp: epoch ms."""

    @property
    def partition(self) -> int: ...

    @property
    def timestamp(self) -> int: ...


R = TypeVar("R", bound=Timed)
Decode = Callable[[LogPart, int], Iterable[R]]
"""Decodes the records of a chunk and its partition's number. May raise CorruptError."""


class RecentStates(NamedTuple):
    """The newest part of `__transaction_state`. tail: Missing = the topic may not be seen.

    since: epoch ms by the slowest coordinator's clock. late: ms by which that is behind ours.
    """

    tail: "Tail[StateRecord] | Missing"
    since: int
    late: int = 0

    def read_from(self) -> int | None:
        """Return from when on all partitions were read, by our clock; None: since the time."""
        if isinstance(self.tail, Missing) or (at := self.tail.read_from(self.since)) is None:
            return None
        return at + self.late


async def recent_states(cluster: Cluster, window_ms: int, clock: Callable[[], int]) -> RecentStates:
    """Return the states of the last window_ms. clock: ours, epoch ms.

    Where it shows nothing, our clock may be ahead: then the slowest coordinator's clock counts.
    """
    since = clock() - window_ms
    tail = await newest_states(cluster, since)
    if isinstance(tail, Tail) and not tail.tails.ranges and (late := await _late(cluster, clock)):
        return RecentStates(await newest_states(cluster, since - late), since - late, late)
    return RecentStates(tail, since)


async def _late(cluster: Cluster, clock: Callable[[], int]) -> int:
    """Return by how many ms the slowest coordinator's clock is behind ours; 0: not known.

    Only an open transaction lets a clock be measured.
    """
    _, measured = await clocks.of_coordinators(cluster, clock)
    return max((-c.ahead for c in measured if c.ahead < 0), default=0)


async def newest_states(cluster: Cluster, since: int) -> "Tail[StateRecord] | Missing":
    """Return the newest records of `__transaction_state`. since: epoch ms.

    Missing: the topic may not be seen.
    """
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return partitions
    return await newest(cluster, coordinators.TRANSACTION_STATE, partitions, since, states)


def states(part: LogPart, partition: int) -> Iterable[StateRecord]:
    """Return the records of a part of `__transaction_state`. Raises CorruptError."""
    return part.decoded(partition, range(len(part.scan)))


async def newest(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[PartitionMetadata],
    since: int,
    decode: Decode[R],
) -> "Tail[R]":
    """Return the newest records of these partitions of a topic. since: epoch ms."""
    tail = Tail(await _tails(cluster, topic, partitions, since), decode)
    reading = read(cluster, tail.tails.ranges)
    try:
        async for item in reading:
            tail.take(item)
            if tail.size >= MOST_BYTES:
                break
    finally:
        await reading.aclose()
    return tail


class Tails(Value):
    """The ranges to read. partitions: how many were asked for, those without new records too.

    cut: those that begin later than asked. failed: partition → why not.
    """

    topic: str
    partitions: int
    ranges: tuple[Range, ...] = ()
    cut: frozenset[int] = frozenset()
    failed: dict[int, str] = msgspec.field(default_factory=dict)


async def _tails(
    cluster: Cluster, topic: str, partitions: Sequence[PartitionMetadata], since: int
) -> Tails:
    """Return the ranges from an epoch ms on, shortened to MOST_RECORDS offsets in all."""
    facts, _ = await collect.partition_offsets(cluster, (), partitions)
    first, _ = await collect.offsets_at(cluster, partitions, [since])
    ranges: list[Range] = []
    failed: dict[int, str] = {}
    for p in facts:
        if p.error is not None or p.log_start_offset is None or p.high_watermark is None:
            failed[p.partition] = p.error or "NOT_SEEN"
            continue
        end = p.high_watermark
        # a leader that moved between the two answers says nothing of times: its share is read
        start = first.get(p.topic_partition, {since: p.log_start_offset}).get(since, end)
        ranges.append(Range(p.topic, p.partition, min(start, end), end))
    most = fair_share([r.end - r.start for r in ranges], MOST_RECORDS)
    cut = frozenset(r.partition for r in ranges if r.end - r.start > most)
    shortened = (replace(r, start=max(r.start, r.end - most)) for r in ranges)
    wanted = tuple(r for r in shortened if r.start < r.end)
    return Tails(topic, len(partitions), wanted, cut, failed)


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


class Tail(Generic[R]):
    """What was read of the ranges. ends: of those that are not read to their end yet.

    unreached: partitions of ranges of which nothing was read.
    """

    def __init__(self, tails: Tails, decode: Decode[R]) -> None:
        self.tails = tails
        self._decode = decode
        self.ends = {r.partition: r.end for r in tails.ranges}
        self.unreached = set(self.ends)
        self.failed = dict(tails.failed)
        self.records: list[R] = []
        self.size = 0

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
                self.records += self._decoded(item)
            except CorruptError:
                self.failed[number] = "CORRUPT"

    def _decoded(self, chunk: Chunk) -> list[R]:
        """Return the records of a chunk. Raises CorruptError."""
        part = part_of(chunk.records)
        verify_crcs(chunk.records, part.scan)
        return list(self._decode(part, chunk.partition))

    def read_from(self, since: int) -> int | None:
        """Return from when on all partitions were read; None: since that time. Both epoch ms."""
        oldest: dict[int, int] = {}
        for r in self.records:
            if r.partition in self.tails.cut and r.timestamp > since:
                oldest.setdefault(r.partition, r.timestamp)
        return max(oldest.values(), default=None)

    def not_reached(self, result: str, *, partly: bool = False) -> list[Missing]:
        """Return a `Missing` of partitions that the bound MOST_BYTES left out completely, if any.

        result: what follows for what is in them. partly: also those that were read in part.
        """
        left_out = self.ends if partly else self.unreached
        if not left_out:
            return []
        topic, partitions = self.tails.topic, counted(self.tails.partitions, "partition")
        read = "read to the end" if partly else "read"
        text = (
            f"{len(left_out)} of {partitions} of {topic} were not {read}, since there are more "
            f"than {MOST_BYTES >> 20} MiB, so {result}"
        )
        return [Missing("topic", "NOT_READ", text, topic=topic)]

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
                f"{len(numbers)} of {counted(self.tails.partitions, 'partition')} of {topic} could "
                f"not be read, so {result}"
                + ("; grant READ on that topic" if error.endswith("AUTHORIZATION_FAILED") else ""),
                topic=topic,
            )
            for error, numbers in by_error.items()
        ]
