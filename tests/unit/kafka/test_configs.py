"""Why settings are not given: only a refusal is a right that is not granted."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.ask.configs import broker_configs, topic_configs

REFUSED_TOPIC, REFUSED_CLUSTER, GONE, TIMED_OUT, FINE = 29, 31, 3, 7, 0  # Kafka's Errors


class Answering:
    """A cluster of one broker whose answer to DescribeConfigs has this error."""

    brokers = (1,)

    def __init__(self, error: int) -> None:
        config = SimpleNamespace(name="min.insync.replicas", value="2")
        result = SimpleNamespace(error_code=error, resource_name="orders", configs=[config])
        self.answer = SimpleNamespace(results=[result])

    async def ask_any(self, question: Any) -> Any:
        return self.answer

    async def ask_each(self, questions: Any) -> Any:
        return dict.fromkeys(questions, self.answer), {}

    async def ask(self, broker: int, question: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("error", "name", "detail"),
    [
        (REFUSED_TOPIC, "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE_CONFIGS on the topic is not"),
        (GONE, "UNKNOWN_TOPIC_OR_PARTITION", "it does not exist any more"),
        (TIMED_OUT, "REQUEST_TIMED_OUT", "its settings were not given"),
    ],
)
def test_why_a_topic_has_no_settings(error: int, name: str, detail: str) -> None:
    cluster: Any = Answering(error)
    values, [missing] = asyncio.run(topic_configs(cluster, ["orders"], ["min.insync.replicas"]))
    assert values == {}
    assert (missing.error, missing.topic) == (name, "orders")
    assert detail in missing.detail


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (REFUSED_CLUSTER, "DESCRIBE_CONFIGS on the cluster is not granted"),
        (TIMED_OUT, "its settings were not given"),
    ],
)
def test_why_a_broker_has_no_settings(error: int, detail: str) -> None:
    cluster: Any = Answering(error)
    values, [missing] = asyncio.run(broker_configs(cluster, ["min.insync.replicas"]))
    assert (values, missing.broker) == ({}, 1)
    assert detail in missing.detail


def test_settings_that_are_given() -> None:
    cluster: Any = Answering(FINE)
    settings = {"min.insync.replicas": "2"}
    assert asyncio.run(topic_configs(cluster, ["orders"], list(settings))) == (
        {"orders": settings},
        [],
    )
    assert asyncio.run(broker_configs(cluster, list(settings))) == ({"1": settings}, [])
