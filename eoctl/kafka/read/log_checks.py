"""Check that a leader's log continues where the reader left it, and that nothing is missing."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from eoctl.kafka.ask.collect import READ_UNCOMMITTED, list_offsets
from eoctl.kafka.ask.protocols import protocols
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, missing_broker
from eoctl.kafka.connection.failures import WireError
from recovery.doctor.versions import VersionRange, bounds
from recovery.facts import Missing, TopicPartition, known

EARLIEST_LOCAL = -4


LeaderEpochs = Mapping[TopicPartition, tuple[int, int, int]]
"""(leader, its present epoch, the epoch asked for) of each partition."""

EpochAnswer = tuple[int, int]
"""The latest leader epoch that a log has, up to the one asked for, and the offset of its end."""


async def record_epoch_ends(
    cluster: Cluster, epochs: LeaderEpochs
) -> dict[TopicPartition, int | None]:
    """Return where records of these epochs end; None if the leader has no such record."""
    told, _ = await told_epochs(cluster, epochs)
    return {
        partition: None if latest is None or 0 <= latest[0] < epochs[partition][2] else latest[1]
        for partition, latest in told.items()
    }


async def told_epochs(
    cluster: Cluster, epochs: LeaderEpochs
) -> tuple[dict[TopicPartition, EpochAnswer | None], list[Missing]]:
    """Return what leaders say about epochs: (the latest known one up to that one; its end).

    None if they know none; and which leaders did not answer. A log that has records of an epoch
    knows it: if the answer is an earlier one, the records that were read elsewhere are not in that
    log, or were compacted away before this replica was made.
    """
    request = messages.OffsetForLeaderEpochRequest
    topic = request.OffsetForLeaderTopic
    grouped: dict[int, dict[str, list[Any]]] = {}
    for (name, number), (leader, current, epoch) in epochs.items():
        row = topic.OffsetForLeaderPartition(
            partition=number, current_leader_epoch=current, leader_epoch=epoch
        )
        grouped.setdefault(leader, {}).setdefault(name, []).append(row)
    questions = {
        leader: request(
            replica_id=-1, topics=[topic(topic=name, partitions=p) for name, p in topics.items()]
        )
        for leader, topics in grouped.items()
    }
    answers, failures = await cluster.ask_each(
        {leader: partial(cluster.ask, leader, q, most=3) for leader, q in questions.items()}
    )
    missing = [missing_broker(b, error, detail="leader epochs") for b, error in failures.items()]
    told: dict[TopicPartition, EpochAnswer | None] = {}
    for broker, answer in answers.items():
        for t in answer.topics:
            for p in t.partitions:
                topic_partition = TopicPartition(t.topic, p.partition)
                if p.error_code:
                    name = messages.error_name(p.error_code)
                    text = "the leader did not return where the leader epoch ends"
                    missing.append(Missing("partition", name, text, broker, *topic_partition))
                else:
                    end = known(p.end_offset)
                    told[topic_partition] = None if end is None else (p.leader_epoch, end)
    return told, missing


async def is_local(cluster: Cluster, broker: int, partition: TopicPartition, offset: int) -> bool:
    """Return True if the log from `offset` on is on the broker's own disk."""
    start = await _local_start(cluster, broker, partition)
    return start is not None and start <= offset


async def is_remote(cluster: Cluster, broker: int, partition: TopicPartition, offset: int) -> bool:
    """Return True if the broker has `offset` in remote storage and not on its own disk."""
    start = await _local_start(cluster, broker, partition)
    return start is not None and start > offset


async def _local_start(cluster: Cluster, broker: int, partition: TopicPartition) -> int | None:
    """Return the start of the log on the broker's own disk (ListOffsets -4, KIP-405), if known."""
    named = PartitionMetadata(*partition, broker, None, (), None)
    question = list_offsets([named], EARLIEST_LOCAL, READ_UNCOMMITTED)
    try:
        answer = await cluster.ask(broker, question, least=8, most=9)
    except WireError as error:
        old = error.error == "UNSUPPORTED_VERSION" and await _before_tiers(cluster, broker)
        return 0 if old else None
    rows = [
        p for t in answer.topics for p in t.partitions if (t.name, p.partition_index) == partition
    ]
    return None if not rows or rows[0].error_code else int(rows[0].offset)


async def _before_tiers(cluster: Cluster, broker: int) -> bool:
    """Return True if the broker answers like a Kafka before remote storage (3.6): a service that
    only leaves that version out may keep records elsewhere."""
    answered = await protocols(cluster)
    releases = bounds(answered[broker]) if broker in answered else None
    return releases is not None and releases.within(VersionRange(below=(3, 6, 0)))
