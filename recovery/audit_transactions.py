"""Torn transactions: what coordinators decided against the markers that partitions hold.

A Prepare* record of `__transaction_state` names every partition of a transaction; each of them that
has data must have the marker of that decision next. Transactions v2 (KIP-890) have an epoch each,
so data, decision and marker meet by epoch. v1 has one epoch for many: they meet by order and time.
Compaction takes Prepare* records away: what it took is `unproven`, never judged. Under v2 data of
one (producer id, epoch) that was committed here and aborted there is torn even so.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Literal, NamedTuple

from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.history import Decision, StateLog, StateRecord
from recovery.lost_markers import covers
from recovery.observation import StartBatch

TORN: Literal["torn"] = "torn"
MISSING: Literal["marker-missing"] = "marker-missing"
WRONG: Literal["wrong-marker"] = "wrong-marker"
_SEVERITY = (TORN, MISSING, WRONG)

_DECIDES = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}
_ENDS = {TransactionState.COMPLETE_COMMIT: "commit", TransactionState.COMPLETE_ABORT: "abort"}


class Data(NamedTuple):
    """Records of one producer id and epoch without a marker between. timestamp: of the first."""

    epoch: int
    first: int
    last: int
    timestamp: int


class Mark(NamedTuple):
    """A marker; timestamp: the leader's clock, ms."""

    offset: int
    outcome: str
    epoch: int
    coordinator_epoch: int
    timestamp: int


class Ending(NamedTuple):
    """Data and the marker that ended it. data None: a marker alone; mark None: still open."""

    data: Data | None
    mark: Mark | None


Endings = Mapping[TopicPartition, Mapping[int, Sequence[Ending]]]
"""Of each partition that was read, by producer id, in the order of offsets."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the coordinators' log still says of an id. Times in ms.

    decisions: those that are covered. pending: decisions without a record after them. ended: times
    of transactions of which only the end is there. whole: no transaction of it can be unknown.
    """

    transactional_id: str
    decisions: tuple[Decision, ...]
    pending: int
    ended: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Torn:
    """A transaction that is not whole. decision None: its record is compacted away."""

    kind: Literal["torn", "marker-missing", "wrong-marker"]
    producer_id: int
    epoch: int
    decision: Decision | None
    partitions: tuple[tuple[TopicPartition, Ending], ...]


@dataclass(slots=True)
class _Id:
    decisions: list[Decision] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    first: StateRecord | None = None
    before: StateRecord | None = None


def coverage(logs: Iterable[StateLog]) -> list[Coverage]:
    """What is covered of every id, by id."""
    found: list[Coverage] = []
    for log in logs:
        ids: dict[str, _Id] = {}
        for record in log.records:
            _follow(ids.setdefault(record.transactional_id, _Id()), record)
        for name, one in ids.items():
            found.append(
                Coverage(
                    transactional_id=name,
                    decisions=tuple(one.decisions),
                    pending=sum(d.completed_at is None for d in one.decisions),
                    ended=tuple(one.ended),
                    whole=log.whole_from == 0 or _is_beginning(one.first),
                )
            )
    return sorted(found, key=lambda c: c.transactional_id)


def _is_beginning(record: StateRecord | None) -> bool:
    """An id's first record ever: no transaction of it can lie before."""
    value = record.value if record else None
    return (
        isinstance(value, TransactionValue)
        and value.state is TransactionState.EMPTY
        and value.producer_epoch == 0
    )


def _follow(one: _Id, record: StateRecord) -> None:
    value, before = record.value, one.before
    one.before = record
    one.first = one.first or record
    if one.decisions and one.decisions[-1].completed_at is None:
        one.decisions[-1] = replace(one.decisions[-1], completed_at=record.timestamp)
    if not isinstance(value, TransactionValue):
        return
    if value.state in _DECIDES:
        one.decisions.append(
            Decision(
                transactional_id=record.transactional_id,
                outcome=_DECIDES[value.state],
                producer_id=value.producer_id,
                producer_epoch=value.producer_epoch,
                partitions=value.partitions,
                state_partition=record.partition,
                offset=record.offset,
                timestamp=record.timestamp,
                client_version=value.client_transaction_version,
                started=value.start_ms,
                completed_at=None,
            )
        )
    elif value.state in _ENDS:
        said = before.value if before else None
        proven = (
            isinstance(said, TransactionValue) and _DECIDES.get(said.state) == _ENDS[value.state]
        )
        if not proven:
            one.ended.append(record.timestamp)


def judge(covered: Iterable[Coverage], endings: Endings, skew: int) -> list[Torn]:
    """Every transaction that is not whole in the partitions that were read.

    skew: how far the clocks of two brokers may be apart, ms; matters for transactions v1 only.
    """
    covered = list(covered)
    decisions = [d for c in covered for d in c.decisions]
    whole = {c.transactional_id for c in covered if c.whole}
    found: list[Torn] = []
    by_epoch = _by_epoch(endings)
    v1: dict[tuple[TopicPartition, int], list[Decision]] = {}
    known: set[tuple[int, int]] = set()
    for d in decisions:
        if d.client_version >= 2:
            known.add((d.producer_id, d.producer_epoch - 1))
            found += _judge_v2(d, by_epoch)
        else:
            for place in d.partitions:
                v1.setdefault((place, d.producer_id), []).append(d)
    problems: dict[int, list[tuple[str, TopicPartition, Ending]]] = {}
    by_number = {id(d): d for d in decisions}
    for (place, pid), named in v1.items():
        for d, kind, ending in _judge_v1(named, endings.get(place, {}).get(pid, ()), whole, skew):
            problems.setdefault(id(d), []).append((kind, place, ending))
    for number, wrong in problems.items():
        d = by_number[number]
        found.append(_torn(d, d.producer_epoch, [(k, p, e) for k, p, e in wrong]))
    found += _without_decision(by_epoch, known)
    return sorted(found, key=lambda t: (t.producer_id, t.epoch, t.partitions[0][0]))


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
    found: dict[tuple[TopicPartition, int, int], list[Ending]] = {}
    for place, by_id in endings.items():
        for pid, of_id in by_id.items():
            for ending in of_id:
                if ending.data is not None:
                    found.setdefault((place, pid, ending.data.epoch), []).append(ending)
    return found


def _judge_v2(d: Decision, by_epoch: _ByEpoch) -> list[Torn]:
    """By epoch: that of the data is one below the decision's, and only this transaction's."""
    wrong: list[tuple[str, TopicPartition, Ending]] = []
    right: list[tuple[TopicPartition, Ending]] = []
    for place in d.partitions:
        for ending in by_epoch.get((place, d.producer_id, d.producer_epoch - 1), ()):
            kind = _fault(d, ending.mark)
            if kind is None:
                right.append((place, ending))
            else:
                wrong.append((kind, place, ending))
    return [_torn(d, d.producer_epoch - 1, wrong, right)] if wrong else []


def _fault(d: Decision, mark: Mark | None) -> str | None:
    if mark is None:
        # while markers are being written, one that is not there is not missing
        return None if d.completed_at is None else MISSING
    if mark.epoch > d.producer_epoch:
        return WRONG
    return None if mark.outcome == d.outcome else TORN


def _start(producer_id: int, data: Data) -> StartBatch:
    return StartBatch(
        producer_id=producer_id,
        producer_epoch=data.epoch,
        timestamp=data.timestamp,
        append_time=False,
        marker_before=None,
        marker_after=None,
    )


def _judge_v1(
    decisions: Sequence[Decision], endings: Sequence[Ending], whole: set[str], skew: int
) -> list[tuple[Decision, str, Ending]]:
    """One partition and producer id: decisions and the markers that were written for them."""
    marks = list(dict.fromkeys(e.mark for e in endings if e.mark is not None))
    ordered = sorted(decisions, key=lambda d: d.offset)
    used, skew = _paired(ordered, marks, skew)
    met = {d.offset for d in used.values()}
    lost = [d for d in ordered if d.offset not in met]
    found: list[tuple[Decision, str, Ending]] = []
    for ending in endings:
        data, mark = ending
        if data is None:
            continue
        of_lost = next((d for d in lost if _lies_in(d, data, mark, used, skew)), None)
        if of_lost is not None:
            kind = MISSING if mark is None else WRONG if mark in used else TORN
            found.append((of_lost, kind, ending))
            lost.remove(of_lost)
        elif mark is not None and mark not in used:
            later = next((d for d in ordered if d.timestamp >= mark.timestamp - skew), None)
            if (
                later is not None
                and later.transactional_id in whole
                and later.outcome != mark.outcome
                and covers(later, _start(later.producer_id, data))
            ):
                found.append((later, TORN, ending))
    return found


def _paired(
    ordered: Sequence[Decision], marks: Sequence[Mark], skew: int
) -> tuple[dict[Mark, Decision], int]:
    """Which decision each marker was written for, and how far apart the clocks must be for it.

    One decision may have several markers, those of a second try.

    A decision's markers are written between its record and the next of its id. Where the brokers'
    clocks disagree so that this finds none for a decision, order decides within skew.
    """
    times = [d.timestamp for d in ordered]
    exact = {m: d for m in marks for d in _near(ordered, times, m, 0)}
    met = {d.offset for d in exact.values()}
    lost = [d for d in ordered if d.offset not in met]
    left = [m for m in marks if m not in exact]
    if not any(_fits(d, m, skew) for d in lost for m in left):
        return exact, 0
    used: dict[Mark, Decision] = {}
    behind = len(marks)
    for d in reversed(ordered):  # compaction takes the oldest decisions
        since = d.timestamp - skew
        fitting = takewhile(lambda i: marks[i].timestamp >= since, range(behind - 1, -1, -1))  # noqa: B023
        at = next((i for i in fitting if _fits(d, marks[i], skew)), None)
        if at is not None:
            used[marks[at]], behind = d, at
    # a repeated marker, perhaps: whose cannot be told, and it is nobody else's
    return {m: d for m in marks for d in _near(ordered, times, m, skew)} | used, skew


def _near(
    ordered: Sequence[Decision], times: Sequence[int], mark: Mark, skew: int
) -> Iterator[Decision]:
    """The decisions that a marker fits, from the latest that was made before it backwards.

    times: of the decisions of one id, which follow each other.
    """
    for at in range(bisect_right(times, mark.timestamp + skew) - 1, -1, -1):
        d = ordered[at]
        if d.completed_at is not None and d.completed_at + skew < mark.timestamp:
            return
        if _fits(d, mark, skew):
            yield d


def _lies_in(
    d: Decision, data: Data, mark: Mark | None, used: Mapping[Mark, Decision], skew: int
) -> bool:
    """Whether data may be that of a decision without a marker: it was not ended before it."""
    if (
        d.completed_at is None
        or not covers(d, _start(d.producer_id, data))
        or data.timestamp > d.timestamp + skew
    ):
        return False
    if mark is None:
        return True
    if mark in used:
        return used[mark].offset > d.offset
    return mark.timestamp >= d.timestamp - skew


def _fits(d: Decision, mark: Mark, skew: int) -> bool:
    until = mark.timestamp if d.completed_at is None else d.completed_at + skew
    return (
        mark.outcome == d.outcome
        and mark.epoch == d.producer_epoch
        and d.timestamp - skew <= mark.timestamp <= until
    )


def _without_decision(by_epoch: _ByEpoch, known: set[tuple[int, int]]) -> list[Torn]:
    """What the partitions prove alone, where no decision is left.

    A commit with the epoch above that of its data is v2's, and its only transaction: an abort
    elsewhere tears it. A marker two epochs above was meant for another transaction.
    """
    seen: dict[tuple[int, int], list[tuple[TopicPartition, Ending]]] = {}
    for (place, pid, epoch), ended in by_epoch.items():
        if (pid, epoch) not in known:
            closed = [(place, ending) for ending in ended if ending.mark is not None]
            seen.setdefault((pid, epoch), []).extend(closed)
    found = []
    for (pid, epoch), several in seen.items():
        marks = [e.mark for _, e in several if e.mark]
        is_v2 = any(m.outcome == "commit" and m.epoch == epoch + 1 for m in marks)
        wrong: list[tuple[str, TopicPartition, Ending]] = []
        right: list[tuple[TopicPartition, Ending]] = []
        for place, ending in several:
            assert ending.mark is not None
            if ending.mark.epoch > epoch + 1:
                wrong.append((WRONG, place, ending))
            elif is_v2 and ending.mark.outcome == "abort":
                wrong.append((TORN, place, ending))
            else:
                right.append((place, ending))
        if wrong:
            found.append(_torn(None, epoch, wrong, right, pid))
    return found
