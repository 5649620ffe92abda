"""Give every chunk of many partitions to one function, in parallel with reading.

Counts and audits read so: a partition that cannot be read is reported, and the others continue.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import fetch
from eoctl.kafka.read.fetch import READ_UNCOMMITTED, Chunk, Range
from recovery.errors import EoctlError
from recovery.facts import Missing, TopicPartition
from recovery.values import Value

ChunkProgress = Callable[[int, int, int], None]
"""Called with bytes read, offsets done and offsets in all, after each chunk."""


class Reading(Value):
    """How to read logs. max_rate: bytes per second and broker, None = as fast as possible.

    most: offsets to read in total from many logs, the shortest first; None = no limit. nearest: see
    `fetch.read`.
    """

    check_crc: bool = True
    max_rate: float | None = None
    progress: ChunkProgress | None = None
    most: int | None = None
    nearest: bool = False


@dataclass
class Pump:
    """One or more passes over partitions. total: offsets in all passes, for progress.

    failed: the partitions that could not be read, and why.
    """

    cluster: Cluster
    reading: Reading
    total: int
    failed: dict[TopicPartition, Missing] = field(default_factory=dict)
    _bytes: int = 0
    _done: int = 0

    async def run(
        self,
        ranges: Iterable[Range],
        add: Callable[[Chunk], None],
        *,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        """Call `add` with each chunk, one at a time, in a thread. If `add` raises EoctlError, the
        partition fails and its other chunks are skipped."""
        left = {r.topic_partition: r for r in ranges}
        position = {key: r.start for key, r in left.items()}
        stream = fetch.read(
            self.cluster,
            left.values(),
            isolation=isolation,
            max_rate=self.reading.max_rate,
            nearest=self.reading.nearest,
        )
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "eoctl-pump") as thread:  # the connection is read meanwhile
            async for item in stream:
                key = item.topic_partition
                if key in self.failed:
                    continue
                if not isinstance(item, Chunk):
                    if item.error is not None:
                        self._fail(key, item.error, item.detail)
                        continue
                    now = left[key].end
                else:
                    try:
                        await loop.run_in_executor(thread, add, item)
                    except EoctlError as error:
                        self._fail(key, "CORRUPT_MESSAGE", error.sentence)
                    now = min(item.next_offset, left[key].end)
                    self._bytes += len(item.records)
                self._done += now - position[key]
                position[key] = now
                if self.reading.progress is not None:
                    self.reading.progress(self._bytes, self._done, self.total)

    def _fail(self, key: TopicPartition, error: str, detail: str) -> None:
        self.failed[key] = Missing("partition", error, detail, None, *key)
