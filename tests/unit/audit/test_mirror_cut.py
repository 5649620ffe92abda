"""Transactions that a mirror has in part, against what a random run wrote."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.operations.audit.mirror_transactions import _without_copy
from recovery.audit.mirror_cut import CutByMirror, cut_by_mirror
from recovery.audit.transaction_facts import Coverage, Data, Ending, Endings, Mark
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import OUTCOMES, Decision
from tests.share import share
from tests.unit.audit.test_audit_transactions import World

Parts = dict[TopicPartition, tuple[int, int]]
P0, P1, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@dataclass
class Noted(World):
    """Notes how each transaction was decided, which partitions it named and what it wrote there."""

    noted: list[tuple[str, tuple[TopicPartition, ...], Parts]] = field(default_factory=list)

    def transaction(self, fault: str | None) -> None:
        before = dict(self.ends)
        super().transaction(fault)
        value = next(
            r.value
            for r in reversed(self.records)
            if isinstance(r.value, TransactionValue) and r.value.state in OUTCOMES
        )
        wrote = {p: (before.get(p, 0), end) for p, end in self.ends.items()}
        wrote = {p: r for p, r in wrote.items() if r[0] < r[1]}
        self.noted.append((OUTCOMES[value.state], tuple(value.partitions), wrote))

    def parts(self, reached: Mapping[TopicPartition, int]) -> list[tuple[Any, ...]]:
        """By committed transaction: the partitions it named, and its data in those compared."""
        data: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        for partition, by_id in self.read(5).items():
            for ended in by_id.values():
                data[partition] += [(e.data.first, e.data.last) for e in ended if e.data]
        return [
            (
                named,
                {
                    (p, first, last, max(first, reached[p]) if last >= reached[p] else None)
                    for p, (begin, end) in wrote.items()
                    for first, last in data[p]
                    if p in reached and begin <= first < end
                },
            )
            for decided, named, wrote in self.noted
            if decided == "commit"
        ]


def is_cut(parts: set[Any]) -> bool:
    has = any(missing is None or missing > first for _, first, _, missing in parts)
    return has and any(missing is not None for *_, missing in parts)


def cut_parts(found: CutByMirror) -> set[frozenset[Any]]:
    return {
        frozenset((p.topic_partition, p.first, p.last, p.missing_from) for p in one.parts)
        for one in found.cut
    }


def doubts(found: CutByMirror) -> dict[tuple[TopicPartition, str], int]:
    return {(p.topic_partition, p.why): p.transactions for p in found.unproven}


@pytest.mark.parametrize("version", [1, 2])
@given(seed=st.integers(0, 2**32), pending=st.booleans(), left_out=st.booleans())
@settings(deadline=None, max_examples=share(150))
def test_what_is_in_the_mirror_in_part_is_found_and_nothing_else(
    version: int, seed: int, pending: bool, left_out: bool
) -> None:
    """One transaction may wait for its marker in a partition; one partition may be left out."""
    rng = random.Random(seed)
    world = Noted(rng, version)
    world.live(0)
    if pending:
        world.transaction("pending")
    reached = {p: rng.randrange(end + 1) for p, end in world.ends.items()}
    if left_out:
        reached.pop(rng.choice(sorted(reached)))
    expected, unproven = set(), Counter[tuple[TopicPartition, str]]()
    for named, parts in world.parts(reached):
        if is_cut(parts):
            expected.add(frozenset(parts))
        lacks = any(missing is not None for *_, missing in parts)
        for p in set(named) - {p for p, *_ in parts} if parts else ():
            if p not in reached:
                unproven[p, "not-compared"] += 1
            elif lacks:
                unproven[p, "no-data"] += 1
    found = cut_by_mirror(world.covered(), (), world.read(5), reached, skew=0)
    assert cut_parts(found) == expected
    assert doubts(found) == unproven
    assert all(one.decision is not None for one in found.cut)


@pytest.mark.parametrize("version", [1, 2])
def test_without_decisions_epochs_decide_and_else_it_is_not_known(version: int) -> None:
    for seed in range(40):
        world = Noted(random.Random(seed), version)
        world.live(0)
        reached = {p: world.rng.randrange(end + 1) for p, end in world.ends.items()}
        expected, gone = set(), Counter[tuple[TopicPartition, str]]()
        for _, parts in world.parts(reached):
            for one in [parts] if version == 2 else [{part} for part in parts]:
                if is_cut(one):
                    expected.add(frozenset(one))
                elif any(missing is not None for *_, missing in one):
                    gone.update((p, "decision-gone") for p, *_ in one)
        found = cut_by_mirror([], (), world.read(5), reached, skew=0)
        assert (cut_parts(found), doubts(found)) == (expected, gone)
        assert all(one.decision is None for one in found.cut)


def decided(offset: int, at: int, completed: int | None, *partitions: TopicPartition) -> Coverage:
    """A commit under v1 of the producer id 7 with epoch 3."""
    decision = Decision("x", "commit", 7, 3, partitions, 0, offset, at, 0, at, completed)
    return Coverage("x", (decision,), 0, (), False)


def by_id(*endings: Ending) -> dict[int, list[Ending]]:
    return {7: list(endings)}


COMMITTED = by_id(Ending(Data(3, 0, 4, 90), Mark(5, "commit", 3, 0, 110)))
OPEN = by_id(Ending(Data(3, 0, 4, 95), None))
BOTH: Endings = {P0: COMMITTED, P1: OPEN}
REACHED = {P0: 6, P1: 0}


def test_a_commit_whose_marker_is_lost_may_be_of_what_is_open_there() -> None:
    found = cut_by_mirror([decided(9, 100, 120, P0, P1)], (), BOTH, REACHED, skew=0)
    assert (found.cut, doubts(found)) == ((), {(P1, "no-marker"): 1})


def test_what_was_decided_while_the_partitions_were_read_is_known() -> None:
    """Its marker in P1 was written after the end that was read, and no data may be in the third."""
    made = decided(9, 100, 120, P0, P1, ELSEWHERE)
    everywhere = {**BOTH, ELSEWHERE: {}}
    found = cut_by_mirror([], [made], everywhere, REACHED | {ELSEWHERE: 0}, skew=0)
    [one] = found.cut
    assert [p.missing_from for p in one.parts] == [None, 0]
    assert found.unproven == ()


def test_a_topic_that_was_not_named_is_not_proven_and_offsets_of_groups_are_no_part() -> None:
    offsets = TopicPartition("__consumer_offsets", 7)
    covered = [decided(9, 100, 120, P0, ELSEWHERE, offsets)]
    for end in (0, 6):  # all of it is missing; all of it is there
        found = cut_by_mirror(covered, (), {P0: COMMITTED}, {P0: end}, skew=0)
        assert (found.cut, doubts(found)) == ((), {(ELSEWHERE, "not-compared"): 1})


@pytest.mark.parametrize(
    ("counts", "outside", "says"),
    [
        ({"repeat": 3}, 0, None),
        ({"lost": 2}, 0, "lacks 2 records,"),
        ({"changed": 1}, 0, "has changed 1 record,"),
        ({}, 1, "may lack 1 record,"),
    ],
)
def test_only_equal_copies_count_as_there(
    counts: dict[str, int], outside: int, says: str | None
) -> None:
    text = _without_copy(cast("Any", SimpleNamespace(counts=counts, outside=outside)))
    assert says in text if says and text else text is says
