"""Judge unpaired records from a table of all their places in both logs.

A group has equal records: the source's before the mirror's, each by offset. What a group lacks or
has too often is exactly a difference. A lost record and a record of the mirror alone that agree in
most fields are one changed record.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Literal, get_args

from recovery.audit.mirror_entries import groups
from recovery.audit.mirror_pairs import Translated
from recovery.formats.columns import LAST_OFFSET
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MirrorFault = Literal["lost", "repeat", "changed", "only-in-mirror", "aborted", "open"]
KINDS: tuple[MirrorFault, ...] = get_args(MirrorFault)
SOURCE, MIRROR, SOURCE_ABORTED, SOURCE_OPEN = range(4)
FIELDS = ("timestamp", "key", "value", "headers")
_NO_OFFSET = -1
# two records count as one changed record if they agree in these fields, tried in this order
_ALIKE = (("timestamp", "key"), ("key", "value", "headers"), ("timestamp", "value", "headers"))


class Difference(Value):
    """source_offset, mirror_offset: of the record on each side, None if that side lacks it.

    first_copy: for a repeat, the mirror's first copy. differs: the fields of a changed record.
    """

    kind: MirrorFault
    source_offset: int | None
    mirror_offset: int | None
    first_copy: int | None = None
    differs: tuple[str, ...] = ()


class Outside(Value):
    """The unpaired records whose partner may precede the ranges that were read.

    lost_until, extra_until: those of the source and of the mirror that are older than this (ms).
    all_extra: all of the mirror. again: those of the mirror that also occur below its first offset
    that counts.
    """

    lost_until: int | None = None
    extra_until: int | None = None
    all_extra: bool = False
    again: bool = False


class MirrorJudgement(Value):
    """counts: by kind, if there are any. differences: the first conclusive ones by source offset,
    those of the mirror alone last.
    ambiguous: some equal records of the source do not have one copy each: their order is unknown.
    outside: records that are no difference if their partners precede the ranges."""

    counts: dict[MirrorFault, int]
    differences: list[Difference]
    ambiguous: bool
    outside: int = 0


class Table(Value):
    """One row per place, sorted by group, side and offset."""

    group: "NDArray[np.intp]"
    start: "NDArray[np.intp]"
    offset: "NDArray[np.int64]"
    side: "NDArray[np.int64]"
    fields: "dict[str, NDArray[np.uint64]]"

    def _number(self, side: int) -> "NDArray[np.int64]":
        """Return the number of places of each group on a side."""
        import numpy as np

        return np.bincount(self.group[self.side == side], minlength=len(self.start))

    def _nth(self) -> "NDArray[np.int64]":
        """Return each row's index within its group and side (source and mirror only)."""
        import numpy as np

        nth = np.arange(len(self.group)) - self.start[self.group]
        return np.where(self.side == MIRROR, nth - self._number(SOURCE)[self.group], nth)

    def judged(
        self,
        within: tuple[int, int],
        mirror_first: int,
        outside: Outside,
        most: int,
        excused: Collection[MirrorFault],
    ) -> MirrorJudgement:
        """Judge the rows as `UnmatchedRecords.judge` describes."""
        import numpy as np

        mine, theirs = self._number(SOURCE), self._number(MIRROR)
        hidden = [self._number(SOURCE_ABORTED), self._number(SOURCE_OPEN)]
        nth = self._nth()
        source, mirror = self.side == SOURCE, self.side == MIRROR
        lost = source & (nth >= theirs[self.group])
        lost &= (self.offset >= within[0]) & (self.offset < within[1])
        extra = mirror & (nth >= mine[self.group]) & (self.offset >= mirror_first)
        doubt = lost & self._older(outside.lost_until)
        strange = extra & (mine + hidden[0] + hidden[1] == 0)[self.group]
        if outside.again:
            below = mirror & (self.offset < mirror_first)
            has_records = np.bincount(self.group[below], minlength=len(self.start)) > 0
            doubt |= strange & has_records[self.group]
        doubt |= strange & (outside.all_extra | self._older(outside.extra_until))
        lost, extra = lost & ~doubt, extra & ~doubt
        repeat = extra & (mine[self.group] > 0)
        aborted = extra & ~repeat & (hidden[0][self.group] > 0)
        undecided = extra & ~repeat & ~aborted & (hidden[1][self.group] > 0)
        alone = extra & ~repeat & ~aborted & ~undecided
        changed = list(self._changed(lost, alone))  # removes them from both
        faults = np.concatenate(
            [
                *changed,
                _difference("lost", self.offset[lost], _NO_OFFSET),
                _difference("only-in-mirror", _NO_OFFSET, self.offset[alone]),
                self._repeats(repeat),
                self._copies("aborted", aborted),
                self._copies("open", undecided),
            ],
            axis=1,
        )
        counts = np.bincount(faults[0], minlength=len(KINDS)).tolist()
        unequal = (mine > 1) & (mine != theirs)
        return MirrorJudgement(
            {kind: n for kind, n in zip(KINDS, counts, strict=True) if n},
            self._first(faults, most, excused),
            bool(unequal.any()),
            int(doubt.sum()),
        )

    def hidden(self, above: int) -> int:
        """Return what `UnmatchedRecords.hidden` describes."""
        hidden = self._number(SOURCE_ABORTED) + self._number(SOURCE_OPEN)
        alone = (self._number(SOURCE) == 0) & (hidden > 0)
        rows = (self.side == MIRROR) & (self.offset > above) & alone[self.group]
        return int(self._copies("aborted", rows)[1].max(initial=_NO_OFFSET))

    def _first(
        self, faults: "NDArray[np.int64]", most: int, excused: Collection[MirrorFault]
    ) -> list[Difference]:
        """Return the first differences out of those that `_difference` built."""
        import numpy as np

        shown = faults[:, ~np.isin(faults[0], [KINDS.index(kind) for kind in excused])]
        by_source = np.where(shown[1] == _NO_OFFSET, LAST_OFFSET, shown[1])
        first = np.lexsort((shown[2], by_source))[:most]
        return [
            Difference(
                KINDS[kind],
                _offset_or_none(source),
                _offset_or_none(mirror),
                _offset_or_none(copy),
                tuple(name for n, name in enumerate(self.fields) if differs >> n & 1),
            )
            for kind, source, mirror, copy, differs in shown[:, first].T.tolist()
        ]

    def _older(self, until: int | None) -> "NDArray[np.bool_]":
        import numpy as np

        if until is None:
            return np.zeros(len(self.group), np.bool_)
        older: NDArray[np.bool_] = self.fields["timestamp"].astype(np.int64) < until
        return older

    def _changed(
        self, lost: "NDArray[np.bool_]", alone: "NDArray[np.bool_]"
    ) -> Iterator["NDArray[np.int64]"]:
        """Pair a lost record with one of the mirror alone, and remove both from these rows.

        No other lost or foreign record may agree in these fields: the pair would be a guess.
        """
        import numpy as np

        for names in _ALIKE:
            rows = np.flatnonzero(lost | alone)
            values = np.stack([self.fields[n][rows] for n in names if n in self.fields], axis=1)
            order = np.lexsort(values.T)
            rows, (group, start) = rows[order], groups(values[order])
            numbers = [
                np.bincount(group[side[rows]], minlength=len(start)) for side in (lost, alone)
            ]
            paired = rows[((numbers[0] == 1) & (numbers[1] == 1))[group]]
            mine, theirs = paired[lost[paired]], paired[alone[paired]]
            lost[mine] = alone[theirs] = False
            differs = np.zeros(len(mine), np.int64)
            for n, column in enumerate(self.fields.values()):
                differs |= (column[mine] != column[theirs]).astype(np.int64) << n
            yield _difference("changed", self.offset[mine], self.offset[theirs], differs=differs)

    def _repeats(self, rows: "NDArray[np.bool_]") -> "NDArray[np.int64]":
        """Return repeats: the mirror's records, each with the last source place of its group."""
        group = self.group[rows]
        behind = (self.start + self._number(SOURCE))[group]
        return _difference(
            "repeat", self.offset[behind - 1], self.offset[rows], self.offset[behind]
        )

    def _copies(self, kind: MirrorFault, rows: "NDArray[np.bool_]") -> "NDArray[np.int64]":
        """Return copies of hidden source records, which follow the mirror's rows in their group."""
        group = self.group[rows]
        behind = (self.start + self._number(MIRROR))[group]
        return _difference(kind, self.offset[behind], self.offset[rows])

    def correct(self, one: Translated) -> None:
        """Correct a translation's counts: a group reads any copy, the pairs counted the first only.

        It skips only as many records as there are copies missing above the offset.
        """
        import numpy as np

        n = len(self.start)
        mine, theirs = self._number(SOURCE), self._number(MIRROR)
        nth = self._nth()
        source, mirror = self.side == SOURCE, self.side == MIRROR
        paired = nth < np.minimum(mine, theirs)[self.group]
        at, copy = np.flatnonzero(source & paired), np.flatnonzero(mirror & paired)
        counted = (self.offset[at] >= one.source) & (self.offset[copy] < one.mirror)
        late = np.bincount(self.group[source & (self.offset >= one.source)], minlength=n)
        there = np.bincount(self.group[mirror & (self.offset >= one.mirror)], minlength=n)
        needed = np.maximum(late - np.maximum(mine - theirs, 0), 0)
        one.skipped += int(np.maximum(needed - there, 0).sum()) - int(counted.sum())
        last = np.where(mine > 0, self.offset[self.start + np.maximum(mine, 1) - 1], -1)
        more = mirror & (nth >= mine[self.group]) & (mine[self.group] > 0)
        above = more & (self.offset >= one.mirror) & (last[self.group] < one.source)
        one.again += int(above.sum())


def _difference(
    kind: MirrorFault,
    source: "NDArray[np.int64] | int",
    mirror: "NDArray[np.int64] | int",
    first_copy: "NDArray[np.int64] | int" = _NO_OFFSET,
    differs: "NDArray[np.int64] | int" = 0,
) -> "NDArray[np.int64]":
    """Return a column per difference: kind, the offsets of a Difference, and a bit per field."""
    import numpy as np

    return np.stack(np.broadcast_arrays(KINDS.index(kind), source, mirror, first_copy, differs))


def _offset_or_none(offset: int) -> int | None:
    return None if offset == _NO_OFFSET else offset


def explained(source: bool, mirror: bool) -> frozenset[MirrorFault]:
    """Return the kinds of difference that a compaction of source or mirror may explain.

    A record that a compacted mirror or source lacks proves nothing.
    """
    lacks_mirror: frozenset[MirrorFault] = frozenset(("lost", "changed") if mirror else ())
    lacks_source: frozenset[MirrorFault] = frozenset(
        ("repeat", "changed", "only-in-mirror") if source else ()
    )
    return lacks_mirror | lacks_source
