"""Read a partition and its mirror side by side, in bounded memory, and compare them."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoctl.engine.audit_reading import AuditOptions, seen_by_readers
from eoctl.engine.mirror_logs import MirrorLog, Progress
from recovery.audit.audit_request import Resolved
from recovery.audit.duplicates import known_time
from recovery.audit.mirror_entries import Entries, RangeSums, joined
from recovery.audit.mirror_pairs import Pairing, PairRun, Translated
from recovery.audit.mirror_place import Around, Bounds, Place, placed
from recovery.audit.mirror_table import FIELDS, Difference, MirrorFault, Outside
from recovery.audit.mirror_unmatched import UnmatchedRecords, sorted_digests
from recovery.errors import IncompleteError
from recovery.formats.columns import NO_TIMESTAMP, ColumnBatch
from recovery.formats.mirror_maker import OffsetSync
from recovery.shared.record_digests import key_ranges
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PartitionMirror(Value):
    """A partition of the source, the mirror's of that number, and MirrorMaker's data on both.

    since: the instant at which both ranges begin, in ms; None: at the log starts. around: collects
    the pairs beside a group's offset; None: no place is sought. known_to: see `Bounds`.
    """

    source: Resolved
    mirror: Resolved
    syncs: Sequence[OffsetSync] = ()
    translated: Sequence[Translated] = ()
    since: int | None = None
    around: Around | None = None
    known_to: int | None = None

    def cut(self, r: Resolved, *, clocks: bool) -> bool:
        """Return True if the range lacks records that the other may hold, and these are unknown.

        Retention removed them. Or an instant means two positions, since clocks differ; if both logs
        have the same timestamps, the instant is the same record in both.
        """
        return r.start > 0 and (r.start == r.log_start_offset or not clocks)


SyncSeen = tuple[OffsetSync, bytes | None, bytes | None]
"""A sync and the digests of the records at its two offsets, None where there is none."""


class BothLogs(Value):
    """The content of both logs of one partition.

    counts, differences: as in Judged. moved: pairs out of order; syncs: those in the range. head:
    of source_before, those that the mirror may have lost. outside: differences that records before
    the ranges may explain.
    """

    source: Resolved
    mirror: Resolved
    pairs: int
    mirrored_to: int | None
    behind: int
    source_before: int
    mirror_before: int
    head: int
    outside: int
    source_sums: RangeSums
    mirror_sums: RangeSums
    moved: Sequence[PairRun]
    counts: Mapping[MirrorFault, int]
    differences: Sequence[Difference]
    ambiguous: bool
    syncs: Sequence[SyncSeen]
    translated: Sequence[Translated]
    keys: dict[tuple[int, int], bytes]
    times: dict[tuple[int, int], int]
    place: Place | None

    def key_and_timestamp(self, one: Difference) -> tuple[bytes | None, int | None]:
        """Return key and timestamp (ms) of a differing record, as far as they were kept."""
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
    """The two logs, and how their records are compared.

    compared: as in ClusterLog. excused: kinds of differences that are counted and not shown.
    """

    source: MirrorLog
    mirror: MirrorLog
    reading: AuditOptions
    compared: tuple[str, ...] = FIELDS
    excused: frozenset[MirrorFault] = frozenset()
    _progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._progress = Progress(self.reading.progress)

    async def read(self, of: PartitionMirror) -> BothLogs:
        """Compare one partition. Raises EoctlError if one of the logs cannot be read."""
        clocks = "timestamp" in self.compared
        source_cut, mirror_cut = (of.cut(r, clocks=clocks) for r in (of.source, of.mirror))
        pairing = Pairing(
            source_cut=source_cut,
            mirror_cut=mirror_cut,
            clocks=clocks,
            translated=(*of.translated, *(() if of.around is None else (of.around,))),
        )
        mine, theirs = _At([s.upstream for s in of.syncs]), _At([s.downstream for s in of.syncs])
        began = await self._pair(of, pairing, mine, theirs)
        left, extra = pairing.finish()
        chain, moved = pairing.in_order()
        old = _before(extra, chain[0].mirror_first if chain else None, source_cut)
        pairing.mirror.sums.take_away(extra.select(old))
        extra = extra.select(~old)
        first, mirror_first = of.source.start, of.mirror.start
        if chain:
            first = chain[0].source_first if mirror_cut else first
            mirror_first = chain[0].mirror_first if source_cut else mirror_first
        reach = max((run.source_last for run in (*chain, *moved)), default=-1)
        unmatched = await self._unmatched(of, left.select(left.offset <= reach), extra)
        # after the last pair there may be copies of records that no reader of the source gets
        hidden = unmatched.hidden(chain[-1].mirror_last if chain else -1)
        if ((left.offset > reach) & (left.offset < hidden)).any():
            unmatched = await self._unmatched(of, left.select(left.offset < hidden), extra)
        reach = max(reach, hidden)
        late = left.offset > reach
        early = ~late & _before(left, chain[0].source_first if chain else None, mirror_cut)
        pairing.source.sums.take_away(left.select(late | early))
        outside = _outside(of, began, clocks=clocks)
        judged = unmatched.judge(
            of.translated,
            (first, reach + 1),
            mirror_first,
            outside,
            most=self.reading.most,
            excused=self.excused,
        )
        source_before = int(early.sum()) + pairing.source.dropped
        place = None
        if of.around is not None:
            _refuse_dropped(of.around, pairing, first)
            began = began if source_cut else None
            compacted = "only-in-mirror" in self.excused  # what a compacted source explains
            end = of.mirror.end
            bounds = Bounds(reach, mirror_first, end, began, clocks, compacted, of.known_to)
            place = placed(of.around, unmatched.table(), bounds)
        return BothLogs(
            source=of.source,
            mirror=of.mirror,
            pairs=pairing.pairs,
            mirrored_to=reach + 1 if reach >= 0 else None,
            behind=int(late.sum()) + pairing.behind,
            source_before=source_before,
            mirror_before=int(old.sum()) + pairing.mirror.dropped,
            head=source_before if of.mirror.start > of.mirror.log_start_offset else 0,
            outside=judged.outside,
            source_sums=pairing.source.sums,
            mirror_sums=pairing.mirror.sums,
            moved=moved,
            counts=judged.counts,
            differences=judged.differences,
            ambiguous=judged.ambiguous,
            syncs=_syncs_in_reach(of, mine, theirs),
            translated=of.translated,
            keys=unmatched.keys,
            times=unmatched.times,
            place=place,
        )

    async def _pair(
        self, of: PartitionMirror, pairing: Pairing, mine: _At, theirs: _At
    ) -> int | None:
        """Read both, and return the timestamp of the source's first record."""
        began: int | None = None
        total = (of.source.end - of.source.start) + (of.mirror.end - of.mirror.start)
        on_progress = self._progress.over(total)
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(
                aclosing(self.source.read(of.source, of.source.high_watermark, on_progress))
            )
            mirror = await stack.enter_async_context(
                aclosing(self.mirror.read(of.mirror, of.mirror.end, on_progress))
            )
            while not (pairing.source.done and pairing.mirror.done):
                ours = pairing.wants_source()
                side, stream = (pairing.source, source) if ours else (pairing.mirror, mirror)
                digested = await anext(stream, None)
                if digested is None:
                    side.done = True
                    continue
                part, digests = digested
                if ours and began is None and len(part):
                    began = int(part.timestamp[0])
                (mine if ours else theirs).see(part.offset, digests)
                rows = _visible(part, of.source.end if ours else of.mirror.end)
                clock = int(part.timestamp.max())
                if not rows.all():
                    part, digests = part.select(rows), digests[rows]
                if len(part):
                    entries = Entries(digests, part.offset, key_ranges(part.key))
                    pairing.add(side, entries, clock)
        return began

    async def _unmatched(
        self, of: PartitionMirror, left: Entries, extra: Entries
    ) -> UnmatchedRecords:
        """Read both again, if some records have no partner."""
        unmatched = UnmatchedRecords(sorted_digests(joined([left, extra]).digest), self.compared)
        if not len(unmatched.wanted):
            return unmatched
        total = (of.source.end - of.source.start) + (of.mirror.end - of.mirror.start)
        on_progress = self._progress.over(total)
        source = self.source.read(of.source, of.source.high_watermark, on_progress)
        async with aclosing(source):
            async for part, digests in source:
                unmatched.add_source(digests, part, of.source.end)
        mirror = self.mirror.read(of.mirror, of.mirror.end, on_progress)
        async with aclosing(mirror):
            async for part, digests in mirror:
                rows = _visible(part, of.mirror.end)
                unmatched.add_mirror(digests[rows], part.select(rows))
        return unmatched


def _visible(part: ColumnBatch, end: int) -> "NDArray[np.bool_]":
    visible: NDArray[np.bool_] = seen_by_readers(part) & (part.offset < end)
    return visible


def _before(left: Entries, first: int | None, other_cut: bool) -> "NDArray[np.bool_]":
    """Return bool[n]: True below the first pair, where the other log has deleted older records."""
    import numpy as np

    if not other_cut:
        return np.zeros(len(left), np.bool_)
    rows: NDArray[np.bool_] = np.ones(len(left), np.bool_) if first is None else left.offset < first
    return rows


def _refuse_dropped(around: Around, pairing: Pairing, first: int) -> None:
    """Refuse an offset among the many records that the mirror deleted, which were not kept."""
    if pairing.source.dropped and around.offset < first:
        raise IncompleteError(
            f"the mirror has deleted more than {pairing.source.dropped:,} records of the source",
        )


def _outside(of: PartitionMirror, began: int | None, *, clocks: bool) -> Outside:
    """Return what records before the ranges may explain. began: time of the source's first record.

    Starting at an instant, the range has every record that is not older, at whatever offset.
    """
    if not clocks:
        held = of.source.start == 0
        return Outside(all_extra=not held and of.mirror.start > 0, again=not held)
    since = of.since
    return Outside(
        lost_until=since if of.mirror.start > of.mirror.log_start_offset else None,
        extra_until=None
        if of.source.start == 0
        else since
        if of.source.start > of.source.log_start_offset
        else began,
        again=of.source.start > 0,
    )


def _syncs_in_reach(of: PartitionMirror, mine: _At, theirs: _At) -> list[SyncSeen]:
    """Return the syncs that both logs reach."""
    return [
        (s, mine.found.get(s.upstream), theirs.found.get(s.downstream))
        for s in of.syncs
        if of.source.start <= s.upstream < of.source.high_watermark
        and of.mirror.start <= s.downstream < of.mirror.end
    ]
