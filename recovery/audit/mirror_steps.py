"""Pairs of a source and its mirror in small space, and what a map keeps of other records.

A step is a run of pairs in which both offsets rise by one, so an offset inside it is exact. Columns
are packed as differences, compressed: a step of a regular log takes a few bytes.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.formats.columns import NONE
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def packed(columns: Sequence["NDArray[np.int64]"]) -> str:
    """Return columns of equal length as text; `unpacked` is the way back."""
    import numpy as np

    rows = np.diff(np.stack(columns), axis=1, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(rows.tobytes())).decode()


def unpacked(text: str, columns: int) -> "NDArray[np.int64]":
    """Return int64[columns, n]."""
    import numpy as np

    rows = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").reshape(columns, -1)
    return rows.astype(np.int64).cumsum(axis=1)


class Steps(Value):
    """n steps by rising mirror offset: first offsets and numbers of records, int64[n] each."""

    source: "NDArray[np.int64]"
    mirror: "NDArray[np.int64]"
    records: "NDArray[np.int64]"

    @property
    def pairs(self) -> int:
        """Return the number of pairs."""
        return int(self.records.sum())

    @property
    def reach(self) -> int:
        """Return the last source offset of a pair; -1: there is none."""
        return int((self.source + self.records - 1).max(initial=-1))

    def sources(self, mirror: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return the source offset of each mirror offset, int64[n]; -1: it is in no pair."""
        import numpy as np

        if not len(self.mirror):
            return np.full(len(mirror), -1, np.int64)
        at = np.maximum(np.searchsorted(self.mirror, mirror, side="right") - 1, 0)
        behind = mirror - self.mirror[at]
        inside = (behind >= 0) & (behind < self.records[at])
        return np.where(inside, self.source[at] + behind, -1)

    def unread(self, offset: int) -> int:
        """Return the number of pairs whose source offset is `offset` or above."""
        return int((self.records - (offset - self.source).clip(0, self.records)).sum())

    def since(self, mirror: int) -> "Steps":
        """Return the steps without those that end below a mirror offset."""
        kept = self.mirror + self.records > mirror
        return Steps(self.source[kept], self.mirror[kept], self.records[kept])

    def packed(self) -> str:
        return packed([self.source, self.mirror, self.records])

    @classmethod
    def unpacked(cls, text: str) -> "Steps":
        return cls(*unpacked(text, 3))


@dataclass(slots=True)
class PairSteps:
    """Collects the steps of the pairs that a pairing finds."""

    _parts: list[Steps] = field(default_factory=list)

    def see(self, source: "NDArray[np.int64]", mirror: "NDArray[np.int64]") -> None:
        """Add pairs, in any order."""
        import numpy as np

        if not len(source):
            return
        order = np.argsort(mirror)
        source, mirror = source[order], mirror[order]
        new = np.ones(len(source), np.bool_)
        new[1:] = (np.diff(source) != 1) | (np.diff(mirror) != 1)
        first = np.flatnonzero(new)
        records = np.diff(np.append(first, len(source)))
        self._parts.append(Steps(source[first], mirror[first], records))

    def after(self, earlier: Steps) -> Steps:
        """Return these steps and earlier ones together; those that continue another are joined."""
        import numpy as np

        parts = [earlier, *self._parts]
        source, mirror, records = (
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("source", "mirror", "records")
        )
        order = np.argsort(mirror)
        source, mirror, records = source[order], mirror[order], records[order]
        new = np.ones(len(source), np.bool_)
        new[1:] = (source[1:] != (source + records)[:-1]) | (mirror[1:] != (mirror + records)[:-1])
        first = np.flatnonzero(new)
        sums = np.add.reduceat(records, first) if len(first) else records
        return Steps(source[first], mirror[first], sums)


class Rest(Value):
    """n records of the source without a pair, by rising offset.

    offset: int64[n]; digest: uint64[n, 2]; outcome: int8[n], NONE for those that readers get.
    Aborted records are kept for their copies: ABORTED with a copy, OPEN without one yet.
    """

    offset: "NDArray[np.int64]"
    digest: "NDArray[np.uint64]"
    outcome: "NDArray[np.int8]"

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def visible(self) -> "NDArray[np.bool_]":
        """Return which ones a read_committed reader gets."""
        is_visible: NDArray[np.bool_] = self.outcome == NONE
        return is_visible

    def select(self, rows: "NDArray[np.bool_]") -> "Rest":
        return Rest(self.offset[rows], self.digest[rows], self.outcome[rows])

    def packed(self) -> str:
        import numpy as np

        halves = self.digest.view(np.int64)
        return packed([self.offset, halves[:, 0], halves[:, 1], self.outcome.astype(np.int64)])

    @classmethod
    def unpacked(cls, text: str) -> "Rest":
        import numpy as np

        offset, first, second, outcome = unpacked(text, 4)
        digest = np.stack((first, second), axis=1).view(np.uint64)
        return cls(offset, np.ascontiguousarray(digest), outcome.astype(np.int8))


def rest_of(parts: Sequence[Rest]) -> Rest:
    """Return all parts together, by rising offset."""
    import numpy as np

    if not parts:
        nothing = np.zeros(0, np.int64)
        return Rest(nothing, np.zeros((0, 2), np.uint64), nothing.astype(np.int8))
    offset = np.concatenate([p.offset for p in parts])
    order = np.argsort(offset, kind="stable")
    return Rest(
        offset[order],
        np.concatenate([p.digest for p in parts])[order],
        np.concatenate([p.outcome for p in parts])[order],
    )


class Waiting:
    """The visible records of several partitions that have no pair, by half of their digest: an
    equal half is a doubt, and proves nothing."""

    def __init__(self, rests: Sequence[Rest]) -> None:
        import numpy as np

        halves = [rest.digest[rest.visible, 0] for rest in rests]
        half = np.concatenate([np.zeros(0, np.uint64), *halves])
        owner = np.repeat(np.arange(len(halves)), [len(one) for one in halves])
        order = np.argsort(half)
        self._half, self._owner = half[order], owner[order]

    def owners(self, ids: "NDArray[np.uint64]") -> set[int]:
        """Return the numbers of the partitions that have records like these. ids: uint64[n, 2]."""
        import numpy as np

        half = np.unique(ids[:, 0])
        low = np.searchsorted(self._half, half)
        high = np.searchsorted(self._half, half, side="right")
        there = low < high
        return {
            owner
            for begin, end in zip(low[there].tolist(), high[there].tolist(), strict=True)
            for owner in np.unique(self._owner[begin:end]).tolist()
        }
