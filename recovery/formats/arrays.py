"""Arrow arrays as numpy sees them, without copies and without pandas.

`pa.array(numpy)`, `to_numpy`, `pa.scalar` and `fill_null` load pandas, more than a second of CPU in
each process. These functions replace them.
"""

from typing import TYPE_CHECKING

from recovery.formats.columns import Slices

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def one_chunk(column: "pa.ChunkedArray | pa.Array") -> "pa.Array":
    """Return a column as one array."""
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def int64_values(array: "pa.Array") -> "NDArray[np.int64]":
    """Return the values of an int64 array without a copy; those of nulls are undefined."""
    import numpy as np

    values = np.frombuffer(array.buffers()[1], np.int64)
    return values[array.offset : array.offset + len(array)]


def int32_values(array: "pa.Array") -> "NDArray[np.int32]":
    """Return the values of an int32 array."""
    import numpy as np

    values = np.frombuffer(array.buffers()[1], np.int32)
    return values[array.offset : array.offset + len(array)]


def null_mask(array: "pa.Array") -> "NDArray[np.bool_]":
    """Return which values are null, as bool[n]."""
    import numpy as np

    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    valid = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    null: NDArray[np.bool_] = valid[array.offset :] == 0
    return null


def filled(array: "pa.LargeBinaryArray") -> "pa.LargeBinaryArray":
    """Return a large_binary array with empty strings for nulls."""
    import numpy as np
    import pyarrow as pa

    if not array.null_count:
        return array
    data, edges = binary_parts(array)
    length = np.where(null_mask(array), 0, np.diff(edges))
    if (edges[1:] - edges[:-1] == length).all():
        buffers = [None, pa.py_buffer(np.ascontiguousarray(edges)), array.buffers()[2]]
        return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)
    return Slices(data, edges[:-1], length).array()


def binary_parts(array: "pa.Array") -> tuple["NDArray[np.uint8]", "NDArray[np.int64]"]:
    """Return a large_binary array's bytes, and the edges of its strings in them as int64[n + 1]."""
    import numpy as np

    _, edges, data = array.buffers()
    edge = np.frombuffer(edges, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), edge
