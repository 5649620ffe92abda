"""Compare two states of one partition: entries that only one has, entries that differ."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.formats.arrays import int32_values, int64_values, null_mask, one_chunk
from recovery.formats.columns import int64_array
from recovery.state.changelogs.changelog import ChangelogFormat
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ONLY_A, ONLY_B, DIFFERENT = "only_a", "only_b", "different"


class Side(Value):
    """One side's entry."""

    timestamp: int | None
    value: bytes | None


class EntryDifference(Value):
    """An entry that differs between the sides. a, b: None = that side lacks it."""

    kind: str
    key: bytes
    a: Side | None
    b: Side | None


class CompareFound(Value):
    """What a task has compared, as JSON can hold it: see Compared."""

    only_a: int
    only_b: int
    different: int
    found: tuple[EntryDifference, ...]


@dataclass
class Compared:
    """The numbers of differing entries by kind of difference, and the first `most` of them."""

    most: int
    only_a: int = 0
    only_b: int = 0
    different: int = 0
    found: list[EntryDifference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.only_a or self.only_b or self.different)

    def result(self) -> CompareFound:
        """Return the numbers and what was found."""
        return CompareFound(self.only_a, self.only_b, self.different, tuple(self.found))

    def join(self, other: CompareFound) -> None:
        """Add what was compared of the keys that follow."""
        self.only_a += other.only_a
        self.only_b += other.only_b
        self.different += other.different
        self.found += other.found[: self.most - len(self.found)]

    def add(
        self,
        form: ChangelogFormat,
        a: "pa.Table",
        b: "pa.Table",
        *,
        timestamps: bool = True,
    ) -> None:
        """Compare rows of one set of keys: columns timestamp, key and value at least.

        `form` says what identifies an entry. timestamps: whether they count. Raises ValueError if a
        side has an entry twice.
        """
        import numpy as np
        import pyarrow as pa

        ids = pa.chunked_array([one_chunk(form.identity(a)), one_chunk(form.identity(b))])
        number = int32_values(one_chunk(ids).dictionary_encode().indices)
        entries = int(number.max(initial=-1)) + 1
        row_a, row_b = np.full(entries, -1), np.full(entries, -1)
        row_a[number[: len(a)]] = np.arange(len(a))
        row_b[number[len(a) :]] = np.arange(len(b))
        if (row_a >= 0).sum() < len(a) or (row_b >= 0).sum() < len(b):
            raise ValueError("a key is there twice")
        only_a, only_b = row_a[row_b < 0], row_b[row_a < 0]
        both = (row_a >= 0) & (row_b >= 0)
        pair_a, pair_b = row_a[both], row_b[both]
        unequal = _unequal(a.column("value"), b.column("value"), pair_a, pair_b)
        if timestamps:
            unequal |= _unequal_times(a, b, pair_a, pair_b)
        self.only_a += len(only_a)
        self.only_b += len(only_b)
        self.different += int(unequal.sum())
        for kind, at_a, at_b in (
            (ONLY_A, only_a, None),
            (ONLY_B, None, only_b),
            (DIFFERENT, pair_a[unequal], pair_b[unequal]),
        ):
            room = self.most - len(self.found)
            sides_a = None if at_a is None else _sides(a, at_a[:room])
            sides_b = None if at_b is None else _sides(b, at_b[:room])
            for i in range(len(sides_a if sides_a is not None else sides_b or ())):
                key_a = None if sides_a is None else sides_a[i]
                key_b = None if sides_b is None else sides_b[i]
                key = (key_a or key_b or (b"", None))[0]
                self.found.append(
                    EntryDifference(kind, key, key_a and key_a[1], key_b and key_b[1])
                )


def _sides(rows: "pa.Table", at: "NDArray[np.int64]") -> list[tuple[bytes, Side]]:
    chosen = rows.select(["timestamp", "key", "value"]).take(int64_array(at))
    return [(r["key"], Side(r["timestamp"], r["value"])) for r in chosen.to_pylist()]


def _unequal(
    a: "pa.ChunkedArray",
    b: "pa.ChunkedArray",
    at_a: "NDArray[np.int64]",
    at_b: "NDArray[np.int64]",
) -> "NDArray[np.bool_]":
    """Return which values differ, as bool[n]; a null differs from any value."""
    import numpy as np
    import pyarrow as pa

    left, right = one_chunk(a).take(int64_array(at_a)), one_chunk(b).take(int64_array(at_b))
    both = one_chunk(pa.chunked_array([left, right])).dictionary_encode(null_encoding="encode")
    number = int32_values(both.indices)
    unequal: NDArray[np.bool_] = number[: len(left)] != number[len(left) :]
    return unequal


def _unequal_times(
    a: "pa.Table", b: "pa.Table", at_a: "NDArray[np.int64]", at_b: "NDArray[np.int64]"
) -> "NDArray[np.bool_]":
    left, right = _times(a)[at_a], _times(b)[at_b]
    unequal: NDArray[np.bool_] = left != right
    return unequal


def _times(rows: "pa.Table") -> "NDArray[np.int64]":
    import numpy as np

    column = one_chunk(rows.column("timestamp"))
    return np.where(null_mask(column), -1, int64_values(column))
