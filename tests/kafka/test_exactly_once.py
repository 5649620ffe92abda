"""The transactional writer on a real broker: what a takeover does to it, in each of its calls."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write import exactly_once
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer
from eoctl.lab.client import GROUP, TRANSACTION, Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import ends


def writer(lab: Lab, name: str) -> Writer:
    settings = client_settings({"bootstrap.servers": lab.bootstrap_servers})
    return Writer(settings, f"{name}-id", f"{name}-group", timeout_ms=60_000)


@pytest.fixture
def taken_over(lab1: Lab, topic: MakeTopic) -> Iterator[tuple[Writer, str]]:
    """A writer with an open transaction, whose id another one has taken over."""
    name = topic(lab1)
    old, new = writer(lab1, name), writer(lab1, name)
    old.open()
    old.begin()
    old.send(name, 0, b"k", b"from the old one")
    new.open()
    yield old, name
    old.close()
    new.close()


def visible(lab: Lab, topic: str, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([ConfluentPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_a_writer_that_was_taken_over_commits_nothing_and_says_why(
    taken_over: tuple[Writer, str], lab1: Lab
) -> None:
    old, name = taken_over
    with pytest.raises(RefusedError, match=r"taken it over, or .* its timeout of 1m"):
        old.commit({TopicPartition(name, 0): CommittedPosition(1, "")})
    assert visible(lab1, name) == []


def test_a_writer_that_was_taken_over_stops_sending(
    taken_over: tuple[Writer, str], lab1: Lab
) -> None:
    old, name = taken_over

    def go_on() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            old.send(name, 0, b"k", b"v")
            time.sleep(0.01)

    with pytest.raises(RefusedError, match="another process has taken it over"):
        go_on()
    assert visible(lab1, name) == []


def test_a_large_record_that_fits_once_compressed_is_taken(lab1: Lab, topic: MakeTopic) -> None:
    """3 MB of JSON, beside small records, where the topic takes batches of 1 MB."""
    name = topic(lab1)
    large = json.dumps([{"order": n, "status": "shipped"} for n in range(90_000)]).encode()
    assert len(large) > 3_000_000
    sent = [b"before", large, b"after", *(os.urandom(100_000) for _ in range(20))]
    one = writer(lab1, name)
    one.open()
    one.begin()
    for value in sent:
        one.send(name, 0, b"k", value)
    one.commit({TopicPartition(name, 0): CommittedPosition(1, "")})
    one.close()
    assert visible(lab1, name) == sent


def test_a_record_that_its_topic_does_not_take_is_refused_with_the_remedy(
    lab1: Lab, topic: MakeTopic
) -> None:
    name = topic(lab1)
    one = writer(lab1, name)
    one.open()
    one.begin()
    one.send(name, 0, b"k", os.urandom(1_500_000))
    with pytest.raises(RefusedError, match=r"raise max\.message\.bytes of the output topic"):
        one.commit({TopicPartition(name, 0): CommittedPosition(1, "")})
    one.abort()
    one.close()
    assert visible(lab1, name) == []


def test_an_abort_leaves_nothing_open(lab1: Lab, topic: MakeTopic) -> None:
    """Readers go past it at once, not when its timeout of a minute has ended it."""
    name = topic(lab1)
    one = writer(lab1, name)
    one.open()
    one.begin()
    one.send(name, 0, b"k", b"never committed")
    end = time.monotonic() + 20
    while ends(lab1, name) != (0, 1):  # it is in the log, and open
        assert time.monotonic() < end
    one.abort()
    end = time.monotonic() + 15
    while ends(lab1, name) != (2, 2):  # the record, and the marker that aborts it
        assert time.monotonic() < end
    one.begin()
    one.send(name, 0, b"k", b"committed")
    one.commit({TopicPartition(name, 0): CommittedPosition(1, "")})
    one.close()
    assert visible(lab1, name) == [b"committed"]


def test_a_time_that_librdkafka_takes_for_none_is_refused(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    one = writer(lab1, name)
    one.open()
    one.begin()
    with pytest.raises(RefusedError, match="1970"):
        one.send(name, 0, b"k", b"v", timestamp=0)
    one.abort()
    one.close()


@pytest.mark.long
def test_a_group_coordinator_that_is_gone_is_not_waited_for_for_ever(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would: it forgets its timeout there."""
    alone = dict.fromkeys(
        ("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), "1"
    )
    lab = start_lab(LabSpec(name="coordinators", brokers=2, settings=alone))
    gone, name = 2, topic(lab, partitions=2)
    ids = [f"{name}-{number}" for number in range(60)]

    async def on_brokers() -> tuple[int, str, str]:
        """A partition and a transaction that do without the broker, and a group that does not."""
        async with Client.to(lab.bootstrap_servers) as client:

            async def first(kind: int, broker: int) -> str:
                for name in ids:
                    while True:  # its topic is being made
                        with suppress(WireError):
                            found = await client.coordinator(name, kind)
                            break
                        await asyncio.sleep(0.1)
                    if found == broker:
                        return name
                raise AssertionError(broker)

            leaders = await client.partitions(name)
            partition = next(p for p, found in leaders.items() if found.leader == 1)
            return partition, await first(TRANSACTION, 1), await first(GROUP, gone)

    partition, transactional_id, group = asyncio.run(on_brokers())
    settings = client_settings({"bootstrap.servers": lab.bootstrap_servers})

    def begun(value: bytes) -> Writer:
        made = Writer(settings, transactional_id, group, timeout_ms=60_000)
        made.open()
        made.begin()
        made.send(name, partition, b"k", value)
        return made

    one = begun(b"never committed")
    lab.kill(gone)
    monkeypatch.setattr(exactly_once, "CALL_SECONDS", 3.0)
    with pytest.raises(IncompleteError, match="its position was not taken"):
        one.commit({TopicPartition(name, partition): CommittedPosition(1, "")})
    one.close()
    lab.start(gone)
    monkeypatch.undo()
    two = begun(b"committed")
    two.commit({TopicPartition(name, partition): CommittedPosition(2, "")})
    two.close()
    assert visible(lab, name, partition) == [b"committed"]
