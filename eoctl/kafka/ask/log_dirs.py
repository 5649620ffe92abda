"""Ask leaders how many bytes their logs have (DescribeLogDirs, KIP-113)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, by_leader, missing_broker
from recovery.facts import Missing, TopicPartition

HIDDEN = "the sizes of its logs are hidden: DESCRIBE on the cluster is not granted"
REFUSED = "CLUSTER_AUTHORIZATION_FAILED"


async def log_sizes(
    cluster: Cluster, partitions: Sequence[PartitionMetadata]
) -> tuple[dict[TopicPartition, int], list[Missing]]:
    """Return the bytes of each partition's segments at its leader, and what was not seen.

    One request per leader, for these partitions only. Before Kafka 3.2 (version 3 of the request) a
    broker answers an unauthorised client with nothing.
    """
    led, leaderless = by_leader(partitions)
    answers, failures = await cluster.ask_each(
        {
            broker: partial(cluster.ask, broker, _question(mine), least=1, most=4)
            for broker, mine in led.items()
        }
    )
    missing = [missing_broker(b, error, detail="sizes of logs") for b, error in failures.items()]
    missing += [
        Missing("partition", "LEADER_NOT_AVAILABLE", "no broker leads it", None, *p.topic_partition)
        for p in leaderless
    ]
    sizes: dict[TopicPartition, int] = {}
    for broker, answer in answers.items():
        error = _refusal(answer)
        if error is not None:
            missing.append(Missing("broker", error, HIDDEN, broker=broker))
            continue
        here = dict(_sizes(answer))
        wanted = {p.topic_partition for p in led[broker]}
        sizes |= {key: size for key, size in here.items() if key in wanted}
        detail = "its leader describes no log of it"
        missing += [
            Missing("partition", "UNKNOWN_TOPIC_OR_PARTITION", detail, broker, *key)
            for key in sorted(wanted - here.keys())
        ]
    return sizes, missing


def _question(partitions: Iterable[PartitionMetadata]) -> Any:
    request = messages.DescribeLogDirsRequest
    grouped: dict[str, list[int]] = {}
    for p in partitions:
        grouped.setdefault(p.topic, []).append(p.partition)
    return request(
        topics=[
            request.DescribableLogDirTopic(topic=name, partitions=numbers)
            for name, numbers in grouped.items()
        ]
    )


def _refusal(answer: Any) -> str | None:
    code = getattr(answer, "error_code", 0)
    if code:
        return messages.error_name(code)
    return None if answer.results else REFUSED


def _sizes(answer: Any) -> Mapping[TopicPartition, int]:
    """Return the bytes of each log that is in use; a future one is a copy to another folder."""
    return {
        TopicPartition(topic.name, p.partition_index): p.partition_size
        for log_dir in answer.results
        for topic in log_dir.topics
        for p in topic.partitions
        if not p.is_future_key
    }
