"""Compare an open transaction of a mirror with the log that it was copied from, batch by batch."""

from contextlib import aclosing
from hashlib import blake2b

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Ended, Range, read
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.marker_origins import with_known_origins
from recovery.diagnose.copied import Copied, CopiedBatch, judge_copy
from recovery.errors import IncompleteError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.records import ControlType, marker
from recovery.inspect.history import Marker
from recovery.inspect.observation import OpenTransaction
from recovery.selectors import parse_selector
from recovery.values import Value, replace

_CONTENT_START = 16
"""Before that are offset, length and leader epoch, which is each cluster's own."""


class InSource(Value):
    """What the source proves of a mirror's open transaction. topic_id: the source's; None = old."""

    cluster_id: str | None
    partition: TopicPartition
    topic_id: str | None
    copied: Copied


async def compared_with_source(
    source: Cluster, mirror: Cluster, about: OpenTransaction, topic: str
) -> InSource:
    """Return what the source's log proves of the outcome. topic: in the source.

    Raises IncompleteError if one of the two logs cannot be read.
    """
    assert about.start_offset is not None
    there = await _described(source, TopicPartition(topic, about.partition))
    here = await _described(mirror, about.topic_partition)
    assert here.high_watermark is not None
    mine = await _read(mirror, about, _range(here, about.start_offset))
    theirs = await _read(source, about, _range(there, about.start_offset), to_marker=True)
    if theirs.end is not None:
        pid, partition = about.producer_id or 0, there.topic_partition
        origins = await with_known_origins(source, partition, {pid: [theirs.end]})
        [end] = origins.get(pid, [theirs.end])
        theirs = replace(theirs, end=end)
    copied = judge_copy(about.start_offset, mine.batches, theirs.batches, theirs.end)
    return InSource(source.cluster_id, there.topic_partition, there.topic_id, copied)


async def _described(cluster: Cluster, partition: TopicPartition) -> PartitionFacts:
    """Return a partition's offsets. Raises IncompleteError."""
    metadata, chosen, missing = await selected(cluster, Scope((parse_selector(str(partition)),)))
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    missing += more
    if missing or not facts or facts[0].high_watermark is None:
        detail = missing[0].detail if missing else "its offsets were not seen"
        raise IncompleteError(detail, where=f"{partition} in cluster {cluster.cluster_id}")
    return facts[0]


def _range(p: PartitionFacts, start: int) -> Range:
    return Range(p.topic, p.partition, max(start, p.log_start_offset or 0), p.high_watermark or 0)


class _Log(Value):
    """One producer's batches in a stretch of a log, and the marker that ended them."""

    batches: tuple[CopiedBatch, ...] = ()
    end: Marker | None = None


async def _read(
    cluster: Cluster, about: OpenTransaction, where: Range, *, to_marker: bool = False
) -> _Log:
    """Read the producer's batches, up to its first marker if so asked. Raises IncompleteError."""
    batches: list[CopiedBatch] = []
    if where.start >= where.end:
        return _Log()
    async with aclosing(read(cluster, [where])) as items:
        async for item in items:
            if isinstance(item, Ended):
                _refuse_unread(cluster, item)
                continue
            for h in batch_headers(item.records):
                if h.producer_id != about.producer_id:
                    continue
                if not where.start <= h.base_offset < where.end:
                    continue
                if not h.is_control:
                    batches.append(_batch(h, item.records))
                elif to_marker and (end := _ending(h, item.records, batches)) is not None:
                    return _Log(tuple(batches), end)
    return _Log(tuple(batches))


def _refuse_unread(cluster: Cluster, ended: Ended) -> None:
    if ended.error is not None:
        raise IncompleteError(
            f"it was not read: {ended.error} {ended.detail}".rstrip(),
            where=f"{ended.topic_partition} in cluster {cluster.cluster_id}",
        )


def _batch(h: BatchHeader, buffer: bytes) -> CopiedBatch:
    content = memoryview(buffer)[h.position + _CONTENT_START : h.position + h.size]
    digest = blake2b(content, digest_size=16).digest()
    return CopiedBatch(h.base_offset, h.last_offset, h.producer_epoch, h.records_count, digest)


def _ending(h: BatchHeader, buffer: bytes, batches: list[CopiedBatch]) -> Marker | None:
    """Return the marker in a control batch; None if it ends no transaction."""
    end = marker(buffer, h)
    if end is None or end.type is ControlType.OTHER or end.coordinator_epoch is None:
        return None
    return Marker(
        offset=h.base_offset,
        outcome=end.type.value,
        producer_epoch=h.producer_epoch,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=h.max_timestamp,
        leader_epoch=h.leader_epoch,
        data_epoch=batches[-1].producer_epoch if batches else None,
    )
