"""Read the partition strip: the log around the LSO, in stretches, from batch headers."""

from collections.abc import Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import READ_COMMITTED, Chunk
from eoctl.kafka.read.fetch import ENOUGH, Range, read_all
from eoctl.operations.inspect.lists import Scope, selected
from recovery.answers import Answer, error_rows
from recovery.facts import Missing, PartitionFacts
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.strip_stretches import Response, strip_rows
from recovery.selectors import parse_selector

AROUND = 400  # offsets on each side of the LSO
CHUNKS, CHUNK_BYTES = 4, 256 << 10  # read of each side, at most


async def strip(cluster: Cluster, partition: str) -> Answer:
    """Return stretches of a partition (TOPIC:P), up to 400 offsets on each side of its LSO.

    extra: log_start_offset, last_stable_offset, high_watermark; null if they could not be read.
    """
    scope = Scope((parse_selector(partition),))
    metadata, partitions, missing = await selected(cluster, scope)
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    missing = [*missing, *more]
    ends = facts[0] if facts else PartitionFacts(partition, 0)
    rows, more = await stretches(cluster, ends, AROUND)
    missing += more
    extra = {
        "log_start_offset": ends.log_start_offset,
        "last_stable_offset": ends.last_stable_offset,
        "high_watermark": ends.high_watermark,
    }
    return Answer("strip", cluster.cluster_id, now_ms(), rows, error_rows(missing), extra=extra)


async def stretches(
    cluster: Cluster, ends: PartitionFacts, around: int
) -> tuple[list[StripRow], list[Missing]]:
    """Return up to `around` offsets on each side of the LSO; no rows if unreadable."""
    start, lso, high = ends.log_start_offset, ends.last_stable_offset, ends.high_watermark
    if start is None or lso is None or high is None:
        return [], []
    low, until = max(start, lso - around), min(high, lso + around)
    below, below_to, missing = await _read(cluster, ends, low, lso, READ_COMMITTED)
    above, above_to, more = await _read(cluster, ends, lso, until, 0)
    if missing or more:
        return [], [*missing, *more]
    rows = strip_rows(
        ends.topic_partition,
        (low, until),
        _responses(below),
        _responses(above),
        lso=lso,
        read_to=(below_to, above_to),
        high_watermark=high,
    )
    return rows, []


def _responses(chunks: Sequence[Chunk]) -> list[Response]:
    return [(chunk.records, chunk.aborted or ()) for chunk in chunks]


async def _read(
    cluster: Cluster, p: PartitionFacts, start: int, end: int, isolation: int
) -> tuple[list[Chunk], int, list[Missing]]:
    """Return chunks, and the offset up to which they are complete."""
    if start >= end:
        return [], end, []
    chunks, ended = await read_all(
        cluster,
        [Range(p.topic, p.partition, start, end)],
        isolation=isolation,
        partition_bytes=CHUNK_BYTES,
        most_chunks=CHUNKS,
    )
    key = p.topic_partition
    how = ended[key]
    position = chunks[key][-1].next_offset if chunks[key] else how.position
    if how.error in (None, ENOUGH):
        return chunks[key], max(position, how.position), []
    return [], start, [Missing("partition", how.error, how.detail, None, *key)]
