"""What is wrong with records that found no partner, from a table of all their places in both logs.

Equal records, the source's before the mirror's, each log's by offset, make a group; what a group
lacks or has too often is a difference, exactly. A lost record and one that only the mirror has
which agree in most fields are one changed record.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from recovery.combine.mirror_pairs import Translated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["lost", "repeat", "changed", "only-in-mirror", "aborted", "open"]
SOURCE, MIRROR, SOURCE_ABORTED, SOURCE_OPEN = range(4)
FIELDS = ("timestamp", "key", "value", "headers")
# two records are one changed record when they agree in these, tried in this order
_ALIKE = (("timestamp", "key"), ("key", "value", "headers"), ("timestamp", "value", "headers"))


class Difference(NamedTuple):
    """source_offset, mirror_offset: of the record on each side, None where it is on one only.

    first_copy: of a repeat, the mirror's first. differs: the fields of a changed record. place: a
    row of the places.
    """

    kind: Kind
    source_offset: int | None
    mirror_offset: int | None
    place: int
    first_copy: int | None = None
    differs: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        """Those of the source first."""
        source = (1 << 63) if self.source_offset is None else self.source_offset
        return source, -1 if self.mirror_offset is None else self.mirror_offset


class Outside(NamedTuple):
    """Which records without a partner may have it before the ranges that were read.

    lost_until, extra_until: those of the source, of the mirror that are older than this, in ms.
    all_extra: any of the mirror. again: those of the mirror that also stand below its first offset
    that counts.
    """

    lost_until: int | None = None
    extra_until: int | None = None
    all_extra: bool = False
    again: bool = False


class Judged(NamedTuple):
    """counts: of each kind. differences: all of them, by source offset, the mirror's own last.
    ambiguous: equal records of the source, not all of which have one copy: order can't be told.
    outside: records that are no difference if their partners stand before the ranges."""

    counts: dict[Kind, int]
    differences: list[Difference]
    ambiguous: bool
    outside: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A row per place, by group, side and offset."""

    group: "NDArray[np.intp]"
    start: "NDArray[np.intp]"
    offset: "NDArray[np.int64]"
    side: "NDArray[np.int64]"
    fields: "dict[str, NDArray[np.uint64]]"

    def _number(self, side: int) -> "NDArray[np.int64]":
        """How many places each group has on a side."""
        import numpy as np

        return np.bincount(self.group[self.side == side], minlength=len(self.start))

    def _nth(self) -> "NDArray[np.int64]":
        """The how-manyeth of its group and side a row is, of source and mirror."""
        import numpy as np

        nth = np.arange(len(self.group)) - self.start[self.group]
        return np.where(self.side == MIRROR, nth - self._number(SOURCE)[self.group], nth)

    def judged(self, within: tuple[int, int], mirror_first: int, outside: Outside) -> Judged:
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
            seen = np.bincount(self.group[below], minlength=len(self.start)) > 0
            doubt |= strange & seen[self.group]
        doubt |= strange & (outside.all_extra | self._older(outside.extra_until))
        lost, extra = lost & ~doubt, extra & ~doubt
        repeat = extra & (mine[self.group] > 0)
        aborted = extra & ~repeat & (hidden[0][self.group] > 0)
        undecided = extra & ~repeat & ~aborted & (hidden[1][self.group] > 0)
        alone = extra & ~repeat & ~aborted & ~undecided
        found = list(self._changed(lost, alone))
        for row in np.flatnonzero(lost).tolist():
            found.append(Difference("lost", int(self.offset[row]), None, row))
        for row in np.flatnonzero(alone).tolist():
            found.append(Difference("only-in-mirror", None, int(self.offset[row]), row))
        found += self._copies("repeat", repeat, 0)
        found += self._copies("aborted", aborted, None)
        found += self._copies("open", undecided, None)
        counts: dict[Kind, int] = {}
        for one in found:
            counts[one.kind] = counts.get(one.kind, 0) + 1
        unequal = (mine > 1) & (mine != theirs)
        return Judged(
            counts,
            sorted(found, key=lambda d: (d.order, d.place)),
            bool(unequal.any()),
            int(doubt.sum()),
        )

    def _older(self, until: int | None) -> "NDArray[np.bool_]":
        import numpy as np

        if until is None:
            return np.zeros(len(self.group), np.bool_)
        older: NDArray[np.bool_] = self.fields["timestamp"].astype(np.int64) < until
        return older

    def _changed(
        self, lost: "NDArray[np.bool_]", alone: "NDArray[np.bool_]"
    ) -> Iterator[Difference]:
        """Pairs of a lost record and one that is only in the mirror; both are taken away.

        Only where no other lost or foreign record agrees in the same fields: else it is a guess.
        """
        import numpy as np

        for names in _ALIKE:
            columns = [self.fields[name] for name in names if name in self.fields]
            sides: list[dict[tuple[int, ...], list[int]]] = [{}, {}]
            for known, rows in zip(sides, (lost, alone), strict=True):
                for row in np.flatnonzero(rows).tolist():
                    known.setdefault(tuple(int(c[row]) for c in columns), []).append(row)
            for alike, mine in sides[0].items():
                theirs = sides[1].get(alike, ())
                if len(mine) == len(theirs) == 1:
                    row, other = mine[0], theirs[0]
                    lost[row] = alone[other] = False
                    differs = tuple(n for n, c in self.fields.items() if c[row] != c[other])
                    yield Difference(
                        "changed",
                        int(self.offset[row]),
                        int(self.offset[other]),
                        row,
                        differs=differs,
                    )

    def _copies(
        self, kind: Kind, rows: "NDArray[np.bool_]", first: int | None
    ) -> Iterator[Difference]:
        """Records of the mirror beside the place of the source that they are of."""
        import numpy as np

        mine = self._number(SOURCE)
        theirs = self._number(MIRROR)
        for row in np.flatnonzero(rows).tolist():
            group = int(self.group[row])
            begin = int(self.start[group])
            if first is None:  # the hidden record stands behind the mirror's
                source, copy = int(self.offset[begin + mine[group] + theirs[group]]), None
            else:
                source = int(self.offset[begin + mine[group] - 1])
                copy = int(self.offset[begin + mine[group]])
            yield Difference(kind, source, int(self.offset[row]), row, first_copy=copy)

    def correct(self, one: Translated) -> None:
        """A group that goes on at a translated place reads any copy: the pairs counted the first.

        It skips records only as far as fewer copies lie above than records of the source need.
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
