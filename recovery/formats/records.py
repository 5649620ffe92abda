"""The records inside a batch: decompression, keys, values, headers, and transaction markers.

Exact rather than fast, for the batches that must be opened; `recovery.formats.columns` decodes
millions of records as columns.
Source: Kafka's classes DefaultRecord, ControlRecordType, EndTransactionMarker; KafkaLZ4 and
SnappyCompression for the framings.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from recovery.formats.batches import CODEC_MASK, HEADER_SIZE, TIMESTAMP_TYPE, BatchHeader
from recovery.formats.reader import Buffer, CorruptError, Reader
from recovery.plurals import counted

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # magic, version, compatible version
_MOST_SNAPPY_EXPANDS = 64  # a copy of 3 bytes expands to at most 64
_AT_ONCE = 1 << 20  # bytes requested from a decompressor at a time

MOST_EXPANDED = 128 << 20
"""Bytes that the records of one batch may expand to: 10 KB of zstd can hold gigabytes."""
EXPANDED_PROPERTY = "eoctl.batch.max.expanded.bytes"
"""The client property that sets another bound; see `allow_expanded`."""
_allowed: list[int] = []
MOST_RECORDS = 4 << 20
"""Records of one batch; each costs more memory than the seven bytes it may consist of."""
LEAST_RECORD = 7
"""Bytes of the shortest record: its length, attributes, two deltas, and three lengths."""


class Record(NamedTuple):
    """One record. timestamp: milliseconds since 1970, None = the producer gave none.

    headers: bytes of a name that are not UTF-8 appear as Python's surrogates (PEP 383), from which
    `replaced` makes what Java reads.
    """

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ControlType(StrEnum):
    """The purpose of a control record."""

    ABORT = "abort"
    COMMIT = "commit"
    OTHER = "other"  # KRaft's own: leader change, snapshot header and footer, voters


class Marker(NamedTuple):
    """A control record. coordinator_epoch: None unless the record ends a transaction."""

    type: ControlType
    coordinator_epoch: int | None


def records(buffer: Buffer, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of the batch at `header.position`, by rising offset.

    Raises CorruptError if they do not decompress or parse, or if the header's number of them is
    wrong, after yielding the records before the damage. Does not check the CRC.
    """
    data = decompressed(buffer, header)
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position, least, most = 0, 0, header.last_offset - base_offset
    for number in range(header.records_count):
        try:
            delta, time_delta, key, value, headers, position = _record(data, position)
        except (IndexError, ValueError) as error:
            raise _corrupt(header, f"record {number} is malformed") from error
        if not least <= delta <= most:
            raise _corrupt(header, f"record {number} has offset delta {delta}")
        least = delta + 1
        time = base_timestamp + time_delta if append_time is None else append_time
        yield Record(base_offset + delta, None if time == -1 else time, key, value, headers)
    if position != len(data):
        unread = len(data) - position
        raise _corrupt(
            header,
            f"{counted(unread, 'byte')} too many for {counted(header.records_count, 'record')}",
        )


def marker(buffer: Buffer, header: BatchHeader) -> Marker | None:
    """Return the marker at `header.position`; None if compaction emptied its batch.

    Raises CorruptError as `records` and `control_record` do.
    """
    for record in records(buffer, header):
        try:
            return control_record(record.key, record.value)
        except CorruptError as error:
            raise error.within(f"offset {record.offset}") from error
    return None


def control_record(key: bytes | None, value: bytes | None) -> Marker:
    """Return a control record's meaning. Raises CorruptError if Kafka would find it invalid."""
    reader = Reader(key or b"", "key of a control record")
    version, number = reader.int16(), reader.int16()
    if version < 0:
        raise reader.corrupt(f"version {version}")
    if number not in (0, 1):
        return Marker(ControlType.OTHER, None)
    reader = Reader(value or b"", "value of a transaction marker")
    reader.int16()  # version: 0; later ones may only append
    return Marker(ControlType.COMMIT if number else ControlType.ABORT, reader.int32())


def _corrupt(header: BatchHeader, what: str) -> CorruptError:
    return CorruptError(what, where=_where(header))


def _where(header: BatchHeader) -> str:
    return f"records of the batch at offset {header.base_offset}"


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; return it and the position after. Raises IndexError, ValueError."""
    byte = data[position]
    position += 1
    if byte < 0x80:  # nearly always
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint longer than ten bytes")


def _nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length >= 0:
        end = position + length
        return data[position:end], end
    if length == -1:
        return None, position
    raise ValueError("negative length")


_Headers = tuple[tuple[str, bytes | None], ...]


def _record(
    data: bytes, position: int
) -> tuple[int, int, bytes | None, bytes | None, _Headers, int]:
    """Return (offset delta, timestamp delta, key, value, headers, position after) of a record."""
    length, position = _varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise ValueError("length")
    time_delta, position = _varint(data, position + 1)  # one byte of attributes, unused
    offset_delta, position = _varint(data, position)
    key, position = _nullable(data, position)
    value, position = _nullable(data, position)
    # Catches a slice that ran over the end as well as bytes left over.
    if position == end - 1 and data[position] == 0:
        return offset_delta, time_delta, key, value, (), end
    headers, position = _headers(data, position)
    if position != end:
        raise ValueError("the record's parts do not fill its length")
    return offset_delta, time_delta, key, value, headers, end


def headers_of(section: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers in a record's last part. Raises IndexError or ValueError if malformed."""
    headers, position = _headers(section, 0)
    if position != len(section):
        raise ValueError("the headers do not fill their part")
    return headers


def _headers(data: bytes, position: int) -> tuple[_Headers, int]:
    count, position = _varint(data, position)
    if count < 0:
        raise ValueError("negative number of headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _nullable(data, position)
        if name is None:
            raise ValueError("header without a name")
        content, position = _nullable(data, position)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return tuple(headers), position


def is_utf8(name: str) -> bool:
    """Return True if a header's name was UTF-8: most clients cannot write others again."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def replaced(name: str) -> str:
    """Return a header's name with U+FFFD for all that is not UTF-8, as Kafka's Java clients do."""
    if is_utf8(name):
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def allow_expanded(size: int) -> Callable[[], None]:
    """Open batches of up to `size` expanded bytes in this process, instead of MOST_EXPANDED, until
    the returned function is called. The largest of several bounds counts."""
    _allowed.append(size)
    return partial(_allowed.remove, size)


def most_expanded() -> int:
    """Return how many bytes the records of one batch may expand to now."""
    return max(_allowed, default=MOST_EXPANDED)


def decompressed(buffer: Buffer, header: BatchHeader) -> bytes:
    """Return the bytes of a batch's records.

    Raises CorruptError if they do not decompress, or exceed the limits of bytes and records
    (`most_expanded`, MOST_RECORDS): decompression stops there, so that memory stays bounded.
    """
    start, end = header.position + HEADER_SIZE, header.position + header.size
    data = bytes(memoryview(buffer)[start:end])
    if header.records_count > MOST_RECORDS:
        raise _corrupt(header, f"{header.records_count:,} records in one batch are not opened")
    if not header.attributes & CODEC_MASK or not data:
        return data
    if header.codec not in _STREAMS:
        raise _corrupt(header, f"{header.codec} is not one that Kafka 4.3 writes")
    parts: list[bytes] = []
    size, most = 0, most_expanded()
    try:
        for part in _STREAMS[header.codec](data):
            size += len(part)
            if size > most:
                raise _too_large(header, most)
            parts.append(part)
    except CorruptError as error:
        raise error if error.where == _where(header) else error.within(_where(header)) from error
    except ModuleNotFoundError:
        raise CorruptError(
            f"its records are compressed with {header.codec}, which the extra 'data' reads",
            where=_where(header),
            remedy="pip install 'eoctl[data]'",
        ) from None
    except (OSError, EOFError, ValueError, zlib.error, struct.error) as error:
        raise _corrupt(header, f"they do not decompress as {header.codec}: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(header: BatchHeader, most: int) -> CorruptError:
    bound = counted(most, "byte") if most % (1 << 20) else f"{most >> 20} MiB"
    return CorruptError(
        f"a batch of {counted(header.size, 'byte')} ({header.codec}) expands to more than "
        f"{bound}, and is not opened",
        where=_where(header),
        remedy="find who wrote it; choose a range without this batch, or, where there is memory "
        f"for it, set {EXPANDED_PROPERTY} to more",
    )


def _gzip(data: bytes) -> Iterator[bytes]:
    """Decompress one member after the other, as gzip.decompress does."""
    while data:
        member = zlib.decompressobj(31)
        while not member.eof:
            part = member.decompress(data, _AT_ONCE)
            data = member.unconsumed_tail
            if not part and not data and not member.eof:
                raise EOFError("the bytes end within it")
            yield part
        data = member.unused_data.lstrip(b"\0")


def _arrow(codec: str, data: bytes) -> Iterator[bytes]:
    """Decode a stream: Java writes frames of unknown content size, possibly several.

    Read into buffers: `read` of pyarrow 26 never frees its bytes where the stream is damaged.
    """
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.BufferReader(data), codec)
    while part := bytes(stream.read_buffer(_AT_ONCE)):
        yield part


def _snappy(data: bytes) -> Iterator[bytes]:
    """Decode raw snappy (librdkafka) or xerial framing (Java): blocks, each after its length."""
    if not data.startswith(_XERIAL):
        yield from _snappy_block(data)
        return
    position = _XERIAL_HEADER
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise ValueError(f"a block of {counted(length, 'byte')}, {len(data) - position} left")
        yield from _snappy_block(data[position : position + length])
        position += length


def _snappy_block(block: bytes) -> Iterator[bytes]:
    """Decode a block at once; for one that claims too much, yield one byte above the limit."""
    import pyarrow as pa

    size = Reader(block, "snappy block").uvarint()
    if size > _MOST_SNAPPY_EXPANDS * len(block):
        raise ValueError(f"a block of {counted(len(block), 'byte')} claims to be {size:,}")
    if size > (most := most_expanded()):
        yield bytes(most + 1)
    yield bytes(pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True))


_STREAMS: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": partial(_arrow, "lz4"),
    "zstd": partial(_arrow, "zstd"),
}
"""Of each codec what gives the decompressed bytes in parts."""
