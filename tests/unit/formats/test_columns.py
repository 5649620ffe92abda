"""Records as columns against kafka-python's slow record parser, record for record."""

import itertools
import random
import struct
import warnings
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.formats import columns, columns_walk
from recovery.formats.batches import OldMessageFormatError, batch_headers
from recovery.formats.columns import ABORTED, COMMITTED, NONE, OPEN, OUTCOMES, decode
from recovery.formats.counting import AbortedTransactions
from recovery.formats.reader import CorruptError
from recovery.formats.records import records
from tests.share import fewer, only_here, share
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, decoded, marker, seal

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords

T = 1_700_000_000_000

blob = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.integers(60, 70).map(bytes),
    st.integers(8185, 8200).map(bytes),
)
headers = st.lists(st.tuples(st.text(max_size=4), blob), max_size=3).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches, as producers, compaction and brokers leave them."""
    offset, out = draw(st.integers(0, 5)), b""
    for _ in range(draw(st.integers(1, 5))):
        same = draw(st.booleans())  # many records of one size, as changelogs have
        count = draw(st.sampled_from((0, 3, 20, 600)) if same else st.integers(0, 12))
        steps = draw(st.lists(st.sampled_from((1, 1, 1, 2, 70)), min_size=count, max_size=count))
        offsets = list(itertools.accumulate(steps))
        times = st.integers(-1, 200_000) if draw(st.booleans()) else st.just(0)
        value = b"v" * draw(st.sampled_from((0, 50, 60, 100, 9000 if count < 20 else 100)))
        items = [
            Item(o, T + draw(times), b"k%06d" % o, value)
            if same
            else Item(o, draw(st.sampled_from((-1, T + o))), draw(blob), draw(blob), draw(headers))
            for o in (step - offsets[0] for step in offsets)
        ]
        behind = offset + (offsets[-1] - offsets[0] if offsets else 0) + draw(st.integers(0, 3))
        attributes = draw(st.sampled_from((0, 0, 8)))
        if items:
            out += batch(
                offset,
                items,
                producer=draw(st.sampled_from(((-1, -1, -1), (7, 1, 2**31 - 3)))),
                attributes=attributes,
                max_timestamp=T + 9 if attributes else None,
                last_offset=behind,
            )
        else:
            out += _emptied(batch(offset, [Item(0)], last_offset=behind))
        offset = behind + draw(st.integers(1, 4))
    return out


CODECS = ("none", "gzip", "snappy", "xerial", "lz4", "zstd")


def packed(log: bytes, codec: str) -> bytes:
    """The same batches, compressed: kafka-python has not all the codecs."""
    return b"".join(
        _packed(log[h.position : h.position + h.size], codec) for h in batch_headers(log)
    )


def _packed(data: bytes, codec: str) -> bytes:
    content = data[61:]
    if codec == "none" or not content:
        return data
    number = {"gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}[codec]
    if codec == "xerial":
        content = (
            b"\x82SNAPPY\x00"
            + struct.pack(">ii", 1, 1)
            + b"".join(
                struct.pack(">i", len(block)) + block
                for at in range(0, len(content), 100)
                for block in [_compressed(content[at : at + 100], "snappy")]
            )
        )
    else:
        content = _compressed(content, codec)
    out = bytearray(data[:61] + content)
    out[22] |= number
    return seal(out)


def _compressed(content: bytes, codec: str) -> bytes:
    return bytes(pa.Codec(codec).compress(content, asbytes=True))


def _emptied(data: bytes) -> bytes:
    """What compaction leaves where it removed every record of a batch."""
    out = bytearray(data[:61])
    struct.pack_into(">i", out, 57, 0)
    return seal(out)


def slow(buffer: bytes) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, headers) by kafka-python."""
    log, found = MemoryRecords(buffer), []
    while (part := log.next_batch()) is not None:
        found += [
            (r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in part
        ]
    return found


def fast(found: columns.ColumnBatch) -> list[tuple[Any, ...]]:
    return [
        (
            int(found.offset[i]),
            int(found.timestamp[i]),
            found.key[i],
            found.value[i],
            found.header_list(i),
        )
        for i in range(len(found))
    ]


@pytest.mark.parametrize("codec", CODECS)
@given(buffer=logs())
@settings(max_examples=fewer(300, here=24), deadline=None)
def test_columns_are_the_records_of_the_slow_parser(codec: str, buffer: bytes) -> None:
    found, expected = decoded(packed(buffer, codec), ()), slow(buffer)
    assert fast(found) == expected
    rows = found.rows().to_pylist()
    assert [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in rows] == [
        (offset, None if time == -1 else time, key, value)
        for offset, time, key, value, _ in expected
    ]
    some = found.select(found.offset % 3 == 1)
    assert fast(some) == [r for r in expected if r[0] % 3 == 1]
    assert some.rows()["key"].to_pylist() == [r[2] for r in expected if r[0] % 3 == 1]


@given(logs(), st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=share(300), deadline=None)
def test_a_range_cuts_batches(buffer: bytes, start: int, length: int) -> None:
    found = decoded(buffer, (), start=start, end=start + length)
    assert fast(found) == [r for r in slow(buffer) if start <= r[0] < start + length]


@pytest.mark.parametrize("codec", CODECS)
@given(buffer=logs(), start=st.integers(0, 40), most=st.sampled_from((1, 300, 9000)))
@settings(max_examples=fewer(100, here=8), deadline=None)
def test_parts_together_are_the_whole(codec: str, buffer: bytes, start: int, most: int) -> None:
    with patch.multiple(columns, _PART_BYTES=most, _PART_RECORDS=most):
        parts = list(decode(packed(buffer, codec), (), start=start))
    assert [r for part in parts for r in fast(part)] == [r for r in slow(buffer) if r[0] >= start]
    assert sum(len(part.batches) for part in parts) == sum(
        h.last_offset >= start for h in batch_headers(buffer)
    )
    filled = [int((p.batches.scan.column("records_count") > 0).sum()) for p in parts]
    assert len(parts) == 1 or 0 not in filled  # else nobody would look at its batches
    assert most > 1 or max(filled) <= 1


@pytest.mark.parametrize("codec", only_here(CODECS, "none", "zstd"))
def test_every_truncation(codec: str) -> None:
    """Whole batches are read, the cut one is left; none is read in part."""
    items = [Item(i, T + i, b"key-%d" % i, None if i % 5 == 0 else b"v" * i) for i in range(30)]
    plain = [batch(base, items) for base in (0, 30, 60)]
    whole = [packed(data, codec) for data in plain]
    ends = list(itertools.accumulate(map(len, whole)))
    buffer = b"".join(whole)
    expected = slow(b"".join(plain))
    for length in range(len(buffer) + 1):
        found = decoded(buffer[:length], ())
        assert len(found) == 30 * sum(end <= length for end in ends)
        if length in ends:
            assert fast(found) == expected[: len(found)]


@given(logs(), st.data())
@settings(max_examples=fewer(2000, here=80), deadline=None)
def test_damage_is_found_or_does_no_harm(buffer: bytes, data: st.DataObject) -> None:
    """Without CRCs: the same as the exact decoder says, and never another exception."""
    at = data.draw(st.integers(61, max(61, len(buffer) - 1)))
    damaged = bytearray(buffer)
    if at < len(damaged):
        damaged[at] ^= data.draw(st.integers(1, 255))
    as_the_exact_decoder_says(bytes(damaged))


@given(logs(), st.data())
@settings(max_examples=fewer(600, here=60), deadline=None)
def test_records_found_by_their_zeros(buffer: bytes, data: st.DataObject) -> None:
    """Whatever the records, damaged or not: found so, or left to the walk from one to the next."""
    damaged = bytearray(buffer)
    at = data.draw(st.integers(61, max(61, len(buffer) - 1)))
    if at < len(damaged) and data.draw(st.booleans()):
        damaged[at] ^= data.draw(st.integers(1, 255))
    with (
        patch.object(columns_walk, "_sizes_vary", return_value=True),
        patch.object(columns_walk, "_LOCK_STEP_LEAST", 1 << 60),
    ):
        as_the_exact_decoder_says(bytes(damaged))


@pytest.mark.parametrize("seed", range(3))
def test_records_of_many_sizes_are_not_walked_one_by_one(seed: int) -> None:
    """Text, random bytes, and big-endian numbers, which are full of the byte that is looked for."""
    chance, out = random.Random(seed), []
    values = (
        lambda: b"x" * chance.randrange(300),
        lambda: chance.randbytes(chance.randrange(300)),
        lambda: struct.pack(">qq", T, chance.randrange(9)) * chance.randrange(9),
    )
    for number in range(5):
        items = [
            Item(i, T + i, b"k%d" % chance.randrange(9**9), values[seed]()) for i in range(400)
        ]
        out.append(batch(400 * number, items))
    with patch.object(columns_walk, "_one_by_one", side_effect=AssertionError):
        found = decoded(b"".join(out), ())
    assert fast(found) == slow(b"".join(out))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_a_magic_that_damage_made(magic: int) -> None:
    first, second = batch(0, [Item(0)]), bytearray(batch(1, [Item(0)]))
    second[16] = magic
    with pytest.raises(OldMessageFormatError if magic < 2 else CorruptError):
        decoded(first + bytes(second), (), check_crc=False)
    as_the_exact_decoder_says(first + bytes(second))


def as_the_exact_decoder_says(damaged: bytes) -> None:
    """The same records, or the same error: of a magic byte, CorruptError or that of old clients."""
    try:
        expected = [r for h in batch_headers(damaged) for r in records(damaged, h)]
    except (CorruptError, OldMessageFormatError) as error:
        with pytest.raises(type(error)):  # headers are only looked at when asked for
            fast(decoded(damaged, (), check_crc=False))
        return
    found = decoded(damaged, (), check_crc=False)
    assert [(o, None if t == -1 else t, k, v, h) for o, t, k, v, h in fast(found)] == [
        tuple(r) for r in expected
    ]


def test_the_crc_is_checked() -> None:
    damaged = bytearray(batch(0, [Item(0, value=b"money")]))
    damaged[-2] ^= 1
    with pytest.raises(CorruptError, match="CRC"):
        decoded(bytes(damaged), ())
    assert decoded(bytes(damaged), (), check_crc=False).value[0] != b"money"


@pytest.mark.parametrize("size", [0, 40, 57, 58, 5000, 8190, 600_000])
def test_lengths_of_one_to_three_bytes(size: int) -> None:
    items = [Item(i, T, b"k", b"v" * size) for i in range(3)]
    items += [Item(i, T, b"k", b"v" * (size // 2)) for i in range(3, 5)]
    buffer = b"".join(batch(5 * n, items) for n in range(2 if size > 9000 else 20))
    assert [r for part in decode(buffer, ()) for r in fast(part)] == slow(buffer)


def test_outcomes() -> None:
    """Aborted and committed by the response's list, open at the LSO, none without transaction."""

    def data(offset: int, producer: int) -> bytes:
        return batch(
            offset, [Item(0), Item(1)], producer=(producer, 0, 0), transactional=producer > 0
        )

    buffer = (
        data(0, 1)
        + data(2, 2)
        + data(4, -1)
        + marker(6, 1, ABORT)
        + data(7, 1)
        + marker(9, 1, COMMIT)
        + marker(10, 2, COMMIT)
        + data(11, 1)
    )
    found = decoded(buffer, [(1, 0)], last_stable_offset=11)
    assert [(int(o), OUTCOMES[k]) for o, k in zip(found.offset, found.outcome, strict=True)] == [
        (0, "aborted"),
        (1, "aborted"),
        (2, "committed"),
        (3, "committed"),
        (4, "none"),
        (5, "none"),
        (6, "none"),
        (7, "committed"),
        (8, "committed"),
        (9, "none"),
        (10, "none"),
        (11, "open"),
        (12, "open"),
    ]
    assert found.offset[found.is_control].tolist() == [6, 9, 10]
    with patch.object(columns, "_PART_RECORDS", 1):  # an abort ends in another part than it began
        parts = list(decode(buffer, [(1, 0)], last_stable_offset=11))
    assert len(parts) == 8
    assert [o for part in parts for o in part.outcome] == found.outcome.tolist()
    tracker = AbortedTransactions([(1, 0)])
    said = [tracker.is_aborted(buffer, h) for h in batch_headers(buffer)]
    assert [o == ABORTED for o in found.batches.outcome] == said
    assert {NONE, COMMITTED, ABORTED, OPEN} == set(found.outcome.tolist())
    with pytest.raises(ValueError, match="no list"):
        decoded(buffer, None, last_stable_offset=11)


def test_producer_columns() -> None:
    buffer = batch(10, [Item(0), Item(2)], producer=(7, 3, 2**31 - 2)) + batch(13, [Item(0)])
    found = decoded(buffer, ())
    assert found.producer_id.tolist() == [7, 7, -1]
    assert found.producer_epoch.tolist() == [3, 3, -1]
    assert found.sequence.tolist() == [2**31 - 2, 0, -1]  # after 2^31 - 1 comes 0


def test_nothing() -> None:
    found = decoded(b"", ())
    assert len(found) == 0
    assert found.rows().num_rows == 0
    assert found.rows().schema == columns.rows_schema()
    assert isinstance(found.key.array(), pa.LargeBinaryArray)


@pytest.mark.parametrize("seed", range(3))
def test_many_small_batches(seed: int) -> None:
    """As producers with a short linger leave them: they are walked side by side."""
    chance, out, offset = random.Random(seed), [], 0
    for _ in range(300):
        count = chance.randrange(1, 5)
        items = [Item(i, T, b"k", bytes(chance.choice((0, 55, 62, 9000)))) for i in range(count)]
        out.append(batch(offset, items))
        offset += count
    buffer = b"".join(out)
    assert fast(decoded(buffer, ())) == slow(buffer)
    hit = bytearray(buffer)
    start = len(b"".join(out[:200]))
    hit[start + 61] ^= 2  # the length of a record
    with pytest.raises(CorruptError, match="record 0 is malformed") as error:
        decoded(bytes(hit), (), check_crc=False)
    base = struct.unpack_from(">q", buffer, start)[0]
    assert str(base) in str(error.value.where)
