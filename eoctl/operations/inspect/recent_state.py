"""Read the newest part of `__transaction_state`: what ids do now, without the complete log.

What that costs is bounded: the records since a time, at most MOST_RECORDS offsets and MOST_BYTES in
all. Where there is more, every partition gets an equal share of its newest records.
"""

from collections.abc import Iterable, Mapping, Sequence

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Range, read
from recovery.diagnose.contest import MOST_BYTES, MOST_RECORDS
from recovery.facts import Missing, grouped
from recovery.formats.batches import verify_crcs
from recovery.formats.reader import CorruptError
from recovery.inspect.history import StateRecord
from recovery.inspect.log_part import part_of
from recovery.plurals import counted
from recovery.values import Value, replace


class RecentState(Value):
    """The newest records of the log, in offset order within a partition.

    read_from: epoch ms from which on all partitions were read; None = as far back as asked.
    unfinished: partitions whose newest records were not read, since there were too many bytes.
    partitions: how many there are. failed: partition → Kafka's error; these were not read.
    """

    records: tuple[StateRecord, ...] = ()
    read_from: int | None = None
    unfinished: int = 0
    partitions: int = 0
    failed: Mapping[int, str] = {}


async def recent_state(cluster: Cluster, since: int) -> RecentState | Missing:
    """Return the records since an epoch ms; Missing if the topic may not be seen."""
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return partitions
    return await _read(cluster, await _tails(cluster, partitions, since))


def not_read(recent: RecentState, result: str) -> list[Missing]:
    """Return a `Missing` per error, each of all partitions that it concerns. result: what follows
    for ids there."""
    by_error = grouped((error, number) for number, error in sorted(recent.failed.items()))
    return [
        Missing(
            "topic",
            error,
            f"{len(numbers)} of {counted(recent.partitions, 'partition')} of __transaction_state "
            f"could not be read, so {result}"
            + ("; grant READ on that topic" if error.endswith("AUTHORIZATION_FAILED") else ""),
            topic=coordinators.TRANSACTION_STATE,
        )
        for error, numbers in by_error.items()
    ]


class _Tails(Value):
    """The ranges to read. cut: those that begin later than asked. failed: partition → why not."""

    ranges: tuple[Range, ...]
    cut: frozenset[int]
    failed: dict[int, str]


async def _tails(cluster: Cluster, partitions: Sequence[PartitionMetadata], since: int) -> _Tails:
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
    return _Tails(tuple(r for r in shortened if r.start < r.end), cut, failed)


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


async def _read(cluster: Cluster, tails: _Tails) -> RecentState:
    """Read the ranges, at most MOST_BYTES."""
    records: list[StateRecord] = []
    failed, size = dict(tails.failed), 0
    unfinished = {r.partition for r in tails.ranges}
    reading = read(cluster, tails.ranges)
    try:
        async for item in reading:
            if not isinstance(item, Chunk):
                unfinished.discard(item.partition)
                if item.error is not None:
                    failed[item.partition] = item.error
                continue
            size += len(item.records)
            try:
                records += _decoded(item)
            except CorruptError:
                failed[item.partition] = "CORRUPT"
            if size >= MOST_BYTES:
                break
    finally:
        await reading.aclose()
    oldest: dict[int, int] = {}
    for r in records:
        if r.partition in tails.cut:
            oldest.setdefault(r.partition, r.timestamp)
    return RecentState(
        tuple(records),
        read_from=max(oldest.values(), default=None),
        unfinished=len(unfinished),
        partitions=len(tails.ranges) + len(tails.failed),
        failed=failed,
    )


def _decoded(chunk: Chunk) -> list[StateRecord]:
    """Return the records of a chunk. Raises CorruptError."""
    part = part_of(chunk.records)
    verify_crcs(chunk.records, part.scan)
    return list(part.decoded(chunk.partition, range(len(part.scan))))
