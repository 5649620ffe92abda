"""When the record of a topic's positions is produced, and what its delivery report proves.

The producer is scripted, for a real broker says NOT_LEADER_FOR_PARTITION at no command.
"""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.stores.offsets.bounded import BlockingCall
from eoctl.stores.offsets.topic import TopicOffsets
from recovery.errors import RefusedError
from recovery.shared.store_tables import TopicStore


class Producer:
    """Stands for librdkafka's. error: what it reports of the record."""

    def __init__(self, did: list[str], error: int, lost: bool) -> None:
        self._did, self._error, self._lost = did, error, lost

    def list_topics(self, topic: str, timeout: float) -> None:
        self._did.append("connected")
        if self._lost:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        self._did.append("produced")
        on_delivery(KafkaError(self._error), None)

    def flush(self, timeout: float) -> None:
        self._did.append("flushed")


def produced(
    monkeypatch: pytest.MonkeyPatch, error: int, *, lost: bool = False
) -> tuple[list[str], dict[str, Any]]:
    did: list[str] = []
    config: dict[str, Any] = {}

    def make(_: object, given: dict[str, Any]) -> Producer:
        config.update(given)
        return Producer(did, error, lost)

    monkeypatch.setattr(confluent, "producer", make)
    cluster = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
    described = TopicStore(kind="topic", topic="positions", key="k")
    store = TopicOffsets(described, cluster, None, 30)
    try:
        found = store._produced(BlockingCall(), "{}", 0, lambda: did.append("lock"))
        did.append(f"found {found}")
    except RefusedError as refusal:
        did.append(refusal.what)
    return did, config


def test_the_lock_is_asked_for_once_a_broker_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    did, config = produced(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    said = "TOPIC_AUTHORIZATION_FAILED; nothing was written"
    assert did == ["connected", "lock", "produced", "flushed", said]
    assert config["message.timeout.ms"] <= 5000


def test_without_a_broker_nothing_is_produced(monkeypatch: pytest.MonkeyPatch) -> None:
    did, _ = produced(monkeypatch, 0, lost=True)
    assert did == ["connected", "_TRANSPORT; nothing was written"]


def test_a_leader_that_is_none_any_more_may_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    did, _ = produced(monkeypatch, KafkaError.NOT_LEADER_FOR_PARTITION)
    assert did[-1] == "found None"  # no answer: a look decides
