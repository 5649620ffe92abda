"""Torn transactions: what coordinators decided against the markers that partitions hold.

A Prepare* record of `__transaction_state` names every partition of a transaction; each of them that
has data must have the marker of that decision next. Transactions v2 (KIP-890) have an epoch each,
so data, decision and marker meet by epoch. v1 has one epoch for many: they meet by order and time.
Compaction takes Prepare* records away: what it took is `unproven`, never judged. Under v2 data of
one (producer id, epoch) that was committed here and aborted there is torn even so.
Kafka 4.0.0 raised the epoch twice where InitProducerId aborted an open v2 transaction
(KAFKA-19367): decision and marker are two above the data then, and no data is one below.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.audit.by_order import MISSING, TORN, WRONG, TransactionFault, judge_by_order
from recovery.audit.facts import Coverage, Ending, Endings, Mark
from recovery.facts import TopicPartition
from recovery.inspect.history import Decision

_SEVERITY = (TORN, MISSING, WRONG)


@dataclass(frozen=True, slots=True)
class Torn:
    """A transaction that is not whole. decision None: its record is compacted away."""

    kind: TransactionFault
    producer_id: int
    epoch: int
    decision: Decision | None
    partitions: tuple[tuple[TopicPartition, Ending], ...]


def judge(covered: Iterable[Coverage], endings: Endings, skew: int) -> list[Torn]:
    """Every transaction that is not whole in the partitions that were read.

    skew: how far the clocks of two brokers may be apart, ms; matters for transactions v1 only.
    """
    covered = list(covered)
    decisions = [d for c in covered for d in c.decisions]
    whole = {c.transactional_id for c in covered if c.whole}
    torn: list[Torn] = []
    by_epoch = _by_epoch(endings)
    v1: dict[tuple[TopicPartition, int], list[Decision]] = {}
    known = {(d.producer_id, d.producer_epoch - 1) for d in decisions if d.client_version >= 2}
    twice: set[tuple[int, int]] = set()
    for d in decisions:
        if d.client_version >= 2:
            if _raised_twice(d, by_epoch, known):
                twice.add((d.producer_id, d.producer_epoch - 2))
                torn += _judge_v2(d, by_epoch, d.producer_epoch - 2)
            else:
                torn += _judge_v2(d, by_epoch, d.producer_epoch - 1)
        else:
            for place in d.partitions:
                v1.setdefault((place, d.producer_id), []).append(d)
    problems: dict[int, list[tuple[str, TopicPartition, Ending]]] = {}
    by_number = {id(d): d for d in decisions}
    for (place, pid), named in v1.items():
        for d, kind, ending in judge_by_order(
            named, endings.get(place, {}).get(pid, ()), whole, skew
        ):
            problems.setdefault(id(d), []).append((kind, place, ending))
    for number, wrong in problems.items():
        d = by_number[number]
        torn.append(_torn(d, d.producer_epoch, [(k, p, e) for k, p, e in wrong]))
    torn += _without_decision(by_epoch, known | twice)
    return sorted(torn, key=rank)


def rank(torn: Torn) -> tuple[int, int, TopicPartition]:
    """Findings are told in this order. What `judge` finds of a producer id depends on the decisions
    and endings of no other."""
    return torn.producer_id, torn.epoch, torn.partitions[0][0]


def of_producers(covered: Iterable[Coverage]) -> dict[int, list[Coverage]]:
    """Return what is covered of each producer id's decisions."""
    coverages: dict[int, list[Coverage]] = {}
    for c in covered:
        decisions: dict[int, list[Decision]] = {}
        for d in c.decisions:
            decisions.setdefault(d.producer_id, []).append(d)
        for pid, own in decisions.items():
            coverages.setdefault(pid, []).append(replace(c, decisions=tuple(own)))
    return coverages


def _torn(
    decision: Decision | None,
    epoch: int,
    wrong: Sequence[tuple[str, TopicPartition, Ending]],
    right: Sequence[tuple[TopicPartition, Ending]] = (),
    producer_id: int = -1,
) -> Torn:
    kinds = {kind for kind, _, _ in wrong}
    return Torn(
        kind=next(kind for kind in _SEVERITY if kind in kinds),
        producer_id=decision.producer_id if decision else producer_id,
        epoch=epoch,
        decision=decision,
        partitions=tuple(
            sorted([*((place, ending) for _, place, ending in wrong), *right], key=_place)
        ),
    )


def _place(part: tuple[TopicPartition, Ending]) -> tuple[TopicPartition, int]:
    place, ending = part
    return place, ending.data.first if ending.data else -1


_ByEpoch = Mapping[tuple[TopicPartition, int, int], Sequence[Ending]]
"""(partition, producer id, epoch of the data)"""


def _by_epoch(endings: Endings) -> _ByEpoch:
    by_epoch: dict[tuple[TopicPartition, int, int], list[Ending]] = {}
    for place, by_id in endings.items():
        for pid, of_id in by_id.items():
            for ending in of_id:
                if ending.data is not None:
                    by_epoch.setdefault((place, pid, ending.data.epoch), []).append(ending)
    return by_epoch


def _raised_twice(d: Decision, by_epoch: _ByEpoch, known: set[tuple[int, int]]) -> bool:
    """Return True if an abort of Kafka 4.0.0 raised the epoch twice.

    Then no data has the epoch one below, and no marker or decision of its own ended that two below.
    """
    pid, epoch = d.producer_id, d.producer_epoch
    if d.outcome != "abort" or (pid, epoch - 2) in known:
        return False
    if any((place, pid, epoch - 1) in by_epoch for place in d.partitions):
        return False
    before = [e for p in d.partitions for e in by_epoch.get((p, pid, epoch - 2), ())]
    return bool(before) and all(e.mark is None or e.mark.epoch >= epoch for e in before)


def _judge_v2(d: Decision, by_epoch: _ByEpoch, epoch: int) -> list[Torn]:
    """Judge by the data's epoch, which under v2 is only this transaction's."""
    wrong: list[tuple[str, TopicPartition, Ending]] = []
    right: list[tuple[TopicPartition, Ending]] = []
    for place in d.partitions:
        for ending in by_epoch.get((place, d.producer_id, epoch), ()):
            kind = _fault(d, ending.mark)
            if kind is None:
                right.append((place, ending))
            else:
                wrong.append((kind, place, ending))
    return [_torn(d, epoch, wrong, right)] if wrong else []


def _fault(d: Decision, mark: Mark | None) -> str | None:
    if mark is None:
        # while markers are being written, one that is not there is not missing
        return None if d.completed_at is None else MISSING
    if mark.epoch > d.producer_epoch:
        return WRONG
    return None if mark.outcome == d.outcome else TORN


def _without_decision(by_epoch: _ByEpoch, known: set[tuple[int, int]]) -> list[Torn]:
    """Return what the partitions prove alone, where no decision is left.

    A commit with the epoch above that of its data is v2's, and its only transaction: an abort
    elsewhere tears it. A marker two epochs above was meant for another transaction, but for an
    abort that raised the epoch twice: no data and no marker has the epoch between the two then.
    """
    between = {(pid, epoch) for _, pid, epoch in by_epoch}
    endings: dict[tuple[int, int], list[tuple[TopicPartition, Ending]]] = {}
    for (place, pid, epoch), ended in by_epoch.items():
        if (pid, epoch) not in known:
            closed = [(place, ending) for ending in ended if ending.mark is not None]
            endings.setdefault((pid, epoch), []).extend(closed)
    torn = []
    for (pid, epoch), several in endings.items():
        marks = [e.mark for _, e in several if e.mark]
        is_v2 = any(m.outcome == "commit" and m.epoch == epoch + 1 for m in marks)
        own = (pid, epoch + 1) in between or any(m.epoch == epoch + 1 for m in marks)
        wrong: list[tuple[str, TopicPartition, Ending]] = []
        right: list[tuple[TopicPartition, Ending]] = []
        for place, ending in several:
            mark = ending.mark
            assert mark is not None
            twice = mark.outcome == "abort" and mark.epoch == epoch + 2 and not own
            if mark.epoch > epoch + 1 and not twice:
                wrong.append((WRONG, place, ending))
            elif is_v2 and mark.outcome == "abort":
                wrong.append((TORN, place, ending))
            else:
                right.append((place, ending))
        if wrong:
            torn.append(_torn(None, epoch, wrong, right, pid))
    return torn
