"""The transactional writer on a real broker: what a takeover does to it, in each of its calls."""

import json
import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.kafka.exactly_once import Position, Writer
from eoctl.kafka.properties import client_settings
from eoctl.lab.cluster import Lab
from recovery.errors import RefusedError
from tests.kafka.conftest import MakeTopic


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


def visible(lab: Lab, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {**lab.client_properties(), "group.id": "oracle", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_a_writer_that_was_taken_over_commits_nothing_and_says_why(
    taken_over: tuple[Writer, str], lab1: Lab
) -> None:
    old, name = taken_over
    with pytest.raises(RefusedError, match=r"taken it over, or .* its timeout of 60 s"):
        old.commit({(name, 0): Position(1, "")})
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
    one.commit({(name, 0): Position(1, "")})
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
        one.commit({(name, 0): Position(1, "")})
    one.abort()
    one.close()
    assert visible(lab1, name) == []


def test_a_time_that_librdkafka_takes_for_none_is_refused(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    one = writer(lab1, name)
    one.open()
    one.begin()
    with pytest.raises(RefusedError, match="1970"):
        one.send(name, 0, b"k", b"v", timestamp=0)
    one.abort()
    one.close()
