"""Records that are the same: suspects by a Bloom filter, then exact places of the suspects alone.

An id is compared as a digest of 16 bytes (`recovery.combine.record_ids`). The first pass keeps one
Bloom filter, 10 to 20 bits per record, and remembers ids that it may have seen before; the second
reads the same records again and keeps what it finds of those, nothing of the others. What the
filter suspects without cause has one place and is no finding.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from recovery.combine.seen_ids import Bloom
from recovery.formats.columns import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 10
"""Places that are kept of each id; all are counted."""


class Suspects:
    """The first pass. expected: how many records at most (offsets)."""

    def __init__(self, expected: int) -> None:
        self._bloom = Bloom(expected)
        self._found: set[bytes] = set()
        self._halves: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self._found)

    def add(self, ids: "NDArray[np.uint64]") -> None:
        """ids: uint64[n, 2], of records with an id."""
        import numpy as np

        if not len(ids):
            return
        names, first, count = np.unique(_names(ids), return_index=True, return_counts=True)
        before = self._bloom.may_hold(ids[first])
        self._found |= {name.tobytes() for name in names[before | (count > 1)]}
        self._bloom.add(ids[first])

    def among(self, ids: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
        """bool[n]: which ids may stand more than once. After the last `add`."""
        import numpy as np

        if self._halves is None:
            whole = np.frombuffer(b"".join(self._found), np.uint64).reshape(-1, 2)
            self._halves = np.sort(whole[:, 0])
        if not len(self._halves):
            return np.zeros(len(ids), np.bool_)
        at = np.minimum(np.searchsorted(self._halves, ids[:, 0]), len(self._halves) - 1)
        suspected: NDArray[np.bool_] = self._halves[at] == ids[:, 0]
        return suspected


def _names(ids: "NDArray[np.uint64]") -> "NDArray[np.void]":
    import numpy as np

    return np.ascontiguousarray(ids).view("V16")[:, 0]


class Copy(NamedTuple):
    """One record. timestamp: ms, None where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None


@dataclass(slots=True)
class Same:
    """All records of one id. id: as it stands in the first; nearest, farthest: offsets, within a
    partition, None while no partition has two."""

    id: bytes
    value_digest: int
    copies: int = 0
    same_value: bool = True
    places: list[Copy] = field(default_factory=list)
    nearest: int | None = None
    farthest: int | None = None
    oldest: int | None = None
    newest: int | None = None
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, copy: Copy, value_digest: int) -> None:
        """One more; each partition's by rising offset."""
        self.copies += 1
        self.same_value &= value_digest == self.value_digest
        if len(self.places) < SHOWN:
            self.places.append(copy)
        where = copy.topic, copy.partition
        first, last = self.ends.get(where, (copy.offset, copy.offset))
        if last < copy.offset:
            near, far = copy.offset - last, copy.offset - first
            self.nearest = near if self.nearest is None else min(self.nearest, near)
            self.farthest = far if self.farthest is None else max(self.farthest, far)
        self.ends[where] = first, copy.offset
        if copy.timestamp is not None:
            times = [t for t in (self.oldest, self.newest, copy.timestamp) if t is not None]
            self.oldest, self.newest = min(times), max(times)


class Copies:
    """The second pass: the places of the suspects."""

    def __init__(self) -> None:
        self._same: dict[bytes, Same] = {}

    def add(self, digest: bytes, identity: bytes, copy: Copy, value_digest: int) -> None:
        """A record of a suspect; each partition's by rising offset."""
        if digest not in self._same:
            self._same[digest] = Same(identity, value_digest)
        self._same[digest].add(copy, value_digest)

    def duplicates(self) -> list[Same]:
        """Ids that more than one record has, the most copies first, then by the first place."""
        found = [same for same in self._same.values() if same.copies > 1]
        return sorted(found, key=lambda same: (-same.copies, same.places[0][:3]))


def known_time(timestamp: int) -> int | None:
    """None for Kafka's -1."""
    return None if timestamp == NO_TIMESTAMP else timestamp
