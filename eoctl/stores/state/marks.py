"""Mark each row of a table with its origin: 16 bytes, a digest of its offset and key.

Offsets alone do not: every changelog begins at 0.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Marks = Mapping[int, "NDArray[np.bytes_]"]
"""The marks of a state's rows, sorted, by partition."""

SIZE = 16


def marks(rows: Iterable[Sequence[Any]]) -> "NDArray[np.bytes_]":
    """Return S16[n], in the order of the rows: offset, key, further integers of the unique key."""
    import numpy as np

    return np.frombuffer(b"".join(map(_mark, rows)), f"S{SIZE}")


def sorted_marks(parts: Iterable["NDArray[np.bytes_]"]) -> "NDArray[np.bytes_]":
    """Return all marks, sorted."""
    import numpy as np

    return np.sort(np.concatenate([np.empty(0, f"S{SIZE}"), *parts]))


def among(marks: "NDArray[np.bytes_]", live: "NDArray[np.bytes_]") -> "NDArray[np.bool_]":
    """Return bool[n]: which marks are in `live`, which is sorted."""
    import numpy as np

    if not len(live):
        return np.zeros(len(marks), np.bool_)
    at = np.minimum(np.searchsorted(live, marks), len(live) - 1)
    same: NDArray[np.bool_] = live[at] == marks
    return same


def _mark(row: Sequence[Any]) -> bytes:
    offset, key, *more = row
    binary = isinstance(key, bytes)  # SQLite accepts text for a blob: no state has written that
    head = struct.pack(f">?{1 + len(more)}q", binary, offset, *more)
    return blake2b(head + (key if binary else b""), digest_size=SIZE).digest()
