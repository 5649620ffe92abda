"""Collect facts from the brokers, without judging them and without text for people.

Requests go to all leaders at once and in batches: one ListOffsets per leader and question, one
DescribeProducers per leader for all its partitions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import (
    Cluster,
    PartitionMetadata,
    TopicMetadata,
    by_leader,
    missing_broker,
    topic_id_text,
)
from eoctl.kafka.connection.failures import WireError
from recovery.facts import Missing, PartitionFacts, ProducerFacts, TopicPartition, known
from recovery.plurals import counted
from recovery.values import Value

LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MOVED = frozenset({"NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"})
WITHHELD = "OFFSET_NOT_AVAILABLE"
"""A new leader gives no offsets before its followers in sync have fetched from it."""
PASSING = MOVED | {WITHHELD}
PASSING_PAUSE_SECONDS = 0.2


async def partition_offsets(
    cluster: Cluster, topics: Iterable[TopicMetadata], partitions: Sequence[PartitionMetadata]
) -> tuple[list[PartitionFacts], list[Missing]]:
    """Return log start, LSO and high watermark of `partitions`, in their order.

    Three ListOffsets per leader, whatever the number of partitions; see `offsets_of`.
    """
    ids = {t.name: t.topic_id for t in topics}
    offsets, missing = await offsets_of(cluster, ids, partitions)
    facts = [offsets[p.topic_partition] for p in partitions]
    return facts, [*missing, *not_given(facts, missing)]


def not_given(facts: Iterable[PartitionFacts], missing: Sequence[Missing]) -> list[Missing]:
    """Return why partitions have no offsets, except those of brokers named in `missing`."""
    return [
        Missing("partition", f.error, _partition_problem(f), f.leader, f.topic, f.partition)
        for f in facts
        if f.error is not None and f.error not in {m.error for m in missing if m.broker == f.leader}
    ]


async def led_now(
    cluster: Cluster, ids: dict[str, str | None], moved: Sequence[PartitionMetadata]
) -> list[PartitionMetadata]:
    """Return partitions as Metadata describes them now; `ids` gets the ids of their topics."""
    renewed = await cluster.metadata(sorted({p.topic for p in moved}))
    ids |= {t.name: t.topic_id for t in renewed.topics.values()}
    asked = {p.topic_partition for p in moved}
    return [q for t in renewed.topics.values() for q in t.partitions if q.topic_partition in asked]


async def ids_of_leaders(
    cluster: Cluster, scope: Sequence[PartitionMetadata]
) -> dict[str, set[str | None]]:
    """Return the topic ids by which the leaders of these partitions know their topics.

    None among them: a leader that did not answer, or that knows no such topic or no ids. The broker
    that described the topics may lag: for a recreated topic it still returns the former id.
    """
    led, leaderless = by_leader(scope)
    request = messages.MetadataRequest

    async def ask(broker: int) -> Any:
        names = sorted({p.topic for p in led[broker]})
        question = request(
            topics=[request.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )
        return await cluster.ask(broker, question, most=12)

    answers, _ = await cluster.ask_each({b: partial(ask, b) for b in led})
    ids_by_topic: dict[str, set[str | None]] = {p.topic: {None} for p in leaderless}
    for broker, partitions in led.items():
        topics = answers[broker].topics if broker in answers else ()
        ids = {t.name: None if t.error_code else topic_id_text(t.topic_id) for t in topics}
        for p in partitions:
            ids_by_topic.setdefault(p.topic, set()).add(ids.get(p.topic))
    return ids_by_topic


def _partition_problem(facts: PartitionFacts) -> str:
    if facts.error == "LEADER_NOT_AVAILABLE":
        return "no broker leads this partition"
    if facts.error == "TOPIC_AUTHORIZATION_FAILED":
        return "DESCRIBE on the topic is not granted"
    if facts.error == WITHHELD:
        return "its new leader gives no offsets before its followers in sync have fetched from it"
    return "the leader did not give its offsets"


def offset_questions(partitions: Sequence[PartitionMetadata]) -> tuple[Any, Any, Any]:
    """Return the requests for high watermark, LSO and log start, in the order to send them.

    A broker answers in order. High watermark before LSO: see PartitionFacts.
    """
    high = list_offsets(partitions, LATEST, READ_UNCOMMITTED)
    stable = type(high)(
        replica_id=high.replica_id, isolation_level=READ_COMMITTED, topics=high.topics
    )
    return high, stable, list_offsets(partitions, EARLIEST, READ_UNCOMMITTED)


AskLeader = Callable[[int, Sequence[PartitionMetadata]], Awaitable[Sequence[Any]]]
"""Asks a broker for the partitions that it leads: its answers to `offset_questions`."""


async def offsets_of(
    cluster: Cluster,
    ids: dict[str, str | None],
    partitions: Sequence[PartitionMetadata],
    ask_leader: AskLeader | None = None,
) -> tuple[dict[TopicPartition, PartitionFacts], list[Missing]]:
    """Ask each leader for offsets; for some seconds again while it moves, or is new and gives none.

    ask_leader: asks for something else on the way. A partition without offsets has an error in its
    facts; only silent brokers are in `missing`.
    """
    facts, missing = await _asked_once(cluster, ids, partitions, ask_leader)
    while passing := [
        p
        for p in partitions
        if cluster.awaits(p.topic_partition, facts[p.topic_partition].error in PASSING)
    ]:
        await asyncio.sleep(PASSING_PAUSE_SECONDS)
        led = await led_now(cluster, ids, passing)
        renewed, silent = await _asked_once(cluster, ids, led, ask_leader)
        facts |= renewed
        missing += [m for m in silent if m not in missing]
    return facts, missing


async def _asked_once(
    cluster: Cluster,
    ids: dict[str, str | None],
    partitions: Sequence[PartitionMetadata],
    ask_leader: AskLeader | None,
) -> tuple[dict[TopicPartition, PartitionFacts], list[Missing]]:
    led, leaderless = by_leader(partitions)

    async def ask(broker: int) -> Sequence[Any]:
        if ask_leader is not None:
            return await ask_leader(broker, led[broker])
        questions = offset_questions(led[broker])
        return await asyncio.gather(*(cluster.ask(broker, q, most=5) for q in questions))

    answers, failures = await cluster.ask_each({b: partial(ask, b) for b in led})
    facts: dict[TopicPartition, PartitionFacts] = {}
    missing: list[Missing] = []

    def unseen(p: PartitionMetadata, error: str) -> None:
        facts[p.topic_partition] = PartitionFacts(
            p.topic,
            p.partition,
            ids.get(p.topic),
            p.leader,
            p.leader_epoch,
            p.replicas,
            error=error,
        )

    for p in leaderless:
        unseen(p, p.error or "LEADER_NOT_AVAILABLE")
    for broker, error in failures.items():
        count = len(led[broker])
        missing.append(
            missing_broker(broker, error, detail=f"leads {count} of the partitions asked for")
        )
        for p in led[broker]:
            unseen(p, error.error)
    for broker, told in answers.items():
        tables = [offset_rows(answer) for answer in told]
        for p in led[broker]:
            key = p.topic_partition
            rows: list[Any] = [table.get(key) for table in tables]
            if (refusal := _refusal(rows)) is not None:
                unseen(p, refusal)
                continue
            high, stable, start = rows
            epoch = stable.leader_epoch
            facts[key] = PartitionFacts(
                p.topic,
                p.partition,
                ids.get(p.topic),
                p.leader,
                epoch if epoch >= 0 else p.leader_epoch,
                p.replicas,
                log_start_offset=start.offset,
                last_stable_offset=stable.offset,
                high_watermark=max(high.offset, stable.offset),
            )
    return facts, missing


class _AskedPartition(Value, gc=False):
    """A partition in a ListOffsets request. kafka-python's own class has the same fields, but takes
    twenty times as long to create, and `lso --all` asks twice for ten thousand."""

    partition_index: int
    current_leader_epoch: int
    timestamp: int
    max_num_offsets: int = 1


def list_offsets(
    partitions: Iterable[PartitionMetadata], timestamp: int, level: int, *, replica: int = -1
) -> Any:
    """Build ListOffsets for `partitions` (KIP-79, KIP-98): timestamp -1 latest, -2 earliest.

    replica: -1 asks as a client; any other number gets what replicas see, at this leader epoch.
    """
    request = messages.ListOffsetsRequest
    grouped: dict[str, list[_AskedPartition]] = {}
    for p in partitions:
        epoch = -1 if replica == -1 or p.leader_epoch is None else p.leader_epoch
        grouped.setdefault(p.topic, []).append(_AskedPartition(p.partition, epoch, timestamp))
    return request(
        replica_id=replica,
        isolation_level=level,
        topics=[
            request.ListOffsetsTopic(name=name, partitions=rows) for name, rows in grouped.items()
        ],
    )


def _refusal(rows: Iterable[Any]) -> str | None:
    """Return the first error of a partition's rows, None if there is none and no row is absent."""
    absent = None
    for row in rows:
        if row is None:
            absent = "UNKNOWN_TOPIC_OR_PARTITION"
        elif row.error_code:
            return messages.error_name(row.error_code)
    return absent


def offset_rows(answer: Any) -> dict[TopicPartition, Any]:
    """Return the rows of a ListOffsets answer by partition."""
    return {
        TopicPartition(t.name, p.partition_index): p for t in answer.topics for p in t.partitions
    }


async def producers(
    cluster: Cluster, scope: Sequence[PartitionMetadata]
) -> tuple[dict[TopicPartition, tuple[ProducerFacts, ...]], list[Missing]]:
    """Return each partition's active producers (DescribeProducers, KIP-664; Kafka 2.8 and above).

    One request per leader. A partition that is not in the result is named in the second part. A
    replica that is no longer leader may answer NONE with stale state: callers also send
    ListOffsets, which does refuse.
    """
    led, leaderless = by_leader(scope)
    answers, failures = await cluster.ask_each(
        {b: partial(cluster.ask, b, producers_question(mine)) for b, mine in led.items()}
    )
    states: dict[TopicPartition, tuple[ProducerFacts, ...]] = {}
    missing = [
        Missing(
            "partition",
            p.error or "LEADER_NOT_AVAILABLE",
            "no broker leads this partition",
            None,
            p.topic,
            p.partition,
        )
        for p in leaderless
    ]
    for broker, error in failures.items():
        missing.append(producers_not_seen(broker, error, len(led[broker])))
    for broker, answer in answers.items():
        here, more = producers_of(broker, answer)
        states |= here
        missing += more
    return states, missing


def producers_question(partitions: Iterable[PartitionMetadata]) -> Any:
    """Return a DescribeProducers request for `partitions`."""
    request = messages.DescribeProducersRequest
    grouped: dict[str, list[int]] = {}
    for p in partitions:
        grouped.setdefault(p.topic, []).append(p.partition)
    return request(
        topics=[
            request.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in grouped.items()
        ]
    )


def producers_of(
    broker: int, answer: Any
) -> tuple[dict[TopicPartition, tuple[ProducerFacts, ...]], list[Missing]]:
    """Return the producers in a DescribeProducers answer, and which partitions were refused."""
    states: dict[TopicPartition, tuple[ProducerFacts, ...]] = {}
    missing: list[Missing] = []
    for t in answer.topics:
        for p in t.partitions:
            if p.error_code:
                name = messages.error_name(p.error_code)
                detail = (
                    "producers are hidden: READ on the topic is not granted"
                    if name == "TOPIC_AUTHORIZATION_FAILED"
                    else p.error_message or "the leader did not describe its producers"
                )
                missing.append(
                    Missing("partition", name, detail, broker, t.name, p.partition_index)
                )
                continue
            states[TopicPartition(t.name, p.partition_index)] = tuple(
                producer_facts(t.name, p.partition_index, row) for row in p.active_producers
            )
    return states, missing


def producers_not_seen(broker: int, error: WireError, count: int) -> Missing:
    """Return a broker that did not describe the producers of its partitions, as a fact."""
    if error.error == "UNSUPPORTED_VERSION":
        detail = f"{error.detail}: Kafka 2.8 and above do, some services do not"
        return Missing("feature", error.error, detail, broker=broker)
    return missing_broker(
        broker, error, detail=f"producers of {counted(count, 'partition')} not seen"
    )


def producer_facts(topic: str, partition: int, row: Any) -> ProducerFacts:
    """Return a producer's facts. row: of DescribeProducers' answer."""
    return ProducerFacts(
        topic=topic,
        partition=partition,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        last_sequence=known(row.last_sequence),
        last_timestamp=known(row.last_timestamp),
        coordinator_epoch=known(row.coordinator_epoch),
        current_txn_start_offset=known(row.current_txn_start_offset),
    )


async def offsets_at(
    cluster: Cluster, partitions: Sequence[PartitionMetadata], instants: Iterable[int]
) -> tuple[dict[TopicPartition, dict[int, int]], list[Missing]]:
    """Return for each partition: instant → offset of the first record not older (ListOffsets).

    An instant after all records is left out; a partition without an answer is not in the result.
    """
    by_instant: dict[TopicPartition, dict[int, int]] = {p.topic_partition: {} for p in partitions}
    missing: list[Missing] = []
    led, leaderless = by_leader(partitions)
    for p in leaderless:
        by_instant.pop(p.topic_partition)
    for instant in set(instants):
        answers, failures = await cluster.ask_each(
            {
                broker: partial(
                    cluster.ask, broker, list_offsets(mine, instant, READ_UNCOMMITTED), most=9
                )
                for broker, mine in led.items()
            }
        )
        missing += [missing_broker(b, error) for b, error in failures.items()]
        for p in (p for b in failures for p in led[b]):
            by_instant.pop(p.topic_partition, None)
        rows, refused = told_offsets(answers, "the leader did not find the offset of an instant")
        missing += refused.values()
        for topic_partition in refused:
            by_instant.pop(topic_partition, None)
        for topic_partition, offset in rows.items():
            if offset >= 0 and topic_partition in by_instant:
                by_instant[topic_partition][instant] = offset
    return by_instant, missing


def told_offsets(
    answers: Mapping[int, Any], refusal: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Missing]]:
    """Return the offsets in ListOffsets answers by broker; in the second part, refusals."""
    offsets: dict[TopicPartition, int] = {}
    refused: dict[TopicPartition, Missing] = {}
    for broker, answer in answers.items():
        for t in answer.topics:
            for row in t.partitions:
                partition = TopicPartition(t.name, row.partition_index)
                if row.error_code:
                    name = messages.error_name(row.error_code)
                    refused[partition] = Missing("partition", name, refusal, broker, *partition)
                else:
                    offsets[partition] = row.offset
    return offsets, refused
