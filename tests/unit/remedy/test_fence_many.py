"""Which ids one snapshot of many proves as completely as a snapshot of each alone would.

Where it proves less, an id is looked at by itself: a fence never rests on what was not seen.
"""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from eoctl.operations.remedy import many_remedies
from eoctl.operations.remedy.remedy_plan import Counts
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.facts import Missing, TopicPartition, TransactionFacts, Transactions
from recovery.inspect.observation import Sample
from recovery.values import replace
from tests.unit.check_facts import judged

PID, OTHER = 7, 8
PAY = TransactionFacts("pay", 1, PID, "Ongoing", 3, 60_000, 1)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COUNTS = cast("Counts", object())


def at(
    place: TopicPartition = P0, pid: int = PID, *, second: bool = True, **changes: Any
) -> Judged:
    """An open transaction, seen completely twice. changes: of the second look, or the only one."""
    one = judged("open", pid, topic=place.topic, number=place.partition)
    none_late = frozenset[str]()
    seen: Sample = replace(
        one.first,
        transactions=Transactions((PAY,)),
        over_timeout=none_late,
        over_long=none_late,
        over_stuck=none_late,
    )
    changed = replace(seen, **changes)
    return replace(one, first=seen if second else changed, second=changed if second else None)


def proven(
    *found: Judged,
    missing: Sequence[Missing] = (),
    places: Sequence[TopicPartition] = (P0,),
    everywhere: bool = False,
) -> tuple[Judged, ...] | None:
    """What is judged of the id, None where the snapshot does not prove it."""
    diagnosis = Diagnosis("c", 0, 9, 2, 1, 1, (), found, Transactions((PAY,)), tuple(missing))
    looks = many_remedies._proven(
        [PAY], {"pay": tuple(places)}, diagnosis, COUNTS, everywhere=everywhere
    )
    if not looks:
        return None
    look = looks["pay"]
    assert (look.row, look.partitions, look.counts) == (PAY, tuple(places), COUNTS)
    return look.judged


def test_all_that_is_open_on_its_partitions_is_judged_with_it() -> None:
    """Of others, too, and nothing elsewhere."""
    mine, beside, elsewhere = at(), at(pid=OTHER), at(P1)
    assert proven(mine, beside, elsewhere) == (mine, beside)
    assert proven(mine, elsewhere, places=(P0, P1)) == (mine, elsewhere)
    assert proven(at(second=False)) is not None
    assert proven(at(pid=OTHER)) is None
    assert proven() is None


def test_a_snapshot_made_for_something_else_has_to_have_each_of_its_partitions() -> None:
    """One made for the id has been asked for all of them: it has written nothing to the others."""
    mine, there = at(), at(P1)
    assert proven(mine, places=(P0, P1)) == (mine,)
    assert proven(mine, places=(P0, P1), everywhere=True) is None
    assert proven(mine, at(P1, OTHER), places=(P0, P1), everywhere=True) is None
    assert proven(mine, there, places=(P0, P1), everywhere=True) == (mine, there)
    assert proven(mine, everywhere=True) == (mine,)


@pytest.mark.parametrize(
    ("topic", "partition", "concerns"),
    [
        (None, None, True),  # a broker, a coordinator, all groups
        ("__transaction_state", 3, True),
        ("__transaction_state", None, True),
        ("t", None, True),
        ("t", 0, True),
        ("t", 1, False),
        ("u", 0, False),
        ("u", None, False),
    ],
)
def test_what_was_not_seen_of_others_does_not_matter(
    topic: str | None, partition: int | None, concerns: bool
) -> None:
    missing = Missing("partition", "X", "not seen", None, topic, partition)
    of_others = Missing("partition", "X", "not seen", None, "u", 9)
    assert (proven(at(), missing=[of_others, missing]) is None) is concerns


HOLE = Missing("coordinator", "X", "not seen")


@pytest.mark.parametrize(
    "changes",
    [
        {"transactions": Transactions((replace(PAY, producer_epoch=4),))},
        {"transactions": Transactions()},
        {"transactions": Transactions((PAY,), missing=(HOLE,))},
        {"over_timeout": None},
        {"over_long": None},
        {"over_stuck": None},
        {"groups_missing": (HOLE,)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_each_look_is_complete_and_of_the_same_transaction(changes: dict[str, Any]) -> None:
    assert proven(at(**changes)) is None
    assert proven(at(second=False, **changes)) is None
    assert proven(at(), at(pid=OTHER, **changes)) is None
    once = at(**changes)
    assert once.second is not None
    assert proven(replace(once, first=once.second, second=once.first)) is None


def test_partitions_are_asked_for_by_topic() -> None:
    places = {P1, P0, TopicPartition("u", 3)}
    selectors = many_remedies._selectors(places)
    chosen = {
        TopicPartition(topic, n)
        for topic in ("t", "u", "v")
        for n in range(5)
        if any(s.matches(topic, n) for s in selectors)
    }
    assert chosen == places
    assert len(selectors) == 2
