"""`__transaction_state` against bytes of Kafka's own classes, and of kafka-python's codecs."""

import json
import struct
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import Exit
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError, Reader, UnknownVersion
from recovery.formats.transaction_state import (
    TransactionState,
    TransactionValue,
    decode_key,
    decode_value,
)

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.old import types as kp

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())
VALUES = GOLDEN["transaction_values"]


def test_keys_written_by_kafka() -> None:
    for case in GOLDEN["transaction_keys"]:
        assert decode_key(bytes.fromhex(case["hex"])) == case["id"]


@pytest.mark.parametrize("case", VALUES, ids=lambda c: f"v{c['version']}-{c['state']}-{c['tags']}")
def test_values_written_by_kafka(case: dict[str, Any]) -> None:
    empty = case["state"] == "Empty"
    assert decode_value(bytes.fromhex(case["hex"])) == TransactionValue(
        producer_id=4001 << 33,
        producer_epoch=12,
        timeout_ms=60000,
        state=TransactionState(case["state"]),
        partitions=()
        if empty
        else (
            TopicPartition("orders", 0),
            TopicPartition("orders", 3),
            TopicPartition("orders", 2147483647),
        ),
        last_update_ms=1700000000456,
        start_ms=-1 if empty else 1700000000123,
        previous_producer_id=4000 if case["tags"] else -1,
        next_producer_id=4002 if case["tags"] else -1,
        next_producer_epoch=5 if case["tags"] else -1,
        client_transaction_version=2 if case["tags"] else 0,
    )


def test_every_state_of_kafka_has_its_name() -> None:
    seen = {case["state"] for case in VALUES}
    assert seen == {str(state) for state in TransactionState} - {"Unknown"}


def test_tombstone_and_versions_to_come() -> None:
    assert decode_value(None) is None
    assert decode_value(b"\0\2whatever") == UnknownVersion(2)
    assert decode_key(b"\0\1whatever") == UnknownVersion(1)


@pytest.mark.parametrize("case", VALUES, ids=lambda c: f"v{c['version']}-{c['state']}-{c['tags']}")
def test_a_cut_value_is_a_typed_error(case: dict[str, Any]) -> None:
    whole = bytes.fromhex(case["hex"])
    for length in range(len(whole)):
        with pytest.raises(CorruptError) as caught:
            decode_value(whole[:length])
        assert "__transaction_state" in caught.value.sentence


def test_a_cut_key_is_a_typed_error() -> None:
    whole = bytes.fromhex(GOLDEN["transaction_keys"][1]["hex"])
    for length in range(len(whole)):
        with pytest.raises(CorruptError):
            decode_key(whole[:length])


def encode(version: int, fields: dict[str, Any], tags: dict[int, bytes]) -> bytes:
    """The value by kafka-python's codecs, from the field list of TransactionLogValue.json."""
    flexible = version == 1
    string = kp.CompactString() if flexible else kp.String()
    array = kp.CompactArray if flexible else kp.Array
    topic = [("topic", string), ("partitions", array(kp.Int32))]
    if flexible:
        topic.append(("tags", kp.TaggedFields))
    topics = fields["topics"]
    if topics is not None and flexible:
        topics = [(name, partitions, {}) for name, partitions in topics]
    head = kp.Schema(("pid", kp.Int64), ("epoch", kp.Int16), ("timeout", kp.Int32), ("s", kp.Int8))
    out: bytes = kp.Int16.encode(version)
    out += head.encode((fields["pid"], fields["epoch"], fields["timeout"], fields["state"]))
    out += array(*topic).encode(topics)
    out += kp.Int64.encode(fields["update"]) + kp.Int64.encode(fields["start"])
    return out + kp.TaggedFields.encode(tags) if flexible else out


I16, I32, I64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))


@given(
    st.integers(0, 1),
    st.fixed_dictionaries(
        {
            "pid": I64,
            "epoch": I16,
            "timeout": I32,
            "state": st.integers(0, 127),
            "topics": st.none()
            | st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.lists(I32))),
            "update": I64,
            "start": I64,
        }
    ),
    I64,
    st.dictionaries(st.integers(4, 1 << 20), st.binary(), max_size=3),
)
def test_any_value_and_unknown_tags(
    version: int, fields: dict[str, Any], previous: int, unknown: dict[int, bytes]
) -> None:
    tags = {0: kp.Int64.encode(previous), **dict(sorted(unknown.items()))}
    value = decode_value(encode(version, fields, tags))
    assert isinstance(value, TransactionValue)
    assert value.producer_id == fields["pid"]
    assert value.producer_epoch == fields["epoch"]
    assert value.timeout_ms == fields["timeout"]
    assert value.partitions == tuple(
        (name, partition) for name, partitions in fields["topics"] or () for partition in partitions
    )
    assert (value.last_update_ms, value.start_ms) == (fields["update"], fields["start"])
    assert value.previous_producer_id == (previous if version == 1 else -1)
    assert (value.state is TransactionState.UNKNOWN) == (fields["state"] > 7)


@given(st.binary(max_size=60))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    """And what it is taken for is told by its version alone."""
    version = struct.unpack_from(">h", noise)[0] if len(noise) >= 2 else None
    known: tuple[tuple[Callable[[bytes], object], tuple[int, ...], type], ...] = (
        (decode_key, (0,), str),
        (decode_value, (0, 1), TransactionValue),
    )
    for decode, versions, kind in known:
        try:
            found = decode(noise)
        except CorruptError:
            assert version is None or version in versions
        else:
            assert isinstance(found, kind) == (version in versions)


def test_corrupt_bytes_leave_the_answer_incomplete() -> None:
    assert CorruptError.exit_status == Exit.INCOMPLETE


@given(st.integers(0, (1 << 32) - 1))
def test_varints_as_kafka_python_writes_them(value: int) -> None:
    written = kp.UnsignedVarInt32.encode(value)
    assert Reader(written, "test").uvarint() == kp.UnsignedVarInt32.decode(BytesIO(written))


def test_where_the_error_was() -> None:
    with pytest.raises(CorruptError) as caught:
        decode_value(b"\0\1\0")
    sentence = caught.value.within("__transaction_state-3 at offset 9").sentence
    assert sentence.startswith("__transaction_state-3 at offset 9, value of a __transaction_state")
    assert sentence.endswith("byte 2: 15 bytes expected, 1 left")
