"""Read the partitions that ids in Ongoing or Prepare* name, and their coordinator's log."""

from collections.abc import Mapping, Sequence

from eoctl.kafka.ask import collect, configs
from eoctl.kafka.ask.coordinators import TRANSACTION_STATE, replicas_of, state_partitions
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.connection.failures import WireError
from recovery.facts import (
    CoordinatorFacts,
    Missing,
    PartitionFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.id_facts import IdFacts, NamedPartition
from recovery.values import replace

MIN_IN_SYNC = "min.insync.replicas"


async def standing(
    cluster: Cluster,
    rows: Sequence[TransactionFacts],
    now: int,
    recorded: Mapping[str, Sequence[TopicPartition]] | None = None,
) -> list[IdFacts]:
    """Return the facts of each id, in the order of `rows`; clocks are left to the caller.

    now: our clock, epoch ms, when `rows` were described. recorded: the partitions of an id's newest
    record, asked about besides those of its description. The partitions are asked first and the
    leader epochs of `__transaction_state` last: a coordinator that moves meanwhile is then seen
    with its new epoch. What could not be seen is left open in the facts.
    """
    partitions = {
        t.transactional_id: tuple(
            dict.fromkeys(
                [*(t.partitions or ()), *(recorded or {}).get(t.transactional_id, ())],
            )
        )
        for t in rows
    }
    by_partition = await _by_partition(
        cluster, sorted({tp for named in partitions.values() for tp in named})
    )
    producers, missing = await collect.producers(
        cluster, [m for m, _ in by_partition.values() if m]
    )
    refusals = {m.topic_partition: m.error for m in missing}
    logs = await state_partitions(cluster)
    replicas = (
        {} if isinstance(logs, Missing) else {p.partition: replicas_of(cluster, p) for p in logs}
    )
    asked = any(_decided(t) for t in rows) or any(away for _, away in replicas.values())
    least = await _min_in_sync(cluster) if asked else None
    facts = []
    for t in rows:
        named = []
        for tp in partitions[t.transactional_id]:
            here = producers.get(tp)
            producer = next((p for p in here or () if p.producer_id == t.producer_id), None)
            refusal = refusals.get(tp)
            named.append(
                NamedPartition(by_partition[tp][1], here is not None, producer, refusal=refusal)
            )
        count = 0 if isinstance(logs, Missing) else len(logs)
        home = coordinator_partition(t.transactional_id, count) if count else -1
        log = None if isinstance(logs, Missing) or not count else logs[home]
        facts.append(
            IdFacts(
                row=t,
                collected_at=now,
                state_partition=home,
                coordinator_epoch=log.leader_epoch if log else None,
                in_sync=replicas[home][0] if log else None,
                min_in_sync=None if least is None or log is None else min(least, len(log.replicas)),
                away=replicas[home][1] if log else (),
                named=tuple(named),
            )
        )
    return facts


async def with_least_in_sync(cluster: Cluster, seen: Transactions) -> Transactions:
    """Return the listing with how many replicas each coordinator's log must have in sync.

    Asked only if some are down: a healthy cluster gets no request.
    """
    if not any(c.away for c in seen.coordinators):
        return seen
    least = await _min_in_sync(cluster)
    return replace(
        seen,
        coordinators=tuple(
            c if least is None or c.in_sync is None else replace(c, least=_least(least, c))
            for c in seen.coordinators
        ),
    )


async def leaderless(cluster: Cluster, seen: Transactions) -> dict[TopicPartition, PartitionFacts]:
    """Return the partitions of Ongoing ids without a leader that answers.

    Asked only while brokers are down: a healthy cluster gets no request.
    """
    if not cluster.silent and not any(c.away for c in seen.coordinators):
        return {}
    ongoing = [t for t in seen.rows if t.state == "Ongoing"]
    partitions = {tp for t in ongoing for tp in t.partitions or ()}
    if not partitions:
        return {}
    metadata = await cluster.metadata(sorted({topic for topic, _ in partitions}))
    return {
        p.topic_partition: PartitionFacts(
            p.topic, p.partition, replicas=p.replicas, error=p.error or "LEADER_NOT_AVAILABLE"
        )
        for t in metadata.topics.values()
        for p in t.partitions
        if p.topic_partition in partitions
        and (p.leader is None or p.leader not in cluster.brokers.keys() - cluster.silent)
    }


def _least(configured: int, log: CoordinatorFacts) -> int:
    # no more can be required than exist (Kafka's Partition.effectiveMinIsr)
    return min(configured, (log.in_sync or 0) + len(log.away))


async def log_of(cluster: Cluster, transactional_id: str) -> CoordinatorFacts | None:
    """Return the log of an id's coordinator with its replicas, each of their brokers asked.

    None: `__transaction_state` was not described, or does not exist.
    """
    logs = await state_partitions(cluster)
    if isinstance(logs, Missing) or not logs:
        return None
    log = logs[coordinator_partition(transactional_id, len(logs))]
    for broker in sorted(set(log.replicas) & cluster.brokers.keys()):
        try:
            await cluster.connection(broker)
        except WireError:
            continue  # the broker is among the silent ones now
    in_sync, away = replicas_of(cluster, log)
    one = CoordinatorFacts(log.partition, log.leader, seen=False, in_sync=in_sync, away=away)
    asked = await with_least_in_sync(cluster, Transactions(coordinators=(one,)))
    return asked.coordinators[0]


def _decided(row: TransactionFacts) -> bool:
    return row.state.startswith("Prepare")


async def _by_partition(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[PartitionMetadata | None, PartitionFacts]]:
    """Return each partition's metadata (None: not described), and its offsets or the error."""
    if not partitions:
        return {}
    metadata = await cluster.metadata(sorted({topic for topic, _ in partitions}))
    known = {p.topic_partition: p for t in metadata.topics.values() for p in t.partitions}
    here = [known[tp] for tp in partitions if tp in known]
    facts, _ = await collect.partition_offsets(cluster, metadata.topics.values(), here)
    by_partition: dict[TopicPartition, tuple[PartitionMetadata | None, PartitionFacts]] = {
        f.topic_partition: (p, f) for p, f in zip(here, facts, strict=True)
    }
    for topic, number in partitions:
        if (topic, number) not in by_partition:
            described = metadata.topics.get(topic)
            error = (described.error if described else None) or "UNKNOWN_TOPIC_OR_PARTITION"
            by_partition[TopicPartition(topic, number)] = (
                None,
                PartitionFacts(topic, number, error=error),
            )
    return by_partition


async def _min_in_sync(cluster: Cluster) -> int | None:
    """Return min.insync.replicas of `__transaction_state`, None if it is hidden."""
    values, _ = await configs.topic_configs(cluster, [TRANSACTION_STATE], [MIN_IN_SYNC])
    value = values.get(TRANSACTION_STATE, {}).get(MIN_IN_SYNC)
    return int(value) if value is not None and value.isdigit() else None
