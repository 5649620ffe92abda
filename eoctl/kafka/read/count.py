"""Exact counting over the wire: what became of the offsets between given cuts of many partitions.

All partitions at once, leaders in parallel; decoding runs in a thread of its own beside reading.
Below the last stable offset a read_committed Fetch gives the list of aborted transactions; above
it a second pass at read_uncommitted counts what is open. The rules: `recovery.formats.counting`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from operator import methodcaller

from eoctl.host.extras import need
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import fetch
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Range
from eoctl.kafka.read.visible import data_batches
from recovery.facts import Missing, TopicPartition
from recovery.formats.counting import Counts, ExactCount
from recovery.formats.reader import CorruptError
from recovery.restart.producers import ProducerRuns

CountProgress = Callable[[int, int, int], None]
"""Called with bytes read, offsets done and offsets in all, after each chunk."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How logs are read. max_rate: bytes per second and broker, None = as fast as it goes.

    most: offsets to read in all where many logs are asked for, the shortest first; None = no end.
    """

    check_crc: bool = True
    max_rate: float | None = None
    progress: CountProgress | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Cuts:
    """What is counted: the offsets between each two neighbours of `offsets`, which ascend.

    log_start_offset, last_stable_offset: as observed before; the answer is that of this moment.
    producers: told of every data batch between the outermost cuts.
    """

    topic: str
    partition: int
    offsets: tuple[int, ...]
    log_start_offset: int
    last_stable_offset: int
    producers: ProducerRuns | None = field(default=None, compare=False)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


async def count(
    cluster: Cluster,
    cuts: Iterable[Cuts],
    *,
    check_crc: bool = True,
    max_rate: float | None = None,
    progress: CountProgress | None = None,
) -> tuple[dict[TopicPartition, list[Counts]], list[Missing]]:
    """Counts of each piece of each partition; partitions that could not be counted as a whole are
    only in the second part.

    max_rate: bytes per second and broker. Memory is bounded whatever the size of the topics.
    Raises UsageError if the extra `data` is not installed.
    """
    need("data", "counting records")
    counter = _Counter({w.key: _Pieces(w) for w in cuts}, check_crc, progress)
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        await counter.read(cluster, isolation, max_rate)
    counts = {
        key: [piece.counts for piece in pieces.all]
        for key, pieces in counter.partitions.items()
        if key not in counter.failed
    }
    return counts, list(counter.failed.values())


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
        """The next offset to count."""
        return next((piece.next_offset for piece in self.all if not piece.done), self.end)

    def skip_to(self, offset: int) -> None:
        for piece in self.all:
            piece.skip_to(offset)

    def add(self, chunk: Chunk, check_crc: bool) -> None:
        for piece in self.all:
            if not piece.done and piece.next_offset < chunk.next_offset:
                piece.add(chunk.fetch_offset, chunk.records, chunk.aborted, check_crc=check_crc)
                check_crc = False  # once for each chunk
        if self._producers is not None:
            for header, visible in data_batches(chunk):
                # what is open is no output yet, whoever wrote it
                decided = visible and header.base_offset < self.stable
                self._producers.add(header, visible=decided)


class _Counter:
    def __init__(
        self,
        partitions: Mapping[TopicPartition, _Pieces],
        check_crc: bool,
        progress: CountProgress | None,
    ) -> None:
        self.partitions = partitions
        self.failed: dict[TopicPartition, Missing] = {}
        self._check_crc = check_crc
        self._progress = progress
        self._bytes = 0
        self._total = sum(p.end - p.position for p in partitions.values())
        self._left = self._total

    async def read(self, cluster: Cluster, isolation: int, max_rate: float | None) -> None:
        """One pass: up to the last stable offset with aborted transactions, or all that is left."""
        ranges = {
            key: Range(*key, p.position, p.stable if isolation == READ_COMMITTED else p.end)
            for key, p in self.partitions.items()
            if key not in self.failed
        }
        ranges = {key: r for key, r in ranges.items() if r.start < r.end}
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "eoctl-count") as thread:
            stream = fetch.read(cluster, ranges.values(), isolation=isolation, max_rate=max_rate)
            async for item in stream:
                if isinstance(item, Chunk):
                    await loop.run_in_executor(thread, self._add, item)
                elif item.error is None:
                    key = (item.topic, item.partition)
                    self._moved(key, methodcaller("skip_to", ranges[key].end))
                else:
                    self._fail(item.topic, item.partition, item.error, item.detail)

    def _add(self, chunk: Chunk) -> None:
        key = (chunk.topic, chunk.partition)
        if key in self.failed:
            return
        try:
            self._moved(key, methodcaller("add", chunk, self._check_crc))
        except CorruptError as error:
            self._fail(*key, "CORRUPT_MESSAGE", error.sentence)
        self._bytes += len(chunk.records)
        if self._progress is not None:
            self._progress(self._bytes, self._total - self._left, self._total)

    def _moved(self, key: TopicPartition, change: Callable[[_Pieces], None]) -> None:
        pieces = self.partitions[key]
        before = pieces.position
        change(pieces)
        self._left -= pieces.position - before

    def _fail(self, topic: str, partition: int, error: str, detail: str) -> None:
        self.failed.setdefault(
            (topic, partition), Missing("partition", error, detail, None, topic, partition)
        )
