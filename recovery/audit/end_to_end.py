"""Judge a topic and what was made of it: inputs without an output, with several, or aborted ones.

Records of both sides meet by the digest of their id (`recovery.shared.record_ids`), a bucket of
ids at a time: all records of an id are in one bucket. Of several inputs with one id the first ones
have the outputs, and those without follow.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from recovery.audit.duplicates import SHOWN, Copy, known_time
from recovery.facts import TopicPartition
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INPUT, INPUT_ABORTED, OUTPUT, OUTPUT_OPEN = range(4)
"""Kinds of rows; an output is open while its transaction is, or above the last stable offset."""

FIELDS = [
    ("id", "<u8", 2),
    ("offset", "<i8"),
    ("timestamp", "<i8"),  # ms, NO_TIMESTAMP: none
    ("range", "<i4"),  # number of the partition among all that are read
    ("kind", "<i4"),
]
"""The dtype of a row: one record that has an id."""

NEVER = 2**63 - 1

Kind = Literal["no-output", "repeated", "aborted-input"]


class Reach:
    """Where outputs are, by input partition: the first pass over all buckets.

    inputs, outputs: how many ranges; those of the inputs are numbered first. last: the last input
    that has an output, -1: none has. first: [input range, output range] the first input with an
    output there, NEVER: none. Only ids of one input count: of several, the output may be a later
    one's. rows: how many were added, by range.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        import numpy as np

        self._inputs = inputs
        self.last = np.full(inputs, -1, np.int64)
        self.first = np.full((inputs, outputs), NEVER, np.int64)
        self.rows = np.zeros(inputs + outputs, np.int64)

    def dump(self) -> bytes:
        """Return what `join` takes."""
        return b"".join(part.tobytes() for part in (self.last, self.first, self.rows))

    def join(self, content: bytes) -> None:
        """Add the buckets of another task, of the same ranges."""
        import numpy as np

        numbers = np.frombuffer(content, np.int64)
        first = len(self.last) + self.first.size
        np.maximum(self.last, numbers[: len(self.last)], out=self.last)
        there = numbers[len(self.last) : first].reshape(self.first.shape)
        np.minimum(self.first, there, out=self.first)
        self.rows += numbers[first:]

    def add(self, rows: "NDArray[Any]") -> None:
        """Add a bucket."""
        import numpy as np

        _count(self.rows, rows["range"])
        by_id = _ById(rows, None)
        rows, inputs, outputs = by_id.rows, by_id.of(INPUT), by_id.of(OUTPUT)
        have = inputs & (by_id.place < by_id.count(OUTPUT)[by_id.group])
        np.maximum.at(self.last, rows["range"][have], rows["offset"][have])
        begin = np.full(by_id.groups, -1, np.int64)
        single = by_id.count(INPUT) + by_id.count(INPUT_ABORTED) == 1
        at = np.flatnonzero(inputs & single[by_id.group])
        begin[by_id.group[at]] = at
        made = outputs & (begin[by_id.group] >= 0)
        source = rows[begin[by_id.group[made]]]
        where = source["range"], rows["range"][made] - self._inputs
        np.minimum.at(self.first, where, source["offset"])

    def proven_after(self, cut_off: "NDArray[np.bool_]") -> "NDArray[np.int64]":
        """Return for each input range the offset after which a missing output cannot be one that
        is only deleted: outputs of a partition come in its order.

        cut_off: bool[outputs], those that do not begin at their log's first record.
        """
        import numpy as np

        if not cut_off.any():
            return np.full(len(self.last), -1, np.int64)
        after: NDArray[np.int64] = self.first[:, cut_off].max(axis=1)
        return after


class Cut(Value):
    """What each input partition must have brought, by range of the inputs.

    ends: inputs from this offset on may still wait. proven_after: see `Reach.proven_after`.
    known_to: by range of the outputs: no input that was not read can have the id of an output
    before this offset.
    """

    ends: "NDArray[np.int64]"
    proven_after: "NDArray[np.int64]"
    known_to: "NDArray[np.int64]"


class Found(NamedTuple):
    """One id that did not come through once.

    kind: no-output, repeated, or aborted-input: an output of an input that was aborted. records:
    inputs without an output, or outputs too many. proven: False if a missing output may be deleted,
    or if an input that was not read may have the id.
    inputs, outputs: the first of each.
    """

    kind: Kind
    records: int
    proven: bool
    inputs: tuple[Copy, ...]
    outputs: tuple[Copy, ...]


class Counts(Value):
    """Numbers of rows, by range.

    Of inputs: lost, unproven (may be deleted), pending (their output is in an open transaction),
    behind (at or above the cut). Of outputs: repeated, from_aborted, doubtful (either, unless an
    input that was not read has the id), and unknown: no input of these ranges has the id. rows: all
    that were judged.
    """

    lost: tuple[int, ...]
    unproven: tuple[int, ...]
    pending: tuple[int, ...]
    behind: tuple[int, ...]
    repeated: tuple[int, ...]
    from_aborted: tuple[int, ...]
    doubtful: tuple[int, ...]
    unknown: tuple[int, ...]
    rows: tuple[int, ...]


COUNTED = tuple(Counts.__struct_fields__)


class Verdicts(Value):
    """What was judged. findings: ids with a proven finding. found: the first findings, proven ones
    before others, in the order of their first inputs."""

    found: tuple[Found, ...]
    findings: int
    counts: Counts


class Judged:
    """The second pass over all buckets. most: findings that are kept; all are counted."""

    def __init__(self, places: Sequence[TopicPartition], cut: Cut, most: int) -> None:
        import numpy as np

        self._places, self._cut, self._most = places, cut, most
        self._found: list[Found] = []
        self._findings = 0
        self._counts = {name: np.zeros(len(places), np.int64) for name in COUNTED}

    @property
    def verdicts(self) -> Verdicts:
        """Return what was judged so far."""
        counts = Counts(*(tuple(self._counts[name].tolist()) for name in COUNTED))
        return Verdicts(tuple(self._found), self._findings, counts)

    def dump(self) -> bytes:
        """Return what `join` takes."""
        return msgspec.json.encode(self.verdicts)

    def join(self, content: bytes) -> None:
        """Add the buckets of another task, of the same ranges and cut."""
        other = msgspec.json.decode(content, type=Verdicts)
        for name, counts in self._counts.items():
            counts += getattr(other.counts, name)
        self._findings += other.findings
        self._keep(other.found)

    def _keep(self, found: Iterable[Found]) -> None:
        each = [*self._found, *found]
        self._found = sorted(each, key=lambda f: (not f.proven, f.inputs[0][:3]))[: self._most]

    def add(self, rows: "NDArray[Any]") -> None:
        """Add a bucket."""
        import numpy as np

        by_id = _ById(rows, self._cut.ends)
        rows, group, place = by_id.rows, by_id.group, by_id.place
        made = by_id.count(OUTPUT)[group]
        open_ = by_id.count(OUTPUT_OPEN)[group]
        given, aborted = by_id.count(INPUT)[group], by_id.count(INPUT_ABORTED)[group]
        without = by_id.of(INPUT) & (place >= made)
        due = without & by_id.due
        gone = due & (place >= made + open_)
        proven = gone.copy()
        proven[gone] = rows["offset"][gone] > self._cut.proven_after[rows["range"][gone]]
        outputs = by_id.of(OUTPUT)
        repeated = outputs & (given > 0) & (place >= given)
        from_aborted = outputs & (given == 0) & (aborted > 0)
        known = np.zeros(len(rows), np.bool_)
        made_in = rows["range"][outputs] - len(self._cut.ends)
        known[outputs] = rows["offset"][outputs] < self._cut.known_to[made_in]
        for name, chosen in (
            ("lost", proven),
            ("unproven", gone & ~proven),
            ("pending", due & ~gone),
            ("behind", without & ~by_id.due),
            ("repeated", repeated),
            ("from_aborted", from_aborted),
            ("doubtful", (repeated | from_aborted) & ~known),
            ("unknown", outputs & (given == 0) & (aborted == 0)),
            ("rows", np.ones(len(rows), np.bool_)),
        ):
            _count(self._counts[name], rows["range"][chosen])
        found: list[tuple[Kind, NDArray[np.bool_]]] = [
            ("no-output", gone),
            ("repeated", repeated),
            ("aborted-input", from_aborted),
        ]
        for kind, chosen in found:
            shown = chosen & (proven if kind == "no-output" else known)
            self._keep(by_id.found(kind, chosen, shown, self._places, self._most))
            self._findings += by_id.ids_of(shown)


def _count(counts: "NDArray[np.int64]", ranges: "NDArray[np.int32]") -> None:
    import numpy as np

    counts += np.bincount(ranges, minlength=len(counts))


class _ById:
    """A bucket's rows sorted by id, kind and place; inputs before the cut are first of theirs.

    group: the number of each row's id. place: the row's number among those of its id and kind.
    due: inputs before the cut.
    """

    def __init__(self, rows: "NDArray[Any]", ends: "NDArray[np.int64] | None") -> None:
        import numpy as np

        due = np.ones(len(rows), np.bool_)
        if ends is not None:
            inputs = rows["kind"] == INPUT
            due[inputs] = rows["offset"][inputs] < ends[rows["range"][inputs]]
        one, two = rows["id"][:, 0], rows["id"][:, 1]
        order = np.lexsort((rows["offset"], rows["range"], ~due, rows["kind"], two, one))
        self.rows, self.due = rows[order], due[order]
        ids = self.rows["id"]
        new = np.ones(len(rows), np.bool_)
        new[1:] = (ids[1:] != ids[:-1]).any(axis=1)
        self.group = np.cumsum(new) - 1
        self.groups = int(new.sum())
        new[1:] |= self.rows["kind"][1:] != self.rows["kind"][:-1]
        numbers = np.arange(len(rows))
        self.place = numbers - np.maximum.accumulate(np.where(new, numbers, 0))

    def of(self, kind: int) -> "NDArray[np.bool_]":
        """Return which rows are of a kind."""
        chosen: NDArray[np.bool_] = self.rows["kind"] == kind
        return chosen

    def count(self, kind: int) -> "NDArray[np.int64]":
        """Return the number of rows of a kind, by group."""
        import numpy as np

        return np.bincount(self.group[self.of(kind)], minlength=self.groups)

    def ids_of(self, chosen: "NDArray[np.bool_]") -> int:
        """Return how many ids have chosen rows."""
        import numpy as np

        return len(np.unique(self.group[chosen]))

    def found(
        self,
        kind: Kind,
        chosen: "NDArray[np.bool_]",
        proven: "NDArray[np.bool_]",
        places: Sequence[TopicPartition],
        most: int,
    ) -> Iterator[Found]:
        """Yield the first findings of the ids that have chosen rows: see `Judged`."""
        import numpy as np

        unproven = np.bincount(self.group[chosen & ~proven], minlength=self.groups) > 0
        groups = np.unique(self.group[chosen])
        first = self.rows[np.searchsorted(self.group, groups)]  # inputs come before outputs
        order = np.lexsort((first["offset"], first["range"], unproven[groups]))
        for number in groups[order[:most]].tolist():
            begin, end = np.searchsorted(self.group, [number, number + 1]).tolist()
            here = slice(begin, end)
            rows = self.rows[here]
            given = (INPUT, INPUT_ABORTED)
            yield Found(
                kind,
                int(chosen[here].sum()),
                not unproven[number],
                _copies(rows[np.isin(rows["kind"], given)], places),
                _copies(rows[~np.isin(rows["kind"], given)], places),
            )


def _copies(rows: "NDArray[Any]", places: Sequence[TopicPartition]) -> tuple[Copy, ...]:
    return tuple(
        Copy(*places[int(row["range"])], int(row["offset"]), known_time(int(row["timestamp"])))
        for row in rows[:SHOWN]
    )
