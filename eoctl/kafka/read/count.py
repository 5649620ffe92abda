"""Count exactly, over the wire: the outcome of the offsets between cuts of many partitions.

All partitions at once, leaders in parallel; decoding runs in its own thread alongside reading.
Below the last stable offset a read_committed Fetch gives the list of aborted transactions; above it
a second pass at read_uncommitted counts what is open. The rules: `recovery.formats.counting`.
"""

from collections.abc import Iterable
from itertools import pairwise

from eoctl.host.extras import need
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import commit_markers, data_batches
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Range
from eoctl.kafka.read.pump import Pump, Reading
from recovery.facts import HasPartition, Missing, TopicPartition
from recovery.formats.counting import Counts, ExactCount
from recovery.restart.producers import ProducerRuns
from recovery.values import Value


class Cuts(HasPartition, Value):
    """The ranges to count: between neighbours in `offsets`, which ascend.

    log_start_offset, last_stable_offset: as observed before; the counts are of that moment.
    producers: gets every data batch between the outermost cuts, and the first COMMIT marker.
    """

    topic: str
    partition: int
    offsets: tuple[int, ...]
    log_start_offset: int
    last_stable_offset: int
    producers: ProducerRuns | None = None


async def count(
    cluster: Cluster, cuts: Iterable[Cuts], reading: Reading = Reading()
) -> tuple[dict[TopicPartition, list[Counts]], list[Missing]]:
    """Return the counts of each piece of each partition.

    A partition that could not be counted completely is only in the second part. Memory is bounded
    whatever the size of the topics. Raises UsageError if the extra `data` is not installed.
    """
    need("data", "counting records")
    partitions = {w.topic_partition: _Pieces(w) for w in cuts}

    def add(chunk: Chunk) -> None:
        partitions[chunk.topic_partition].add(chunk, reading.check_crc)

    pump = Pump(cluster, reading, sum(p.end - p.position for p in partitions.values()))
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        # up to the last stable offset with the aborted transactions, then the rest
        ranges = {
            key: Range(*key, p.position, p.stable if isolation == READ_COMMITTED else p.end)
            for key, p in partitions.items()
            if key not in pump.failed
        }
        ranges = {key: r for key, r in ranges.items() if r.start < r.end}
        await pump.run(ranges.values(), add, isolation=isolation)
        for key in ranges.keys() - pump.failed.keys():
            partitions[key].skip_to(ranges[key].end)
    counts = {
        key: [piece.counts for piece in pieces.all]
        for key, pieces in partitions.items()
        if key not in pump.failed
    }
    return counts, list(pump.failed.values())


class _Pieces:
    """One partition's counts, one for each piece between two cuts."""

    def __init__(self, cuts: Cuts) -> None:
        stable = cuts.last_stable_offset
        self.all = [ExactCount(low, high, stable) for low, high in pairwise(cuts.offsets)]
        self._producers = cuts.producers
        self.end = cuts.offsets[-1]
        self.stable = min(stable, self.end)
        self.skip_to(cuts.log_start_offset)

    @property
    def position(self) -> int:
        """Return the next offset to count."""
        return next((piece.next_offset for piece in self.all if not piece.done), self.end)

    def skip_to(self, offset: int) -> None:
        for piece in self.all:
            piece.skip_to(offset)

    def add(self, chunk: Chunk, check_crc: bool) -> None:
        for piece in self.all:
            if not piece.done and piece.next_offset < chunk.next_offset:
                piece.add(chunk.fetch_offset, chunk.records, chunk.aborted, check_crc=check_crc)
                check_crc = False  # once per chunk
        if self._producers is not None:
            for header, visible in data_batches(chunk):
                # open records are no output yet, no matter who wrote them
                decided = visible and header.base_offset < self.stable
                self._producers.add(header, visible=decided)
            markers = commit_markers(chunk)
            while self._producers.first_commit is None and (at := next(markers, None)) is not None:
                self._producers.add_commit(at)
