"""Record batches for tests, written by kafka-python; what only brokers write is patched in."""

import struct
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from recovery.formats.columns import ColumnBatch, decode

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecordsBuilder
    from kafka.record.util import calc_crc32c

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
END_TRANSACTION = struct.pack(">hi", 0, 31)


class Item(NamedTuple):
    """A record to be written; offset counts from the batch's base."""

    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()


def batch(
    base_offset: int,
    items: Iterable[Item],
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    attributes: int = 0,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    leader_epoch: int = 3,
) -> bytes:
    """One batch. producer: id, epoch, base sequence; attributes: further bits to set;
    last_offset: of the batch, where compaction has removed the records behind."""
    builder = MemoryRecordsBuilder(2, codec, 1 << 22)
    builder.set_producer_state(*producer, transactional)
    for item in items:
        builder.skip(item.offset - builder.next_offset())
        assert builder.append(item.timestamp, item.key, item.value, list(item.headers))
    builder.close()
    out = bytearray(builder.buffer())
    struct.pack_into(">q", out, 0, base_offset)
    struct.pack_into(">i", out, 12, leader_epoch)
    out[22] |= attributes
    if last_offset is not None:
        struct.pack_into(">i", out, 23, last_offset - base_offset)
    if max_timestamp is not None:
        struct.pack_into(">q", out, 35, max_timestamp)
    return seal(out)


def marker(offset: int, producer_id: int, kind: bytes, *, epoch: int = 0) -> bytes:
    """A transaction marker, ABORT or COMMIT."""
    item = Item(0, key=kind, value=END_TRANSACTION)
    out = bytearray(batch(offset, [item], producer=(producer_id, epoch, 0), transactional=True))
    out[22] |= 0x20
    struct.pack_into(">i", out, 53, -1)
    return seal(out)


def seal(out: bytearray) -> bytes:
    """The batch with its length and CRC made right."""
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, calc_crc32c(memoryview(out)[21:]))
    return bytes(out)


def decoded(buffer: bytes, *given: Any, **options: Any) -> ColumnBatch:
    """The records of a response so small that `decode` gives them in one part."""
    [whole] = decode(buffer, *given, **options)
    return whole
