"""Read what is new in a partition and its mirror, and add it to the partition's map."""

from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoctl.engine.audit_reading import seen_by_readers
from eoctl.engine.mirror_logs import DigestSum, MirrorLog, Progress
from recovery.audit.audit_request import Resolved
from recovery.audit.mirror_entries import Entries, among
from recovery.audit.mirror_map import (
    LEAST_IN_BLOCK,
    MapBlock,
    MapPartition,
    MapRange,
    unseen_after,
    with_block,
)
from recovery.audit.mirror_pairs import MOST, Pairing
from recovery.audit.mirror_steps import PairSteps, Rest, Steps, rest_of
from recovery.errors import IncompleteError
from recovery.formats.columns import ABORTED, NONE, OPEN, ColumnBatch
from recovery.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AHEAD = 100_000
"""Visible records of the source that are kept although the mirror has not come to them."""
MOST_WAITING = 500_000
"""Visible records without a pair that one partition's map keeps, some 21 bytes each."""
MOST_HIDDEN = 200_000
"""Records that the source aborted or has not decided, the newest."""

Part = tuple[ColumnBatch, "NDArray[np.uint64]"]
Logs = tuple[MirrorLog, Resolved]


async def continued(
    known: MapPartition | None, source: Logs, mirror: Logs, progress: Progress, *, timed: bool
) -> MapPartition:
    """Return the map of a partition after these ranges. known: what it was before them.

    timed: timestamps are compared.

    The caller adds the leader epochs of the ends, and when that was. Raises IncompleteError if too
    many records have no partner.
    """
    return await _Continuing(known, source, mirror, timed).result(progress)


@dataclass
class _Continuing:
    """One run over one partition.

    ahead: records of the source after the mirror's end. hidden: those that no reader gets. read_to:
    the source's next offset. beyond: visible records of it since the mirror is done; unpaired: the
    mirror's records that had no partner then.
    """

    known: MapPartition | None
    source: Logs
    mirror: Logs
    timed: bool
    steps: PairSteps = field(default_factory=PairSteps)
    ahead: list[Rest] = field(default_factory=list)
    hidden: list[Rest] = field(default_factory=list)
    began: int | None = None
    read_to: int = 0
    beyond: int = 0
    unpaired: int = 0

    def __post_init__(self) -> None:
        self.sums, self.block_start = self._new_sum(), self.mirror[1].start
        self.blocks = () if self.known is None else self.known.blocks
        self.read_to = self.source[1].start
        first = self.known is None
        self.pairing = Pairing(
            source_cut=first and self.source[1].start > 0,
            mirror_cut=first and self.mirror[1].start > 0,
            clocks=self.timed,
            translated=(self.steps,),
        )
        if self.known is not None:
            _, rest = self.known.unpacked()
            waiting = rest.select(rest.visible)
            self.pairing.resume(_entries(waiting))
            self.hidden.append(rest.select(~rest.visible))
            self.began = self.known.began

    def _new_sum(self) -> DigestSum:
        import numpy as np

        return DigestSum(np.array([self.mirror[1].end], np.int64))

    def _end_block(self, end: int) -> None:
        """Add a block of the mirror's records read since the last one."""
        if end > self.block_start:
            new = MapBlock(
                start=self.block_start,
                end=end,
                records=int(self.sums.count[0]),
                digest=self.sums.text(0),
            )
            self.blocks = with_block(self.blocks, new)
        self.sums, self.block_start = self._new_sum(), end

    async def result(self, progress: Progress) -> MapPartition:
        """Read both, and return the map."""
        (source, mine), (mirror, theirs) = self.source, self.mirror
        advance = progress.over(mine.end - mine.start + theirs.end - theirs.start)
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(aclosing(source.read(mine, mine.end, advance)))
            copies = await stack.enter_async_context(
                aclosing(mirror.read(theirs, theirs.end, advance))
            )
            while not (self.pairing.source.done and self.pairing.mirror.done):
                if self.pairing.wants_source():
                    self._add_source(await anext(ours, None))
                else:
                    self._add_mirror(await anext(copies, None))
        return self._map()

    def _add_source(self, part: Part | None) -> None:
        if part is None or self.beyond >= AHEAD + self.unpaired:
            self.pairing.source.done = True
            self.read_to = self.source[1].end if part is None else self.read_to
            return
        records, _ = part
        self.read_to = int(records.offset[-1]) + 1
        if self.began is None:
            self.began = int(records.timestamp[0])
        rows = seen_by_readers(records)
        self._hide(_as_rest(part, ~rows, OPEN))
        new = _as_rest(part, rows, NONE)
        if not len(new):
            return
        before = self.pairing.behind
        clock = int(records.timestamp.max())
        self.pairing.add(self.pairing.source, _entries(new), clock)
        if self.pairing.behind > before:
            self.ahead.append(new)
        self.beyond += len(new) if self.pairing.mirror.done else 0

    def _hide(self, records: Rest) -> None:
        """Keep records that no reader gets: the mirror may have copied them. The newest suffice."""
        self.hidden.append(records)
        if sum(map(len, self.hidden)) > 2 * MOST:
            self.hidden = [rest_of(self.hidden[len(self.hidden) // 2 :])]

    def _add_mirror(self, part: Part | None) -> None:
        if part is None:
            self.pairing.mirror.done, self.unpaired = True, self.pairing.mirror.waiting
            return
        records, digests = part
        rows = seen_by_readers(records) & (records.offset < self.mirror[1].end)
        self.sums.add(records.offset[rows], digests[rows])
        if rows.any():
            clock = int(records.timestamp.max())
            new = _entries(_as_rest(part, rows, NONE))
            self.pairing.add(self.pairing.mirror, new, clock)
        if self.sums.count[0] >= LEAST_IN_BLOCK:
            self._end_block(int(records.offset[-1]) + 1)

    def _map(self) -> MapPartition:
        import numpy as np

        left, extra = self.pairing.finish()
        earlier, start = self._earlier()
        steps = self.steps.after(earlier)
        if self.known is None and self.mirror[1].start > 0 and steps.pairs:
            start = int(steps.source.min())  # the mirror may have had what is before its first
        waiting = Rest(left.offset, left.digest, np.full(len(left), NONE, np.int8))
        hidden = rest_of(self.hidden)
        copied = among(hidden.digest, extra.digest) | (hidden.outcome == ABORTED)
        hidden = replace(hidden, outcome=np.where(copied, ABORTED, OPEN).astype(np.int8))
        hidden = hidden.select(copied | (hidden.offset > steps.reach))
        hidden = hidden.select(np.arange(len(hidden)) >= len(hidden) - MOST_HIDDEN)
        rest = rest_of([waiting, *self.ahead, hidden])
        rest = rest.select(rest.offset >= start)
        if (without := int(rest.visible.sum())) > MOST_WAITING:
            raise IncompleteError(
                f"{without:,} records of the source have no partner, too many for a map",
                remedy="wait until the mirror has caught up, or see what differs: audit mirror "
                "without --keep",
            )
        return self._partition(start, steps, rest)

    def _earlier(self) -> tuple[Steps, int]:
        """Return the steps that the mirror still has, and the source's first mapped offset."""
        import numpy as np

        if self.known is None:
            nothing = np.zeros(0, np.int64)
            return Steps(nothing, nothing, nothing), self.source[1].start
        (steps, rest), start = self.known.unpacked(), self.known.source.start
        kept = steps.since(self.mirror[1].log_start_offset)
        if len(kept.source) == len(steps.source):
            return steps, start
        waiting = rest.offset[rest.visible & (rest.offset > steps.reach)]
        first = kept.source if len(kept.source) else waiting
        return kept, int(first.min(initial=self.known.source.end))

    def _partition(self, start: int, steps: Steps, rest: Rest) -> MapPartition:
        theirs, known = self.mirror[1], self.known
        first = theirs.start if known is None else known.mirror.start
        first = max(first, theirs.log_start_offset)
        self._end_block(theirs.end)
        return MapPartition(
            partition=theirs.partition,
            looked_at=0,
            source=MapRange(start=start, end=self.read_to, leader_epoch=None),
            mirror=MapRange(start=first, end=theirs.end, leader_epoch=None),
            began=self.began,
            pairs=steps.pairs,
            number=len(steps.source),
            waiting=int(rest.visible.sum()),
            steps=steps.packed(),
            rest=rest.packed(),
            blocks=tuple(b for b in self.blocks if b.end > first),
            unseen=unseen_after(known, theirs.start),
        )


def _as_rest(part: Part, rows: "NDArray[np.bool_]", outcome: int) -> Rest:
    """Return some records of a part, with this outcome in the map."""
    import numpy as np

    records, digests = part
    of_all = np.full(int(rows.sum()), outcome, np.int8)
    return Rest(records.offset[rows], digests[rows], of_all)


def _entries(records: Rest) -> Entries:
    """Return records for a pairing that counts no key ranges."""
    import numpy as np

    return Entries(records.digest, records.offset, np.zeros(len(records), np.int64))
