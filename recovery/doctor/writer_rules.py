"""Who writes the outputs that an application file says are written by one application alone."""

from collections.abc import Iterator, Sequence

from recovery.doctor.findings import DoctorFacts, Finding, unseen
from recovery.facts import ProducerFacts, grouped
from recovery.inspect.growth.prefixes import prefix_of
from recovery.inspect.rights import IDS_DESCRIBE, TOPICS_READ
from recovery.restart.producers import ended_a_transaction
from recovery.values import Reason

PLAIN = None
"""The prefix of producers without a transactional id: restarts of one application may be many."""


def two_writers(facts: DoctorFacts) -> Iterator[Finding]:
    """Find exclusive outputs that producers of two applications wrote, as brokers remember them."""
    outputs = facts.outputs
    if outputs is None:
        return
    rows = [p for states in outputs.producers.values() for p in states]
    for topic, mine in sorted(grouped((p.topic, p) for p in rows).items()):
        writers = _writers(facts, mine)
        if len(writers) > 1:
            yield Finding("topic", topic, (Reason("writers", {"writers": writers}),))
    of_ids = [m for m in outputs.missing if m.scope in ("coordinator", "transaction")]
    yield from unseen(of_ids, IDS_DESCRIBE, "transactional-id")
    yield from unseen((m for m in outputs.missing if m not in of_ids), TOPICS_READ, "topic")


def _writers(facts: DoctorFacts, producers: Sequence[ProducerFacts]) -> list[dict[str, object]]:
    """Return the applications of a topic's producers, the newest writer first.

    Left out is a producer of transactions whose id is forgotten: it may be of any application.
    """
    seen = facts.outputs
    listed = seen.transactions.rows if seen is not None and seen.transactions is not None else ()
    owners = {t.producer_id: t.transactional_id for t in listed}
    known = [p for p in producers if p.producer_id in owners or not _is_transactional(p)]
    by_prefix = grouped(
        (prefix_of(owners[p.producer_id]) if p.producer_id in owners else PLAIN, p) for p in known
    )
    rows = []
    for prefix, mine in by_prefix.items():
        last = max(mine, key=lambda p: p.last_timestamp or 0)
        row = {"prefix": prefix, "producers": len({p.producer_id for p in mine})}
        rows.append((last.last_timestamp or 0, row, last))
    return [
        {**row, "partition": last.partition, "last_timestamp": last.last_timestamp}
        for _, row, last in sorted(rows, key=lambda one: -one[0])
    ]


def _is_transactional(producer: ProducerFacts) -> bool:
    return producer.current_txn_start_offset is not None or ended_a_transaction(producer)
