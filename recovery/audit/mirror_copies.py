"""Find the transactions that byte copies hold in part, when the source's log is gone.

A cluster link copies batches and markers as they are, so the mirror's own log shows what it has of
each transaction: all of a part whose marker it has, since the marker is last. What belongs together
is in the source's decisions, which a bundle of it keeps. Without its log nothing shows that a batch
is a copy: a producer id counts as the source's where the mirror's own coordinators have not given
out that epoch, and the marker's time is that of the decision.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import Decision, StateLog
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

    decision: the source's, by producer id and epoch; None = the bundle has none.
    """

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    decision: Decision | None


class JudgedCopies(Value):
    """What byte copies show. open: sorted by partition; those of the mirror's own ids left out."""

    cut: CutByMirror
    open: tuple[OpenCopy, ...]


def cut_in_copies(
    known: SourceDecisions,
    copies: Endings,
    ends: Mapping[TopicPartition, int],
    own: Mapping[int, int],
) -> JudgedCopies:
    """Return the transactions that are cut in the mirror or open, and where that is not known.

    copies, ends: of the mirror's log, by partition of the source: its transactions, and its end.
    own: by producer id, the highest epoch that the mirror's own coordinators have given out.
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
        own: Mapping[int, int],
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
        self._left: list[tuple[TopicPartition, Ending]] = []  # without a decision
        self._doubts: Counter[tuple[TopicPartition, WhyUnproven]] = Counter()

    def add(self, partition: TopicPartition, pid: int, ended: Sequence[Ending]) -> None:
        """Add what a partition of the mirror holds of a producer id."""
        for one, decision in self._decided(partition, pid, ended):
            is_own = pid in self._own and self._own[pid] >= _epoch(one)
            if decision is None and is_own:
                continue
            if decision is not None and (is_own or not self._in_time(one, decision)):
                self._doubts[partition, "own-producer"] += 1
                self._there.add((partition, _place(decision)))  # perhaps
                continue
            if one.mark is None and one.data is not None:
                self.open.append(OpenCopy(*partition, pid, one.data.first, decision))
            if decision is None:
                self._left.append((partition, one))
            else:
                self._note(partition, one, decision)

    def _decided(
        self, partition: TopicPartition, pid: int, ended: Sequence[Ending]
    ) -> Iterator[tuple[Ending, Decision | None]]:
        named = self._v1.get((partition, pid), ())
        by_mark = decisions_of(named, ended, self._known.skew)
        for one in ended:
            decision = self._v2.get((pid, _epoch(one)))
            if decision is not None and partition not in decision.partitions:
                decision = None
            if decision is None and one.mark is not None:
                decision = by_mark.get(one.mark)
            elif decision is None and one.data is not None:
                may_be = decisions_of_open(named, by_mark, one.data)
                if may_be and may_be[0].transactional_id in self._whole:
                    decision = may_be[0]
            yield one, decision

    def _in_time(self, one: Ending, decision: Decision) -> bool:
        """Return False for a marker that was written at another time than the decision's."""
        if one.mark is None:
            return True
        skew, written = self._known.skew, one.mark.timestamp
        until = self._known.until if decision.completed_at is None else decision.completed_at
        return decision.timestamp - skew <= written <= until + skew

    def _note(self, partition: TopicPartition, one: Ending, decision: Decision) -> None:
        place, data = _place(decision), one.data
        self._there.add((partition, place))
        if one.mark is not None:
            newest = self._copied_to.get(partition, 0)
            self._copied_to[partition] = max(newest, decision.timestamp)
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
                yield AbsentPart(*where, self._ends[where])

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
        for partition, one in self._left:
            if one.mark is None:
                self._doubts[partition, "undecided"] += 1
            elif one.mark.timestamp > self._known.until - skew:
                self._doubts[partition, "after-bundle"] += 1
            elif one.data is not None and one.mark.timestamp + skew >= oldest:
                self._doubts[partition, "decision-gone"] += 1


def _epoch(one: Ending) -> int:
    """Return the epoch of the data; of a marker alone that of the data that it would end in v2."""
    if one.data is not None:
        return one.data.epoch
    assert one.mark is not None
    return one.mark.epoch - 1


def _place(decision: Decision) -> _Place:
    return decision.state_partition, decision.offset


def given_out(logs: Iterable[StateLog]) -> dict[int, int]:
    """Return the producer ids that coordinators have given out, each with its highest epoch."""
    highest: dict[int, int] = {}
    for log in logs:
        for value in (r.value for r in log.records):
            if isinstance(value, TransactionValue):
                pid = value.producer_id
                highest[pid] = max(value.producer_epoch, highest.get(pid, -1))
    return highest
