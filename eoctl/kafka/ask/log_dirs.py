"""Ask brokers for their logs: how many bytes, and of which topics (DescribeLogDirs, KIP-113)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import (
    PROBE_TOPIC,
    Cluster,
    PartitionMetadata,
    by_leader,
    missing_broker,
)
from recovery.facts import Missing, TopicPartition
from recovery.values import Value

HIDDEN = "the sizes of its logs are hidden: DESCRIBE on the cluster is not granted"
DENIED = "TOPIC_AUTHORIZATION_FAILED"
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


class Denied(Value):
    """topics: hidden from listings, since DESCRIBE is denied. all_known: every broker described all
    of its logs, and no listed topic has a replica on a broker that is away."""

    topics: tuple[str, ...]
    all_known: bool


NONE_DENIED = Denied((), all_known=True)


async def denied_topics(cluster: Cluster, likely: Collection[str] = ()) -> Denied:
    """Return the topics that a listing leaves out, although a made-up name may be described.

    A DENY on one topic hides it without an error. Brokers name the topics of all of their logs to
    those who may DESCRIBE the cluster, as far as brokers and disks answer. Of other names they only
    say whether they are denied: likely = names to ask for, which need not exist. Where a made-up
    name is denied, that says nothing.
    """
    shown = (await cluster.metadata(None)).topics
    question = messages.DescribeLogDirsRequest(topics=None)
    answers, failures = await cluster.ask_each(
        {b: partial(cluster.ask, b, question, least=1, most=4) for b in cluster.brokers}
    )
    replicas = {r for topic in shown.values() for p in topic.partitions for r in p.replicas}
    away = replicas - cluster.brokers.keys()
    all_known = not failures and not away and all(map(_is_complete, answers.values()))
    named = {key.topic for answer in answers.values() for key in _sizes(answer)}
    unknown = sorted((named | set(likely)) - shown.keys())
    asked = (await cluster.metadata([*unknown, PROBE_TOPIC])).topics
    denied = {name for name, topic in asked.items() if topic.error == DENIED}
    if PROBE_TOPIC in denied:
        denied &= named
    return Denied(tuple(sorted(denied)), all_known)


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


def _is_complete(answer: Any) -> bool:
    """Return True if every log directory is described: a failed disk is not."""
    return _refusal(answer) is None and not any(one.error_code for one in answer.results)


def _sizes(answer: Any) -> Mapping[TopicPartition, int]:
    """Return the bytes of each log that is in use; a future one is a copy to another folder."""
    return {
        TopicPartition(topic.name, p.partition_index): p.partition_size
        for log_dir in answer.results
        for topic in log_dir.topics
        for p in topic.partitions
        if not p.is_future_key
    }
