"""Read a partition at one moment: its offsets and producers, as its leader saw them together.

A busy partition moves on between two requests: a transaction that began after the offsets were
given starts at or above their high watermark, and one that ended holds nothing. So a leader gets
all questions on one connection, where it answers in order, and the LSO before and after the
producers. A partition whose LSO moved between them is asked again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from eoctl.kafka.ask.collect import (
    MOVED,
    led_now,
    not_given,
    offset_questions,
    offset_rows,
    offsets_of,
    producers_not_seen,
    producers_of,
    producers_question,
)
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, TopicMetadata
from eoctl.kafka.connection.failures import WireError
from recovery.facts import Missing, PartitionFacts, ProducerFacts, TopicPartition

TRIES = 5
"""How often a partition is asked whose LSO, or leader, moved between the questions."""

Producers = dict[TopicPartition, tuple[ProducerFacts, ...]]


async def at_one_moment(
    cluster: Cluster, topics: Iterable[TopicMetadata], partitions: Sequence[PartitionMetadata]
) -> tuple[list[PartitionFacts], Producers, list[Missing]]:
    """Return offsets of `partitions`, in their order, and the producers at that moment.

    Of a partition without producers in the second part, or with an error in the first, the third
    part says why. One that moved TRIES times has producers of a moment before its offsets.
    """
    ids = {t.name: t.topic_id for t in topics}
    facts: dict[TopicPartition, PartitionFacts] = {}
    producers: Producers = {}
    missing: list[Missing] = []
    todo = list(partitions)
    for left in reversed(range(TRIES)):
        if not todo:
            break
        asked = {p.topic_partition for p in todo}
        missing = [m for m in missing if m.topic_partition not in asked]
        new, states, more, steady = await _ask(cluster, ids, todo)
        facts |= new
        producers = {
            topic_partition: rows
            for topic_partition, rows in producers.items()
            if topic_partition not in asked
        }
        producers |= states
        missing += [m for m in more if m not in missing]
        if left:
            refused = {m.topic_partition for m in more if m.error in MOVED}
            refused |= {topic_partition for topic_partition, f in new.items() if f.error in MOVED}
            moved = [p for p in todo if p.topic_partition in refused]
            on_the_move = [
                p
                for p in todo
                if (topic_partition := p.topic_partition) not in refused
                and new[topic_partition].error is None
                and topic_partition not in steady
            ]
            todo = [*(await led_now(cluster, ids, moved) if moved else ()), *on_the_move]
    in_order = [facts[p.topic_partition] for p in partitions]
    return in_order, producers, [*missing, *not_given(in_order, missing)]


async def _ask(
    cluster: Cluster, ids: dict[str, str | None], partitions: Sequence[PartitionMetadata]
) -> tuple[dict[TopicPartition, PartitionFacts], Producers, list[Missing], set[TopicPartition]]:
    """Ask each leader once. Last value: the partitions whose LSO did not move meanwhile."""
    before: dict[TopicPartition, int] = {}
    producers: Producers = {}
    refused: list[Missing] = []

    async def describe(broker: int, mine: Sequence[PartitionMetadata]) -> Any:
        try:
            return await cluster.ask(broker, producers_question(mine))
        except WireError as error:
            if error.error != "UNSUPPORTED_VERSION":
                raise
            if broker not in {m.broker for m in refused}:
                refused.append(producers_not_seen(broker, error, len(mine)))
            return None

    async def ask(broker: int, mine: Sequence[PartitionMetadata]) -> Sequence[Any]:
        high, stable, start = offset_questions(mine)
        # pipelined on one connection: the broker answers in this order
        first, described, *offsets = await asyncio.gather(
            cluster.ask(broker, stable, most=5),
            describe(broker, mine),
            *(cluster.ask(broker, q, most=5) for q in (high, stable, start)),
        )
        before.update(
            {topic_partition: row.offset for topic_partition, row in offset_rows(first).items()}
        )
        if described is not None:
            states, more = producers_of(broker, described)
            producers.update(states)
            asked = {p.topic_partition for p in mine}
            refused[:] = [m for m in refused if m.topic_partition not in asked]
            refused.extend(more)
        return offsets

    facts, missing = await offsets_of(cluster, ids, partitions, ask)
    steady = {
        topic_partition
        for topic_partition, f in facts.items()
        if f.last_stable_offset == before.get(topic_partition, -1)
    }
    return facts, producers, [*missing, *refused], steady
