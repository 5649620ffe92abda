"""Find transactions that a mirror has in part: the source committed them, a failover cut them.

A mirror copies each partition in its order, so up to an offset it has all of a partition. What
belongs to one transaction is known as in `recovery.audit.transactions`: under v2 by the epoch of
its data, under v1 by the coordinators' decisions.
"""

from collections.abc import Iterable, Mapping

from recovery.audit.by_order import decisions_of
from recovery.audit.transaction_facts import Coverage, Ending, Endings
from recovery.facts import HasPartition, TopicPartition, grouped
from recovery.inspect.history import Decision
from recovery.values import Value


class CutPart(HasPartition, Value):
    """What a transaction wrote in a partition of the source: first and last offset.

    missing_from: the first of its offsets that the mirror may lack; None: it has the part.
    """

    topic: str
    partition: int
    first: int
    last: int
    missing_from: int | None


class CutTransaction(Value):
    """A committed transaction of which the mirror has a part and lacks another.

    decision None: its record is compacted away, and under v2 the markers prove the commit.
    """

    producer_id: int
    epoch: int  # of its data
    decision: Decision | None
    parts: tuple[CutPart, ...]


class CutByMirror(Value):
    """cut: in the order of producer ids. unproven: parts that the mirror lacks, of transactions v1
    whose decisions are compacted away: whether it has their other parts is not known."""

    cut: tuple[CutTransaction, ...]
    unproven: tuple[CutPart, ...]


def cut_by_mirror(
    covered: Iterable[Coverage],
    endings: Endings,
    reached: Mapping[TopicPartition, int],
    skew: int,
) -> CutByMirror:
    """Return the transactions that are cut.

    reached: by partition of the source, the offset below which the mirror has all of it; partitions
    without a mirror are left out. skew: of brokers' clocks, ms.
    """
    decisions = [d for c in covered for d in c.decisions]
    known = _Known(decisions, skew)
    parts: dict[tuple[int, ...], list[tuple[CutPart, Decision | None]]] = {}
    unproven: list[CutPart] = []
    for partition, end in reached.items():
        for pid, ended in endings.get(partition, {}).items():
            for one, decision in known.of(partition, pid, ended):
                assert one.data is not None
                data = one.data
                key: tuple[int, ...]
                missing = max(data.first, end) if data.last >= end else None
                part = CutPart(*partition, data.first, data.last, missing)
                if decision is not None:
                    key = (pid, data.epoch, decision.state_partition, decision.offset)
                elif _is_v2(one):
                    key = (pid, data.epoch)
                else:  # alone: nothing connects it with others
                    key = (pid, data.epoch, len(parts), -1)
                    if missing == data.first:
                        unproven.append(part)
                parts.setdefault(key, []).append((part, decision))
    cut = [_cut(key, of) for key, of in sorted(parts.items()) if _is_cut(p for p, _ in of)]
    return CutByMirror(tuple(cut), tuple(unproven))


class _Known:
    """What decides each transaction: a decision, or its marker alone."""

    def __init__(self, decisions: list[Decision], skew: int) -> None:
        self._skew = skew
        self._v2 = {
            (d.producer_id, d.producer_epoch - 1): d for d in decisions if d.client_version >= 2
        }
        self._v1 = grouped(
            ((p, d.producer_id), d) for d in decisions if d.client_version < 2 for p in d.partitions
        )

    def of(
        self, partition: TopicPartition, pid: int, ended: Iterable[Ending]
    ) -> Iterable[tuple[Ending, Decision | None]]:
        """Yield the committed data of an id in a partition, each with its decision."""
        ended = list(ended)
        by_mark = decisions_of(self._v1.get((partition, pid), ()), ended, self._skew)
        for one in ended:
            if one.data is None:
                continue
            decision = self._v2.get((pid, one.data.epoch))
            if decision is None and one.mark is not None:
                decision = by_mark.get(one.mark)
            outcome = one.mark.outcome if one.mark is not None else None
            if (outcome if decision is None else decision.outcome) == "commit":
                yield one, decision


def _is_v2(one: Ending) -> bool:
    """Return True if the marker's epoch shows a transaction of its own (KIP-890)."""
    return one.data is not None and one.mark is not None and one.mark.epoch == one.data.epoch + 1


def _is_cut(parts: Iterable[CutPart]) -> bool:
    parts = list(parts)
    has = any(p.missing_from is None or p.missing_from > p.first for p in parts)
    return has and any(p.missing_from is not None for p in parts)


def _cut(key: tuple[int, ...], parts: list[tuple[CutPart, Decision | None]]) -> CutTransaction:
    ordered = sorted(parts, key=lambda p: (p[0].topic, p[0].partition, p[0].first))
    return CutTransaction(key[0], key[1], parts[0][1], tuple(part for part, _ in ordered))
