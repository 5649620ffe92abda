"""coast's records against bytes laid out by hand, and modified UTF-8 against its definition."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.formats.coast import (
    ChangelogRecord,
    MergeRecord,
    decode_changelog,
    decode_merge,
    encode_merge,
)
from recovery.formats.reader import CorruptError


def java_utf(text: str) -> bytes:
    """java.io.DataOutput.writeUTF, as its documentation spells it: unit by unit."""
    body = bytearray()
    raw = text.encode("utf-16-be")
    for unit in (raw[i] << 8 | raw[i + 1] for i in range(0, len(raw), 2)):
        if 0x0001 <= unit <= 0x007F:
            body.append(unit)
        elif unit <= 0x07FF:
            body += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            body += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return struct.pack(">H", len(body)) + bytes(body)


@given(st.text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
@settings(deadline=None)
def test_merge_records(stream: str, partition: int, offset: int) -> None:
    written = java_utf(stream) + struct.pack(">iq", partition, offset)
    record = MergeRecord(stream, partition, offset)
    assert decode_merge(written) == record
    assert encode_merge(record) == written


def test_a_merge_record_byte_by_byte() -> None:
    value = b"\x00\x05lines" + b"\x00\x00\x00\x03" + b"\x00\x00\x00\x00\x00\x00\x04\x12"
    assert decode_merge(value) == MergeRecord("lines", 3, 1042)
    assert encode_merge(MergeRecord("\0\U0001f600", 0, 0))[:10] == (
        b"\x00\x08\xc0\x80\xed\xa0\xbd\xed\xb8\x80"
    )


def test_a_name_of_more_than_32767_bytes() -> None:
    record = MergeRecord("x" * 40_000, 0, 0)
    assert decode_merge(encode_merge(record)) == record
    with pytest.raises(ValueError, match="65,536 bytes"):
        encode_merge(MergeRecord("x" * 65_536, 0, 0))


GOOD = java_utf("lines") + struct.pack(">iq", 3, 1042)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        *(GOOD[:n] for n in range(len(GOOD))),
        GOOD + b"\0",
        b"\x00\x02\xff\xff" + GOOD[7:],
        b"\x00\x03\xed\xa0\xbd" + GOOD[7:],  # half of a pair
        java_utf("lines") + struct.pack(">iq", -1, 0),
        java_utf("lines") + struct.pack(">iq", 0, -1),
    ],
)
def test_merge_records_that_are_none(value: bytes | None) -> None:
    with pytest.raises(CorruptError):
        decode_merge(value)


@given(st.binary(max_size=30))
@settings(deadline=None)
def test_no_bytes_break_the_decoders(value: bytes) -> None:
    """What is decoded is all that is there: its parts, laid end to end, are the bytes again."""
    with suppress(CorruptError):
        merged = decode_merge(value)
        assert value[-12:] == struct.pack(">iq", merged.partition, merged.offset)
        assert struct.unpack_from(">H", value)[0] == len(value) - 14
    with suppress(CorruptError):
        key, upstream, downstream, state = decode_changelog(value, value)
        assert struct.pack(">i", len(key)) + key == value
        assert struct.pack(">qqi", upstream, downstream, len(state)) + state == value


@given(st.binary(max_size=9), st.integers(0, 2**63 - 1), st.integers(0, 99), st.binary(max_size=9))
@settings(deadline=None)
def test_changelog_records(key: bytes, upstream: int, downstream: int, state: bytes) -> None:
    written = struct.pack(">i", len(key)) + key
    value = struct.pack(">qqi", upstream, downstream, len(state)) + state
    assert decode_changelog(written, value) == ChangelogRecord(key, upstream, downstream, state)
    for broken in (value[:-1], value + b"\0", None, struct.pack(">qqi", -1, 0, 0)):
        with pytest.raises(CorruptError):
            decode_changelog(written, broken)
    for broken_key in (written + b"\0", written[:-1], None):
        with pytest.raises(CorruptError):
            decode_changelog(broken_key, value)
