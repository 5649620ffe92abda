"""What makes two records the same, on batches that kafka-python wrote."""

import struct

import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from recovery.errors import RefusedError, UsageError
from recovery.formats.columns import ColumnBatch
from recovery.shared.record_ids import SourceHeaders, digests, id_bytes, parse_record_id
from tests.unit.formats_build import decoded

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


def batch(*rows: Row) -> ColumnBatch:
    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for number, (key, value, headers) in enumerate(rows):
        builder.append(timestamp=number, key=key, value=value, headers=headers)
    builder.close()
    return decoded(builder.buffer(), None)


def test_key_value_header_and_json() -> None:
    records = batch(
        (b"k", b'{"order": {"id": 7}}', [("h", b"1"), ("h", b"2")]),
        (None, b"no json", [("other", b"1")]),
        (b"", None, [("h", b"")]),
    )
    assert list(id_bytes(parse_record_id("key"), records)) == [b"k", None, b""]
    assert list(id_bytes(parse_record_id("value"), records))[2] is None
    assert list(id_bytes(parse_record_id("header:h"), records)) == [b"2", None, b""]
    assert list(id_bytes(parse_record_id("json:order.id"), records)) == [b"7", None, None]
    ids, has = digests(parse_record_id("key"), records)
    assert has.tolist() == [True, False, True]
    assert ids[0].tolist() != ids[2].tolist()


def test_numbers_with_a_fraction_keep_their_digits() -> None:
    values = [b'{"id": 1700000000.123456789}', b'{"id": 1700000000.123456788}', b'{"id": 1}']
    records = batch(*[(None, value, []) for value in (*values, values[0])])
    ids = list(id_bytes(parse_record_id("json:id"), records))
    assert len(set(ids[:3])) == 3
    assert ids[3] == ids[0]


def source(partition: bytes, offset: bytes) -> Row:
    return b"k", b"v", [("source.partition", partition), ("source.offset", offset)]


def test_a_source_record_is_told_by_its_numbers_however_they_are_written() -> None:
    text = batch(source(b"1", b"5"), source(b"01", b"05"), source(b"1", b"6"), (b"k", b"v", []))
    one, same, other, none = id_bytes(parse_record_id("source"), text)
    assert one == same
    assert one != other
    assert none is None
    binary = batch(source(struct.pack(">i", 1), struct.pack(">q", 5)))
    numbers = SourceHeaders(numbers="int")
    assert list(id_bytes(parse_record_id("source", numbers), binary)) == [one]
    with pytest.raises(RefusedError, match="not decimal digits"):
        list(id_bytes(parse_record_id("source"), binary))


@pytest.mark.parametrize("text", ["", "keys", "header:", "json:", "json:a..b", "key:x", "source:"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not say what makes two records the same"):
        parse_record_id(text)
