"""Count producers and transactional ids from facts, the most first. No judgement."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from recovery.facts import (
    Facts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
    grouped,
)
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
from recovery.inspect.growth.prefixes import prefix_of
from recovery.inspect.inspection import OPEN_STATES, owner_of, seconds_since
from recovery.values import Value, replace

State = tuple[TopicPartition, int]
"""A producer id on a partition, which Kafka keeps as one entry."""


class Earlier(Value):
    """The first of two snapshots of the producers. seconds: between both."""

    facts: Facts
    seconds: float


class EarlierIds(Value):
    """The first of two listings of transactional ids. seconds: between both."""

    transactions: Transactions
    seconds: float


class _Group(Value):
    """What a row counts: its names, and the partitions that belong to it whatever they hold."""

    by: Literal["broker", "topic", "partition", "prefix"]
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    prefix: str | None = None
    owner_known: bool | None = None


def producers_summary(
    facts: Facts, leaders: Mapping[TopicPartition, int | None], earlier: Earlier | None = None
) -> list[ProducersSummaryRow]:
    """Return counts by broker, topic, partition and, if ids were resolved, prefix.

    leaders: of all partitions in scope. Each kind has the most producer states first.
    """
    rows = [
        *_rows(facts, leaders, earlier, lambda at, _: _Group("broker", broker=leaders.get(at))),
        *_rows(facts, leaders, earlier, lambda at, _: _Group("topic", topic=at.topic)),
        *_rows(facts, leaders, earlier, lambda at, _: _Group("partition", leaders.get(at), *at)),
    ]
    return rows if facts.transactions is None else [*rows, *_by_prefix(facts, leaders, earlier)]


def _by_prefix(
    facts: Facts, leaders: Mapping[TopicPartition, int | None], earlier: Earlier | None
) -> list[ProducersSummaryRow]:
    """Return one row per prefix. Any may have producers on a partition that was not described, or
    among those whose owner is not known."""
    prefixes = _prefixes(facts)
    all_listed = facts.transactions is not None and facts.transactions.complete

    def group(_: TopicPartition, producer_id: int | None) -> _Group:
        prefix = prefixes.get(producer_id)
        return _Group("prefix", prefix=prefix, owner_known=all_listed or prefix is not None)

    unseen = sum(at not in facts.producers for at in leaders)
    rows = _rows(facts, {}, earlier, group)
    if not unseen and all(row.owner_known for row in rows):
        return rows
    return [
        replace(row, partitions_unseen=unseen, new_states=None, new_per_hour=None) for row in rows
    ]


def _prefixes(facts: Facts) -> dict[int | None, str]:
    """Return the prefix of each producer id that a coordinator lists an id for."""
    owners = {
        p.producer_id: owner_of(p.producer_id, facts.transactions)
        for rows in facts.producers.values()
        for p in rows
    }
    return {pid: prefix_of(t.transactional_id) for pid, t in owners.items() if t is not None}


GroupOf = Callable[[TopicPartition, int | None], _Group]
"""The group of a producer id on a partition; None: of the partition alone."""


def _rows(
    facts: Facts,
    leaders: Mapping[TopicPartition, int | None],
    earlier: Earlier | None,
    group_of: GroupOf,
) -> list[ProducersSummaryRow]:
    """Return one row per group, the most states first, else in the order of their partitions.

    A group without producers has a row if one of its partitions was not seen. leaders: {} =
    partitions belong to no group by themselves.
    """
    members = grouped(
        (group_of(at, p.producer_id), (at, p))
        for at, rows in sorted(facts.producers.items())
        for p in rows
    )
    unseen = grouped((group_of(at, None), at) for at in leaders if at not in facts.producers)
    rows = [
        _row(group, members.get(group, ()), unseen.get(group, ()), earlier)
        for group in dict.fromkeys([*members, *unseen])
    ]
    return sorted(rows, key=lambda r: -r.producer_states)


def _row(
    group: _Group,
    members: Sequence[tuple[TopicPartition, ProducerFacts]],
    unseen: Sequence[TopicPartition],
    earlier: Earlier | None,
) -> ProducersSummaryRow:
    new = None if earlier is None else _new_states(members, unseen, earlier.facts)
    return ProducersSummaryRow.of(
        group,
        partitions=len({at for at, _ in members}),
        partitions_unseen=len(unseen),
        producer_ids=len({p.producer_id for _, p in members}),
        producer_states=len(members),
        open=sum(p.current_txn_start_offset is not None for _, p in members),
        new_states=new,
        new_per_hour=per_hour(new, earlier),
    )


def _new_states(
    members: Sequence[tuple[TopicPartition, ProducerFacts]],
    unseen: Collection[TopicPartition],
    before: Facts,
) -> int | None:
    """Return how many states the first look did not have; None: it did not see the partitions."""
    partitions = {at for at, _ in members}
    if unseen or any(at not in before.producers for at in partitions):
        return None
    known = {(at, p.producer_id) for at in partitions for p in before.producers[at]}
    return sum((at, p.producer_id) not in known for at, p in members)


def per_hour(new: int | None, earlier: Earlier | EarlierIds | None) -> float | None:
    """Return the rate of an interval as a number per hour; None: unknown."""
    if new is None or earlier is None or earlier.seconds <= 0:
        return None
    return round(new / earlier.seconds * 3600, 1)


def txn_summary(
    transactions: Transactions, now: int, earlier: EarlierIds | None = None
) -> list[TxnSummaryRow]:
    """Return the ids by prefix, the most first. now: our clock, epoch ms.

    A ghost (an id that a former coordinator lists) is counted nowhere.
    """
    by_prefix = grouped(
        (prefix_of(t.transactional_id), t) for t in transactions.rows if not t.ghost
    )
    rows = [_txn_row(prefix, ids, transactions, now, earlier) for prefix, ids in by_prefix.items()]
    return sorted(rows, key=lambda r: (-r.transactional_ids, r.prefix))


def _txn_row(
    prefix: str,
    ids: Sequence[TransactionFacts],
    transactions: Transactions,
    now: int,
    earlier: EarlierIds | None,
) -> TxnSummaryRow:
    idle = [t for t in ids if t.state not in OPEN_STATES]
    known = [
        (seconds, t.transactional_id)
        for t in idle
        if (seconds := _idle_seconds(t, transactions, now)) is not None
    ]
    oldest = max(known, default=(None, None))
    new = None if earlier is None else _new_ids(ids, transactions, earlier.transactions)
    return TxnSummaryRow(
        prefix=prefix,
        transactional_ids=len(ids),
        open=len(ids) - len(idle),
        idle=len(idle),
        oldest_idle_seconds=oldest[0],
        oldest_idle_id=oldest[1],
        idle_unknown=len(idle) - len(known),
        states=dict(sorted(Counter(t.state for t in ids).items())),
        new_ids=new,
        new_per_hour=per_hour(new, earlier),
    )


def _idle_seconds(t: TransactionFacts, transactions: Transactions, now: int) -> float | None:
    if t.start_timestamp is None:
        return None
    return seconds_since(t.start_timestamp, now + (transactions.ahead(t.coordinator) or 0))


def _new_ids(
    ids: Iterable[TransactionFacts], transactions: Transactions, before: Transactions
) -> int | None:
    """Return how many ids the first look did not list; None: one of both was not complete."""
    if not (transactions.complete and before.complete):
        return None
    known = {t.transactional_id for t in before.rows}
    return sum(t.transactional_id not in known for t in ids)
