"""`__consumer_offsets`: committed offsets, the state of classic groups, and other kinds of records.

Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json and
GroupMetadataValue.json (values of versions 0 to 4; KIP-211) and the group coordinator's
CoordinatorRecordType (4.3); KIP-848, KIP-932 and KIP-1071 for the newer kinds.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from recovery.facts import TopicPartition, known
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.reader import Buffer, CorruptError, Reader, UnknownVersion
from recovery.formats.records import ControlType, Marker, Record, marker, records
from recovery.plurals import counted
from recovery.values import Value, replace

V = TypeVar("V")

CONSUMER_OFFSETS = "__consumer_offsets"
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
_GROUP_METADATA = 2
_MEMBER_METADATA = (5, 19)  # of consumer groups, and of Streams groups (KIP-848, KIP-1071)


class OffsetKey(Value):
    """The group, topic and partition of a committed offset."""

    group: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class PendingOffset(Value):
    """An offset in a transaction that no marker has ended: it counts once that is committed.

    offset None: the transaction deletes the group's offset, or its value cannot be decoded.
    overtaken: a later commit of this key counts already. Kafka keeps the one that is higher in the
    log, so the end of the transaction, commit or abort, changes nothing for this key.
    """

    key: OffsetKey
    offset: int | None
    at: int  # its record's offset in `__consumer_offsets`
    producer_id: int
    producer_epoch: int
    leader_epoch: int | None = None
    metadata: str | None = None
    deleted: bool = False
    overtaken: bool = False


class GroupKey(Value):
    """A classic group: its protocol, its members and its state."""

    group: str


class MemberKey(Value):
    """A member of a group of the newer protocols; a tombstone once it has left."""

    group: str
    member: str


class OtherKey(Value):
    """A record of another kind. kind: Kafka's name, or `Unknown`."""

    type: int
    kind: str


class OffsetValue(Value):
    """A committed offset: the next one the group will read. Times in milliseconds since 1970.

    leader_epoch, expire_timestamp: -1 = none. topic_id: None before Kafka 4.3.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None


class GroupValue(Value):
    """A classic group, as its coordinator wrote it when its state changed.

    protocol_type: empty for a group that never had a member. state_timestamp: since when the group
    has been empty or stable, in milliseconds since 1970; -1 = not written (Kafka before 2.1).
    clients: (client id, host) of each member, in the record's order.
    """

    protocol_type: str
    state_timestamp: int
    clients: tuple[tuple[str, str], ...] = ()

    @property
    def members(self) -> int:
        """Return how many members the group had."""
        return len(self.clients)


def decode_key(key: bytes) -> OffsetKey | GroupKey | MemberKey | OtherKey:
    """Decode what a record is about. Raises CorruptError if a key of a kind with fields is cut."""
    reader = Reader(key, "key of a __consumer_offsets record")
    kind = reader.int16()
    if kind == _GROUP_METADATA:
        return GroupKey(reader.string())
    if kind in _MEMBER_METADATA:
        return MemberKey(reader.string(), reader.string())
    if kind not in _OFFSET_COMMITS:
        return OtherKey(kind, KINDS.get(kind, "Unknown"))
    return OffsetKey(reader.string(), reader.string(), reader.int32())


def _decoded(value: bytes | None, rest: Callable[[Reader, int], V]) -> V | UnknownVersion | None:
    """Decode a value's version, then the rest with `rest`. None for a tombstone."""
    if value is None:
        return None
    reader = Reader(value, "value of a __consumer_offsets record")
    version = reader.int16()
    if not 0 <= version <= 4:
        return UnknownVersion(version)
    return rest(reader, version)


def decode_value(value: bytes | None) -> OffsetValue | UnknownVersion | None:
    """Decode the value of an `OffsetKey`; None for a tombstone: the group has no offset there.

    Raises CorruptError if the value is cut.
    """
    return _decoded(value, _offset_value)


def _offset_value(reader: Reader, version: int) -> OffsetValue:
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string(compact=version >= 4)
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(0) if version >= 4 else None
    if topic_id is not None and len(topic_id) != 16:
        raise reader.corrupt(f"a topic id of {counted(len(topic_id), 'byte')}")
    return OffsetValue(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        UUID(bytes=topic_id) if topic_id and any(topic_id) else None,
    )


def decode_group(value: bytes | None) -> GroupValue | UnknownVersion | None:
    """Decode the value of a `GroupKey`; None for a tombstone: no such classic group exists.

    Raises CorruptError if the value is cut.
    """
    return _decoded(value, _group_value)


def _group_value(reader: Reader, version: int) -> GroupValue:
    compact = version >= 4
    protocol_type = reader.string(compact=compact)
    reader.int32()  # generation
    reader.nullable_string(compact=compact)  # protocol
    reader.nullable_string(compact=compact)  # leader
    state_timestamp = reader.int64() if version >= 2 else -1
    members = reader.array(lambda: _client(reader, version), compact=compact)
    if compact:
        reader.tags()
    return GroupValue(protocol_type, state_timestamp, tuple(members or ()))


def _client(reader: Reader, version: int) -> tuple[str, str]:
    compact = version >= 4
    reader.string(compact=compact)  # its id
    if version >= 3:
        reader.nullable_string(compact=compact)  # instance id of a static member
    client = reader.string(compact=compact)
    host = reader.string(compact=compact).removeprefix("/")
    if version >= 1:
        reader.int32()  # rebalance timeout
    reader.int32()  # session timeout
    for _ in ("subscription", "assignment"):
        reader.take(reader.uvarint() - 1 if compact else reader.int32())
    if compact:
        reader.tags()
    return client, host


def pending_offsets(buffers: Iterable[Buffer]) -> list[PendingOffset]:
    """Return the newest pending offset of each key and producer, in the order of their records.

    buffers: as PendingOffsets.add takes them. Raises CorruptError for a damaged batch or key.
    """
    pending = PendingOffsets()
    for buffer in buffers:
        pending.add(buffer)
    return pending.newest()


class PendingOffsets:
    """The offsets that transactions hold on one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._pending: dict[int, dict[OffsetKey, PendingOffset]] = {}
        self._decided: dict[OffsetKey, int] = {}

    def add(self, buffer: Buffer) -> None:
        """Take the next batches, in order: from the first open transaction that matters up to the
        high watermark.

        Raises CorruptError for a damaged batch or key.
        """
        for header in batch_headers(buffer):
            mine = self._pending.setdefault(header.producer_id, {})
            if header.is_control:
                self._end(mine, marker(buffer, header))
                continue
            for record in records(buffer, header):
                key = decode_key(record.key) if record.key is not None else None
                if isinstance(key, OffsetKey) and header.is_transactional:
                    mine[key] = _pending(key, record, header)
                elif isinstance(key, OffsetKey):
                    self._decided[key] = record.offset

    def _end(self, mine: dict[OffsetKey, PendingOffset], end: Marker | None) -> None:
        if end is not None and end.type is ControlType.COMMIT:
            self._decided |= {k: max(p.at, self._decided.get(k, -1)) for k, p in mine.items()}
        mine.clear()

    def newest(self) -> list[PendingOffset]:
        """Return the newest of each key and producer, in the order of their records."""
        newest = [p for mine in self._pending.values() for p in mine.values()]
        newest.sort(key=lambda p: p.at)
        return [replace(p, overtaken=self._decided.get(p.key, -1) > p.at) for p in newest]


def _pending(key: OffsetKey, record: Record, header: BatchHeader) -> PendingOffset:
    pending = PendingOffset(key, None, record.offset, header.producer_id, header.producer_epoch)
    try:
        value = decode_value(record.value)
    except CorruptError:
        return pending
    if not isinstance(value, OffsetValue):
        return replace(pending, deleted=value is None)
    epoch = known(value.leader_epoch)
    return replace(
        pending, offset=value.offset, leader_epoch=epoch, metadata=value.metadata or None
    )
