"""Which decisions on an open transaction never got their marker: often a lost COMMIT.

v2 has an epoch for each transaction and tells by it. v1 has one epoch for many and tells by order:
decisions are paired with the producer's markers, and every order that the pairing and the clocks
allow is tried; only if all of them agree is the answer known.
"""

from collections.abc import Sequence

from recovery.history import Decision, History, Marker
from recovery.observation import StartBatch


def covers(decision: Decision, start: StartBatch) -> bool:
    """This decision was on the transaction of the start batch, not on a later one.

    v2 ends, fences and timeouts carry the batch's epoch + 1. v1 ends carry the equal one; + 1 is a
    fence or a timeout, which only ever abort: a v1 commit with + 1 is a later session's.
    """
    above = decision.producer_epoch - start.producer_epoch
    if decision.client_version >= 2:
        return above == 1
    return above == 0 or (above == 1 and decision.outcome == "abort")


def lost_decisions(
    history: History, start: StartBatch, start_offset: int, skew: int
) -> tuple[Decision, ...] | None:
    """Decisions made after the start batch, oldest first: none of them has its marker.

    While the transaction is open no marker of its producer follows the start batch, so a decision
    made after it has none. v2 tells by epoch. v1 has one epoch for many transactions and tells by
    order (`_splits`). None: two orders are possible, or none is.
    """
    by_epoch = [
        d
        for d in history.decisions
        if d.producer_epoch > start.producer_epoch
        and not any(m.producer_epoch == d.producer_epoch for m in history.markers)
    ]
    by_order = [
        d
        for d in history.decisions
        if d.producer_epoch == start.producer_epoch
        and d.client_version < 2
        and d.offset >= history.window
    ]
    if not by_order:
        return tuple(by_epoch)
    splits = _splits(by_order, history, start, start_offset, skew)
    if not splits or (len(by_order) in splits and len(splits) > 1):
        return None
    return (*by_order[min(splits) :], *by_epoch)


def _splits(
    decisions: Sequence[Decision], history: History, start: StartBatch, offset: int, skew: int
) -> set[int]:
    """Numbers of (v1, equal epoch) decisions that may have been made before the start batch.

    Each is tried: those before must explain the markers before the batch, one each, oldest first,
    outcomes equal; times of two brokers exclude an order only beyond `skew` ms.
    """
    markers = [
        m for m in history.markers if m.offset < offset and m.producer_epoch == start.producer_epoch
    ]
    after = max(
        (t for t in (start.written_after, *(m.timestamp for m in markers)) if t is not None),
        default=None,
    )
    before = start.written_before
    return {
        i
        for i in range(len(decisions) + 1)
        if not any(after is not None and d.timestamp < after - skew for d in decisions[i:])
        and not any(before is not None and d.timestamp > before + skew for d in decisions[:i])
        and _explained(decisions[:i], markers, history, skew)
    }


def _explained(
    decisions: Sequence[Decision], markers: Sequence[Marker], history: History, skew: int
) -> bool:
    """Could exactly these decisions, and ones compacted away, have left these markers?

    The last decision must own the last marker; else its transaction would still be open and begin
    at or before the start batch. An older one may have none: a later marker closed it too.
    """
    if not markers:
        # no marker at all: they may be below what was read, or there was never a decision
        return not decisions or history.markers_from != 0
    left = list(decisions)
    for number, marker in enumerate(reversed(markers)):
        if number == 0 and left and not _fits(left[-1], marker, skew):
            return False
        while left and not _fits(left[-1], marker, skew):
            left.pop()
        if left:
            left.pop()
        elif history.prehistory_until is None or marker.timestamp > history.prehistory_until + skew:
            return False
    return True


def _fits(decision: Decision, marker: Marker, skew: int) -> bool:
    """The coordinator writes a transaction's markers between its Prepare* and its next record."""
    done = decision.completed_at
    return (
        marker.outcome == decision.outcome
        and decision.timestamp - skew <= marker.timestamp
        and (done is None or marker.timestamp <= done + skew)
    )
