"""The memory of ids, against a dict that remembers everything."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.dedup.seen_ids import Bloom, SeenIds


def digest(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=16).digest()


def ids_of(numbers: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(map(digest, numbers)), np.uint64).reshape(-1, 2)


def seen_one_by_one(
    records: list[tuple[int, int, int]], ms: int | None, offsets: int | None
) -> list[int]:
    """(id, offset, timestamp) of each record -> where its id was seen, within the horizon."""
    last: dict[int, tuple[int, int]] = {}
    clock, found = -1, []
    for one, offset, timestamp in records:
        clock = max(clock, timestamp)
        there = last.get(one)
        near = there is not None and (
            offset - there[0] <= offsets
            if offsets is not None
            else ms is None or clock - there[1] <= ms
        )
        if there is not None and near:
            found.append(there[0])
        else:
            found.append(-1)
            last[one] = offset, clock
    return found


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 5), st.integers(-1, 60)), max_size=80
    ),
    cuts=st.lists(st.integers(1, 20), min_size=1, max_size=20),
    horizon=st.one_of(
        st.none(),
        st.tuples(st.just("ms"), st.integers(0, 60)),
        st.tuples(st.just("n"), st.integers(0, 60)),
    ),
    segment=st.integers(1, 9),
)
def test_the_same_as_one_by_one_however_cut(
    records: list[tuple[int, int, int]],
    cuts: list[int],
    horizon: tuple[str, int] | None,
    segment: int,
) -> None:
    ms = horizon[1] if horizon and horizon[0] == "ms" else None
    n = horizon[1] if horizon and horizon[0] == "n" else None
    offset, placed = 0, []
    for one, step, timestamp in records:
        offset += step
        placed.append((one, offset, timestamp))
    memory, found, low, turn = SeenIds(ms, n, segment), [], 0, 0
    while low < len(placed):
        part = placed[low : low + cuts[turn % len(cuts)]]
        low, turn = low + len(part), turn + 1
        found += memory.first_seen(
            ids_of([p[0] for p in part]),
            np.array([p[1] for p in part], np.int64),
            np.array([p[2] for p in part], np.int64),
        ).tolist()
    assert found == seen_one_by_one(placed, ms, n)
    if horizon is None:
        assert memory.forgotten == 0
        assert len(memory) == len({p[0] for p in placed})


def test_what_lies_beyond_the_horizon_takes_no_memory() -> None:
    memory = SeenIds(horizon_offsets=1000, segment_size=100)
    for low in range(0, 100_000, 500):
        at = np.arange(low, low + 500)
        memory.first_seen(ids_of(at.tolist()), at, at)
    assert len(memory) <= 2000
    assert memory.forgotten + len(memory) == 100_000


@pytest.mark.parametrize("count", [1, 1000, 20_000])
def test_a_bloom_filter_holds_all_that_was_added_and_few_others(count: int) -> None:
    bloom = Bloom(count)
    bloom.add(ids_of(list(range(count))))
    assert bloom.may_hold(ids_of(list(range(count)))).all()
    strangers = bloom.may_hold(ids_of(list(range(count, count + 20_000))))
    assert strangers.mean() < 0.02
