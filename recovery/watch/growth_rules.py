"""Judge what grows: producers, transactional ids, internal topics, and the log cleaner's limit."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from recovery.diagnose.diagnosis import Diagnosis
from recovery.diagnose.verdicts import FINDINGS
from recovery.facts import Facts, Missing, TopicPartition, TransactionFacts, Transactions
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.inspect.growth.growth_rows import GrowthRow
from recovery.inspect.growth.prefixes import prefix_of
from recovery.values import Reason, Value
from recovery.watch.check_rows import Judgement, Unit
from recovery.watch.check_rules import TRANSACTION_STATE, Thresholds, holders, judgement

CLEANER_HELD_SECONDS = 3_600
"""From this age on, `status` says that a transaction stops the log cleaner."""
INTERNAL_TOPIC_BYTES = 1 << 30
"""From this size on, `status` names a partition of an internal topic: ten of its segments, of which
Kafka compacts all but the last (transaction.state.log.segment.bytes is 100 MiB)."""
INTERNAL_TOPICS = (TRANSACTION_STATE, CONSUMER_OFFSETS)


class Growth(Value):
    """What the rules of growth judge; empty where the rule is off, so that nothing was queried.

    producers: of all partitions. sizes: bytes of the internal topics' logs; sizes_missing: those
    that are unknown, and why.
    """

    producers: Facts = Facts(None, 0)
    sizes: Mapping[TopicPartition, int] = {}
    sizes_missing: tuple[Missing, ...] = ()

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Return all that was not seen."""
        return (*self.producers.missing, *self.sizes_missing)


def growth_rules(growth: Growth, transactions: Transactions, limits: Thresholds) -> list[Judgement]:
    """Return what each enabled rule says."""
    rows = []
    if limits.producer_states is not None:
        rows.append(_producer_states(growth.producers, limits.producer_states))
    if limits.transactional_ids is not None:
        rows.append(_transactional_ids(transactions, limits.transactional_ids))
    if limits.internal_topic_bytes is not None:
        rows.append(_internal_topic_bytes(growth, limits.internal_topic_bytes))
    return rows


def most_common_prefix(rows: Iterable[TransactionFacts]) -> tuple[str | None, int]:
    """Return the prefix of most ids, and of how many; None without ids."""
    counts = Counter(prefix_of(t.transactional_id) for t in rows if not t.ghost)
    return counts.most_common(1)[0] if counts else (None, 0)


def _producer_states(facts: Facts, threshold: float) -> Judgement:
    """Judge the leader that keeps the most producer states."""
    leaders = {p.topic_partition: p.leader for p in facts.partitions}
    by_leader: Counter[int | None] = Counter()
    by_topic: Counter[str] = Counter()
    for at, rows in facts.producers.items():
        by_leader[leaders.get(at)] += len(rows)
        by_topic[at.topic] += len(rows)
    unseen = sum(at not in facts.producers for at in leaders)
    [(leader, most)] = by_leader.most_common(1) or [(None, 0)]
    reason = Reason("no-producer")
    if most:
        [(topic, states)] = by_topic.most_common(1)
        data = {"broker": leader, "topic": topic, "producers": states}
        reason = Reason("most-producers", data)
    return _counted(
        "producer_states",
        threshold,
        (most, "producers"),
        reason,
        Reason("partitions-not-seen", {"number": unseen}) if unseen else None,
        unsure=bool(unseen or facts.missing),
    )


def _transactional_ids(transactions: Transactions, threshold: float) -> Judgement:
    prefix, ids = most_common_prefix(transactions.rows)
    return _counted(
        "transactional_ids",
        threshold,
        (sum(not t.ghost for t in transactions.rows), "ids"),
        Reason("no-id") if prefix is None else Reason("prefix", {"prefix": prefix, "ids": ids}),
        None if transactions.complete else Reason("coordinators-not-seen"),
        unsure=not transactions.complete,
    )


def _counted(
    rule: str,
    threshold: float,
    found: tuple[int, Unit],
    reason: Reason,
    unseen: Reason | None,
    *,
    unsure: bool,
) -> Judgement:
    """Judge a number and its unit. unsure: there may be more; unseen: what was not seen."""
    number, unit = found
    none = unsure and not number
    return judgement(
        rule,
        threshold,
        None if none else number,
        unit,
        Reason("none-seen") if none else reason,
        *([] if unseen is None else [unseen]),
        finding=number >= threshold,
        unsure=unsure,
    )


def _internal_topic_bytes(growth: Growth, threshold: float) -> Judgement:
    """Judge the largest log of the internal topics."""
    sizes = growth.sizes
    largest = max(sizes, key=lambda at: (sizes[at], at), default=None)
    observed = None if largest is None else sizes[largest]
    data = {"name": largest, "all_seen": not growth.sizes_missing}
    refused = _refused(growth.sizes_missing)
    return judgement(
        "internal_topic_bytes",
        threshold,
        observed,
        "bytes",
        Reason("largest", {**data, "refused": refused}),
        finding=observed is not None and observed >= threshold,
        unsure=bool(growth.sizes_missing),
    )


def _refused(missing: Iterable[Missing]) -> list[str]:
    """Return whose DESCRIBE is missing.

    The cluster's is that of DescribeLogDirs (KIP-113), the topics' that of Metadata.
    """
    errors = {m.error for m in missing}
    rights = {"CLUSTER_AUTHORIZATION_FAILED": "cluster", "TOPIC_AUTHORIZATION_FAILED": "topics"}
    return [right for error, right in rights.items() if error in errors]


def cleaner_held(d: Diagnosis, compacted: Collection[str]) -> list[GrowthRow]:
    """Return the partitions of compacted topics that a finding's transaction has held for an hour.

    The log cleaner stops at the last stable offset, whoever owns the transaction.
    """
    return [
        GrowthRow(
            kind="cleaner-held",
            topic=j.about.topic,
            partition=j.about.partition,
            limit=CLEANER_HELD_SECONDS,
            last_stable_offset=j.partition.last_stable_offset,
            held=j.partition.held,
            age_seconds=j.verdict.age_seconds,
            age_clock=j.verdict.age_clock,
            producer_id=j.about.producer_id,
            prefix=None if j.verdict.owner is None else prefix_of(j.verdict.owner.transactional_id),
        )
        for j in holders(d)
        if j.about.topic in compacted
        and j.verdict.name in FINDINGS
        and (j.verdict.age_seconds or 0.0) >= CLEANER_HELD_SECONDS
    ]


def large_topics(sizes: Mapping[TopicPartition, int]) -> list[GrowthRow]:
    """Return the largest log of each internal topic that is at the limit."""
    rows = []
    for topic in INTERNAL_TOPICS:
        mine = {at: size for at, size in sizes.items() if at.topic == topic}
        largest = max(mine, key=lambda at: (mine[at], at), default=None)
        if largest is not None and mine[largest] >= INTERNAL_TOPIC_BYTES:
            rows.append(
                GrowthRow(
                    kind="internal-topic",
                    topic=topic,
                    partition=largest.partition,
                    limit=INTERNAL_TOPIC_BYTES,
                    bytes=mine[largest],
                )
            )
    return rows
