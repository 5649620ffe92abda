"""Byte copies that end anywhere, by the source's decisions alone, against what was written."""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eoctl.operations.audit.mirror_transactions as of_logs
from eoctl.cli.commands.audit.mirror_transactions import mirror_transactions
from eoctl.operations.audit.mirror_copies import _OfBundle
from eoctl.stores.bundle_files import SeenHistory
from recovery.audit.mirror_copies import (
    GivenOut,
    JudgedCopies,
    SourceDecisions,
    cut_in_copies,
    given_out,
)
from recovery.audit.transaction_facts import Coverage, Data, Ending, Endings, Mark
from recovery.errors import UnreachableError
from recovery.facts import TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateLog, StateRecord
from recovery.values import replace
from tests.share import share
from tests.unit.audit.test_audit_transactions import PARTITIONS
from tests.unit.audit.test_mirror_cut import Noted, Parts, decided, doubts

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Expected = dict[frozenset[Any], frozenset[Any]]
"""Parts of a cut transaction (partition, first, last, missing from), and where it is absent."""


NOTHING = GivenOut({}, frozenset())


def gave(highest: Mapping[int, int], *named: tuple[TopicPartition, int, int]) -> GivenOut:
    return GivenOut(highest, frozenset(named))


@dataclass
class Copied(Noted):
    """A run, and copies of its partitions that end at some batch. owners: of `noted`."""

    owners: list[str] = field(default_factory=list)

    def transaction(self, fault: str | None) -> None:
        before = len(self.records)
        super().transaction(fault)
        self.owners.append(self.records[before].transactional_id)

    def cut(self) -> dict[TopicPartition, int]:
        """Cut each log; the end of each copy. Kept in `whole`: the source's headers."""
        self.whole: dict[TopicPartition, list[BatchHeader]] = {}
        for partition in PARTITIONS:
            log = self.logs.setdefault(partition, [])
            self.whole[partition] = [h for b in log for h in batch_headers(b)]
            del log[self.rng.randrange(len(log) + 1) :]
            left = [h for b in log for h in batch_headers(b)]
            self.ends[partition] = left[-1].last_offset + 1 if left else 0
        return dict(self.ends)

    def of_same_id(self, number: int) -> Iterator[tuple[int, Sequence[TopicPartition], Parts]]:
        for n, (owner, (_, named, wrote)) in enumerate(zip(self.owners, self.noted, strict=True)):
            if owner == self.owners[number]:
                yield n, named, wrote

    def is_known(self, number: int, partition: TopicPartition, end: int) -> bool:
        """Open data has a marker of its id before it, and under v1 no second decision after it."""
        begin, _ = self.noted[number][2][partition]
        [pid] = {h.producer_id for h in self.whole[partition] if h.base_offset == begin}
        marks = (h for h in self.whole[partition] if h.is_control and h.base_offset < end)
        later = (partition in named for n, named, _ in self.of_same_id(number) if n > number)
        is_tied = any(h.producer_id == pid for h in marks)
        return is_tied and (self.version >= 2 or not any(later))

    def expected(self, ends: Mapping[TopicPartition, int]) -> Expected:
        found: Expected = {}
        for number, (outcome, named, wrote) in enumerate(self.noted):
            if outcome != "commit":
                continue
            parts, absent = set(), set()
            for p in named:
                begin, end = wrote.get(p, (0, 0))
                mine = [h for h in self.whole[p] if begin <= h.base_offset < end]
                there = [h for h in mine if h.base_offset < ends[p]]
                data = [h for h in there if not h.is_control]
                ended = any(h.is_control for h in there)
                if data and not ended and not self.is_known(number, p, ends[p]):
                    continue
                if data:
                    first, last = data[0].base_offset, data[-1].last_offset
                    parts.add((p, first, last, None if ended else first))
                elif not ended and self.is_copy(p, ends[p]) and not self.is_hidden(number, p, ends):
                    absent.add((p, self.copied_end(p, ends[p])))
            if any(part[3] is None for part in parts) and (
                absent or any(part[3] is not None for part in parts)
            ):
                found[frozenset(parts)] = frozenset(absent)
        return found

    def is_hidden(
        self, number: int, partition: TopicPartition, ends: Mapping[TopicPartition, int]
    ) -> bool:
        """Open data there may be of this transaction as well as of an earlier one of its id."""
        end = ends[partition]
        return self.version < 2 and any(
            n < number and at[0] < end and not self.has_ended(partition, at, end)
            for n, _, wrote in self.of_same_id(number)
            if (at := wrote.get(partition)) is not None
        )

    def has_ended(self, partition: TopicPartition, at: tuple[int, int], end: int) -> bool:
        return any(
            h.is_control for h in self.whole[partition] if at[0] <= h.base_offset < min(end, at[1])
        )

    def is_copy(self, partition: TopicPartition, end: int) -> bool:
        return end == 0 or self.copied_end(partition, end) > 0

    def copied_end(self, partition: TopicPartition, end: int) -> int:
        """Return the end of the last marker of the copy."""
        whole = self.whole[partition]
        marks = [h.last_offset for h in whole if h.is_control and h.base_offset < end]
        return max(marks, default=-1) + 1


def cuts(found: JudgedCopies) -> Expected:
    return {
        frozenset((p.topic_partition, p.first, p.last, p.missing_from) for p in one.parts): (
            frozenset((a.topic_partition, a.from_offset) for a in one.absent)
        )
        for one in found.cut.cut
    }


@pytest.mark.parametrize("version", [1, 2])
@given(seed=st.integers(0, 2**32), pending=st.booleans())
@settings(deadline=None, max_examples=share(150))
def test_a_copy_that_ends_anywhere_shows_what_is_cut_and_nothing_else(
    version: int, seed: int, pending: bool
) -> None:
    """One transaction may wait for its markers while the bundle is made."""
    world = Copied(random.Random(seed), version)
    world.live(0)
    if pending:
        world.transaction("pending")
    ends = world.cut()
    known = SourceDecisions(world.covered(), world.now, 0)
    found = cut_in_copies(known, world.read(5), ends, NOTHING)
    assert cuts(found) == world.expected(ends)
    unknown = [part for part in found.cut.unproven if part.why != "no-copies"]
    assert {part.why for part in unknown} <= {"undecided", "own-producer"}
    # what is open in a copy was decided in the source, as this says
    for one in found.open:
        [outcome] = {
            o
            for o, _, wrote in world.noted
            if (at := wrote.get(one.topic_partition)) and at[0] <= one.start_offset < at[1]
        }
        assert one.decision.outcome == outcome
    # or it is named as unknown, and nothing else is
    kept = [one for by_id in world.read(5).values() for of in by_id.values() for one in of]
    opened = [one for one in kept if one.mark is None]
    assert len(found.open) + sum(part.transactions for part in unknown) == len(opened)
    # an id that the mirror's own coordinators have given out proves nothing
    doubted = cut_in_copies(
        known, world.read(5), ends, gave(dict.fromkeys((100, 101, 102), 32_767))
    )
    assert (doubted.cut.cut, doubted.open) == ((), ())


def ended(epoch: int, first: int, at: int, outcome: str = "commit") -> Ending:
    return Ending(Data(epoch, first, first + 4, at), Mark(first + 5, outcome, epoch, 0, at))


HERE = [ended(3, 0, 110)]
OPEN = [Ending(Data(3, 0, 4, 95), None)]


def copies(p0: Sequence[Ending], p1: Sequence[Ending] = ()) -> Endings:
    return {P0: {7: p0}, P1: {7: p1}}


def judged(
    made: Sequence[Coverage],
    held: Endings,
    own: GivenOut = NOTHING,
    ends: Mapping[TopicPartition, int] | None = None,
) -> JudgedCopies:
    ends = {P0: 6, P1: 6} if ends is None else ends
    return cut_in_copies(SourceDecisions(made, 1_000, 0), held, ends, own)


def made() -> Coverage:
    """One commit under v1 on both partitions, of an id whose log lacks nothing."""
    return replace(decided(9, 100, 120, P0, P1), whole=True)


def twice() -> Coverage:
    """Such a commit and an earlier one, whose marker TIED has."""
    first = replace(made().decisions[0], offset=5, timestamp=40, completed_at=60)
    return replace(made(), decisions=(first, *made().decisions))


TIED = [ended(3, 0, 50), Ending(Data(3, 6, 8, 95), None)]


def test_data_without_its_marker_is_nothing_to_a_reader() -> None:
    found = judged([twice()], copies(HERE, TIED))
    assert cuts(found) == {frozenset({(P0, 0, 4, None), (P1, 6, 8, 6)}): frozenset()}
    [one] = found.open
    assert (one.topic_partition, one.start_offset, one.decision.outcome) == (P1, 6, "commit")


def test_a_marker_of_another_time_is_another_producers() -> None:
    """It has the producer id and the epoch by chance."""
    chance = replace(made(), decisions=tuple(
        replace(d, client_version=2, producer_epoch=4) for d in made().decisions
    ))  # fmt: skip
    late = Ending(Data(3, 0, 4, 900), Mark(5, "commit", 4, 0, 900))
    found = judged([chance], copies([late]))
    assert (found.cut.cut, doubts(found.cut)[P0, "own-producer"]) == ((), 1)
    in_time = Ending(Data(3, 0, 4, 110), Mark(5, "commit", 4, 0, 110))
    found = judged([chance], copies([in_time], [late]))
    assert (found.cut.cut, doubts(found.cut)) == (
        (),
        {(P1, "own-producer"): 1, (P1, "no-copies"): 1},
    )


def test_a_marker_of_the_other_outcome_is_not_the_decisions() -> None:
    second = replace(made().decisions[0], client_version=2, producer_epoch=4)
    other = Ending(Data(3, 0, 4, 95), Mark(5, "abort", 4, 0, 110))
    found = judged([replace(made(), decisions=(second,))], copies([other]))
    assert (found.cut.cut, doubts(found.cut)[P0, "own-producer"]) == ((), 1)


def test_open_data_is_of_no_decision_that_was_made_before_it() -> None:
    """The decision's marker is lost in the source, and the bundle is older than the data."""
    for data_at in (101, 9_000_000):
        found = judged([made()], copies(HERE, [Ending(Data(3, 0, 4, data_at), None)]))
        assert (found.open, found.cut.cut) == ((), ())
        assert doubts(found.cut)[P1, "undecided"] == 1
    late = Coverage("x", (replace(made().decisions[0], timestamp=999),), 1, (), True)
    skewed = SourceDecisions([late], 1_000, 10)
    opened = {P1: {7: [Ending(Data(3, 0, 4, 995), None)]}}
    found = cut_in_copies(skewed, opened, {P1: 6}, NOTHING)
    assert (found.open, doubts(found.cut)[P1, "undecided"]) == ((), 1)


def test_open_data_may_be_of_each_later_decision_of_its_id() -> None:
    """Which one, its times do not say: the first may have lost its marker. Nothing is absent."""
    second = replace(made().decisions[0], offset=12, timestamp=200, completed_at=220)
    both = replace(made(), decisions=(*made().decisions, second))
    found = judged([both], copies([*HERE, ended(3, 20, 210)], OPEN), ends={P0: 26, P1: 5})
    assert (found.open, found.cut.cut, doubts(found.cut)[P1, "undecided"]) == ((), (), 1)


def test_what_retention_took_in_the_mirror_is_not_missing() -> None:
    """A later decision has its marker there, so that the copy had come past this one."""
    later = replace(made().decisions[0], offset=12, timestamp=200, completed_at=220)
    both = replace(made(), decisions=(*made().decisions, later))
    newer = ended(3, 20, 210)
    assert judged([both], copies([*HERE, newer], [newer]), ends={P0: 26, P1: 26}).cut.cut == ()
    [one] = judged([both], copies([*HERE, newer], HERE), ends={P0: 26, P1: 6}).cut.cut
    assert [a.from_offset for a in one.absent] == [6]
    # the mirror's own producers wrote behind the copies
    mine = {90: [ended(0, 6, 5_000)]}
    held = {P0: {7: [*HERE, newer]}, P1: {7: HERE, **mine}}
    [one] = judged([both], held, gave({90: 0}), ends={P0: 26, P1: 500}).cut.cut
    assert [a.from_offset for a in one.absent] == [6]


def test_an_id_given_out_here_is_the_sources_only_above_its_last_epoch() -> None:
    assert judged([twice()], copies(HERE, TIED), gave({7: 3})).cut.cut == ()
    assert len(judged([twice()], copies(HERE, TIED), gave({7: 2})).cut.cut) == 1


def test_what_the_bundle_does_not_know_is_not_the_mirrors_own_by_its_id_alone() -> None:
    """Both clusters give out the same ids. What a coordinator of the mirror names is its own."""
    late = Ending(Data(3, 6, 9, 1_100), Mark(10, "commit", 3, 0, 1_100))
    opened = Ending(Data(3, 11, 12, 1_200), None)
    for held in ([late], [opened], [Ending(None, Mark(6, "commit", 3, 0, 1_100))]):
        found = judged([], {P0: {7: held}}, gave({7: 5}))
        assert (found.open, doubts(found.cut)) == ((), {(P0, "own-producer"): 1})
        for named, is_own in (((P0, 7, 3), True), ((P1, 7, 3), False), ((P0, 7, 4), False)):
            found = judged([], {P0: {7: held}}, gave({7: 5}, named))
            assert bool(found.cut.unproven) is not is_own


def test_open_data_alone_is_not_the_sources() -> None:
    """The id may have been one of the mirror's, whose coordinators forgot it."""
    alone = judged([made()], {P0: {7: HERE}, P1: {7: OPEN}})
    assert (alone.open, alone.cut.cut) == ((), ())
    assert doubts(alone.cut)[P1, "own-producer"] == 1


def test_a_marker_that_may_be_the_mirrors_own_ties_nothing_to_the_source() -> None:
    """The id has a higher epoch in the source than the mirror knows; the marker has not."""
    first, second = twice().decisions
    raised = replace(twice(), decisions=(first, replace(second, producer_epoch=4)))
    held = {P1: {7: [TIED[0], Ending(Data(4, 6, 8, 95), None)]}}
    assert len(judged([raised], held).open) == 1
    found = judged([raised], held, gave({7: 3}))
    assert (found.open, doubts(found.cut)[P1, "own-producer"]) == ((), 2)


def test_what_the_bundle_does_not_know_is_unknown() -> None:
    late = Ending(Data(3, 6, 9, 1_100), Mark(10, "commit", 3, 0, 1_100))
    opened = Ending(Data(3, 11, 12, 1_200), None)
    found = judged([made()], copies([*HERE, late, opened], HERE))
    assert found.cut.cut == ()
    assert doubts(found.cut) == {(P0, "after-bundle"): 1, (P0, "undecided"): 1}
    assert found.open == ()
    nobody = judged([], copies(HERE, OPEN))
    assert doubts(nobody.cut) == {(P0, "decision-gone"): 1, (P1, "undecided"): 1}


def test_open_data_is_of_no_later_decision_where_one_may_be_compacted_away() -> None:
    cut_off = replace(made(), whole=False)
    found = judged([cut_off], copies(HERE, OPEN))
    assert (found.cut.cut, doubts(found.cut)[P1, "undecided"]) == ((), 1)


def test_copies_with_other_producer_ids_do_not_say_whose_they_are() -> None:
    """A partition that was not read is no empty one."""
    replicator = {P0: {90: HERE}, P1: {}}
    found = judged([made()], replicator, gave({90: 3}))
    assert (found.cut.cut, doubts(found.cut)) == (
        (),
        {(P0, "no-copies"): 1, (P1, "no-copies"): 1},
    )
    found = judged([made()], copies(HERE), ends={P0: 6})
    assert (found.cut.cut, doubts(found.cut)) == ((), {(P1, "not-compared"): 1})


def test_the_last_epochs_are_those_of_the_log() -> None:
    world = Noted(random.Random(1), 2)
    world.live(0)
    log = StateLog(0, tuple(world.records), 0, None)
    assert given_out([log]).highest == {
        pid: max(
            r.value.producer_epoch
            for r in world.records
            if isinstance(r.value, TransactionValue) and r.value.producer_id == pid
        )
        for pid in world.epochs
    }


def state(state: TransactionState, epoch: int, **more: Any) -> StateRecord:
    value = TransactionValue(5, epoch, 60_000, state, (P0,), 0, 0, **more)
    return StateRecord("x", 0, 0, 0, value)


def test_an_id_that_was_changed_for_another_is_given_out_wholly() -> None:
    changed = state(
        TransactionState.PREPARE_COMMIT,
        0,
        previous_producer_id=1005,
        next_producer_id=1006,
        client_transaction_version=2,
    )
    given_by = given_out([StateLog(0, (changed,), 0)])
    assert given_by.highest == {5: 0, 1005: 32_767, 1006: 32_767}


@pytest.mark.parametrize(
    ("record", "epochs"),
    [
        (state(TransactionState.ONGOING, 3), {3}),
        (state(TransactionState.PREPARE_COMMIT, 3, client_transaction_version=2), {2}),
        (state(TransactionState.PREPARE_COMMIT, 3), {3}),
        (state(TransactionState.PREPARE_ABORT, 3), {2, 3}),  # a fence or a timeout
    ],
)
def test_a_state_names_the_epochs_of_its_data(record: StateRecord, epochs: set[int]) -> None:
    assert given_out([StateLog(0, (record,), 0)]).named == {(P0, 5, e) for e in epochs}


def test_a_state_partition_that_the_bundle_lacks_is_named() -> None:
    denied = StateLog(4, (), 0, error="TOPIC_AUTHORIZATION_FAILED")
    history = SeenHistory(5, (StateLog(3, (), 0), denied), (), everything=True)
    audit = _OfBundle(
        cast("Any", SimpleNamespace(history=history)), *cast("tuple[Any, Any, Any]", (None,) * 3)
    )
    assert [log.partition for log in audit._readable()] == [3]
    [missing] = audit._missing
    assert (missing.partition, missing.error) == (4, "TOPIC_AUTHORIZATION_FAILED")


@pytest.mark.parametrize("is_mirror", [False, True])
def test_only_a_source_that_is_gone_has_its_bundle_asked_for(
    monkeypatch: pytest.MonkeyPatch, is_mirror: bool
) -> None:
    gone = UnreachableError("the password is wrong", where="b:9092", remedy="set another")

    async def fail(*_: Any) -> None:
        raise gone

    def answered(*words: Any) -> int:
        if not is_mirror:
            raise gone
        asyncio.run(words[3](None, None))
        return 0

    monkeypatch.setattr(of_logs, "audit_mirror_transactions", fail)
    connection = SimpleNamespace(bundle=lambda: None, one=lambda: SimpleNamespace())
    where = SimpleNamespace(context=lambda: SimpleNamespace())
    reads = SimpleNamespace(answered=answered)
    with pytest.raises(UnreachableError) as raised:
        mirror_transactions(*cast("Any", (connection, None, where, reads, ["t"])))
    text = raised.value.sentence
    assert text.startswith("b:9092: the password is wrong; set another")
    assert ("--from BUNDLE" in text) is not is_mirror
