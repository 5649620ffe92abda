"""`lso`, `txn list`, `txn describe`, `producers`: show what the brokers say, side by side.

Each function asks a Source for facts and returns an Answer.
"""

from collections.abc import Sequence

from eoctl.kafka.ask import coordinators
from eoctl.operations.inspect.connect_owners import connect_rows
from eoctl.operations.inspect.lists import CLOCK_SKEW_MS, Scope, TxnFilter
from eoctl.operations.inspect.source import Source
from recovery.answers import Answer, error_rows
from recovery.facts import Facts, PartitionFacts, TransactionFacts
from recovery.inspect.inspection import (
    OPEN_STATES,
    clock_notes,
    lso_row,
    producer_rows,
    txn_describe_rows,
    txn_list_rows,
)
from recovery.values import replace


async def lso(source: Source, scope: Scope, *, show_all: bool = False) -> Answer:
    """Return log start, LSO, high watermark and what blocks.

    Without selectors only held partitions and those that could not be seen; show_all adds the
    healthy ones, scope.internal the healthy ones of internal topics.
    """
    facts = await source.look(replace(scope, internal=True))
    return lso_answer(facts, scope, show_all=show_all)


def lso_answer(facts: Facts, scope: Scope, *, show_all: bool) -> Answer:
    """Return the answer of `lso` from facts, of a live cluster or a bundle."""

    def shown(p: PartitionFacts) -> bool:
        if p.held != 0 or scope.selectors:
            return True
        return scope.internal if p.topic.startswith("__") else show_all

    return Answer(
        schema="lso",
        cluster_id=facts.cluster_id,
        collected_at=facts.collected_at,
        rows=[lso_row(p, facts) for p in facts.partitions if shown(p)],
        errors=error_rows(facts.missing),
        extra={"scanned": facts.scanned, "held_back": sum(bool(p.held) for p in facts.partitions)},
        notes=facts.notes,
    )


async def txn_list(source: Source, filter_: TxnFilter) -> Answer:
    """Return every coordinator's transactions that pass the filter."""
    transactions = await source.transactions(filter_, describe=True)
    now = source.now()
    return Answer(
        schema="txn-list",
        cluster_id=source.cluster_id,
        collected_at=now,
        rows=txn_list_rows(transactions.rows, now, transactions),
        errors=error_rows(transactions.missing),
        notes=clock_notes(transactions, CLOCK_SKEW_MS),
        extra={
            "open": len(open_transactions(transactions.rows)),
            "coordinators": len(transactions.coordinators),
            "coordinators_seen": sum(c.seen for c in transactions.coordinators),
        },
    )


async def txn_describe(source: Source, ids: Sequence[str]) -> Answer:
    """Return the named transactional ids, with their partitions."""
    transactions, count = await source.find(ids)
    now = source.now()
    # its own coordinator says so: that is a complete answer
    absent = [m.id for m in transactions.missing if m.error == coordinators.NOT_FOUND and count]
    missing = [m for m in transactions.missing if m.id not in absent]
    connect = await connect_rows(source, [t.transactional_id for t in transactions.rows])
    return Answer(
        schema="txn-describe",
        cluster_id=source.cluster_id,
        collected_at=now,
        rows=txn_describe_rows(transactions, count or 1, now, connect),
        errors=error_rows(missing),
        notes=(
            *clock_notes(transactions, CLOCK_SKEW_MS),
            *(
                f"{name} does not exist: its coordinator does not know this transactional id (it "
                "was never used, or has expired)"
                for name in absent
            ),
        ),
    )


async def producers(
    source: Source,
    scope: Scope,
    *,
    producer_ids: Sequence[int] = (),
    resolve: bool = False,
) -> Answer:
    """Return the producers in scope; resolve: with transactional ids and zombies."""
    facts = await source.producers(scope, producer_ids, resolve=resolve)
    return Answer(
        schema="producers",
        cluster_id=facts.cluster_id,
        collected_at=facts.collected_at,
        rows=producer_rows(facts, resolve=resolve),
        errors=error_rows(facts.missing),
        extra={"scanned": facts.scanned},
        notes=facts.notes,
    )


def open_transactions(rows: Sequence[TransactionFacts]) -> list[TransactionFacts]:
    """Return the open ones: Ongoing or Prepare*."""
    return [t for t in rows if t.state in OPEN_STATES]
