"""`audit mirror`: which differences are shown and how many there are, against counting by hand."""

import random
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit import mirror_unmatched
from recovery.audit.mirror_table import Difference, MirrorFault, explained
from recovery.audit.mirror_unmatched import UnmatchedRecords, sorted_digests
from recovery.errors import IncompleteError
from recovery.formats.columns import ABORTED, COMMITTED, OPEN, Batches, ColumnBatch
from recovery.shared.record_digests import record_digests
from recovery.values import replace
from tests.share import share
from tests.unit.formats_build import Item, batch, decoded

END = 2**62
ALL = 10**9
FIELDS = ("timestamp", "key", "value", "headers")
Record = tuple[Item, int]
"""A record with its offset, and what became of its transaction."""


def _log(records: list[Record]) -> ColumnBatch:
    part = decoded(b"".join(batch(r.offset, [r._replace(offset=0)]) for r, _ in records), None)
    outcomes = np.array([outcome for _, outcome in records], np.int8)
    return replace(part, batches=Batches(part.batches.scan, outcomes))


def _unmatched(source: list[Record], mirror: list[Record]) -> UnmatchedRecords:
    mine, theirs = (_log(side) for side in (source, mirror))
    digests = [record_digests(side) for side in (mine, theirs)]
    unmatched = UnmatchedRecords(sorted_digests(np.concatenate(digests)))
    unmatched.add_source(digests[0], mine, END)
    unmatched.add_mirror(digests[1], theirs)
    return unmatched


def _made(rng: random.Random, count: int, states: tuple[int, ...]) -> list[Record]:
    """Few contents, so that records repeat and several agree in most fields."""
    found, at = [], 0
    for _ in range(count):
        at += rng.choice((1, 1, 1, 4))
        headers = (("h", b"x"),) if rng.random() < 0.3 else ()
        key, value = rng.choice((None, b"a", b"b")), rng.choice((b"", b"v", b"w"))
        item = Item(at, rng.randrange(1, 4), key, value, headers)
        found.append((item, rng.choice(states)))
    return found


def _by_content(records: Iterable[Record], state: int) -> dict[Item, list[int]]:
    found: dict[Item, list[int]] = defaultdict(list)
    for item, outcome in records:
        if outcome == state:
            found[item._replace(offset=0)].append(item.offset)
    return found


def _counted(source: list[Record], mirror: list[Record]) -> list[Difference]:
    """The differences, one record after the other."""
    mine, aborted, undecided = (_by_content(source, s) for s in (COMMITTED, ABORTED, OPEN))
    theirs = _by_content(mirror, COMMITTED)
    found: list[Difference] = []
    lost: dict[int, Item] = {}
    alone: dict[int, Item] = {}
    for content in mine.keys() | theirs.keys():
        at, copies = mine.get(content, []), theirs.get(content, [])
        lost |= dict.fromkeys(at[len(copies) :], content)
        for copy in copies[len(at) :]:
            if at:
                found.append(Difference("repeat", at[-1], copy, copies[0]))
            elif content in aborted:
                found.append(Difference("aborted", aborted[content][0], copy))
            elif content in undecided:
                found.append(Difference("open", undecided[content][0], copy))
            else:
                alone[copy] = content
    for alike in (FIELDS[:2], FIELDS[1:], ("timestamp", "value", "headers")):
        sides = []
        for side in (lost, alone):
            grouped: dict[tuple[object, ...], list[int]] = defaultdict(list)
            for offset, content in side.items():
                grouped[tuple(getattr(content, name) for name in alike)].append(offset)
            sides.append(grouped)
        for same in sides[0].keys() & sides[1].keys():
            if len(sides[0][same]) == len(sides[1][same]) == 1:
                [one], [other] = sides[0][same], sides[1][same]
                a, b = lost.pop(one), alone.pop(other)
                differs = tuple(n for n in FIELDS if getattr(a, n) != getattr(b, n))
                found.append(Difference("changed", one, other, None, differs))
    found += [Difference("lost", offset, None) for offset in lost]
    found += [Difference("only-in-mirror", None, offset) for offset in alone]
    big = END  # the mirror's own last; what it lacks first
    return sorted(
        found,
        key=lambda d: (
            big if d.source_offset is None else d.source_offset,
            -1 if d.mirror_offset is None else d.mirror_offset,
        ),
    )


@given(
    seed=st.integers(0, 2**32),
    most=st.integers(0, 30),
    compacted=st.tuples(st.booleans(), st.booleans()),
)
@settings(deadline=None, max_examples=share(600))
def test_the_first_are_shown_and_all_are_counted(
    seed: int, most: int, compacted: tuple[bool, bool]
) -> None:
    rng = random.Random(seed)
    states = (COMMITTED, COMMITTED, ABORTED, OPEN)
    source = _made(rng, rng.randrange(1, 40), states[: rng.randrange(1, 5)])
    mirror = _made(rng, rng.randrange(1, 40), (COMMITTED,))
    expected = _counted(source, mirror)
    unmatched = _unmatched(source, mirror)
    excused = explained(*compacted)
    judged = unmatched.judge((), most=most, excused=excused)
    assert judged.counts == Counter(d.kind for d in expected)
    proven = [d for d in expected if d.kind not in excused]
    assert judged.differences == proven[:most]
    assert unmatched.judge((), most=ALL).differences == expected
    above = rng.randrange(-1, 60)
    hidden = [d for d in expected if d.kind in ("aborted", "open") and d.mirror_offset is not None]
    offsets = [d.source_offset for d in hidden if (d.mirror_offset or 0) > above]
    assert unmatched.hidden(above) == max((o for o in offsets if o is not None), default=-1)


@pytest.mark.parametrize(
    ("source", "mirror", "kinds"),
    [
        (False, False, set()),
        (True, False, {"repeat", "changed", "only-in-mirror"}),
        (False, True, {"lost", "changed"}),
        (True, True, {"lost", "repeat", "changed", "only-in-mirror"}),
    ],
)
def test_what_a_compacted_log_lacks_proves_nothing(
    source: bool, mirror: bool, kinds: set[MirrorFault]
) -> None:
    """A copy of what no reader got is one in any case."""
    assert explained(source, mirror) == kinds


def test_more_places_of_equal_records_than_fit_are_refused() -> None:
    """One of them has no partner; all the others are paired, and stand in the table too."""
    items = [Item(i, 1, b"k", b"v") for i in range(61)]
    logs = [decoded(batch(0, found), None) for found in (items[:60], items)]
    digests = [record_digests(log) for log in logs]
    for most, fits in ((121, True), (120, False)):
        unmatched = UnmatchedRecords(sorted_digests(digests[1]), most=most)
        unmatched.add_source(digests[0], logs[0], END)
        if fits:
            unmatched.add_mirror(digests[1], logs[1])
            assert unmatched.judge((), most=ALL).counts == {"repeat": 1}
            continue
        with pytest.raises(
            IncompleteError, match=r"more than 120 places .* too many to tell apart"
        ):
            unmatched.add_mirror(digests[1], logs[1])


def test_what_the_source_shows_takes_nothing_from_the_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror_unmatched, "SHOWN", 5)
    items = [Item(i, 1_000 + i, b"k%d" % i, b"v") for i in range(8)]
    mirror = [*items, items[0]._replace(offset=8)]
    logs = [
        decoded(b"".join(batch(i.offset, [i._replace(offset=0)]) for i in x), None)
        for x in (items, mirror)
    ]
    digests = [record_digests(log) for log in logs]
    unmatched = UnmatchedRecords(sorted_digests(digests[0]))
    for at in range(0, 8, 3):
        part = np.arange(at, min(at + 3, 8))
        unmatched.add_source(digests[0][part], logs[0].select(part), END)
    unmatched.add_mirror(digests[1], logs[1])
    expected = [(side, offset) for side in range(2) for offset in range(5)]
    assert sorted(unmatched.times) == sorted(unmatched.keys) == expected
    assert unmatched.keys[1, 4] == b"k4"


def test_memory_does_not_hold_what_is_not_shown() -> None:
    count = 20_000
    source = [Item(i, 1_000 + i, b"k%d" % i, b"v%d" % i) for i in range(count)]
    mirror = [item._replace(value=b"other") for item in source[: count // 2]]
    logs = [decoded(batch(0, items), None) for items in (source, mirror)]
    digests = [record_digests(log) for log in logs]
    unmatched = UnmatchedRecords(sorted_digests(np.concatenate(digests)))
    unmatched.add_source(digests[0], logs[0], END)
    unmatched.add_mirror(digests[1], logs[1])
    unmatched.judge((), most=10)  # what numpy loads
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    assert unmatched.hidden(-1) == -1
    judged = unmatched.judge((), most=10)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert judged.counts == {"changed": count // 2, "lost": count // 2}
    assert [d.source_offset for d in judged.differences] == list(range(10))
    assert after - before < 10_000
    assert peak - before < 500 * count  # columns of 8 bytes; an object of each would be 800
