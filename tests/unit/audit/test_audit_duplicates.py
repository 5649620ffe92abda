"""Duplicates: no repeat escapes the filter, whatever the chunks; distances as counted by hand."""

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.duplicates import SHOWN, Copies, Copy, Suspect, Suspects, among
from tests.share import share


@given(seed=st.integers(0, 2**32), chunk=st.integers(1, 200), space=st.integers(1, 5_000))
@settings(deadline=None, max_examples=share(200))
def test_every_repeat_is_suspected_and_few_others(seed: int, chunk: int, space: int) -> None:
    rng = np.random.default_rng(seed)
    # ids as digests are: equal in both halves or in none
    digests = rng.integers(0, 2**63, (space, 2), dtype=np.uint64)
    drawn = rng.integers(0, space, 600)
    suspects = Suspects(600)
    for at in range(0, 600, chunk):
        suspects.add(digests[drawn[at : at + chunk]])
    repeated = {number for number, count in Counter(drawn.tolist()).items() if count > 1}
    once = np.array(sorted(set(drawn.tolist()) - repeated), np.int64)
    halves = suspects.halves()
    assert among(halves, digests[np.array(sorted(repeated), np.int64)]).all()
    assert among(halves, digests[once]).sum() <= 3 + len(once) // 20


def test_without_records_nothing_is_suspected() -> None:
    suspects = Suspects(0)
    none = np.zeros((0, 2), np.uint64)
    suspects.add(none)
    halves = suspects.halves()
    assert len(halves) == 0
    assert among(halves, none).tolist() == []
    assert among(halves, np.ones((2, 2), np.uint64)).tolist() == [False, False]


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=share(200))
def test_places_and_distances(seed: int) -> None:
    rng = random.Random(seed)
    copies = Copies(9)
    told: dict[bytes, list[tuple[Copy, int]]] = {}
    for partition in range(3):
        offset = 0
        for _ in range(rng.randrange(40)):
            offset += rng.randrange(1, 9)
            name = b"%16d" % rng.randrange(12)
            value = rng.randrange(2)
            time = None if rng.random() < 0.1 else rng.randrange(10_000)
            copy = Copy("t", partition, offset, time)
            copies.add(Suspect(name, name.strip(), 16, copy, value))
            told.setdefault(name, []).append((copy, value))
    copies.end()
    found = copies.duplicates()
    expected = {name: all_of for name, all_of in told.items() if len(all_of) > 1}
    assert copies.findings == len(expected)
    assert copies.repeats == sum(len(e) - 1 for e in expected.values())
    assert {same.id for same in found} <= {name.strip() for name in expected}
    often = sorted((len(e) for e in expected.values()), reverse=True)
    assert [s.copies for s in found] == often[:9]
    for same in found:
        assert same.id is not None
        here = expected[same.id.rjust(16)]
        assert list(same.first_copies) == [copy for copy, _ in here][:SHOWN]
        assert same.same_value == (len({value for _, value in here}) == 1)
        pairs = [
            b.offset - a.offset
            for i, (a, _) in enumerate(here)
            for b, _ in here[i + 1 :]
            if a.partition == b.partition
        ]
        assert same.nearest == min(pairs, default=None)
        assert same.farthest == max(pairs, default=None)
        times = [copy.timestamp for copy, _ in here if copy.timestamp is not None]
        assert (same.oldest, same.newest) == (min(times, default=None), max(times, default=None))
