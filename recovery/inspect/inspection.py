"""Turn facts into the rows of `lso`, `producers`, `txn list` and `txn describe`. No judgement."""

from collections.abc import Iterable, Mapping, Sequence

from recovery.facts import Facts, PartitionFacts, ProducerFacts, TransactionFacts, Transactions
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.cluster_rows import (
    AgeClock,
    Blocking,
    ConnectRow,
    LsoRow,
    ProducerRow,
    TxnDescribeRow,
    TxnListRow,
    TxnPartition,
)
from recovery.times import format_duration

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def lso_row(p: PartitionFacts, facts: Facts) -> LsoRow:
    """Return a partition's offsets, and the transaction at its LSO if the facts show it."""
    blocking, known = None, True
    if p.held is None:
        known = False
    elif p.held > 0:
        blocking, known = _blocking(p, facts)
    return LsoRow(  # LsoRow.of takes three times as long, and `lso --all` makes thousands
        topic=p.topic,
        topic_id=p.topic_id,
        partition=p.partition,
        leader=p.leader,
        leader_epoch=p.leader_epoch,
        log_start_offset=p.log_start_offset,
        last_stable_offset=p.last_stable_offset,
        high_watermark=p.high_watermark,
        held=p.held,
        blocking=blocking,
        blocking_known=known,
        error=p.error,
    )


def blocking_producer(producers: Iterable[ProducerFacts]) -> ProducerFacts | None:
    """Return the producer whose open transaction begins first, which holds the LSO."""
    opened = [p for p in producers if p.current_txn_start_offset is not None]
    return min(opened, key=lambda p: p.current_txn_start_offset or 0, default=None)


def _blocking(p: PartitionFacts, facts: Facts) -> tuple[Blocking | None, bool]:
    producers = facts.producers.get(p.topic_partition)
    if producers is None:
        return None, False
    producer = blocking_producer(producers)
    if producer is None or producer.current_txn_start_offset is None:
        return None, True  # it ended between the two requests
    owner = owner_of(producer.producer_id, facts.transactions)
    age: float | None = None
    clock: AgeClock | None = None
    if (
        owner is not None
        and owner.state in OPEN_STATES
        and p.topic_partition in (owner.partitions or ())
        and owner.start_timestamp is not None
    ):
        ahead = facts.transactions.ahead(owner.coordinator) if facts.transactions else None
        now = facts.collected_at + (ahead or 0)
        age, clock = seconds_since(owner.start_timestamp, now), "coordinator"
    elif producer.last_timestamp is not None:
        age, clock = seconds_since(producer.last_timestamp, facts.collected_at), "producer"
    if age is None:
        clock = None
    return (
        Blocking(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional_id=owner.transactional_id if owner else None,
            start_offset=producer.current_txn_start_offset,
            last_timestamp=producer.last_timestamp,
            age_seconds=age,
            age_clock=clock,
        ),
        True,
    )


def owner_of(producer_id: int, transactions: Transactions | None) -> TransactionFacts | None:
    """Return the id that a coordinator lists with this producer id, preferably an open one."""
    if transactions is None:
        return None
    owners = sorted(transactions.owners(producer_id), key=lambda t: t.state not in OPEN_STATES)
    return owners[0] if owners else None


def seconds_since(then_ms: int, now_ms: int) -> float | None:
    """Return the seconds between two epoch times, to the ms; None where the clocks disagree."""
    return (now_ms - then_ms) / 1000 if now_ms >= then_ms else None


def producer_rows(facts: Facts, *, resolve: bool) -> list[ProducerRow]:
    """Return one row per producer and partition, by topic, partition, producer id.

    resolve: fill in `stale_epoch` and the transactional ids from the coordinators (none if the id
    has another producer id by now).
    """
    rows: list[ProducerRow] = []
    for producers in facts.producers.values():
        for p in producers:
            owner = owner_of(p.producer_id, facts.transactions) if resolve else None
            older = older_epoch(p, owner, facts.transaction_version)
            rows.append(
                ProducerRow.of(
                    p,
                    transactional_id=owner.transactional_id if owner else None,
                    older_epoch=older,
                    stale_epoch=stale_epoch(p, owner, facts.transaction_version),
                    wrote_after_fence=wrote_after_fence(p, owner) if older and owner else None,
                    error=None,
                )
            )
    return sorted(rows, key=lambda r: (r.topic, r.partition, r.producer_id))


def older_epoch(
    producer: ProducerFacts, owner: TransactionFacts | None, transaction_version: int | None
) -> bool | None:
    """Return True if this producer's id has been initialised again since its last write here.

    That may be a newer process of the id or this very process: a client raises its own epoch after
    an error (KIP-360). Before transactions v2 an epoch rises only when a producer is initialised.
    Under v2 (KIP-890) it also rises at every end: equal epochs disprove an initialisation, and only
    the state Empty proves one, since nothing else writes that state. An open transaction of an
    older epoch may belong to a live producer: its end is being written, or its marker got lost.
    """
    if owner is None or owner.producer_epoch is None or transaction_version is None:
        return None
    lag = owner.producer_epoch - producer.producer_epoch
    if lag <= 0:
        return False
    return True if transaction_version < 2 or owner.state == "Empty" else None


def stale_epoch(
    producer: ProducerFacts, owner: TransactionFacts | None, transaction_version: int | None
) -> bool | None:
    """Return True if a process of an earlier incarnation writes (a zombie); None: not proven.

    A higher epoch proves that somebody holds it, but not who. `wrote_after_fence` finds what is
    open under the older epoch. A fence by eoctl would settle the other cases.
    """
    older = older_epoch(producer, owner, transaction_version)
    if not older or owner is None:
        return older
    return True if wrote_after_fence(producer, owner) else None


def wrote_after_fence(producer: ProducerFacts, owner: TransactionFacts) -> bool | None:
    """Return True if a stale epoch has a transaction open here, False if it is only the last seen.

    The coordinator ends the open transaction on each of its partitions before it gives out a newer
    epoch. So what is still open under the older one began later, or its marker was lost, provided
    that the partition was read after the coordinator. None while markers are being written. A
    producer that was fenced and came back (a worker that froze) leaves its last epoch here: Kafka
    refuses what it writes.
    """
    if producer.current_txn_start_offset is None:
        return False
    return None if owner.state.startswith("Prepare") else True


def clock_notes(transactions: Transactions, skew_ms: int) -> tuple[str, ...]:
    """Return a sentence per coordinator whose clock differs from ours by more than `skew_ms`."""
    return tuple(
        f"the clock of broker {c.broker} is {format_duration(abs(c.ahead) // 1000)} "
        f"{'ahead of' if c.ahead > 0 else 'behind'} this machine's: ages are by the broker's"
        for c in transactions.clocks
        if abs(c.ahead) > skew_ms
    )


def txn_list_rows(
    rows: Sequence[TransactionFacts], now_ms: int, transactions: Transactions | None = None
) -> list[TxnListRow]:
    """Return one row per transactional id, with an age only for open transactions.

    transactions: holds the coordinators' clocks, if they were measured.
    """
    transactions = transactions or Transactions()
    return [
        TxnListRow.of(
            t,
            age_seconds=open_age(t, now_ms + (transactions.ahead(t.coordinator) or 0)),
            partitions=None if t.partitions is None else len(t.partitions),
        )
        for t in rows
    ]


def open_age(t: TransactionFacts, now_ms: int) -> float | None:
    """Return the seconds since a transaction began; None: none is open, or the clocks disagree.

    now_ms: by the coordinator's clock.
    """
    if t.state not in OPEN_STATES or t.start_timestamp is None:
        return None
    return seconds_since(t.start_timestamp, now_ms)


def txn_describe_rows(
    transactions: Transactions,
    coordinator_partitions: int,
    now_ms: int,
    connect: Mapping[str, ConnectRow],
) -> list[TxnDescribeRow]:
    """Return one row per transactional id, with its transaction's partitions. now_ms: our clock.

    connect: by id, for ids that look like those of Kafka Connect.
    """
    return [
        TxnDescribeRow.of(
            t,
            coordinator_partition=coordinator_partition(t.transactional_id, coordinator_partitions),
            age_seconds=open_age(t, now_ms + (transactions.ahead(t.coordinator) or 0)),
            partitions=[TxnPartition(topic=a, partition=b) for a, b in t.partitions or ()],
            connect=connect.get(t.transactional_id),
        )
        for t in transactions.rows
    ]
