"""Create a topic (CreateTopics)."""

from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.errors import RefusedError, UnverifiedError

TIMEOUT_MS = 30_000
NOT_KNOWN = frozenset({"REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR"})
"""Answers after which the topic may have been created all the same."""


def creation(
    name: str,
    partitions: int,
    replication: int,
    settings: Mapping[str, str | None],
    replicas: Sequence[Sequence[int]] = (),
) -> Any:
    """Return a CreateTopics request. replicas: brokers per partition instead of the two numbers."""
    request = messages.CreateTopicsRequest
    topic = request.CreatableTopic
    return request(
        topics=[
            topic(
                name=name,
                num_partitions=-1 if replicas else partitions,
                replication_factor=-1 if replicas else replication,
                assignments=[
                    topic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in enumerate(replicas)
                ],
                configs=[
                    topic.CreatableTopicConfig(name=key, value=value)
                    for key, value in sorted(settings.items())
                ],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )


async def create(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication: int,
    settings: Mapping[str, str | None],
) -> None:
    """Create a topic. A KRaft broker forwards the request; with ZooKeeper only the controller acts.

    Raises RefusedError: the topic is not created. UnverifiedError: the answer was lost or leaves it
    open; the topic may have been created.
    """
    question = creation(name, partitions, replication, settings)
    reason = "no broker answers"
    for broker in sorted(cluster.brokers):
        try:
            await cluster.connection(broker)
        except WireError as error:  # nothing was sent
            reason = error.detail
            continue
        try:
            [answer] = (await cluster.ask(broker, question)).topics
        except WireError as error:
            raise UnverifiedError(f"the answer was lost: {error.detail}", where=name) from None
        error_name = messages.error_name(answer.error_code)
        if error_name == "NONE":
            return
        if error_name in NOT_KNOWN:
            raise UnverifiedError(f"the broker answered {error_name}", where=name)
        reason = f"{answer.error_message or 'it is not created'} ({error_name})"
        if error_name != "NOT_CONTROLLER":
            raise RefusedError(reason, where=name)
    raise RefusedError(f"{reason}; nothing was created", where=name)
