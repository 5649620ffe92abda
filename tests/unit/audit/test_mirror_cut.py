"""Transactions that a mirror has in part, against what a random run wrote."""

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.mirror_cut import cut_by_mirror
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import OUTCOMES
from tests.share import share
from tests.unit.audit.test_audit_transactions import World


@dataclass
class Noted(World):
    """Notes how each transaction was decided, and which offsets it wrote."""

    noted: list[tuple[str, dict[TopicPartition, tuple[int, int]]]] = field(default_factory=list)

    def transaction(self, fault: str | None) -> None:
        before = dict(self.ends)
        super().transaction(fault)
        decided = next(
            OUTCOMES[r.value.state]
            for r in reversed(self.records)
            if isinstance(r.value, TransactionValue) and r.value.state in OUTCOMES
        )
        wrote = {p: (before.get(p, 0), end) for p, end in self.ends.items()}
        self.noted.append((decided, {p: r for p, r in wrote.items() if r[0] < r[1]}))


@pytest.mark.parametrize("version", [1, 2])
@given(seed=st.integers(0, 2**32), pending=st.booleans())
@settings(deadline=None, max_examples=share(150))
def test_what_is_in_the_mirror_in_part_is_found_and_nothing_else(
    version: int, seed: int, pending: bool
) -> None:
    rng = random.Random(seed)
    world = Noted(rng, version)
    world.live(0)
    reached = {p: rng.randrange(end + 1) for p, end in world.ends.items()}
    endings = world.read(5)
    data: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for partition, by_id in endings.items():
        for ended in by_id.values():
            data[partition] += [(e.data.first, e.data.last) for e in ended if e.data]
    expected = set()
    for decided, wrote in world.noted:
        parts = [
            (p, first, last)
            for p, (begin, end) in wrote.items()
            for first, last in data[p]
            if begin <= first < end
        ]
        has = any(first < reached[p] for p, first, _ in parts)
        lacks = any(last >= reached[p] for p, _, last in parts)
        if decided == "commit" and has and lacks:
            expected.add(
                frozenset(
                    (p, first, last, max(first, reached[p]) if last >= reached[p] else None)
                    for p, first, last in parts
                )
            )
    covered = [] if pending and version == 2 else world.covered()
    found = cut_by_mirror(covered, endings, reached, skew=0)
    assert {
        frozenset((p.topic_partition, p.first, p.last, p.missing_from) for p in one.parts)
        for one in found.cut
    } == expected
    assert found.unproven == ()
    assert all((one.decision is None) is (covered == []) for one in found.cut)


def test_without_decisions_version_1_says_what_it_does_not_know() -> None:
    for seed in range(40):
        world = Noted(random.Random(seed), 1)
        world.live(0)
        endings = world.read(5)
        reached = dict.fromkeys(world.ends, 0)
        found = cut_by_mirror([], endings, reached, skew=0)
        committed = sum(
            e.data is not None and e.mark is not None and e.mark.outcome == "commit"
            for by_id in endings.values()
            for ended in by_id.values()
            for e in ended
        )
        assert (found.cut, len(found.unproven)) == ((), committed)
