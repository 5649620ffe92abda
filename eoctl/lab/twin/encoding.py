"""Encode what a twin's brokers find on their disk: batches, and records that only brokers write.

Source of the formats: the docstrings of `recovery.formats`, which decode them; Kafka's
TopicRecord.json, PartitionRecord.json, ConfigRecord.json and ProducerIdsRecord.json.
"""

import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Sequence

import crc32c

from recovery.facts import TopicPartition, grouped
from recovery.formats.batches import CONTROL, TIMESTAMP_TYPE, TRANSACTIONAL, BatchHeader
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.records import records
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.values import Value

Pair = tuple[bytes | None, bytes | None]
"""Key and value of a record."""

_TAIL = struct.Struct(">hiqqqhii")
_HEAD = struct.Struct(">qiibI")
_TIME = BASE_OFFSET = struct.Struct(">q")
_TIMES_AT = (27, 35)  # base and maximum timestamp
_STATES = tuple(TransactionState)[:8]  # declared in the order of Kafka's state ids
_TAGS = ((0, ">q"), (1, ">q"), (2, ">h"), (3, ">h"))


class NewBatch(Value):
    """One record batch. Offsets are the partition's, timestamp is of each record, in ms.

    records: from base_offset on; fewer than the span leaves the last offsets without a record.
    producer_id, producer_epoch, base_sequence: -1 = none. append_time: of a topic with
    LogAppendTime. deltas: of each record's offset from base_offset; () = 0, 1, 2 and so on.
    """

    base_offset: int
    last_offset: int
    records: Sequence[Pair]
    timestamp: int
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    append_time: bool = False
    deltas: Sequence[int] = ()

    @property
    def count(self) -> int:
        """Return how many records it has."""
        return len(self.records)

    def encode(self) -> bytes:
        """Return the batch as it is in a `.log` file."""
        flags = (
            (self.transactional and TRANSACTIONAL)
            | (self.control and CONTROL)
            | (self.append_time and TIMESTAMP_TYPE)
        )
        tail = _TAIL.pack(
            flags,
            self.last_offset - self.base_offset,
            self.timestamp,
            self.timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records),
        ) + b"".join(map(_record, self.deltas or range(self.count), self.records))
        checksum = crc32c.crc32c(tail)
        head = _HEAD.pack(self.base_offset, len(tail) + 9, self.leader_epoch, 2, checksum)
        return head + tail


def emptied(data: bytes, h: BatchHeader) -> bytes:
    """Return a log's batch without keys and values; a marker, which has no data, as it is.

    Raises CorruptError.
    """
    if h.is_control:
        return data[h.position : h.position + h.size]
    return NewBatch(
        h.base_offset,
        h.last_offset,
        [(None, None)] * h.records_count,
        h.max_timestamp,
        h.leader_epoch,
        h.producer_id,
        h.producer_epoch,
        h.base_sequence,
        transactional=h.is_transactional,
        append_time=h.timestamp_type == "LogAppendTime",
        deltas=[r.offset - h.base_offset for r in records(data, h)],  # compaction leaves gaps
    ).encode()


class RawBatch(Value):
    """A batch as a log stores it, moved in time. shift: ms."""

    base_offset: int
    last_offset: int
    timestamp: int
    leader_epoch: int
    data: bytes
    shift: int
    count: int = 0  # records, which take no more room than the bundle does

    def encode(self) -> bytes:
        """Return the batch with its times moved, which are outside of what is compressed."""
        out = bytearray(self.data)
        for at in _TIMES_AT:
            (time,) = _TIME.unpack_from(out, at)
            _TIME.pack_into(out, at, time + self.shift if time >= 0 else time)
        struct.pack_into(">i", out, 12, self.leader_epoch)
        struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
        return bytes(out)


def _record(number: int, pair: Pair) -> bytes:
    body = b"\0" + varint(0) + varint(number) + b"".join(map(_field, pair)) + varint(0)
    return varint(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a zigzag varint, as in a record."""
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    """Return an unsigned varint.

    >>> uvarint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">h", len(content)) + content


def _compact(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    content = text.encode()
    return uvarint(len(content) + 1) + content


def _array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def _numbers(numbers: Iterable[int]) -> bytes:
    return _array([struct.pack(">i", number) for number in numbers])


def end_marker(outcome: str | None, coordinator_epoch: int) -> Pair:
    """Return the record of a control batch. outcome: commit or abort."""
    kind = 1 if outcome == "commit" else 0
    return struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)


def state_record(transactional_id: str, value: TransactionValue | None) -> Pair:
    """Return a record of `__transaction_state`, version 1. value None: a tombstone."""
    key = struct.pack(">h", 0) + _text(transactional_id)
    if value is None:
        return key, None
    v = value
    state = _STATES.index(v.state)
    content = struct.pack(">hqhib", 1, v.producer_id, v.producer_epoch, v.timeout_ms, state)
    content += uvarint(0) if v.state is TransactionState.EMPTY else _topics(v.partitions)
    content += struct.pack(">qq", v.last_update_ms, v.start_ms)
    return key, content + _tags(v)


def _topics(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = grouped(partitions)
    return _array([_compact(name) + _numbers(ids) + b"\0" for name, ids in by_topic.items()])


def _tags(v: TransactionValue) -> bytes:
    """Return the tagged fields: those with a value of their own."""
    values = (v.previous_producer_id, v.next_producer_id, v.client_transaction_version)
    numbers = (*values, v.next_producer_epoch)
    none = (-1, -1, 0, -1)
    tags = [
        uvarint(tag) + uvarint(struct.calcsize(form)) + struct.pack(form, number)
        for (tag, form), number, nothing in zip(_TAGS, numbers, none, strict=True)
        if number != nothing
    ]
    return uvarint(len(tags)) + b"".join(tags)


def commit_record(
    key: OffsetKey,
    offset: int | None,
    leader_epoch: int | None,
    committed_at: int,
    metadata: str | None = None,
) -> Pair:
    """Return a commit of `__consumer_offsets`, version 3. offset None: a tombstone."""
    name = struct.pack(">h", 1) + _text(key.group) + _text(key.topic)
    name += struct.pack(">i", key.partition)
    if offset is None:
        return name, None
    epoch = -1 if leader_epoch is None else leader_epoch
    value = struct.pack(">hqi", 3, offset, epoch) + _text(metadata or "")
    return name, value + struct.pack(">q", committed_at)


# -- metadata records (KRaft) ---------------------------------------------------------------------

TOPIC = 2  # ConfigResource.Type


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a Kafka Uuid in URL-safe base64, unpadded."""
    return urlsafe_b64decode(text + "==")


def topic_record(name: str, topic_id: str) -> bytes:
    """Return a TopicRecord."""
    return _framed(2, 0, _compact(name) + uuid_bytes(topic_id))


def partition_record(
    topic_id: str, partition: int, broker: int, directory: str, leader_epoch: int
) -> bytes:
    """Return a PartitionRecord of one replica, which leads, in a log directory of its broker."""
    content = struct.pack(">i", partition) + uuid_bytes(topic_id)
    content += _numbers([broker]) * 2 + _numbers([]) * 2
    content += struct.pack(">iii", broker, leader_epoch, 0)
    return _framed(3, 1, content + _array([uuid_bytes(directory)]))


def config_record(topic: str, name: str, value: str) -> bytes:
    """Return a ConfigRecord of a topic."""
    texts = _compact(topic) + _compact(name) + _compact(value)
    return _framed(4, 0, struct.pack(">b", TOPIC) + texts)


def producer_ids_record(broker: int, next_producer_id: int) -> bytes:
    """Return a ProducerIdsRecord: no block of producer ids below this one is handed out again."""
    return _framed(15, 0, struct.pack(">iqq", broker, -1, next_producer_id))


def _framed(kind: int, version: int, content: bytes) -> bytes:
    """Return a metadata record's value: frame version, api key, version, content, no tags."""
    return uvarint(1) + uvarint(kind) + uvarint(version) + content + b"\0"
