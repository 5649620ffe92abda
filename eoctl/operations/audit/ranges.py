"""The offsets that an audit reads, resolved once. `eoctl.engine.audit_reading` reads them."""

from collections.abc import Sequence

from eoctl.engine.audit_reading import AuditOptions, columns, not_read, seen_by_readers
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect import offset_answers
from recovery.audit.audit_request import Resolved
from recovery.facts import Missing, PartitionFacts
from recovery.selectors import Selector
from recovery.shared.offset_bounds import Bound, range_problem

__all__ = [
    "WATERMARK",
    "AuditOptions",
    "Resolved",
    "as_resolved",
    "columns",
    "not_read",
    "resolve",
    "seen_by_readers",
]
WATERMARK = Bound("hw", "hw")


async def resolve(
    cluster: Cluster, selectors: Sequence[Selector], start: Bound, end: Bound
) -> tuple[list[Resolved], list[Missing]]:
    """Return the ranges of the partitions named, and what cannot be read.

    The latter: a selector that matches nothing, an offset out of range.
    """
    facts, ranges, missing = await offset_answers.bounded(cluster, selectors, start, end)
    resolved: list[Resolved] = []
    for f in facts:
        if (partition := f.topic_partition) in ranges:
            one = _resolved(f, *ranges[partition])
            if isinstance(one, Resolved):
                resolved.append(one)
            else:
                missing.append(one)
    return resolved, missing


def _resolved(facts: PartitionFacts, low: int, high: int) -> Resolved | Missing:
    problem = range_problem(low, high, facts)
    if problem is None and facts.log_start_offset is not None and low < facts.log_start_offset:
        text = f"{low} is below the log start {facts.log_start_offset}"
        problem = "OFFSET_OUT_OF_RANGE", text
    if problem is not None:
        return Missing("partition", *problem, None, facts.topic, facts.partition)
    return as_resolved(facts, low, high)


def as_resolved(facts: PartitionFacts, start: int, end: int) -> Resolved:
    """Return [start, end) of a partition whose offsets are all known."""
    assert facts.log_start_offset is not None
    assert facts.last_stable_offset is not None
    assert facts.high_watermark is not None
    return Resolved(
        facts.topic,
        facts.partition,
        start,
        end,
        facts.log_start_offset,
        facts.last_stable_offset,
        facts.high_watermark,
    )
