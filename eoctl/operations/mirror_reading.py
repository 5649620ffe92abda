"""Reading a partition and its mirror side by side, in bounded memory, and what comes of it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import Reading, Resolved, columns, seen_by_readers
from recovery.combine.audit_duplicates import known_time
from recovery.combine.mirror_entries import Entries, RangeSums, joined
from recovery.combine.mirror_pairs import Pairing, Run, Translated
from recovery.combine.mirror_places import (
    FIELDS,
    Difference,
    Judged,
    Places,
    sorted_digests,
)
from recovery.combine.record_digests import key_ranges, record_digests
from recovery.formats.columns import NO_TIMESTAMP, ColumnBatch
from recovery.formats.mirror_maker import OffsetSync

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PartitionMirror:
    """A partition of the source and the mirror's of that number, and what MirrorMaker says."""

    source: Resolved
    mirror: Resolved
    syncs: Sequence[OffsetSync] = ()
    translated: Sequence[Translated] = ()


SyncSeen = tuple[OffsetSync, bytes | None, bytes | None]
"""A sync and the digests of the records at its two offsets, None where there is none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the logs of one partition say. moved: pairs out of order; syncs: those in the range."""

    source: Resolved
    mirror: Resolved
    pairs: int
    mirrored_to: int | None
    behind: int
    source_before: int
    mirror_before: int
    source_sums: RangeSums
    mirror_sums: RangeSums
    moved: Sequence[Run]
    differences: Sequence[Difference]
    ambiguous: bool
    syncs: Sequence[SyncSeen]
    translated: Sequence[Translated]
    keys: dict[tuple[int, int], bytes]
    times: dict[tuple[int, int], int]

    def shown(self, one: Difference) -> tuple[bytes | None, int | None]:
        """Key and timestamp (ms) of a differing record, as far as they were kept."""
        side = 0 if one.kind in ("lost", "changed") else 1
        offset = one.mirror_offset if side else one.source_offset
        assert offset is not None
        return self.keys.get((side, offset)), known_time(
            self.times.get((side, offset), NO_TIMESTAMP)
        )


class _At:
    """Digests of the records at some offsets, picked up as a log is read."""

    def __init__(self, offsets: Sequence[int]) -> None:
        import numpy as np

        self._wanted = np.unique(np.array(offsets, np.int64))
        self.found: dict[int, bytes] = {}

    def see(self, offsets: "NDArray[np.int64]", digests: "NDArray[np.uint64]") -> None:
        import numpy as np

        if not len(offsets):
            return
        low, high = np.searchsorted(self._wanted, (offsets[0], offsets[-1] + 1))
        for offset in self._wanted[low:high].tolist():
            at = int(np.searchsorted(offsets, offset))
            if offsets[at] == offset:
                self.found[offset] = digests[at].tobytes()


@dataclass(slots=True)
class Both:
    """The two clusters, and how records are read and compared."""

    source: Cluster
    mirror: Cluster
    reading: Reading
    compared: tuple[str, ...] = FIELDS
    _size: int = field(default=0, init=False)

    async def read(self, of: PartitionMirror) -> Seen:
        """Compare one partition. Raises EoctlError where one of the logs can't be read."""
        pairing = Pairing(
            source_cut=of.source.start > 0,
            mirror_cut=of.mirror.start > 0,
            clocks="timestamp" in self.compared,
            translated=of.translated,
        )
        mine, theirs = _At([s.upstream for s in of.syncs]), _At([s.downstream for s in of.syncs])
        await self._pair(of, pairing, mine, theirs)
        left, extra = pairing.finish()
        chain, moved = pairing.in_order()
        left, behind = _behind(left, chain, pairing.source.sums)
        left, source_before = _before(
            left, chain[0].source_first if chain else None, of.mirror.start, pairing.source.sums
        )
        extra, mirror_before = _before(
            extra, chain[0].mirror_first if chain else None, of.source.start, pairing.mirror.sums
        )
        places = Places(sorted_digests(joined([left, extra]).digest), self.compared)
        judged = Judged({}, [], ambiguous=False)
        if len(places.wanted):
            await self._place(of, places)
            first, until, mirror_first = of.source.start, of.source.start, of.mirror.start
            if chain:
                until = chain[-1].source_last + 1
                first = chain[0].source_first if of.mirror.start else first
                mirror_first = chain[0].mirror_first if of.source.start else mirror_first
            judged = places.judge(of.translated, (first, until), mirror_first)
        return Seen(
            source=of.source,
            mirror=of.mirror,
            pairs=pairing.pairs,
            mirrored_to=chain[-1].source_last + 1 if chain else None,
            behind=behind + pairing.behind,
            source_before=source_before + pairing.source.dropped,
            mirror_before=mirror_before + pairing.mirror.dropped,
            source_sums=pairing.source.sums,
            mirror_sums=pairing.mirror.sums,
            moved=moved,
            differences=judged.differences,
            ambiguous=judged.ambiguous,
            syncs=_seen(of, mine, theirs),
            translated=of.translated,
            keys=places.keys,
            times=places.times,
        )

    async def _pair(self, of: PartitionMirror, pairing: Pairing, mine: _At, theirs: _At) -> None:
        total = (of.source.end - of.source.start) + (of.mirror.end - of.mirror.start)
        told = self._progress(total)
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(
                aclosing(self._records(self.source, of.source, of.source.high_watermark, told))
            )
            mirror = await stack.enter_async_context(
                aclosing(self._records(self.mirror, of.mirror, of.mirror.end, told))
            )
            while not (pairing.source.done and pairing.mirror.done):
                ours = pairing.wants_source()
                side, stream = (pairing.source, source) if ours else (pairing.mirror, mirror)
                part = await anext(stream, None)
                if part is None:
                    side.done = True
                    continue
                digests = self._digests(part)
                (mine if ours else theirs).see(part.offset, digests)
                rows = _visible(part, of.source.end if ours else of.mirror.end)
                clock = int(part.timestamp.max())
                if not rows.all():
                    part, digests = part.select(rows), digests[rows]
                if len(part):
                    entries = Entries(digests, part.offset, key_ranges(part.key))
                    pairing.add(side, entries, clock)

    async def _place(self, of: PartitionMirror, places: Places) -> None:
        """Read both again, for the records that have no partner."""
        total = (of.source.end - of.source.start) + (of.mirror.end - of.mirror.start)
        told = self._progress(total)
        source = self._records(self.source, of.source, of.source.high_watermark, told)
        async with aclosing(source):
            async for part in source:
                places.add_source(self._digests(part), part, of.source.end)
        mirror = self._records(self.mirror, of.mirror, of.mirror.end, told)
        async with aclosing(mirror):
            async for part in mirror:
                kept = part.select(_visible(part, of.mirror.end))
                places.add_mirror(self._digests(kept), kept)

    def _digests(self, part: ColumnBatch) -> "NDArray[np.uint64]":
        return record_digests(
            part, timestamps="timestamp" in self.compared, headers="headers" in self.compared
        )

    def _records(
        self, cluster: Cluster, r: Resolved, end: int, told: Callable[[int, int], None]
    ) -> AsyncGenerator[ColumnBatch, None]:
        return columns(cluster, r, end, self.reading, told)

    def _progress(self, total: int) -> Callable[[int, int], None]:
        done = 0

        def told(size: int, offsets: int) -> None:
            nonlocal done
            self._size, done = self._size + size, done + offsets
            if self.reading.progress is not None:
                self.reading.progress(self._size, done, total)

        return told


def _visible(part: ColumnBatch, end: int) -> "NDArray[np.bool_]":
    visible: NDArray[np.bool_] = seen_by_readers(part) & (part.offset < end)
    return visible


def _behind(left: Entries, chain: Sequence[Run], sums: RangeSums) -> tuple[Entries, int]:
    """Without those behind the last record that the mirror has in order; and how many they are."""
    rows = left.offset > (chain[-1].source_last if chain else -1)
    sums.take_away(left.select(rows))
    return left.select(~rows), int(rows.sum())


def _before(
    left: Entries, first: int | None, other_start: int, sums: RangeSums
) -> tuple[Entries, int]:
    """Without those below the first pair, where the other log has deleted what was older."""
    import numpy as np

    if other_start == 0:
        return left, 0
    rows = np.ones(len(left), np.bool_) if first is None else left.offset < first
    sums.take_away(left.select(rows))
    return left.select(~rows), int(rows.sum())


def _seen(of: PartitionMirror, mine: _At, theirs: _At) -> list[SyncSeen]:
    """The syncs that both logs reach."""
    return [
        (s, mine.found.get(s.upstream), theirs.found.get(s.downstream))
        for s in of.syncs
        if of.source.start <= s.upstream < of.source.high_watermark
        and of.mirror.start <= s.downstream < of.mirror.end
    ]
