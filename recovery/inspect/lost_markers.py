"""Decisions on an open transaction that never got their marker: often a lost COMMIT.

v2 has an epoch for each transaction and tells by it. v1 has one epoch for many and tells by order:
decisions are paired with the producer's markers in every way that they allow, and only if all ways
agree is the answer known. Two clocks exclude a pairing only where their difference was measured.
"""

from collections.abc import Sequence
from functools import partial

from recovery.inspect.history import Decision, History, Marker
from recovery.inspect.observation import StartBatch

NEAR_MS = 3_600_000
"""A difference of two clocks, once measured, is believed for this long before and after."""


def covers(decision: Decision, start: StartBatch, ended_by: int | None = None) -> bool:
    """Tell whether this decision was on the transaction of the start batch, not on a later one.

    v2 ends, fences and timeouts carry the batch's epoch + 1. v1 ends carry the equal one; + 1 is a
    fence or a timeout, which only ever abort: a v1 commit with + 1 is a later session's. An abort
    of a v2 server carries + 2 on Kafka 4.0.0 (KAFKA-19367): ended_by, the record that ended the
    batch's epoch, tells it from a later transaction's.
    """
    above = decision.producer_epoch - start.producer_epoch
    if decision.client_version >= 2:
        return above == 1 or (
            above == 2 and decision.outcome == "abort" and decision.offset == ended_by
        )
    return above == 0 or (above == 1 and decision.outcome == "abort")


def lost_decisions(
    history: History, start: StartBatch, start_offset: int, skew: int
) -> tuple[Decision, ...] | None:
    """Return the decisions made after the start batch, oldest first: none of them has its marker.

    While the transaction is open no marker of its producer follows the start batch, so a decision
    made after it has none. v2 tells by epoch. v1 has one epoch for many transactions and tells by
    order (`_splits`). None: two orders are possible, or none is, or the topic is not identified.
    """
    by_epoch = [
        d
        for d in history.decisions
        if d.producer_epoch > start.producer_epoch
        and not any(m.producer_epoch == d.producer_epoch for m in history.markers)
    ]
    if topic_unclear(history, start, start_offset):
        return None
    by_order = _by_order(history, start, start_offset)
    splits = _splits(by_order, history, start, start_offset, skew)
    if not splits or (len(by_order) in splits and len(splits) > 1):
        return None
    return (*by_order[min(splits) :], *by_epoch)


def _by_order(history: History, start: StartBatch, start_offset: int) -> list[Decision]:
    """Return the decisions that v1 tells by order: those of the batch's own epoch.

    Not those on an earlier topic of that name, nor those older than a decision of another epoch
    whose marker stands before the batch: they are not about what lies behind that marker.
    """
    closed = max(
        (
            d.offset
            for d in history.decisions
            for m in history.markers
            if d.producer_epoch == m.producer_epoch != start.producer_epoch
            and d.outcome == m.outcome
            and m.offset < start_offset
            and d.source != "forgotten"
        ),
        default=0,
    )
    since = max(history.window, history.named_before, closed)
    return [
        d
        for d in history.decisions
        if d.producer_epoch == start.producer_epoch
        and d.client_version < 2
        and (d.source == "forgotten" or d.offset >= since)
    ]


def topic_unclear(history: History, start: StartBatch, start_offset: int) -> bool:
    """Tell whether decisions name the topic, and maybe an earlier topic of the same name.

    Those of v1, of any number of transactions an epoch; those of v2 if a log lost the end that
    holds them, since its epochs then come again, so that a later batch bears one of theirs.

    A marker of any decision in this log identifies it for all later ones. A log that begins at 0,
    misses no offset and has none is another log, or lost every marker in one outage: neither
    AddPartitionsToTxn nor AddOffsetsToTxn needs a leader, so counting cannot tell. A topic id that
    was seen before them can.
    """
    doubtful = _by_order(history, start, start_offset)
    if history.lost_end:
        doubtful += [
            d
            for d in history.decisions
            if d.source == "forgotten" and d.producer_epoch > start.producer_epoch
        ]
    if not doubtful or history.markers_from != 0:
        return False
    if any(
        (d.producer_epoch, d.outcome) == (m.producer_epoch, m.outcome)
        for d in history.decisions
        for m in history.markers
    ):
        return False
    since = history.named_since
    return since is None or any(d.source == "forgotten" or d.offset < since for d in doubtful)


def _splits(
    decisions: Sequence[Decision], history: History, start: StartBatch, offset: int, skew: int
) -> set[int]:
    """Numbers of (v1, equal epoch) decisions that may have been made before the start batch.

    Those before must explain the markers before the batch (`_explained`); two clocks exclude an
    order only beyond `skew` ms, and only where their difference was measured.
    """
    markers = [
        m for m in history.markers if m.offset < offset and m.producer_epoch == start.producer_epoch
    ]
    ahead = partial(_ahead, history, decisions, markers, skew)
    after = max(
        (t for t in (start.written_after, *(m.timestamp for m in markers)) if t is not None),
        default=None,
    )
    before = start.written_before

    def earlier(d: Decision) -> bool:
        by = ahead(d)
        return by is not None and after is not None and d.timestamp + by[1] < after - skew

    def later(d: Decision) -> bool:
        by = ahead(d)
        return by is not None and before is not None and d.timestamp + by[0] > before + skew

    return {
        i
        for i in _explained(decisions, markers, history, skew)
        if not any(earlier(d) for d in decisions[i:]) and not any(later(d) for d in decisions[:i])
    }


def _explained(
    decisions: Sequence[Decision], markers: Sequence[Marker], history: History, skew: int
) -> set[int]:
    """Numbers i for which the first i decisions can have left exactly these markers.

    A marker is the own one of a decision, in order; what lies between two such decisions lost its
    marker and was closed by the next. Or it stands for the decision of the marker before it a
    second time (failover, a lost answer, a re-sent timeout): only if the producer wrote nothing
    between the two. Before the first decision that is known, one that was compacted away may have
    left it. The last of the decisions owns the last marker that is not such a repeat; else its
    transaction would still be open, and begin at or before the start batch.
    """
    if not markers:
        # no marker at all: they may be below what was read, or there was never a decision
        return {0} if history.markers_from == 0 else set(range(len(decisions) + 1))
    fits = partial(_fits, history, decisions, markers, skew)
    reached = {0}
    for number, marker in enumerate(markers):
        unseen = history.markers_from != 0 or not history.whole
        before = markers[number - 1] if number else None
        again = marker.data is not True and (
            unseen if before is None else before.outcome == marker.outcome
        )
        owned = [i for i, d in enumerate(decisions, 1) if fits(d, marker)]
        first = min(reached, default=len(decisions))
        reached = {i for i in owned if i > first} | (reached if again else set())
        if first == 0 and (history.begun_by_end or not history.whole):
            reached.add(0)  # v2's end of the transaction before, or a decision that is forgotten
    return reached


def _fits(
    history: History,
    decisions: Sequence[Decision],
    markers: Sequence[Marker],
    skew: int,
    decision: Decision,
    marker: Marker,
) -> bool:
    """The coordinator writes a transaction's markers between its Prepare* and its next record."""
    if marker.outcome != decision.outcome:
        return False
    by = _ahead(history, decisions, markers, skew, decision)
    if by is None:
        return True
    done = decision.completed_at
    return decision.timestamp + by[0] - skew <= marker.timestamp and (
        done is None or marker.timestamp <= done + by[1] + skew
    )


def _ahead(
    history: History,
    decisions: Sequence[Decision],
    markers: Sequence[Marker],
    skew: int,
    near: Decision,
) -> tuple[int, int] | None:
    """Return by how much the data leader's clock is ahead of the coordinator's: least, most (ms).

    Measured near the decision asked about and under the same leaders as all that is ordered, on
    epochs whose markers are as many as their decisions, each after data: each is one's own. None:
    not measured, or the measurements disagree.
    """
    leaders = {(m.coordinator_epoch, m.leader_epoch) for m in markers}
    coordinators = {d.leader_epoch for d in decisions}
    bounds = []
    for epoch in {d.producer_epoch for d in history.decisions}:
        decided = [d for d in history.decisions if d.producer_epoch == epoch]
        of_epoch = [m for m in history.markers if m.producer_epoch == epoch]
        if (
            [d.outcome for d in decided] != [m.outcome for m in of_epoch]
            or any(m.data is not True for m in of_epoch)
            or any(d.source == "forgotten" for d in decided)
            or (any(d.client_version < 2 for d in decided) and not _all_known(history, epoch, near))
        ):
            continue
        bounds += [
            (m.timestamp - d.completed_at, m.timestamp - d.timestamp)
            for d, m in zip(decided, of_epoch, strict=True)
            if d.completed_at is not None
            and abs(d.timestamp - near.timestamp) <= NEAR_MS
            and leaders <= {(m.coordinator_epoch, m.leader_epoch)}
            and coordinators == {d.leader_epoch}
        ]
    least = max((low for low, _ in bounds), default=0)
    most = min((high for _, high in bounds), default=-1)
    return (least, most) if bounds and least <= most + skew else None


def _all_known(history: History, epoch: int, near: Decision) -> bool:
    """Tell whether no decision of this epoch was compacted away, or was left out."""
    return (
        history.window == 0
        or (history.whole and epoch == near.producer_epoch)
        or any(
            d.producer_epoch < epoch and d.offset >= history.window and d.source != "forgotten"
            for d in history.decisions
        )
    )
