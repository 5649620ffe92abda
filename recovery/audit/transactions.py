"""Find torn transactions: compare coordinators' decisions with the markers in the partitions.

A Prepare* record of `__transaction_state` names every partition of a transaction. In each of them
that has data, the next marker must be that of the decision. In transactions v2 (KIP-890) each has
its own epoch, which connects data, decision and marker. In v1 one epoch covers many, so order and
time connect them. A Prepare* record that compaction removed is `unproven`, never judged. But under
v2, data of one (producer id, epoch) that is committed here and aborted elsewhere is always torn.
Kafka 4.0.0 raised the epoch twice if InitProducerId aborted an open v2 transaction (KAFKA-19367):
decision and marker are then two above the data, and no data is one below.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from recovery.audit.by_order import MISSING, TORN, WRONG, TransactionFault, judge_by_order
from recovery.audit.transaction_facts import Coverage, Ending, Endings, Mark
from recovery.facts import HasPartition, TopicPartition, grouped
from recovery.inspect.history import Decision, Marker
from recovery.inspect.lost_markers import OwnMarker, Past, own_first, with_origins
from recovery.values import Value, replace

_SEVERITY = (TORN, MISSING, WRONG)


class Torn(Value):
    """A transaction that is not complete. decision None: compaction removed its record."""

    kind: TransactionFault
    producer_id: int
    epoch: int
    decision: Decision | None
    partitions: tuple[tuple[TopicPartition, Ending], ...]


def judge(covered: Iterable[Coverage], endings: Endings, skew: int) -> list[Torn]:
    """Return every transaction that is not complete in the partitions that were read.

    skew: how far the clocks of two brokers may differ, in ms; it matters for transactions v1 only.
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
            for partition in d.partitions:
                v1.setdefault((partition, d.producer_id), []).append(d)
    problems: dict[int, list[tuple[str, TopicPartition, Ending]]] = {}
    by_number = {id(d): d for d in decisions}
    for (partition, pid), named in v1.items():
        for d, kind, ending in judge_by_order(
            named, endings.get(partition, {}).get(pid, ()), whole, skew
        ):
            problems.setdefault(id(d), []).append((kind, partition, ending))
    for number, wrong in problems.items():
        d = by_number[number]
        torn.append(_torn(d, d.producer_epoch, [(k, p, e) for k, p, e in wrong]))
    torn += _without_decision(by_epoch, known | twice)
    return sorted(torn, key=rank)


def rank(torn: Torn) -> tuple[int, int, TopicPartition]:
    """Return the sort key of a finding. The findings of a producer id depend on no decisions or
    endings of others."""
    return torn.producer_id, torn.epoch, torn.partitions[0][0]


def of_producers(covered: Iterable[Coverage]) -> dict[int, list[Coverage]]:
    """Return the coverage of each producer id's decisions."""
    coverages: dict[int, list[Coverage]] = {}
    for c in covered:
        decisions = grouped((d.producer_id, d) for d in c.decisions)
        pasts = grouped((p.producer_id, p) for p in c.pasts)
        for pid in decisions.keys() | pasts.keys():
            own = replace(
                c, decisions=tuple(decisions.get(pid, ())), pasts=tuple(pasts.get(pid, ()))
            )
            coverages.setdefault(pid, []).append(own)
    return coverages


class ForeignMarker(HasPartition, Value):
    """A marker that nobody decided."""

    topic: str
    partition: int
    producer_id: int
    marker: Marker


class Undecided(Value):
    """The markers without a decision. ours: written by this host. gone: the number of markers whose
    decision compaction or expiry may have removed."""

    foreign: tuple[ForeignMarker, ...] = ()
    ours: int = 0
    gone: int = 0


def undecided(
    covered: Iterable[Coverage], endings: Endings, own: Collection[OwnMarker]
) -> Undecided:
    """Return the markers that no decision fits.

    covered: from logs that were read after the partitions' ends were chosen, and whatever was read
    before: a later coverage of the same log counts.
    """
    covered = list(covered)
    decisions = {(d.state_partition, d.offset): d for c in covered for d in c.decisions}
    named = grouped(((p, d.producer_id), d) for d in decisions.values() for p in d.partitions)
    pasts = grouped((p.producer_id, p) for c in covered for p in c.pasts)
    foreign: list[ForeignMarker] = []
    ours = gone = 0
    for where, by_id in endings.items():
        for pid, ended in by_id.items():
            made, past = named.get((where, pid), ()), _one_past(pasts.get(pid, ()))
            markers = with_origins(_markers(ended), made, past)
            for m in own_first(markers, where, pid, own):
                if m.origin == "foreign":
                    foreign.append(ForeignMarker(*where, pid, m))
                ours += m.origin == "ours"
                gone += m.origin in ("decision-gone", None)
    foreign.sort(key=place)
    return Undecided(tuple(foreign), ours, gone)


def place(foreign: ForeignMarker) -> tuple[int, TopicPartition, int]:
    """Return the sort key of a foreign marker."""
    return foreign.producer_id, foreign.topic_partition, foreign.marker.offset


def _one_past(pasts: Sequence[Past]) -> Past | None:
    """Return the newest past; None if logs of several partitions name the producer id."""
    return pasts[-1] if len({p.state_partition for p in pasts}) == 1 else None


def _markers(endings: Iterable[Ending]) -> list[Marker]:
    """Return each marker once, with the epoch of the newest data that it ended."""
    markers = {
        mark.offset: Marker(
            offset=mark.offset,
            outcome=mark.outcome,
            producer_epoch=mark.epoch,
            coordinator_epoch=mark.coordinator_epoch,
            timestamp=mark.timestamp,
            data=data is not None,
            data_epoch=data.epoch if data else None,
        )
        for data, mark in endings
        if mark is not None
    }
    return list(markers.values())


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
            sorted([*((partition, ending) for _, partition, ending in wrong), *right], key=_order)
        ),
    )


def _order(part: tuple[TopicPartition, Ending]) -> tuple[TopicPartition, int]:
    partition, ending = part
    return partition, ending.data.first if ending.data else -1


_ByEpoch = Mapping[tuple[TopicPartition, int, int], Sequence[Ending]]
"""Endings by (partition, producer id, epoch of the data)."""


def _by_epoch(endings: Endings) -> _ByEpoch:
    by_epoch: dict[tuple[TopicPartition, int, int], list[Ending]] = {}
    for partition, by_id in endings.items():
        for pid, of_id in by_id.items():
            for ending in of_id:
                if ending.data is not None:
                    by_epoch.setdefault((partition, pid, ending.data.epoch), []).append(ending)
    return by_epoch


def _raised_twice(d: Decision, by_epoch: _ByEpoch, known: set[tuple[int, int]]) -> bool:
    """Return True if an abort of Kafka 4.0.0 raised the epoch twice.

    If so, no data has the epoch one below, and the data two below has no earlier end of its own.
    """
    pid, epoch = d.producer_id, d.producer_epoch
    if d.outcome != "abort" or (pid, epoch - 2) in known:
        return False
    if any((partition, pid, epoch - 1) in by_epoch for partition in d.partitions):
        return False
    before = [e for p in d.partitions for e in by_epoch.get((p, pid, epoch - 2), ())]
    return bool(before) and all(e.mark is None or e.mark.epoch >= epoch for e in before)


def _judge_v2(d: Decision, by_epoch: _ByEpoch, epoch: int) -> list[Torn]:
    """Judge by the data's epoch, which under v2 belongs to this transaction alone."""
    wrong: list[tuple[str, TopicPartition, Ending]] = []
    right: list[tuple[TopicPartition, Ending]] = []
    for partition in d.partitions:
        for ending in by_epoch.get((partition, d.producer_id, epoch), ()):
            kind = _fault(d, ending.mark)
            if kind is None:
                right.append((partition, ending))
            else:
                wrong.append((kind, partition, ending))
    return [_torn(d, epoch, wrong, right)] if wrong else []


def _fault(d: Decision, mark: Mark | None) -> str | None:
    if mark is None:
        # a missing marker is no fault while markers are still being written
        return None if d.completed_at is None else MISSING
    if mark.epoch > d.producer_epoch:
        return WRONG
    return None if mark.outcome == d.outcome else TORN


def _without_decision(by_epoch: _ByEpoch, known: set[tuple[int, int]]) -> list[Torn]:
    """Return what the partitions prove on their own if no decision is left.

    A commit whose epoch is one above its data's is v2, so the epoch has one transaction: an abort
    elsewhere tears it. A marker two epochs above was meant for another transaction, unless an abort
    raised the epoch twice: then neither data nor a marker has the epoch between the two.
    """
    between = {(pid, epoch) for _, pid, epoch in by_epoch}
    endings: dict[tuple[int, int], list[tuple[TopicPartition, Ending]]] = {}
    for (partition, pid, epoch), ended in by_epoch.items():
        if (pid, epoch) not in known:
            closed = [(partition, ending) for ending in ended if ending.mark is not None]
            endings.setdefault((pid, epoch), []).extend(closed)
    torn = []
    for (pid, epoch), several in endings.items():
        marks = [e.mark for _, e in several if e.mark]
        is_v2 = any(m.outcome == "commit" and m.epoch == epoch + 1 for m in marks)
        own = (pid, epoch + 1) in between or any(m.epoch == epoch + 1 for m in marks)
        wrong: list[tuple[str, TopicPartition, Ending]] = []
        right: list[tuple[TopicPartition, Ending]] = []
        for partition, ending in several:
            mark = ending.mark
            assert mark is not None
            twice = mark.outcome == "abort" and mark.epoch == epoch + 2 and not own
            if mark.epoch > epoch + 1 and not twice:
                wrong.append((WRONG, partition, ending))
            elif is_v2 and mark.outcome == "abort":
                wrong.append((TORN, partition, ending))
            else:
                right.append((partition, ending))
        if wrong:
            torn.append(_torn(None, epoch, wrong, right, pid))
    return torn
