"""Batch headers against Kafka's own classes (golden file) and kafka-python's decoder."""

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import EoctlError, Exit
from recovery.formats.batches import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    OldMessageFormatError,
    batch_headers,
    crc_matches,
    header_at,
    scan_headers,
    verify_crcs,
)
from recovery.formats.reader import CorruptError
from recovery.formats.records import records
from tests.unit.formats_build import ABORT, Item, batch, marker

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())["batches"]
MAX = 2**31 - 1


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["name"]))
def test_headers_of_batches_written_by_kafka(case: dict[str, Any]) -> None:
    buffer = bytes.fromhex(case["hex"])
    headers = list(batch_headers(buffer))
    assert len(headers) == len(case["batches"])
    for header, expected in zip(headers, case["batches"], strict=True):
        for name in set(expected) - {"records"}:
            assert getattr(header, name) == expected[name], name
        assert crc_matches(buffer, header)
    verify_crcs(buffer, scan_headers(buffer))


ITEMS = st.lists(
    st.builds(
        Item,
        st.integers(0, 60),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=200),
        st.lists(
            st.tuples(
                st.text(st.characters(codec="utf-8"), max_size=9), st.none() | st.binary(max_size=9)
            ),
            max_size=3,
        ).map(tuple),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda item: item.offset,
).map(lambda items: sorted(items, key=lambda item: item.offset))


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of all kinds that kafka-python can write here, some with removed records."""
    out, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 5))):
        items = draw(ITEMS)
        last = offset + items[-1].offset + draw(st.integers(0, 5))
        pid = draw(st.sampled_from([-1, 0, 4001, 2**62]))
        out += batch(
            offset,
            items,
            codec=draw(st.sampled_from([0, 1, 4])),
            producer=(-1, -1, -1)
            if pid < 0
            else (pid, draw(st.integers(0, 32767)), draw(st.integers(0, MAX))),
            transactional=pid >= 0 and draw(st.booleans()),
            attributes=draw(st.sampled_from([0, 0x08, 0x40])),
            last_offset=last,
            leader_epoch=draw(st.integers(-1, MAX)),
        )
        offset = last + 1 + draw(st.integers(0, 3))
    return out


def by_kafka_python(buffer: bytes) -> list[dict[str, Any]]:
    from kafka.record.memory_records import MemoryRecords

    return [
        {
            "base_offset": b.base_offset,
            "last_offset": b.last_offset,
            "leader_epoch": b.leader_epoch,
            "magic": b.magic,
            "crc": b.crc,
            "attributes": b.attributes,
            "codec": ("none", "gzip", "snappy", "lz4", "zstd")[b.compression_type],
            "timestamp_type": ("CreateTime", "LogAppendTime")[b.timestamp_type],
            "is_transactional": b.is_transactional,
            "is_control": b.is_control_batch,
            "base_timestamp": b.first_timestamp,
            "max_timestamp": b.max_timestamp,
            "producer_id": b.producer_id,
            "producer_epoch": b.producer_epoch,
            "base_sequence": b.base_sequence,
            "last_sequence": b.last_sequence,
            "records_count": b.records_count,
            "size": b.size_in_bytes,
        }
        for b in MemoryRecords(buffer)
    ]


@given(logs())
def test_headers_as_kafka_python_reads_them(buffer: bytes) -> None:
    headers = list(batch_headers(buffer))
    expected = by_kafka_python(buffer)
    for header, one in zip(headers, expected, strict=True):
        assert {name: getattr(header, name) for name in one} == one
    ends = [0, *(header.position + header.size for header in headers)]
    assert ends[:-1] == [header.position for header in headers]
    assert ends[-1] == len(buffer)


@given(logs())
def test_a_scan_says_the_same_as_the_headers(buffer: bytes) -> None:
    headers, scan = list(batch_headers(buffer)), scan_headers(memoryview(buffer))
    assert len(scan) == len(headers)
    assert scan.end == len(buffer)
    assert scan.positions.tolist() == [header.position for header in headers]
    assert scan.last_offset.tolist() == [header.last_offset for header in headers]
    for name in ("magic", "crc", "attributes", "base_offset", "leader_epoch", "base_timestamp",
                 "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
                 "records_count"):  # fmt: skip
        assert scan.column(name).tolist() == [getattr(header, name) for header in headers]
    assert scan.has(TRANSACTIONAL).tolist() == [header.is_transactional for header in headers]
    assert scan.has(CONTROL).tolist() == [header.is_control for header in headers]


def test_every_cut_leaves_the_whole_batches() -> None:
    parts = [
        batch(10, [Item(0), Item(1)]),
        batch(12, [Item(0, value=b"x" * 90)], codec=1),
        marker(13, 5, ABORT),
    ]
    buffer = b"".join(parts)
    ends = [len(parts[0]), len(parts[0]) + len(parts[1]), len(buffer)]
    for length in range(len(buffer) + 1):
        whole = [end for end in ends if end <= length]
        headers = list(batch_headers(buffer[:length]))
        assert [header.position + header.size for header in headers] == whole
        scan = scan_headers(buffer[:length])
        assert scan.end == (whole[-1] if whole else 0)
        assert len(scan) == len(whole)


def test_the_crc_covers_all_behind_it_and_nothing_before() -> None:
    buffer = bytearray(batch(10, [Item(0), Item(1)]))
    for position in range(12, len(buffer)):
        if position == 16:
            continue  # magic: another format
        buffer[position] ^= 0x10
        assert crc_matches(buffer, header_at(buffer, 0)) == (position < 17), position
        buffer[position] ^= 0x10
    buffer[40] ^= 1
    with pytest.raises(CorruptError, match="byte 0, offset 10: the CRC is wrong"):
        verify_crcs(buffer, scan_headers(buffer))
    verify_crcs(buffer[:-1], scan_headers(buffer[:-1]))  # cut, so not there


def test_the_bad_crc_is_named_among_good_ones() -> None:
    buffer = bytearray(batch(10, [Item(0)]) + batch(11, [Item(0)]) + batch(12, [Item(0)]))
    second = list(batch_headers(buffer))[1].position
    buffer[second + 30] ^= 1
    with pytest.raises(CorruptError, match=f"byte {second}, offset 11"):
        verify_crcs(buffer, scan_headers(buffer))


def patched(position: int, form: str, value: int) -> bytes:
    out = bytearray(batch(100, [Item(0), Item(1)]) + batch(102, [Item(0), Item(1)]))
    struct.pack_into(form, out, list(batch_headers(out))[1].position + position, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        (patched(8, ">i", -1), "a length of -1 bytes"),
        (patched(8, ">i", -(2**31)), "a length of -2,147,483,648 bytes"),
        (patched(8, ">i", 48), "a length of 48 bytes"),
        (patched(16, ">b", 3), "unknown magic 3"),
        (patched(16, ">b", -1), "unknown magic -1"),
        (patched(57, ">i", -1), "-1 records on 2 offsets"),
        (patched(57, ">i", 3), "3 records on 2 offsets"),
        (patched(23, ">i", -1), "2 records on 0 offsets"),
        (patched(23, ">i", 0), "2 records on 1 offset"),
        (patched(0, ">q", 101), "offset 102 or higher expected"),
        (patched(0, ">q", -5), "offset 102 or higher expected"),
        (patched(0, ">q", 2**63 - 1), "its offsets pass 2\\^63 - 1"),
        (b"\0" * 100, "a length of 0 bytes"),
    ],
)
def test_impossible_headers_are_typed_errors(buffer: bytes, said: str) -> None:
    with pytest.raises(CorruptError, match=said) as one:
        list(batch_headers(buffer))
    with pytest.raises(CorruptError, match=said) as two:
        scan_headers(buffer)
    assert one.value.sentence == two.value.sentence
    assert one.value.exit_status == Exit.INCOMPLETE


def test_headers_before_the_damage_are_seen() -> None:
    iterator = batch_headers(patched(8, ">i", -1))
    assert next(iterator).base_offset == 100
    with pytest.raises(CorruptError):
        next(iterator)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_refused_in_words(magic: int) -> None:
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic, 0, 1000, offset=7)
    builder.append(1, b"k", b"v")
    builder.close()
    for read in (lambda b: list(batch_headers(b)), scan_headers):
        with pytest.raises(OldMessageFormatError) as caught:
            read(bytes(builder.buffer()))
        assert caught.value.exit_status == Exit.REFUSED
        assert caught.value.sentence.startswith(
            f"offset 7: messages of the old format (magic {magic}) are not read; "
        )


@given(logs(), st.data())
def test_damage_never_raises_anything_else(buffer: bytes, data: st.DataObject) -> None:
    out = bytearray(buffer) or bytearray(b"\0" * 70)
    for _ in range(data.draw(st.integers(1, 3))):
        out[data.draw(st.integers(0, len(out) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(EoctlError):
        for header in within(out):
            crc_matches(out, header)
            list(records(out, header))
    with contextlib.suppress(EoctlError):
        verify_crcs(out, scan_headers(out))
    with contextlib.suppress(EoctlError):
        scanned = scan_headers(out).positions.tolist()
        assert [header.position for header in within(out)] == scanned


def within(buffer: bytes | bytearray) -> Iterator[BatchHeader]:
    """The headers: one behind the other, none behind the end, with offsets that rise."""
    end, offset = 0, -1
    for header in batch_headers(buffer):
        assert header.position == end
        assert offset < header.base_offset <= header.last_offset
        end, offset = header.position + header.size, header.last_offset
        assert end <= len(buffer)
        yield header


@given(st.binary(max_size=300))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    with contextlib.suppress(EoctlError):
        scanned = scan_headers(noise).positions.tolist()
        assert [header.position for header in within(noise)] == scanned
