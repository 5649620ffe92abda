"""The digest of a state: equal from every engine, whatever the order of its rows.

row = i32 partition | i32 length + key | i64 timestamp (ms) | i32 length + value, big-endian, a
null's length -1, a null timestamp -1. Digest = the number of rows and the sum of the rows' SHA-256,
read as unsigned big-endian integers, modulo 2^256. It finds errors but does not detect forgery.
"""

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from recovery.formats.arrays import binary_parts, filled, int64_values, null_mask, one_chunk
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_MODULUS = 1 << 256
_SLICE = 1 << 16  # rows joined at once


class Digest(Value):
    """The number of rows, and the sum of their hashes modulo 2^256."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Self) -> "Digest":
        return Digest(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    @property
    def hex(self) -> str:
        """Return the sum as 64 hexadecimal digits."""
        return f"{self.total:064x}"

    @classmethod
    def of(cls, rows: int, text: str) -> "Digest":
        """Return the digest with these `rows` and this `hex`."""
        return cls(rows, int(text, 16))

    @classmethod
    def sum(cls, parts: Iterable["Digest"]) -> "Digest":
        total = Digest()
        for part in parts:
            total += part
        return total


def digest(partition: int, rows: "pa.Table | pa.RecordBatch") -> Digest:
    """Return the digest of rows with columns timestamp, key and value."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # A scalar made by pa.scalar would load pandas.
    empty = [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")]
    separator = pa.Array.from_buffers(pa.large_binary(), 1, empty)[0]
    total = Digest()
    for low in range(0, len(rows), _SLICE):
        part = rows.slice(low, _SLICE)
        key, value = one_chunk(part.column("key")), one_chunk(part.column("value"))
        times = one_chunk(part.column("timestamp"))
        timestamp = np.where(null_mask(times), -1, int64_values(times))
        head = fixed_width([("partition", ">i4"), ("length", ">i4")], [partition, lengths(key)])
        middle = fixed_width([("timestamp", ">i8"), ("length", ">i4")], [timestamp, lengths(value)])
        whole = pc.binary_join_element_wise(head, filled(key), middle, filled(value), separator)
        total += _sum(whole)
    return total


def lengths(column: "pa.Array") -> "NDArray[np.int64]":
    """Return the lengths in a large_binary array as int64[n], -1 for null."""
    import numpy as np

    _, edges = binary_parts(column)
    return np.where(null_mask(column), -1, np.diff(edges))


def fixed_width(
    fields: list[tuple[str, str]], columns: "list[int | NDArray[np.int64]]"
) -> "pa.LargeBinaryArray":
    """Return a byte string for each row, made of some integers."""
    import numpy as np
    import pyarrow as pa

    n = next(len(c) for c in columns if not isinstance(c, int))
    made = np.empty(n, np.dtype(fields))
    for (name, _), column in zip(fields, columns, strict=True):
        made[name] = column
    edges = np.arange(n + 1, dtype=np.int64) * made.itemsize
    return pa.Array.from_buffers(
        pa.large_binary(), n, [None, pa.py_buffer(edges), pa.py_buffer(made.view(np.uint8))]
    )


def _sum(rows: "pa.LargeBinaryArray") -> Digest:
    import numpy as np

    data, edges = binary_parts(rows)
    view, sha256 = memoryview(data), hashlib.sha256  # type: ignore[arg-type]
    hashes = b"".join([sha256(view[low:high]).digest() for low, high in pairwise(edges.tolist())])
    # Sums of up to 2^32 32-bit words fit in 64 bits.
    words = np.frombuffer(hashes, ">u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64).tolist()
    total = 0
    for word in words:
        total = (total << 32) + word
    return Digest(len(rows), total % _MODULUS)
