"""Compare an open transaction of a mirror with the log that it was copied from, batch by batch."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import blake2b

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import producer_markers
from eoctl.kafka.read.fetch import Ended, Range, read
from eoctl.operations.inspect.history_answer import read_state_logs
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.marker_origins import own_markers
from recovery.diagnose.copied import Comparison, Copied, CopiedBatch, CopyDoubt, decided
from recovery.diagnose.source_decision import decision_of
from recovery.errors import IncompleteError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.inspect.chains import Wanted
from recovery.inspect.history import Marker, MarkerOrigin, StateLog
from recovery.inspect.lost_markers import decisions_on, past_of, with_origins
from recovery.inspect.observation import OpenTransaction
from recovery.selectors import parse_selector
from recovery.values import Value, replace

_CONTENT_START = 16
"""Before that are offset, length and leader epoch, which is each cluster's own."""
_DOUBTS: dict[MarkerOrigin | None, CopyDoubt] = {
    "decided": "order-unclear",
    "foreign": "foreign-marker",
}


class InSource(Value):
    """What the source proves of a mirror's open transaction.

    topic_id: the source's; None = it is too old for ids. mirror_topic_id: likewise. ahead: how many
    offsets the source's log has after the mirror's end.
    """

    cluster_id: str | None
    partition: TopicPartition
    topic_id: str | None
    mirror_topic_id: str | None
    ahead: int
    copied: Copied


async def compared_with_source(
    source: Cluster, mirror: Cluster, about: OpenTransaction, topic: str, skew: int
) -> InSource:
    """Return what the source's log proves of the outcome. topic: in the source. skew: ms.

    Raises IncompleteError if one of the two logs cannot be read.
    """
    there = await _described(source, TopicPartition(topic, about.partition))
    here = await _described(mirror, about.topic_partition)
    comparison = Comparison(about.start_offset or 0)
    copied = await _compared(source, mirror, about, (there, here), comparison)
    if copied.doubt == "decisions-not-read":
        copied = await _with_decision(source, about, there, copied, comparison.newest, skew)
    return InSource(
        source.cluster_id,
        there.topic_partition,
        there.topic_id,
        here.topic_id,
        max(0, (there.high_watermark or 0) - (here.high_watermark or 0)),
        copied,
    )


async def _described(cluster: Cluster, partition: TopicPartition) -> PartitionFacts:
    """Return a partition's offsets. Raises IncompleteError."""
    metadata, chosen, missing = await selected(cluster, Scope((parse_selector(str(partition)),)))
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    missing += more
    if missing or not facts or facts[0].high_watermark is None:
        detail = missing[0].detail if missing else "its offsets were not seen"
        raise IncompleteError(detail, where=f"{partition} in cluster {cluster.cluster_id}")
    return facts[0]


async def _compared(
    source: Cluster,
    mirror: Cluster,
    about: OpenTransaction,
    logs: tuple[PartitionFacts, PartitionFacts],
    comparison: Comparison,
) -> Copied:
    """Read both logs side by side, up to the first difference or the source's marker."""
    there, here = logs
    async with (
        aclosing(_of_producer(source, about, there)) as theirs,
        aclosing(_of_producer(mirror, about, here)) as mine,
    ):
        async for one in mine:
            if isinstance(one, Marker):
                raise IncompleteError("it ended meanwhile", where=about.name, remedy="look again")
            doubt = comparison.differs(one, await anext(theirs, None))
            if doubt is not None:
                return doubt
        async for one in theirs:
            if isinstance(one, Marker):
                return comparison.ended(one)
            comparison.goes_on(one)
    return comparison.ended(None)


async def _of_producer(
    cluster: Cluster, about: OpenTransaction, p: PartitionFacts
) -> AsyncGenerator[CopiedBatch | Marker, None]:
    """Yield the producer's batches and markers from its start on. Raises IncompleteError."""
    start, end = max(about.start_offset or 0, p.log_start_offset or 0), p.high_watermark or 0
    if start >= end:
        return
    next_offset = start  # a batch may be read twice when the leader moves
    async with aclosing(read(cluster, [Range(*p.topic_partition, start, end)])) as items:
        async for item in items:
            if isinstance(item, Ended):
                _refuse_unread(cluster, item)
                continue
            for h in batch_headers(item.records):
                if h.producer_id != about.producer_id or not next_offset <= h.base_offset < end:
                    continue
                next_offset = h.last_offset + 1
                one = (
                    producer_markers.marker_in(h, item.records)
                    if h.is_control
                    else _batch(h, item.records)
                )
                if one is not None:
                    yield one


def _refuse_unread(cluster: Cluster, ended: Ended) -> None:
    if ended.error is not None:
        raise IncompleteError(
            f"it was not read: {ended.error} {ended.detail}".rstrip(),
            where=f"{ended.topic_partition} in cluster {cluster.cluster_id}",
        )


def _batch(h: BatchHeader, buffer: bytes) -> CopiedBatch:
    content = memoryview(buffer)[h.position + _CONTENT_START : h.position + h.size]
    digest = blake2b(content, digest_size=16).digest()
    return CopiedBatch(
        h.base_offset, h.last_offset, h.producer_epoch, h.records_count, h.max_timestamp, digest
    )


async def _with_decision(
    source: Cluster,
    about: OpenTransaction,
    there: PartitionFacts,
    copied: Copied,
    newest: int,
    skew: int,
) -> Copied:
    """Return it proven by the one decision that the marker can be of, or with the doubt."""
    end, where, pid = copied.marker, there.topic_partition, about.producer_id or 0
    assert end is not None
    assert end.data_epoch is not None
    before = await _marker_before(source, about, there)
    wanted = {pid: Wanted(frozenset({end.data_epoch}), frozenset({where}))}
    state = await read_state_logs(source, (), wanted)
    if state.missing or any(log.error is not None for log in state.logs):
        return copied  # another decision may lie in what was not read
    decision = decision_of(end, before, newest, state.logs, pid, where, skew)
    if decision is not None:
        return decided(copied, decision)
    return replace(copied, doubt=_doubt(source, end, state.logs, pid, where))


async def _marker_before(
    source: Cluster, about: OpenTransaction, there: PartitionFacts
) -> Marker | None:
    """Return the producer's last marker before the transaction; None: not seen, or not certain."""
    here = replace(about, topic=there.topic)
    marked = await producer_markers.markers(source, [here], {there.topic_partition: there})
    first = marked[here].first if here in marked else None
    if first is None:
        return None
    found = [m for m in marked[here].found if first <= m.offset < (about.start_offset or 0)]
    return found[-1] if found else None


def _doubt(
    source: Cluster, end: Marker, logs: tuple[StateLog, ...], pid: int, where: TopicPartition
) -> CopyDoubt:
    own = own_markers(source.cluster_id) or ()
    if any(one.is_it(where, pid, end) for one in own):
        return "ours"
    [told] = with_origins([end], decisions_on(logs, pid, where), past_of(logs, pid))
    return _DOUBTS.get(told.origin, "decision-gone")
