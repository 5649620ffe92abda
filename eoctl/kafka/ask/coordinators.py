"""Ask the transaction coordinators, and prove that all of them could be asked.

ListTransactions omits ids without an error while a coordinator moves or loads, and if DESCRIBE on
transactional ids is missing. So before and after each listing every partition of
`__transaction_state` is probed: its leader must answer TRANSACTIONAL_ID_NOT_FOUND for a made-up id
that hashes to that partition. An id counts only from the broker that leads its partition.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import (
    Cluster,
    PartitionMetadata,
    TopicMetadata,
    by_leader,
    missing_broker,
)
from eoctl.kafka.connection.failures import WireError
from recovery.facts import (
    CoordinatorFacts,
    Missing,
    TopicPartition,
    TransactionFacts,
    Transactions,
    known,
)
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.rights import and_grant
from recovery.plurals import counted, listed
from recovery.values import replace

TRANSACTION_STATE = "__transaction_state"
NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"
NONE_VISIBLE = "no __transaction_state is visible, and no broker lists a transaction"
NOT_DESCRIBED = "the coordinator did not describe it"
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
MOVING = frozenset({"NOT_COORDINATOR", LOADING, "COORDINATOR_NOT_AVAILABLE"})
MOVING_SECONDS = 0.25


@cache
def probe_ids(partitions: int) -> tuple[str, ...]:
    """Return one made-up transactional id per partition of `__transaction_state`."""
    ids: dict[int, str] = {}
    number = 0
    while len(ids) < partitions:
        name = f"eoctl-probe-{number}"
        ids.setdefault(coordinator_partition(name, partitions), name)
        number += 1
    return tuple(ids[p] for p in range(partitions))


async def state_partitions(cluster: Cluster) -> tuple[PartitionMetadata, ...] | Missing:
    """Return the partitions of `__transaction_state`: none if no broker lists a transaction either.

    A service may keep transactions elsewhere: Missing, as where a broker does not list them.
    """
    metadata = await cluster.metadata([TRANSACTION_STATE])
    return state_partitions_of(metadata.topics[TRANSACTION_STATE]) or await _none_listed(cluster)


async def _none_listed(cluster: Cluster) -> tuple[()] | Missing:
    """Return nothing if every broker answers that it has no transaction, else Missing."""
    answers, failures = await cluster.ask_each(
        {b: partial(cluster.ask, b, _list_transactions()) for b in cluster.brokers}
    )
    silent = [*failures, *(b for b, answer in answers.items() if answer.error_code)]
    if any(answer.transaction_states for answer in answers.values()):
        return hidden_topic(TRANSACTION_STATE, "brokers list transactions")
    if silent:
        text = f"{listed(silent, 'broker')} did not list transactions"
        return hidden_topic(TRANSACTION_STATE, text)
    return ()


def hidden_topic(name: str, why: str) -> Missing:
    """Return the gap of a coordinators' topic that is not described and yet may be in use."""
    text = f"{name} is not visible, and {why}: what it keeps is unknown"
    return Missing("topic", "UNKNOWN_TOPIC_OR_PARTITION", text, topic=name)


def _list_transactions(
    states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration: int = -1
) -> Any:
    return messages.ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=duration
    )


def state_partitions_of(topic: TopicMetadata) -> tuple[PartitionMetadata, ...] | Missing:
    """Return the partitions of `__transaction_state` as Metadata described the topic."""
    return partitions_of(topic, "the coordinators cannot be found without DESCRIBE on this topic")


def partitions_of(topic: TopicMetadata, without: str) -> tuple[PartitionMetadata, ...] | Missing:
    """Return the partitions of a coordinators' topic: none if it is not described.

    without: the sentence that says what follows if the topic may not be seen.
    """
    if topic.error == "UNKNOWN_TOPIC_OR_PARTITION":
        return ()
    if topic.error is not None:
        return Missing("topic", topic.error, without, topic=topic.name)
    return topic.partitions


async def transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    running_longer_than_ms: int | None = None,
) -> Transactions:
    """Return every coordinator's transactions (ListTransactions, KIP-664), filtered by the brokers.

    running_longer_than_ms is compared with the coordinator's own clock (KIP-994): Missing scope
    `feature` names brokers that cannot. Rows carry id, PID and state; see `described`. Coordinators
    move or load for moments only: all are asked again, for some seconds.
    """
    while True:
        listed = await _listed_once(cluster, states, producer_ids, running_longer_than_ms)
        moving = [
            cluster.awaits(("coordinator", c.partition), c.error in MOVING)
            for c in listed.coordinators
        ]
        if not any(moving):
            return listed
        await asyncio.sleep(MOVING_SECONDS)


async def _listed_once(
    cluster: Cluster,
    states: Sequence[str],
    producer_ids: Sequence[int],
    running_longer_than_ms: int | None,
) -> Transactions:
    partitions = await state_partitions(cluster)
    if isinstance(partitions, Missing):
        return Transactions(missing=(partitions,))
    count = len(partitions)
    led, leaderless = by_leader(partitions)
    coordinators: dict[int, CoordinatorFacts] = {
        p.partition: CoordinatorFacts(p.partition, None, seen=False, error=p.error)
        for p in leaderless
    }
    least, duration = (0, -1) if running_longer_than_ms is None else (1, running_longer_than_ms)

    async def ask(broker: int) -> tuple[dict[int, str], Any, dict[int, str]]:
        numbers = [p.partition for p in led[broker]]
        # pipelined on one connection: the broker answers in this order
        before, answer, after = await asyncio.gather(
            _probe(cluster, broker, numbers, count),
            cluster.ask(broker, _list_transactions(states, producer_ids, duration), least=least),
            _probe(cluster, broker, numbers, count),
        )
        return before, answer, after

    answers, failures = await cluster.ask_each({b: partial(ask, b) for b in led})
    rows: list[TransactionFacts] = []
    strays: list[TransactionFacts] = []
    missing: list[Missing] = []
    for broker, failure in failures.items():
        missing.append(_coordinator_not_seen(broker, failure, len(led[broker]), count))
        for p in led[broker]:
            coordinators[p.partition] = CoordinatorFacts(p.partition, broker, False, failure.error)
    for broker, (before, answer, after) in answers.items():
        if answer.error_code:
            before = after = dict.fromkeys(before, messages.error_name(answer.error_code))
        for p in led[broker]:
            number = p.partition
            bad = [e for e in (before.get(number), after.get(number)) if e != NOT_FOUND]
            coordinators[number] = CoordinatorFacts(
                number, broker, seen=not bad, error=(bad[0] or "NO_ANSWER") if bad else None
            )
        for t in answer.transaction_states:
            row = TransactionFacts(t.transactional_id, broker, t.producer_id, t.transaction_state)
            home = partitions[coordinator_partition(t.transactional_id, count)]
            (rows if home.leader == broker else strays).append(row)
    # from other brokers only ids that their home does not list: while brokers count the
    # partitions differently, any broker may be an id's coordinator (see `described`)
    at_home = {t.transactional_id for t in rows}
    rows += [t for t in strays if t.transactional_id not in at_home]
    missing += _unproven(coordinators.values(), {m.broker for m in missing}, count)
    for p in partitions:
        in_sync, away = replicas_of(cluster, p)
        coordinators[p.partition] = replace(coordinators[p.partition], in_sync=in_sync, away=away)
    return Transactions(
        rows=tuple(sorted(rows, key=lambda t: t.transactional_id)),
        coordinators=tuple(coordinators[number] for number in sorted(coordinators)),
        missing=tuple(missing),
    )


def replicas_of(cluster: Cluster, log: PartitionMetadata) -> tuple[int | None, tuple[int, ...]]:
    """Return how many replicas are in sync on brokers that answer, and the brokers of the others.

    A cluster that has lost its controllers keeps dead brokers among the replicas in sync.
    """
    if log.in_sync is None:
        return None, ()
    there = (set(log.in_sync) & cluster.brokers.keys()) - cluster.silent
    return len(there), tuple(sorted(set(log.replicas) - there))


async def runs_longer(cluster: Cluster, row: TransactionFacts, limit: int) -> bool | None:
    """Return True if a transaction is open for more than `limit` ms by its coordinator's clock.

    None: that coordinator did not answer, or is below ListTransactions v1, or no longer knows the
    transaction as `row` describes it.
    """
    question = _list_transactions([row.state], [row.producer_id], limit)
    try:
        listed = await cluster.ask(row.coordinator, question, least=1)
    except WireError:
        return None
    # asked afterwards: a coordinator that knows the transaction listed it
    (now,), _ = await _described_once(cluster, [row])
    if listed.error_code or (now.state, now.start_timestamp) != (row.state, row.start_timestamp):
        return None
    return row.transactional_id in {t.transactional_id for t in listed.transaction_states}


async def _probe(
    cluster: Cluster, broker: int, numbers: Sequence[int], count: int
) -> dict[int, str]:
    """Return partition of `__transaction_state` → error name its leader gives for a made-up id."""
    ids = probe_ids(count)
    answer = await cluster.ask(
        broker,
        messages.DescribeTransactionsRequest(transactional_ids=[ids[n] for n in numbers]),
    )
    return {
        coordinator_partition(t.transactional_id, count): messages.error_name(t.error_code)
        for t in answer.transaction_states
    }


def _coordinator_not_seen(broker: int, failure: WireError, led: int, count: int) -> Missing:
    if failure.error == "UNSUPPORTED_VERSION":
        return Missing(
            "feature",
            failure.error,
            f"{failure.detail}: Kafka 3.0 and above do (by duration 3.8), some services do not",
            broker=broker,
        )
    return missing_broker(
        broker,
        failure,
        "coordinator",
        f"coordinator of {led} of {counted(count, 'partition')} not seen",
    )


def _unproven(
    coordinators: Iterable[CoordinatorFacts], known: set[int | None], count: int
) -> list[Missing]:
    """Return one fact per broker and reason for coordinators that the probe did not confirm."""
    grouped: dict[tuple[int | None, str], int] = {}
    for c in coordinators:
        if not c.seen and (c.leader is None or c.leader not in known):
            key = (c.leader, c.error or "LEADER_NOT_AVAILABLE")
            grouped[key] = grouped.get(key, 0) + 1
    details = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "DESCRIBE on all transactional ids is not granted",
        "LEADER_NOT_AVAILABLE": "no broker leads them",
        "NOT_COORDINATOR": "a coordinator is moving",
        LOADING: "a coordinator is loading",
    }
    return [
        Missing(
            "coordinator",
            error,
            f"{details.get(error, 'the probe was not answered')}: "
            f"{number} of {counted(count, 'coordinator partition')} not seen",
            broker=broker,
        )
        for (broker, error), number in sorted(grouped.items(), key=str)
    ]


async def described(
    cluster: Cluster, rows: Sequence[TransactionFacts]
) -> tuple[list[TransactionFacts], list[Missing]]:
    """Return `rows` with epoch, timeout, start and partitions (DescribeTransactions), in order.

    An id that ended or moved meanwhile keeps what was known and carries the error's name. An id
    that its current coordinator does not know with the listed producer id is a ghost: another
    broker still keeps the partition where its records were before partitions were added. The broker
    leaves out topics that we may not describe, without an error. A coordinator that loads is asked
    again, for some seconds.
    """
    result, missing = await _described_once(cluster, rows)
    while any(_are_awaited(cluster, result)):
        await asyncio.sleep(MOVING_SECONDS)
        result, missing = await _described_once(cluster, rows)
    doubted = [
        number
        for number, (row, t) in enumerate(zip(rows, result, strict=True))
        if row.producer_id >= 0 and t.error in (NOT_FOUND, "NOT_COORDINATOR")
    ]
    if not doubted:
        return result, missing
    homes = await _homes(cluster, [result[n].transactional_id for n in doubted])
    known = [n for n in doubted if result[n].transactional_id in homes]
    again, more = await _described_once(
        cluster, [replace(rows[n], coordinator=homes[rows[n].transactional_id]) for n in known]
    )
    settled = set()
    for number, t in zip(known, again, strict=True):
        if t.error == NOT_FOUND or (t.error is None and t.producer_id != rows[number].producer_id):
            result[number] = replace(rows[number], error=NOT_FOUND, ghost=True)
        else:
            result[number] = t
        settled.add(t.transactional_id)
    missing = [m for m in missing if m.scope != "transaction" or m.id not in settled]
    ghosts = {t.transactional_id for t in result if t.ghost}
    return result, missing + [m for m in more if m.id not in ghosts]


def _are_awaited(cluster: Cluster, rows: Sequence[TransactionFacts]) -> list[bool]:
    """Return per coordinator of these rows whether it loads and is asked again."""
    loading = {t.coordinator for t in rows if t.error == LOADING}
    return [
        cluster.awaits(("described by", broker), broker in loading)
        for broker in {t.coordinator for t in rows}
    ]


async def _homes(cluster: Cluster, ids: Sequence[str]) -> dict[str, int]:
    """Return the broker that coordinates each id, if all brokers agree (FindCoordinator).

    A broker hashes by the number of partitions that it saw when it started.
    """
    question = messages.FindCoordinatorRequest(key_type=1, coordinator_keys=list(ids))
    answers, failures = await cluster.ask_each(
        {b: partial(cluster.ask, b, question, least=4) for b in cluster.brokers}
    )
    if failures:
        return {}
    nodes_by_id: dict[str, set[int]] = {}
    for answer in answers.values():
        for c in answer.coordinators:
            nodes_by_id.setdefault(c.key, set()).add(-1 if c.error_code else int(c.node_id))
    return {
        name: next(iter(nodes))
        for name, nodes in nodes_by_id.items()
        if len(nodes) == 1 and nodes <= cluster.brokers.keys()
    }


async def _described_once(
    cluster: Cluster, rows: Sequence[TransactionFacts]
) -> tuple[list[TransactionFacts], list[Missing]]:
    grouped: dict[int, list[str]] = {}
    for t in rows:
        grouped.setdefault(t.coordinator, []).append(t.transactional_id)
    answers, failures = await cluster.ask_each(
        {
            b: partial(cluster.ask, b, messages.DescribeTransactionsRequest(transactional_ids=ids))
            for b, ids in grouped.items()
        }
    )
    by_id = {t.transactional_id: t for a in answers.values() for t in a.transaction_states}
    missing = [
        missing_broker(
            b, error, "coordinator", f"{counted(len(grouped[b]), 'transaction')} not described"
        )
        for b, error in failures.items()
    ]
    result: list[TransactionFacts] = []
    for t in rows:
        answer = by_id.get(t.transactional_id)
        if answer is None:
            error = failures[t.coordinator].error if t.coordinator in failures else "NO_ANSWER"
            result.append(replace(t, error=error))
        elif answer.error_code:
            name = messages.error_name(answer.error_code)
            result.append(replace(t, error=name))
            missing.append(
                Missing(
                    "transaction",
                    name,
                    and_grant(NOT_DESCRIBED, name, "DESCRIBE on it"),
                    broker=t.coordinator,
                    id=t.transactional_id,
                )
            )
        else:
            result.append(transaction_facts(t.coordinator, answer))
    return result, missing


def transaction_facts(coordinator: int, row: Any) -> TransactionFacts:
    """Return a transaction's facts. row: of DescribeTransactions' answer."""
    return TransactionFacts(
        transactional_id=row.transactional_id,
        coordinator=coordinator,
        producer_id=row.producer_id,
        state=row.transaction_state,
        producer_epoch=known(row.producer_epoch),
        timeout_ms=known(row.transaction_timeout_ms),
        start_timestamp=known(row.transaction_start_time_ms),
        partitions=tuple(
            sorted(TopicPartition(t.topic, p) for t in row.topics for p in t.partitions)
        ),
    )


async def find(
    cluster: Cluster, ids: Sequence[str]
) -> tuple[list[TransactionFacts], list[Missing]]:
    """Return the named transactional ids as their coordinators describe them, in their order."""
    partitions = await state_partitions(cluster)
    if isinstance(partitions, Missing):
        return [], [partitions]
    if not partitions:
        return [], [Missing("transaction", NOT_FOUND, NONE_VISIBLE, id=name) for name in ids]
    named: list[TransactionFacts] = []
    missing: list[Missing] = []
    for name in ids:
        p = partitions[coordinator_partition(name, len(partitions))]
        if p.leader is None:
            missing.append(
                Missing(
                    "coordinator",
                    p.error or "LEADER_NOT_AVAILABLE",
                    f"no broker leads {TRANSACTION_STATE}:{p.partition}, its coordinator",
                    id=name,
                )
            )
        else:
            named.append(TransactionFacts(name, p.leader, -1, "", error=None))
    rows, more = await described(cluster, named)
    return [t for t in rows if t.error is None], [*missing, *more]
