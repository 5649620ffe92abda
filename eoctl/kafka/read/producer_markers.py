"""Read producers' markers in data logs, around the start batches of their transactions.

What could not be read is left open; nothing is guessed.
"""

from collections.abc import Mapping, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Chunk, Range, read
from eoctl.kafka.read.start_batches import MARKER_CHUNKS, high_watermark, one_per_partition
from recovery.facts import PartitionFacts, TopicPartition, grouped
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.records import ControlType, marker
from recovery.inspect.history import Marker, Markers
from recovery.inspect.observation import OpenTransaction
from recovery.values import Value, replace

MARKER_WINDOW = 100_000  # offsets before a start batch to search for its producer's markers


class Marked(Value):
    """A producer's markers in a data log, from `first` on without a missing offset."""

    found: Sequence[Marker]
    first: int | None


async def markers(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> dict[OpenTransaction, Marked]:
    """Read each producer's markers in the data log before and after its start batch.

    At most MARKER_WINDOW offsets back and MARKER_CHUNKS responses; `first` says from which offset.
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
) -> dict[OpenTransaction, Marked]:
    """Read the markers of each group, which shares a partition; first None: not reached."""
    found: dict[OpenTransaction, Marked] = {}
    of_first = {group[0]: group for group in groups}
    for firsts in one_per_partition(of_first):
        ranges: list[Range] = []
        scans: dict[TopicPartition, _Stretch] = {}
        for w in firsts:
            p = partitions[w.topic_partition]
            earliest = min(w.start_offset or 0 for w in of_first[w])
            begin = max(p.log_start_offset or 0, earliest - MARKER_WINDOW)
            end = max(high_watermark(w, partitions) for w in of_first[w])
            ranges.append(Range(w.topic, w.partition, begin, end))
            scans[w.topic_partition] = _Stretch(of_first[w], begin)
        async for item in read(cluster, ranges, most_chunks=MARKER_CHUNKS):
            here = scans[item.topic_partition]
            if isinstance(item, Chunk):
                for h in batch_headers(item.records):
                    here.add(h, item.records)
            else:
                for scan in here.scans:
                    found[scan.about] = scan.markers(item.position)
    return found


class _Stretch:
    """A stretch of a partition, and the scans of all producers that are looked for in it.

    A batch concerns only its own producer, until an offset is missing: that concerns all.
    """

    def __init__(self, transactions: Sequence[OpenTransaction], begin: int) -> None:
        self.scans = [_MarkerScan(w, begin) for w in transactions]
        self._by_producer = grouped((s.about.producer_id, s) for s in self.scans)
        self._expected = begin
        self._has_gaps = False

    def add(self, h: BatchHeader, chunk: bytes) -> None:
        """Add the next batch of the chunk. Batches may repeat."""
        if h.last_offset < self._expected:
            return
        if h.base_offset > self._expected or h.records_count != h.last_offset - h.base_offset + 1:
            self._has_gaps = True
        mine = self.scans if self._has_gaps else self._by_producer.get(h.producer_id, ())
        for scan in mine:
            scan.add(h, chunk, self._expected)
        self._expected = h.last_offset + 1


def marker_in(h: BatchHeader, buffer: bytes) -> Marker | None:
    """Return the marker in a control batch of the buffer; None if it ends no transaction."""
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
    )


class _MarkerScan:
    """Collects one producer's markers in a stretch of its partition, batch by batch."""

    def __init__(self, about: OpenTransaction, begin: int) -> None:
        self.about = about
        self._start = about.start_offset or 0
        self._begin = self._first = begin
        self._wrote: bool | None = False if begin == 0 else None  # since the previous marker
        self._epoch: int | None = None  # of the newest batch since then
        self._found = Markers()

    def add(self, h: BatchHeader, chunk: bytes, expected: int) -> None:
        """Add a batch of the chunk. expected: the offset after the batch before it."""
        if h.base_offset <= self._start:
            if h.base_offset > expected:
                self._first = h.base_offset
            if h.records_count != h.last_offset - h.base_offset + 1:
                self._first = h.last_offset + 1
            if self._first > self._begin and not self._wrote:
                self._wrote = None
        if h.base_offset > expected:
            self._epoch = None
        if h.producer_id != self.about.producer_id:
            return
        if not h.is_control:
            self._wrote, self._epoch = True, h.producer_epoch
            return
        found = marker_in(h, chunk)
        if found is None:
            return
        self._found.append(replace(found, data=self._wrote, data_epoch=self._epoch))
        self._wrote, self._epoch = False, None

    def markers(self, position: int) -> Marked:
        """Return what was found. position: where reading the partition stopped."""
        if position <= self._start:
            return Marked((), None)  # reading has not reached the batch
        return Marked(self._found, self._first)
