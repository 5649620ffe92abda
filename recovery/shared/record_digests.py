"""A digest of every record as it is, to find an equal record in another log.

record = i64 timestamp (ms) | i32 length + key | i32 length + value | headers as Kafka writes them,
big-endian, a null's length -1; 16 bytes of BLAKE2b. Timestamps or headers are left out if they are
not compared. Keys are divided into ranges by the highest bits of their CRC-32.
"""

import hashlib
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from recovery.formats.arrays import binary_parts, filled
from recovery.formats.columns import ColumnBatch, Slices
from recovery.shared.digest import fixed_width, lengths

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

DIGEST_SIZE = 16
KEY_RANGES = 64
"""Ranges of keys; records without a key are in one more, the last."""
_SHIFT = 32 - (KEY_RANGES - 1).bit_length()


def record_digests(
    records: ColumnBatch, *, timestamps: bool = True, headers: bool = True
) -> "NDArray[np.uint64]":
    """Return a digest per record as uint64[n, 2], without offsets."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(records):
        return np.zeros((0, 2), np.uint64)
    empty = [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")]
    separator = pa.Array.from_buffers(pa.large_binary(), 1, empty)[0]
    key, value = records.key.array(), records.value.array()
    stamp = [records.timestamp] if timestamps else []
    parts = [
        fixed_width(
            [("timestamp", ">i8")] * len(stamp) + [("length", ">i4")], [*stamp, lengths(key)]
        ),
        filled(key),
        fixed_width([("length", ">i4")], [lengths(value)]),
        filled(value),
    ]
    if headers:
        parts.append(records.headers.array())
    return _hashes(pc.binary_join_element_wise(*parts, separator))


def field_digests(field: Slices) -> "NDArray[np.uint64]":
    """Return digests of one field as uint64[n], to see which fields differ; null is not empty."""
    import numpy as np

    digests = _hashes(filled(field.array()))[:, 0].copy() if len(field) else np.zeros(0, np.uint64)
    digests[field.length < 0] = 0
    return digests


def key_ranges(keys: Slices) -> "NDArray[np.int64]":
    """Return the range of each key as int64[n], KEY_RANGES for a null key."""
    import numpy as np

    view, crc32 = memoryview(keys.data), zlib.crc32  # type: ignore[arg-type]
    behind = (keys.start + np.maximum(keys.length, 0)).tolist()
    sums = [crc32(view[a:b]) for a, b in zip(keys.start.tolist(), behind, strict=True)]
    ranges = np.array(sums, np.int64) >> _SHIFT
    ranges[keys.length < 0] = KEY_RANGES
    return ranges


def range_name(number: int) -> str:
    """Return the first and last CRC-32 of a range's keys as hexadecimal digits, or `no key`."""
    if number == KEY_RANGES:
        return "no key"
    return f"{number << _SHIFT:08x}-{((number + 1) << _SHIFT) - 1:08x}"


def _hashes(rows: "pa.LargeBinaryArray") -> "NDArray[np.uint64]":
    import numpy as np

    data, edges = binary_parts(rows)
    view, blake2b = memoryview(data), hashlib.blake2b  # type: ignore[arg-type]
    hashes = b"".join(
        [blake2b(view[a:b], digest_size=DIGEST_SIZE).digest() for a, b in pairwise(edges.tolist())]
    )
    return np.frombuffer(hashes, np.uint64).reshape(-1, 2)
