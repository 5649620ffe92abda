"""Find the transactions that byte copies hold in part, when the source's log is gone.

A cluster link copies batches and markers as they are, so the mirror's own log shows what it has of
each transaction: all of a part whose marker it has, since the marker is last. What belongs together
is in the source's decisions, which a bundle of it keeps. Without its log nothing shows that a batch
is a copy: a producer id counts as the source's where the mirror's own coordinators have not given
out that epoch, as far as their logs still tell, and a marker has the time of the source's decision.
Open data has no marker: it is the source's if one of the same id in its partition is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from recovery.audit.by_order import decisions_of, decisions_of_open
from recovery.audit.mirror_cut import (
    AbsentPart,
    CutByMirror,
    CutPart,
    CutTransaction,
    UnprovenPart,
    WhyUnproven,
)
from recovery.audit.transaction_facts import Coverage, Ending, Endings
from recovery.facts import HasPartition, TopicPartition, grouped
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.formats.transaction_state import MAX_EPOCH, TransactionState, TransactionValue
from recovery.inspect.history import OUTCOMES, Decision, StateLog
from recovery.values import Value

_Place = tuple[int, int]
"""A decision's partition of `__transaction_state`, and its offset."""


class SourceDecisions(Value):
    """What a bundle knows. until: when it was made, epoch ms. skew: of brokers' clocks, ms."""

    covered: Sequence[Coverage]
    until: int
    skew: int


class OpenCopy(HasPartition, Value):
    """A transaction that is open in the mirror, by partition of the source.

    decision: the source's, by producer id and epoch.
    """

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    decision: Decision


class GivenOut(Value):
    """The producer ids that the mirror's own coordinators have given out.

    highest: the last epoch of each; compaction and expiry take ids away. named: partitions of the
    mirror that their logs show in a transaction, each with its producer id and its data's epoch.
    """

    highest: Mapping[int, int]
    named: frozenset[tuple[TopicPartition, int, int]]


class JudgedCopies(Value):
    """What byte copies show. open: those that the source decided, sorted by partition."""

    cut: CutByMirror
    open: tuple[OpenCopy, ...]


def cut_in_copies(
    known: SourceDecisions,
    copies: Endings,
    ends: Mapping[TopicPartition, int],
    own: GivenOut,
) -> JudgedCopies:
    """Return the transactions that are cut in the mirror or open, and where that is not known.

    copies, ends: of the mirror's log, by partition of the source: its transactions, and its end.
    own: `named` by partition of the source, too.
    """
    judging = _Copies(known, ends, own)
    for partition in ends:
        for pid, ended in copies.get(partition, {}).items():
            judging.add(partition, pid, list(ended))
    opened = sorted(judging.open, key=lambda o: (o.topic_partition, o.start_offset))
    return JudgedCopies(judging.result(), tuple(opened))


class _Copies:
    def __init__(
        self,
        known: SourceDecisions,
        ends: Mapping[TopicPartition, int],
        own: GivenOut,
    ) -> None:
        self._known, self._ends, self._own = known, ends, own
        self._decisions = {_place(d): d for c in known.covered for d in c.decisions}
        self._whole = {c.transactional_id for c in known.covered if c.whole and not c.ended}
        made = list(self._decisions.values())
        self._v2 = {(d.producer_id, d.producer_epoch - 1): d for d in made if d.client_version >= 2}
        self._v1 = grouped(
            ((p, d.producer_id), d) for d in made if d.client_version < 2 for p in d.partitions
        )
        self._parts: dict[_Place, list[CutPart]] = {}
        self.open: list[OpenCopy] = []
        self._there: set[tuple[TopicPartition, _Place]] = set()  # its marker or its data
        self._copied_to: dict[TopicPartition, int] = {}  # time of the newest decision with a marker
        self._copied_end: dict[TopicPartition, int] = {}  # after the last of those markers
        self._left: list[tuple[TopicPartition, Ending, bool]] = []  # no decision; is the id B's own
        self._doubts: Counter[tuple[TopicPartition, WhyUnproven]] = Counter()

    def add(self, partition: TopicPartition, pid: int, ended: Sequence[Ending]) -> None:
        """Add what a partition of the mirror holds of a producer id."""
        found = [
            (one, may_be, self._of(one, may_be))
            for one, may_be in self._may_be(partition, pid, ended)
        ]
        tied = any(
            one.mark is not None and decision is not None and not self._is_own(pid, one)
            for one, _, decision in found
        )
        for one, may_be, decision in found:
            own = self._is_own(pid, one)
            if decision is not None and tied and not own:
                self._note(partition, one, decision)
                continue
            self._there.update((partition, _place(d)) for d in may_be)  # perhaps
            if may_be and (own or decision is not None or one.mark is not None):
                self._doubts[partition, "own-producer"] += 1
            elif may_be or not self._is_named(partition, pid, one):
                self._left.append((partition, one, own))

    def _is_own(self, pid: int, one: Ending) -> bool:
        highest = self._own.highest
        return pid in highest and highest[pid] >= min(_epochs(one))

    def _is_named(self, partition: TopicPartition, pid: int, one: Ending) -> bool:
        return any((partition, pid, epoch) in self._own.named for epoch in _epochs(one))

    def _may_be(
        self, partition: TopicPartition, pid: int, ended: Sequence[Ending]
    ) -> Iterator[tuple[Ending, Sequence[Decision]]]:
        """Yield what a partition holds of an id, each with the decisions that it may be of."""
        named = self._v1.get((partition, pid), ())
        by_mark = decisions_of(named, ended, self._known.skew)
        for one in ended:
            decision = self._v2.get((pid, min(_epochs(one))))
            if decision is not None and partition in decision.partitions:
                yield one, [decision]
            elif one.mark is not None:
                yield one, [by_mark[one.mark]] if one.mark in by_mark else []
            elif one.data is not None:
                yield one, decisions_of_open(named, by_mark, one.data)

    def _of(self, one: Ending, may_be: Sequence[Decision]) -> Decision | None:
        """Return the only decision that it can be of; None = there is none, or several.

        A client may set any time on its data: it refuses a decision, and chooses none.
        """
        if len(may_be) != 1 or not self._in_time(one, may_be[0]):
            return None
        [decision] = may_be
        if one.mark is None and one.data is not None and decision.client_version < 2:
            early = one.data.timestamp <= self._known.until - self._known.skew
            return decision if early and decision.transactional_id in self._whole else None
        return decision

    def _in_time(self, one: Ending, decision: Decision) -> bool:
        """Return False for a marker that is not the decision's, or open data of a later time."""
        skew, mark = self._known.skew, one.mark
        if mark is None:
            return one.data is not None and one.data.timestamp <= decision.timestamp + skew
        until = self._known.until if decision.completed_at is None else decision.completed_at
        return (mark.outcome, mark.epoch) == (decision.outcome, decision.producer_epoch) and (
            decision.timestamp - skew <= mark.timestamp <= until + skew
        )

    def _note(self, partition: TopicPartition, one: Ending, decision: Decision) -> None:
        place, data = _place(decision), one.data
        self._there.add((partition, place))
        if one.mark is None and data is not None:
            opened = OpenCopy(*partition, decision.producer_id, data.first, decision)
            self.open.append(opened)
        elif one.mark is not None:
            newest, end = self._copied_to.get(partition, 0), self._copied_end.get(partition, 0)
            self._copied_to[partition] = max(newest, decision.timestamp)
            self._copied_end[partition] = max(end, one.mark.offset + 1)
        if data is not None and decision.outcome == "commit":
            missing = None if one.mark is not None else data.first  # nobody reads it yet
            part = CutPart(*partition, data.first, data.last, missing)
            self._parts.setdefault(place, []).append(part)

    def result(self) -> CutByMirror:
        """Return the judgement."""
        cut = []
        for place, parts in sorted(self._parts.items()):
            decision = self._decisions[place]
            absent = tuple(self._absent(decision))
            lacks = absent or any(p.missing_from is not None for p in parts)
            if lacks and any(p.missing_from is None for p in parts):
                epoch = decision.producer_epoch - (decision.client_version >= 2)
                ordered = tuple(sorted(parts, key=lambda p: (p.topic_partition, p.first)))
                cut.append(CutTransaction(decision.producer_id, epoch, decision, ordered, absent))
        self._doubt_copies()
        self._doubt_undecided()
        unproven = [
            UnprovenPart(*where, why, n) for (where, why), n in sorted(self._doubts.items())
        ]
        return CutByMirror(tuple(cut), tuple(unproven))

    def _absent(self, decision: Decision) -> Iterator[AbsentPart]:
        """Yield the partitions that a decision names and whose log in the mirror ends before it.

        The coordinator writes a marker to each of them, also where nothing was written.
        """
        done = decision.timestamp if decision.completed_at is None else decision.completed_at
        for where in sorted(set(decision.partitions)):
            if where.topic == CONSUMER_OFFSETS or (where, _place(decision)) in self._there:
                continue
            if where not in self._ends:
                self._doubts[where, "not-compared"] += 1
            elif self._is_copy(where) and self._copied_to.get(where, 0) <= done + self._known.skew:
                yield AbsentPart(*where, self._copied_end.get(where, 0))

    def _is_copy(self, partition: TopicPartition) -> bool:
        """Return True if something in the mirror's log is the source's, or there is nothing."""
        return partition in self._copied_to or self._ends[partition] == 0

    def _doubt_copies(self) -> None:
        """Note how many commits name partitions whose copies bear other producer ids."""
        for decision in self._decisions.values():
            for where in set(decision.partitions) & self._ends.keys():
                if decision.outcome == "commit" and not self._is_copy(where):
                    self._doubts[where, "no-copies"] += 1

    def _doubt_undecided(self) -> None:
        """Note what the mirror has ended or holds open without a decision in the bundle."""
        oldest = min((self._copied_to.get(p, 0) for p in self._ends), default=0)
        skew = self._known.skew
        for partition, one, own in self._left:
            why: WhyUnproven
            if one.mark is None:
                why = "undecided"
            elif one.mark.timestamp > self._known.until - skew:
                why = "after-bundle"
            elif one.data is None or one.mark.timestamp + skew < oldest:
                continue
            elif own and partition not in self._copied_to:
                continue  # a replicator's, by all that is seen
            else:
                why = "decision-gone"
            self._doubts[partition, "own-producer" if own else why] += 1


def _epochs(one: Ending) -> set[int]:
    """Return the epoch of the data; of a marker alone those that it would end in v1 and in v2."""
    if one.data is not None:
        return {one.data.epoch}
    assert one.mark is not None
    return {one.mark.epoch, one.mark.epoch - 1}


def _place(decision: Decision) -> _Place:
    return decision.state_partition, decision.offset


def given_out(logs: Sequence[StateLog]) -> GivenOut:
    """Return the producer ids that these coordinators' logs show."""
    highest: dict[int, int] = {}
    named: set[tuple[TopicPartition, int, int]] = set()
    for value in (r.value for log in logs for r in log.records):
        if not isinstance(value, TransactionValue):
            continue
        pid, epoch = value.producer_id, value.producer_epoch
        others = {value.previous_producer_id, value.next_producer_id} - {pid, -1}
        for given, last in ((pid, epoch), *((other, MAX_EPOCH) for other in others)):
            highest[given] = max(last, highest.get(given, -1))
        named |= {(where, pid, e) for where in value.partitions for e in _epochs_of(value)}
    return GivenOut(highest, frozenset(named))


def _epochs_of(value: TransactionValue) -> set[int]:
    """Return the epochs that the data of a state's transaction may have (`covers`)."""
    epoch = value.producer_epoch
    if value.state not in OUTCOMES:
        return {epoch}
    if value.client_transaction_version >= 2:
        return {epoch - 1}
    return {epoch, epoch - 1} if value.state is TransactionState.PREPARE_ABORT else {epoch}
