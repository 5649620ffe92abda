"""Write records and the position they came from in one transaction (KIP-98, KIP-447).

`merge replay`, `dedup` and Spark jobs' sink write this way. The order matters: `Writer.open` first,
which ends every earlier transaction of the id and fences its producer; only then may `committed` be
read. In the opposite order a process that is still alive could commit between the two, and its
records would be written twice.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from eoctl.host.waiting import in_thread
from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.read.committed import with_offsets
from eoctl.kafka.write.commit import CommittedPosition
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import GroupFacts, TopicPartition
from recovery.inspect.rights import missing_right
from recovery.times import format_duration

CALL_SECONDS = 60.0
DECIDED_SECONDS = 90.0  # a writer's timeout of 60 s, and the coordinator checks every 10 s
_LATE_SECONDS = 5.0
_QUEUE_SECONDS = 0.5
_STABLE_SECONDS = 0.3
_ANY = -1  # librdkafka's RD_KAFKA_PARTITION_UA
_POSITION = "its position was not taken"
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_DENIED = (
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
)


class FencedError(RefusedError):
    """Another producer of the same transactional id has taken over: nothing more is written."""


async def committed(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, CommittedPosition]:
    """Return the group's commits, none of them pending; a partition without one is left out.

    Waits while a transaction that holds a newer commit is being decided. Raises IncompleteError if
    that does not end, or if commits cannot be read.
    """
    end = time.monotonic() + DECIDED_SECONDS
    while True:
        positions, pending = await last_committed(cluster, group, partitions)
        if not pending:
            return positions
        if time.monotonic() > end or cluster.deadline.passed:
            raise _unreadable(group, "a transaction that holds them is open")
        await asyncio.sleep(_STABLE_SECONDS)


async def last_committed(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, CommittedPosition], bool]:
    """Return the group's last commits, and whether an open transaction holds newer ones.

    For a check before `Writer.open`, which ends that transaction: a killed process leaves it open
    until its timeout. Raises IncompleteError if they cannot be read.
    """
    end = time.monotonic() + CALL_SECONDS
    while True:
        groups, missing = await with_offsets(cluster, [GroupFacts(group, None)], partitions)
        rows = [row for g in groups for row in g.offsets]
        if not missing:
            # librdkafka commits a NUL after the metadata
            positions = {
                row.topic_partition: CommittedPosition(
                    row.committed_offset, (row.metadata or "").rstrip("\0"), row.leader_epoch
                )
                for row in rows
                if row.committed_offset is not None
            }
            return positions, any(row.pending for row in rows)
        if time.monotonic() > end or cluster.deadline.passed:
            raise _unreadable(group, missing[0].detail)
        await asyncio.sleep(_STABLE_SECONDS)
        cluster.forgive()


def _unreadable(group: str, why: str) -> IncompleteError:
    return IncompleteError(f"its positions cannot be read: {why}", where=f"group {group}")


class Writer:
    """One transactional producer. Every call blocks: use a thread in an event loop.

    Raises FencedError if another process took the id over, RefusedError if a right is missing
    (nothing of the open transaction was written), UnverifiedError if it is unknown whether a commit
    happened, and IncompleteError for what may be tried again from the committed position.
    """

    def __init__(
        self, settings: ClientSettings, transactional_id: str, group: str, *, timeout_ms: int
    ) -> None:
        """timeout_ms: then the coordinator ends a transaction (transaction.timeout.ms)."""
        self.transactional_id, self._group = transactional_id, group
        self._settings, self._timeout_ms = settings, timeout_ms
        self._config = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "delivery.timeout.ms": timeout_ms,
            "linger.ms": 20,
            "partitioner": "murmur2_random",  # like Java's producer
            "message.max.bytes": 1_000_000_000,  # the broker decides what is too large
            # A record that some producer compressed into its topic has to fit again. librdkafka
            # counts a batch before compression: with this, only one large record exceeds 1 MB.
            "compression.type": "lz4",
            "batch.size": 500_000,
            "queue.buffering.max.messages": 500_000,
        }
        self._producer: Any = None
        self._membership: Any = None

    def open(self) -> None:
        """Call init_transactions: earlier transactions of this id are over when it returns."""
        self._producer = confluent.producer(self._settings, self._config)
        consumer = confluent.consumer(self._settings, {"group.id": self._group})
        try:
            self._membership = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._call("cannot begin", self._producer.init_transactions, CALL_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        self._call("cannot begin", self._producer.begin_transaction)

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ) -> None:
        """Add a record. partition: None = by the key's hash. timestamp: epoch ms, None = now.

        `commit` reports a failure. No callback: a transaction with a record that was not accepted
        cannot be committed, and a fatal error inside a callback would come as a SystemError.
        """
        if timestamp == 0:
            raise RefusedError(
                "its timestamp is 1970-01-01T00:00:00Z, which librdkafka takes for none: it would "
                "be written with the present time",
                where=f"a record for {topic}" + ("" if partition is None else f":{partition}"),
            )
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=_ANY if partition is None else partition,
                    timestamp=timestamp or 0,
                    headers=list(headers) or None,
                )
                return
            except BufferError:
                self._producer.poll(_QUEUE_SECONDS)
            except Exception as failure:
                raise self._as_eoctl_error(failure, f"cannot write to {topic}") from None

    def commit(self, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
        """Commit the records sent since `begin` together with these positions."""
        from confluent_kafka import TopicPartition as ConfluentPartition

        self._call("the records were not taken", self._producer.flush, CALL_SECONDS)
        partitions = [
            ConfluentPartition(
                *partition, p.offset, p.metadata, -1 if p.leader_epoch is None else p.leader_epoch
            )
            for partition, p in positions.items()
        ]
        self._call(
            _POSITION,
            self._bounded,
            self._producer.send_offsets_to_transaction,
            partitions,
            self._membership,
            CALL_SECONDS,
        )
        try:
            self._call("not committed", self._producer.commit_transaction, CALL_SECONDS)
        except IncompleteError as error:
            raise UnverifiedError(
                error.what, where=error.where, remedy="run the same command again: it finds out"
            ) from None

    def close(self) -> None:
        """Drop the open transaction: the next `open` of this id, or its timeout, ends it."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def abort(self) -> None:
        """End the open transaction without its records, as far as that can be known."""
        from confluent_kafka import KafkaException

        if self._producer is not None:
            try:
                self._producer.purge()
                self._producer.abort_transaction(CALL_SECONDS)
            except KafkaException:
                self.close()

    def _bounded(self, function: Any, *given: Any) -> None:
        """Call librdkafka where it may never return: it ignores any timeout while it looks for a
        coordinator (librdkafka issue 5456). Raises KafkaException."""
        from confluent_kafka import KafkaError, KafkaException

        call = asyncio.wait_for(in_thread(partial(function, *given)), CALL_SECONDS + _LATE_SECONDS)
        try:
            asyncio.run(call)
        except TimeoutError:
            self._producer = None  # stuck in that call, and not used again
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _call(self, what: str, function: Any, *given: Any) -> None:
        """Call librdkafka, again if it says that a retry is possible."""
        from confluent_kafka import KafkaException

        end = time.monotonic() + CALL_SECONDS
        while True:
            try:
                function(*given)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable() and not error.fatal() and time.monotonic() < end:
                    time.sleep(0.1)
                    continue
                raise self._problem(error, what) from None

    def _as_eoctl_error(self, failure: Exception, what: str) -> Exception:
        from confluent_kafka import KafkaException

        if not isinstance(failure, KafkaException):
            return failure
        if failure.args[0].name() in ("_FATAL", "_STATE"):  # all that produce says after an error
            try:
                self._producer.begin_transaction()  # refused with the error that came first
            except KafkaException as first:
                failure = first
        return self._problem(failure.args[0], what)

    def _problem(self, error: Any, what: str) -> EoctlError:
        name, where = error.name(), f"transactional id {self.transactional_id}"
        if name in _FENCED:
            return FencedError(
                "another process has taken it over, or a transaction was open longer than its "
                f"timeout of {format_duration(self._timeout_ms / 1000)}: nothing more is written "
                "here",
                where=where,
                remedy="let one run at a time, then run the same command again",
            )
        if name == "MSG_SIZE_TOO_LARGE":
            return RefusedError(
                f"{what}: a record is larger than its topic takes, compressed as well: "
                f"{error.str()} ({name})",
                where=where,
                remedy=(
                    "raise max.message.bytes of the output topic, then run the same command again"
                ),
            )
        if name in _DENIED:
            named = self._group if name.startswith("GROUP") else self.transactional_id
            right = "grant WRITE on the output topic"
            if what == _POSITION:  # it may be the first to hear of records that were refused
                right += ", and READ on the topic of that position"
            if not name.startswith("TOPIC"):
                right = missing_right(name, named) or right
            return RefusedError(
                f"{what}: {name}", where=where, remedy=f"{right}, then run it again"
            )
        return IncompleteError(
            f"{what}: {error.str()} ({name})", where=where, remedy="run the same command again"
        )
