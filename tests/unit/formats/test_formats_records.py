"""Records and markers against Kafka's own classes (golden file) and kafka-python's decoder."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import EoctlError
from recovery.formats.batches import HEADER_SIZE, batch_headers, header_at
from recovery.formats.reader import CorruptError
from recovery.formats.records import ControlType, Marker, Record, control_record, marker, records
from tests.unit.formats.test_formats_batches import logs
from tests.unit.formats_build import Item, batch, seal

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())["batches"]
COMPRESSED = [case for case in GOLDEN if case["batches"][0]["codec"] != "none"]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["name"]))
def test_records_written_by_kafka(case: dict[str, Any]) -> None:
    buffer = bytes.fromhex(case["hex"])
    for header, expected in zip(batch_headers(buffer), case["batches"], strict=True):
        found = list(records(buffer, header))
        assert len(found) == len(expected["records"])
        for record, one in zip(found, expected["records"], strict=True):
            if str(one["value"]).startswith("length"):
                one = {**one, "value": (b"abcdefghijklmnop" * 1500).hex()}
            assert record == Record(
                one["offset"],
                None if one["timestamp"] == -1 else one["timestamp"],
                unhex(one["key"]),
                unhex(one["value"]),
                tuple((name, unhex(value)) for name, value in one["headers"]),
            )


def test_markers_written_by_kafka() -> None:
    seen = set()
    for case in GOLDEN:
        buffer = bytes.fromhex(case["hex"])
        (header,) = batch_headers(buffer)
        if header.is_control:
            (one,) = case["batches"][0]["records"]
            kind = {"ABORT": ControlType.ABORT, "COMMIT": ControlType.COMMIT}.get(
                one["type"], ControlType.OTHER
            )
            seen.add(kind)
            assert marker(buffer, header) == Marker(kind, one.get("coordinator_epoch"))
    assert seen == set(ControlType)


@given(logs())
def test_records_as_kafka_python_reads_them(buffer: bytes) -> None:
    from kafka.record.memory_records import MemoryRecords

    found = [record for header in batch_headers(buffer) for record in records(buffer, header)]
    expected = [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
        for b in MemoryRecords(buffer)
        for r in b
    ]
    assert found == expected


def test_an_emptied_marker_is_none() -> None:
    buffer = batch(5, [], producer=(1, 0, 0), transactional=True, attributes=0x20)
    (header,) = batch_headers(buffer)
    assert (header.records_count, marker(buffer, header)) == (0, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0\0", b""),
        (b"\xff\xff\0\0", b""),
        (b"\0\0\0\1", None),
        (b"\0\0\0\0", b"\0\0\0"),
    ],
)
def test_malformed_control_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptError):
        control_record(key, value)


def test_control_records_to_come() -> None:
    assert control_record(b"\0\7\0\1more", b"\0\7\0\0\0\5more") == Marker(ControlType.COMMIT, 5)
    assert control_record(b"\0\0\0\x63", None) == Marker(ControlType.OTHER, None)


# --- damage ---------------------------------------------------------------------------------


def decode(buffer: bytes) -> list[Record]:
    return list(records(buffer, header_at(buffer, 0)))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["name"]))
def test_every_cut_of_the_records_is_a_typed_error(case: dict[str, Any]) -> None:
    whole = bytes.fromhex(case["hex"])
    step = max(1, (len(whole) - HEADER_SIZE) // 300)
    for length in range(HEADER_SIZE, len(whole), step):
        cut = seal(bytearray(whole[:length]))
        with pytest.raises(CorruptError, match="records of the batch at offset"):
            decode(cut)


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_count_is_found(count: int) -> None:
    out = bytearray(batch(10, [Item(0), Item(1)], last_offset=20))
    out[57:61] = count.to_bytes(4, "big")
    with pytest.raises(CorruptError, match=r"too many for 1 record$|record 2 is malformed"):
        decode(bytes(out))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("00", "index out of range"),
        ("0d", "length"),  # negative
        ("0e00", "length"),  # more than there is
        ("ff" * 10 + "7f", "longer than ten bytes"),
        ("0c00000001020000", "do not fill its length"),  # a value that takes the header count
        ("0c000000030100", "negative length"),  # a key of length -2
        ("0c000000010101", "negative number of headers"),
        ("0e00000001010201", "header without a name"),
        ("1000000001010204 61", "index out of range"),  # a header name beyond the end
        ("0e00000001010000", "do not fill its length"),  # a byte too many
    ],
)
def test_malformed_records_are_typed_errors(record: str, why: str) -> None:
    out = bytearray(batch(10, [Item(0)])[:HEADER_SIZE]) + bytes.fromhex(record)
    with pytest.raises(CorruptError, match="offset 10: record 0 is malformed") as caught:
        decode(seal(out))
    assert why in str(caught.value.__cause__)


@pytest.mark.parametrize(("record", "delta"), [("0c000063010100", -50), ("0e0000c801010100", 100)])
def test_offsets_outside_the_batch(record: str, delta: int) -> None:
    out = bytearray(batch(10, [Item(0)])[:HEADER_SIZE]) + bytes.fromhex(record)
    with pytest.raises(CorruptError, match=f"record 0 has offset delta {delta}"):
        decode(seal(out))


def test_offsets_that_do_not_rise() -> None:
    one = batch(10, [Item(1)])[HEADER_SIZE:]
    out = bytearray(batch(10, [Item(0), Item(1)])[:HEADER_SIZE]) + one + one
    with pytest.raises(CorruptError, match="record 1 has offset delta 1"):
        decode(seal(out))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_to_come(codec: int) -> None:
    with pytest.raises(CorruptError, match=f"codec {codec} is not one that Kafka 4.3 writes"):
        decode(batch(10, [Item(0)], attributes=codec))


@given(st.sampled_from(COMPRESSED), st.data())
def test_damaged_compression_never_raises_anything_else(
    case: dict[str, Any], data: st.DataObject
) -> None:
    out = bytearray.fromhex(case["hex"])
    for _ in range(data.draw(st.integers(1, 4))):
        out[data.draw(st.integers(HEADER_SIZE, len(out) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(EoctlError):
        in_order(bytes(out))


@given(st.binary(max_size=120), st.integers(0, 4), st.integers(0, 5))
def test_noise_never_raises_anything_else(noise: bytes, codec: int, count: int) -> None:
    out = bytearray(batch(10, [Item(n) for n in range(5)], attributes=codec)[:HEADER_SIZE])
    out[57:61] = count.to_bytes(4, "big")
    with contextlib.suppress(EoctlError):
        assert len(in_order(seal(out + noise))) == count


def in_order(buffer: bytes) -> list[int]:
    """The offsets of what is decoded: they rise, and none is outside of the batch."""
    header, found = header_at(buffer, 0), [record.offset for record in decode(buffer)]
    assert found == sorted(set(found))
    assert all(header.base_offset <= offset <= header.last_offset for offset in found)
    return found


# --- framings that clients differ in --------------------------------------------------------


def recompressed(codec: int, compressed: bytes) -> bytes:
    out = bytearray(batch(10, ITEMS)[:HEADER_SIZE]) + compressed
    out[22] |= codec
    return seal(out)


ITEMS = [Item(n, key=b"k%d" % n, value=b"value" * 40) for n in range(9)]
PLAIN = batch(10, ITEMS)[HEADER_SIZE:]
HALVES = (PLAIN[:700], PLAIN[700:])


def zstd_of_unknown_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [
        (1, b"".join(gzip.compress(half) for half in HALVES)),
        (2, pa.Codec("snappy").compress(PLAIN, asbytes=True)),  # librdkafka frames nothing
        (3, b"".join(pa.Codec("lz4").compress(half, asbytes=True) for half in HALVES)),
        (4, zstd_of_unknown_size(PLAIN)),
        (4, b"".join(zstd_of_unknown_size(half) for half in HALVES)),
        (4, b"".join(zstandard.ZstdCompressor().compress(half) for half in HALVES)),
    ],
)
def test_framings(codec: int, compressed: bytes) -> None:
    assert decode(recompressed(codec, compressed)) == decode(batch(10, ITEMS))


def test_a_snappy_block_that_claims_gigabytes() -> None:
    with pytest.raises(CorruptError, match="of 55 bytes claims to be 4,294,967,295"):
        decode(recompressed(2, b"\xff\xff\xff\xff\x0f" + b"x" * 50))


def test_log_append_time_and_missing_time() -> None:
    items = [Item(0, timestamp=5), Item(1, timestamp=9)]
    append = batch(10, items, attributes=0x08, max_timestamp=77)
    assert [record.timestamp for record in decode(append)] == [77, 77]
    none = batch(10, [Item(0, timestamp=-1), Item(1, timestamp=9)])
    assert [record.timestamp for record in decode(none)] == [None, 9]
