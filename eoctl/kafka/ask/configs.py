"""Read the settings in force, of topics and brokers (DescribeConfigs; defaults included)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, missing_broker
from recovery.facts import GroupFacts, Missing
from recovery.values import replace

TOPIC, BROKER, GROUP = 2, 4, 32
ISOLATION = "share.isolation.level"
GONE = "UNKNOWN_TOPIC_OR_PARTITION"


async def broker_configs(
    cluster: Cluster, keys: Sequence[str]
) -> tuple[dict[str, dict[str, str | None]], list[Missing]]:
    """Return broker id, as text → values of `keys` in force. Each broker gives only its own."""
    request = messages.DescribeConfigsRequest

    def question(broker: int) -> Any:
        resource = request.DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(broker), configuration_keys=list(keys)
        )
        return request(resources=[resource], include_synonyms=False, include_documentation=False)

    answers, failures = await cluster.ask_each(
        {b: partial(cluster.ask, b, question(b)) for b in cluster.brokers}
    )
    missing = [missing_broker(b, error, detail="its settings") for b, error in failures.items()]
    values: dict[str, dict[str, str | None]] = {}
    for broker, answer in answers.items():
        for result in answer.results:
            if result.error_code:
                name = messages.error_name(result.error_code)
                missing.append(Missing("broker", name, _why(name, "cluster"), broker=broker))
            else:
                values[str(broker)] = {c.name: c.value for c in result.configs}
    return values, missing


async def topic_configs(
    cluster: Cluster, topics: Sequence[str], keys: Sequence[str]
) -> tuple[dict[str, dict[str, str | None]], list[Missing]]:
    """Return topic → values of `keys` in force, and the topics whose settings were not given."""
    if not topics:
        return {}, []
    request = messages.DescribeConfigsRequest
    question = request(
        resources=[
            request.DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=list(keys)
            )
            for name in topics
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    answer: Any = await cluster.ask_any(question)
    values: dict[str, dict[str, str | None]] = {}
    missing: list[Missing] = []
    for result in answer.results:
        if result.error_code:
            name = messages.error_name(result.error_code)
            missing.append(Missing("topic", name, _why(name, "topic"), topic=result.resource_name))
        else:
            values[result.resource_name] = {c.name: c.value for c in result.configs}
    return values, missing


def _why(error: str, place: str) -> str:
    """Return why settings were not given. place: where the right to see them is granted."""
    if error.endswith("AUTHORIZATION_FAILED"):
        return f"its settings are hidden: DESCRIBE_CONFIGS on the {place} is not granted"
    if error == GONE:
        return "it does not exist any more"
    return "its settings were not given"


async def with_isolation(cluster: Cluster, groups: Sequence[GroupFacts]) -> list[GroupFacts]:
    """Return `groups`, share groups with their isolation level; None if it is hidden."""
    share = [g.group for g in groups if (g.type or "").lower() == "share"]
    if not share:
        return list(groups)
    request = messages.DescribeConfigsRequest
    question = request(
        resources=[
            request.DescribeConfigsResource(
                resource_type=GROUP, resource_name=name, configuration_keys=[ISOLATION]
            )
            for name in share
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    answer: Any = await cluster.ask_any(question)
    levels = {
        result.resource_name: c.value
        for result in answer.results
        if not result.error_code
        for c in result.configs
        if c.name == ISOLATION
    }
    return [replace(g, isolation=levels[g.group]) if g.group in levels else g for g in groups]
