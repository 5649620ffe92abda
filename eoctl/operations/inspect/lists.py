"""Define what may be listed (a scope, a filter), and ask a live cluster: the `look_...` functions.

A bundle answers the same questions (`eoctl.operations.inspect.offline`).
"""

import re
from collections.abc import Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, collect, coordinators, moments
from eoctl.kafka.connection.cluster import PROBE_TOPIC, Cluster, ClusterMetadata, PartitionMetadata
from recovery.errors import UsageError, topic_problem
from recovery.facts import (
    Facts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.inspection import (
    OPEN_STATES,
    blocking_producer,
)
from recovery.selectors import Selector, unmatched
from recovery.selectors import missing as missing_names
from recovery.values import Value, replace

CLOCK_SKEW_MS = 5_000
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class Scope(Value):
    """The selected partitions: selectors (none = all), and internal topics or not."""

    selectors: tuple[Selector, ...] = ()
    internal: bool = True


async def selected(
    cluster: Cluster, scope: Scope
) -> tuple[ClusterMetadata, list[PartitionMetadata], list[Missing]]:
    """Return the partitions that `scope` names, sorted, and the selectors that matched nothing."""
    metadata = await cluster.metadata(topics_named(scope))
    return metadata, *choose(metadata, scope)


def topics_named(scope: Scope) -> list[str] | None:
    """Return the topics to request: those named, None = all."""
    names = [s.literal for s in scope.selectors if s.literal is not None]
    everything = not scope.selectors or len(names) < len(scope.selectors)
    return None if everything else sorted(set(names))


def choose(
    metadata: ClusterMetadata, scope: Scope
) -> tuple[list[PartitionMetadata], list[Missing]]:
    """Return the described topics' partitions in scope, and selectors that match nothing."""
    selectors = scope.selectors
    missing = [
        Missing("topic", t.error, topic_problem(t.error), topic=t.name)
        for t in metadata.topics.values()
        if t.error is not None
        and (not selectors or any(s.matches_topic(t.name) for s in selectors))
    ]
    chosen = [
        p
        for name in sorted(metadata.topics)
        for p in metadata.topics[name].partitions
        if (not selectors and (scope.internal or not metadata.topics[name].internal))
        or any(s.matches(p.topic, p.partition) for s in selectors)
    ]
    known = {name: len(t.partitions) for name, t in metadata.topics.items() if t.error is None}
    named = {m.topic for m in missing}
    missing += [
        Missing("topic", "UNKNOWN_TOPIC_OR_PARTITION", sentence, topic=s.literal)
        for s in selectors
        if s.literal not in named
        for sentence in missing_names([s], known)
    ]
    return chosen, missing


def matching_nothing(scope: Scope, chosen: Sequence[PartitionMetadata]) -> tuple[str, ...]:
    """Return a sentence per pattern without a match: no error, but seldom intended."""
    return unmatched(scope.selectors, [p.topic_partition for p in chosen])


async def look_at_offsets(cluster: Cluster, scope: Scope) -> Facts:
    """Return the offsets of the partitions in scope, with no producers."""
    facts, _, _ = await _offsets(cluster, scope)
    return facts


async def _offsets(
    cluster: Cluster, scope: Scope
) -> tuple[Facts, ClusterMetadata, Sequence[PartitionMetadata]]:
    """Return the offsets of the partitions in scope, and all topics and these partitions."""
    metadata, chosen, missing = await selected(cluster, scope)
    missing += await hidden_topics(cluster, scope)
    partitions, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    facts = Facts(
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        scanned=len(chosen),
        transaction_version=cluster.transaction_version,
        partitions=tuple(partitions),
        missing=(*missing, *more),
        notes=matching_nothing(scope, chosen),
    )
    return facts, metadata, chosen


async def look_at_partitions(cluster: Cluster, scope: Scope) -> Facts:
    """Return the offsets of the partitions in scope, and what holds the held ones.

    Held ones are asked again, together with their producers: a busy partition moves on meanwhile,
    and the next transaction is not what held it.
    """
    facts, metadata, chosen = await _offsets(cluster, scope)
    held = {p.topic_partition for p in facts.partitions if p.held}
    if not held:
        return facts
    missing = list(facts.missing)
    at_once, producers, more = await moments.at_one_moment(
        cluster,
        metadata.topics.values(),
        [p for p in chosen if p.topic_partition in held],
    )
    newest = {p.topic_partition: p for p in at_once}
    missing += [m for m in more if m not in missing]
    blocking = [blocking_producer(rows) for rows in producers.values()]
    transactions = Transactions()
    if any(blocking):
        transactions = await look_at_owners(
            cluster, [p.producer_id for p in blocking if p is not None]
        )
        missing += transactions.missing
    return replace(
        facts,
        collected_at=now_ms(),
        partitions=tuple(newest.get(p.topic_partition, p) for p in facts.partitions),
        producers=producers,
        transactions=transactions,
        missing=tuple(missing),
    )


async def look_at_owners(cluster: Cluster, producer_ids: Sequence[int]) -> Transactions:
    """Return the transactional ids whose producer id is one of these, described."""
    listed = await coordinators.transactions(cluster, producer_ids=sorted(set(producer_ids)))
    return await _described(cluster, listed, listed.rows)


async def _described(
    cluster: Cluster, listed: Transactions, rows: Sequence[TransactionFacts]
) -> Transactions:
    """Describe a listing's `rows`, with their coordinators' clocks."""
    described_at = now_ms()
    described, missing = await coordinators.described(cluster, rows)
    return replace(
        listed,
        rows=tuple(described),
        missing=(*listed.missing, *without_history(listed), *missing),
        clocks=await clocks.measured(cluster, described, now_ms),
        described_at=described_at,
    )


def without_history(transactions: Transactions) -> tuple[Missing, ...]:
    """Say that `__transaction_state` is missing and no broker lists a transaction."""
    if transactions.coordinators or transactions.missing:
        return ()
    return (
        Missing(
            "topic",
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"{coordinators.NONE_VISIBLE}: none was begun here, or the topic was deleted with all "
            "that was decided",
            topic=coordinators.TRANSACTION_STATE,
        ),
    )


async def hidden_topics(cluster: Cluster, scope: Scope) -> list[Missing]:
    """Say that topics may be hidden if all are requested: brokers leave those out silently."""
    if topics_named(scope) is not None:
        return []
    probe = (await cluster.metadata([PROBE_TOPIC])).topics[PROBE_TOPIC]
    if probe.error != "TOPIC_AUTHORIZATION_FAILED":
        return []
    text = "DESCRIBE on all topics is not granted: hidden topics are not shown"
    return [Missing("topic", probe.error, text)]


def transaction_state(text: str) -> str:
    """Return Kafka's spelling of a transaction state given in any case. Raises UsageError."""
    plain = re.sub(r"[^a-z]", "", text.lower())
    for state in STATES:
        if plain == state.lower():
            return state
    raise UsageError(
        f"no transaction state {text!r}", where="--state", remedy=f"one of {', '.join(STATES)}"
    )


def ever_begun(transactions: Transactions) -> Transactions:
    """Return the transactions without the gap of `without_history`.

    Whoever judges the ids that exist is not in the dark where all brokers list none.
    """
    gaps = without_history(replace(transactions, missing=()))
    missing = tuple(m for m in transactions.missing if m not in gaps)
    return replace(transactions, missing=missing)


class TxnFilter(Value):
    """The filter of `txn list`. pattern: full match, as in KIP-1152. longer_than: seconds."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    pattern: re.Pattern[str] | None = None
    longer_than: float | None = None

    @property
    def longer_than_ms(self) -> int | None:
        return None if self.longer_than is None else round(self.longer_than * 1000)

    @property
    def states_meant(self) -> tuple[str, ...]:
        """Return the states to list: with longer_than only open ones.

        The brokers' duration filter keeps ended ids too.
        """
        if self.longer_than is None or self.states:
            return self.states
        return tuple(sorted(OPEN_STATES))

    def names(self, transactional_id: str) -> bool:
        """Return True if the pattern matches, or if there is none."""
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


async def look_at_transactions(
    cluster: Cluster, filter_: TxnFilter, *, describe: bool
) -> Transactions:
    """Return the transactions that pass the filter; brokers filter by state, PID and duration."""
    listed = await coordinators.transactions(
        cluster,
        states=filter_.states_meant,
        producer_ids=filter_.producer_ids,
        running_longer_than_ms=filter_.longer_than_ms,
    )
    rows = tuple(t for t in listed.rows if filter_.names(t.transactional_id))
    if not describe:
        return replace(listed, rows=rows)
    return await _described(cluster, listed, rows)


async def look_at_producers(
    cluster: Cluster, scope: Scope, producer_ids: Sequence[int], *, resolve: bool
) -> Facts:
    """Return the producers of the partitions in scope; resolve: and who owns their producer ids.

    The partitions have their leaders, and no offsets: these are not asked for.
    """
    _, chosen, missing = await selected(cluster, scope)
    missing += await hidden_topics(cluster, scope)
    states, more = await collect.producers(cluster, chosen)
    missing += more
    if producer_ids:
        states = {
            key: tuple(p for p in rows if p.producer_id in producer_ids)
            for key, rows in states.items()
        }
    transactions: Transactions | None = None
    if resolve:
        transactions = await look_at_owners(
            cluster, [p.producer_id for rows in states.values() for p in rows]
        )
        missing += transactions.missing
        states |= await _behind_owners(cluster, chosen, states, transactions)
    return Facts(
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        scanned=len(chosen),
        transaction_version=cluster.transaction_version,
        partitions=tuple(PartitionFacts(p.topic, p.partition, leader=p.leader) for p in chosen),
        producers=states,
        transactions=transactions,
        missing=tuple(missing),
        notes=matching_nothing(scope, chosen),
    )


async def _behind_owners(
    cluster: Cluster,
    chosen: Sequence[PartitionMetadata],
    states: Mapping[TopicPartition, tuple[ProducerFacts, ...]],
    transactions: Transactions,
) -> dict[TopicPartition, tuple[ProducerFacts, ...]]:
    """Check again if an older epoch has something open: the fence may have come in between."""
    newest = {t.producer_id: t.producer_epoch or 0 for t in transactions.rows}
    partitions = {
        partition
        for partition, rows in states.items()
        for p in rows
        if p.current_txn_start_offset is not None
        and p.producer_epoch < newest.get(p.producer_id, 0)
    }
    if not partitions:
        return {}
    again, _ = await collect.producers(
        cluster, [p for p in chosen if p.topic_partition in partitions]
    )
    known = {partition: {p.producer_id for p in rows} for partition, rows in states.items()}
    return {
        partition: tuple(p for p in rows if p.producer_id in known[partition])
        for partition, rows in again.items()
    }
