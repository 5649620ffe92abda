"""The state directory of a Kafka Streams application: its names, its checkpoint, a stored value.

state.dir/APPLICATION/SUBTOPOLOGY_PARTITION/rocksdb/STORE/ is the RocksDB of one store of one task;
SUBTOPOLOGY_PARTITION/.checkpoint holds the last changelog offset in each store of the task.
Streams 4.3 keeps offsets in a column family of each store and moves them there from a `.checkpoint`
that it finds, as in every upgrade. Source: Kafka's classes StateDirectory, OffsetCheckpoint,
ProcessorStateManager, RocksDBStore, RocksDBTimestampedStore, LegacyCheckpointingStateStore.
"""

from collections.abc import Mapping

from recovery.facts import TopicPartition

LOCK, CHECKPOINT, ROCKSDB = ".lock", ".checkpoint", "rocksdb"
TIMESTAMPED = "keyValueWithTimestamp"
"""The column family of a timestamped store: i64 timestamp (ms, big-endian) | value. A plain store
has its values in the default one."""

_CHANGELOG = "-changelog"
_UNKNOWN = -4  # OffsetCheckpoint.OFFSET_UNKNOWN: the store exists and has read nothing


def store_of(application: str, changelog: str) -> str | None:
    """Return the store of a changelog topic; None if the topic is no changelog of the application.

    >>> store_of("sales", "sales-totals-changelog")
    'totals'
    """
    head = f"{application}-"
    if not (changelog.startswith(head) and changelog.endswith(_CHANGELOG)):
        return None
    store = changelog[len(head) : -len(_CHANGELOG)]
    return None if store in ("", ".", "..") else store


def checkpoint(ends: Mapping[TopicPartition, int]) -> str:
    """Return the content of a `.checkpoint`. ends: the first offset that each store lacks.

    >>> checkpoint({("sales-totals-changelog", 3): 42})
    '0\\n1\\nsales-totals-changelog 3 41\\n'
    """
    lines = [f"{topic} {p} {end - 1 if end else _UNKNOWN}" for (topic, p), end in ends.items()]
    return "\n".join(["0", str(len(lines)), *lines, ""])
