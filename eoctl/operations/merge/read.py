"""Read a merge log and its inputs: records as read_committed (or not) readers see them.

Uses librdkafka, which decodes in C: a replay needs every record. A failing broker or a missing
right is an error with a sentence, never an end of the records.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.properties import ClientSettings
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

READ = 10_000  # messages in one call
HELD_RECORDS, HELD_BYTES = 100_000, 32 << 20  # of one partition, before it is paused
SILENT_SECONDS = 60.0  # although records should have come

MessageRun = tuple[TopicPartition, "list[Message]"]


class Stream:
    """Partitions read by one consumer, each in its order.

    ends: where reading a partition last came to its end.
    """

    def __init__(
        self, settings: ClientSettings, *, isolation: str, max_rate: float | None = None
    ) -> None:
        self._consumer: Any = confluent.consumer(
            settings,
            {
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4 << 20,
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": 64 << 10,
                "fetch.queue.backoff.ms": 10,
                "allow.auto.create.topics": False,
            },
        )
        self._max_rate = max_rate
        self._paid_until = time.monotonic()
        self._seen: dict[TopicPartition, tuple[int, int]] = {}  # records, bytes
        self._paused: set[TopicPartition] = set()
        self._reads: set[TopicPartition] = set()
        self.ends: dict[TopicPartition, int] = {}

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions, from these offsets on."""
        from confluent_kafka import TopicPartition as ConfluentPartition

        self._reads |= starts.keys()
        self._consumer.incremental_assign(
            [ConfluentPartition(*p, offset) for p, offset in starts.items()]
        )

    def read(self, seconds: float) -> Iterator[MessageRun]:
        """Read for `seconds`, and return records in runs of one partition.

        Raises IncompleteError if a partition cannot be read, RefusedError if the next offset to
        read is not in the log.
        """
        from confluent_kafka import KafkaError

        came = self._consumer.consume(READ, seconds)
        if len(self._reads) == 1 and not any(m.error() for m in came):
            [here] = self._reads
            if came:
                yield here, self._counted(here, came)
            return
        run: list[Message] = []
        here, topic, partition = TopicPartition("", -1), "", -1
        for message in came:
            error = message.error()
            if error is None:
                if message.partition() != partition or message.topic() != topic:
                    if run:
                        yield here, self._counted(here, run)
                    topic, partition = message.topic(), message.partition()
                    here, run = TopicPartition(topic, partition), []
                run.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[TopicPartition(message.topic(), message.partition())] = message.offset()
            elif not error.retriable():
                raise _problem(error, TopicPartition(message.topic(), message.partition()))
        if run:
            yield here, self._counted(here, run)

    def _counted(self, partition: TopicPartition, run: "list[Message]") -> "list[Message]":
        size = sum(map(len, run))
        records, before = self._seen.get(partition, (0, 0))
        self._seen[partition] = records + len(run), before + size
        if self._max_rate is not None:
            self._paid_until = max(self._paid_until, time.monotonic()) + size / self._max_rate
        return run

    @property
    def owed(self) -> float:
        """Return for how many seconds the rate forbids reading."""
        return max(0.0, self._paid_until - time.monotonic())

    def balance(self, waiting: Callable[[TopicPartition], int], partition: TopicPartition) -> None:
        """Pause a partition with too many waiting records, resume one with few."""
        from confluent_kafka import TopicPartition as ConfluentPartition

        records, size = self._seen.get(partition, (1, 1))
        most = min(HELD_RECORDS, max(100, HELD_BYTES * records // max(1, size)))
        held = waiting(partition)
        if partition in self._paused:
            if held < most // 4:
                self._paused.discard(partition)
                self._consumer.resume([ConfluentPartition(*partition)])
        elif held > most:
            self._paused.add(partition)
            self._consumer.pause([ConfluentPartition(*partition)])

    def resume_short(self, waiting: Callable[[TopicPartition], int]) -> None:
        """Resume the partitions that ran short."""
        for partition in list(self._paused):
            self.balance(waiting, partition)

    def close(self) -> None:
        self._consumer.close()


def _problem(error: Any, partition: TopicPartition) -> Exception:
    where = str(partition)
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        return RefusedError(
            "what is to be read next is no longer in the log",
            where=where,
            remedy="retention took it meanwhile: nothing can be replayed past it",
        )
    return IncompleteError(f"cannot be read: {error.str()} ({error.name()})", where=where)


def read_log(
    settings: ClientSettings,
    partition: TopicPartition,
    start: int,
    end: int,
    isolation: str = "read_committed",
    max_rate: float | None = None,
) -> "Iterator[list[Message]]":
    """Yield the data records of [start, end), in order, in lists. Raises as `Stream.read` does."""
    if start >= end:
        return
    stream = Stream(settings, isolation=isolation, max_rate=max_rate)
    try:
        stream.add({partition: start})
        heard = time.monotonic()
        while stream.ends.get(partition, 0) < end:
            if stream.owed:
                time.sleep(min(0.1, stream.owed))
                heard = time.monotonic()
                continue
            for _, messages in stream.read(0.2):
                heard = time.monotonic()
                if messages[-1].offset() < end:
                    yield messages
                    if messages[-1].offset() == end - 1:
                        return
                    continue
                if below := [m for m in messages if m.offset() < end]:
                    yield below
                return
            if time.monotonic() - heard > SILENT_SECONDS:
                raise silent(partition)
    finally:
        stream.close()


def silent(partition: TopicPartition) -> IncompleteError:
    return IncompleteError(f"nothing came for {SILENT_SECONDS:.0f} s", where=str(partition))
