"""Find the places, in both logs, of unpaired records, and keep a few of them to show.

Both logs are read again for the digests of those records alone; `mirror_table` judges them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.mirror_entries import among, groups
from recovery.audit.mirror_pairs import MOST, Translated
from recovery.audit.mirror_table import (
    FIELDS,
    MIRROR,
    SOURCE,
    SOURCE_ABORTED,
    SOURCE_OPEN,
    MirrorFault,
    MirrorJudgement,
    Outside,
    Table,
)
from recovery.errors import IncompleteError
from recovery.formats.columns import ABORTED, LAST_OFFSET, OPEN, ColumnBatch
from recovery.shared.record_digests import field_digests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 10_000
"""Differing records per log whose key and timestamp are kept to be shown."""
MOST_UNMATCHED = 3 * MOST
"""A repeat has three: source, first copy, itself. Some 80 bytes each, 210 while judged."""


@dataclass(slots=True)
class UnmatchedRecords:
    """The places of the records with the given digests.

    wanted: uint64[n, 2], from `sorted_digests`. compared: the FIELDS that count. most: places that
    are kept. keys, times: by (0 for the source or 1 for the mirror, offset).
    """

    wanted: "NDArray[np.uint64]"
    compared: tuple[str, ...] = FIELDS
    most: int = MOST_UNMATCHED
    keys: dict[tuple[int, int], bytes] = field(default_factory=dict)
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    _parts: list[tuple["NDArray[np.uint64]", ...]] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0, 0])  # in the source, in the mirror

    def add_source(self, digests: "NDArray[np.uint64]", records: ColumnBatch, stable: int) -> None:
        """Add the source's next records. stable: its last stable offset.

        Raises IncompleteError if there are more places than can be kept, as does add_mirror.
        """
        import numpy as np

        side = np.where(records.offset >= stable, SOURCE_OPEN, SOURCE)
        outcome = records.outcome
        side[outcome == OPEN] = SOURCE_OPEN
        side[outcome == ABORTED] = SOURCE_ABORTED
        self._add(digests, records, side, 0)

    def add_mirror(self, digests: "NDArray[np.uint64]", records: ColumnBatch) -> None:
        """Add the mirror's next visible records."""
        import numpy as np

        self._add(digests, records, np.full(len(records), MIRROR), 1)

    def _add(
        self,
        digests: "NDArray[np.uint64]",
        records: ColumnBatch,
        side: "NDArray[np.int64]",
        log: int,
    ) -> None:
        import numpy as np

        rows = np.flatnonzero(among(digests, self.wanted))
        if not len(rows):
            return
        chosen, side = records.select(rows), side[rows]
        for i in range(min(len(rows), SHOWN - self._counts[log])):
            log_offset = log, int(chosen.offset[i])
            self.times[log_offset] = int(chosen.timestamp[i])
            if (key := chosen.key[i]) is not None:
                self.keys[log_offset] = key
        self._counts[log] += len(rows)
        if sum(self._counts) > self.most:
            raise IncompleteError(
                f"more than {self.most:,} places of records that differ or equal such ones, "
                "too many to tell apart",
                remedy="wait until the mirror has caught up, or begin later with --start",
            )
        columns = (
            chosen.offset,
            side,
            chosen.timestamp,
            field_digests(chosen.key),
            field_digests(chosen.value),
            field_digests(chosen.headers),
        )
        self._parts.append((digests[rows], *(c.astype(np.uint64) for c in columns)))

    def hidden(self, mirror: int) -> int:
        """Return the highest source offset of an aborted or open record with a copy above offset
        `mirror` of the mirror; -1 if there is none."""
        table = self.table()
        return -1 if table is None else table.hidden(mirror)

    def judge(
        self,
        translated: Sequence[Translated],
        source: tuple[int, int] = (0, LAST_OFFSET),
        mirror: int = 0,
        outside: Outside = Outside(),
        *,
        most: int,
        excused: Collection[MirrorFault] = (),
    ) -> MirrorJudgement:
        """Return the differences, and correct the counts of the translated offsets.

        source: what the mirror can hold, [start, end). mirror: its first offset that the source can
        hold. outside: the records outside these ranges that may explain a difference. All
        differences are counted; the first `most` are returned, without the kinds in `excused`.
        """
        table = self.table()
        if table is None:
            return MirrorJudgement({}, [], False)
        for one in translated:
            table.correct(one)
        return table.judged(source, mirror, outside, most, excused)

    def table(self) -> Table | None:
        """Return all places of these records; None if there are none."""
        import numpy as np

        if not self._parts:
            return None
        digest, offset, side, time, *fields = (
            np.concatenate(columns) for columns in zip(*self._parts, strict=True)
        )
        order = np.lexsort((offset, side, digest[:, 1], digest[:, 0]))
        group, start = groups(digest[order])
        return Table(
            group,
            start,
            offset[order].astype(np.int64),
            side[order].astype(np.int64),
            {
                name: column[order]
                for name, column in zip(FIELDS, (time, *fields), strict=True)
                if name in self.compared
            },
        )


def sorted_digests(digests: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """Return each digest once, in the order that `UnmatchedRecords` needs."""
    import numpy as np

    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))]
    return ordered[groups(ordered)[1]]
