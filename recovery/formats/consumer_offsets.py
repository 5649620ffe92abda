"""`__consumer_offsets`: committed offsets, and which kinds of group records lie between them.

Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json (versions 0 to 4) and the group
coordinator's CoordinatorRecordType (4.3); KIP-848 and KIP-932 for the newer kinds.
"""

from typing import NamedTuple
from uuid import UUID

from recovery.formats.reader import Reader, UnknownVersion

KINDS = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_OFFSET_COMMITS = (0, 1)


class OffsetKey(NamedTuple):
    """The group, topic and partition of a committed offset."""

    group: str
    topic: str
    partition: int


class OtherKey(NamedTuple):
    """A record that is no committed offset. kind: Kafka's name, or `Unknown`."""

    type: int
    kind: str


class OffsetValue(NamedTuple):
    """A committed offset: the next one the group will read. Times in milliseconds since 1970.

    leader_epoch, expire_timestamp: -1 where there is none. topic_id: None before Kafka 4.3.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None


def decode_key(key: bytes) -> OffsetKey | OtherKey:
    """Decode the subject of a record. Raises CorruptError when an offset's key is cut."""
    reader = Reader(key, "key of a __consumer_offsets record")
    kind = reader.int16()
    if kind not in _OFFSET_COMMITS:
        return OtherKey(kind, KINDS.get(kind, "Unknown"))
    return OffsetKey(reader.string(), reader.string(), reader.int32())


def decode_value(value: bytes | None) -> OffsetValue | UnknownVersion | None:
    """The value under an `OffsetKey`; None for a tombstone: the group has no offset there.

    Raises CorruptError when the value is cut.
    """
    if value is None:
        return None
    reader = Reader(value, "value of a __consumer_offsets record")
    version = reader.int16()
    if not 0 <= version <= 4:
        return UnknownVersion(version)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string(compact=version >= 4)
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(0) if version >= 4 else None
    if topic_id is not None and len(topic_id) != 16:
        raise reader.corrupt(f"a topic id of {len(topic_id)} bytes")
    return OffsetValue(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        UUID(bytes=topic_id) if topic_id and any(topic_id) else None,
    )
