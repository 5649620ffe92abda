"""Read the offsets of groups that open transactions hold, from `__consumer_offsets`.

One partition of it serves many groups, so an open transaction there proves nothing about a group on
its own: only the keys of its batches do. This needs READ on the topic. What could not be read is
reported as missing, never as none.
"""

from collections.abc import Collection, Iterator, Sequence

from eoctl.kafka.ask import collect
from eoctl.kafka.ask.groups import offsets_partitions
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Ended, Range, read
from recovery.facts import (
    GroupFacts,
    GroupOffsetFacts,
    Missing,
    PartitionFacts,
    TopicPartition,
    grouped,
)
from recovery.formats.consumer_offsets import OffsetKey, PendingOffset, PendingOffsets
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import CorruptError
from recovery.inspect.observation import OpenTransaction
from recovery.values import replace

MOST_BYTES = 32 << 20  # of a partition of __consumer_offsets, above the first open transaction
CHUNK_BYTES = 4 << 20

Pending = dict[OpenTransaction, tuple[PendingOffset, ...]]
"""The offsets that each open transaction holds, the newest last."""


async def pending_in(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    producer_ids: Collection[int] | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> tuple[Pending, list[Missing]]:
    """Return what open transactions on these partitions of `__consumer_offsets` hold.

    producer_ids: only theirs; None = all. A partition that was not read completely has a Missing:
    what is returned of it may lack the newest offsets.
    """
    offsets, missing = await collect.partition_offsets(cluster, (), partitions)
    ends = {f.topic_partition: f for f in offsets}
    held = [p for p in partitions if (f := ends.get(p.topic_partition)) is not None and f.held != 0]
    states, more = await collect.producers(cluster, held)
    missing += more
    opened = grouped(
        (
            partition,
            OpenTransaction(*partition, p.producer_id, p.current_txn_start_offset),
        )
        for partition, rows in states.items()
        for p in rows
        if p.current_txn_start_offset is not None
        and (producer_ids is None or p.producer_id in producer_ids)
    )
    ranges = [_range(ends[partition], mine) for partition, mine in opened.items()]
    held_by, unread = await _read(cluster, ranges, most_bytes)
    pending: Pending = {}
    for partition, mine in opened.items():
        missing += _gaps(ends[partition], mine, unread[partition])
        by_producer = grouped((p.producer_id, p) for p in held_by[partition])
        for transaction in mine:
            pending[transaction] = tuple(by_producer.get(transaction.producer_id or 0, ()))
    return pending, missing


def _range(ends: PartitionFacts, opened: Sequence[OpenTransaction]) -> Range:
    """Return the range to read: from the first start that is left, up to the high watermark."""
    first = max(min(t.start_offset or 0 for t in opened), ends.log_start_offset or 0)
    return Range(*ends.topic_partition, first, max(ends.high_watermark or 0, first + 1))


async def _read(
    cluster: Cluster, ranges: Sequence[Range], most_bytes: int
) -> tuple[dict[TopicPartition, list[PendingOffset]], dict[TopicPartition, Ended]]:
    """Return what each range holds, and how it ended. Bytes are not kept: there may be many."""
    size = min(CHUNK_BYTES, most_bytes)
    held = {r.topic_partition: PendingOffsets() for r in ranges}
    ended: dict[TopicPartition, Ended] = {}
    damaged: dict[TopicPartition, Ended] = {}
    async for item in read(cluster, ranges, partition_bytes=size, most_chunks=most_bytes // size):
        where = item.topic_partition
        if isinstance(item, Ended):
            ended[where] = item
        elif where not in damaged:
            try:
                held[where].add(item.records)
            except CorruptError as error:
                damaged[where] = Ended(*where, item.fetch_offset, "CORRUPT_MESSAGE", error.sentence)
    found = {where: [] if where in damaged else h.newest() for where, h in held.items()}
    return found, ended | damaged


def _gaps(
    ends: PartitionFacts, opened: Sequence[OpenTransaction], ended: Ended
) -> Iterator[Missing]:
    """Yield what of one partition's pending offsets was not seen."""
    where = ends.topic_partition
    if ended.error is not None:
        yield Missing("partition", ended.error, ended.detail, ends.leader, *where)
    low = ends.log_start_offset or 0
    if (first := min(t.start_offset or 0 for t in opened)) < low:
        text = f"a transaction began at offset {first}, and the log now begins at {low}"
        yield Missing("partition", "OFFSET_OUT_OF_RANGE", text, ends.leader, *where)


async def _of_groups(
    cluster: Cluster, names: Collection[str], most_bytes: int = MOST_BYTES
) -> tuple[Pending, list[Missing]]:
    """Return what open transactions hold on the partitions that keep these groups."""
    homes = await offsets_partitions(cluster) if names else ()
    if isinstance(homes, Missing):
        return {}, [homes]
    numbers = {coordinator_partition(name, len(homes)) for name in names if homes}
    mine = [p for p in homes if p.partition in numbers]
    return await pending_in(cluster, mine, most_bytes=most_bytes)


async def pending_holders(
    cluster: Cluster, pending: Sequence[GroupOffsetFacts]
) -> dict[OffsetKey, tuple[OpenTransaction, ...]]:
    """Return the open transactions that hold newer commits of these partitions.

    Without READ on `__consumer_offsets`, or with much above the LSO, some are left out.
    """
    found, _ = await _of_groups(cluster, {o.group for o in pending})
    named = {OffsetKey(o.group, o.topic, o.partition) for o in pending}
    by_record = sorted(
        ((p, transaction) for transaction, mine in found.items() for p in mine),
        key=lambda pair: pair[0].at,
    )
    holders = grouped((p.key, transaction) for p, transaction in by_record if p.key in named)
    return {key: tuple(mine) for key, mine in holders.items()}


async def with_pending(
    cluster: Cluster, offsets: Sequence[GroupOffsetFacts], *, most_bytes: int = MOST_BYTES
) -> list[GroupOffsetFacts]:
    """Return these offsets; a pending one with its value and producer id, as far as they are read.

    Of several transactions the one with the newest record counts. If its partition was not read
    completely, a newer value may exist, and none is given.
    """
    names = {o.group for o in offsets if o.pending}
    found, missing = await _of_groups(cluster, names, most_bytes)
    newest: dict[OffsetKey, tuple[TopicPartition, PendingOffset]] = {}
    for transaction, mine in found.items():
        for p in mine:
            if (other := newest.get(p.key)) is None or other[1].at < p.at:
                newest[p.key] = transaction.topic_partition, p
    gaps = {m.topic_partition for m in missing}

    def told(o: GroupOffsetFacts) -> GroupOffsetFacts:
        home, p = newest.get(OffsetKey(o.group, o.topic, o.partition), (None, None))
        if not o.pending or p is None:
            return o
        value = None if home in gaps else p.offset
        return replace(o, pending_offset=value, pending_producer_id=p.producer_id)

    return [told(o) for o in offsets]


async def groups_with_pending(
    cluster: Cluster, groups: Sequence[GroupFacts], *, most_bytes: int = MOST_BYTES
) -> list[GroupFacts]:
    """Return these groups with the values of their pending offsets: see `with_pending`."""
    offsets = [o for g in groups for o in g.offsets]
    if not any(o.pending for o in offsets):
        return list(groups)
    told = grouped(
        (o.group, o) for o in await with_pending(cluster, offsets, most_bytes=most_bytes)
    )
    return [replace(g, offsets=tuple(told.get(g.group, ()))) for g in groups]
