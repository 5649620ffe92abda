"""Find transactions that a mirror has in part: the source committed them, a failover cut them.

A mirror copies each partition in its order, so up to an offset it has all of a partition. What
belongs to one transaction is known as in `recovery.audit.transactions`: under v2 by the epoch of
its data, under v1 by the coordinators' decisions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from recovery.audit.by_order import decisions_of, decisions_of_open
from recovery.audit.transaction_facts import Coverage, Ending, Endings
from recovery.facts import HasPartition, TopicPartition, grouped
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.inspect.history import Decision
from recovery.values import Value

WhyUnproven = Literal[
    "decision-gone",
    "not-compared",
    "no-data",
    "no-marker",
    "own-producer",
    "no-copies",
    "after-bundle",
    "undecided",
]


class CutPart(HasPartition, Value):
    """What a transaction wrote in a partition of the source: first and last offset.

    missing_from: the first of its offsets that the mirror may lack; None: it has the part.
    """

    topic: str
    partition: int
    first: int
    last: int
    missing_from: int | None


class AbsentPart(HasPartition, Value):
    """A partition that a committed transaction named, and of which the mirror has nothing of it.

    from_offset: after the mirror's last marker that is a copy, which has the source's offset; 0 =
    the mirror is empty. The source wrote the records at or after it.
    """

    topic: str
    partition: int
    from_offset: int


class CutTransaction(Value):
    """A committed transaction of which the mirror has a part and lacks another.

    decision None: its record is compacted away, and under v2 the markers prove the commit. absent:
    partitions of which nothing is known but that it wrote there: the source's log is gone.
    """

    producer_id: int
    epoch: int  # of its data
    decision: Decision | None
    parts: tuple[CutPart, ...]
    absent: tuple[AbsentPart, ...] = ()


class UnprovenPart(HasPartition, Value):
    """Why some transactions are not judged, and how many, by a partition of the source.

    decision-gone: the mirror lacks all that is known of them, and compaction removed the decisions
    that name their other partitions. not-compared: they wrote to this partition, and it is not
    among those compared. no-data: the mirror lacks a part of them, and nothing is left of what
    they wrote to this partition. no-marker: data that may be of a committed one or a later one.

    Of byte copies, judged without the source's log: own-producer: they may be of a producer of the
    mirror's cluster. no-copies: nothing in the mirror bears their producer ids. after-bundle: they
    ended after the decisions were read. undecided: they are open, and there is no decision that can
    only be theirs.
    """

    topic: str
    partition: int
    why: WhyUnproven
    transactions: int


class CutByMirror(Value):
    """cut: in the order of producer ids. unproven: sorted by partition."""

    cut: tuple[CutTransaction, ...]
    unproven: tuple[UnprovenPart, ...]


_Parts = list[tuple[CutPart, Decision | None]]
_Doubts = Counter[tuple[TopicPartition, WhyUnproven]]


def cut_by_mirror(
    covered: Iterable[Coverage],
    later: Iterable[Coverage],
    endings: Endings,
    reached: Mapping[TopicPartition, int],
    skew: int,
) -> CutByMirror:
    """Return the transactions that are cut, and where it is not known.

    covered, later: read before the partitions' ends were chosen, and after. reached: by partition
    of the source, the offset below which the mirror has all of it; partitions without a mirror are
    left out. skew: of brokers' clocks, ms.
    """
    known = _Known(covered, later, skew)
    parts: dict[tuple[int, ...], _Parts] = {}
    doubts: _Doubts = Counter()
    for partition, end in reached.items():
        for pid, ended in endings.get(partition, {}).items():
            for one, decision in known.of(partition, pid, ended, doubts):
                assert one.data is not None
                data = one.data
                key: tuple[int, ...]
                missing = max(data.first, end) if data.last >= end else None
                part = CutPart(*partition, data.first, data.last, missing)
                if decision is not None:
                    key = (pid, data.epoch, *_place(decision))
                elif _is_v2(one):
                    key = (pid, data.epoch)
                else:  # alone: nothing connects it with others
                    key = (pid, data.epoch, len(parts), -1)
                parts.setdefault(key, []).append((part, decision))
    for of in parts.values():
        doubts.update(known.doubts([part for part, _ in of], of[0][1], reached))
    cut = [_cut(key, of) for key, of in sorted(parts.items()) if _is_cut(p for p, _ in of)]
    unproven = [UnprovenPart(*where, why, n) for (where, why), n in sorted(doubts.items())]
    return CutByMirror(tuple(cut), tuple(unproven))


class _Known:
    """What decides each transaction: a decision, or its marker alone."""

    def __init__(self, covered: Iterable[Coverage], later: Iterable[Coverage], skew: int) -> None:
        before = {_place(d): d for c in covered for d in c.decisions}
        decisions = before | {_place(d): d for c in later for d in c.decisions}
        self._skew = skew
        self._before = before.keys()
        self._unmarked: set[tuple[TopicPartition, int]] = set()
        self._settled = {place for place, d in before.items() if d.completed_at is not None}
        self._v2 = {
            (d.producer_id, d.producer_epoch - 1): d
            for d in decisions.values()
            if d.client_version >= 2
        }
        self._v1 = grouped(
            ((p, d.producer_id), d)
            for d in decisions.values()
            if d.client_version < 2
            for p in d.partitions
        )

    def of(
        self, partition: TopicPartition, pid: int, ended: Iterable[Ending], doubts: _Doubts
    ) -> Iterator[tuple[Ending, Decision | None]]:
        """Yield the committed data of an id in a partition, each with its decision."""
        ended = list(ended)
        named = self._v1.get((partition, pid), ())
        by_mark = decisions_of(named, ended, self._skew)
        for one in ended:
            if one.data is None:
                continue
            decision = self._v2.get((pid, one.data.epoch))
            if decision is None and one.mark is not None:
                decision = by_mark.get(one.mark)
            elif decision is None:
                may_be = decisions_of_open(named, by_mark, one.data)
                if may_be and _place(may_be[0]) not in self._settled:
                    decision = may_be[0]  # no later transaction can have begun before its marker
                elif any(d.outcome == "commit" for d in may_be):
                    doubts[partition, "no-marker"] += 1
                    self._unmarked.add((partition, pid))
            outcome = one.mark.outcome if one.mark is not None else None
            if (outcome if decision is None else decision.outcome) == "commit":
                yield one, decision

    def doubts(
        self,
        parts: list[CutPart],
        decision: Decision | None,
        reached: Mapping[TopicPartition, int],
    ) -> Iterator[tuple[TopicPartition, WhyUnproven]]:
        """Yield the partitions in which the mirror may have a part or lack one."""
        lacks = any(p.missing_from is not None for p in parts)
        if decision is None:
            if lacks and not _is_cut(parts):
                for where in {p.topic_partition for p in parts}:
                    yield where, "decision-gone"
            return
        for where in set(decision.partitions) - {p.topic_partition for p in parts}:
            if where.topic == CONSUMER_OFFSETS:
                continue
            if where not in reached:
                yield where, "not-compared"
            # what was decided later may be written after both ends, the mirror's being the first
            elif (
                lacks
                and _place(decision) in self._before
                and (where, decision.producer_id) not in self._unmarked
            ):
                yield where, "no-data"


def _place(decision: Decision) -> tuple[int, int]:
    return decision.state_partition, decision.offset


def _is_v2(one: Ending) -> bool:
    """Return True if the marker's epoch shows a transaction of its own (KIP-890)."""
    return one.data is not None and one.mark is not None and one.mark.epoch == one.data.epoch + 1


def _is_cut(parts: Iterable[CutPart]) -> bool:
    parts = list(parts)
    has = any(p.missing_from is None or p.missing_from > p.first for p in parts)
    return has and any(p.missing_from is not None for p in parts)


def _cut(key: tuple[int, ...], parts: _Parts) -> CutTransaction:
    ordered = sorted(parts, key=lambda p: (p[0].topic, p[0].partition, p[0].first))
    return CutTransaction(key[0], key[1], parts[0][1], tuple(part for part, _ in ordered))
