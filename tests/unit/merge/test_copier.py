"""How a replay writes what it read: every field of a record, or none."""

from typing import Any, NamedTuple

import pytest

from eoctl.operations.merge.replay import _Copier
from recovery.errors import IncompleteError, RefusedError


class Record(NamedTuple):
    content: bytes
    sent_at: int = 7
    named: Any = (("h", b"1"),)

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 9

    def timestamp(self) -> tuple[int, int]:
        return 1, self.sent_at

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return self.content

    def headers(self) -> Any:
        if isinstance(self.named, Exception):
            raise self.named
        return self.named


class Producer:
    """Takes records, as librdkafka does with a queue of `room` of them."""

    def __init__(self, room: int = 9, failure: Exception | None = None) -> None:
        self.room, self.failure = room, failure
        self.taken: list[Any] = []
        self.polls: list[float] = []

    def produce(self, *fields: Any) -> None:
        if self.failure is not None:
            raise self.failure
        if len(self.taken) >= self.room:
            raise BufferError
        self.taken.append(fields)

    def poll(self, seconds: float) -> None:
        assert len(self.polls) < 9, "nobody makes room"
        self.polls.append(seconds)
        self.room += 1


def copier(producer: Producer) -> _Copier:
    settings: Any = None
    made = _Copier(settings, "id", "g")
    made._producer = producer
    return made


def test_a_copy_has_every_field_of_its_record() -> None:
    producer = Producer(room=1)
    copier(producer).copy("o", 3, [Record(b"x"), Record(b"y", 8, None)])
    assert producer.taken == [
        ("o", b"x", b"k", 3, None, None, 7, (("h", b"1"),)),
        ("o", b"y", b"k", 3, None, None, 8, None),
    ]
    assert producer.polls == [0.1, 0]  # for room; then without waiting


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Record(b"x", 0), "its timestamp is 0"),
        (Record(b"x", 7, UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "")), "is not UTF-8"),
    ],
)
def test_what_could_not_be_written_as_it_is_ends_the_copy(record: Record, why: str) -> None:
    producer = Producer()
    with pytest.raises(RefusedError, match=why) as refused:
        copier(producer).copy("o", 3, [Record(b"x"), record, Record(b"z")])
    assert refused.value.where == "a:2 at 9"
    assert len(producer.taken) == 1


def test_a_failed_write_ends_the_copy() -> None:
    from confluent_kafka import KafkaError, KafkaException

    producer = Producer(failure=KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    with pytest.raises(IncompleteError, match="cannot write to o:3"):
        copier(producer).copy("o", 3, [Record(b"x")])
