"""Take a snapshot of open transactions: many requests, ordered so that answers are consistent.

Each partition's offsets and producers are read at one moment, and the coordinators afterwards: an
owner ending meanwhile leaves no orphan. Only the leader is asked whether a transaction is open.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, coordinators, moments
from eoctl.kafka.ask.standing import leaderless, standing, with_least_in_sync
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, TopicMetadata
from eoctl.operations.diagnose.ids import PREPARING, Past, past_limits
from eoctl.operations.diagnose.owner_traces import Owners, look_for_life
from recovery.facts import Missing, TopicPartition, TransactionFacts, Transactions
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.observation import OpenTransaction, Sample, Settings
from recovery.inspect.two_phase import looks_precommitted
from recovery.values import Value, replace


class Look(Value):
    """One snapshot of many partitions at once. at: when it began, on the monotonic clock."""

    samples: Mapping[TopicPartition, Sample]
    transactions: Transactions
    missing: tuple[Missing, ...]
    at: float


async def moment(
    cluster: Cluster, topics: Sequence[TopicMetadata], partitions: Sequence[PartitionMetadata]
) -> Look:
    """Ask only the leaders: samples without coordinators, enough to see which ended."""
    at = time.monotonic()
    offsets, rows, missing = await moments.at_one_moment(cluster, topics, partitions)
    refused = {
        m.topic_partition: m for m in missing if m.scope == "partition" and m.topic is not None
    }
    samples = {
        topic_partition: Sample(
            partition=p,
            producers=rows.get(topic_partition),
            transactions=Transactions(),
            collected_at=now_ms(),
            topic_describe=p.error is None,
            producers_missing=refused.get(topic_partition),
        )
        for p in offsets
        for topic_partition in [p.topic_partition]
    }
    return Look(samples, Transactions(), tuple(missing), at)


async def look(
    cluster: Cluster,
    topics: Sequence[TopicMetadata],
    partitions: Sequence[PartitionMetadata],
    settings: Settings,
) -> Look:
    """Ask the leaders, then the coordinators."""
    return await with_coordinators(cluster, await moment(cluster, topics, partitions), settings)


async def with_coordinators(cluster: Cluster, seen: Look, settings: Settings) -> Look:
    """Return the snapshot with what the coordinators say of its open transactions.

    What waits for a partition whose leader does not answer is seen from the other side: an id in
    Prepare* that names it cannot write its markers.
    """
    missing = list(seen.missing)
    pids = {
        p.producer_id
        for sample in seen.samples.values()
        for p in sample.producers or ()
        if p.current_txn_start_offset is not None
    }
    transactions = Transactions()
    past = Past(None, None, None)
    ids: tuple[IdFacts, ...] = ()
    owners = Owners()
    if any(s.partition.error is not None for s in seen.samples.values()):
        preparing = await coordinators.transactions(cluster, states=PREPARING)
        missing += preparing.missing
        pids |= {t.producer_id for t in preparing.rows}
    if pids:
        listed = await coordinators.transactions(cluster, producer_ids=sorted(pids))
        listed = await with_least_in_sync(cluster, listed)
        described, more = await coordinators.described(cluster, listed.rows)
        # an id that could not be described keeps its row: the rules know what to do with it
        transactions = replace(listed, rows=tuple(described), missing=(*listed.missing, *more))
        preparing_rows = [t for t in described if t.state in PREPARING]
        measured, past, id_facts = await asyncio.gather(
            clocks.measured(cluster, described, now_ms),
            past_limits(cluster, described, settings, pids),
            standing(cluster, preparing_rows, now_ms()) if preparing_rows else _none(),
        )
        transactions = replace(transactions, clocks=measured)
        missing += transactions.missing
        ids = tuple(_young_or_not(i, past) for i in id_facts)
        guessed = [t for t in described if looks_precommitted(t, settings)]
        owners = await look_for_life(cluster, _late(described, past), guessed)
    named = {p.topic_partition: p.facts for i in ids for p in i.named or ()}
    named |= await leaderless(cluster, transactions)
    of_partition = {
        partition: past.of(_ids_at(partition, sample, transactions))
        for partition, sample in seen.samples.items()
    }
    samples = {
        partition: replace(
            sample,
            transactions=transactions,
            collected_at=now_ms(),
            over_timeout=of_partition[partition].over_timeout,
            over_long=of_partition[partition].over_long,
            over_stuck=of_partition[partition].over_stuck,
            list_version=None if of_partition[partition].over_long is None else 1,
            named=tuple(named.values()),
            abort_cycles=owners.abort_cycles,
            groups=owners.groups,
            groups_missing=owners.groups_missing,
            ids=ids,
        )
        for partition, sample in seen.samples.items()
    }
    return Look(samples, transactions, tuple(missing), seen.at)


def _ids_at(partition: TopicPartition, sample: Sample, transactions: Transactions) -> set[str]:
    """Return the ids that may hold a partition: by their producer id, or since they name it."""
    pids = {p.producer_id for p in sample.producers or ()}
    return {
        t.transactional_id
        for t in transactions.rows
        if t.producer_id in pids or partition in (t.partitions or ())
    }


async def _none() -> list[IdFacts]:
    return []


def _young_or_not(look: IdFacts, past: Past) -> IdFacts:
    """Return the snapshot; if the coordinator's clock shows a recent decision, it says so."""
    name = look.row.transactional_id
    over_stuck = past.of([name]).over_stuck
    young = over_stuck is not None and name not in over_stuck
    return replace(look, decided_long_ago=False) if young else look


def _late(rows: Sequence[TransactionFacts], past: Past) -> list[TransactionFacts]:
    """Return those past a limit, and Ongoing ones whose coordinator's clock was not asked."""
    ongoing = [t for t in rows if t.state == "Ongoing"]
    if past.over_timeout is None or past.over_long is None:
        return ongoing
    late = past.over_timeout | past.over_long | past.unseen
    return [t for t in ongoing if t.transactional_id in late]


def open_transactions(look: Look, held: Collection[TopicPartition]) -> list[OpenTransaction]:
    """Return each producer's open transaction per held partition, None where that is unknown.

    One that begins at or above the high watermark holds nothing yet. If a partition was not seen at
    all: those of ids in Prepare* that name it. held: the partitions that an earlier snapshot saw
    held.
    """
    transactions: list[OpenTransaction] = []
    for (topic, partition), sample in sorted(look.samples.items()):
        if sample.partition.error is not None:
            decided = [
                OpenTransaction(topic, partition, t.producer_id, None)
                for t in sample.transactions.rows
                if t.state in PREPARING and (topic, partition) in (t.partitions or ())
            ]
            if not decided and (topic, partition) in held:
                decided = [OpenTransaction(topic, partition, None, None)]
            transactions += decided
            continue
        if sample.partition.held == 0:
            continue
        opened = [
            OpenTransaction(topic, partition, p.producer_id, start)
            for p in sample.producers or ()
            if (start := p.current_txn_start_offset) is not None
            and start < (sample.partition.high_watermark or 0)
        ]
        if not opened:
            opened = [OpenTransaction(topic, partition, None, None)]
        transactions += sorted(opened, key=lambda o: o.start_offset or 0)
    return transactions
