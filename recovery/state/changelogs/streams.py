"""Changelogs of Kafka Streams: windows, sessions and versioned stores, as the store shows them.

`streams-kv` is plain: values are stored as they are, the record's timestamp is the store's. Windows
and sessions stay in the changelog after the store hides them, so the highest start (end) that any
record ever had decides what is live. A versioned store keeps a row per version.
Source: Kafka's classes WindowKeySchema, SessionKeySchema, AbstractRocksDBSegmentedBytesStore,
RocksDBVersionedStore (restoreBatch, get); all checked against a running application.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from recovery.errors import UsageError
from recovery.formats.arrays import binary_parts, int64_values, null_mask, one_chunk
from recovery.formats.columns import int64_array
from recovery.state.changelogs.changelog import ChangelogFormat, LogFacts, Summary

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_Numbers = Mapping[str, tuple[int, str]]
"""Columns after the user's key: where each begins, in bytes before the key's end, and its type."""
_NO_TIMESTAMP = -1
_FOREVER = 2**63 - 1


class StreamsKv(ChangelogFormat):
    """Key-value stores, timestamped or not, persistent or in memory, with or without headers."""

    name = "streams-kv"


class _Expiring(ChangelogFormat):
    """Keys that end in times; the store hides those older than its retention.

    summary: {"max": the highest time of any record}.
    """

    needs_retention = True
    retention_config = "retention.ms"  # of the topic: the store's retention + a day
    tail = 0  # bytes after the user's key
    expires_by = 0  # start of the time that expires, in bytes before the key's end
    numbers: ClassVar[_Numbers]

    @property
    def extra(self) -> "pa.Schema":
        import pyarrow as pa

        fields = [pa.field("user_key", pa.large_binary())]
        return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in self.numbers)])

    def valid(self, rows: "pa.RecordBatch") -> "NDArray[np.bool_]":
        """Return as bool[n] which keys are long enough to end in times."""
        import numpy as np

        _, edges = binary_parts(rows.column("key"))
        long_enough: NDArray[np.bool_] = np.diff(edges) >= self.tail
        return super().valid(rows) & long_enough

    def observe(self, rows: "pa.RecordBatch", summary: Summary) -> Summary:
        if not len(rows):
            return summary
        highest = int(tail_int64(rows.column("key"), self.expires_by).max())
        return {"max": max(highest, summary.get("max", highest))}

    def merge(self, first: Summary, second: Summary) -> Summary:
        highest = [s["max"] for s in (first, second) if "max" in s]
        return {"max": max(highest)} if highest else {}

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        rows = super().finish(rows, summary).combine_chunks()
        if not len(rows):
            return _with(rows, self.extra, [])
        time = tail_int64(one_chunk(rows.column("key")), self.expires_by)
        rows = _filter(rows, time >= summary["max"] - _retention(self) + 1)
        keys = one_chunk(rows.column("key"))
        numbers = (_tail(keys, back, kind).astype("int64") for back, kind in self.numbers.values())
        return _with(rows, self.extra, [without_tail(keys, self.tail), *map(int64_array, numbers)])

    def proves(self, log: LogFacts, summary: Summary) -> str | None:
        """Return the proof: old windows are deleted from the log start on, so at 0 none is gone."""
        return "the log begins at offset 0" if log.log_start_offset == 0 else None


class StreamsWindow(_Expiring):
    """Window stores. Key: the user's, i64 window start (ms), i32 sequence number.

    Live windows start at or after the partition's highest start - retention + 1.
    """

    name = "streams-window"
    tail = expires_by = 12
    numbers: ClassVar[_Numbers] = {"window_start": (12, ">i8"), "window_sequence": (4, ">i4")}


class StreamsSession(_Expiring):
    """Session stores. Key: the user's, i64 session end, i64 session start (ms).

    Live sessions end at or after the partition's highest end - retention + 1.
    """

    name = "streams-session"
    tail = expires_by = 16
    numbers: ClassVar[_Numbers] = {"session_start": (8, ">i8"), "session_end": (16, ">i8")}


class StreamsVersioned(ChangelogFormat):
    """Versioned stores: a row for each version that the store still returns.

    A record is a version from its timestamp until that of its key's next record; a null value ends
    the previous version. Of equal key and timestamp the last offset counts. With T the highest
    timestamp so far, a replay ignores records older than T - history; at the end, versions that
    ended at or before T - history are gone. summary: {"time": T}.
    """

    name = "streams-versioned"
    ignores = True
    needs_retention = True
    retention_config = "min.compaction.lag.ms"  # of the topic: the history retention + a day

    @property
    def extra(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())])

    def keep(self, rows: "pa.RecordBatch", summary: Summary) -> "NDArray[np.bool_] | None":
        import numpy as np

        time = _timestamps(rows)
        highest = np.maximum(np.maximum.accumulate(time), summary.get("time", _NO_TIMESTAMP))
        kept: NDArray[np.bool_] = time >= highest - _retention(self)
        return None if kept.all() else kept

    def keep_after(self, rows: "pa.Table", summary: Summary) -> "NDArray[np.bool_] | None":
        least = summary.get("time", _NO_TIMESTAMP) - _retention(self)
        kept: NDArray[np.bool_] = _timestamps(rows) >= least
        return None if kept.all() else kept

    def observe(self, rows: "pa.RecordBatch", summary: Summary) -> Summary:
        if not len(rows):
            return summary
        return {"time": max(int(_timestamps(rows).max()), summary.get("time", _NO_TIMESTAMP))}

    def merge(self, first: Summary, second: Summary) -> Summary:
        return {"time": max(s.get("time", _NO_TIMESTAMP) for s in (first, second))}

    def identity(self, rows: "pa.RecordBatch | pa.Table") -> "pa.LargeBinaryArray":
        """Return the key, then the timestamp in eight bytes."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        time = np.ascontiguousarray(_timestamps(rows).astype(">i8")).view(np.uint8)
        edges = np.arange(len(rows) + 1, dtype=np.int64) * 8
        stamps, nothing = (
            pa.Array.from_buffers(
                pa.large_binary(), len(rows), [None, pa.py_buffer(edge), pa.py_buffer(time)]
            )
            for edge in (edges, np.zeros_like(edges))
        )
        return pc.binary_join_element_wise(one_chunk(rows.column("key")), stamps, nothing)

    def finish(self, rows: "pa.Table", summary: Summary) -> "pa.Table":
        import numpy as np

        if not len(rows):
            return _with(rows, self.extra, [])
        rows = rows.combine_chunks()
        key = one_chunk(one_chunk(rows.column("key")).dictionary_encode()).indices
        number = np.frombuffer(key.buffers()[1], np.int32)[key.offset : key.offset + len(key)]
        order = np.lexsort((_timestamps(rows), number))
        rows, number = rows.take(int64_array(order)), number[order]
        time = _timestamps(rows)
        ends = np.full(len(rows), _FOREVER, np.int64)
        followed = number[1:] == number[:-1]
        ends[:-1][followed] = time[1:][followed]
        horizon = summary.get("time", _NO_TIMESTAMP) - _retention(self)
        live = ~null_mask(one_chunk(rows.column("value"))) & (ends > horizon)
        rows, time, ends = _filter(rows, live), time[live], ends[live]
        return _with(rows, self.extra, [int64_array(time), int64_array(ends, ends == _FOREVER)])


def tail_int64(keys: "pa.Array", back: int) -> "NDArray[np.int64]":
    """Return the big-endian i64 that begins `back` bytes before the end of each key."""
    return _tail(keys, back, ">i8").astype("int64")


def _tail(keys: "pa.Array", back: int, kind: str) -> "NDArray[Any]":
    import numpy as np

    data, edges = binary_parts(keys)
    width = np.dtype(kind).itemsize
    at = edges[1:, None] - back + np.arange(width)
    return np.ascontiguousarray(data[at]).view(kind)[:, 0]


def without_tail(keys: "pa.Array", tail: int) -> "pa.LargeBinaryArray":
    """Return the keys without their last `tail` bytes."""
    import pyarrow.compute as pc

    return pc.binary_slice(keys, 0, -tail)


def _timestamps(rows: "pa.RecordBatch | pa.Table") -> "NDArray[np.int64]":
    """Return the timestamps, -1 for none, as in Kafka's ConsumerRecord."""
    import numpy as np

    column = one_chunk(rows.column("timestamp"))
    if not len(column):
        return np.zeros(0, np.int64)
    return np.where(null_mask(column), _NO_TIMESTAMP, int64_values(column))


def _filter(rows: "pa.Table", mask: "NDArray[np.bool_]") -> "pa.Table":
    import numpy as np

    return rows if mask.all() else rows.take(int64_array(np.flatnonzero(mask)))


def _with(rows: "pa.Table", extra: "pa.Schema", columns: "list[pa.Array]") -> "pa.Table":
    """Return the rows with more columns; without rows, empty ones."""
    for number, field in enumerate(extra):
        column = columns[number] if columns else _empty(field)
        rows = rows.append_column(field, column)
    return rows


def _empty(field: "pa.Field") -> "pa.Array":
    import pyarrow as pa

    return pa.nulls(0, field.type)


def _retention(form: ChangelogFormat) -> int:
    """Return the retention in ms. Raises UsageError if none was given."""
    retention_ms = form.options.get("retention_ms")
    if not isinstance(retention_ms, int) or retention_ms < 1:
        raise UsageError(
            f"{form.name} needs the store's retention",
            where="--retention",
            remedy="give it as the application has it: --retention 2h",
        )
    return retention_ms
