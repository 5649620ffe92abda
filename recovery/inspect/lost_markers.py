"""Decisions on an open transaction that never got their marker (often a lost COMMIT), and markers
that nobody decided.

v2 has an epoch for each transaction, which identifies it. v1 has one epoch for many, so order
decides: decisions are paired with the producer's markers in every possible way, and the answer is
known only if all ways agree. Two clocks exclude a pairing only if their difference was measured.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from recovery.facts import TopicPartition, grouped
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import (
    OUTCOMES,
    Decision,
    History,
    Marker,
    MarkerOrigin,
    StateLog,
    begins,
    decided,
)
from recovery.inspect.observation import StartBatch
from recovery.values import Value, replace

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
    for epoch, taken in made.items():
        of_epoch = marked.get(epoch, [])
        # No decision of the epoch was compacted away or left out.
        all_known = (
            history.window == 0
            or (history.whole and epochs == {epoch})
            or (oldest is not None and oldest < epoch)
        )
        if (
            [d.outcome for d in taken] != [m.outcome for m in of_epoch]
            or any(m.data is not True for m in of_epoch)
            or any(d.source == "forgotten" for d in taken)
            or (any(d.client_version < 2 for d in taken) and not all_known)
        ):
            continue
        for d, m in zip(taken, of_epoch, strict=True):
            if (
                d.completed_at is not None
                and leaders <= {(m.coordinator_epoch, m.leader_epoch)}
                and coordinators == {d.leader_epoch}
            ):
                yield d.timestamp, m.timestamp - d.completed_at, m.timestamp - d.timestamp


class OwnMarker(Value):
    """A marker that this host's journal says was sent. since: the log's end when it was planned."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    outcome: str
    since: int

    def is_it(self, where: TopicPartition, producer_id: int, marker: Marker) -> bool:
        """Return True if this may be the marker that was sent."""
        return marker.offset >= self.since and (
            (self.topic_partition, self.producer_id, self.producer_epoch, self.outcome)
            == (where, producer_id, marker.producer_epoch, marker.outcome)
        )


class Past(Value):
    """The epochs of a producer id's data whose decisions the log would still hold.

    leader_epoch: of the state partition; None = unknown. cut: not because older records are gone,
    but because they were not loaded.
    """

    producer_id: int
    first: int
    last: int
    state_partition: int
    leader_epoch: int | None = None
    cut: bool = False

    def covers(self, marker: Marker, *, decided: bool) -> bool:
        """Return True if a decision on what this marker ended cannot be missing.

        An epoch that the log has not reached may have been in an end that it lost: a coordinator's
        epoch too, unless this very transaction is `decided` in it.
        """
        epochs = (_epoch_of(marker), marker.producer_epoch)
        above = self.leader_epoch is not None and marker.coordinator_epoch > self.leader_epoch
        return self.first <= epochs[0] and max(epochs) <= self.last and (decided or not above)


def _epoch_of(marker: Marker) -> int:
    """Return the epoch of the data that a marker ended; without data, the least possible one."""
    return marker.producer_epoch - 1 if marker.data_epoch is None else marker.data_epoch


def past_of(logs: Iterable[StateLog], producer_id: int) -> Past | None:
    """Return the epochs of a producer id over which its history is complete; None = of none.

    From a record on that is still there, none of its id is missing: compaction removes the older
    ones first.
    """
    naming = [log for log in logs if log.naming(producer_id)]
    if len(naming) != 1 or naming[0].error is not None or naming[0].cut_epoch is not None:
        return None
    [log] = naming
    ids = {r.transactional_id for r in log.naming(producer_id)}
    since = max([log.stands_from, *log.cuts_of(ids)])
    records = sorted((r for r in log.of_ids(ids) if r.offset >= since), key=lambda r: r.offset)
    values = [r.value for r in records if isinstance(r.value, TransactionValue)]
    own = [v for v in values if v.producer_id == producer_id]
    if not own or any(isinstance(r.value, UnknownVersion) for r in records):
        return None
    least = min(v.producer_epoch for v in own)
    least += not any(_began(v) for v in own if v.producer_epoch == least)
    return Past(
        producer_id=producer_id,
        # 0: the id had another producer id before
        first=0 if values[0].producer_id != producer_id else least,
        last=max(v.producer_epoch for v in own),
        state_partition=log.partition,
        leader_epoch=log.leader_epoch,
        cut=bool(log.cuts_of(ids)),
    )


def _began(value: TransactionValue) -> bool:
    """Return True if the record began its epoch: only later ones can decide that epoch's data."""
    return begins(value, StartBatch(value.producer_id, value.producer_epoch))


def decisions_on(
    logs: Iterable[StateLog], producer_id: int, where: TopicPartition
) -> list[Decision]:
    """Return a producer id's decisions that name a partition, each with its record's successor."""
    decisions: list[Decision] = []
    for log in logs:
        next_at: dict[str, int] = {}
        for r in reversed(log.naming(producer_id)):
            v = r.value
            if (
                isinstance(v, TransactionValue)
                and v.producer_id == producer_id
                and v.state in OUTCOMES
                and where in v.partitions
            ):
                done = next_at.get(r.transactional_id)
                decisions.append(replace(decided(r, v), completed_at=done))
            next_at[r.transactional_id] = r.timestamp
    return decisions


def with_origins(
    markers: Iterable[Marker], decisions: Iterable[Decision], past: Past | None
) -> list[Marker]:
    """Return one producer id's markers in one partition, each with its origin.

    decisions: all that name the partition, read no earlier than the markers. Under transactions v1,
    where one epoch has many, a marker with their epoch and outcome counts as decided.
    """
    made = grouped(((d.producer_epoch, d.outcome), d) for d in decisions)
    return [replace(m, origin=_origin(m, made, past)) for m in markers]


def _origin(
    m: Marker, made: Mapping[tuple[int, str], Sequence[Decision]], past: Past | None
) -> MarkerOrigin | None:
    """Return a marker's origin. made: the decisions by their epoch and outcome."""
    if _fits(made.get((m.producer_epoch, m.outcome), ()), m):
        return "decided"
    if past is None:
        return "decision-gone"
    if past.covers(m, decided=_is_decided(m, made)):
        return "foreign"
    return None if past.cut else "decision-gone"


def _is_decided(m: Marker, made: Mapping[tuple[int, str], Sequence[Decision]]) -> bool:
    """Return True if a v2 decision is on the epoch of the data that a marker ended."""
    if m.data_epoch is None:
        return False
    named = [d for outcome in OUTCOMES.values() for d in made.get((m.data_epoch + 1, outcome), ())]
    return any(d.client_version >= 2 for d in named)


def _fits(named: Sequence[Decision], m: Marker) -> bool:
    """Return True if one of the decisions with a marker's epoch and outcome may be on its data."""
    kinds = {d.client_version >= 2: d for d in named}  # of v1, of v2
    return any(
        # an abort two epochs above its data may be of Kafka 4.0.0: see `covers`
        m.data_epoch is None or covers(d, StartBatch(d.producer_id, m.data_epoch), d.offset)
        for d in kinds.values()
    )


def own_first(
    markers: Iterable[Marker],
    where: TopicPartition,
    producer_id: int,
    own: Collection[OwnMarker],
) -> list[Marker]:
    """Return the markers, those that this host's journal says it sent as ours."""
    left, result = list(own), []
    for m in sorted(markers, key=lambda m: m.offset):
        mine = next((o for o in left if o.is_it(where, producer_id, m)), None)
        if mine is not None:
            left.remove(mine)
        result.append(m if mine is None else replace(m, origin="ours"))
    return result
