"""Ask for groups: which ones exist, their members, and their coordinators.

A group's coordinator leads the partition of `__consumer_offsets` that its name hashes to, so one
Metadata answer finds all coordinators. ListGroups omits, without an error, groups that we may not
DESCRIBE and groups that a coordinator has not loaded yet: a made-up group per partition, described
before and after each listing, proves that all could be seen. Their commits:
`eoctl.kafka.read.committed`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from eoctl.kafka.ask.coordinators import hidden_topic, partitions_of, probe_ids
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import (
    Cluster,
    PartitionMetadata,
    TopicMetadata,
    by_leader,
    missing_broker,
)
from recovery.facts import ConnectWorker, GroupFacts, Missing, StreamsProcess, TopicPartition
from recovery.formats.connect_protocol import decode_tasks, decode_url
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import CorruptError
from recovery.inspect.connect_ids import PROTOCOL
from recovery.plurals import counted
from recovery.values import replace

Value = TypeVar("Value")
GroupAnswers = Mapping[str, tuple[str, Value]]
"""What a broker answered about groups: name to (Kafka's error name or NONE, answer)."""

CONSUMER_OFFSETS = "__consumer_offsets"
NOT_FOUND = "GROUP_ID_NOT_FOUND"
TRIES = 6
PAUSE_SECONDS = 0.1  # grows with each try: two seconds in total
NOT_NOW = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "LEADER_NOT_AVAILABLE",
    }
)
_DETAILS = {
    "GROUP_AUTHORIZATION_FAILED": "DESCRIBE on the group is not granted",
    "TOPIC_AUTHORIZATION_FAILED": "DESCRIBE on a topic that its members read is not granted",
    "LEADER_NOT_AVAILABLE": "no broker leads its partition of __consumer_offsets",
    "NOT_COORDINATOR": "its coordinator is moving",
    "COORDINATOR_LOAD_IN_PROGRESS": "its coordinator is loading",
}


def group_partition(topic: TopicMetadata, group: str) -> TopicPartition | Missing | None:
    """Return the partition of `__consumer_offsets`, described as `topic`, that keeps a group.

    None: no group was ever known here. Missing: the topic may not be seen.
    """
    if topic.error == "UNKNOWN_TOPIC_OR_PARTITION":
        return None
    if topic.error is not None or not topic.partitions:
        return Missing(
            "topic",
            topic.error or "LEADER_NOT_AVAILABLE",
            "the group's own partition cannot be found without DESCRIBE on this topic",
            topic=CONSUMER_OFFSETS,
        )
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, len(topic.partitions)))


async def offsets_partitions(cluster: Cluster) -> tuple[PartitionMetadata, ...] | Missing:
    """Return the partitions of `__consumer_offsets`: none if no broker lists a group either."""
    topic = (await cluster.metadata([CONSUMER_OFFSETS])).topics[CONSUMER_OFFSETS]
    unseen = "without DESCRIBE on this topic nobody can tell whether all groups were seen"
    partitions = partitions_of(topic, unseen)
    # a broker that fails here is named by `list_groups`: Missing would send FindCoordinator, which
    # creates the topic where it does not exist
    if partitions == () and (await _listed_by_all(cluster))[0]:
        return hidden_topic(CONSUMER_OFFSETS, "brokers list groups")
    return partitions


async def at_coordinators(
    cluster: Cluster,
    names: Iterable[str],
    ask: Callable[[int, list[str]], Awaitable[GroupAnswers[Value]]],
) -> tuple[dict[str, tuple[int, Value]], list[Missing]]:
    """Ask each coordinator about its groups, all brokers at once: return (broker, answer) of each.

    A coordinator that moves or loads is located again, for about two seconds. What a broker refuses
    is in the second part.
    """
    values: dict[str, tuple[int, Value]] = {}
    missing: list[Missing] = []
    left = sorted(set(names))
    for attempt in range(TRIES):
        await asyncio.sleep(PAUSE_SECONDS * attempt)
        homes, refused = await _homes(cluster, left)
        grouped: dict[int, list[str]] = {}
        for name, broker in homes.items():
            grouped.setdefault(broker, []).append(name)
        answers, failures = await cluster.ask_each(
            {broker: partial(ask, broker, mine) for broker, mine in grouped.items()}
        )
        for broker, failure in failures.items():
            text = f"coordinator of {len(grouped[broker])} of the groups asked for"
            missing.append(missing_broker(broker, failure, "coordinator", text))
        for broker, answer in answers.items():
            for name in grouped[broker]:
                reply = answer.get(name)
                if reply is not None and reply[0] == "NONE":
                    values[name] = (broker, reply[1])
                else:
                    refused[name] = "NO_ANSWER" if reply is None else reply[0]
        left = [name for name, error in refused.items() if error in NOT_NOW]
        missing += [
            _refused(name, error) for name, error in refused.items() if error not in NOT_NOW
        ]
        if not left or cluster.deadline.passed:
            break
    return values, missing + [_refused(name, refused[name]) for name in left]


def _refused(name: str, error: str) -> Missing:
    return Missing("group", error, _DETAILS.get(error, "the coordinator did not tell"), id=name)


async def _homes(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Return each group's coordinator, and Kafka's error for groups without one.

    No group has one in a cluster without `__consumer_offsets`.
    """
    homes: dict[str, int] = {}
    refused: dict[str, str] = {}
    partitions = await offsets_partitions(cluster) if names else ()
    if isinstance(partitions, Missing):
        return await _homes_by_asking(cluster, names)
    for name in names if partitions else ():
        home = partitions[coordinator_partition(name, len(partitions))]
        if home.leader is None:
            refused[name] = "LEADER_NOT_AVAILABLE"
        else:
            homes[name] = home.leader
    return homes, refused


async def _homes_by_asking(
    cluster: Cluster, names: Sequence[str]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return homes of groups if `__consumer_offsets` is hidden: one FindCoordinator each."""
    homes: dict[str, int] = {}
    refused: dict[str, str] = {}
    for name in names:
        question = messages.FindCoordinatorRequest(key_type=0, key=name, coordinator_keys=[name])
        answer = await cluster.ask_any(question, most=4)
        coordinator = (
            answer.coordinators[0] if answer.coordinators else answer
        )  # version 4; earlier ones
        if coordinator.error_code:
            refused[name] = messages.error_name(coordinator.error_code)
        else:
            homes[name] = coordinator.node_id
    return homes, refused


async def list_groups(cluster: Cluster) -> tuple[list[GroupFacts], list[Missing]]:
    """List all groups by name, with type and state if brokers report them (KIP-518, KIP-848).

    A group counts only from the broker that coordinates it. See `describe_groups` for members.
    """
    partitions = await offsets_partitions(cluster)
    if isinstance(partitions, Missing) or not partitions:
        rows, missing = await _listed_by_all(cluster)
        return rows, [partitions, *missing] if isinstance(partitions, Missing) else missing
    count = len(partitions)
    led, leaderless = by_leader(partitions)

    async def ask(broker: int) -> tuple[dict[int, str], list[GroupFacts], dict[int, str]]:
        numbers = [p.partition for p in led[broker]]
        # pipelined on one connection: the broker answers in this order
        before, listed, after = await asyncio.gather(
            _probe(cluster, broker, numbers, count),
            _list(cluster, broker),
            _probe(cluster, broker, numbers, count),
        )
        return before, listed, after

    answers, failures = await cluster.ask_each({b: partial(ask, b) for b in led})
    unproven: dict[tuple[int | None, str], int] = {}
    if leaderless:
        unproven[None, "LEADER_NOT_AVAILABLE"] = len(leaderless)
    missing = [
        missing_broker(
            b, error, "coordinator", f"{len(led[b])} of {counted(count, 'coordinator')} not seen"
        )
        for b, error in failures.items()
    ]
    rows = []
    for broker, (before, listed, after) in answers.items():
        for number in before:
            for error in {before[number], after[number]} - {"NONE", NOT_FOUND}:
                unproven[broker, error] = unproven.get((broker, error), 0) + 1
        rows += [
            g for g in listed if partitions[coordinator_partition(g.group, count)].leader == broker
        ]
    missing += [_unproven(*key, number, count) for key, number in unproven.items()]
    return sorted(rows, key=lambda g: g.group), missing


async def _listed_by_all(cluster: Cluster) -> tuple[list[GroupFacts], list[Missing]]:
    """Return what every broker lists, where nobody can tell which of them coordinates a group."""
    answers, failures = await cluster.ask_each(
        {b: partial(_list_answer, cluster, b) for b in cluster.brokers}
    )
    rows = [g for broker, answer in answers.items() for g in _rows(broker, answer)]
    missing = [missing_broker(b, error, "coordinator") for b, error in failures.items()]
    missing += [
        Missing(
            "coordinator", messages.error_name(answer.error_code), "it listed no groups", broker
        )
        for broker, answer in answers.items()
        if answer.error_code
    ]
    return sorted(rows, key=lambda g: g.group), missing


def _unproven(broker: int | None, error: str, number: int, count: int) -> Missing:
    details = {
        "GROUP_AUTHORIZATION_FAILED": "DESCRIBE on all groups is not granted: some may be hidden",
        "LEADER_NOT_AVAILABLE": "no broker leads them",
    }
    detail = details.get(error, "a coordinator is moving or loading")
    text = f"{detail}; {number} of {counted(count, 'coordinator')} not proven"
    return Missing("coordinator", error, text, broker=broker)


async def _probe(
    cluster: Cluster, broker: int, numbers: Sequence[int], count: int
) -> dict[int, str]:
    """Return partition of `__consumer_offsets` → error its leader gives for a made-up group."""
    ids = probe_ids(count)
    question = messages.DescribeGroupsRequest(groups=[ids[n] for n in numbers])
    answer = await cluster.ask(broker, question)
    return {
        coordinator_partition(g.group_id, count): messages.error_name(g.error_code)
        for g in answer.groups
    }


async def _list(cluster: Cluster, broker: int) -> list[GroupFacts]:
    # an error here (a coordinator is loading) shows in the probes, partition by partition
    return _rows(broker, await _list_answer(cluster, broker))


async def _list_answer(cluster: Cluster, broker: int) -> Any:
    question = messages.ListGroupsRequest(states_filter=[], types_filter=[])
    return await cluster.ask(broker, question)


def _rows(broker: int, answer: Any) -> list[GroupFacts]:
    return [
        GroupFacts(g.group_id, g.group_state or None, g.group_type or None, broker)
        for g in answer.groups
    ]


async def find_groups(
    cluster: Cluster, names: Sequence[str]
) -> tuple[list[GroupFacts], list[Missing]]:
    """Return the named groups with their members, in the given order.

    A group that does not exist has the state Dead, as in Kafka. One whose coordinator could not be
    asked is in the second part instead.
    """

    listed, missing = await _listed(cluster, names)
    described, more = await describe_groups(cluster, listed)
    by_name = {g.group: g for g in described if g.members is not None or g.type is not None}
    silent = {m.id for m in (*missing, *more)}
    coordinators_gone = any(m.scope == "coordinator" for m in (*missing, *more))
    if not coordinators_gone:
        for name in names:
            if name not in by_name and name not in silent:
                by_name[name] = GroupFacts(name, "Dead", members=())
    return [by_name[name] for name in dict.fromkeys(names) if name in by_name], [*missing, *more]


async def _listed(cluster: Cluster, names: Sequence[str]) -> tuple[list[GroupFacts], list[Missing]]:
    """Return the named groups as their coordinators list them; without a state if one does not."""

    async def ask(broker: int, mine: list[str]) -> GroupAnswers[GroupFacts]:
        listed = {g.group: g for g in await _list(cluster, broker)}
        return {n: ("NONE", listed.get(n) or GroupFacts(n, None, None, broker)) for n in mine}

    answers, missing = await at_coordinators(cluster, names, ask)
    return [facts for _, facts in answers.values()], missing


async def describe_groups(
    cluster: Cluster, groups: Sequence[GroupFacts]
) -> tuple[list[GroupFacts], list[Missing]]:
    """Return `groups` with state and members, in their order.

    A group that could not be described keeps what was known, members None, and is in the second
    part: also a group of a type that has no request here, and one that its coordinator lists and
    does not describe (Kafka 3.7 lists groups of KIP-848 without their type).
    """
    described, missing = await _described_once(cluster, groups)
    gone = [
        g.group
        for g, now in zip(groups, described, strict=True)
        if g.state not in (None, "Dead") and now.state == "Dead"
    ]
    if not gone:
        return described, missing
    listed, more = await _listed(cluster, gone)
    there = [g for g in listed if g.state not in (None, "Dead")]
    again, also = await _described_once(cluster, there)
    by_name = {}
    for g, now in zip(there, again, strict=True):
        by_name[g.group] = now
        if now.state == "Dead":
            text = "its coordinator lists it and does not describe it: its members are not known"
            also.append(Missing("group", NOT_FOUND, text, id=g.group))
            by_name[g.group] = g
    return [by_name.get(g.group, g) for g in described], [*missing, *more, *also]


async def _described_once(
    cluster: Cluster, groups: Sequence[GroupFacts]
) -> tuple[list[GroupFacts], list[Missing]]:
    """Return `groups` as described by the requests of their types, which are sent in parallel."""
    requests = {
        "consumer": (messages.ConsumerGroupDescribeRequest, "group_ids", 0),
        "share": (messages.ShareGroupDescribeRequest, "group_ids", 1),
        "streams": (messages.StreamsGroupDescribeRequest, "group_ids", 0),
        "classic": (messages.DescribeGroupsRequest, "groups", 0),
    }
    by_kind: dict[str, list[str]] = {}
    for g in groups:
        by_kind.setdefault((g.type or "classic").lower(), []).append(g.group)

    async def ask(kind: str, broker: int, mine: list[str]) -> GroupAnswers[Any]:
        request, field, least = requests[kind]
        answer = await cluster.ask(broker, request(**{field: mine}), least=least)
        return {g.group_id: (_described_or_dead(g), g) for g in answer.groups}

    kinds = [kind for kind in by_kind if kind in requests]
    results = await asyncio.gather(
        *(at_coordinators(cluster, by_kind[kind], partial(ask, kind)) for kind in kinds)
    )
    answers = {name: value for answered, _ in results for name, value in answered.items()}
    missing = [m for _, more in results for m in more]
    missing += [_unknown_type(g) for g in groups if (g.type or "classic").lower() not in requests]
    return [
        g if g.group not in answers else _described(g, *answers[g.group]) for g in groups
    ], missing


def _unknown_type(g: GroupFacts) -> Missing:
    text = f"it is of type {g.type}, which eoctl cannot describe: its members are not known"
    return Missing("group", "UNKNOWN_GROUP_TYPE", text, id=g.group)


def _described_or_dead(row: Any) -> str:
    error = messages.error_name(row.error_code)
    return "NONE" if error == NOT_FOUND else error


def _described(facts: GroupFacts, coordinator: int, row: Any) -> GroupFacts:
    protocol = getattr(row, "protocol_type", None) or None  # classic groups only
    workers = (_worker(m) for m in row.members) if protocol == PROTOCOL else ()
    streams = [m for m in row.members if getattr(m, "process_id", None)]
    return replace(
        facts,
        protocol=protocol,
        workers=tuple(w for w in workers if w is not None),
        state=row.group_state or "Dead",
        coordinator=coordinator,
        members=tuple(sorted((m.client_id, _host(m)) for m in row.members)),
        processes=tuple(StreamsProcess(m.client_id, _host(m), m.process_id) for m in streams),
    )


def _host(member: Any) -> str:
    host: str = member.client_host
    return host.removeprefix("/")


def _worker(member: Any) -> ConnectWorker | None:
    """Return a Connect worker of a group; None if its metadata is not a worker's."""
    try:
        return ConnectWorker(
            client_id=member.client_id,
            host=_host(member),
            url=decode_url(member.member_metadata),
            tasks=decode_tasks(member.member_assignment) if member.member_assignment else (),
        )
    except CorruptError:
        return None
