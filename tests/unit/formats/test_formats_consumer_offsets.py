"""`__consumer_offsets` against bytes written by Kafka's own classes."""

import json
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from types import UnionType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.formats.consumer_offsets import (
    KINDS,
    GroupKey,
    GroupValue,
    MemberKey,
    OffsetKey,
    OffsetValue,
    OtherKey,
    decode_group,
    decode_key,
    decode_value,
)
from recovery.formats.reader import CorruptError, UnknownVersion

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())
KEYS, VALUES = GOLDEN["offset_keys"], GOLDEN["offset_values"]
GROUP_KEYS, GROUP_VALUES = GOLDEN["group_keys"], GOLDEN["group_values"]


@pytest.mark.parametrize("case", KEYS, ids=lambda c: f"{c['type']}-{c['group']}")
def test_keys_written_by_kafka(case: dict[str, Any]) -> None:
    assert decode_key(bytes.fromhex(case["hex"])) == OffsetKey(
        case["group"], case["topic"], case["partition"]
    )


@pytest.mark.parametrize("case", VALUES, ids=lambda c: f"v{c['version']}-{len(c['metadata'])}")
def test_values_written_by_kafka(case: dict[str, Any]) -> None:
    version = case["version"]
    assert decode_value(bytes.fromhex(case["hex"])) == OffsetValue(
        offset=5_000_000_123,
        leader_epoch=6 if version >= 3 else -1,
        metadata=case["metadata"],
        commit_timestamp=1700000000123,
        expire_timestamp=1700000999999 if version == 1 else -1,
        topic_id=UUID(int=1 << 64 | 2) if version >= 4 and case["metadata"] else None,
    )


@pytest.mark.parametrize("case", GROUP_KEYS, ids=lambda c: f"group-{c['group']}")
def test_keys_of_groups_written_by_kafka(case: dict[str, Any]) -> None:
    assert decode_key(bytes.fromhex(case["hex"])) == GroupKey(case["group"])


@pytest.mark.parametrize("case", GROUP_VALUES, ids=lambda c: f"v{c['version']}-{c['members']}")
def test_groups_written_by_kafka(case: dict[str, Any]) -> None:
    has_time = case["version"] >= 2 and case["members"] != 3
    found = decode_group(bytes.fromhex(case["hex"]))
    assert isinstance(found, GroupValue)
    assert found.protocol_type == case["protocol_type"]
    assert found.state_timestamp == (1700000000123 if has_time else -1)
    assert found.clients == (("Zürich", "10.0.0.7"),) * case["members"]
    assert found.members == case["members"]


def test_all_kinds_of_kafka_by_its_names() -> None:
    expected = {
        case["id"]: case["name"].title().replace("_", "") for case in GOLDEN["group_record_types"]
    }
    assert expected == KINDS
    for case in GOLDEN["group_record_types"][3:]:
        key = decode_key(bytes.fromhex(case["hex"]))
        other = OtherKey(case["id"], KINDS[case["id"]])
        assert key == (MemberKey("", "") if case["id"] in (5, 19) else other)
    assert decode_key(b"\0\5\0\1g\0\2ab") == MemberKey("g", "ab")


def test_tombstone_and_what_is_to_come() -> None:
    assert decode_value(None) is None
    assert decode_group(None) is None
    assert decode_group(b"\0\5whatever") == UnknownVersion(5)
    assert decode_group(b"\xff\xffwhatever") == UnknownVersion(-1)
    assert decode_value(b"\0\5whatever") == UnknownVersion(5)
    assert decode_value(b"\xff\xffwhatever") == UnknownVersion(-1)
    assert decode_key(b"\0\x09whatever") == OtherKey(9, "Unknown")
    assert decode_key(b"\x7f\xff") == OtherKey(32767, "Unknown")


def test_cut_bytes_are_typed_errors() -> None:
    cases = [*((c, decode_key) for c in (*KEYS, *GROUP_KEYS)), *((c, decode_value) for c in VALUES)]
    for case, decode in [*cases, *((c, decode_group) for c in GROUP_VALUES)]:
        whole = bytes.fromhex(case["hex"])
        for length in range(min(len(whole), 300 if decode is decode_group else 60)):
            with pytest.raises(CorruptError, match="__consumer_offsets"):
                decode(whole[:length])


def test_a_topic_id_of_another_size() -> None:
    value = bytes.fromhex(VALUES[-1]["hex"])
    assert value[-18:-16] == b"\0\x10"
    with pytest.raises(CorruptError, match="a topic id of 15 bytes"):
        decode_value(value[:-17] + b"\x0f" + value[-15:])


@given(st.binary(max_size=60))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    """And what it is taken for is told by its version alone."""
    version = struct.unpack_from(">h", noise)[0] if len(noise) >= 2 else None
    known: tuple[tuple[Callable[[bytes], object], Collection[int], type | UnionType], ...] = (
        (decode_key, (0, 1, 2, 5, 19), OffsetKey | GroupKey | MemberKey),
        (decode_value, range(5), OffsetValue),
        (decode_group, range(5), GroupValue),
    )
    for decode, versions, kind in known:
        try:
            found = decode(noise)
        except CorruptError:
            assert version is None or version in versions
        else:
            assert isinstance(found, kind) == (version in versions)
