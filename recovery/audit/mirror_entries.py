"""Keep records as digests: lists of them, sums per key range, and matching rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recovery.shared.record_digests import KEY_RANGES
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Entries(Value):
    """n records in ascending order of offset. digest: uint64[n, 2]; offset, key_range: int64[n]."""

    digest: "NDArray[np.uint64]"
    offset: "NDArray[np.int64]"
    key_range: "NDArray[np.int64]"

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, rows: "NDArray[np.bool_]") -> "Entries":
        return Entries(self.digest[rows], self.offset[rows], self.key_range[rows])


def joined(parts: Sequence[Entries]) -> Entries:
    """Return all parts joined, in the given order."""
    import numpy as np

    if not parts:
        none = np.zeros(0, np.int64)
        return Entries(np.zeros((0, 2), np.uint64), none, none)
    return Entries(
        np.concatenate([p.digest for p in parts]),
        np.concatenate([p.offset for p in parts]),
        np.concatenate([p.key_range for p in parts]),
    )


class RangeSums:
    """The records of each key range: their number and the sum of their digests (mod 2^64)."""

    def __init__(self) -> None:
        import numpy as np

        self.count = np.zeros(KEY_RANGES + 1, np.int64)
        self.sums = np.zeros((KEY_RANGES + 1, 2), np.uint64)

    def add(self, entries: Entries) -> None:
        import numpy as np

        self.count += np.bincount(entries.key_range, minlength=KEY_RANGES + 1)
        np.add.at(self.sums, entries.key_range, entries.digest)

    def take_away(self, entries: Entries) -> None:
        import numpy as np

        self.count -= np.bincount(entries.key_range, minlength=KEY_RANGES + 1)
        np.subtract.at(self.sums, entries.key_range, entries.digest)

    def text(self, number: int | None = None) -> str:
        """Return the digest of one range, or of all, as 32 hexadecimal digits."""
        import numpy as np

        totals = self.sums.sum(axis=0, dtype=np.uint64) if number is None else self.sums[number]
        return "".join(f"{half:016x}" for half in totals.tolist())


def matched(
    source: "NDArray[np.uint64]", mirror: "NDArray[np.uint64]"
) -> tuple["NDArray[np.intp]", "NDArray[np.intp]"]:
    """Return the matching rows of two digest lists, uint64[n, 2]: equal digests pair in order."""
    import numpy as np

    n = len(source)
    whole = np.concatenate((source, mirror))
    if not n or n == len(whole):
        none = np.zeros(0, np.intp)
        return none, none
    order = np.argsort(whole[:, 0], kind="stable")  # the source's rows before the mirror's
    low = whole[order]
    if ((low[1:, 0] == low[:-1, 0]) & (low[1:, 1] != low[:-1, 1])).any():
        order = np.lexsort((whole[:, 1], whole[:, 0]))
    group, start = groups(whole[order])
    theirs = order >= n
    sources = np.bincount(group[~theirs], minlength=len(start))
    mirrors = np.bincount(group[theirs], minlength=len(start))
    nth = np.arange(len(order)) - start[group]
    nth[theirs] -= sources[group[theirs]]
    paired = nth < np.minimum(sources, mirrors)[group]
    return order[paired & ~theirs], order[paired & theirs] - n


def groups(
    digests: "NDArray[np.uint64]",
) -> tuple["NDArray[np.intp]", "NDArray[np.intp]"]:
    """Return the group number of each sorted digest, and where each group begins."""
    import numpy as np

    new = np.ones(len(digests), np.bool_)
    new[1:] = (digests[1:] != digests[:-1]).any(axis=1)
    return np.cumsum(new) - 1, np.flatnonzero(new)


def among(digests: "NDArray[np.uint64]", sought: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Return which of the digests are in `sought`: bool[n]."""
    import numpy as np

    members = np.zeros(len(digests), np.bool_)
    if len(digests) and len(sought):
        first = np.sort(sought[:, 0])
        at = np.minimum(np.searchsorted(first, digests[:, 0]), len(first) - 1)
        rows = np.flatnonzero(first[at] == digests[:, 0])
        whole = {half.tobytes() for half in sought[np.isin(sought[:, 0], digests[rows, 0])]}
        members[rows] = [one.tobytes() in whole for one in digests[rows]]
    return members
