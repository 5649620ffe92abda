"""What a plan for another cluster promises, and when it is refused."""

import pytest

from recovery.audit.failover import (
    Found,
    checks,
    mirror_names,
    origin,
    promise,
    refuse_ranges,
    refuse_unpaired,
)
from recovery.audit.mirror_place import Continued, Place
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.values import replace

A, B = TopicPartition("orders", 3), TopicPartition("dc1.orders", 3)
THERE = Continued(offset=70, again=0, left=0, hidden=0, new=0, only_before=0, repeated=0)
EXACT = Found(A, 100, 4, B, 0, Place(THERE, THERE, THERE, 0, 200, 200), pairs=150, records=150)
EARLY, LATE = replace(THERE, offset=60, again=8), replace(THERE, offset=90, left=12)
RANGE = replace(EXACT, place=replace(EXACT.place, exact=None, earliest=EARLY, latest=LATE))


def at(**changes: int) -> Found:
    return replace(EXACT, place=replace(EXACT.place, exact=replace(THERE, **changes)))


@pytest.mark.parametrize(
    ("found", "guarantee", "text"),
    [
        (EXACT, "exactly-once", "150 records of both clusters pair"),
        (at(new=5), "exactly-once", "150 records"),
        (at(again=2), "at-least-once", "dc1.orders:3: 2 records come again"),
        (at(hidden=1), "at-least-once", "1 record that A aborted, or has not decided"),
        (at(repeated=1), "at-least-once", "1 record may be copies of records that A no longer has"),
        (at(alike=2), "at-least-once", "2 records newer than the map may be repeats of others"),
        (replace(EXACT, returning=7), "at-least-once", "the mirror has still to copy 7 records"),
        (at(only_before=3), "at-most-once", "3 records before 70 that only B has"),
        (replace(at(only_before=3), compacted=True), "exactly-once", "150 records"),
        (replace(at(only_before=3), compacted=None), "at-most-once", "that only B has"),
        (replace(EXACT, offset=0, pairs=0), "at-least-once", "nothing shows that it is the mirror"),
        (
            replace(EXACT, place=replace(EXACT.place, lost=9)),
            "at-most-once",
            "dc1.orders:3 lacks 9 records that the group has not read",
        ),
        (replace(EXACT, timed=False), "exactly-once", "150 records"),
        (replace(EXACT, timed=False, deleted=True), "at-most-once", "its own timestamps"),
    ],
)
def test_the_guarantee_is_what_the_records_show(found: Found, guarantee: str, text: str) -> None:
    refuse_ranges([found])
    made = promise([EXACT, found], None)
    assert made.guarantee == guarantee
    assert text in made.because or (found.pairs == 150 and "300 records" in made.because)


def test_a_range_is_refused_with_its_costs_until_an_end_is_chosen() -> None:
    with pytest.raises(RefusedError) as refused:
        refuse_ranges([EXACT, RANGE])
    assert "dc1.orders:3 continues between 60 and 90: from 60 8 records come again, from 90 12" in (
        refused.value.sentence
    )
    assert [promise([RANGE], end).guarantee for end in ("earliest", "latest")] == [
        "at-least-once",
        "at-most-once",
    ]
    row = origin(RANGE, "latest")
    assert (row.earliest_offset, row.latest_offset, row.skipped) == (60, 90, 12)
    row = origin(EXACT, "latest")
    assert (row.earliest_offset, row.latest_offset) == (70, 70)


def test_a_topic_that_is_no_mirror_is_refused_and_an_empty_one_is_none_yet() -> None:
    with pytest.raises(RefusedError, match="none of its 150 records is one of orders:3's"):
        refuse_unpaired(replace(EXACT, pairs=0))
    empty = replace(EXACT, pairs=0, records=0)
    refuse_unpaired(replace(empty, offset=0))
    with pytest.raises(RefusedError, match="of which the group has read up to 100"):
        refuse_unpaired(empty)
    with pytest.raises(RefusedError, match="whatever was mirrored is deleted"):
        refuse_unpaired(replace(empty, start=40))


def test_what_is_assumed_is_named() -> None:
    found = replace(at(new=5), behind=2, held=6, not_proven="no leader epoch")
    assert [(c.name, c.held) for c in checks(found, None)] == [
        ("paired", True),
        ("mirrored", None),
        ("held", None),
        ("only-in-b", None),
        ("source-log", None),
    ]
    [failed] = [c for c in checks(replace(found, returning=1), None) if c.held is False]
    assert failed.detail.startswith("wait until the mirror has come to orders:3 200, and plan")


@pytest.mark.parametrize(
    ("topics", "there", "named", "found"),
    [
        (["orders"], ["orders", "other"], {}, {"orders": ["orders"]}),
        (["orders"], ["dc1.orders", "orders"], {}, {"orders": ["dc1.orders", "orders"]}),
        (["orders"], ["dc1.orders", "orders"], {"orders": "orders"}, {"orders": ["orders"]}),
        (["orders"], ["reorders"], {}, {"orders": []}),
        # one ends like the other
        (
            ["orders", "x.orders"],
            ["dc1.orders", "dc1.x.orders"],
            {},
            {"orders": ["dc1.orders"], "x.orders": ["dc1.x.orders"]},
        ),
        # the way back: what was mirrored, and what was written meanwhile
        (
            ["dc1.orders", "orders"],
            ["dc2.orders", "orders"],
            {},
            {"dc1.orders": ["orders"], "orders": ["dc2.orders"]},
        ),
    ],
)
def test_a_mirror_is_known_by_its_name(
    topics: list[str], there: list[str], named: dict[str, str], found: dict[str, list[str]]
) -> None:
    assert mirror_names(topics, there, named) == found


GONE = replace(EXACT, known_at=1_700_000_000_000)
NEWER = replace(GONE, unseen=5, end=120, place=replace(GONE.place, unknown=12))


@pytest.mark.parametrize(
    ("found", "guarantee", "text"),
    [
        (GONE, "at-least-once", "read in A since 2023-11-14T22:13:20.000Z comes again"),
        (GONE, "at-least-once", "of what B has; what the group"),
        (GONE, "at-least-once", "what A wrote after it and B lacks is lost"),
        (replace(GONE, unseen=5), "at-least-once", "comes again"),  # but nothing is newer in B
        (
            replace(GONE, place=replace(GONE.place, lost=9)),
            "at-most-once",
            "lacks 9 records that the group has not read; of what B has; what the group",
        ),
    ],
)
def test_a_map_never_promises_more_than_it_saw(found: Found, guarantee: str, text: str) -> None:
    refuse_ranges([found])
    made = promise([EXACT, found], None)
    assert made.guarantee == guarantee
    assert text in made.because
    assert {c.name for c in checks(found, None)} >= {"map"}


def test_what_was_not_compared_with_the_map_is_named() -> None:
    [check] = [c for c in checks(replace(GONE, unchecked=7), None) if c.name == "unchecked"]
    assert check.held is None
    assert "7 records are taken from the map and not compared" in check.detail


@pytest.mark.parametrize(
    ("pending", "text"), [(True, "A held a newer"), (None, "A may have held a newer"), (False, "")]
)
def test_an_open_transaction_is_named_unless_it_is_known_that_there_was_none(
    pending: bool | None, text: str
) -> None:
    found = [c.detail for c in checks(replace(GONE, pending=pending), None) if c.name == "pending"]
    assert bool(found) is bool(text)
    assert text in "".join(found)


def test_records_that_a_map_has_not_seen_are_a_range() -> None:
    with pytest.raises(RefusedError) as refused:
        refuse_ranges([NEWER])
    text = refused.value.sentence
    assert "the group has read records that the map has not seen" in text
    assert "between 70 and 120: from 70 up to 5 records come again, from 120 up to 12" in text
    assert [(o.earliest_offset, o.latest_offset) for o in [origin(NEWER, "latest")]] == [(70, 120)]
    assert promise([NEWER], "latest").guarantee == "at-most-once"
    behind = replace(NEWER, place=replace(NEWER.place, latest=replace(THERE, only_before=4, new=2)))
    assert behind.latest.only_before == 6
