"""Match decisions and markers of transactions v1 by time, since one epoch covers many of them.

The markers of a decision are written between its record and the next record of its id. If the
brokers' clocks differ so much that this fails, order decides, within the allowed skew.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Literal

from recovery.audit.transaction_facts import Data, Ending, Mark
from recovery.inspect.history import Decision
from recovery.inspect.lost_markers import covers
from recovery.inspect.observation import StartBatch

TransactionFault = Literal["torn", "marker-missing", "wrong-marker"]
TORN: TransactionFault = "torn"
MISSING: TransactionFault = "marker-missing"
WRONG: TransactionFault = "wrong-marker"


def judge_by_order(
    decisions: Sequence[Decision], endings: Sequence[Ending], whole: set[str], skew: int
) -> list[tuple[Decision, str, Ending]]:
    """Return the torn transactions of one partition and producer id: decision, fault, ending."""
    marks = list(dict.fromkeys(e.mark for e in endings if e.mark is not None))
    ordered = sorted(decisions, key=lambda d: d.offset)
    used, skew = _paired(ordered, marks, skew)
    met = {d.offset for d in used.values()}
    lost = [d for d in ordered if d.offset not in met]
    torn: list[tuple[Decision, str, Ending]] = []
    for ending in endings:
        data, mark = ending
        if data is None:
            continue
        of_lost = next((d for d in lost if _lies_in(d, data, mark, used, skew)), None)
        if of_lost is not None:
            kind = MISSING if mark is None else WRONG if mark in used else TORN
            torn.append((of_lost, kind, ending))
            lost.remove(of_lost)
        elif mark is not None and mark not in used:
            later = next((d for d in ordered if d.timestamp >= mark.timestamp - skew), None)
            if (
                later is not None
                and later.transactional_id in whole
                and later.outcome != mark.outcome
                and covers(later, _start(later.producer_id, data))
            ):
                torn.append((later, TORN, ending))
    return torn


def decisions_of(
    decisions: Sequence[Decision], endings: Sequence[Ending], skew: int
) -> dict[Mark, Decision]:
    """Return the decision that each marker of one partition and producer id is of, if one fits."""
    marks = list(dict.fromkeys(e.mark for e in endings if e.mark is not None))
    return _paired(sorted(decisions, key=lambda d: d.offset), marks, skew)[0]


def decisions_of_open(
    decisions: Iterable[Decision], marks: Mapping[Mark, Decision], data: Data
) -> list[Decision]:
    """Return the decisions that data without a marker may be of, oldest first.

    decisions, marks: of one partition and producer id, as `decisions_of` takes and returns them.
    """
    ended = max((d.offset for d in marks.values()), default=-1)
    after = [d for d in decisions if d.offset > ended and covers(d, _start(d.producer_id, data))]
    return sorted(after, key=lambda d: d.offset)


def _paired(
    ordered: Sequence[Decision], marks: Sequence[Mark], skew: int
) -> tuple[dict[Mark, Decision], int]:
    """Return each marker's decision, and the clock difference (ms) that the pairing assumes.

    A decision may have several markers in one partition if its coordinator tried again.

    The markers of a decision are written between its record and the next record of its id. If the
    brokers' clocks differ so much that a decision gets no marker, order decides within the skew.
    """
    times = [d.timestamp for d in ordered]
    exact = {m: d for m in marks for d in _near(ordered, times, m, 0)}
    met = {d.offset for d in exact.values()}
    lost = [d for d in ordered if d.offset not in met]
    left = [m for m in marks if m not in exact]

    def may_be(m: Mark, d: Decision) -> bool:
        # the markers of a pending decision are the last that were written for the producer id
        return _fits(d, m, skew) and (d.completed_at is not None or m == marks[-1])

    if not any(may_be(m, d) for d in lost for m in left):
        return exact, 0
    used: dict[Mark, Decision] = {}
    behind = len(marks)
    for d in reversed(ordered):  # compaction removes the oldest decisions
        since = d.timestamp - skew
        fitting = takewhile(lambda i: marks[i].timestamp >= since, range(behind - 1, -1, -1))  # noqa: B023
        at = next((i for i in fitting if may_be(marks[i], d)), None)
        if at is not None:
            used[marks[at]], behind = d, at
    # perhaps a repeated marker: its decision is unknown, but no other one claims it
    return {m: d for m in marks for d in _near(ordered, times, m, skew)} | used, skew


def _near(
    ordered: Sequence[Decision], times: Sequence[int], mark: Mark, skew: int
) -> Iterator[Decision]:
    """Yield the decisions that a marker fits, from the latest one before the marker backwards.

    times: of the decisions of one id, in ascending order.
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
    """Return True if data may belong to a decision without a marker: nothing ended it before."""
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


def _start(producer_id: int, data: Data) -> StartBatch:
    return StartBatch(
        producer_id=producer_id,
        producer_epoch=data.epoch,
        timestamp=data.timestamp,
        append_time=False,
        marker_before=None,
        marker_after=None,
    )
