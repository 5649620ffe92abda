"""Decisions on an open transaction that never got their marker: often a lost COMMIT.

v2 has an epoch for each transaction and tells by it. v1 has one epoch for many and tells by order:
decisions are paired with the producer's markers in every way that they allow, and only if all ways
agree is the answer known. Two clocks exclude a pairing only where their difference was measured.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recovery.facts import grouped
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
    marked = {m.producer_epoch for m in history.markers}
    by_epoch = [
        d
        for d in history.decisions
        if d.producer_epoch > start.producer_epoch and d.producer_epoch not in marked
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
    whose marker is before the batch: they are not about what follows that marker.
    """
    of_others = {
        (m.producer_epoch, m.outcome)
        for m in history.markers
        if m.producer_epoch != start.producer_epoch and m.offset < start_offset
    }
    closed = max(
        (
            d.offset
            for d in history.decisions
            if (d.producer_epoch, d.outcome) in of_others and d.source != "forgotten"
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
    marked = {(m.producer_epoch, m.outcome) for m in history.markers}
    if any((d.producer_epoch, d.outcome) in marked for d in history.decisions):
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
    order = _Order(decisions, markers, _measured(history, decisions, markers, skew), skew)
    after = max(
        (t for t in (start.written_after, *(m.timestamp for m in markers)) if t is not None),
        default=None,
    )
    last = max((i for i in order.rows if order.is_before(i, after)), default=-1)
    first = min((i for i in order.rows if order.is_after(i, start.written_before)), default=None)
    return {i for i in _explained(order, history) if i > last and (first is None or i <= first)}


@dataclass(frozen=True, slots=True)
class _Order:
    """Decisions of one epoch, and the markers of that epoch before the start batch.

    ahead: for each decision by how much the data leader's clock is ahead of its coordinator's:
    least, most (ms); None = not measured.
    """

    decisions: Sequence[Decision]
    markers: Sequence[Marker]
    ahead: Sequence[tuple[int, int] | None]
    skew: int

    @property
    def rows(self) -> range:
        return range(len(self.decisions))

    def is_before(self, row: int, time: int | None) -> bool:
        """Tell whether a decision was made before this time of the data leader, beyond the skew."""
        by, d = self.ahead[row], self.decisions[row]
        return by is not None and time is not None and d.timestamp + by[1] < time - self.skew

    def is_after(self, row: int, time: int | None) -> bool:
        by, d = self.ahead[row], self.decisions[row]
        return by is not None and time is not None and d.timestamp + by[0] > time + self.skew

    def owners(self, marker: Marker, above: int) -> Iterator[int]:
        """Yield the numbers (the first one is 1) of decisions above this one that it may be of.

        The coordinator writes a transaction's markers between its Prepare* and its next record.
        """
        for row in range(above, len(self.decisions)):
            d, by = self.decisions[row], self.ahead[row]
            if d.outcome != marker.outcome:
                continue
            done = d.completed_at
            if by is None or (
                d.timestamp + by[0] - self.skew <= marker.timestamp
                and (done is None or marker.timestamp <= done + by[1] + self.skew)
            ):
                yield row + 1


def _explained(order: _Order, history: History) -> set[int]:
    """Numbers i for which the first i decisions can have left exactly these markers.

    A marker is the own one of a decision, in order; what lies between two such decisions lost its
    marker and was closed by the next. Or it stands for the decision of the marker before it a
    second time (failover, a lost answer, a re-sent timeout): only if the producer wrote nothing
    between the two. Before the first decision that is known, one that was compacted away may have
    left it. The last of the decisions owns the last marker that is not such a repeat; else its
    transaction would still be open, and begin at or before the start batch.

    Of the numbers that a marker reaches only the least counts for the next one; all of them are
    looked for at the end alone, since an id of v1 has thousands of decisions in one epoch.
    """
    count = len(order.decisions)
    if not order.markers:
        # no marker at all: they may be below what was read, or there was never a decision
        return {0} if history.markers_from == 0 else set(range(count + 1))
    unseen = history.markers_from != 0 or not history.whole
    forgotten = history.begun_by_end or not history.whole  # v2's end before, or one compacted away
    none_yet, least = True, count  # whether 0 is reached, and the least of the others
    reached: list[tuple[Marker, int]] = []  # each marker's owners, above a number
    before: Marker | None = None
    for marker in order.markers:
        again = marker.data is not True and (
            unseen if before is None else before.outcome == marker.outcome
        )
        above = 0 if none_yet else least
        if not again:
            reached.clear()
        reached.append((marker, above))
        alone = none_yet or not again
        none_yet = (none_yet and again) or (above == 0 and forgotten)
        if not none_yet:
            own = next(order.owners(marker, above), count)
            least = own if alone else min(own, least)
        before = marker
    return {i for each in reached for i in order.owners(*each)} | ({0} if none_yet else set())


def _measured(
    history: History, decisions: Sequence[Decision], markers: Sequence[Marker], skew: int
) -> list[tuple[int, int] | None]:
    """Return by how much the data leader's clock is ahead of the coordinator's: least, most (ms).

    For each decision, measured near it (`_pairs`). None: not measured, or the measurements
    disagree.
    """
    result: list[tuple[int, int] | None] = [None] * len(decisions)
    pairs = sorted(_pairs(history, decisions, markers))
    lows, highs = deque[int](), deque[int]()  # pairs near; the greatest, and the least, come first
    end = 0
    for row in sorted(range(len(decisions)), key=lambda n: decisions[n].timestamp):
        time = decisions[row].timestamp
        while end < len(pairs) and pairs[end][0] <= time + NEAR_MS:
            _, low, high = pairs[end]
            while lows and pairs[lows[-1]][1] <= low:
                lows.pop()
            while highs and pairs[highs[-1]][2] >= high:
                highs.pop()
            lows.append(end)
            highs.append(end)
            end += 1
        for near in (lows, highs):
            while near and pairs[near[0]][0] < time - NEAR_MS:
                near.popleft()
        if lows:
            least, most = pairs[lows[0]][1], pairs[highs[0]][2]
            result[row] = (least, most) if least <= most + skew else None
    return result


def _pairs(
    history: History, decisions: Sequence[Decision], markers: Sequence[Marker]
) -> Iterator[tuple[int, int, int]]:
    """Yield time of a decision, and how far its marker's clock is ahead: least, most (ms).

    Under the same leaders as all that is ordered, on epochs whose markers are as many as their
    decisions, each after data: each is one's own.
    """
    leaders = {(m.coordinator_epoch, m.leader_epoch) for m in markers}
    coordinators = {d.leader_epoch for d in decisions}
    epochs = {d.producer_epoch for d in decisions}
    made = grouped((d.producer_epoch, d) for d in history.decisions)
    marked = grouped((m.producer_epoch, m) for m in history.markers)
    known = [
        d.producer_epoch
        for d in history.decisions
        if d.offset >= history.window and d.source != "forgotten"
    ]
    oldest = min(known, default=None)
    for epoch, decided in made.items():
        of_epoch = marked.get(epoch, [])
        # no decision of it was compacted away, or was left out
        all_known = (
            history.window == 0
            or (history.whole and epochs == {epoch})
            or (oldest is not None and oldest < epoch)
        )
        if (
            [d.outcome for d in decided] != [m.outcome for m in of_epoch]
            or any(m.data is not True for m in of_epoch)
            or any(d.source == "forgotten" for d in decided)
            or (any(d.client_version < 2 for d in decided) and not all_known)
        ):
            continue
        for d, m in zip(decided, of_epoch, strict=True):
            if (
                d.completed_at is not None
                and leaders <= {(m.coordinator_epoch, m.leader_epoch)}
                and coordinators == {d.leader_epoch}
            ):
                yield d.timestamp, m.timestamp - d.completed_at, m.timestamp - d.timestamp
