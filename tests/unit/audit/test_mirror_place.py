"""Where a group continues in a mirror, against reading on by hand."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.mirror_entries import Entries, joined
from recovery.audit.mirror_pairs import Pairing
from recovery.audit.mirror_place import Around, Bounds, Place, placed
from recovery.audit.mirror_table import MIRROR, SOURCE_ABORTED, SOURCE_OPEN, Table
from recovery.audit.mirror_unmatched import UnmatchedRecords, sorted_digests
from recovery.formats.columns import ColumnBatch
from recovery.shared.record_digests import key_ranges, record_digests
from tests.share import share
from tests.unit.formats_build import Item, batch, decoded


def log(ids: Sequence[int]) -> ColumnBatch:
    """A record of each id; every second offset is a marker's."""
    items = [Item(2 * i, 1_000 + one, key=b"k", value=b"v%d" % one) for i, one in enumerate(ids)]
    return decoded(batch(0, items), None) if items else decoded(b"", None)


def place(source: Sequence[int], mirror: Sequence[int], read: int) -> Place:
    """Pair two logs. read: how many records of the source the group has read."""
    around = Around(2 * read)
    pairing = Pairing(source_cut=False, mirror_cut=False, translated=[around], block=3)
    logs = [log(source), log(mirror)]
    for side, part in zip((pairing.source, pairing.mirror), logs, strict=True):
        if len(part):
            digests = record_digests(part)
            pairing.add(side, Entries(digests, part.offset, key_ranges(part.key)), 0)
        side.done = True
    left, extra = pairing.finish()
    chain, moved = pairing.in_order()
    reach = max((run.source_last for run in (*chain, *moved)), default=-1)
    wanted = joined([left.select(left.offset <= reach), extra])
    unmatched = UnmatchedRecords(sorted_digests(wanted.digest))
    unmatched.add_source(record_digests(logs[0]), logs[0], 2**62)
    unmatched.add_mirror(record_digests(logs[1]), logs[1])
    bounds = Bounds(reach, 0, 2 * len(mirror), None, timed=True, compacted=False)
    return placed(around, unmatched.table(), bounds)


@pytest.mark.parametrize(
    ("mirror", "read", "offsets"),
    [
        ("abcdef", 0, (0, 0)),
        ("abcdef", 3, (5, 6)),  # after c; the marker of its transaction follows
        ("abcdef", 6, (11, 12)),
        ("abcd", 6, (7, 8)),  # e and f are not there yet
        ("", 2, (0, 0)),
        ("abcdecdef", 3, (11, 12)),  # killed after e: c, d and e came twice
        ("abcdecdef", 2, (9, 10)),  # everything from the second c on, and nothing twice
        ("abcdecdef", 5, (15, 16)),
        ("abdef", 3, (3, 4)),  # c is lost, but was read
        ("abcxdef", 3, (5, 8)),  # x is new in the mirror, after c
    ],
)
def test_one_offset_is_exact(mirror: str, read: int, offsets: tuple[int, int]) -> None:
    found = place([ord(c) for c in "abcdef"], [ord(c) for c in mirror], read)
    assert found.exact is not None
    assert (found.exact.offset, found.earliest.offset) == offsets
    assert (found.exact.again, found.exact.left, found.lost) == (0, 0, 0)


def test_equal_records_do_not_hide_what_the_mirror_copies_again() -> None:
    """It went back to the first of two equal records: the others follow once more."""
    found = place([9, 1, 2, 9], [9, 1, 2, 9, 9], 4)
    assert found.exact is not None
    assert found.next_source == 1


def test_what_is_there_twice_after_the_offset_comes_twice() -> None:
    found = place([1, 2, 3, 4, 5], [1, 2, 3, 4, 3, 4, 5], 1)
    assert found.exact is not None
    assert (found.exact.offset, found.exact.again, found.exact.left) == (2, 2, 0)


def test_records_out_of_order_are_a_range_with_the_cost_of_each_end() -> None:
    found = place([1, 2, 3, 4, 5, 6], [1, 2, 4, 5, 3, 6], 3)
    assert found.exact is None
    assert (found.earliest.offset, found.earliest.again, found.earliest.left) == (4, 1, 0)
    assert (found.latest.offset, found.latest.again, found.latest.left) == (9, 0, 2)


def test_one_of_two_equal_records_is_lost_and_nobody_can_say_which() -> None:
    found = place([1, 7, 7, 2], [1, 7, 2], 2)
    assert (found.earliest.offset, found.earliest.again) == (2, 1)
    assert (found.latest.offset, found.latest.left, found.lost) == (3, 1, 1)


@given(st.integers(0, 2**32), st.booleans())
@settings(deadline=None, max_examples=share(1_500))
def test_what_the_group_reads_is_what_it_had_not_read(seed: int, alike: bool) -> None:
    """From the offset on each record of the source that is left comes once, and nothing else."""
    rng = random.Random(seed)
    source = [rng.randrange(40) if alike else i for i in range(rng.randrange(1, 40))]
    mirror: list[int] = []
    at = 0
    while at < len(source):  # goes on, is killed, goes back
        end = min(len(source), at + rng.randrange(1, 15))
        mirror += source[at:end]
        at = end if rng.random() < 0.6 else rng.randrange(at, end)
        if end == len(source):
            break
    read = rng.randrange(len(source) + 1)
    found = place(source, mirror, read)
    assert found.exact is not None or alike
    chosen = found.exact or found.earliest
    reads = Counter(mirror[(chosen.offset + 1) // 2 :])
    needed = Counter(source[read:])
    assert sum((needed - reads).values()) == 0
    assert sum((reads - needed).values()) == chosen.again
    fewest = min(
        sum((Counter(mirror[i:]) - needed).values())
        for i in range(len(mirror) + 1)
        if not needed - Counter(mirror[i:])
    )
    assert chosen.again == fewest
    reads = Counter(mirror[(found.latest.offset + 1) // 2 :])
    assert sum((needed - reads).values()) == found.latest.left
    assert not any(reads[one] for one in set(source[:read]) - set(source[read:]))
    assert (found.lost, chosen.new, chosen.hidden) == (0, 0, 0)


def _table(places: Sequence[tuple[int, int, int]], times: Sequence[int]) -> Table:
    """places: (group, side, offset), sorted. times: of each group."""
    group, side, offset = (np.array(column) for column in zip(*places, strict=True))
    start = np.searchsorted(group, range(len(times)))
    return Table(group, start, offset, side, {"timestamp": np.array(times, np.uint64)[group]})


@pytest.mark.parametrize(
    ("began", "compacted", "repeated"), [(None, False, 2), (1_005, False, 3), (None, True, 4)]
)
def test_records_only_in_the_mirror_are_new_or_old_ones(
    began: int | None, compacted: bool, repeated: int
) -> None:
    """Nobody knows the source of three of them; one was aborted there, one is not decided."""
    places = [
        (0, MIRROR, 3),  # only in the mirror, before the offset
        (0, MIRROR, 14),  # and once more after it
        (1, MIRROR, 15),
        (1, MIRROR, 16),
        (2, MIRROR, 17),
        (3, MIRROR, 18),
        (3, SOURCE_ABORTED, 30),
        (4, MIRROR, 19),
        (4, SOURCE_OPEN, 31),
    ]
    around = Around(20)
    around.see(np.array([18, 20]), np.array([8, 10]))
    bounds = Bounds(31, 0, 20, began, timed=True, compacted=compacted)
    times = [1_009, 1_001, 1_009, 1_009, 1_009]  # the second group is older than `began`
    found = placed(around, _table(places, times), bounds)
    assert found.exact == found.latest
    counts = found.latest
    assert (counts.offset, counts.again, counts.left, found.lost) == (9, 0, 0, 0)
    assert (counts.new, counts.only_before, counts.hidden) == (4, 1, 2)
    assert counts.repeated == repeated
    assert found.next_source == 32
