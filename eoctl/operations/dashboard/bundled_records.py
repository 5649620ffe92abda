"""Read the records that a bundle takes along, if asked: of held partitions, from their LSO on."""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import aclosing

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from eoctl.stores.bundle_files import SeenRecords
from recovery.facts import Missing, PartitionFacts
from recovery.formats.batches import batch_headers

MOST_BYTES = 32 << 20
"""Of all batches of a bundle, as the logs store them."""
_CHUNK_BYTES = 1 << 20


async def records_of(
    cluster: Cluster, partitions: Sequence[PartitionFacts], most: int
) -> tuple[tuple[SeenRecords, ...], tuple[Missing, ...]]:
    """Return complete batches of each held partition, until `most` records or more are in them.

    A partition of which fewer were taken than there are, up to `most`, is missing, with the reason.
    """
    seen: list[SeenRecords] = []
    missing: list[Missing] = []
    left = MOST_BYTES
    for p in partitions if most else ():
        if not p.held:
            continue
        wanted = Range(p.topic, p.partition, p.last_stable_offset or 0, p.high_watermark or 0)
        taking = _Taking(wanted, most, left)
        if left > 0:
            await taking.read(cluster)
        left -= taking.size
        if taking.count:
            seen.append(taking.row())
        if not taking.complete:
            missing.append(taking.missing())
    return tuple(seen), tuple(missing)


class _Taking:
    """The batches that are taken of one range. left: bytes that they may have."""

    def __init__(self, wanted: Range, most: int, left: int) -> None:
        self._wanted = wanted
        self._most = most
        self._left = left
        self._batches: list[bytes] = []
        self._at = wanted.start
        self._ended: Ended | None = None
        self.size = 0
        self.count = 0  # records, without markers

    @property
    def complete(self) -> bool:
        """Return True if all was taken that was asked for."""
        enough = self.count >= self._most
        return enough or (self._ended is not None and self._ended.error is None)

    async def read(self, cluster: Cluster) -> None:
        """Read chunk by chunk, no further than needed."""
        async with aclosing(read(cluster, [self._wanted], partition_bytes=_CHUNK_BYTES)) as answers:
            async for answer in answers:
                if isinstance(answer, Ended):
                    self._ended = answer
                elif self._is_full(answer):
                    return

    def _is_full(self, chunk: Chunk) -> bool:
        """Add a chunk's batches, which may repeat; return True once no more may be added."""
        for h in batch_headers(chunk.records):
            if h.base_offset < self._at or h.base_offset >= self._wanted.end:
                continue
            if self.count >= self._most or self.size + h.size > self._left:
                return True
            self._batches.append(chunk.records[h.position : h.position + h.size])
            self._at = h.last_offset + 1
            self.size += h.size
            self.count += 0 if h.is_control else h.records_count
        return self.count >= self._most

    def row(self) -> SeenRecords:
        w = self._wanted
        data = b64encode(b"".join(self._batches)).decode()
        return SeenRecords(w.topic, w.partition, w.start, self._at, self.count, data)

    def missing(self) -> Missing:
        where = self._wanted.topic_partition
        if self._ended is not None and self._ended.error is not None:
            return Missing("partition", self._ended.error, self._ended.detail, None, *where)
        detail = f"a bundle takes {MOST_BYTES >> 20} MiB of records: of it up to offset {self._at}"
        return Missing("partition", "TOO_LARGE", detail, None, *where)
