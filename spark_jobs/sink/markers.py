"""A sink's progress: one marker per partition, committed with the records that it counts.

A marker is a committed offset of the group `<job>-eoctl-sink` on a partition of the topic of that
name. Its offset is the next row to send of staged file p; its metadata names the batch, by number
and by the hash of its staging manifest. The topic holds one record per partition, which only says
that marker 0 was committed: a marker that is absent after that has expired.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.write import exactly_once
from eoctl.kafka.write.commit import CommittedPosition
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.values import Value

ANSWER_SECONDS = 30.0
PAUSE_SECONDS = 0.3
NO_BATCH = -1


def name(job: str) -> str:
    """Return the name of a job's marker topic, which is also its group's."""
    return f"{job}-eoctl-sink"


def transactional_id(job: str, partition: int) -> str:
    return f"{name(job)}-{partition}"


def marker_partition(job: str, partition: int) -> TopicPartition:
    """Return the partition in which the marker of a partition is committed."""
    return TopicPartition(name(job), partition)


class Marker(Value):
    """next_row of `rows` is sent next in batch `batch`, staged as `manifest` (SHA-256).

    written: epoch ms of the commit. run: the run that owns the batches, None if it is not named.
    """

    batch: int
    manifest: str
    next_row: int
    rows: int
    written: int
    run: str | None = None

    @property
    def complete(self) -> bool:
        return self.next_row == self.rows

    @property
    def position(self) -> CommittedPosition:
        """Return the position as committed: next_row is the offset, the rest the metadata."""
        rest = {
            "b": self.batch,
            "m": self.manifest,
            "n": self.rows,
            "t": self.written,
            "r": self.run,
        }
        return CommittedPosition(self.next_row, json.dumps(rest, separators=(",", ":")))

    @classmethod
    def read(cls, at: CommittedPosition, where: str) -> "Marker":
        """Return the marker in a commit. Raises RefusedError for a commit that no sink wrote."""
        try:
            fields = json.loads(at.metadata)
            numbers = int(fields["n"]), int(fields["t"])
            return cls(int(fields["b"]), str(fields["m"]), at.offset, *numbers, run=fields.get("r"))
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                "its committed offset is not a sink's marker: another application commits there",
                where=where,
                remedy="give the job another name",
            ) from None


def first(now_ms: int) -> Marker:
    """Return marker 0: before the first batch."""
    return Marker(NO_BATCH, "", 0, 0, now_ms)


def committed(
    access: Access, job: str, partitions: Sequence[int], seconds: float = ANSWER_SECONDS
) -> dict[int, Marker]:
    """Return the markers of these partitions, none of them pending, without absent ones.

    Waits while a transaction that holds a newer marker is being decided. Raises IncompleteError if
    that takes longer than `seconds`, RefusedError for a commit that is not a marker.
    """
    topic_partitions = [marker_partition(job, p) for p in partitions]

    async def ask(cluster: Cluster) -> dict[TopicPartition, CommittedPosition]:
        return await exactly_once.committed(cluster, name(job), topic_partitions)

    return _read(access.ask(ask, seconds))


def last_committed(access: Access, job: str, partitions: Sequence[int]) -> dict[int, Marker]:
    """Return the last committed markers, without waiting: a sender ends what a killed run left open
    and reads them again. Raises IncompleteError, RefusedError for a commit that is not a marker."""
    topic_partitions = [marker_partition(job, p) for p in partitions]

    async def ask(cluster: Cluster) -> dict[TopicPartition, CommittedPosition]:
        return (await exactly_once.last_committed(cluster, name(job), topic_partitions))[0]

    return _read(access.ask(ask, ANSWER_SECONDS))


def _read(positions: Mapping[TopicPartition, CommittedPosition]) -> dict[int, Marker]:
    return {at[1]: Marker.read(position, str(at)) for at, position in positions.items()}


def topics(access: Access, names: Sequence[str]) -> dict[str, TopicMetadata]:
    """Return topics as the cluster describes them, without absent ones."""

    async def ask(cluster: Cluster) -> Mapping[str, TopicMetadata]:
        return (await cluster.metadata(list(names))).topics

    by_name = access.ask(ask, ANSWER_SECONDS)
    for topic in by_name.values():
        if topic.error not in (None, "UNKNOWN_TOPIC_OR_PARTITION"):
            raise IncompleteError(f"cannot be seen: {topic.error}", where=topic.name)
    return {name: topic for name, topic in by_name.items() if topic.error is None}


def initialised(access: Access, job: str, partitions: int) -> set[int]:
    """Return the partitions that ever had marker 0: their topic has a visible record."""
    from confluent_kafka import TopicPartition

    from eoctl.kafka.connection import confluent

    topic = name(job)
    config = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = confluent.consumer(access.settings(), config)
    numbers: set[int] = set()
    try:
        for p in range(partitions):
            topic_partition = TopicPartition(topic, p)
            low, high = _watermarks(consumer, topic_partition)
            if low > 0:
                numbers.add(p)  # the record existed and was deleted
            elif high > 0 and _has_record(consumer, TopicPartition(topic, p, 0)):
                numbers.add(p)
    finally:
        consumer.close()
    return numbers


def _watermarks(consumer: Any, topic_partition: Any) -> tuple[int, int]:
    """Return log start and high watermark. Raises IncompleteError: the leader of a topic that was
    just created may not know yet that it leads."""
    from confluent_kafka import KafkaException

    end = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(topic_partition, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            if time.monotonic() >= end:
                reason = error.args[0].str()
                where = f"{topic_partition.topic}:{topic_partition.partition}"
                raise IncompleteError(f"cannot be seen: {reason}", where=where) from None
            time.sleep(PAUSE_SECONDS)
        else:
            return low, high


def _has_record(consumer: Any, start: Any) -> bool:
    """Return True if a committed record is between `start` and the LSO."""
    from confluent_kafka import KafkaError

    consumer.assign([start])
    end = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            return True
        if message.error().code() == KafkaError._PARTITION_EOF:
            return False
    raise IncompleteError("cannot be read", where=f"{start.topic}:{start.partition}")


def create_topic(access: Access, job: str, partitions: int, replicas: int) -> None:
    """Create the marker topic, whose records are kept forever."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    from eoctl.kafka.connection import confluent

    admin = confluent.admin(access.settings())
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    new_topic = NewTopic(name(job), partitions, replicas, config=config)
    try:
        admin.create_topics([new_topic], operation_timeout=20)[name(job)].result(30)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise RefusedError(
                f"cannot be created: {error.args[0].str()}",
                where=name(job),
                remedy="grant CREATE, or create it with as many partitions as the sink has",
            ) from None


def retention_ms(access: Access) -> int | None:
    """Return the brokers' smallest offsets.retention.minutes, in ms; None if they do not say."""

    from eoctl.kafka.ask.configs import broker_configs

    configs, missing = access.ask(
        lambda cluster: broker_configs(cluster, ["offsets.retention.minutes"]), ANSWER_SECONDS
    )
    values = [v for broker in configs.values() for v in broker.values() if v is not None]
    return None if missing or not values else min(int(v) for v in values) * 60_000
