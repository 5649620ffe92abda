"""Transactions v1 have one epoch for many: decisions and markers of a partition meet by time.

A decision's markers are written between its record and the next of its id. Where the clocks of the
brokers disagree so that this fails, order decides, within the skew that was allowed for.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Literal

from recovery.audit.facts import Data, Ending, Mark
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
    """One partition and producer id: decisions and the markers that were written for them."""
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


def _paired(
    ordered: Sequence[Decision], marks: Sequence[Mark], skew: int
) -> tuple[dict[Mark, Decision], int]:
    """Return each marker's decision, and how far apart the clocks must be for that pairing.

    One decision may have several markers, those of a second try.

    A decision's markers are written between its record and the next of its id. Where the brokers'
    clocks disagree so that this finds none for a decision, order decides within skew.
    """
    times = [d.timestamp for d in ordered]
    exact = {m: d for m in marks for d in _near(ordered, times, m, 0)}
    met = {d.offset for d in exact.values()}
    lost = [d for d in ordered if d.offset not in met]
    left = [m for m in marks if m not in exact]

    def may_be(m: Mark, d: Decision) -> bool:
        # nothing was written for the producer id after the markers of what is still pending
        return _fits(d, m, skew) and (d.completed_at is not None or m == marks[-1])

    if not any(may_be(m, d) for d in lost for m in left):
        return exact, 0
    used: dict[Mark, Decision] = {}
    behind = len(marks)
    for d in reversed(ordered):  # compaction takes the oldest decisions
        since = d.timestamp - skew
        fitting = takewhile(lambda i: marks[i].timestamp >= since, range(behind - 1, -1, -1))  # noqa: B023
        at = next((i for i in fitting if may_be(marks[i], d)), None)
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
    """True if data may be that of a decision without a marker: it was not ended before it."""
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
