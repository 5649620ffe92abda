"""`producers --summary` and `txn list --summary`: what grows, counted, and how fast."""

import asyncio

from eoctl.operations.inspect.lists import CLOCK_SKEW_MS, Scope, TxnFilter
from eoctl.operations.inspect.source import Source
from recovery.answers import Answer, error_rows
from recovery.facts import Missing, grouped
from recovery.inspect.growth.growth_rows import InternalTopicRow
from recovery.inspect.growth.internal_topics import internal_topics
from recovery.inspect.growth.summaries import (
    Earlier,
    EarlierIds,
    producers_summary,
    txn_summary,
)
from recovery.inspect.inspection import clock_notes
from recovery.selectors import parse_selector
from recovery.watch.growth_rules import INTERNAL_TOPICS

ABSENT = "UNKNOWN_TOPIC_OR_PARTITION"


async def count_producers(
    source: Source, scope: Scope, *, resolve: bool, pause: float | None, top: int
) -> Answer:
    """Count the producers in scope by broker, topic, partition and, with resolve, prefix.

    pause: seconds until a second snapshot, which gives the rate; None: only one is taken. top: rows
    of each kind, the most states first; 0 = all.
    """
    earlier = None if pause is None else await source.producers(scope, (), resolve=False)
    await asyncio.sleep(pause or 0.0)
    facts = await source.producers(scope, (), resolve=resolve)
    before = (
        None
        if earlier is None
        else Earlier(earlier, (facts.collected_at - earlier.collected_at) / 1000)
    )
    leaders = {p.topic_partition: p.leader for p in facts.partitions}
    by = grouped((row.by, row) for row in producers_summary(facts, leaders, before))
    producers = [p for found in facts.producers.values() for p in found]
    return Answer(
        schema="producers-summary",
        cluster_id=facts.cluster_id,
        collected_at=facts.collected_at,
        rows=[row for mine in by.values() for row in mine[: top or None]],
        errors=error_rows(facts.missing),
        extra={
            "scanned": facts.scanned,
            "producer_states": len(producers),
            "producer_ids": len({p.producer_id for p in producers}),
            "pause_seconds": None if before is None else before.seconds,
            "left_out": {name: len(mine[top:]) if top else 0 for name, mine in by.items()},
        },
        notes=facts.notes,
    )


async def _internal_topics(source: Source) -> tuple[list[InternalTopicRow], list[Missing]]:
    """Return how full Kafka's internal topics are; one that was never created has no row."""
    facts = await source.look(Scope(tuple(map(parse_selector, INTERNAL_TOPICS))))
    sizes, missing = await source.log_sizes(sorted({p.topic for p in facts.partitions}))
    seen = [m for m in facts.missing if m.scope != "topic" or m.error != ABSENT]
    return internal_topics(facts, sizes), [*seen, *missing]


async def count_ids(source: Source, filter_: TxnFilter, *, pause: float | None, top: int) -> Answer:
    """Count the transactional ids that pass the filter, by prefix. pause, top: as for producers."""
    earlier = None
    if pause is not None:
        began = source.now()
        first = await source.transactions(filter_, describe=False)
        await asyncio.sleep(pause)
        earlier = EarlierIds(first, (source.now() - began) / 1000)
    transactions = await source.transactions(filter_, describe=True)
    now = source.now()
    rows = txn_summary(transactions, now, earlier)
    internal, missing = await _internal_topics(source)
    return Answer(
        schema="txn-list-summary",
        cluster_id=source.cluster_id,
        collected_at=now,
        rows=rows[: top or None],
        errors=error_rows(dict.fromkeys([*transactions.missing, *missing])),
        extra={
            "internal_topics": [row.json_values() for row in internal],
            "transactional_ids": sum(row.transactional_ids for row in rows),
            "open": sum(row.open for row in rows),
            "prefixes": len(rows),
            "pause_seconds": None if earlier is None else earlier.seconds,
            "left_out": len(rows) - len(rows[: top or None]),
            "coordinators": len(transactions.coordinators),
            "coordinators_seen": sum(c.seen for c in transactions.coordinators),
        },
        notes=clock_notes(transactions, CLOCK_SKEW_MS),
    )
