"""coast's changelogs (`coast.cl.<store>`): state with the offsets it belongs to, in every record.

Key: i32 length, key. Value: i64 upstream (the next input offset), i64 downstream (the next output
offset), i32 length, state. The partition's last record says where to restart with the state.
Source: coast (Ben Kirwin), class SafeBackend; one record at a time: recovery.formats.coast.
"""

from typing import TYPE_CHECKING

from recovery.formats.arrays import binary_parts, int64_values, one_chunk
from recovery.formats.coast import decode_changelog
from recovery.formats.columns import int64_array
from recovery.formats.reader import CorruptError
from recovery.state.changelogs.changelog import ChangelogFormat, Summary

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_LENGTH, _ATTACHED = 4, 20  # bytes before a key; before a state
_END = 2**31  # past the last byte of any record


class Coast(ChangelogFormat):
    """Last state per key, and the offsets attached to it.

    summary: {"upstream", "downstream"}: the restart offsets, from the partition's last record.
    """

    name = "coast"

    @property
    def extra(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema(
            [
                pa.field("user_key", pa.large_binary()),
                pa.field("state", pa.large_binary()),
                pa.field("upstream", pa.int64()),
                pa.field("downstream", pa.int64()),
            ]
        )

    def valid(self, rows: "pa.RecordBatch") -> "NDArray[np.bool_]":
        """Return as bool[n] which keys have the length that they state."""
        keys = rows.column("key")
        return super().valid(rows) & _fits(keys, 0, _LENGTH)

    def observe(self, rows: "pa.RecordBatch", summary: Summary) -> Summary:
        """Return the last record's offsets. Raises CorruptError if its value is not coast's."""
        values = rows.column("value")
        for i in range(len(rows) - 1, -1, -1):
            value = values[i].as_py()
            if value is None:
                continue
            try:
                entry = decode_changelog(rows.column("key")[i].as_py(), value)
            except CorruptError as error:
                raise error.within(f"offset {rows.column('offset')[i].as_py()}") from error
            return {"upstream": entry.upstream, "downstream": entry.downstream}
        return summary

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        """Return states with their offsets. Raises CorruptError for a value that is not coast's."""
        import numpy as np
        import pyarrow.compute as pc

        rows = super().finish(rows, summary)
        keys, values = (one_chunk(rows.column(name)) for name in ("key", "value"))
        wrong = np.flatnonzero(~_fits(values, 16, _ATTACHED))
        if len(wrong):
            offset = int64_values(one_chunk(rows.column("offset")))[wrong[0]]
            raise CorruptError("it is not a value of a coast changelog", where=f"offset {offset}")
        columns = [
            # Without an end, Arrow multiplies the rows by 2^63: "Negative buffer resize".
            pc.binary_slice(keys, _LENGTH, _END),
            pc.binary_slice(values, _ATTACHED, _END),
            int64_array(_head(values, 0, _ATTACHED, ">i8").astype("int64")),
            int64_array(_head(values, 8, _ATTACHED, ">i8").astype("int64")),
        ]
        for field, column in zip(self.extra, columns, strict=True):
            rows = rows.append_column(field, column)
        return rows


def _fits(column: "pa.Array", at: int, head: int) -> "NDArray[np.bool_]":
    """Return which strings of at least `head` bytes are as long as their int32 at `at` says."""
    import numpy as np

    behind = np.diff(binary_parts(column)[1]) - head
    fits: NDArray[np.bool_] = (behind >= 0) & (_head(column, at, head, ">i4") == behind)
    return fits


def _head(column: "pa.Array", at: int, least: int, kind: str) -> "NDArray[np.int64]":
    """Return the big-endian number `at` bytes into each string; -1 if shorter than `least`."""
    import numpy as np

    data, edges = binary_parts(column)
    numbers = np.full(len(column), -1, np.int64)
    long_enough = np.flatnonzero(np.diff(edges) >= least)
    width = np.dtype(kind).itemsize
    positions = edges[:-1][long_enough, None] + at + np.arange(width)
    numbers[long_enough] = np.ascontiguousarray(data[positions]).view(kind)[:, 0]
    return numbers
