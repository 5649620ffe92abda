"""Find duplicate records: suspects by a Bloom filter, then the exact places of the suspects only.

Ids are compared as digests of 16 bytes (`recovery.shared.record_ids`). The first pass keeps one
Bloom filter, 10 to 20 bits per record, and remembers ids that it may have seen before. The second
pass reads the same records again and keeps only the places of those ids. A false positive of the
filter has only one place and is no finding.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from recovery.dedup.seen_ids import Bloom
from recovery.facts import TopicPartition
from recovery.formats.columns import NO_TIMESTAMP, ColumnBatch
from recovery.shared.record_ids import RecordId, digests, id_bytes, value_digests
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 10
"""Places that are kept per id; all are counted."""
LONGEST_ID = 1024
"""Bytes; of longer ids only the length is kept."""


class Suspects:
    """The first pass. expected: the maximum number of records (offsets)."""

    def __init__(self, expected: int) -> None:
        self._bloom = Bloom(expected)
        self._found: set[bytes] = set()

    def add(self, ids: "NDArray[np.uint64]") -> None:
        """Add ids, uint64[n, 2]; records without an id are left out."""
        import numpy as np

        if not len(ids):
            return
        names, first, count = np.unique(_names(ids), return_index=True, return_counts=True)
        before = self._bloom.may_hold(ids[first])
        self._found |= {name.tobytes() for name in names[before | (count > 1)]}
        self._bloom.add(ids[first])

    def halves(self) -> "NDArray[np.uint64]":
        """Return the first halves of ids that may occur more than once: uint64[m], ascending."""
        import numpy as np

        whole = np.frombuffer(b"".join(self._found), np.uint64).reshape(-1, 2)
        return np.unique(whole[:, 0])


def among(halves: "NDArray[np.uint64]", ids: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Return which ids are suspects or share their first half with one: bool[n]."""
    import numpy as np

    if not len(halves):
        return np.zeros(len(ids), np.bool_)
    at = np.minimum(np.searchsorted(halves, ids[:, 0]), len(halves) - 1)
    suspected: NDArray[np.bool_] = halves[at] == ids[:, 0]
    return suspected


def _names(ids: "NDArray[np.uint64]") -> "NDArray[np.void]":
    import numpy as np

    return np.ascontiguousarray(ids).view("V16")[:, 0]


class Copy(NamedTuple):
    """One record. timestamp: ms, None if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None


class Suspect(Value):
    """A record whose id may occur more than once. digest: of the id. id: None if it is too long
    to be shown; size: length of the id in bytes. value_digest: of key and value."""

    digest: bytes
    id: bytes | None
    size: int
    copy: Copy
    value_digest: int


def suspects_of(
    by: RecordId, partition: TopicPartition, records: ColumnBatch, halves: "NDArray[np.uint64]"
) -> Iterator[Suspect]:
    """Return the suspects among the records of a partition. Raises the errors of `digests`."""
    ids, has = digests(by, records)
    rows = (has & among(halves, ids)).nonzero()[0]
    part, names = records.select(rows), ids[rows].tobytes()
    columns = zip(
        id_bytes(by, part),
        part.offset.tolist(),
        part.timestamp.tolist(),
        value_digests(part).tolist(),
        strict=True,
    )
    for number, (identity, offset, timestamp, value) in enumerate(columns):
        assert identity is not None
        yield Suspect(
            names[16 * number : 16 * number + 16],
            identity if len(identity) <= LONGEST_ID else None,
            len(identity),
            Copy(*partition, offset, known_time(timestamp)),
            value,
        )


def _decoded(value: object) -> object:
    return base64.b64decode(value) if isinstance(value, str) else value


Base64 = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(lambda value: base64.b64encode(value).decode(), when_used="json"),
]
"""Bytes, encoded as base64 in JSON."""


class Duplicate(NamedTuple):
    """An id that several records have. id, size: see Suspect. partitions: how many contain it.

    nearest, farthest: distance in offsets between two copies in one partition, None if no partition
    has two. oldest, newest: ms.
    """

    id: Base64 | None
    size: int
    copies: int
    same_value: bool
    partitions: int
    first_copies: tuple[Copy, ...]
    nearest: int | None
    farthest: int | None
    oldest: int | None
    newest: int | None


class _Same:
    """All records of one id. first: the first record."""

    def __init__(self, first: Suspect) -> None:
        self._first = first
        self.copies = 0
        self._same_value = True
        self._first_copies: list[Copy] = []
        self._nearest: int | None = None
        self._farthest: int | None = None
        self._times: tuple[int, int] | None = None
        self._ends: dict[TopicPartition, tuple[int, int]] = {}

    def add(self, one: Suspect) -> None:
        """Add a record; those of a partition come in ascending order of offset."""
        copy = one.copy
        self.copies += 1
        self._same_value &= one.value_digest == self._first.value_digest
        if len(self._first_copies) < SHOWN:
            self._first_copies.append(copy)
        where = TopicPartition(copy.topic, copy.partition)
        begin, last = self._ends.get(where, (copy.offset, copy.offset))
        if last < copy.offset:
            near, far = copy.offset - last, copy.offset - begin
            self._nearest = near if self._nearest is None else min(self._nearest, near)
            self._farthest = far if self._farthest is None else max(self._farthest, far)
        self._ends[where] = begin, copy.offset
        if copy.timestamp is not None:
            oldest, newest = self._times or (copy.timestamp, copy.timestamp)
            self._times = min(oldest, copy.timestamp), max(newest, copy.timestamp)

    def finding(self) -> Duplicate:
        oldest, newest = self._times or (None, None)
        return Duplicate(
            id=self._first.id,
            size=self._first.size,
            copies=self.copies,
            same_value=self._same_value,
            partitions=len(self._ends),
            first_copies=tuple(self._first_copies),
            nearest=self._nearest,
            farthest=self._farthest,
            oldest=oldest,
            newest=newest,
        )


class Copies:
    """The second pass: the places of suspects. most: duplicates that are kept; all are counted.

    findings: ids of more than one record; repeats: records other than the first of their id. Both
    count ended ids only.
    """

    def __init__(self, most: int) -> None:
        self._same: dict[bytes, _Same] = {}
        self._most = most
        self._found: list[Duplicate] = []
        self.findings = self.repeats = 0

    def add(self, one: Suspect) -> None:
        """Add a suspect; those of a partition come in ascending order of offset."""
        if one.digest not in self._same:
            self._same[one.digest] = _Same(one)
        self._same[one.digest].add(one)

    def end(self) -> None:
        """End the ids added so far: no more of their records follow."""
        for same in self._same.values():
            if same.copies > 1:
                self.findings += 1
                self.repeats += same.copies - 1
                self._found.append(same.finding())
                if len(self._found) >= 2 * self._most:
                    self._found = first(self._found, self._most)
        self._same = {}

    def duplicates(self) -> list[Duplicate]:
        """Return the first `most` of the ended ids."""
        return first(self._found, self._most)


def first(duplicates: Iterable[Duplicate], most: int) -> list[Duplicate]:
    """Return the duplicates with the most copies first, then in order of their first place."""
    return sorted(duplicates, key=lambda d: (-d.copies, d.first_copies[0][:3]))[:most]


def known_time(timestamp: int) -> int | None:
    """Return None for Kafka's -1, else the timestamp."""
    return None if timestamp == NO_TIMESTAMP else timestamp
