"""Records as columns: numpy decodes a Fetch response's batches, a million records a second.

`decode` gives what `recovery.formats.records` gives one by one: offsets, timestamps, keys, values,
headers, and the outcome of each record's transaction. Keys, values and headers stay in the response
(or its decompressed bytes) until they are requested.
Source: Kafka's classes DefaultRecordBatch, DefaultRecord, CompletedFetch.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from recovery.formats.batches import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    HeaderScan,
    header_at,
    scan_headers,
    verify_crcs,
)
from recovery.formats.columns_walk import record_starts, varints
from recovery.formats.counting import Aborted, aborted_batches
from recovery.formats.reader import Buffer, CorruptError
from recovery.formats.records import LEAST_RECORD, decompressed, headers_of, records
from recovery.values import Value, replace

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

OUTCOMES = ("none", "committed", "aborted", "open")
NONE, COMMITTED, ABORTED, OPEN = range(4)
NO_TIMESTAMP = -1
LAST_OFFSET = 2**63 - 1
_PADDING = 64  # bytes after the records, into which a malformed last one may reach
# The amount that `decode` decodes at once fits in the processor's cache; its memory is reused.
_PART_BYTES = 2 << 20  # as stored
_PART_RECORDS = 1 << 15
_PART_EXPANDED = 16 << 20  # as decompressed, unless one batch is larger
_MOST_AT_ONCE = 1 << 19  # records of one batch


def rows_schema() -> "pa.Schema":
    """Return offset int64, timestamp int64 (ms, null = none), key and value large_binary."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.int64()),
            pa.field("key", pa.large_binary()),
            pa.field("value", pa.large_binary()),
        ]
    )


class Slices(Value):
    """n byte strings in one buffer. start, length: int64[n]; length -1 = null.

    The strings ascend in the buffer and do not overlap.
    """

    data: "NDArray[np.uint8]"
    start: "NDArray[np.int64]"
    length: "NDArray[np.int64]"

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, i: int) -> bytes | None:
        start, length = int(self.start[i]), int(self.length[i])
        return None if length < 0 else self.data[start : start + length].tobytes()

    def select(self, rows: "NDArray[Any]") -> "Slices":
        """Return the strings selected by a mask or by ascending row numbers."""
        return Slices(self.data, self.start[rows], self.length[rows])

    def array(self) -> "pa.LargeBinaryArray":
        """Return the strings copied into an Arrow array."""
        import numpy as np
        import pyarrow as pa

        n = len(self.start)
        length = np.maximum(self.length, 0)
        # Strings and the gaps between them alternate in the buffer: this array has both, without a
        # copy, and Arrow takes every other element.
        edges = np.zeros(2 * n + 1, np.int64)
        edges[: 2 * n : 2] = self.start
        edges[1::2] = self.start + length
        edges[2 * n] = edges[2 * n - 1] if n else 0
        both = pa.Array.from_buffers(
            pa.large_binary(), 2 * n, [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        )
        every_other = pa.Array.from_buffers(
            pa.int64(), n, [None, pa.py_buffer(np.arange(0, 2 * n, 2, dtype=np.int64))]
        )
        taken = both.take(every_other)
        return with_nulls(taken, self.length < 0)


def with_nulls(array: "pa.Array", null: "NDArray[np.bool_]") -> "pa.Array":
    """Return a fixed-width or binary array without nulls as one with the nulls in `null`."""
    import numpy as np
    import pyarrow as pa

    if not null.any():
        return array
    assert array.offset == 0
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [valid, *array.buffers()[1:]])


def int64_array(values: "NDArray[np.int64]", null: "NDArray[np.bool_] | None" = None) -> "pa.Array":
    """Return an Arrow array over numpy's memory (pa.array would load pandas, a second of CPU)."""
    import numpy as np
    import pyarrow as pa

    buffer = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int64))
    array = pa.Array.from_buffers(pa.int64(), len(values), [None, buffer])
    return array if null is None else with_nulls(array, null)


class Batches(Value):
    """The header-only view: a row per record batch, and the outcome of its transaction.

    outcome: int8[m], an index of OUTCOMES. A transactional batch at or above the last stable offset
    is OPEN, since readers do not know the outcome of its records yet; the marker of a control batch
    is NONE.
    """

    scan: HeaderScan
    outcome: "NDArray[np.int8]"

    def __len__(self) -> int:
        return len(self.scan)

    def reaching(self, start: int, end: int) -> "Batches":
        """Return the batches that have an offset in [start, end)."""
        inside = (self.scan.last_offset >= start) & (self.scan.column("base_offset") < end)
        return self if inside.all() else self.some(inside)

    def parts(self) -> Iterator["Batches"]:
        """Yield the columns in parts of about as many bytes and records as are decoded at once.
        No part has only batches that compaction has emptied."""
        import numpy as np

        count = self.scan.column("records_count").cumsum()
        behind = self.scan.column("length").cumsum() // _PART_BYTES
        full = (np.diff(behind) > 0) | (np.diff(count // _PART_RECORDS) > 0)
        low = 0
        for edge in (np.flatnonzero(full) + 1).tolist():
            if (count[low - 1] if low else 0) < count[edge - 1] < count[-1]:
                yield self.some(slice(low, edge))
                low = edge
        yield self.some(slice(low, len(self)))

    def some(self, rows: "NDArray[np.bool_] | slice") -> "Batches":
        """Return the batches selected by a mask or by a slice of rows."""
        scan = HeaderScan(self.scan.positions[rows], self.scan.fields[rows], self.scan.end)
        return Batches(scan, self.outcome[rows])


class ColumnBatch(Value):
    """n records by rising offset, as columns.

    offset, timestamp: int64[n]; timestamp in milliseconds since 1970, NO_TIMESTAMP if there is
    none. headers: the raw header sections, see `header_list`. batch: int64[n], each record's row in
    `batches`.
    """

    offset: "NDArray[np.int64]"
    timestamp: "NDArray[np.int64]"
    key: Slices
    value: Slices
    headers: Slices
    batch: "NDArray[np.int64]"
    batches: Batches

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def outcome(self) -> "NDArray[np.int8]":
        """Return each record's outcome as int8[n], an index of OUTCOMES."""
        return self.batches.outcome[self.batch]

    @property
    def is_control(self) -> "NDArray[np.bool_]":
        return self.batches.scan.has(CONTROL)[self.batch]

    @property
    def is_transactional(self) -> "NDArray[np.bool_]":
        return self.batches.scan.has(TRANSACTIONAL)[self.batch]

    @property
    def producer_id(self) -> "NDArray[np.int64]":
        """Return producer ids; -1 = none, as in producer_epoch and sequence."""
        return self.batches.scan.column("producer_id")[self.batch]

    @property
    def producer_epoch(self) -> "NDArray[np.int64]":
        return self.batches.scan.column("producer_epoch")[self.batch]

    @property
    def leader_epoch(self) -> "NDArray[np.int64]":
        """Return the epoch of each record's appending leader; -1: its broker has no epochs."""
        return self.batches.scan.column("leader_epoch")[self.batch]

    @property
    def sequence(self) -> "NDArray[np.int64]":
        """Return the batch's first sequence plus the record's offset delta; 0 follows 2^31 - 1."""
        import numpy as np

        scan = self.batches.scan
        first = scan.column("base_sequence")[self.batch]
        delta = self.offset - scan.column("base_offset")[self.batch]
        return np.where(first < 0, -1, (first + delta) & MAX_SEQUENCE)

    def select(self, rows: "NDArray[Any]") -> "ColumnBatch":
        """Return the records selected by a mask or by ascending row numbers."""
        return replace(
            self,
            offset=self.offset[rows],
            timestamp=self.timestamp[rows],
            key=self.key.select(rows),
            value=self.value.select(rows),
            headers=self.headers.select(rows),
            batch=self.batch[rows],
        )

    def between(self, start: int, end: int) -> "ColumnBatch":
        """Return the records with offsets in [start, end)."""
        import numpy as np

        if not len(self) or (self.offset[0] >= start and self.offset[-1] < end):
            return self
        low, high = np.searchsorted(self.offset, (start, end))
        return self.select(np.arange(low, high))

    def rows(self) -> "pa.RecordBatch":
        """Return a copy of the records in the form of `rows_schema`."""
        import pyarrow as pa

        columns = [
            int64_array(self.offset),
            int64_array(self.timestamp, self.timestamp == NO_TIMESTAMP),
            self.key.array(),
            self.value.array(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows_schema())

    def header_list(self, i: int) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers of record i. Raises CorruptError if they are malformed."""
        section = self.headers[i]
        assert section is not None
        try:
            return headers_of(section)
        except (IndexError, ValueError) as error:
            where = f"offset {int(self.offset[i])}"
            raise CorruptError("its headers are malformed", where=where) from error


def decode_headers(
    buffer: Buffer,
    aborted: Sequence[Aborted] | None,
    *,
    last_stable_offset: int = LAST_OFFSET,
    check_crc: bool = True,
) -> Batches:
    """Return the complete batches of a response, headers only.

    aborted: the response's list; None (isolation level 0) only at or above last_stable_offset.
    Raises CorruptError and OldMessageFormatError.
    """
    import numpy as np

    scan = scan_headers(buffer)
    if check_crc:
        verify_crcs(buffer, scan)
    outcome = np.zeros(len(scan), np.int8)
    decided = scan.has(TRANSACTIONAL) & ~scan.has(CONTROL)
    outcome[decided] = COMMITTED
    outcome[aborted_batches(buffer, scan, aborted or ())] = ABORTED
    outcome[decided & (scan.column("base_offset") >= last_stable_offset)] = OPEN
    if aborted is None and (outcome == COMMITTED).any():
        raise ValueError("transactional records below the last stable offset, but no list")
    return Batches(scan, outcome)


def decode(
    buffer: Buffer,
    aborted: Sequence[Aborted] | None,
    *,
    last_stable_offset: int = LAST_OFFSET,
    check_crc: bool = True,
    start: int = 0,
    end: int = LAST_OFFSET,
) -> Iterator[ColumnBatch]:
    """Yield the records of a response's complete batches in [start, end), markers included.

    They come by rising offset, some batches at a time, which is faster and takes less memory than
    all at once. Arguments and errors are those of `decode_headers`; CorruptError also for records
    that do not decompress or parse.
    """
    batches = decode_headers(
        buffer, aborted, last_stable_offset=last_stable_offset, check_crc=check_crc
    )
    for part in batches.reaching(start, end).parts():
        for content in _contents(buffer, part):
            for columns in _records(buffer, content):
                yield columns.between(start, end)


def _records(buffer: Buffer, content: "_Content") -> Iterator[ColumnBatch]:
    """Yield the records of some batches: all at once, unless they are very many."""
    import numpy as np

    scan = content.batches.scan
    count = scan.column("records_count")
    for row in np.flatnonzero(count * LEAST_RECORD > content.behind - content.first).tolist():
        raise _explained(buffer, scan, row)
    start, walked = record_starts(content.data, content.first, content.behind, count)
    if walked < len(scan):
        raise _explained(buffer, scan, walked)
    batch = np.repeat(np.arange(len(scan)), count)
    for low in range(0, max(1, len(start)), _MOST_AT_ONCE):
        before = max(0, low - 1)  # offsets must also rise from the previous part
        rows = slice(before, low + _MOST_AT_ONCE)
        columns = _columns(buffer, content, start[rows], batch[rows])
        yield columns if before == low else columns.select(np.arange(1, len(columns)))


def _columns(
    buffer: Buffer, content: "_Content", start: "NDArray[np.int64]", batch: "NDArray[np.int64]"
) -> ColumnBatch:
    """Return the records that begin at `start`. batch: the row of each record's batch."""
    import numpy as np

    batches, data = content.batches, content.data
    scan = batches.scan
    length, at = varints(data, start)
    record_end = at + length
    time_delta, at = varints(data, at + 1)  # one byte of attributes, unused
    offset_delta, at = varints(data, at)
    key_length, key_start = varints(data, at)
    at = key_start + np.maximum(key_length, 0)
    good = (length >= 0) & (key_length >= -1) & (key_length <= record_end - key_start)
    # A wrong length would send the next read anywhere.
    value_length, value_start = varints(data, np.where(good, at, start))
    at = value_start + np.maximum(value_length, 0)
    good &= (value_length >= -1) & (value_length < record_end - value_start)
    no_headers = data[np.where(good, at, start)] == 0
    good &= no_headers == (record_end - at == 1)

    # Offset deltas rise within a batch and do not exceed its span.
    last = scan.column("last_offset_delta")[batch]
    good &= (offset_delta >= 0) & (offset_delta <= last)
    good[1:] &= (offset_delta[1:] > offset_delta[:-1]) | (batch[1:] != batch[:-1])
    if not good.all():
        raise _explained(buffer, scan, int(batch[int(good.argmin())]))

    timestamp = scan.column("base_timestamp")[batch] + time_delta
    appended = (scan.fields["attributes"] & TIMESTAMP_TYPE != 0)[batch]
    if appended.any():
        timestamp = np.where(appended, scan.column("max_timestamp")[batch], timestamp)
    return ColumnBatch(
        offset=scan.column("base_offset")[batch] + offset_delta,
        timestamp=timestamp,
        key=Slices(data, key_start, key_length),
        value=Slices(data, value_start, value_length),
        headers=Slices(data, at, record_end - at),
        batch=batch,
        batches=batches,
    )


class _Content(Value):
    """Batches, and the range of each one's records in the bytes: first int64[m], behind int64[m].

    At least _PADDING bytes follow the last record.
    """

    batches: Batches
    data: "NDArray[np.uint8]"
    first: "NDArray[np.int64]"
    behind: "NDArray[np.int64]"


def _contents(buffer: Buffer, batches: Batches) -> Iterator[_Content]:
    """Yield the response itself if nothing is compressed; else decompressed bytes, from one batch
    or as many as make about _PART_EXPANDED bytes."""
    import numpy as np

    scan = batches.scan
    first = scan.positions + HEADER_SIZE
    behind = scan.positions + LOG_OVERHEAD + scan.column("length")
    if not (scan.fields["attributes"] & CODEC_MASK).any():
        if not len(scan):
            yield _Content(batches, np.zeros(_PADDING, np.uint8), first, behind)
            return
        low, high = int(first[0]), int(behind[-1])
        data = np.frombuffer(buffer, np.uint8)[low : high + _PADDING]
        if len(data) < high - low + _PADDING:
            data = np.concatenate((data[: high - low], np.zeros(_PADDING, np.uint8)))
        yield _Content(batches, data, first - low, behind - low)
        return
    low, size, parts = 0, 0, list[bytes]()
    for row, position in enumerate(scan.positions.tolist()):
        parts.append(decompressed(buffer, header_at(buffer, position)))
        size += len(parts[-1])
        if size >= _PART_EXPANDED or row == len(scan) - 1:
            behind = np.cumsum([len(part) for part in parts], dtype=np.int64)
            first = np.concatenate((np.zeros(1, np.int64), behind[:-1]))
            parts.append(bytes(_PADDING))
            data = np.frombuffer(b"".join(parts), np.uint8)
            parts.clear()
            yield _Content(batches.some(slice(low, row + 1)), data, first, behind)
            low, size = row + 1, 0


def _explained(buffer: Buffer, scan: HeaderScan, row: int) -> CorruptError:
    """Return what is wrong with a batch, as the exact decoder reports it."""
    header = header_at(buffer, int(scan.positions[row]))
    try:
        for _ in records(buffer, header):
            pass
    except CorruptError as error:
        return error
    return CorruptError("its records are malformed", where=f"batch at offset {header.base_offset}")
