"""Decisions on an open transaction that never got their marker: often a lost COMMIT.

v2 has an epoch for each transaction, which identifies it. v1 has one epoch for many, so order
decides: decisions are paired with the producer's markers in every possible way, and the answer is
known only if all ways agree. Two clocks exclude a pairing only if their difference was measured.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from recovery.facts import grouped
from recovery.inspect.history import Decision, History, Marker
from recovery.inspect.observation import StartBatch
from recovery.values import Value

NEAR_MS = 3_600_000
"""A difference of two clocks, once measured, is believed for this long before and after."""


def covers(decision: Decision, start: StartBatch, ended_by: int | None = None) -> bool:
    """Return True if this decision was on the start batch's transaction, not on a later one.

    v2 ends, fences and timeouts carry the batch's epoch + 1. v1 ends carry the batch's epoch; + 1
    is a fence or a timeout, which only ever abort: a v1 commit with + 1 belongs to a later session.
    An abort of a v2 server carries + 2 on Kafka 4.0.0 (KAFKA-19367): ended_by, the record that
    ended the batch's epoch, tells it from that of a later transaction.
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

    While the transaction is open, no marker of its producer follows the start batch, so a decision
    made after the batch has none. Under v2 the epoch shows the order; under v1, where an
    epoch has many transactions, `_splits` finds it. None: two orders are possible or none, or the
    topic is not identified.
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
    """Return the v1 decisions whose order matters: those of the batch's own epoch.

    Left out are decisions on an earlier topic of that name, and those older than a decision of
    another epoch whose marker is before the batch: they concern nothing after that marker.
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
    """Return True if decisions name the topic but may mean an earlier topic of that name.

    In doubt are v1 decisions, as an epoch may have any number of transactions, and v2 decisions if
    a log lost the end with them: a later batch may then have one of its epochs again.

    A marker of any decision in this log identifies the log for all later ones. A log that begins at
    0, has no gap and no such marker is another log, or lost every marker in one outage: neither
    AddPartitionsToTxn nor AddOffsetsToTxn needs a leader, so counting cannot decide. A topic id
    seen before the decisions can.
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
    """Return how many (v1, equal epoch) decisions may have been made before the start batch.

    Those before it must explain the markers before the batch (`_explained`); two clocks exclude an
    order only beyond `skew` ms, and only if their difference was measured.
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


class _Order(Value):
    """Decisions of one epoch, and the markers of that epoch before the start batch.

    ahead: for each decision, how far the data leader's clock is ahead of its coordinator's: least,
    most (ms); None = not measured.
    """

    decisions: Sequence[Decision]
    markers: Sequence[Marker]
    ahead: Sequence[tuple[int, int] | None]
    skew: int

    @property
    def rows(self) -> range:
        return range(len(self.decisions))

    def is_before(self, row: int, time: int | None) -> bool:
        """Return True if a decision precedes this time of the data leader by more than the skew."""
        by, d = self.ahead[row], self.decisions[row]
        return by is not None and time is not None and d.timestamp + by[1] < time - self.skew

    def is_after(self, row: int, time: int | None) -> bool:
        by, d = self.ahead[row], self.decisions[row]
        return by is not None and time is not None and d.timestamp + by[0] > time + self.skew

    def owners(self, marker: Marker, above: int) -> Iterator[int]:
        """Yield the numbers, from 1, of the decisions after number `above` that may own the marker.

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
    """Return the numbers i for which the first i decisions can have left exactly these markers.

    A marker belongs to a decision, in order; decisions skipped in between lost their marker, and
    the next one closed their transaction. Or it repeats the decision of the marker before it
    (failover, a lost answer, a re-sent timeout), but only if the producer wrote nothing between the
    two. Before the first known decision, one that was compacted away may have left it. The last of
    the decisions owns the last marker that is no such repeat; otherwise its transaction would still
    be open and would begin at or before the start batch.

    Of the numbers that a marker reaches, only the least matters for the next marker; all of them
    are collected only at the end, since a v1 id has thousands of decisions in one epoch.
    """
    count = len(order.decisions)
    if not order.markers:
        # No marker: the markers may be below what was read, or nothing was ever decided.
        return {0} if history.markers_from == 0 else set(range(count + 1))
    unseen = history.markers_from != 0
    forgotten = history.begun_by_end or not history.whole  # a v2 end, or one compacted away
    none_yet, least = True, count  # whether 0 is reached, and the least other number
    reached: list[tuple[Marker, int]] = []  # each marker, and the number above which its owners are
    before: Marker | None = None
    for marker in order.markers:
        again = marker.data is not True and (
            unseen if before is None else before.outcome == marker.outcome
        )
        above = 0 if none_yet else least
        if not again:
            reached.clear()
        reached.append((marker, above))
        none_yet = forgotten or (none_yet and again)
        if not (none_yet or again):
            least = next(order.owners(marker, above), count)
        before = marker
    return {i for each in reached for i in order.owners(*each)} | ({0} if none_yet else set())


def _measured(
    history: History, decisions: Sequence[Decision], markers: Sequence[Marker], skew: int
) -> list[tuple[int, int] | None]:
    """Return how far the data leader's clock is ahead of the coordinator's: least, most (ms).

    Each decision has its own value, measured near it (`_pairs`). None: not measured, or the
    measurements disagree.
    """
    result: list[tuple[int, int] | None] = [None] * len(decisions)
    pairs = sorted(_pairs(history, decisions, markers))
    lows, highs = deque[int](), deque[int]()  # nearby pairs; the greatest and the least come first
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
    """Yield a decision's time and how far its marker's clock is ahead: least, most (ms).

    Only decisions under the leaders of everything ordered count, in epochs that have as many
    markers as decisions, each after data: then each marker belongs to its decision.
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
        # No decision of the epoch was compacted away or left out.
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
