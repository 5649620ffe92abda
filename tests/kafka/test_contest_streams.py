"""Instances of Kafka Streams that join and leave, and die now and then, contest no id."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, eoctl
from tests.streams.living import Living, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTITIONS = 4
BATCH = 400
FAST_GROUPS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
}
SOON = {"commit.interval.ms": "200", "producer.transaction.timeout.ms": "60000"}
CLASSIC = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "500"}
LEAVES = ("stop", "stop", "halt", "stop", "halt", "stop")
"""How the second instance leaves, each time while both have transactions: it dies twice."""


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec(name="rebalances", settings=FAST_GROUPS))


@contextmanager
def instance(lab: Lab, folder: Path, application: Streams) -> Iterator[Living]:
    living = Living(lab, folder, application)
    try:
        living.start()
        yield living
    finally:
        living.stop()


def feed(lab: Lab, topic: str) -> None:
    producer = Producer(lab.client_properties())
    for number in range(BATCH):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def done(living: Living, name: str) -> int:
    """How many records this instance has processed, as it says itself."""
    count: int = living.ask("state")["processed"][name]
    return count


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_instances_that_join_and_leave_are_no_contest(
    lab: Lab, topic: Callable[..., str], tmp_path: Path, protocol: str
) -> None:
    source, output = topic(lab, partitions=PARTITIONS), topic(lab, partitions=PARTITIONS)
    settings = SOON | CLASSIC if protocol == "classic" else SOON
    application = Streams(f"app-{source}", protocol, source, output, settings)
    name = application.name
    with instance(lab, tmp_path / "first", application) as first:
        for way in LEAVES:
            with instance(lab, tmp_path / "second", application) as second:
                shared = done(first, name)

                def both(second: Living = second, shared: int = shared) -> bool:
                    feed(lab, source)
                    return done(second, name) > 0 and done(first, name) > shared

                first.until(both, "the second instance never got a partition")
                if way == "halt":
                    feed(lab, source)  # it dies amid a transaction
                    second.halt()
        found = eoctl("status", *FAST, "-o", "json", lab=lab)
    assert found.json["contests"] == []
    ids = eoctl("txn", "list", "-o", "json", lab=lab).rows
    mine = [r["transactional_id"] for r in ids if r["transactional_id"].startswith(name)]
    history = eoctl("txn", "history", *mine, "-o", "json", lab=lab)
    begun = [r for r in history.rows if r["state"] == "Empty"]
    assert len(begun) >= len(LEAVES) + 1, "each start initialised an id"
    assert history.json["contests"] == []
