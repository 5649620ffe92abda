"""Groups and counting on Kafka 2.8: no group types, one group a question, messages of magic 1."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.offsets_oracle import look
from tests.kafka.test_offsets_count import COUNTS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def old(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="offsets-2.8", kafka_version="2.8.2"))
    yield lab
    lab.down()


def transactional(lab: Lab, name: str) -> Producer:
    """librdkafka's producer, since the lab's own speaks to newer brokers only."""
    producer = Producer(lab.client_properties() | {"transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    return producer


def test_groups_with_a_pending_commit(old: Lab, topic: MakeTopic) -> None:
    name = topic(old)
    groups = [f"{name}-{i}" for i in range(3)]
    members = [Consumer(old.client_properties() | {"group.id": group}) for group in groups]
    owner = transactional(old, name)
    owner.begin_transaction()
    for _ in range(9):
        owner.produce(name, b"v")
    owner.commit_transaction(30)
    for i, member in enumerate(members):
        member.commit(offsets=[TopicPartition(name, 0, i)], asynchronous=False)
    owner.begin_transaction()
    owner.send_offsets_to_transaction(
        [TopicPartition(name, 0, 7)], members[1].consumer_group_metadata(), 30
    )
    for member in members:
        member.close()
    ran = eoctl("offsets", "show", name, "--count", "-o", "json", lab=old)
    assert (ran.status, ran.json["complete"]) == (0, True)
    assert {
        r["group"]: (r["committed_offset"], r["pending"], r["lag"], r["data_records"])
        for r in ran.rows
    } == {
        groups[0]: (0, False, 10, 9),
        groups[1]: (1, True, 9, 8),
        groups[2]: (2, False, 8, 7),
    }
    (row,) = eoctl("offsets", "show", "--group", groups[1], "-o", "json", lab=old).rows
    assert (row["committed_offset"], row["pending"]) == (1, True)
    assert row["pending_producer_id"] is not None


def test_counting(old: Lab, topic: MakeTopic) -> None:
    name = topic(old)
    owner = transactional(old, name)
    for number in range(7):
        owner.begin_transaction()
        for _ in range(number + 1):
            owner.produce(name, b"v")
        assert owner.flush(30) == 0
        if number < 6:  # the last one stays open
            (owner.abort_transaction if number % 2 else owner.commit_transaction)(30)
    seen = look(old, [(name, 0)])[name, 0]
    assert seen.counts(0, seen.high) == dict(zip(COUNTS, (9, 12, 6, 7, 0), strict=True))
    for start, end in ((0, seen.high), (2, seen.high - 1), (3, seen.stable)):
        ran = eoctl("offsets", "count", f"{name}:0", str(start), str(end), "-o", "json", lab=old)
        assert {n: ran.rows[0][n] for n in COUNTS} == seen.counts(start, end)


def test_messages_of_an_older_format_are_refused_by_name(old: Lab, topic: MakeTopic) -> None:
    name = topic(old, config={"message.format.version": "0.10.2"})

    async def make() -> None:
        async with Client.to(old.bootstrap_servers) as client:
            await client.plain(name, 0, [NewRecord(b"v")] * 3)

    asyncio.run(make())
    ran = eoctl("offsets", "count", f"{name}:0", "0", "3", "-o", "json", lab=old)
    assert (ran.status, ran.rows[0]["error"]) == (3, "UNSUPPORTED_FOR_MESSAGE_FORMAT")
    assert ran.rows[0]["data_records"] is None
    (error,) = ran.json["errors"]
    assert "magic 1" in error["detail"]
