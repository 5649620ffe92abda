"""Read the records that a bundle takes along, if asked.

Of held partitions from their LSO on, as they are; of a restart plan what it stands on, without keys
and values.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Chunk, Ended, Range, read
from eoctl.lab.twin.encoding import emptied
from eoctl.operations.change import rehearsals
from eoctl.operations.restart.restart_plan import decision_of
from eoctl.stores.bundle_files import SeenRecords
from recovery.change.plan import Plan
from recovery.facts import Missing, PartitionFacts
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.reader import CorruptError
from recovery.restart.decision import RestartPlan
from recovery.values import replace

MOST_BYTES = 32 << 20
"""Of all batches of a bundle, as the logs store them."""
_CHUNK_BYTES = 1 << 20
_ALL = 2**63
_SKIPPED = 1000
"""Offsets at the end of a skip: that it leaves out a record is what its guarantee stands on."""
_MARKERS_BYTES = 8 << 20
"""Read after a range for the markers of transactions that end there."""
_GROUP = "group "  # a plan's scope
_UNSEEN = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "the cluster does not show it, and the plan stands on its records: a rehearsal lacks them",
)


async def records_of(
    cluster: Cluster, partitions: Sequence[PartitionFacts], most: int
) -> tuple[tuple[SeenRecords, ...], tuple[Missing, ...]]:
    """Return complete batches of each held partition, until `most` records or more are in them.

    A partition of which fewer were taken than there are, up to `most`, is missing, with the reason.
    """
    wanted = [
        _Taking(Range(p.topic, p.partition, p.last_stable_offset or 0, p.high_watermark or 0), most)
        for p in partitions
        if most and p.held
    ]
    return await _taken(cluster, wanted)


async def planned_of(
    cluster: Cluster, plan: Plan | None, partitions: Sequence[PartitionFacts]
) -> tuple[tuple[SeenRecords, ...], tuple[Missing, ...]]:
    """Return the batches that a restart plan stands on, without keys and values; () for others.

    They are the outputs that it counts, the record before each new offset, whose leader epoch it
    checks, and the last ones that it skips, with the markers of their transactions.
    """
    if plan is None or plan.kind != rehearsals.RESTART:
        return (), ()
    logs = {p.topic_partition: (p.log_start_offset or 0, p.high_watermark) for p in partitions}
    ranges = list(_ranges(decision_of(plan)))
    wanted = [
        _Taking(replace(range_, start=max(range_.start, start)), _ALL, empty=True, log_end=end)
        for range_ in ranges
        if range_.topic_partition in logs
        for start, end in [logs[range_.topic_partition]]
        if range_.end > start
    ]
    unseen = sorted({r.topic_partition for r in ranges} - logs.keys())
    taken, missing = await _taken(cluster, wanted)
    return taken, (*missing, *(Missing("partition", *_UNSEEN, None, *key) for key in unseen))


def moved_by(plan: Plan | None) -> frozenset[OffsetKey]:
    """Return the commits that a restart plan of a group replaces; none for other plans."""
    if plan is None or plan.kind != rehearsals.RESTART or not plan.scope.startswith(_GROUP):
        return frozenset()
    group = plan.scope.removeprefix(_GROUP)
    return frozenset(OffsetKey(group, i.topic, i.partition) for i in decision_of(plan).inputs)


def _ranges(decision: RestartPlan) -> Iterator[Range]:
    """Yield what a decision stands on, each with the record before it."""
    for o in decision.outputs:
        yield Range(o.topic, o.partition, o.start - 1, o.end_offset)
    for i in decision.inputs:
        at = i.restart_offset
        low = at if i.current_offset is None else max(min(at, i.current_offset), at - _SKIPPED)
        yield Range(i.topic, i.partition, low - 1, at)


async def _taken(
    cluster: Cluster, wanted: Sequence["_Taking"]
) -> tuple[tuple[SeenRecords, ...], tuple[Missing, ...]]:
    seen: list[SeenRecords] = []
    missing: list[Missing] = []
    left = MOST_BYTES
    for taking in wanted:
        taking.left = left
        if left > 0:
            await taking.read(cluster)
        left -= taking.size
        if taking.size:
            seen.append(taking.row())
        if not taking.complete:
            missing.append(taking.missing())
    return tuple(seen), tuple(missing)


class _Taking:
    """The batches that are taken of one range. left: bytes that they may have.

    empty: without keys and values, but with the markers, up to log_end, of all their transactions.
    """

    def __init__(
        self, wanted: Range, most: int, *, empty: bool = False, log_end: int | None = None
    ) -> None:
        self._wanted = wanted
        self._most = most
        self._empty = empty
        self._log_end = log_end or 0
        self._open: set[int] = set()  # producer ids whose marker was not read yet
        self.left = MOST_BYTES
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
        """Read chunk by chunk, no further than needed. A damaged batch ends it."""
        try:
            await self._read(cluster)
        except CorruptError as error:
            self._ended = Ended(*self._wanted.topic_partition, self._at, "CORRUPT", error.sentence)

    async def _read(self, cluster: Cluster) -> None:
        async with aclosing(read(cluster, [self._wanted], partition_bytes=_CHUNK_BYTES)) as answers:
            async for answer in answers:
                if isinstance(answer, Ended):
                    self._ended = answer
                elif self._is_full(answer):
                    return
        if self._empty and self._open and self._at < self._log_end:
            await self._take_markers(cluster)

    async def _take_markers(self, cluster: Cluster) -> None:
        """Read on to the markers that end what is open at the end of the range."""
        after = replace(self._wanted, start=self._at, end=self._log_end)
        size = 0
        async with aclosing(read(cluster, [after], partition_bytes=_CHUNK_BYTES)) as answers:
            async for answer in answers:
                if isinstance(answer, Ended):
                    if answer.error is not None:
                        self._ended = answer
                    return
                size += len(answer.records)
                for h in batch_headers(answer.records):
                    if h.is_control and h.base_offset >= self._at and h.producer_id in self._open:
                        self._open.discard(h.producer_id)
                        self._add(emptied(answer.records, h), h)
                if not self._open or size > _MARKERS_BYTES:
                    return

    def _is_full(self, chunk: Chunk) -> bool:
        """Add a chunk's batches, which may repeat; return True once no more may be added."""
        for h in batch_headers(chunk.records):
            if h.last_offset < self._at or h.base_offset >= self._wanted.end:
                continue
            data = chunk.records[h.position : h.position + h.size]
            if self._empty:
                data = emptied(chunk.records, h)
            if self.count >= self._most or self.size + len(data) > self.left:
                return True
            self._add(data, h)
            if h.is_control:
                self._open.discard(h.producer_id)
            elif h.is_transactional:
                self._open.add(h.producer_id)
        return self.count >= self._most

    def _add(self, data: bytes, h: BatchHeader) -> None:
        self._batches.append(data)
        self._at = h.last_offset + 1
        self.size += len(data)
        self.count += 0 if h.is_control else h.records_count

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
