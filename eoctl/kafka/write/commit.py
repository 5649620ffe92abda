"""Commit, delete and forget a group's offsets from outside, as admin tools do.

No member and no generation: the coordinator accepts such a commit only while the group has no
members. Each request is sent once; it is repeated only if the answer says that it reached the wrong
broker, or came too early. `ready` is awaited right before each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.facts import TopicPartition
from recovery.shared.log_position import LogPosition
from recovery.values import Value


class CommittedPosition(Value):
    """A committed offset: the next one to read. metadata: what its writer committed with it.

    leader_epoch: of the record before the offset; None: not known, or not an offset in a log (a
    sink's marker, a delivery's row).
    """

    offset: int
    metadata: str
    leader_epoch: int | None = None

    @property
    def in_log(self) -> LogPosition:
        """Return the position, to be checked against its log."""
        return LogPosition(self.offset, self.leader_epoch)


NOT_THERE = frozenset({"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"})
NOT_YET = NOT_THERE | {"COORDINATOR_NOT_AVAILABLE"}
PATIENCE_SECONDS = 10.0  # a starting coordinator has its groups to load
PAUSE_SECONDS = 0.2
ANSWER_SECONDS = 8.0  # a broker waits 5 s for its replicas (offsets.commit.timeout.ms)
BY_NAME = 9  # version 10 of OffsetCommit names topics by id only

ErrorsByPartition = Mapping[TopicPartition, str]
"""Kafka's error name of each partition; NONE = done."""

Ready = Callable[[bool], Awaitable[None]]
"""Raises if nothing may be sent now to the connected coordinator. Its argument: True if it was sent
before, and so may have been done: NOT_COORDINATOR can also follow an append."""


class NotSentError(Exception):
    """No coordinator could be reached: nothing was changed. args: one sentence."""


async def coordinator(cluster: Cluster, group: str) -> int:
    """Return the broker that coordinates a group, connected. Raises NotSentError."""
    question = messages.FindCoordinatorRequest(key_type=0, key=group, coordinator_keys=[group])
    bound = cluster.deadline.within(PATIENCE_SECONDS)
    while True:
        answer = await cluster.ask_any(question, most=4)
        home = answer.coordinators[0] if answer.coordinators else answer  # version 4; earlier ones
        error = messages.error_name(home.error_code)
        if error == "NONE":
            try:
                await cluster.connection(home.node_id)
            except WireError as failure:
                raise NotSentError(f"its coordinator does not answer: {failure.detail}") from None
            return int(home.node_id)
        if error not in NOT_YET or bound.passed:
            raise NotSentError(f"its coordinator is not known: {error}")
        await asyncio.sleep(PAUSE_SECONDS)


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, CommittedPosition], ready: Ready
) -> ErrorsByPartition:
    """Send OffsetCommit without a member. Raises NotSentError; WireError: outcome unknown."""
    request = messages.OffsetCommitRequest
    topic, partition = (
        request.OffsetCommitRequestTopic,
        request.OffsetCommitRequestTopic.OffsetCommitRequestPartition,
    )
    rows = [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=number,
                    committed_offset=kept.offset,
                    committed_leader_epoch=-1 if kept.leader_epoch is None else kept.leader_epoch,
                    committed_metadata=kept.metadata,
                )
                for number, kept in mine.items()
            ],
        )
        for name, mine in _by_topic(offsets).items()
    ]

    async def ask(broker: int) -> ErrorsByPartition:
        question = request(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=rows,
        )
        answer = await cluster.ask(broker, question, most=BY_NAME, seconds=ANSWER_SECONDS)
        return _errors_of(answer, offsets)

    return await _at_coordinator(cluster, group, ask, ready)


async def delete_offsets(
    cluster: Cluster, group: str, topic_partitions: Iterable[TopicPartition], ready: Ready
) -> ErrorsByPartition:
    """Send OffsetDelete (KIP-496; Kafka 2.4). Raises NotSentError; WireError: outcome unknown."""
    groups_partitions = dict.fromkeys(topic_partitions, None)
    request = messages.OffsetDeleteRequest
    topic = request.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition
    rows = [
        topic(name=name, partitions=[partition(partition_index=number) for number in mine])
        for name, mine in _by_topic(groups_partitions).items()
    ]

    async def ask(broker: int) -> ErrorsByPartition:
        answer = await cluster.ask(
            broker, request(group_id=group, topics=rows), seconds=ANSWER_SECONDS
        )
        if answer.error_code:
            return dict.fromkeys(groups_partitions, messages.error_name(answer.error_code))
        return _errors_of(answer, groups_partitions)

    return await _at_coordinator(cluster, group, ask, ready)


async def delete_group(cluster: Cluster, group: str, ready: Ready) -> str:
    """Send DeleteGroups; return its error. Raises NotSentError; WireError: outcome unknown."""

    async def ask(broker: int) -> ErrorsByPartition:
        question = messages.DeleteGroupsRequest(groups_names=[group])
        answer = await cluster.ask(broker, question, seconds=ANSWER_SECONDS)
        [result] = answer.results
        return {TopicPartition("", 0): messages.error_name(result.error_code)}

    [error] = (await _at_coordinator(cluster, group, ask, ready)).values()
    return error


async def _at_coordinator(
    cluster: Cluster, group: str, ask: Callable[[int], Awaitable[ErrorsByPartition]], ready: Ready
) -> ErrorsByPartition:
    bound = cluster.deadline.within(PATIENCE_SECONDS)
    sent = doubtful = False
    while True:
        try:
            broker = await coordinator(cluster, group)
        except NotSentError as failure:
            if doubtful:
                raise WireError("NOT_COORDINATOR", f"NOT_COORDINATOR, then {failure}") from None
            raise
        await ready(sent)
        errors_by_partition = await ask(broker)
        sent = True
        errors = set(errors_by_partition.values())
        if not errors & NOT_THERE or bound.passed:
            if doubtful and errors != {"NONE"}:
                then = ", ".join(sorted(errors - {"NONE"}))
                raise WireError("NOT_COORDINATOR", f"NOT_COORDINATOR, then {then}")
            return errors_by_partition
        doubtful = doubtful or "NOT_COORDINATOR" in errors
        await asyncio.sleep(PAUSE_SECONDS)


def _by_topic(topic_partitions: Mapping[TopicPartition, Any]) -> dict[str, dict[int, Any]]:
    grouped: dict[str, dict[int, Any]] = {}
    for (topic, partition), value in topic_partitions.items():
        grouped.setdefault(topic, {})[partition] = value
    return grouped


def _errors_of(answer: Any, partitions: Iterable[TopicPartition]) -> ErrorsByPartition:
    errors = {
        (t.name, p.partition_index): messages.error_name(p.error_code)
        for t in answer.topics
        for p in t.partitions
    }
    return {partition: errors.get(partition, "NO_ANSWER") for partition in partitions}
