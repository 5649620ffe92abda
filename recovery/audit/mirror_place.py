"""Find the offset in a mirror at which a group of the source continues.

A record with several copies counts as read only before all of them that the group does not need,
and as left out only if too few follow. What a group has read must be before its offset, what it has
not read must follow. Pairs that occur once on each side are seen while both logs are paired; the
others are in the table of unmatched records.
"""

from collections.abc import Iterator
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
    records that the source has deleted.
    """

    offset: int
    again: int
    left: int
    hidden: int
    new: int
    only_before: int
    repeated: int


class Place(Value):
    """Where a group can continue in the mirror.

    exact: the offset before which all is that the group has read, and after which all is that it
    has not; of several, the one from which the fewest records come twice. None: there is no such
    offset, but a range. earliest: its end from which nothing is left out; latest: its end from
    which nothing comes again that was read. lost: unread records that the mirror lacks, though it
    has later ones. next_source: the source offset that the mirror copies next; None: it has no
    copy. reach: after the last source record with one.
    """

    exact: Continued | None
    earliest: Continued
    latest: Continued
    lost: int
    next_source: int | None
    reach: int


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
    have been.
    """

    reach: int
    first: int
    end: int
    began: int | None
    timed: bool
    compacted: bool


def placed(around: Around, table: Table | None, bounds: Bounds) -> Place:
    """Return where the group continues. table: the unmatched records; None: there are none."""
    import numpy as np

    groups = [] if table is None else list(_groups(table, around.offset, bounds))
    mine = np.zeros(0, np.int64) if table is None else table.offset[table.side == SOURCE]
    read, unread = around.mirror_offsets(mine)
    earliest = min([bounds.end, *unread[:1].tolist(), *(g.earliest for g in groups if g.needed)])
    latest = max([bounds.first, *(read[-1:] + 1).tolist(), *(g.latest for g in groups if g.read)])
    once = max([latest, *(g.latest for g in groups)])  # from here on nothing comes twice
    copied = [
        (int(g.copies[-1]), g.last_source)
        for g in groups
        if g.last_source is not None and len(g.copies)
    ]
    if around.last is not None:
        copied.append((around.last[1], around.last[0]))

    def at(offset: int) -> Continued:
        alone = [g for g in groups if g.last_source is None]
        return Continued(
            offset=offset,
            again=int((read >= offset).sum()) + sum(g.again(offset) for g in groups),
            left=int((unread < offset).sum()) + sum(g.left(offset) for g in groups),
            hidden=sum(g.after(offset) for g in groups if g.hidden),
            new=sum(g.after(offset) for g in alone),
            only_before=sum(len(g.copies) - g.after(offset) for g in alone),
            repeated=sum(g.repeated(offset, bounds) for g in alone),
        )

    return Place(
        exact=at(min(once, earliest)) if latest <= earliest else None,
        earliest=at(earliest),
        latest=at(latest),
        lost=sum(g.lost for g in groups),
        next_source=max(copied)[1] + 1 if copied else None,
        reach=bounds.reach + 1,
    )


@dataclass(slots=True)
class _Group:
    """Equal records. copies: their mirror offsets, rising. read: the group has read some.

    needed: copies that the group must still read; allowed: those that it may. They differ where
    the mirror lacks some of several equal records and nobody can say which. lost: unread records
    without a copy. last_source: the last source offset; None: the source has none. hidden: it has
    only aborted or open ones. time: timestamp (ms), None if not compared.
    """

    copies: "NDArray[np.int64]"
    read: bool
    needed: int
    allowed: int
    lost: int
    last_source: int | None
    hidden: bool
    time: int | None

    @property
    def _counts(self) -> bool:
        return self.last_source is not None and not self.hidden

    @property
    def earliest(self) -> int:
        return int(self.copies[-self.needed])

    @property
    def latest(self) -> int:
        """Return the first offset after which no copy is too many; -1: any."""
        if not self._counts or len(self.copies) <= self.allowed:
            return -1
        return int(self.copies[-self.allowed - 1]) + 1

    def after(self, offset: int) -> int:
        return int((self.copies >= offset).sum())

    def again(self, offset: int) -> int:
        return max(0, self.after(offset) - self.allowed) if self._counts else 0

    def left(self, offset: int) -> int:
        return max(0, self.needed - self.after(offset))

    def repeated(self, offset: int, bounds: Bounds) -> int:
        """Return how many copies from `offset` on may be of records that the source deleted."""
        after = self.after(offset)
        old = bounds.began is not None and (self.time is None or self.time < bounds.began)
        if old or bounds.compacted:
            return after
        return max(0, after - (after == len(self.copies)))


def _groups(table: Table, offset: int, bounds: Bounds) -> Iterator[_Group]:
    """Yield the groups of equal records that are in the mirror, or that it should have."""
    ends = [*table.start[1:].tolist(), len(table.group)]
    times = table.fields.get("timestamp")
    for start, end in zip(table.start.tolist(), ends, strict=True):
        offsets, sides = table.offset[start:end], table.side[start:end]
        copies = offsets[sides == MIRROR]
        mine = offsets[(sides == SOURCE) & (offsets <= bounds.reach)]
        concealed = offsets[(sides == SOURCE_ABORTED) | (sides == SOURCE_OPEN)]
        if not len(mine):
            copies = copies[copies >= bounds.first]
        n, c = len(mine), len(copies)
        unread = int((mine >= offset).sum())
        read = n - unread
        sources = mine if n else concealed
        if not n and not c:
            continue
        yield _Group(
            copies=copies,
            read=read > 0,
            needed=min(unread, c),
            allowed=min(unread, max(c - read, 0)),
            lost=min(unread, max(0, n - c)),
            last_source=int(sources[-1]) if len(sources) else None,
            hidden=not n and len(concealed) > 0,
            time=None if times is None else int(times[start]),
        )
