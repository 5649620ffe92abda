"""Decisions of coordinators, counted by stretches of ten seconds."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from recovery.diagnose.decided import STEP_MS, Decisions
from recovery.facts import TopicPartition
from tests.unit.transaction_model import World

T0 = TopicPartition("t", 0)


@given(
    st.lists(st.tuples(st.sampled_from(["commit", "abort", None]), st.integers(0, 25_000))),
    st.integers(0, 60_000),
    st.sampled_from([1, 2]),
)
def test_each_transaction_that_ends_is_counted_once_in_its_stretch(
    ends: list[tuple[str | None, int]], later: int, version: int
) -> None:
    world = World()
    i = world.init("a", version)
    begin = world.now + later
    first = -(-begin // STEP_MS) * STEP_MS  # of a stretch that began before, not all is there
    expected: Counter[tuple[str, int]] = Counter()
    for outcome, ms in ends:
        world.write(i, T0)
        world.tick(ms)
        if outcome is None:
            continue
        if world.now >= first:
            expected[outcome, world.now // STEP_MS] += 1
        world.end(i, outcome)
        world.tick(1)
    records = [r for log in world.state.values() for r in log]
    end = max(world.now, begin) + 1
    decisions = Decisions()
    decisions.count(records)
    counted = decisions.between(begin, end)
    assert (counted.begin, counted.end) == (first, end)
    for name, counts in (("commit", counted.commits), ("abort", counted.aborts)):
        assert len(counts) == max(0, -(-(end - first) // STEP_MS))
        found = {(name, first // STEP_MS + n): c for n, c in enumerate(counts) if c}
        assert found == {key: c for key, c in expected.items() if key[0] == name}
