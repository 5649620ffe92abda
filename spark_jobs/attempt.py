"""Sending one staged file exactly once: what each attempt of a sink's task does.

The order is the rule: init_transactions first, which ends every earlier attempt's transaction and
fences its producer; only then the marker is read. The other way round a live zombie may commit
between the two, and its rows come twice. An attempt that is fenced does not fail: another one has
taken over, so it waits for that one's marker.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eoctl.kafka.access import Access
from recovery.errors import IncompleteError, RefusedError
from spark_jobs import markers, staging
from spark_jobs.markers import Marker

CALL_SECONDS = 60.0
POLL_SECONDS = 0.5
TAKEOVERS = 6
SHARE_OF_TIMEOUT = 3  # a transaction is committed after this part of its timeout
FENCED = (
    "_FENCED",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_PRODUCER_ID_MAPPING",
    "_FATAL",  # all that produce() says after the first fatal error, which is mostly a fence
)


class FencedError(Exception):
    """A later attempt has taken over."""


class LostError(Exception):
    """The transaction failed, or nobody knows: begin again with init_transactions."""


@dataclass(frozen=True, slots=True)
class Work:
    """One partition of one batch. patience: seconds without progress of whoever took over."""

    access: Access
    job: str
    topic: str
    batch: int
    manifest: str
    partition: int
    file: staging.StagedFile
    folder: str
    transaction_timeout_ms: int
    rows_per_transaction: int
    patience: float = 60.0


class Attempt:
    """One attempt: `run` ends when the whole file is committed, by it or by another attempt."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.producer: Any = None
        self._group: Any = None
        self.sent = 0  # rows that this attempt committed
        self.transactions = 0

    def run(self) -> dict[str, int]:
        """Raises RefusedError where the marker forbids it, IncompleteError where Kafka fails."""
        why = ""
        for takeover in range(TAKEOVERS):
            try:
                row = self.take_over()
                if row is not None:
                    self._send_from(row)
                return self._answer(takeover)
            except FencedError:
                if self._wait_for_other():
                    return self._answer(takeover)
                why = "other attempts take over again and again and none of them ends"
            except LostError as error:
                why = str(error)
                time.sleep(POLL_SECONDS * (takeover + 1))
            finally:
                self._drop()
        raise IncompleteError(f"not sent: {why}", where=f"{self.work.topic}, part {self._part}")

    @property
    def _part(self) -> int:
        return self.work.partition

    def _answer(self, takeovers: int) -> dict[str, int]:
        return {
            "partition": self._part,
            "sent": self.sent,
            "transactions": self.transactions,
            "takeovers": takeovers,
        }

    def take_over(self) -> int | None:
        """Fence every other attempt, then read how far they came: as `position`."""
        self.fence()
        return self.position()

    def fence(self) -> None:
        """init_transactions: open transactions of this id are ended before it returns."""
        work = self.work
        from eoctl.kafka import confluent

        config = {
            "transactional.id": markers.transactional_id(work.job, work.partition),
            "transaction.timeout.ms": work.transaction_timeout_ms,
            "delivery.timeout.ms": work.transaction_timeout_ms,
            "partitioner": "murmur2_random",  # as Java's producer
            "linger.ms": 20,
        }
        self.producer = confluent.producer(work.access.settings(), config)
        self._group = group_metadata(work.access, work.job)
        call(self.producer.init_transactions, CALL_SECONDS)

    def position(self) -> int | None:
        """The row to begin with, None when nothing is left to commit. Raises RefusedError by the
        marker's rules.

        A file without rows begins at 0 too until its marker is committed.
        """
        marker = self._marker()
        judge(marker, self.work)
        if marker.batch < self.work.batch:
            return 0
        return None if marker.batch > self.work.batch or marker.complete else marker.next_row

    def _marker(self) -> Marker:
        work = self.work
        found = markers.committed(work.access, work.job, [work.partition])
        if work.partition not in found:
            raise expired(work.job, [work.partition])
        return found[work.partition]

    def _send_from(self, row: int) -> None:
        rows = staging.rows_from(self.work.folder, self.work.file, row)
        row = self._transaction(rows, row)  # of a file without rows: the marker alone
        while row < self.work.file.rows:
            row = self._transaction(rows, row)

    def _transaction(self, rows: Iterator[staging.Row], row: int) -> int:
        """Send rows until the transaction is full or old enough; the next row, committed."""
        work = self.work
        until = time.monotonic() + work.transaction_timeout_ms / 1000 / SHARE_OF_TIMEOUT
        begin = row
        call(self.producer.begin_transaction)
        for one in rows:
            self._produce(one)
            row += 1
            if row - begin >= work.rows_per_transaction or time.monotonic() > until:
                break
        call(self.producer.flush, CALL_SECONDS)
        self._send_marker(row)
        self.commit()
        self.sent += row - begin
        self.transactions += 1
        return row

    def commit(self) -> None:
        """Commit rows and marker together."""
        call(self.producer.commit_transaction, CALL_SECONDS)

    def _produce(self, row: staging.Row) -> None:
        named = {k: v for k, v in row._asdict().items() if v is not None}
        while True:
            try:
                call(lambda: self.producer.produce(self.work.topic, **named))
                self.producer.poll(0)
                return
            except BufferError:  # librdkafka's queue is full
                self.producer.poll(POLL_SECONDS)

    def _send_marker(self, row: int) -> None:
        work = self.work
        marker = Marker(work.batch, work.manifest, row, work.file.rows, markers.now_ms())
        send_marker(self.producer, self._group, work.job, work.partition, marker)

    def _wait_for_other(self) -> bool:
        """Whether the attempt that took over ends the batch; waits while it makes progress."""
        seen: Marker | None = None
        until = time.monotonic() + self.work.patience
        while time.monotonic() < until:
            try:
                marker = self._marker()
            except IncompleteError:
                continue  # it writes just now
            judge(marker, self.work)
            if marker.batch > self.work.batch:
                return True
            if marker.batch == self.work.batch and marker.complete:
                return True
            if marker != seen:
                seen, until = marker, time.monotonic() + self.work.patience
            time.sleep(POLL_SECONDS)
        return False

    def _drop(self) -> None:
        """Forget the producer; what it left open is ended by the next init_transactions."""
        if self.producer is not None:
            self.producer.purge()
            self.producer = None


def call(function: Any, *given: Any) -> Any:
    """Call librdkafka. Raises FencedError or LostError; retries what it may retry."""
    from confluent_kafka import KafkaException

    until = time.monotonic() + CALL_SECONDS
    while True:
        try:
            return function(*given)
        except KafkaException as failure:
            error = failure.args[0]
            if error.name() in FENCED:
                raise FencedError(error.str()) from None
            if error.retriable() and not error.fatal() and time.monotonic() < until:
                time.sleep(0.1)
                continue
            raise LostError(f"{error.name()}: {error.str()}") from None


def group_metadata(access: Access, job: str) -> Any:
    """What a producer must know of the markers' group to commit to it."""
    from eoctl.kafka import confluent

    consumer = confluent.consumer(access.settings(), {"group.id": markers.name(job)})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def send_marker(producer: Any, metadata: Any, job: str, partition: int, marker: Marker) -> None:
    """Add a marker to the open transaction. metadata: of `group_metadata`."""
    from confluent_kafka import TopicPartition

    place = TopicPartition(markers.name(job), partition, marker.next_row, marker.metadata())
    call(producer.send_offsets_to_transaction, [place], metadata, CALL_SECONDS)


def judge(marker: Marker, work: Work) -> None:
    """Whether this batch may follow what the marker says. Raises RefusedError."""
    where = f"{markers.name(work.job)}:{work.partition}"
    if marker.batch == work.batch and (marker.manifest, marker.rows) != (
        work.manifest,
        work.file.rows,
    ):
        raise RefusedError(
            f"batch {work.batch} was begun from another staging",
            where=where,
            remedy="run it with the staging folder it was begun with",
        )
    if marker.batch < work.batch and not marker.complete:
        raise RefusedError(
            f"batch {marker.batch} is unfinished ({marker.next_row} of {marker.rows} rows)",
            where=where,
            remedy=f"run batch {marker.batch} again first",
        )


def expired(job: str, partitions: list[int]) -> RefusedError:
    """An absent marker after marker 0: nobody can say what was sent."""
    return RefusedError(
        "the marker has expired or was deleted: how far the sink came is not known",
        where=", ".join(f"{markers.name(job)}:{p}" for p in partitions[:5]),
        remedy="compare the topic with the staged files, then go on under a new job name; "
        "offsets.retention.minutes must be longer than the job may rest",
    )
