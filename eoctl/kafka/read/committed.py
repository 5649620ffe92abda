"""Read the offsets that groups committed (OffsetFetch), and whether newer ones are pending.

Every offset is asked twice, without and with `require_stable` (KIP-447): a commit that waits in an
open transaction answers UNSTABLE_OFFSET_COMMIT the second time, and the first answer is the last
stable offset. All groups of one coordinator go into one request.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from eoctl.kafka.ask import collect
from eoctl.kafka.ask.groups import NOT_FOUND, GroupAnswers, at_coordinators, offsets_partitions
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import PROBE_TOPIC, Cluster, refuse_short
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, TopicPartition, known
from recovery.formats.coordinator import coordinator_partition
from recovery.quoting import quoted
from recovery.values import replace

Rows = dict[TopicPartition, tuple[str, Any]]
"""Kafka's error name or NONE, and the answer's row."""

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
SEVERAL_GROUPS = 8  # from this version of OffsetFetch on (KIP-709)
STABLE = 7  # below this version, require_stable is silently not sent


async def with_offsets(
    cluster: Cluster,
    groups: Sequence[GroupFacts],
    partitions: Sequence[TopicPartition] | None = None,
    *,
    decided_only: bool = False,
) -> tuple[list[GroupFacts], list[Missing]]:
    """Return `groups` with their committed offsets, on all partitions or on those named.

    A partition without a commit, decided or pending, is left out. Share groups: their start offset
    (KIP-932). Brokers omit commits for topics that we may not see, without an error: then one
    Missing says so. decided_only: ask once; pending newer commits and hidden topics are not
    reported.
    """
    share = [g.group for g in groups if (g.type or "").lower() == "share"]
    others = [g.group for g in groups if g.group not in set(share)]
    missing: list[Missing] = []
    everywhere: Sequence[TopicPartition] = ()
    uncertain: set[str] = set()
    if partitions is None and others and not decided_only:
        uncertain, everywhere, missing = await _maybe_pending(cluster, others)

    async def ask(broker: int, mine: list[str]) -> GroupAnswers[Sequence[GroupOffsetFacts]]:
        topic_partitions = {
            name: everywhere if partitions is None and name in uncertain else partitions
            for name in mine
        }
        return await (_decided if decided_only else _committed)(cluster, broker, topic_partitions)

    results = await asyncio.gather(
        at_coordinators(cluster, others, ask),
        at_coordinators(cluster, share, partial(_share_offsets, cluster, partitions)),
    )
    by_group = {name: value for answers, _ in results for name, (_, value) in answers.items()}
    for _, more in results:
        missing += more
    for rows in by_group.values():
        missing += [
            Missing("group", o.error, _problem(o.error), None, o.topic, o.partition, o.group)
            for o in rows
            if o.error is not None
        ]
    return [replace(g, offsets=tuple(by_group.get(g.group, ()))) for g in groups], missing


def _problem(error: str) -> str:
    if error == "TOPIC_AUTHORIZATION_FAILED":
        return "DESCRIBE on the topic is not granted"
    return "the coordinator did not return its offset"


async def _maybe_pending(
    cluster: Cluster, names: Sequence[str]
) -> tuple[set[str], list[TopicPartition], list[Missing]]:
    """Return groups that may have a first commit pending, and all partitions it could be for.

    Asked for all topics, a coordinator lists only what was committed before: a pending first commit
    shows only on a named partition. It can exist only while a transaction is open on the group's
    partition of `__consumer_offsets`, while the LSO is below the watermark.
    """
    homes = await offsets_partitions(cluster)
    metadata = await cluster.metadata([PROBE_TOPIC])
    missing = []
    if metadata.topics[PROBE_TOPIC].error == "TOPIC_AUTHORIZATION_FAILED":
        text = "DESCRIBE on all topics is not granted: offsets of hidden topics are not shown"
        missing.append(Missing("topic", "TOPIC_AUTHORIZATION_FAILED", text))
    if not isinstance(homes, Missing):  # hidden: any group may have one
        offsets, more = await collect.partition_offsets(cluster, (), homes)
        missing += [m for m in more if m.error != "LEADER_NOT_AVAILABLE"]
        held = {p.partition for p in offsets if p.held != 0}
        names = [n for n in names if homes and coordinator_partition(n, len(homes)) in held]
    if not names:
        return set(), [], missing
    topics = (await cluster.metadata(None)).topics.values()
    return (
        set(names),
        [p.topic_partition for t in topics for p in t.partitions],
        missing,
    )


async def _committed(
    cluster: Cluster, broker: int, groups: Mapping[str, Sequence[TopicPartition] | None]
) -> GroupAnswers[Sequence[GroupOffsetFacts]]:
    # a commit between the two answers makes the value older, never `pending` wrong
    (value, _), (stable, version) = await asyncio.gather(
        _offset_fetch(cluster, broker, groups, stable=False),
        _offset_fetch(cluster, broker, groups, stable=True),
    )
    by_group: dict[str, tuple[str, Sequence[GroupOffsetFacts]]] = {}
    for name in groups:
        error = next(
            (e for e, _ in (value[name], stable[name]) if e not in ("NONE", NOT_FOUND)), "NONE"
        )
        rows = _merged(name, value[name][1], stable[name][1], told_pending=version >= STABLE)
        by_group[name] = (error, rows)
    return by_group


async def _decided(
    cluster: Cluster, broker: int, groups: Mapping[str, Sequence[TopicPartition] | None]
) -> GroupAnswers[Sequence[GroupOffsetFacts]]:
    values, _ = await _offset_fetch(cluster, broker, groups, stable=False)
    return {
        name: (
            "NONE" if error == NOT_FOUND else error,
            _merged(name, {}, rows, told_pending=False),
        )
        for name, (error, rows) in values.items()
    }


def _merged(group: str, value: Rows, stable: Rows, *, told_pending: bool) -> list[GroupOffsetFacts]:
    rows = []
    for topic_partition, (error, row) in sorted(stable.items(), key=lambda item: item[0]):
        pending = error == UNSTABLE
        if pending:
            error, row = value.get(topic_partition, ("NONE", None))
        is_known = row is not None and row.committed_offset >= 0
        if not is_known and not pending and error == "NONE":
            continue
        epoch = row.committed_leader_epoch if is_known else -1
        rows.append(
            GroupOffsetFacts(
                group=group,
                topic=topic_partition.topic,
                partition=topic_partition.partition,
                committed_offset=row.committed_offset if is_known else None,
                leader_epoch=known(epoch),
                metadata=row.metadata if is_known else None,
                pending=pending if told_pending else None,
                error=None if error == "NONE" else error,
            )
        )
    return rows


async def _offset_fetch(
    cluster: Cluster,
    broker: int,
    groups: Mapping[str, Sequence[TopicPartition] | None],
    *,
    stable: bool,
) -> tuple[dict[str, tuple[str, Rows]], int]:
    """Return group → (error, its rows), and the version that was used."""
    request = messages.OffsetFetchRequest
    connection = await cluster.connection(broker)
    if connection.supports(request, SEVERAL_GROUPS):
        group = request.OffsetFetchRequestGroup
        question = request(
            groups=[
                group(group_id=name, topics=_topics(group.OffsetFetchRequestTopics, named))
                for name, named in groups.items()
            ],
            require_stable=stable,
        )
        answer = await cluster.ask(broker, question, least=SEVERAL_GROUPS, most=9)
        by_group = {
            g.group_id: (messages.error_name(g.error_code), _rows(g)) for g in answer.groups
        }
        refuse_short(_absent(groups, by_group))
        return by_group, 9

    async def one(name: str, named: Sequence[TopicPartition] | None) -> tuple[str, Rows]:
        topics = _topics(request.OffsetFetchRequestTopic, named)
        question = request(group_id=name, topics=topics, require_stable=stable)
        answer = await cluster.ask(broker, question, least=2, most=STABLE)
        return messages.error_name(answer.error_code), _rows(answer)

    answers = await asyncio.gather(*(one(name, named) for name, named in groups.items()))
    refuse_short(_absent(groups, dict(zip(groups, answers, strict=True))))
    version = STABLE if connection.supports(request, STABLE) else 0
    return dict(zip(groups, answers, strict=True)), version


def _absent(
    groups: Mapping[str, Sequence[TopicPartition] | None], by_group: Mapping[str, tuple[str, Rows]]
) -> str | None:
    """Return the first group or partition that an answer omits, although it may have a commit."""
    for name, named in groups.items():
        if name not in by_group:
            return f"group {quoted(name)}"
        error, rows = by_group[name]
        if error == "NONE" and (left_out := [p for p in named or () if p not in rows]):
            return f"group {quoted(name)} on {quoted(left_out[0][0])}-{left_out[0][1]}"
    return None


def _topics(topic: Any, named: Sequence[TopicPartition] | None) -> list[Any] | None:
    """Return the request's topics; None, which means all, if none are named."""
    if named is None:
        return None
    grouped: dict[str, list[int]] = {}
    for name, partition in named:
        grouped.setdefault(name, []).append(partition)
    return [topic(name=name, partition_indexes=rows) for name, rows in grouped.items()]


def _rows(answer: Any) -> Rows:
    return {
        TopicPartition(t.name, p.partition_index): (messages.error_name(p.error_code), p)
        for t in answer.topics
        for p in t.partitions
    }


async def _share_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition] | None,
    broker: int,
    names: list[str],
) -> GroupAnswers[Sequence[GroupOffsetFacts]]:
    """Return the first offset that each share group has not finished with, and Kafka's own lag."""
    request = messages.DescribeShareGroupOffsetsRequest
    question = request(
        groups=[
            request.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
            for name in names
        ]
    )
    answer = await cluster.ask(broker, question)
    return {
        g.group_id: (
            messages.error_name(g.error_code),
            [
                GroupOffsetFacts(
                    group=g.group_id,
                    topic=t.topic_name,
                    partition=p.partition_index,
                    committed_offset=known(p.start_offset),
                    leader_epoch=p.leader_epoch if p.leader_epoch > 0 else None,
                    pending=False,
                    error=messages.error_name(p.error_code) if p.error_code else None,
                    is_share=True,
                    lag=known(p.lag),
                )
                for t in g.topics
                for p in t.partitions
                if (p.start_offset >= 0 or p.error_code)
                and (partitions is None or (t.topic_name, p.partition_index) in partitions)
            ],
        )
        for g in answer.groups
    }
