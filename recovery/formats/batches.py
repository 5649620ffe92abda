"""Record batches (message format v2), which make up a Fetch response or a `.log` file.

A batch's header gives offsets, producer, sequences and number of records without decompression:
`batch_headers` yields headers one by one, `scan_headers` collects them as numpy columns, and
`header_positions` does whichever is possible. For the records see `recovery.formats.records`.
Source: Kafka's class DefaultRecordBatch; KIP-98.
"""

import struct
from array import array
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from recovery.errors import RefusedError
from recovery.formats.reader import Buffer, CorruptError
from recovery.plurals import counted
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length, which the length excludes
NO_PRODUCER_ID = -1
MAX_SEQUENCE = 2**31 - 1

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_MASK = 0x07
TIMESTAMP_TYPE = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_START = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")  # length and magic of these
_CRC_START = 21
_OLDEST_MESSAGE = 14  # the shortest message of magic 0

_FIELDS = [
    ("base_offset", ">i8"),
    ("length", ">i4"),
    ("leader_epoch", ">i4"),
    ("magic", "i1"),
    ("crc", ">u4"),
    ("attributes", ">i2"),
    ("last_offset_delta", ">i4"),
    ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"),
    ("producer_id", ">i8"),
    ("producer_epoch", ">i2"),
    ("base_sequence", ">i4"),
    ("records_count", ">i4"),
]


class OldMessageFormatError(RefusedError):
    """Messages of magic 0 or 1, as clients before Kafka 0.11 wrote them."""


class BatchHeader(Value):
    """One batch's header. Offsets are the partition's; position and size are bytes in the buffer.

    last_offset does not change when compaction removes records, so records_count may be less than
    the span, down to 0. base_timestamp: milliseconds since 1970, or the delete horizon if
    `has_delete_horizon`. producer_id, producer_epoch, base_sequence: -1 = none.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def codec(self) -> str:
        """Return none, gzip, snappy, lz4 or zstd; `codec N` for one that Kafka 4.3 lacks."""
        code = self.attributes & CODEC_MASK
        return CODECS[code] if code < len(CODECS) else f"codec {code}"

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.attributes & TIMESTAMP_TYPE else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_sequence(self) -> int:
        """Return the last sequence: -1 without sequences; 0 comes after 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & MAX_SEQUENCE


class HeaderScan(Value):
    """The headers of all complete batches of a buffer, as columns; row i is the i-th batch.

    positions: byte positions, int64[n]. fields: structured, big-endian, with the names of
    DefaultRecordBatch's fields: base_offset, length, leader_epoch, magic, crc, attributes,
    last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence,
    records_count. end: the byte where complete batches end; a cut-off one may follow.
    """

    positions: "NDArray[np.int64]"
    fields: "NDArray[np.void]"
    end: int

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> "NDArray[np.int64]":
        """Return one field as native int64[n]."""
        column: NDArray[np.int64] = self.fields[name].astype("int64")
        return column

    @property
    def last_offset(self) -> "NDArray[np.int64]":
        return self.column("base_offset") + self.column("last_offset_delta")

    def has(self, flag: int) -> "NDArray[np.bool_]":
        """Return which batches have an attribute, one of TRANSACTIONAL, CONTROL, DELETE_HORIZON."""
        flags: NDArray[np.bool_] = (self.fields["attributes"] & flag) != 0
        return flags


class HeaderPositions(Value):
    """The positions of a buffer's complete batches: the `HeaderScan` without numpy.

    positions: byte positions. end: the byte where complete batches end.
    """

    positions: "array[int]"
    end: int

    def __len__(self) -> int:
        return len(self.positions)


@cache
def has_numpy() -> bool:
    """Import numpy, which the extra `data` installs; return False if it is missing."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def _corrupt(what: str, position: int, base_offset: int) -> CorruptError:
    return CorruptError(what, where=f"record batch at byte {position}, offset {base_offset}")


def _next_batch(buffer: Buffer, position: int, end: int) -> int:
    """Return the end of the batch at `position`; -1 if the buffer ends before it."""
    if end - position < _START.size:
        return -1
    base_offset, length, _, magic = _START.unpack_from(buffer, position)
    if magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD:
        if magic in (0, 1) and length >= _OLDEST_MESSAGE:
            raise OldMessageFormatError(
                f"messages of the old format (magic {magic}) are not read",
                where=f"offset {base_offset}",
                remedy="copy the topic with a client of Kafka 0.11 or later, or choose a range "
                "after these messages",
            )
        if magic in (0, 1, 2):
            raise _corrupt(
                f"a length of {counted(length, 'byte')} is not a batch's", position, base_offset
            )
        raise _corrupt(f"unknown magic {magic}", position, base_offset)
    following: int = position + LOG_OVERHEAD + length
    return following if following <= end else -1


def _whole_batches(buffer: Buffer) -> tuple[list[int], int]:
    """Return the start of each complete batch, and the end of the last. Raises as `_next_batch`.

    The loop avoids a call for each batch, since there may be a million.
    """
    positions: list[int] = []
    position, end, start = 0, len(buffer), _LENGTH_AND_MAGIC.unpack_from
    last = end - _LENGTH_AND_MAGIC.size
    while position <= last:
        length, magic = start(buffer, position)
        if magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD:
            _next_batch(buffer, position, end)  # raises what is wrong
        following = position + LOG_OVERHEAD + length
        if following > end:
            break
        positions.append(position)
        position = following
    return positions, position


def header_at(buffer: Buffer, position: int) -> BatchHeader:
    """Return the header at a position that holds a complete batch (from a scan). Checks nothing."""
    base, length, epoch, magic, crc, attributes, delta, base_time, max_time, pid, pepoch, seq, n = (
        _HEADER.unpack_from(buffer, position)
    )
    return BatchHeader(
        position,
        LOG_OVERHEAD + length,
        base,
        base + delta,
        epoch,
        magic,
        crc,
        attributes,
        base_time,
        max_time,
        pid,
        pepoch,
        seq,
        n,
    )


def batch_headers(buffer: Buffer) -> Iterator[BatchHeader]:
    """Yield the headers of the complete batches in `buffer`, in order.

    A batch that is cut off by the end of the buffer is not yielded: it starts where the last
    yielded one ends, at `position + size` (0 if none was yielded). Raises CorruptError for an
    impossible length or count or for offsets that do not rise, OldMessageFormatError for magic 0
    and 1. Does not check CRCs: see `crc_matches`.
    """
    position, end, expected = 0, len(buffer), 0
    while (following := _next_batch(buffer, position, end)) >= 0:
        header = _header_after(buffer, position, expected)
        yield header
        position, expected = following, header.last_offset + 1


def _header_after(buffer: Buffer, position: int, expected: int) -> BatchHeader:
    """Return the header at `position`, checked. expected: the lowest allowed base offset."""
    header = header_at(buffer, position)
    span = header.last_offset - header.base_offset + 1
    if header.base_offset < expected:
        raise _corrupt(f"offset {expected} or higher expected", position, header.base_offset)
    if span < 1 or not 0 <= header.records_count <= span:
        raise _corrupt(_records_on(header.records_count, span), position, header.base_offset)
    if header.last_offset >= 1 << 63:
        raise _corrupt("its offsets pass 2^63 - 1", position, header.base_offset)
    return header


def last_batch(buffer: Buffer) -> BatchHeader | None:
    """Return the header of the last complete batch, found by lengths alone; None if there is none.

    Raises CorruptError for an impossible length, OldMessageFormatError for magic 0 and 1.
    """
    positions, _ = _whole_batches(buffer)
    return header_at(buffer, positions[-1]) if positions else None


def scan_headers(buffer: Buffer) -> HeaderScan:
    """Return all headers of the complete batches in `buffer` as numpy columns, to count fast.

    Raises as `batch_headers` does.
    """
    import numpy as np

    positions, end = _whole_batches(buffer)
    return scan_at(buffer, np.array(positions, dtype=np.int64), end)


def batch_epochs(buffer: Buffer) -> Iterator[tuple[int, int, int]]:
    """Return first offset, last offset and leader epoch of each complete batch in `buffer`.

    Raises as `batch_headers` does.
    """
    scan = scan_headers(buffer)
    columns = scan.column("base_offset"), scan.last_offset, scan.column("leader_epoch")
    return zip(*(column.tolist() for column in columns), strict=True)


def header_positions(buffer: Buffer) -> HeaderPositions | HeaderScan:
    """Return all complete batches: with numpy as `scan_headers` does, else as `batch_headers` does.

    Raises as `batch_headers` does.
    """
    if has_numpy():
        return scan_headers(buffer)
    positions, end = array("q"), 0
    for header in batch_headers(buffer):
        positions.append(header.position)
        end = header.position + header.size
    return HeaderPositions(positions, end)


def scan_at(buffer: Buffer, positions: "NDArray[np.int64]", end: int) -> HeaderScan:
    """Return the scan of batches with known starts. end: the end of the last one."""
    import numpy as np

    dtype = np.dtype(_FIELDS)
    if not len(positions):
        return HeaderScan(positions, np.empty(0, dtype), 0)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(buffer, np.uint8), HEADER_SIZE)
    scan = HeaderScan(positions, windows[positions].view(dtype)[:, 0], end)
    _check(scan, np)
    return scan


def _check(scan: HeaderScan, np: Any) -> None:
    """Apply the checks of `batch_headers` to columns."""
    base, last, count = scan.column("base_offset"), scan.last_offset, scan.column("records_count")
    span = scan.column("last_offset_delta") + 1
    expected = np.concatenate(([0], last[:-1] + 1))
    for wrong, text in (
        (base < expected, "offset {expected} or higher expected"),
        ((span < 1) | (count < 0) | (count > span), "{records}"),
        (last < base, "its offsets pass 2^63 - 1"),
    ):
        if wrong.any():
            i = int(wrong.argmax())
            what = text.format(
                expected=expected[i], records=_records_on(int(count[i]), int(span[i]))
            )
            raise _corrupt(what, int(scan.positions[i]), int(base[i]))


def _records_on(count: int, span: int) -> str:
    return f"{counted(count, 'record')} on {counted(span, 'offset')}"


def crc_matches(buffer: Buffer, header: BatchHeader) -> bool:
    """Return True if the batch's CRC-32C, over its attributes and all after them, is right."""
    import crc32c

    start, end = header.position + _CRC_START, header.position + header.size
    return bool(crc32c.crc32c(memoryview(buffer)[start:end]) == header.crc)


def verify_crcs(buffer: Buffer, scan: HeaderPositions | HeaderScan) -> None:
    """Raise CorruptError at the first batch of the scan whose CRC-32C is wrong."""
    import crc32c

    if isinstance(scan, HeaderPositions):
        for header in (header_at(buffer, position) for position in scan.positions):
            if not crc_matches(buffer, header):
                raise _corrupt("the CRC is wrong", header.position, header.base_offset)
        return
    view, crc = memoryview(buffer), crc32c.crc32c
    ends = (scan.positions + LOG_OVERHEAD + scan.column("length")).tolist()
    stored = scan.fields["crc"].tolist()
    for position, end, expected in zip(scan.positions.tolist(), ends, stored, strict=True):
        if crc(view[position + _CRC_START : end]) != expected:
            raise _corrupt("the CRC is wrong", position, header_at(buffer, position).base_offset)
