"""Read evidence for a verdict beyond offsets and coordinators: start batches.

Each function answers for many transactions at once. What could not be read is None or carries its
error; nothing is guessed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import ENOUGH, Chunk, Ended, Range, read_all
from recovery.facts import HasPartition, Missing, PartitionFacts, TopicPartition, known
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.consumer_offsets import pending_offsets
from recovery.formats.reader import CorruptError
from recovery.inspect.observation import OpenTransaction, StartBatch
from recovery.values import Value, replace

P = TypeVar("P", bound=HasPartition)
CONSUMER_OFFSETS = "__consumer_offsets"
AROUND = 1000  # offsets read on either side of a start batch, for the markers nearest to it
PEEK_BYTES = 512 << 10
PEEK_CHUNKS = 2
GROUP_CHUNKS = 8
MARKER_CHUNKS = 16


class StartBatches(Value):
    """The batches at the start offsets, and why others were not read (`Missing`)."""

    read: dict[OpenTransaction, StartBatch]
    unread: dict[OpenTransaction, Missing]


async def start_batches(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
    epochs: Mapping[OpenTransaction, int],
) -> StartBatches:
    """Read the batch at each transaction's start offset, and the marker times around it.

    Starts near each other in one partition are read together: a busy partition has many. If the
    start was deleted, the producer's first remaining batch serves. epochs: of each producer's last
    batch, as its leader describes it: nothing else is known once every batch is deleted.
    """

    def is_deleted(w: OpenTransaction) -> bool:
        return (w.start_offset or 0) < (partitions[w.topic_partition].log_start_offset or 0)

    started = [w for w in transactions if w.start_offset is not None]
    deleted = [w for w in started if is_deleted(w)]
    begun = [w for w in started if not is_deleted(w)]
    batches, unread = await _peeked(cluster, _neighbours(begun), partitions)
    late = [w for w in unread if unread[w].error == ENOUGH]
    more, still = await _peeked(cluster, [[w] for w in late], partitions)
    batches |= more
    unread = {w: m for w, m in unread.items() if w not in more} | still
    keyed = [w for w in batches if w.topic == CONSUMER_OFFSETS]
    for batch_of in one_per_partition(keyed):
        groups = [
            Range(w.topic, w.partition, w.start_offset or 0, high_watermark(w, partitions))
            for w in batch_of
        ]
        chunks, ended = await read_all(cluster, groups, most_chunks=GROUP_CHUNKS)
        for w in batch_of:
            end = ended.get(w.topic_partition)
            is_read = end is not None and end.error is None
            batches[w] = _with_groups(batches[w], w, chunks[w.topic_partition], is_read=is_read)
    left, unseen = await _survivors(cluster, deleted, partitions, epochs)
    return StartBatches(batches | left, unread | unseen)


def high_watermark(w: OpenTransaction, partitions: Mapping[TopicPartition, PartitionFacts]) -> int:
    """Return the partition's high watermark, or what is above the start if that is greater."""
    start = w.start_offset or 0
    return max(partitions[w.topic_partition].high_watermark or 0, start + 1)


def _neighbours(transactions: Sequence[OpenTransaction]) -> list[list[OpenTransaction]]:
    """Group transactions of a partition that start no further than AROUND apart."""
    neighbours: list[list[OpenTransaction]] = []
    for w in sorted(transactions, key=lambda w: (w.topic_partition, w.start_offset or 0)):
        last = neighbours[-1][-1] if neighbours else None
        if (
            last is not None
            and last.topic_partition == w.topic_partition
            and (w.start_offset or 0) - (last.start_offset or 0) <= AROUND
        ):
            neighbours[-1].append(w)
        else:
            neighbours.append([w])
    return neighbours


async def _peeked(
    cluster: Cluster,
    groups: Sequence[Sequence[OpenTransaction]],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> tuple[dict[OpenTransaction, StartBatch], dict[OpenTransaction, Missing]]:
    """Read around the starts of each group, which share a partition and are in order.

    A start that PEEK_CHUNKS did not reach is unread by ENOUGH.
    """
    batches: dict[OpenTransaction, StartBatch] = {}
    unread: dict[OpenTransaction, Missing] = {}
    of_first = {group[0]: group for group in groups}
    for firsts in one_per_partition(of_first):
        before, after = [], []
        for w in firsts:
            first, last = w.start_offset or 0, of_first[w][-1].start_offset or 0
            least = max(partitions[w.topic_partition].log_start_offset or 0, first - AROUND)
            end = min(high_watermark(w, partitions), last + AROUND)
            after.append(Range(w.topic, w.partition, first, max(end, last + 1)))
            if least < first:
                before.append(Range(w.topic, w.partition, least, first))
        # both stretches of a partition at once: they belong to different reads
        (follow, ended), (precede, _) = await asyncio.gather(
            read_all(cluster, after, partition_bytes=PEEK_BYTES, most_chunks=PEEK_CHUNKS),
            read_all(cluster, before, partition_bytes=PEEK_BYTES, most_chunks=PEEK_CHUNKS),
        )
        for w in (w for first in firsts for w in of_first[first]):
            topic_partition = w.topic_partition
            batch_read = _start_batch(w, follow[topic_partition], precede.get(topic_partition, ()))
            if batch_read is not None:
                batches[w] = batch_read
            else:
                unread[w] = _why_unread(w, partitions[topic_partition], ended[topic_partition])
    return batches, unread


def _why_unread(w: OpenTransaction, p: PartitionFacts, ended: Ended) -> Missing:
    """Return the reason why a start batch is missing; ENOUGH: reading has not reached it yet."""
    start = w.start_offset or 0
    error, detail = ended.error, ended.detail
    if error == ENOUGH and ended.position <= start:
        detail = "it was not reached"
    elif error is None or error == ENOUGH:
        error, detail = "NO_SUCH_BATCH", "the log has no batch with that offset"
    if p.log_start_offset is not None and start < p.log_start_offset:
        detail = f"the log begins at {p.log_start_offset}"
    return Missing(
        "partition",
        error,
        f"Fetch of {w.name} from offset {start}: {detail}",
        p.leader,
        w.topic,
        w.partition,
    )


async def _survivors(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
    epochs: Mapping[OpenTransaction, int],
) -> tuple[dict[OpenTransaction, StartBatch], dict[OpenTransaction, Missing]]:
    """Read the first remaining batch of each transaction that began below the log start."""
    batches: dict[OpenTransaction, StartBatch] = {}
    unread: dict[OpenTransaction, Missing] = {}
    for batch_of in one_per_partition(transactions):
        ranges: dict[TopicPartition, Range] = {}
        for w in batch_of:
            p = partitions[w.topic_partition]
            low = p.log_start_offset or 0
            ranges[w.topic_partition] = Range(w.topic, w.partition, low, p.high_watermark or low)
        filled = [r for r in ranges.values() if r.start < r.end]
        chunks, ended = await read_all(cluster, filled, most_chunks=MARKER_CHUNKS)
        for w in batch_of:
            topic_partition = w.topic_partition
            read_here = chunks.get(topic_partition, [])
            found = _first_left(w, read_here, ranges[topic_partition].start)
            end = ended.get(topic_partition)
            is_complete = end is None or (
                end.error is None and end.position >= ranges[topic_partition].end
            )
            if found is not None:
                # what was deleted may have held more
                batches[w] = _with_groups(found, w, read_here, is_read=False)
            elif is_complete and w in epochs and w.producer_id is not None:
                batches[w] = StartBatch(
                    w.producer_id, epochs[w], deleted=True, groups_read=w.topic != CONSUMER_OFFSETS
                )
            elif end is not None:
                unread[w] = _why_unread(w, partitions[topic_partition], end)
    return batches, unread


def _first_left(w: OpenTransaction, chunks: Iterable[Chunk], low: int) -> StartBatch | None:
    """Return the producer's first transactional batch with records."""
    headers = [h for chunk in chunks for h in batch_headers(chunk.records)]
    for number, h in enumerate(headers):
        if h.producer_id == w.producer_id and h.is_transactional and not h.is_control:
            after = (known(m.max_timestamp) for m in headers[number:] if m.is_control)
            return replace(_of_header(h, None, next(after, None)), survivor=max(h.base_offset, low))
    return None


def one_per_partition(items: Iterable[P]) -> list[list[P]]:
    """Return rounds with each partition at most once: one read takes one range per partition."""
    rounds: list[list[P]] = []
    counted: Counter[TopicPartition] = Counter()
    for item in items:
        number = counted[item.topic_partition]
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(item)
        counted[item.topic_partition] += 1
    return rounds


def _start_batch(
    w: OpenTransaction, after: Iterable[Chunk], before: Iterable[Chunk]
) -> StartBatch | None:
    """Return the start batch. after: from it or earlier; before: what precedes those."""
    assert w.start_offset is not None
    first: BatchHeader | None = None
    marker_after: int | None = None
    marker_before: int | None = None
    for chunk in (*before, *after):
        for h in batch_headers(chunk.records):
            if h.last_offset < w.start_offset:
                if h.is_control:
                    marker_before = known(h.max_timestamp)
            elif first is None:
                if h.base_offset > w.start_offset:
                    return None  # the start batch was deleted
                first = h
            elif h.is_control and marker_after is None:
                marker_after = known(h.max_timestamp)
    if first is None:
        return None
    return _of_header(first, marker_before, marker_after)


def _of_header(
    first: BatchHeader, marker_before: int | None, marker_after: int | None
) -> StartBatch:
    append_time = first.timestamp_type == "LogAppendTime"
    return StartBatch(
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        timestamp=known(first.max_timestamp if append_time else first.base_timestamp),
        append_time=append_time,
        marker_before=marker_before,
        marker_after=marker_after,
    )


def _with_groups(
    batch: StartBatch, w: OpenTransaction, chunks: Iterable[Chunk], *, is_read: bool
) -> StartBatch:
    """Return the batch with the groups in this producer's open commits (KIP-98: TxnOffsetCommit).

    is_read: the chunks reach from the transaction's first batch to the end of the log. A damaged
    record there costs no verdict, only the knowledge of these groups.
    """
    if w.topic != CONSUMER_OFFSETS:
        return batch
    try:
        found = pending_offsets(chunk.records for chunk in chunks)
    except CorruptError:
        return replace(batch, groups_read=False)
    groups = tuple(sorted({p.key.group for p in found if p.producer_id == w.producer_id}))
    return replace(batch, groups=groups, groups_read=is_read)
