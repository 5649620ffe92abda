"""Pair each record of a source partition with its copy in the mirror while both logs are read.

Of equal records, the i-th in the source is paired with the i-th in the mirror. Pairs are dropped
at once and only unpaired records are kept, so memory depends on how much the logs differ and how
far one is ahead, not on their length. The pairs show which records are out of order, how far the
mirror has come, and what a translated group offset would skip or read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recovery.audit.mirror_entries import Entries, RangeSums, among, joined, matched
from recovery.errors import IncompleteError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST = 2_000_000
"""Unpaired records kept per partition, some 80 bytes each during the pairing."""
_BLOCK = 1 << 16  # minimum number of new records for a join
_RUNS = 20_000


class PairRun(NamedTuple):
    """Consecutive pairs in both logs: first and last offsets, and the number of pairs."""

    source_first: int
    source_last: int
    mirror_first: int
    mirror_last: int
    records: int


class SeesPairs(Protocol):
    """Counts or keeps pairs: their offsets in source and mirror."""

    def see(self, source: "NDArray[np.int64]", mirror: "NDArray[np.int64]") -> None: ...


@dataclass(slots=True)
class Translated:
    """A group's offset in the source and its translation in the mirror, and how many pairs a group
    that continues from the translation skips or reads again."""

    source: int
    mirror: int
    skipped: int = 0
    again: int = 0

    def see(self, source: "NDArray[np.int64]", mirror: "NDArray[np.int64]") -> None:
        """Count these pairs."""
        before, above = source < self.source, mirror >= self.mirror
        self.skipped += int((~before & ~above).sum())
        self.again += int((before & above).sum())


@dataclass(slots=True)
class _Side:
    """One log. old: unpaired records with paired ones after them; new: the records since then."""

    cut: bool  # older records were deleted from this log
    old: Entries = field(default_factory=lambda: joined([]))
    new: list[Entries] = field(default_factory=list)
    waiting: int = 0
    fresh: int = 0  # the waiting ones that no join has seen
    clock: int = -1
    dropped: int = 0
    done: bool = False
    sums: RangeSums = field(default_factory=RangeSums)

    def leave(self, old: Entries, new: Entries) -> None:
        self.old, self.new = old, [new]
        self.waiting, self.fresh = len(old) + len(new), 0

    @property
    def newcomers(self) -> Entries:
        if len(self.new) != 1:
            self.new = [joined(self.new)]
        return self.new[0]


class Pairing:
    """The pairs of one partition.

    source_cut, mirror_cut: older records were deleted from that log. clocks: both logs have the
    same timestamps, so the timestamps show which log begins earlier.
    """

    def __init__(
        self,
        *,
        source_cut: bool,
        mirror_cut: bool,
        clocks: bool = True,
        translated: Sequence[SeesPairs] = (),
        most: int = MOST,
        block: int = _BLOCK,
    ) -> None:
        self.source, self.mirror = _Side(source_cut), _Side(mirror_cut)
        self.pairs = 0
        self.reach = -1  # the last source offset of a pair
        self.behind = 0  # records after the mirror's end, which were not kept
        self._clocks = clocks
        self._translated = translated
        self._most, self._block = most, block
        self._runs: list[PairRun] = []

    def resume(self, waiting: Entries) -> None:
        """Begin with records of the source that an earlier pairing left without a partner."""
        self.source.leave(waiting, joined([]))

    def wants_source(self) -> bool:
        """Return True if the source has to be read next: it is behind, or the mirror is done."""
        source, mirror = self.source, self.mirror
        if source.done or mirror.done:
            return not source.done
        if self._clocks and not self.pairs and (source.cut or mirror.cut):
            return source.clock < mirror.clock  # one log begins earlier: its head has no partner
        return source.waiting < mirror.waiting

    def add(self, side: _Side, entries: Entries, clock: int) -> None:
        """Add the next records of `self.source` or `self.mirror`. clock: their highest timestamp.

        Raises IncompleteError if more records are unpaired than can be kept.
        """
        side.clock = max(side.clock, clock)
        if side is self.source and self.mirror.done:
            if self.mirror.fresh:
                self._join()
            if not self.mirror.waiting:
                # a map gives what it has no copy of last, whatever its offset
                late = entries.offset > self.reach
                self.behind += int(late.sum())
                entries = entries.select(~late)
        side.sums.add(entries)
        side.new.append(entries)
        side.waiting += len(entries)
        side.fresh += len(entries)
        if side.fresh >= max(self._block, side.waiting // 3):
            self._join()

    def _join(self) -> None:
        """Remove what has a partner, beginning with the equal runs that make up most logs."""
        source, mirror = self.source, self.mirror
        self._strip()
        # new records on one side wait for the other side, which may continue with the same ones
        if (len(source.newcomers) or mirror.done) and (len(mirror.newcomers) or source.done):
            self._match()
        source.fresh = mirror.fresh = 0
        if self._clocks and not self.pairs:
            self._drop(mirror, source.cut)
            self._drop(source, mirror.cut)
        if source.waiting + mirror.waiting > self._most:
            raise IncompleteError(
                f"more than {self._most:,} records have no partner yet, too many to tell apart",
                remedy="wait until the mirror has caught up, or begin later with --start",
            )

    def _strip(self) -> None:
        import numpy as np

        source, mirror = self.source.newcomers, self.mirror.newcomers
        n = min(len(source), len(mirror))
        unlike = (source.digest[:n] != mirror.digest[:n]).any(axis=1)
        n = int(unlike.argmax()) if unlike.any() else n
        alike = source.digest[:n]
        # an equal record that has waited longer is paired first
        if not n or any(among(alike, side.old.digest).any() for side in (self.source, self.mirror)):
            return
        self._record(source.offset[:n], mirror.offset[:n])
        for side, entries in ((self.source, source), (self.mirror, mirror)):
            side.leave(side.old, entries.select(np.arange(len(entries)) >= n))

    def _match(self) -> None:
        import numpy as np

        sides = self.source, self.mirror
        source, mirror = (joined([side.old, side.newcomers]) for side in sides)
        mine, theirs = matched(source.digest, mirror.digest)
        if len(mine):
            order = np.argsort(theirs)
            self._record(source.offset[mine[order]], mirror.offset[theirs[order]])
        for side, entries, rows in zip(sides, (source, mirror), (mine, theirs), strict=True):
            left = np.ones(len(entries), np.bool_)
            left[rows] = False
            behind = np.arange(len(entries)) > (rows.max() if len(rows) else len(side.old) - 1)
            side.leave(entries.select(left & ~behind), entries.select(left & behind))

    def _drop(self, side: _Side, may: bool) -> None:
        """Before the first pair, drop old records whose partners the other log no longer holds."""
        import numpy as np

        if not may or side.waiting <= self._most // 4:
            return
        entries = joined([side.old, side.newcomers])
        late = np.arange(len(entries)) >= len(entries) - self._most // 8
        side.sums.take_away(entries.select(~late))
        side.dropped += int((~late).sum())
        side.leave(joined([]), entries.select(late))

    def _record(self, source: "NDArray[np.int64]", mirror: "NDArray[np.int64]") -> None:
        """Record pairs, in ascending order of mirror offset."""
        import numpy as np

        self.pairs += len(source)
        self.reach = max(self.reach, int(source.max()))
        for one in self._translated:
            one.see(source, mirror)
        rank = np.empty(len(source), np.int64)
        rank[np.argsort(source)] = np.arange(len(source))
        first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1] + 1)))
        last = np.append(first[1:], len(rank)) - 1
        columns = (source[first], source[last], mirror[first], mirror[last], last - first + 1)
        self._runs += map(PairRun._make, zip(*(c.tolist() for c in columns), strict=True))
        if len(self._runs) > 2 * _RUNS:
            self.in_order()  # raises if the order differs too much, before memory is exhausted

    def finish(self) -> tuple[Entries, Entries]:
        """Return what is unpaired in source and mirror. Call it after everything was added."""
        self._join()
        source, mirror = (joined([s.old, s.newcomers]) for s in (self.source, self.mirror))
        return source, mirror

    def in_order(self) -> tuple[list[PairRun], list[PairRun]]:
        """Return the longest chain of pairs that ascends in both logs, and the pairs outside it.

        Raises IncompleteError if the order differs in too many places.
        """
        import numpy as np

        if not self._runs:
            return [], []
        runs = sorted(self._runs, key=lambda run: run.mirror_first)
        table = np.array(runs, np.int64)
        source_first, source_last, mirror_first, mirror_last, records = table.T
        if (source_first[1:] > source_last[:-1]).all() and (
            mirror_first[1:] > mirror_last[:-1]
        ).all():
            return runs, []
        if len(runs) > _RUNS:
            raise IncompleteError(
                f"the mirror's order differs from the source's in more than {_RUNS:,} places"
            )
        best, before = records.copy(), np.full(len(runs), -1)
        for i in range(1, len(runs)):
            fits = (source_last[:i] < source_first[i]) & (mirror_last[:i] < mirror_first[i])
            if fits.any():
                at = int(np.where(fits, best[:i], -1).argmax())
                best[i] += best[at]
                before[i] = at
        chain, at = set(), int(best.argmax())
        while at >= 0:
            chain.add(at)
            at = int(before[at])
        return (
            [runs[i] for i in sorted(chain)],
            [run for i, run in enumerate(runs) if i not in chain],
        )
