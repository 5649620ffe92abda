"""Read the ends of logs as their leaders know them, including records not yet replicated.

ListOffsets as replica -2 (Kafka's ListOffsetsRequest.DEBUGGING_REPLICA_ID) gives the log end
offset. Followers answer this request too, so it carries the leader epoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import (
    Cluster,
    PartitionMetadata,
    TopicMetadata,
    by_leader,
    missing_broker,
)
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.values import replace

DEBUGGING_REPLICA = -2


async def log_end_offsets(
    cluster: Cluster, partitions: Sequence[PartitionMetadata]
) -> tuple[dict[TopicPartition, int], list[Missing]]:
    """Return the leader's log end offset of each partition; then those without an answer."""
    led, leaderless = by_leader(partitions)
    answers, failures = await cluster.ask_each(
        {
            broker: partial(
                cluster.ask,
                broker,
                collect.list_offsets(
                    mine, collect.LATEST, collect.READ_UNCOMMITTED, replica=DEBUGGING_REPLICA
                ),
                least=4,
                most=9,
            )
            for broker, mine in led.items()
        }
    )
    missing = [missing_broker(b, error, detail="log ends") for b, error in failures.items()]
    missing += [
        Missing("partition", "LEADER_NOT_AVAILABLE", "no broker leads it", None, *_partition_of(p))
        for p in leaderless
    ]
    ends, refused = collect.told_offsets(answers, "the leader did not give its log end")
    return ends, [*missing, *refused.values()]


async def read_ends(
    cluster: Cluster, topics: Iterable[TopicMetadata], partitions: Sequence[PartitionMetadata]
) -> tuple[list[PartitionFacts], Mapping[TopicPartition, int], list[Missing]]:
    """Return the offsets of each partition, and then its log end offset.

    In this order: records written before the watermark was read are in the log end.
    """
    facts, missing = await collect.partition_offsets(cluster, topics, partitions)
    # if the leader moved meanwhile, facts know the new one
    led = [
        replace(p, leader=f.leader, leader_epoch=f.leader_epoch)
        for p, f in zip(partitions, facts, strict=True)
        if f.error is None
    ]
    ends, more = await log_end_offsets(cluster, led)
    return facts, ends, missing + more


def _partition_of(p: PartitionMetadata) -> TopicPartition:
    return p.topic_partition
