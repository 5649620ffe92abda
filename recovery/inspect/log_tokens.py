"""What some batches of `__transaction_state` are about: hashes for an index, ids by batch.

An index of hashes says which batches may name an id; the batches are then decoded. So two names
with one hash cost time but never give a wrong answer.
"""

import zlib
from array import array
from collections.abc import Collection, Iterator
from typing import NamedTuple

from recovery.formats.batches import CODEC_MASK, HEADER_SIZE, HeaderScan
from recovery.formats.reader import CorruptError, UnknownVersion
from recovery.formats.records import records
from recovery.formats.transaction_state import decode_key, decode_value
from recovery.inspect.history import StateRecord, producer_ids_of
from recovery.inspect.log_part import KEY_HEAD, TAGGED, VALUE_HEAD, LogPart, number_at
from recovery.values import Value

_OF_PRODUCERS = 1  # seed: producer ids and transactional ids of equal bytes have different tokens


class Tokens(NamedTuple):
    """A hash of each transactional id and producer id in some batches.

    hashes: CRC-32, ascending, each once. opaque: a record was unreadable, so the batches may be
    about any id.
    """

    hashes: "array[int]"
    opaque: bool


class RowNames(Value):
    """The transactional ids of one batch, and those of its tombstones."""

    row: int  # of the scan
    names: Collection[bytes] | None  # None = unreadable
    ended: Collection[bytes] = ()


def id_token(name: bytes) -> int:
    """Return the hash under which an index keeps a transactional id."""
    return zlib.crc32(name)


def producer_token(producer_id: int) -> int:
    """Return the hash under which an index keeps a producer id."""
    return zlib.crc32(producer_id.to_bytes(8, "big", signed=True), _OF_PRODUCERS)


def encoded(name: str) -> bytes:
    """Return a transactional id as the bytes of it in a key."""
    return name.encode("utf-8", "surrogatepass")


def tokens(part: LogPart) -> Tokens:
    """Return the hashes of all ids and producer ids in these batches."""
    hashes: set[int] = set()
    opaque = False
    if isinstance(part.scan, HeaderScan):
        names, producer_ids = _of_lone(part)
        hashes |= {id_token(n) for n in names} | {producer_token(p) for p in producer_ids}
    for row in part.others:
        of_row = _of_plain_row(part, row) or _of_opened_row(part, row)
        if of_row is None:
            opaque = True
        else:
            hashes |= of_row
    return Tokens(array("I", sorted(hashes)), opaque)


def _of_lone(part: LogPart) -> tuple[set[bytes], set[int]]:
    import numpy as np

    lone, data = part.lone, part.data
    pairs = zip(lone.id_start.tolist(), lone.id_length.tolist(), strict=True)
    names = {bytes(data[start : start + length]) for start, length in pairs}
    producer_ids = set(np.unique(lone.producer_id).tolist())
    raw = np.frombuffer(data, np.uint8)
    for distance in TAGGED:
        at = lone.end - distance
        at = at[at >= 2]
        # A tagged field begins with its number, 0 or 1, and its size.
        at = at[(raw[at - 1] == 8) & (raw[at - 2] <= 1)]
        producer_ids |= set(np.unique(number_at(data, at, 8)).tolist())
    return names, producer_ids


def _of_plain_row(part: LogPart, row: int) -> set[int] | None:
    """Return the tokens of a batch of one plain record, found by its lengths; None: open it."""
    header = part.header(row)
    if header.records_count != 1 or header.attributes & CODEC_MASK:
        return None
    record = bytes(part.data[header.position + HEADER_SIZE : header.position + header.size])
    try:
        return _of_plain_record(record)
    except IndexError:
        return None


def _of_plain_record(data: bytes) -> set[int] | None:
    """Return the tokens of a batch's only record; None if coordinators write no such record."""
    length, at = _length(data, 0)
    if at + length != len(data):
        return None
    at = _after(data, _after(data, at + 1))
    key_length, key = _length(data, at)
    if key_length <= KEY_HEAD or data[key : key + 2] != b"\0\0":
        return None
    if int.from_bytes(data[key + 2 : key + 4], "big") != key_length - KEY_HEAD:
        return None
    hashes = {id_token(data[key + KEY_HEAD : key + key_length])}
    value_length, value = _length(data, key + key_length)
    if value_length == -1:
        return hashes
    end = value + value_length
    if value_length < VALUE_HEAD or end + 1 != len(data) or data[value] or data[value + 1] > 1:
        return None
    found = [value + 2]
    found += [end - d for d in TAGGED if data[end - d - 1] == 8 and data[end - d - 2] <= 1]
    return hashes | {zlib.crc32(data[at : at + 8], _OF_PRODUCERS) for at in found}


def _after(data: bytes, at: int) -> int:
    """Return the position after a varint."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _of_opened_row(part: LogPart, row: int) -> set[int] | None:
    """Return the tokens of any batch; None if something in it is unreadable."""
    hashes: set[int] = set()
    try:
        for r in records(part.data, part.header(row)):
            name = UnknownVersion(-1) if r.key is None else decode_key(r.key)
            value = decode_value(r.value)
            if isinstance(name, UnknownVersion) or isinstance(value, UnknownVersion):
                return None
            hashes.add(id_token(encoded(name)))
            borne = producer_ids_of(StateRecord(name, -1, r.offset, 0, value))
            hashes |= {producer_token(pid) for pid in borne}
    except CorruptError:
        return None
    return hashes


def names_of(part: LogPart) -> Iterator[RowNames]:
    """Yield the transactional ids of each batch, in order."""
    lone: dict[int, RowNames] = {}
    if isinstance(part.scan, HeaderScan):
        of, data = part.lone, part.data
        columns = (of.rows, of.id_start, of.id_length, of.producer_id)
        for row, start, length, pid in zip(*(c.tolist() for c in columns), strict=True):
            name = (bytes(data[start : start + length]),)
            lone[row] = RowNames(row, name, name if pid == -1 else ())
    for row in range(len(part.scan)):
        yield lone.get(row) or _opened_names(part, row)


def _opened_names(part: LogPart, row: int) -> RowNames:
    names, ended = set(), set()
    try:
        for r in records(part.data, part.header(row)):
            name = UnknownVersion(-1) if r.key is None else decode_key(r.key)
            if isinstance(name, UnknownVersion):
                return RowNames(row, None)
            names.add(encoded(name))
            if r.value is None:
                ended.add(encoded(name))
    except CorruptError:
        return RowNames(row, None)
    return RowNames(row, names, ended)
