"""Changes that breaks make in a cluster apart from its records: topics, settings, replicas."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write.topics import creation
from eoctl.lab.client import Client, refuse
from recovery.errors import UnverifiedError, UsageError

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

BROKER, TOPIC = 4, 2  # ConfigResource.Type
SET, DELETE = 0, 1  # AlterConfigOp.OpType


def add_topic(lab: "Lab", name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create an empty topic with a replica on every broker. Raises UsageError, UnverifiedError."""

    async def create() -> None:
        async with Client.of(lab.client_properties()) as client:
            await create_topic(client, name, partitions, len(client.cluster.brokers), configs)

    try:
        asyncio.run(create())
    except WireError as error:
        if error.error in ("TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "INVALID_CONFIG"):
            raise UsageError(f"not created: {error.detail}", where=name) from error
        raise UnverifiedError(f"not created: {error.detail}", where=name) from error


async def create_topic(
    client: Client,
    name: str,
    partitions: int = 1,
    replication: int = 1,
    configs: Mapping[str, str] | None = None,
    replicas: Sequence[Sequence[int]] = (),
) -> None:
    """Create a topic and wait until every partition is led.

    replicas: brokers per partition instead of `partitions` and `replication`.
    """
    question = creation(name, partitions, replication, configs or {}, replicas)
    answer = await client.cluster.ask(client.any_broker, question)
    refuse(answer.topics[0].error_code, f"CreateTopics of {name}")
    for partition in range(len(replicas) or partitions):
        # Metadata may name a leader that does not know it yet: ask the leader directly
        await client.until(partial(client.offsets, name, partition))


async def delete_topic(client: Client, name: str) -> None:
    """Delete a topic and wait until no broker knows it, so that its name can be used again."""
    before = {p.topic_id for p in (await client.partitions(name)).values()}
    question = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    answer = await client.cluster.ask(client.any_broker, question, most=5)
    refuse(answer.responses[0].error_code, f"DeleteTopics of {name}")

    async def gone() -> None:
        if name in await client.topics():
            there = {p.topic_id for p in (await client.partitions(name)).values()}
            if there & before:
                raise WireError("NOT_YET", f"{name} is still there")

    await client.until(gone, also=frozenset({"NOT_YET"}))


async def add_partitions(client: Client, name: str, count: int) -> None:
    """Extend a topic to `count` partitions and wait until each has a leader."""
    topic = messages.CreatePartitionsRequest.CreatePartitionsTopic
    question = messages.CreatePartitionsRequest(
        topics=[topic(name=name, count=count, assignments=None)],
        timeout_ms=30_000,
        validate_only=False,
    )
    answer = await client.cluster.ask(client.any_broker, question)
    refuse(answer.results[0].error_code, f"CreatePartitions of {name}")
    for partition in range(count):
        await client.until(partial(client.offsets, name, partition))


async def broker_settings(
    client: Client, broker: int, names: Sequence[str]
) -> dict[str, str | None]:
    """Return a broker's effective settings (DescribeConfigs)."""
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker), configuration_keys=list(names)
    )
    answer = await client.cluster.ask(broker, request(resources=[resource]))
    refuse(answer.results[0].error_code, f"DescribeConfigs of broker {broker}")
    return {c.name: c.value for c in answer.results[0].configs}


async def set_replicas(client: Client, topic: str, partition: int, brokers: Sequence[int]) -> None:
    """Move a partition to these brokers and wait until its ISR contains no other broker."""
    request = messages.AlterPartitionReassignmentsRequest
    part = request.ReassignableTopic.ReassignablePartition(
        partition_index=partition, replicas=list(brokers)
    )
    question = request(
        timeout_ms=30_000,
        topics=[request.ReassignableTopic(name=topic, partitions=[part])],
    )
    answer = await client.cluster.ask(client.any_broker, question, most=0)
    refuse(answer.error_code, f"AlterPartitionReassignments of {topic}:{partition}")
    refuse(answer.responses[0].partitions[0].error_code, f"moving {topic}:{partition}")

    async def moved() -> None:
        state = (await client.partitions(topic))[partition]
        if set(state.replicas) != set(brokers) or state.leader not in brokers:
            raise WireError("LEADER_NOT_AVAILABLE", f"{topic}:{partition} is still moving")

    await client.until(moved)


async def set_config(
    client: Client, resource_type: int, name: str, settings: Mapping[str, str | None]
) -> None:
    """Set dynamic settings of a BROKER or TOPIC; None removes one.

    Brokers apply them a moment later.
    """
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    question = messages.IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(
                        name=key,
                        config_operation=DELETE if value is None else SET,
                        value=value,
                    )
                    for key, value in settings.items()
                ],
            )
        ],
        validate_only=False,
    )
    broker = int(name) if resource_type == BROKER else client.any_broker
    answer = await client.cluster.ask(broker, question)
    refuse(answer.responses[0].error_code, f"IncrementalAlterConfigs of {name}")


async def quorum_leader(client: Client) -> int:
    """Return the active controller (DescribeQuorum; Metadata may name any broker)."""
    request = messages.DescribeQuorumRequest
    partition = request.TopicData.PartitionData(partition_index=0)
    question = request(
        topics=[request.TopicData(topic_name="__cluster_metadata", partitions=[partition])]
    )
    answer = await client.cluster.ask(client.any_broker, question)
    refuse(answer.error_code, "DescribeQuorum")
    return int(answer.topics[0].partitions[0].leader_id)
