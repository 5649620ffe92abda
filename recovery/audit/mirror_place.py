"""Find the offset in a mirror at which a group of the source continues.

A record with several copies counts as read only before all of them that the group does not need,
and as left out only if too few follow. What a group has read must be before its offset, what it has
not read must follow. A copy that is newer than what is known of the source may be of a record that
was written later, whatever it equals: it must follow. Pairs that occur once on each side are seen
while both logs are paired; the others are in the table of unmatched records.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.mirror_pairs import MOST
from recovery.audit.mirror_table import MIRROR, SOURCE, SOURCE_ABORTED, SOURCE_OPEN, Table
from recovery.errors import IncompleteError
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Continued(Value):
    """What a group that continues at a mirror offset reads.

    again: records that it has read, or copies too many. left: unread records before the offset.
    hidden: records that the source aborted or has not decided. new, only_before: records only in
    the mirror, after and before the offset. repeated: of the new ones, those that may be copies of
    records that the source has deleted. alike: newer than what is known of the source, and equal
    to others: they may come again.
    """

    offset: int
    again: int
    left: int
    hidden: int
    new: int
    only_before: int
    repeated: int
    alike: int = 0


class Place(Value):
    """Where a group can continue in the mirror.

    exact: the offset before which all is that the group has read, and after which all is that it
    has not; of several, the one from which the fewest records come twice. None: there is no such
    offset, but a range. earliest: its end from which nothing is left out; latest: its end from
    which nothing comes again that was read. lost: unread records that the mirror lacks, though it
    has later ones. next_source: the source offset that the mirror copies next; None: it has no
    copy. reach: after the last source record with one. unknown: records of the mirror that are
    newer than what is known of the source, without a pair; they count as unread.
    """

    exact: Continued | None
    earliest: Continued
    latest: Continued
    lost: int
    next_source: int | None
    reach: int
    unknown: int = 0


@dataclass(slots=True)
class Around:
    """The pairs nearest to a group's offset in the source.

    offset: the group's. A pair is (source offset, mirror offset).
    """

    offset: int
    most: int = MOST
    last: tuple[int, int] | None = None  # the pair with the highest mirror offset
    _read: list["NDArray[np.int64]"] = field(default_factory=list)  # the highest mirror offsets
    _unread: list["NDArray[np.int64]"] = field(default_factory=list)  # the lowest
    _cut: bool = False

    def see(self, source: "NDArray[np.int64]", mirror: "NDArray[np.int64]") -> None:
        """Add pairs."""
        import numpy as np

        if not len(source):
            return
        pairs = np.stack((source, mirror), axis=1)
        at = int(mirror.argmax())
        if self.last is None or int(mirror[at]) > self.last[1]:
            self.last = int(source[at]), int(mirror[at])
        read = source < self.offset
        self._read = self._nearest([*self._read, pairs[read]], -1)
        self._unread = self._nearest([*self._unread, pairs[~read]], 1)

    def _nearest(self, parts: list["NDArray[np.int64]"], sign: int) -> list["NDArray[np.int64]"]:
        import numpy as np

        if sum(map(len, parts)) <= 2 * self.most:
            return parts
        pairs = np.concatenate(parts)
        rows = np.argpartition(sign * pairs[:, 1], self.most)[: self.most]
        self._cut = True
        return [pairs[rows]]

    def mirror_offsets(self, other: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], ...]":
        """Return the mirror offsets of read and of unread records, sorted, without these sources.

        Raises IncompleteError if not enough pairs were kept.
        """
        import numpy as np

        none = np.zeros((0, 2), np.int64)
        both = []
        for parts in (self._read, self._unread):
            pairs = np.concatenate([none, *parts])
            kept = np.sort(pairs[~np.isin(pairs[:, 0], other), 1])
            if self._cut and len(pairs) and not len(kept):
                raise IncompleteError(
                    f"more than {self.most:,} records beside the offset are in the mirror twice"
                )
            both.append(kept)
        return tuple(both)


class Bounds(Value):
    """What of both logs counts.

    reach: the last source offset that the mirror has come to. first, end: the mirror's first offset
    whose record the source can hold, and its end. began: time (ms) of the source's first record, if
    older ones are deleted; None: none is. timed: timestamps are compared. compacted: the source may
    have been. known_to: from this mirror offset on, copies may be of records that the source is
    not known to have; None: all of the source is known.
    """

    reach: int
    first: int
    end: int
    began: int | None
    timed: bool
    compacted: bool
    known_to: int | None = None


def placed(around: Around, table: Table | None, bounds: Bounds) -> Place:
    """Return where the group continues. table: the unmatched records; None: there are none."""
    import numpy as np

    none = np.zeros(0, np.int64)
    groups = None if table is None else _Groups(table, around.offset, bounds)
    mine = none if table is None else table.offset[table.side == SOURCE]
    read, unread = around.mirror_offsets(mine)
    some, too_many, all_too_many = (none, none, none) if groups is None else groups.limits()
    earliest = min([bounds.end, *unread[:1].tolist(), *some.tolist()[:1]])
    latest = max([bounds.first, *(read[-1:] + 1).tolist(), *too_many.tolist()[-1:]])
    once = max([latest, *all_too_many.tolist()[-1:]])  # from here on nothing comes twice

    def at(offset: int) -> Continued:
        costs = (0,) * 7 if groups is None else groups.costs(offset)
        again, left, *others = costs
        again += int((read >= offset).sum())
        left += int((unread < offset).sum())
        return Continued(offset, again, left, *others)

    last = None if groups is None else groups.last
    if around.last is not None and (last is None or around.last[1] > last[1]):
        last = around.last
    return Place(
        exact=at(min(once, earliest)) if latest <= earliest else None,
        earliest=at(earliest),
        latest=at(latest),
        lost=0 if groups is None else groups.lost,
        next_source=None if last is None else last[0] + 1,
        reach=bounds.reach + 1,
        unknown=0 if groups is None else groups.unknown,
    )


class _Groups:
    """The groups of equal records, as columns with a value for each group.

    newer: the last copies, which may be of records that are newer than what is known of the source;
    the copies before them are of known ones, those after `known_to` of those that had none yet.
    needed: copies that the group of readers must still read; allowed: those that it may. They
    differ where the mirror lacks some of several equal records and nobody can say which. lost:
    unread records without a copy. last: source and mirror offset of the mirror's last copy.
    """

    def __init__(self, table: Table, offset: int, bounds: Bounds) -> None:
        import numpy as np

        self._bounds, self._size = bounds, len(table.start)
        source = (table.side == SOURCE) & (table.offset <= bounds.reach)
        concealed = (table.side == SOURCE_ABORTED) | (table.side == SOURCE_OPEN)
        n, hidden = self._number(table.group[source]), self._number(table.group[concealed])
        copies = (table.side == MIRROR) & ((n > 0)[table.group] | (table.offset >= bounds.first))
        self._group, self._copy = table.group[copies], table.offset[copies]
        self._copies = self._number(self._group)
        self._begin = np.cumsum(self._copies) - self._copies
        unread = self._number(table.group[source & (table.offset >= offset)])
        self._newer = self._newer_copies(n)
        self.unknown = int(self._newer.sum())
        older = self._copies - self._newer
        rank = np.arange(len(self._copy)) - self._begin[self._group]
        self._is_newer = rank >= older[self._group]
        self._read = n - unread
        self._needed = self._newer + np.minimum(unread, older)
        self._allowed = self._newer + np.minimum(unread, np.maximum(older - self._read, 0))
        self._known, self._hidden = n > 0, (n == 0) & (hidden > 0)
        self._alone = ~self._known & ~self._hidden
        self.lost = int(np.minimum(unread, np.maximum(n - self._copies, 0)).sum())
        self._old = self._may_be_old(table)
        sources = np.where(self._known[table.group], source, concealed)
        self.last = self._last(table, sources)

    def _newer_copies(self, known: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return how many copies may be newer than what is known. known: records of the source."""
        import numpy as np

        if self._bounds.known_to is None:
            return np.zeros(self._size, np.int64)
        late = self._number(self._group[self._copy >= self._bounds.known_to])
        uncopied = np.maximum(known - (self._copies - late), 0)
        return np.maximum(late - uncopied, 0)

    def _number(self, rows: "NDArray[np.intp]") -> "NDArray[np.int64]":
        import numpy as np

        return np.bincount(rows, minlength=self._size).astype(np.int64)

    def _may_be_old(self, table: Table) -> "NDArray[np.bool_]":
        """Return which groups the source may have had, and deleted or compacted."""
        import numpy as np

        times, began = table.fields.get("timestamp"), self._bounds.began
        if self._bounds.compacted or (began is not None and times is None):
            return np.ones(self._size, np.bool_)
        # a copy among those of older records says so whatever the clocks of producers say
        before = (table.side == MIRROR) & (table.offset < self._bounds.first)
        old: NDArray[np.bool_] = self._number(table.group[before]) > 0
        if began is not None and times is not None:
            old |= times[table.start].astype(np.int64) < began
        return old

    def _last(self, table: Table, sources: "NDArray[np.bool_]") -> tuple[int, int] | None:
        import numpy as np

        rows = np.flatnonzero((self._known | self._hidden)[self._group])
        if not len(rows):
            return None
        row = rows[self._copy[rows].argmax()]
        mine = table.offset[sources & (table.group == self._group[row])]
        return int(mine.min()), int(self._copy[row])  # of equal ones it may be the first

    def limits(self) -> tuple["NDArray[np.int64]", ...]:
        """Return three sorted lists of offsets, one for each group that has a limit: up to where
        enough copies follow; from where not too many do, for groups of which some are read, and for
        all."""
        import numpy as np

        behind = self._begin + self._copies
        enough = np.flatnonzero(self._needed > 0)
        most = np.flatnonzero(self._known & (self._copies > self._allowed))
        some_read = most[self._read[most] > 0]
        return (
            np.sort(self._copy[(behind - self._needed)[enough]]),
            np.sort(self._copy[(behind - self._allowed - 1)[some_read]] + 1),
            np.sort(self._copy[(behind - self._allowed - 1)[most]] + 1),
        )

    def costs(self, offset: int) -> tuple[int, ...]:
        """Return the numbers of `Continued`, in its order."""
        import numpy as np

        later = self._copy >= offset
        after = self._number(self._group[later])
        newer = self._number(self._group[later & self._is_newer])
        older, all_older = after - newer, self._copies - self._newer
        alone = np.where(self._alone, older, 0)
        repeated = np.where(self._old, alone, np.maximum(alone - (alone == all_older), 0))
        first = self._alone & (all_older == 0)  # of a record that is only newer, one is no repeat
        costs = (
            np.where(self._known, np.maximum(after - self._allowed, 0), 0),
            np.maximum(self._needed - after, 0),
            np.where(self._hidden, older, 0),
            alone,
            np.where(self._alone, all_older - older, 0),
            np.where(self._alone, repeated, 0),
            np.maximum(newer - first, 0),
        )
        return tuple(int(one.sum()) for one in costs)
