"""Read record batches: raw Fetch over the wire connection, many ranges at once.

The only reader: history, counting, audit, rebuild and the Spark source all use it. It yields the
bytes as the broker sent them; `recovery.formats` decodes. Leaders are read in parallel; when one
moves or dies, reading continues at the same offset from the next one, its leader epoch checked.
Followers are read if the caller allows it, `client.rack` is set, and the leader names one.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import (
    ABOVE,
    ENOUGH,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Chunk,
    Ended,
    Range,
)
from eoctl.kafka.read.fetch_reader import Reader
from recovery.facts import TopicPartition

__all__ = [
    "ABOVE",
    "ENOUGH",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Chunk",
    "Ended",
    "Range",
    "read",
    "read_all",
]

PARTITION_BYTES = 4 << 20


async def read(
    cluster: Cluster,
    ranges: Iterable[Range],
    *,
    isolation: int = READ_UNCOMMITTED,
    partition_bytes: int = PARTITION_BYTES,
    most_chunks: int | None = None,
    max_rate: float | None = None,
    nearest: bool = False,
) -> AsyncGenerator[Chunk | Ended, None]:
    """Yield chunks of all ranges, each range's in offset order, and one Ended per range.

    most_chunks: this many of each range are enough (Ended ENOUGH). max_rate: bytes per second and
    broker. nearest: a follower in the rack of `client.rack` may be read; replicas are compacted
    independently, so do not set it to judge deleted records. Ends early only at the cluster's
    deadline.
    """
    by_key = {r.topic_partition: r for r in ranges}
    queue: asyncio.Queue[Chunk | Ended | BaseException | None] = asyncio.Queue(maxsize=4)
    rack = cluster.settings.client_rack if nearest else ""
    reader = Reader(cluster, isolation, partition_bytes, most_chunks, max_rate, queue, rack)
    task = asyncio.create_task(reader.run(by_key))
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            reader.taken()
            yield item
            reader.back()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def read_all(
    cluster: Cluster,
    ranges: Sequence[Range],
    *,
    isolation: int = READ_UNCOMMITTED,
    partition_bytes: int = PARTITION_BYTES,
    most_chunks: int | None = None,
) -> tuple[dict[TopicPartition, list[Chunk]], dict[TopicPartition, Ended]]:
    """Read all chunks of small ranges into memory, and say how each range ended."""
    chunks: dict[TopicPartition, list[Chunk]] = {r.topic_partition: [] for r in ranges}
    ended: dict[TopicPartition, Ended] = {}
    async for item in read(
        cluster,
        ranges,
        isolation=isolation,
        partition_bytes=partition_bytes,
        most_chunks=most_chunks,
    ):
        if isinstance(item, Chunk):
            chunks[item.topic_partition].append(item)
        else:
            ended[item.topic_partition] = item
    return chunks, ended
