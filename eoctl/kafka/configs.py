"""Settings in force, of topics and brokers (DescribeConfigs; defaults included)."""

from collections.abc import Sequence
from typing import Any

from eoctl.kafka import messages
from eoctl.kafka.cluster import Cluster
from recovery.facts import Missing

TOPIC, BROKER = 2, 4


async def topic_configs(
    cluster: Cluster, topics: Sequence[str], keys: Sequence[str]
) -> tuple[dict[str, dict[str, str | None]], list[Missing]]:
    """Topic → values of `keys` in force; topics that may not be asked are in the second part."""
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
    found: dict[str, dict[str, str | None]] = {}
    missing: list[Missing] = []
    for result in answer.results:
        if result.error_code:
            missing.append(
                Missing(
                    "topic",
                    messages.error_name(result.error_code),
                    "its settings are hidden: DESCRIBE_CONFIGS on the topic is not granted",
                    topic=result.resource_name,
                )
            )
        else:
            found[result.resource_name] = {c.name: c.value for c in result.configs}
    return found, missing
