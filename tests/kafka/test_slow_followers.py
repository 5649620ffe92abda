"""A marker that its followers do not have yet: the LSO waits for them, and nothing is open."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, eoctl
from tests.kafka.conftest import MakeTopic

SLOW = {"replica.fetch.min.bytes": "1000000", "replica.fetch.wait.max.ms": "3000"}
"""A follower asks for so many bytes that a record reaches it after up to 3 s."""


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec(name="slow", brokers=2, settings=SLOW))


def test_a_marker_on_its_way_to_the_followers_is_no_gap(lab: Lab, topic: MakeTopic) -> None:
    here = topic(lab, replicas=2)
    producer = Producer({**lab.client_properties(), "transactional.id": here, "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(here, b"v", b"k", 0)
    assert producer.flush(60) == 0
    producer.commit_transaction(60)
    ran = eoctl("txn", "hanging", here, *FAST, "-o", "json", lab=lab)
    assert ran.status == 0, ran.stdout
    assert {r["verdict"] for r in ran.rows} <= {"open", "prepare"}
