"""Evidence for a verdict beyond offsets and coordinators: start batches, markers, state logs.

Each function answers for many transactions at once. What could not be read is None or carries
its error; nothing is guessed.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import ENOUGH, Chunk, Ended, Range, read, read_all
from eoctl.kafka.read.log_checks import record_epoch_ends
from recovery.facts import Missing, PartitionFacts, TopicPartition, grouped, known
from recovery.formats.batches import BatchHeader, batch_headers, header_places, verify_crcs
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.consumer_offsets import decode_key as decode_group_key
from recovery.formats.reader import CorruptError
from recovery.formats.records import ControlType, marker, records
from recovery.inspect.history import Marker, StateLog
from recovery.inspect.observation import OpenTransaction, StartBatch
from recovery.inspect.state_log import Former, LogPart, parts_of, state_log

CONSUMER_OFFSETS = "__consumer_offsets"
AROUND = 1000  # offsets read on either side of a start batch, for the markers nearest to it
PEEK_BYTES = 512 << 10
PEEK_CHUNKS = 2
GROUP_CHUNKS = 8
MARKER_WINDOW = 100_000  # offsets before a start batch in which its producer's markers are sought
MARKER_CHUNKS = 16


@dataclass(frozen=True, slots=True)
class Markers:
    """A producer's markers in a data log, from `first` on without a missing offset."""

    found: tuple[Marker, ...]
    first: int | None


class StartBatches(NamedTuple):
    """The batches at the start offsets, and of those that were not read why (`Missing`)."""

    read: dict[OpenTransaction, StartBatch]
    unread: dict[OpenTransaction, Missing]


async def start_batches(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> StartBatches:
    """Read the batch at each transaction's start offset, and the marker times around it.

    Of one partition, starts near each other are read together: a busy partition has many.
    """
    started = [w for w in transactions if w.start_offset is not None]
    batches, unread = await _peeked(cluster, _neighbours(started), partitions)
    late = [w for w in unread if unread[w].error == ENOUGH]
    more, still = await _peeked(cluster, [[w] for w in late], partitions)
    batches |= more
    unread = {w: m for w, m in unread.items() if w not in more} | still
    keyed = [w for w in batches if w.topic == CONSUMER_OFFSETS]
    for batch_of in _one_per_partition(keyed):
        groups = [
            Range(w.topic, w.partition, w.start_offset or 0, _high(w, partitions)) for w in batch_of
        ]
        chunks, _ = await read_all(cluster, groups, most_chunks=GROUP_CHUNKS)
        for w in batch_of:
            batches[w] = replace(batches[w], groups=_groups(w, chunks[w.topic_partition]))
    return StartBatches(batches, unread)


def _high(w: OpenTransaction, partitions: Mapping[TopicPartition, PartitionFacts]) -> int:
    start = w.start_offset or 0
    return max(partitions[w.topic_partition].high_watermark or 0, start + 1)


def _neighbours(transactions: Sequence[OpenTransaction]) -> list[list[OpenTransaction]]:
    """Group transactions of a partition whose starts are not further apart than AROUND."""
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
    """Read around the starts of each group, which are of one partition and in order.

    One that PEEK_CHUNKS did not reach is unread by ENOUGH.
    """
    batches: dict[OpenTransaction, StartBatch] = {}
    unread: dict[OpenTransaction, Missing] = {}
    of_first = {group[0]: group for group in groups}
    for firsts in _one_per_partition(of_first):
        before, after = [], []
        for w in firsts:
            first, last = w.start_offset or 0, of_first[w][-1].start_offset or 0
            least = max(partitions[w.topic_partition].log_start_offset or 0, first - AROUND)
            end = min(_high(w, partitions), last + AROUND)
            after.append(Range(w.topic, w.partition, first, max(end, last + 1)))
            if least < first:
                before.append(Range(w.topic, w.partition, least, first))
        # the two stretches of one partition at once: they are of different reads
        (follow, ended), (precede, _) = await asyncio.gather(
            read_all(cluster, after, partition_bytes=PEEK_BYTES, most_chunks=PEEK_CHUNKS),
            read_all(cluster, before, partition_bytes=PEEK_BYTES, most_chunks=PEEK_CHUNKS),
        )
        for w in (w for first in firsts for w in of_first[first]):
            place = w.topic_partition
            batch_read = _start_batch(w, follow[place], precede.get(place, ()))
            if batch_read is not None:
                batches[w] = batch_read
            else:
                unread[w] = _why_unread(w, partitions[place], ended[place])
    return batches, unread


def _why_unread(w: OpenTransaction, p: PartitionFacts, ended: Ended) -> Missing:
    """Return the answer by which a start batch is not there; ENOUGH: it was not reached yet."""
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
    """after: from the start batch or before it on. before: what precedes those."""
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
                    return None  # that batch is gone
                first = h
            elif h.is_control and marker_after is None:
                marker_after = known(h.max_timestamp)
    if first is None:
        return None
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

    At most MARKER_WINDOW offsets back and MARKER_CHUNKS responses; `first` says from where.
    Transactions of one partition are read together as far as these responses reach.
    """
    by_partition = grouped(
        (w.topic_partition, w) for w in transactions if w.start_offset is not None
    )
    found = await _marked(cluster, list(by_partition.values()), partitions)
    late = [
        w for w, m in found.items() if m.first is None and len(by_partition[w.topic_partition]) > 1
    ]
    return found | await _marked(cluster, [[w] for w in late], partitions)


async def _marked(
    cluster: Cluster,
    groups: Sequence[Sequence[OpenTransaction]],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> dict[OpenTransaction, Markers]:
    """Read the markers of each group, which is of one partition; first None: not reached."""
    found: dict[OpenTransaction, Markers] = {}
    of_first = {group[0]: group for group in groups}
    for firsts in _one_per_partition(of_first):
        ranges: list[Range] = []
        scans: dict[TopicPartition, list[_MarkerScan]] = {}
        for w in firsts:
            p = partitions[w.topic_partition]
            earliest = min(w.start_offset or 0 for w in of_first[w])
            begin = max(p.log_start_offset or 0, earliest - MARKER_WINDOW)
            end = max(_high(w, partitions) for w in of_first[w])
            ranges.append(Range(w.topic, w.partition, begin, end))
            scans[w.topic_partition] = [_MarkerScan(w, begin) for w in of_first[w]]
        async for item in read(cluster, ranges, most_chunks=MARKER_CHUNKS):
            here = scans[item.topic, item.partition]
            if isinstance(item, Chunk):
                for h in batch_headers(item.records):
                    for scan in here:
                        scan.add(h, item.records)
            else:
                for scan in here:
                    found[scan.about] = scan.markers(item.position)
    return found


class _MarkerScan:
    """The markers of one producer in a stretch of its partition, taken batch by batch."""

    def __init__(self, about: OpenTransaction, begin: int) -> None:
        self.about = about
        self._start = about.start_offset or 0
        self._begin = self._first = self._expected = begin
        self._wrote: bool | None = False if begin == 0 else None  # since the marker before
        self._rows: list[Marker] = []

    def add(self, h: BatchHeader, chunk: bytes) -> None:
        """Take the next batch of the chunk. Batches may come twice."""
        if h.last_offset < self._expected:
            return
        if h.base_offset <= self._start:
            if h.base_offset > self._expected:
                self._first = h.base_offset
            if h.records_count != h.last_offset - h.base_offset + 1:
                self._first = h.last_offset + 1
            if self._first > self._begin and not self._wrote:
                self._wrote = None
        self._expected = h.last_offset + 1
        if h.producer_id != self.about.producer_id:
            return
        if not h.is_control:
            self._wrote = True
            return
        end_marker = marker(chunk, h)
        if (
            end_marker is None
            or end_marker.type is ControlType.OTHER
            or end_marker.coordinator_epoch is None
        ):
            return
        self._rows.append(
            Marker(
                offset=h.base_offset,
                outcome=end_marker.type.value,
                producer_epoch=h.producer_epoch,
                coordinator_epoch=end_marker.coordinator_epoch,
                timestamp=h.max_timestamp,
                data=self._wrote,
                leader_epoch=h.leader_epoch,
            )
        )
        self._wrote = False

    def markers(self, position: int) -> Markers:
        """Return what was found. position: up to which the partition was read."""
        if position <= self._start:
            return Markers((), None)  # not read as far as the batch
        return Markers(tuple(self._rows), self._first)


class Cache(Protocol):
    """An earlier reading of `__transaction_state`, kept (eoctl.stores.history_cache)."""

    def load(self, partition: int) -> LogPart | None:
        """Whole batches in offset order; None if none are kept."""
        ...

    def save(self, partition: int, parts: Sequence[LogPart]) -> None:
        """Keep these instead."""
        ...

    def retire(self, partition: int, part: LogPart) -> None:
        """Set aside what was loaded: the log does not hold it any more."""
        ...

    @property
    def has_earlier(self) -> bool:
        """Something is kept under this cluster id of another topic than the present one."""
        ...

    def former(self, present: Mapping[str, str]) -> Sequence[Former]:
        """All that was set aside, and what is kept of earlier topics of this cluster.

        present: topic → id now, of all topics: they tell this cluster from another of its id.
        """
        ...

    async def sight(self, topics: Mapping[str, str], ends: Mapping[int, int]) -> None:
        """Note the ids of topics, and the ends of the logs that were read after them."""
        ...


async def noted_state_logs(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None,
    cache: Cache | None,
) -> list[StateLog]:
    """Read `state_logs`, and note the topics beside them: what tells whose the cache is later."""
    topics = await topic_ids(cluster) if cache is not None else {}
    logs = await state_logs(cluster, partitions, producer_ids, transactional_ids, cache)
    if cache is not None:
        await cache.sight(topics, {log.partition: log.end for log in logs if log.end is not None})
    return logs


async def state_logs(
    cluster: Cluster,
    partitions: Sequence[PartitionMetadata],
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None = (),
    cache: Cache | None = None,
) -> list[StateLog]:
    """Read these partitions of `__transaction_state` from log start to high watermark.

    With the records of these producer ids and transactional ids (None = of all). What the cache
    has is not read again: its last batch is, and must be the same. If it is not there, the leader
    tells whether compaction took it (the rest is kept with what is new) or the log went another
    way; then all is read anew, and what the cache knew stands in `former`.
    """
    if not partitions:
        return []
    facts, _ = await collect.partition_offsets(cluster, (), partitions)
    logs: list[StateLog] = []
    ranges: list[Range] = []
    whole: dict[int, Range] = {}
    cached: dict[int, LogPart] = {}
    doubted: set[int] = set()
    other: set[int] = set()
    for p in facts:
        if p.error is not None or p.high_watermark is None or p.log_start_offset is None:
            logs.append(StateLog(p.partition, (), 0, error=p.error or "NOT_SEEN"))
            continue
        all_of_it = Range(p.topic, p.partition, p.log_start_offset, p.high_watermark)
        whole[p.partition] = all_of_it
        part = cache.load(p.partition) if cache is not None else None
        if part is not None:
            cached[p.partition] = part
        if (
            part is not None
            and all_of_it.start <= (last := part.header(-1).base_offset) < all_of_it.end
        ):
            ranges.append(replace(all_of_it, start=last))
        elif part is not None:
            doubted.add(p.partition)
        else:
            ranges.append(all_of_it)

    def made(number: int, buffers: Sequence[bytes], end: int, error: str | None) -> StateLog:
        before = cached.get(number)
        return _log(number, before, buffers, end, error, producer_ids, transactional_ids, cache)

    async for number, buffers, end, error in _read_each(cluster, ranges):
        goes_on = (
            _continues(cached[number], buffers) if number in cached and error is None else True
        )
        if goes_on:
            logs.append(made(number, buffers, end, error))
        elif goes_on is None:
            doubted.add(number)
        else:
            other.add(number)
    going_on = await _go_on(cluster, [p for p in partitions if p.partition in doubted], cached)
    for number in doubted - going_on.keys():
        logs.append(StateLog(number, (), 0, error="NOT_SEEN"))
    going_on |= dict.fromkeys(other, False)
    for number, same_log in going_on.items():
        if not same_log:
            assert cache is not None
            cache.retire(number, cached.pop(number))
    async for number, buffers, end, error in _read_each(cluster, [whole[n] for n in going_on]):
        logs.append(made(number, buffers, end, error))
    epochs = {p.partition: p.leader_epoch for p in partitions}
    logs = [replace(log, leader_epoch=epochs[log.partition]) for log in logs]
    logs.sort(key=lambda log: log.partition)
    former = await _former(cluster, cache)
    return _with_former(logs, former, producer_ids, transactional_ids)


async def _go_on(
    cluster: Cluster, partitions: Sequence[PartitionMetadata], cached: Mapping[int, LogPart]
) -> dict[int, bool]:
    """True for each log that goes on from what is kept of it; absent: its leader did not tell."""
    epochs = {
        (p.topic, p.partition): (
            p.leader,
            -1 if p.leader_epoch is None else p.leader_epoch,
            cached[p.partition].header(-1).leader_epoch,
        )
        for p in partitions
        if p.leader is not None
    }
    ends = await record_epoch_ends(cluster, epochs) if epochs else {}
    return {
        number: end is not None and end > cached[number].header(-1).last_offset
        for (_, number), end in ends.items()
    }


async def _former(cluster: Cluster, cache: Cache | None) -> Sequence[Former]:
    """Return what only the cache knows: topics are described only if there is an earlier log."""
    if cache is None:
        return ()
    return cache.former(await topic_ids(cluster) if cache.has_earlier else {})


async def topic_ids(cluster: Cluster) -> dict[str, str]:
    """Return each visible topic's id; none from brokers below 2.8, which give no ids."""
    metadata = await cluster.metadata(None)
    return {t.name: t.topic_id for t in metadata.topics.values() if t.topic_id is not None}


def _with_former(
    logs: Sequence[StateLog],
    former: Sequence[Former],
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None,
) -> list[StateLog]:
    """The logs with what only the cache knows: it stands with the partition of that number."""
    result = {log.partition: log for log in logs}
    for old in former if result else ():
        number = old.partition if old.partition in result else min(result)
        try:
            end = old.part.header(-1).last_offset + 1
            former_log = state_log(old.partition, [old.part], end, producer_ids, transactional_ids)
        except CorruptError:
            continue
        log = result[number]
        cut = log.cut_epoch
        if old.same_topic and number == old.partition:
            cut = max(-1 if cut is None else cut, old.part.header(-1).leader_epoch)
        result[number] = replace(log, former=(*log.former, former_log), cut_epoch=cut)
    return list(result.values())


async def _read_each(
    cluster: Cluster, ranges: Sequence[Range]
) -> AsyncIterator[tuple[int, list[bytes], int, str | None]]:
    """(partition, its buffers, the range's end, error) as each range ends.

    One partition's bytes are held no longer than needed.
    """
    ends = {r.partition: r.end for r in ranges}
    buffers: dict[int, list[bytes]] = {}
    async for item in read(cluster, ranges):
        if isinstance(item, Chunk):
            buffers.setdefault(item.partition, []).append(bytes(item.records))
        else:
            yield (
                item.partition,
                buffers.pop(item.partition, []),
                ends[item.partition],
                item.error,
            )


def _continues(cached: LogPart, buffers: Sequence[bytes]) -> bool | None:
    """Return True if the first batch read is the last one kept, False if it is another one.

    Compaction takes batches, and it notes in one with a tombstone when that may go.
    """
    first = next((h for b in buffers for h in batch_headers(b)), None)
    last = cached.header(-1)
    if first is None or first.base_offset != last.base_offset or first.has_delete_horizon:
        return None
    return first.crc == last.crc


def _log(
    partition: int,
    before: LogPart | None,
    buffers: Sequence[bytes],
    end: int,
    error: str | None,
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None,
    cache: Cache | None,
) -> StateLog:
    if error is not None:
        return StateLog(partition, (), 0, error=error)
    parts = [before] if before else []
    last_offset = before.header(-1).last_offset if before else -1
    grown = False
    try:
        for buffer in buffers:
            scan = header_places(buffer)
            verify_crcs(buffer, scan)
            part = LogPart(memoryview(buffer), scan)
            rows = range(len(scan))
            row = bisect_right(rows, last_offset, key=lambda row: part.header(row).last_offset)
            if row == len(scan):
                continue
            # whole batches that are new, so that what is kept has each batch once
            first = part.header(row).position
            if first or scan.end < len(buffer):
                (part,) = parts_of([buffer[first : scan.end]])
            parts.append(part)
            last_offset, grown = part.header(-1).last_offset, True
        log = state_log(partition, parts, end, producer_ids, transactional_ids)
    except CorruptError as corrupt:
        return StateLog(partition, (), 0, error=corrupt.sentence)
    if cache is not None and grown:
        cache.save(partition, parts)
    return replace(log, cached_until=before.header(-1).last_offset + 1 if before else 0)
