"""Names of headers that are any bytes: read as kafka-python does, or marked where it can't."""

import warnings

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recovery.dedup.repeats import visible
from recovery.errors import RefusedError
from recovery.formats.batches import header_at
from recovery.formats.columns import ColumnBatch
from recovery.formats.records import is_utf8, records, replaced
from recovery.shared.record_ids import header_value
from spark_jobs.source_columns import HEADERS, RECORD, _headers
from tests.share import share
from tests.unit.formats_build import Item, batch, decoded, seal

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import CorruptRecordError
    from kafka.record import MemoryRecords

names = st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode))
HOSTILE = (b"caf\xe9", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"")


def named(name: bytes, timestamp: int = 5) -> bytes:
    """A batch of one record with a header of this name."""
    stands = "~" * len(name)
    out = bytearray(batch(0, [Item(0, timestamp, b"k", b"v", ((stands, b"content"),))]))
    if name:
        at = out.index(stands.encode())
        out[at : at + len(name)] = name
    return seal(out)


def by_kafka_python(log: bytes) -> str | None:
    """None where it can't read the record."""
    read = MemoryRecords(log).next_batch()
    assert read is not None
    try:
        [record] = read
    except CorruptRecordError as error:
        if "UnicodeDecodeError" not in str(error):
            raise
        return None
    [(name, content)] = record.headers
    assert content == b"content"
    return str(name)


@given(name=names)
@example(b"\xef\xbf\xbd")  # U+FFFD itself, as its producer meant it
@settings(max_examples=share(2_000), deadline=None)
def test_a_name_is_what_kafka_python_reads_or_is_marked(name: bytes) -> None:
    log = named(name)
    expected, found = by_kafka_python(log), decoded(log, None)
    [(read, content)] = found.header_list(0)
    [record] = records(log, header_at(log, 0))
    assert (content, record.headers) == (b"content", ((read, b"content"),))
    assert is_utf8(read) == (expected is not None)
    assert read.encode("utf-8", "surrogateescape") == name
    if expected is not None:
        assert read == replaced(read) == expected
    assert header_value(found, 0, read) == b"content"


def _copied(log: bytes) -> ColumnBatch:
    return visible(decoded(log, None))


@pytest.mark.parametrize("name", HOSTILE)
def test_only_what_a_copy_would_change_is_refused(name: bytes) -> None:
    if by_kafka_python(named(name)) is None:
        with pytest.raises(RefusedError, match="not UTF-8"):
            _copied(named(name))
    else:
        assert len(_copied(named(name))) == 1
    assert len(_copied(named("\ufffd".encode()))) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_spark_gets_a_name_that_arrow_can_hold(name: bytes) -> None:
    """As its own source, which is Java's: with U+FFFD."""
    assert RECORD["headers"] == HEADERS
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    [[header]] = _headers(decoded(named(name), None), kind).to_pylist()
    assert header["value"] == b"content"
    readable = by_kafka_python(named(name))
    if readable is None:
        assert "\ufffd" in header["key"]
    else:
        assert header["key"] == readable
