"""How far a stream may go, and over which logs it refuses to go on, as tables of cases."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.log_position import Standing
from recovery.shared.stream_offset import (
    Position,
    StreamOffset,
    advanced,
    decode,
    encode,
    moved,
    refuse_deleted,
    refuse_other_logs,
    shares,
)
from recovery.values import replace

FACTS = PartitionFacts(
    topic="t",
    partition=0,
    topic_id="id",
    leader=1,
    leader_epoch=3,
    log_start_offset=10,
    last_stable_offset=70,
    high_watermark=90,
)
PARTITION = TopicPartition("t", 0)


def at(offset: int, epoch: int | None = 3, stable: int | None = None) -> StreamOffset:
    return StreamOffset({"t": "id"}, {PARTITION: Position(offset, epoch, stable)})


def test_equal_offsets_are_the_same_text() -> None:
    """Spark compares the text, and takes another one for new records."""
    partitions = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 2)]
    one = StreamOffset({"a": "x", "b": None}, {p: Position(5, 1) for p in partitions})
    other = StreamOffset({"b": None, "a": "x"}, {p: Position(5, 1) for p in reversed(partitions)})
    text = json.dumps(encode(one))
    assert text == json.dumps(encode(other))
    assert list(encode(one)["topics"]["a"]["partitions"]) == ["2", "10"]
    assert decode(json.loads(text)) == one
    assert json.dumps(encode(decode(json.loads(text)))) == text


@pytest.mark.parametrize(
    "content", [None, {}, {"t": {"0": 5}}, {"schema": "eoctl.stream/v2", "topics": {}}, [], 3]
)
def test_offsets_of_another_source_are_refused(content: Any) -> None:
    with pytest.raises(RefusedError, match="not of this source"):
        decode(content)


@pytest.mark.parametrize(
    ("start", "named", "expected"),
    [
        # to the last stable offset, or to the high watermark
        (at(20), {"committed": True}, Position(70, 3)),
        (at(20), {"committed": False}, Position(90, 3, 70)),
        # a new partition, and where records were deleted
        (StreamOffset(), {"committed": True}, Position(70, 3)),
        (at(5), {"committed": True, "most": 7}, Position(17, 3)),
        # nothing new: as it was, though another broker leads now
        (at(70, 2), {"committed": True}, Position(70, 2)),
        (at(80, 2), {"committed": True}, Position(80, 2)),  # the isolation was another one
        # a limit, and a target that was fixed before
        (at(20), {"committed": False, "most": 5}, Position(25, 3)),
        (at(20), {"committed": False, "most": 65}, Position(85, 3, 70)),
        (at(20), {"committed": True, "target": at(40)}, Position(40, 3)),
        (at(20), {"committed": True, "target": at(40), "most": 3}, Position(23, 3)),
        (at(40, 2), {"committed": True, "target": at(40)}, Position(40, 2)),
        (at(20, 2), {"committed": True, "target": StreamOffset()}, Position(20, 2)),
    ],
)
def test_how_far_a_stream_comes(
    start: StreamOffset, named: Mapping[str, Any], expected: Position
) -> None:
    after = advanced(start, [FACTS], **named)
    assert after.positions[PARTITION] == expected
    assert after.ids == {"t": "id"}


def test_partitions_that_are_new_or_gone() -> None:
    """One that came behind the target waits, an empty one has no position, a lost one keeps its."""
    gone = StreamOffset({"g": "gone"}, {TopicPartition("g", 4): Position(8, 1)})
    assert advanced(gone, [FACTS], committed=True, target=gone) == gone
    empty = replace(FACTS, log_start_offset=0, last_stable_offset=0, high_watermark=0)
    assert advanced(gone, [empty], committed=True) == gone
    assert advanced(gone, [FACTS], committed=True).positions == {
        ("g", 4): Position(8, 1),
        PARTITION: Position(70, 3),
    }


DIVERGED = Standing(False, "leader epoch 2 ends at 19", 19)


@pytest.mark.parametrize(
    ("start", "now", "ids", "ends", "kind", "sentence"),
    [
        (at(20), {}, {"id"}, {}, None, ""),
        (at(90), {}, {"id"}, {}, None, ""),
        (at(20), {}, {"new"}, {}, RefusedError, "t: the topic was deleted and created again"),
        (at(20), {}, {"id", "new"}, {}, RefusedError, "deleted and created again"),
        (at(20), {}, {None}, {}, IncompleteError, "did not return the topic's id"),
        (at(20), {}, set(), {}, IncompleteError, "did not return the topic's id"),
        (at(20, 2), {}, {"id"}, {PARTITION: Standing(True, "")}, None, ""),
        (at(20, 2), {}, {"id"}, {PARTITION: DIVERGED}, RefusedError, "cut off at offset 19 and"),
        (at(20, 2), {}, {"id"}, {PARTITION: Standing(None, "compacted")}, None, ""),
        (at(20, 4), {}, {"id"}, {}, IncompleteError, "leader epoch went back from 4 to 3"),
        (at(91), {}, {"id"}, {}, IncompleteError, "its log ends at 90, and the stream has read up"),
        (at(20, None), {}, {"id"}, {}, None, ""),
        (at(20), {"leader_epoch": None}, {"id"}, {}, None, ""),
        (at(20), {"high_watermark": None}, {"id"}, {}, None, ""),
    ],
)
def test_other_logs_are_refused(
    start: StreamOffset,
    now: Mapping[str, Any],
    ids: set[str | None],
    ends: Mapping[TopicPartition, Standing],
    kind: type[EoctlError] | None,
    sentence: str,
) -> None:
    facts = [replace(FACTS, **now), replace(FACTS, topic="other", leader_epoch=0)]
    assert list(moved(start, facts)) == ([PARTITION] if ends else [])
    if kind is None:
        refuse_other_logs(start, facts, {"t": ids}, ends)
        return
    with pytest.raises(kind, match=sentence):
        refuse_other_logs(start, facts, {"t": ids}, ends)


def test_brokers_without_topic_ids() -> None:
    nameless = StreamOffset({"t": None}, {PARTITION: Position(20, 3)})
    refuse_other_logs(nameless, [FACTS], {"t": {None}}, {})


def test_records_that_were_deleted_unread_are_refused() -> None:
    refuse_deleted(at(10), [FACTS])
    with pytest.raises(IncompleteError, match="t-0: records 9 to 9 were deleted"):
        refuse_deleted(at(9), [FACTS])
    with pytest.raises(IncompleteError, match="records 0 to 9 were deleted"):
        refuse_deleted(StreamOffset(), [FACTS])


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.just("t"), st.integers(0, 9)), st.integers(0, 10**12)
    ),
    st.integers(1, 10**6),
)
def test_shares(sizes: dict[TopicPartition, int], most: int) -> None:
    """Each takes what it has or less, nobody starves, and together they keep near the limit."""
    taken = shares(sizes, most)
    assert taken.keys() == sizes.keys()
    assert all(min(1, size) <= taken[partition] <= size for partition, size in sizes.items())
    assert sum(taken.values()) <= most + len(sizes)
    if sum(sizes.values()) > most:
        assert sum(taken.values()) >= min(most, sum(sizes.values())) - len(sizes)
    else:
        assert taken == sizes
