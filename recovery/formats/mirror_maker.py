"""MirrorMaker 2's own topics: offset syncs and checkpoints.

An offset sync says that the source's record at one offset is the mirror's at another. A checkpoint
says where a group of the source goes on in the mirror; both offsets are of the next record to read.
Source: Kafka's classes org.apache.kafka.connect.mirror.OffsetSync and Checkpoint.
"""

from recovery.formats.reader import Reader
from recovery.values import Value


class OffsetSync(Value):
    """topic: the source's name for it. upstream, downstream: offsets in source and mirror."""

    topic: str
    partition: int
    upstream: int
    downstream: int


class Checkpoint(Value):
    """topic: the mirror's name for it. upstream: as the group committed; downstream: translated."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str


def decode_sync(key: bytes, value: bytes) -> OffsetSync:
    """Decode a record of an offset-syncs topic. Raises CorruptError."""
    where = Reader(key, "key of an offset sync")
    topic, partition = where.string(), where.int32()
    what = Reader(value, "value of an offset sync")
    sync = OffsetSync(topic, partition, what.int64(), what.int64())
    _ended(where, what)
    return sync


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Decode a record of a checkpoints topic. Raises CorruptError, also for an unknown version."""
    where = Reader(key, "key of a checkpoint")
    group, topic, partition = where.string(), where.string(), where.int32()
    what = Reader(value, "value of a checkpoint")
    version = what.int16()
    if version != 0:
        raise what.corrupt(f"version {version} is not known")
    checkpoint = Checkpoint(group, topic, partition, what.int64(), what.int64(), what.string())
    _ended(where, what)
    return checkpoint


def _ended(*readers: Reader) -> None:
    for reader in readers:
        if reader.remaining:
            raise reader.corrupt("more bytes than its fields need")
