"""Byte copies that end anywhere, by the source's decisions alone, against what was written."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.mirror_copies import (
    JudgedCopies,
    SourceDecisions,
    cut_in_copies,
    given_out,
)
from recovery.audit.transaction_facts import Coverage, Data, Ending, Endings, Mark
from recovery.facts import TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import StateLog
from recovery.values import replace
from tests.share import share
from tests.unit.audit.test_audit_transactions import PARTITIONS
from tests.unit.audit.test_mirror_cut import Noted, decided, doubts

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Expected = dict[frozenset[Any], frozenset[Any]]
"""Parts of a cut transaction (partition, first, last, missing from), and where it is absent."""


class Copied(Noted):
    """A run, and copies of its partitions that end at some batch."""

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

    def expected(self, ends: Mapping[TopicPartition, int]) -> Expected:
        found: Expected = {}
        for outcome, named, wrote in self.noted:
            if outcome != "commit":
                continue
            parts, absent = set(), set()
            for p in named:
                begin, end = wrote.get(p, (0, 0))
                mine = [h for h in self.whole[p] if begin <= h.base_offset < end]
                there = [h for h in mine if h.base_offset < ends[p]]
                data = [h for h in there if not h.is_control]
                ended = any(h.is_control for h in there)
                if data:
                    first, last = data[0].base_offset, data[-1].last_offset
                    parts.add((p, first, last, None if ended else first))
                elif not ended and self.is_copy(p, ends[p]):
                    absent.add((p, ends[p]))
            if any(part[3] is None for part in parts) and (
                absent or any(part[3] is not None for part in parts)
            ):
                found[frozenset(parts)] = frozenset(absent)
        return found

    def is_copy(self, partition: TopicPartition, end: int) -> bool:
        return end == 0 or any(h.is_control for h in self.whole[partition] if h.base_offset < end)


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
    found = cut_in_copies(known, world.read(5), ends, {})
    assert cuts(found) == world.expected(ends)
    whys = {part.why for part in found.cut.unproven}
    assert whys <= {"no-copies"}
    # what is open in a copy was decided in the source, as this says
    for one in found.open:
        assert one.decision is not None
        [outcome] = {
            o
            for o, _, wrote in world.noted
            if (at := wrote.get(one.topic_partition)) and at[0] <= one.start_offset < at[1]
        }
        assert one.decision.outcome == outcome
    # an id that the mirror's own coordinators have given out proves nothing
    own = dict.fromkeys((100, 101, 102), 32_767)
    doubted = cut_in_copies(known, world.read(5), ends, own)
    assert (doubted.cut.cut, doubted.open) == ((), ())


def ended(epoch: int, first: int, at: int, outcome: str = "commit") -> Ending:
    return Ending(Data(epoch, first, first + 4, at), Mark(first + 5, outcome, epoch, 0, at))


HERE = [ended(3, 0, 110)]
OPEN = [Ending(Data(3, 0, 4, 105), None)]


def copies(p0: Sequence[Ending], p1: Sequence[Ending] = ()) -> Endings:
    return {P0: {7: p0}, P1: {7: p1}}


def judged(
    made: Sequence[Coverage],
    held: Endings,
    own: Mapping[int, int] | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> JudgedCopies:
    ends = {P0: 6, P1: 6} if ends is None else ends
    return cut_in_copies(SourceDecisions(made, 1_000, 0), held, ends, own or {})


def made() -> Coverage:
    """One commit under v1 on both partitions, of an id whose log lacks nothing."""
    return replace(decided(9, 100, 120, P0, P1), whole=True)


def test_data_without_its_marker_is_nothing_to_a_reader() -> None:
    found = judged([made()], copies(HERE, OPEN))
    assert cuts(found) == {frozenset({(P0, 0, 4, None), (P1, 0, 4, 0)}): frozenset()}
    [one] = found.open
    assert one.decision is not None
    assert (one.topic_partition, one.start_offset, one.decision.outcome) == (P1, 0, "commit")


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


def test_what_retention_took_in_the_mirror_is_not_missing() -> None:
    """A later decision has its marker there, so that the copy had come past this one."""
    later = replace(made().decisions[0], offset=12, timestamp=200, completed_at=220)
    both = replace(made(), decisions=(*made().decisions, later))
    newer = ended(3, 20, 210)
    assert judged([both], copies([*HERE, newer], [newer]), ends={P0: 26, P1: 26}).cut.cut == ()
    [one] = judged([both], copies([*HERE, newer], HERE), ends={P0: 26, P1: 6}).cut.cut
    assert [a.from_offset for a in one.absent] == [6]


def test_an_id_given_out_here_is_the_sources_only_above_its_last_epoch() -> None:
    assert judged([made()], copies(HERE, OPEN), {7: 3}).cut.cut == ()
    assert len(judged([made()], copies(HERE, OPEN), {7: 2}).cut.cut) == 1


def test_what_the_bundle_does_not_know_is_unknown() -> None:
    late = Ending(Data(3, 6, 9, 1_100), Mark(10, "commit", 3, 0, 1_100))
    opened = Ending(Data(3, 11, 12, 1_200), None)
    found = judged([made()], copies([*HERE, late, opened], HERE))
    assert found.cut.cut == ()
    assert doubts(found.cut) == {(P0, "after-bundle"): 1, (P0, "undecided"): 1}
    assert [one.decision for one in found.open] == [None]
    nobody = judged([], copies(HERE, OPEN))
    assert doubts(nobody.cut) == {(P0, "decision-gone"): 1, (P1, "undecided"): 1}


def test_open_data_is_of_no_later_decision_where_one_may_be_compacted_away() -> None:
    cut_off = replace(made(), whole=False)
    found = judged([cut_off], copies(HERE, OPEN))
    assert (found.cut.cut, doubts(found.cut)[P1, "undecided"]) == ((), 1)


def test_copies_with_other_producer_ids_do_not_say_whose_they_are() -> None:
    """A partition that was not read is no empty one."""
    replicator = {P0: {90: HERE}, P1: {}}
    found = judged([made()], replicator, {90: 3})
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
    assert given_out([log]) == {
        pid: max(
            r.value.producer_epoch
            for r in world.records
            if isinstance(r.value, TransactionValue) and r.value.producer_id == pid
        )
        for pid in world.epochs
    }
