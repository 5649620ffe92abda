"""Read the newest part of `__transaction_state`: what ids do now, without the complete log.

What that costs is bounded: the records since a time, at most MOST_RECORDS offsets and MOST_BYTES in
all. Where there is more, every partition gets an equal share of its newest records.
"""

from collections.abc import Iterable, Mapping, Sequence

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from recovery.diagnose.contest import MOST_BYTES, MOST_RECORDS
from recovery.facts import Missing, grouped
from recovery.formats.batches import verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import part_of
from recovery.plurals import counted
from recovery.values import Value, replace


async def newest(cluster: Cluster, since: int) -> tuple["Tails", "Tail", int] | Missing:
    """Return what was to be read, what was read, and how many partitions there are.

    since: epoch ms. Missing: the topic may not be seen.
    """
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return partitions
    tails = await _tails(cluster, partitions, since)
    return tails, await _read(cluster, tails), len(partitions)


def not_read(failed: Mapping[int, str], partitions: int, result: str) -> list[Missing]:
    """Return a `Missing` per error, each of all partitions that it concerns.

    partitions: how many there are. result: what follows for the ids of those that failed.
    """
    by_error = grouped((error, number) for number, error in sorted(failed.items()))
    return [
        Missing(
            "topic",
            error,
            f"{len(numbers)} of {counted(partitions, 'partition')} of __transaction_state could "
            f"not be read, so {result}"
            + ("; grant READ on that topic" if error.endswith("AUTHORIZATION_FAILED") else ""),
            topic=coordinators.TRANSACTION_STATE,
        )
        for error, numbers in by_error.items()
    ]


class Tails(Value):
    """The ranges to read. cut: those that begin later than asked. failed: partition → why not."""

    ranges: tuple[Range, ...]
    cut: frozenset[int]
    failed: dict[int, str]


async def _tails(cluster: Cluster, partitions: Sequence[PartitionMetadata], since: int) -> Tails:
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
    return Tails(tuple(r for r in shortened if r.start < r.end), cut, failed)


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


class Tail:
    """What was read of the ranges. ends: of those that are not read to their end yet."""

    def __init__(self, tails: Tails) -> None:
        self.ends = {r.partition: r.end for r in tails.ranges}
        self.failed = dict(tails.failed)
        self.records: list[StateRecord] = []
        self.size = 0

    def take(self, item: Chunk | Ended) -> None:
        """Add what the reader gives; after an error nothing more of that partition."""
        number = item.partition
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
                self.records += _decoded(item)
            except CorruptError:
                self.failed[number] = "CORRUPT"


async def _read(cluster: Cluster, tails: Tails) -> Tail:
    """Read the ranges, about MOST_BYTES at most."""
    tail = Tail(tails)
    reading = read(cluster, tails.ranges)
    try:
        async for item in reading:
            tail.take(item)
            if tail.size >= MOST_BYTES:
                break
    finally:
        await reading.aclose()
    return tail


def _decoded(chunk: Chunk) -> list[StateRecord]:
    """Return the records of a chunk. Raises CorruptError."""
    part = part_of(chunk.records)
    verify_crcs(chunk.records, part.scan)
    return list(part.decoded(chunk.partition, range(len(part.scan))))
