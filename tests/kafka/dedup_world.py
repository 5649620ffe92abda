"""Topics with planted repeats, and what their clean copies are to hold.

That is told by a plain consumer: the first record of each id, in order.
"""

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab
from tests.kafka.conftest import MakeTopic

Key = Callable[["Record"], object]


class Record(NamedTuple):
    """What a read_committed consumer got."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int

    def header(self, name: str) -> bytes | None:
        return dict(self.headers).get(name)


def consumed(lab: Lab, topic: str, partition: int) -> list[Record]:
    """Every record of a partition, in order."""
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error() is not None:
                break
            headers = tuple(message.headers() or ())
            found.append(Record(message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()
    return found


Partition = tuple[str, int]


def left_pending(
    lab: Lab, transactional_id: str, group: str, position: Partition, record: Partition | None
) -> Producer:
    """A producer that stopped between its position and the commit. Keep it, or it aborts."""
    config = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = Producer({**lab.client_properties(), **config})
    consumer = Consumer({**lab.client_properties(), "group.id": group})
    producer.init_transactions(20)
    producer.begin_transaction()
    if record is not None:
        producer.produce(record[0], b"never committed", b"key", partition=record[1])
        producer.flush(20)
    membership = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(*position, 1)], membership, 20)
    consumer.close()
    return producer


def firsts(records: Iterable[Record], key: Key) -> list[Record]:
    """The records whose key was not there before; one without a key is always kept."""
    seen, kept = set[object](), []
    for record in records:
        one = key(record)
        if one is None or one not in seen:
            kept.append(record)
            seen.add(one)
    return kept


def source(record: Record) -> object:
    return record.header("source.partition"), record.header("source.offset")


class Copier:
    """A job that copies source partitions, goes back when it crashes, and so repeats itself."""

    def __init__(self, lab: Lab, topic: str, seed: int, partitions: int = 2) -> None:
        self._random = random.Random(seed)
        self._lab, self._topic, self._partitions = lab, topic, partitions
        self._next: dict[int, int] = {}

    def run(self, records: int) -> None:
        """Copy so many, crashing on the way; some of it in transactions, some of these aborted."""
        config = {**self._lab.client_properties(), "transactional.id": f"copier-{self._topic}"}
        producer = Producer(config)
        producer.init_transactions(20)
        left = records
        while left > 0:
            count = min(left, self._random.randint(1, 60))
            left -= count
            begin = dict(self._next)
            producer.begin_transaction()
            for _ in range(count):
                self._send(producer)
            if self._random.random() < 0.2:
                producer.flush(20)  # librdkafka cannot abort what the broker has not seen begin
                producer.abort_transaction(20)
                self._next = begin
            else:
                producer.commit_transaction(20)
            for number in self._next:
                self._next[number] = max(0, self._next[number] - self._random.choice([0, 0, 3, 30]))

    def _send(self, producer: Producer) -> None:
        number = self._random.randrange(3)
        offset = self._next.get(number, 0)
        self._next[number] = offset + 1
        producer.produce(
            self._topic,
            key=f"customer-{(number + offset) % 7}",
            value=f'{{"order": {{"id": "{number}-{offset}"}}}}',
            partition=number % self._partitions,
            headers=[("source.partition", str(number)), ("source.offset", str(offset))],
            timestamp=1_700_000_000_000 + offset,
        )


def topics(lab: Lab, topic: MakeTopic) -> tuple[str, str]:
    """A dirty one and a clean one, of two partitions, that keep their records of 2023."""
    kept = {"retention.ms": "-1"}
    return topic(lab, 2, 1, kept, "dirty"), topic(lab, 2, 1, kept, "clean")


def check_clean(lab: Lab, dirty: str, clean: str, key: Key, partitions: int = 2) -> int:
    """The clean topic holds the first of each; how many repeats there were."""
    repeats = 0
    for partition in range(partitions):
        there = consumed(lab, dirty, partition)
        wanted = firsts(there, key)
        assert consumed(lab, clean, partition) == wanted
        repeats += len(there) - len(wanted)
    return repeats


def produce(lab: Lab, topic: str, rows: Iterable[tuple[int, str, str]]) -> None:
    """(partition, source offset, value)"""
    producer = Producer(lab.client_properties())
    for partition, offset, value in rows:
        producer.produce(
            topic,
            value=value,
            partition=partition,
            headers=[("source.partition", "0"), ("source.offset", offset)],
        )
    producer.flush(20)
