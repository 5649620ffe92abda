"""How partitions are read for a merge: runs, ends, what is held back, and what is no end.

The consumer is scripted: what librdkafka gives in which order cannot be asked for.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eoctl.kafka.connection import confluent
from eoctl.operations.merge import read
from eoctl.operations.merge.read import HELD_RECORDS, Stream, read_log
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)
EOF = KafkaError._PARTITION_EOF


class Message:
    """A record, or an error where there is one. size: of the record, in bytes."""

    def __init__(
        self, at: TopicPartition, offset: int, error: KafkaError | None = None, size: int = 10
    ) -> None:
        self.at, self._offset, self._error, self.size = at, offset, error, size

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def __len__(self) -> int:
        return self.size


class Consumer:
    """came: what each call gives. did: what else it was asked."""

    def __init__(self, *came: Sequence[Message]) -> None:
        self.came, self.did = list(came), list[Any]()
        self.clock = 0.0

    def consume(self, most: int, seconds: float) -> Sequence[Message]:
        self.clock += seconds
        self.did.append(("consume", seconds))
        assert len(self.did) < 5_000, "it never ends"
        return self.came.pop(0) if self.came else []

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        self.did += [("assign", p.topic, p.partition, p.offset) for p in partitions]

    def pause(self, partitions: Sequence[Any]) -> None:
        self.did += [("pause", p.topic, p.partition) for p in partitions]

    def resume(self, partitions: Sequence[Any]) -> None:
        self.did += [("resume", p.topic, p.partition) for p in partitions]

    def close(self) -> None:
        self.did.append("close")


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer()

    def consumer_of(settings: Any, config: dict[str, Any]) -> Consumer:
        assert config["isolation.level"] == "read_committed"
        assert config["auto.offset.reset"] == "error"
        assert config["enable.partition.eof"] is True
        assert config["allow.auto.create.topics"] is False
        return made

    def sleep(seconds: float) -> None:
        made.clock += seconds

    monkeypatch.setattr(confluent, "consumer", consumer_of)
    clock = SimpleNamespace(monotonic=lambda: made.clock, sleep=sleep)
    monkeypatch.setattr(read, "time", clock)
    return made


def stream(consumer: Consumer, *partitions: TopicPartition, rate: float | None = None) -> Stream:
    settings: Any = None
    made = Stream(settings, isolation="read_committed", max_rate=rate)
    made.add(dict.fromkeys(partitions, 3))
    return made


def records(at: TopicPartition, *offsets: int, size: int = 10) -> list[Message]:
    return [Message(at, offset, size=size) for offset in offsets]


def failed(at: TopicPartition, code: int, offset: int = 0) -> Message:
    return Message(at, offset, KafkaError(code, "a reason"))


def test_records_come_in_runs_of_a_partition(consumer: Consumer) -> None:
    made = stream(consumer, A, B)
    assert consumer.did == [("assign", "a", 0, 3), ("assign", "a", 1, 3)]
    other = TopicPartition("b", 1)
    consumer.came = [
        [*records(A, 3, 4), *records(B, 3), failed(A, EOF, 5), *records(other, 8), *records(A, 6)]
    ]
    runs = [(at, [m.offset() for m in run]) for at, run in made.read(0.2)]
    assert runs == [(A, [3, 4]), (B, [3]), (other, [8]), (A, [6])]
    assert made.ends == {A: 5}
    assert consumer.did[-1] == ("consume", 0.2)


@pytest.mark.parametrize("number", [1, 2])
def test_ends_and_records_of_one_partition(consumer: Consumer, number: int) -> None:
    made = stream(consumer, *[A, B][:number])
    consumer.came = [records(A, 3, 4), [*records(A, 5), failed(A, EOF, 6)], []]
    assert [[m.offset() for m in run] for _, run in made.read(0)] == [[3, 4]]
    assert made.ends == {}
    assert [[m.offset() for m in run] for _, run in made.read(0)] == [[5]]
    assert made.ends == {A: 6}
    assert list(made.read(0)) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._AUTO_OFFSET_RESET, RefusedError),
        (KafkaError.OFFSET_OUT_OF_RANGE, RefusedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, IncompleteError),
    ],
)
def test_an_error_is_no_end(consumer: Consumer, code: int, kind: type[Exception]) -> None:
    made = stream(consumer, A)
    consumer.came = [[failed(A, code)]]
    with pytest.raises(kind) as error:
        list(made.read(0))
    assert str(A) in str(error.value)
    consumer.came = [[Message(A, 0, KafkaError(KafkaError._TRANSPORT, "x", retriable=True))]]
    assert list(made.read(0)) == []


def test_a_rate_is_owed_until_it_is_paid(consumer: Consumer) -> None:
    made = stream(consumer, A, rate=100.0)
    assert made.owed == 0
    consumer.came = [records(A, 3, 4, size=50), records(A, 5, size=50)]
    list(made.read(0))
    assert made.owed == 1.0
    list(made.read(0))
    assert made.owed == 1.5
    consumer.clock = 9.0
    assert made.owed == 0
    consumer.came = [records(A, 6, size=50)]
    list(made.read(0))
    assert made.owed == 0.5  # what was not used is not saved
    assert stream(consumer, A).owed == 0


@pytest.mark.parametrize(
    ("size", "most"),
    [(1, HELD_RECORDS), (1 << 20, 100), (32 << 10, 1024), (None, HELD_RECORDS)],
)
def test_a_partition_with_too_many_waiting_is_paused(
    consumer: Consumer, size: int | None, most: int
) -> None:
    """By their number, or by 32 MiB of records of the size seen; never below 100."""
    made = stream(consumer, A, B)
    if size is not None:
        consumer.came = [records(A, 3, 4, size=size)]
        list(made.read(0))
    waiting = most

    def balance() -> list[Any]:
        before = len(consumer.did)
        made.balance(lambda at: waiting, A)
        return consumer.did[before:]

    assert balance() == []
    waiting = most + 1
    assert balance() == [("pause", "a", 0)]
    assert balance() == []
    waiting = most // 4
    assert balance() == []
    made.resume_short(lambda at: most // 4)
    assert consumer.did[-1] == ("pause", "a", 0)
    made.resume_short(lambda at: most // 4 - 1)
    assert consumer.did[-1] == ("resume", "a", 0)
    assert balance() == []


def log(consumer: Consumer, start: int, end: int, **options: Any) -> list[int]:
    settings: Any = None
    return [m.offset() for run in read_log(settings, A, start, end, **options) for m in run]


@pytest.mark.parametrize(
    ("came", "end", "expected"),
    [
        ([[3, 4], [5, 6]], 7, [3, 4, 5, 6]),  # without waiting for the end
        ([[3, 4], [5, 6, 7, 8]], 7, [3, 4, 5, 6]),
        ([[3, 4], [8]], 7, [3, 4]),
        ([[3], [4]], 5, [3, 4]),
    ],
)
def test_a_log_is_read_up_to_its_end(
    consumer: Consumer, came: list[list[int]], end: int, expected: list[int]
) -> None:
    consumer.came = [records(A, *offsets) for offsets in came]
    assert log(consumer, 3, end) == expected
    assert consumer.came == []
    assert consumer.did[0] == ("assign", "a", 0, 3)
    assert consumer.did[-1] == "close"


def test_an_end_without_a_record_before_it(consumer: Consumer) -> None:
    """A marker is the last offset, or compaction took the last records."""
    consumer.came = [records(A, 3), [failed(A, EOF, 5)], records(A, 5), [failed(A, EOF, 9)]]
    assert log(consumer, 3, 9) == [3, 5]
    assert log(consumer, 9, 9) == []
    assert log(consumer, 10, 9) == []
    assert consumer.did.count("close") == 1  # nothing was opened for an empty range


def test_a_log_that_gives_nothing_is_no_empty_one(consumer: Consumer) -> None:
    consumer.came = [records(A, 3)]
    with pytest.raises(IncompleteError, match="nothing came for 60 s") as error:
        log(consumer, 3, 9)
    assert error.value.where == str(A)
    assert 60 < consumer.clock < 61
    assert consumer.did[-1] == "close"


def test_a_log_is_read_no_faster_than_allowed(consumer: Consumer) -> None:
    consumer.came = [records(A, 3, size=6_500), records(A, 4)]
    assert log(consumer, 3, 5, max_rate=100.0) == [3, 4]
    assert consumer.clock >= 65
    assert ("consume", 0.2) in consumer.did
