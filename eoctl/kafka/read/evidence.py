"""Evidence for a verdict beyond offsets and coordinators: start batches, markers.

Each function answers for many transactions at once. What could not be read is None or carries
its error; nothing is guessed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Chunk, Range, read_all
from recovery.facts import PartitionFacts, TopicPartition, known
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.consumer_offsets import decode_key as decode_group_key
from recovery.formats.records import ControlType, marker, records
from recovery.inspect.history import Marker
from recovery.inspect.observation import OpenTransaction, StartBatch

CONSUMER_OFFSETS = "__consumer_offsets"
AROUND = 1000  # offsets read on either side of a start batch, for the markers nearest to it
PEEK_BYTES = 512 << 10
GROUP_CHUNKS = 8
MARKER_WINDOW = 100_000  # offsets before a start batch in which its producer's markers are sought
MARKER_CHUNKS = 16


@dataclass(frozen=True, slots=True)
class Markers:
    """A producer's markers in a data log, from `first` on without a missing offset."""

    found: tuple[Marker, ...]
    first: int | None


async def start_batches(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
    epochs: Mapping[OpenTransaction, int],
) -> dict[OpenTransaction, StartBatch]:
    """The batch at each transaction's start offset, with the marker times around it.

    A transaction whose batch could not be read is not in the result. epochs: of each producer's
    last batch, as its leader describes it: all that is known once every batch is deleted.
    """

    def cut(w: OpenTransaction) -> bool:
        return (w.start_offset or 0) < (partitions[w.topic_partition].log_start_offset or 0)

    begun = [w for w in transactions if w.start_offset is not None]
    batches = await _survivors(cluster, [w for w in begun if cut(w)], partitions, epochs)
    for batch_of in _one_per_partition([w for w in begun if not cut(w)]):
        before, after, groups = [], [], []
        for w in batch_of:
            start = w.start_offset
            assert start is not None
            facts = partitions[w.topic_partition]
            high = facts.high_watermark or start + 1
            after.append(Range(w.topic, w.partition, start, min(high, start + AROUND)))
            least = max(facts.log_start_offset or 0, start - AROUND)
            if least < start:
                before.append(Range(w.topic, w.partition, least, start))
            if w.topic == CONSUMER_OFFSETS:
                groups.append(Range(w.topic, w.partition, start, high))
        follow, _ = await read_all(cluster, after, partition_bytes=PEEK_BYTES, most_chunks=2)
        precede, _ = await read_all(cluster, before, partition_bytes=PEEK_BYTES, most_chunks=2)
        keyed, _ = await read_all(cluster, groups, most_chunks=GROUP_CHUNKS)
        for w in batch_of:
            batch_read = _start_batch(
                w, follow[w.topic_partition], precede.get(w.topic_partition, ())
            )
            if batch_read is not None:
                names = _groups(w, keyed.get(w.topic_partition, ()))
                batches[w] = replace(batch_read, groups=names)
    return batches


async def _survivors(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
    epochs: Mapping[OpenTransaction, int],
) -> dict[OpenTransaction, StartBatch]:
    """Return the first batch that is left of each transaction that began below the log start."""
    batches: dict[OpenTransaction, StartBatch] = {}
    for batch_of in _one_per_partition(transactions):
        ranges = []
        for w in batch_of:
            facts = partitions[w.topic_partition]
            low = facts.log_start_offset or 0
            ranges.append(Range(w.topic, w.partition, low, facts.high_watermark or low))
        chunks, ended = await read_all(
            cluster, [r for r in ranges if r.start < r.end], most_chunks=MARKER_CHUNKS
        )
        for w, place in zip(batch_of, ranges, strict=True):
            read_here = chunks.get(w.topic_partition, [])
            found = _first_left(w, read_here, place.start)
            end = ended.get(w.topic_partition)
            whole = place.start == place.end or (
                end is not None and end.error is None and end.position >= place.end
            )
            if found is not None:
                batches[w] = replace(found, groups=_groups(w, read_here))
            elif whole and w in epochs and w.producer_id is not None:
                batches[w] = StartBatch(w.producer_id, epochs[w], deleted=True)
    return batches


def _first_left(w: OpenTransaction, chunks: Iterable[Chunk], low: int) -> StartBatch | None:
    """Return the producer's first transactional batch with records."""
    headers = [h for chunk in chunks for h in batch_headers(chunk.records)]
    for number, h in enumerate(headers):
        if h.producer_id == w.producer_id and h.is_transactional and not h.is_control:
            after = (known(m.max_timestamp) for m in headers[number:] if m.is_control)
            return replace(_of_header(h, None, next(after, None)), survivor=max(h.base_offset, low))
    return None


def _one_per_partition(transactions: Iterable[OpenTransaction]) -> list[list[OpenTransaction]]:
    """Rounds in which each partition stands once: one read serves one range per partition."""
    rounds: list[list[OpenTransaction]] = []
    counted: Counter[TopicPartition] = Counter()
    for w in transactions:
        number = counted[w.topic_partition]
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(w)
        counted[w.topic_partition] += 1
    return rounds


def _start_batch(
    w: OpenTransaction, after: Iterable[Chunk], before: Iterable[Chunk]
) -> StartBatch | None:
    assert w.start_offset is not None
    first: BatchHeader | None = None
    marker_after: int | None = None
    for chunk in after:
        for h in batch_headers(chunk.records):
            if first is None:
                if not h.base_offset <= w.start_offset <= h.last_offset:
                    return None  # that batch is gone
                first = h
            elif h.is_control and marker_after is None:
                marker_after = known(h.max_timestamp)
    if first is None:
        return None
    marker_before: int | None = None
    for chunk in before:
        for h in batch_headers(chunk.records):
            if h.is_control and h.last_offset < w.start_offset:
                marker_before = known(h.max_timestamp)
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


def _groups(w: OpenTransaction, chunks: Iterable[Chunk]) -> tuple[str, ...]:
    """The groups in the open offset commits of this producer (KIP-98: TxnOffsetCommit)."""
    names: set[str] = set()
    for chunk in chunks:
        for h in batch_headers(chunk.records):
            if h.producer_id != w.producer_id or h.is_control or not h.is_transactional:
                continue
            for r in records(chunk.records, h):
                key = decode_group_key(r.key) if r.key is not None else None
                if isinstance(key, OffsetKey):
                    names.add(key.group)
    return tuple(sorted(names))


async def markers(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> dict[OpenTransaction, Markers]:
    """Read each producer's markers in the data log before and after its start batch.

    At most MARKER_WINDOW offsets and MARKER_CHUNKS responses back; `first` says from where.
    """
    by_transaction: dict[OpenTransaction, Markers] = {}
    for batch_of in _one_per_partition([w for w in transactions if w.start_offset is not None]):
        ranges: dict[TopicPartition, Range] = {}
        for w in batch_of:
            facts, start = partitions[w.topic_partition], w.start_offset
            assert start is not None
            least = max(facts.log_start_offset or 0, start - MARKER_WINDOW)
            end = facts.high_watermark or start + 1
            ranges[w.topic_partition] = Range(w.topic, w.partition, least, end)
        chunks, ended = await read_all(cluster, list(ranges.values()), most_chunks=MARKER_CHUNKS)
        for w in batch_of:
            assert w.start_offset is not None
            if ended[w.topic_partition].position <= w.start_offset:
                by_transaction[w] = Markers((), None)  # not read as far as the batch
                continue
            begin = ranges[w.topic_partition].start
            by_transaction[w] = _markers(w, chunks[w.topic_partition], begin)
    return by_transaction


def _markers(w: OpenTransaction, chunks: Iterable[Chunk], begin: int) -> Markers:
    rows: list[Marker] = []
    first, expected = begin, begin
    wrote: bool | None = False if begin == 0 else None  # since the marker before
    assert w.start_offset is not None
    for chunk in chunks:
        for h in batch_headers(chunk.records):
            if h.last_offset < expected:
                continue
            whole = h.records_count == h.last_offset - h.base_offset + 1
            if h.base_offset <= w.start_offset:
                if h.base_offset > expected:
                    first = h.base_offset
                if not whole:
                    first = h.last_offset + 1
                if first > begin and not wrote:
                    wrote = None
            expected = h.last_offset + 1
            if h.producer_id != w.producer_id:
                continue
            if not h.is_control:
                wrote = True
                continue
            end_marker = marker(chunk.records, h)
            if (
                end_marker is None
                or end_marker.type is ControlType.OTHER
                or end_marker.coordinator_epoch is None
            ):
                continue
            rows.append(
                Marker(
                    offset=h.base_offset,
                    outcome=end_marker.type.value,
                    producer_epoch=h.producer_epoch,
                    coordinator_epoch=end_marker.coordinator_epoch,
                    timestamp=h.max_timestamp,
                    data=wrote,
                    leader_epoch=h.leader_epoch,
                )
            )
            wrote = False
    return Markers(tuple(rows), first)
