"""A broker's other files next to a `.log`: producer state snapshots and aborted transactions.

A `.log` file is record batches back to back (`recovery.formats.batches`), up to `log_end`.
Source: Kafka's ProducerStateManager and ProducerSnapshot.json, AbortedTxn, TransactionIndex,
FileRecords.
"""

import struct

from recovery.formats.batches import LOG_OVERHEAD
from recovery.formats.reader import Buffer, CorruptError, Reader
from recovery.plurals import counted
from recovery.values import Value

_CRC_COVERS_FROM = 6
_ENTRY = struct.Struct(">hqqqq")


class ProducerState(Value):
    """A partition's knowledge of a producer when the snapshot was taken.

    last_sequence, last_offset: of the producer's last batch, which began offset_delta earlier; -1
    if only markers are left. timestamp: that of the batch, milliseconds since 1970.
    coordinator_epoch: of the last marker, -1 before the first. current_txn_first_offset: where the
    open transaction begins, -1 = none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class AbortedTransaction(Value):
    """An aborted transaction of a segment. last_offset: the marker's; last_stable_offset: then."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_snapshot(data: bytes) -> list[ProducerState]:
    """Read a `.snapshot` file. Raises CorruptError on a wrong CRC, version or length."""
    import crc32c

    reader = Reader(data, "producer state snapshot")
    version, crc = reader.int16(), reader.uint32()
    if version != 1:
        raise reader.corrupt(f"version {version}, only 1 is known")
    if crc32c.crc32c(data[_CRC_COVERS_FROM:]) != crc:
        raise reader.corrupt("the CRC is wrong")

    def entry() -> ProducerState:
        return ProducerState(
            producer_id=reader.int64(),
            producer_epoch=reader.int16(),
            last_sequence=reader.int32(),
            last_offset=reader.int64(),
            offset_delta=reader.int32(),
            timestamp=reader.int64(),
            coordinator_epoch=reader.int32(),
            current_txn_first_offset=reader.int64(),
        )

    return reader.array(entry) or []


def read_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Read a `.txnindex` file. Raises CorruptError on an unknown version or an incomplete entry."""
    if len(data) % _ENTRY.size:
        raise CorruptError(
            f"{counted(len(data), 'byte is', 'bytes are')} not a multiple of the "
            f"{_ENTRY.size}-byte entries",
            where="transaction index",
        )
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != 0:
            raise CorruptError(f"version {version}, only 0 is known", where="transaction index")
        entries.append(AbortedTransaction(*fields))
    return entries


def log_end(data: Buffer) -> int:
    """Return the end of a `.log` file's batches: its length, or where preallocated zeros begin."""
    view, position = memoryview(data), 0
    while position + LOG_OVERHEAD <= len(view):
        (length,) = struct.unpack_from(">i", view, position + 8)
        if length == 0 and not any(view[position:]):
            return position
        if length <= 0:
            break
        position += LOG_OVERHEAD + length
    return len(view)
