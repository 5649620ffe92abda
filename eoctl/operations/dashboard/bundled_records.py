"""Read the records that a bundle takes along, if asked: of held partitions, from their LSO on."""

from base64 import b64encode
from collections.abc import Iterable, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import ENOUGH, Chunk, Range, read_all
from eoctl.stores.bundle_files import SeenRecords
from recovery.facts import Missing, PartitionFacts
from recovery.formats.batches import batch_headers

MOST_BYTES = 32 << 20
"""Of all batches of a bundle, as the logs store them: a quarter of what a bundle holds."""
_CHUNK_BYTES = 1 << 20
_CHUNKS = 16


async def records_of(
    cluster: Cluster, partitions: Sequence[PartitionFacts], most: int
) -> tuple[tuple[SeenRecords, ...], tuple[Missing, ...]]:
    """Return complete batches of each held partition, until `most` records or more are in them.

    A partition that does not fit into MOST_BYTES any more is missing, with that reason.
    """
    held = [
        Range(p.topic, p.partition, p.last_stable_offset or 0, p.high_watermark or 0)
        for p in partitions
        if p.held
    ]
    seen: list[SeenRecords] = []
    missing: list[Missing] = []
    left = MOST_BYTES
    for each in held if most else ():
        chunks, ended = await read_all(
            cluster, [each], partition_bytes=_CHUNK_BYTES, most_chunks=_CHUNKS
        )
        end = ended[each.topic_partition]
        rows = _first(chunks[each.topic_partition], each, most)
        if end.error not in (None, ENOUGH):
            where = each.topic_partition
            missing.append(Missing("partition", str(end.error), end.detail, None, *where))
        elif (size := len(rows.data)) > left:
            detail = f"its records do not fit: a bundle takes {MOST_BYTES >> 20} MiB of them"
            missing.append(Missing("partition", "TOO_LARGE", detail, None, *each.topic_partition))
        elif rows.records:
            left -= size
            seen.append(rows)
    return tuple(seen), tuple(missing)


def _first(chunks: Iterable[Chunk], wanted: Range, most: int) -> SeenRecords:
    """Return the batches of a range, until they have `most` records. Batches may repeat."""
    batches: list[bytes] = []
    count, at = 0, wanted.start
    for chunk in chunks:
        for h in batch_headers(chunk.records):
            if h.base_offset < at or h.base_offset >= wanted.end or count >= most:
                continue
            batches.append(chunk.records[h.position : h.position + h.size])
            at = h.last_offset + 1
            count += 0 if h.is_control else h.records_count
    data = b64encode(b"".join(batches)).decode()
    return SeenRecords(wanted.topic, wanted.partition, wanted.start, at, count, data)
