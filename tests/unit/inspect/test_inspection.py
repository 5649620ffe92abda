"""Rows of `lso`, `producers` and `txn list` from facts: who blocks, whose age, who is a zombie."""

import copy
from typing import Any

import pytest

from recovery.facts import (
    CoordinatorClock,
    Facts,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.cluster_rows import LsoRow
from recovery.inspect.inspection import (
    lso_row,
    older_epoch,
    owner_of,
    producer_rows,
    stale_epoch,
    txn_describe_rows,
    txn_list_rows,
)
from recovery.values import replace

NOW = 1_700_000_000_000
P = PartitionFacts("orders", 3, "id", 1, 7, (1, 2), 5, 100, 110)


def producer(epoch: int = 4, start: int | None = 100, pid: int = 7) -> ProducerFacts:
    return ProducerFacts("orders", 3, pid, epoch, 9, NOW - 14_000, 0, start)


def owner(state: str = "Ongoing", epoch: int | None = 4, **more: Any) -> TransactionFacts:
    made = TransactionFacts(
        "a", 1, 7, state, epoch, 60_000, NOW - 5_000, (TopicPartition("orders", 3),)
    )
    return replace(made, **more)


def facts(
    *producers: ProducerFacts, owners: tuple[TransactionFacts, ...] | None = (), version: int = 2
) -> Facts:
    return Facts(
        "c",
        NOW,
        transaction_version=version,
        producers={TopicPartition("orders", 3): producers},
        transactions=None if owners is None else Transactions(owners),
    )


def test_the_transaction_that_begins_first_blocks() -> None:
    row = lso_row(P, facts(producer(start=105, pid=8), producer(start=100), producer(start=None)))
    assert row.held == 10
    assert row.blocking is not None
    assert (row.blocking.producer_id, row.blocking.start_offset) == (7, 100)


def test_offset_0_is_an_offset() -> None:
    row = lso_row(replace(P, last_stable_offset=0), facts(producer(start=0), producer(start=9)))
    assert row.blocking is not None
    assert row.blocking.start_offset == 0


@pytest.mark.parametrize(
    ("p", "seen", "known"),
    [
        (replace(P, last_stable_offset=110), facts(), True),
        (replace(P, last_stable_offset=None), facts(producer()), False),
        (P, Facts("c", NOW), False),
        (P, facts(producer(start=None)), True),
    ],
)
def test_nothing_blocks_or_nobody_could_tell(p: PartitionFacts, seen: Facts, known: bool) -> None:
    row = lso_row(p, seen)
    assert (row.blocking, row.blocking_known) == (None, known)


@pytest.mark.parametrize(
    ("owners", "age", "clock"),
    [
        ((owner(),), 5.0, "coordinator"),
        ((owner("PrepareCommit"),), 5.0, "coordinator"),
        ((owner("CompleteCommit"),), 14.0, "producer"),
        ((owner(partitions=(("orders", 4),)),), 14.0, "producer"),
        ((owner(partitions=None),), 14.0, "producer"),
        ((owner(start_timestamp=None),), 14.0, "producer"),
        ((), 14.0, "producer"),
        (None, 14.0, "producer"),
    ],
)
def test_whose_clock_tells_the_age(
    owners: tuple[TransactionFacts, ...] | None, age: float, clock: str
) -> None:
    blocking = lso_row(P, facts(producer(), owners=owners)).blocking
    assert blocking is not None
    assert (blocking.age_seconds, blocking.age_clock) == (age, clock)


def test_no_time_is_no_age() -> None:
    blocking = lso_row(P, facts(replace(producer(), last_timestamp=None))).blocking
    assert blocking is not None
    assert (blocking.age_seconds, blocking.age_clock) == (None, None)


def test_an_open_id_owns_before_a_closed_one() -> None:
    closed, open_ = owner("CompleteAbort"), owner("PrepareAbort", transactional_id="b")
    for rows in ((closed, open_), (open_, closed)):
        assert owner_of(7, Transactions(rows)) == open_
    assert owner_of(7, Transactions((closed,))) == closed
    assert owner_of(8, Transactions((closed,))) is None
    assert owner_of(7, None) is None


@pytest.mark.parametrize(
    ("version", "mine", "start", "state", "theirs", "older"),
    [
        # v1: an epoch rises only when a producer is initialised again
        (1, 4, None, "Empty", 4, False),
        (1, 4, None, "Empty", 5, True),
        (1, 4, 100, "Ongoing", 5, True),
        (0, 4, None, "Ongoing", 6, True),
        (1, 5, None, "Empty", 4, False),
        # v2: at every end too
        (2, 4, None, "CompleteCommit", 5, None),
        (2, 4, None, "Ongoing", 5, None),
        (2, 4, None, "Ongoing", 40, None),
        (2, 4, 100, "Ongoing", 4, False),
        (2, 4, None, "CompleteCommit", 4, False),
        (2, 4, 100, "Empty", 6, True),
        (2, 4, None, "Empty", 5, True),
        (2, 4, None, "Empty", 4, False),
        # its own end is being written: the marker is on its way, or got lost
        (2, 4, 100, "PrepareCommit", 5, None),
        (2, 4, 100, "PrepareAbort", 5, None),
        (2, 4, 100, "CompleteCommit", 5, None),
        (2, 4, 100, "CompleteAbort", 5, None),
        # and the same producer went on since
        (2, 4, 100, "Ongoing", 5, None),
        (2, 4, 100, "CompleteCommit", 7, None),
    ],
)
def test_an_older_epoch_is_a_zombie_only_where_it_has_something_open(
    version: int, mine: int, start: int | None, state: str, theirs: int, older: bool | None
) -> None:
    """A client raises its own epoch (KIP-360): a higher one alone proves nothing of a process."""
    known = producer(mine, start), owner(state, theirs), version
    assert older_epoch(*known) is older
    zombie = None if start is None else True
    assert stale_epoch(*known) is (zombie if older else older)


def test_what_is_not_known_is_no_zombie() -> None:
    assert stale_epoch(producer(), None, 2) is None
    assert stale_epoch(producer(), owner(epoch=None), 2) is None
    assert stale_epoch(producer(), owner(epoch=9), None) is None


def test_producers_in_order_and_resolved_only_when_asked() -> None:
    seen = facts(producer(pid=9), producer(pid=7), owners=(owner(),), version=1)
    rows = producer_rows(seen, resolve=True)
    assert [(r.producer_id, r.transactional_id, r.stale_epoch) for r in rows] == [
        (7, "a", False),
        (9, None, None),
    ]
    assert [r.transactional_id for r in producer_rows(seen, resolve=False)] == [None, None]


@pytest.mark.parametrize(
    ("state", "age"),
    [
        ("Ongoing", 5.0),
        ("PrepareEpochFence", 5.0),
        ("Empty", None),
        ("CompleteCommit", None),
        ("Dead", None),
    ],
)
def test_only_what_is_open_has_an_age(state: str, age: float | None) -> None:
    [row] = txn_list_rows([owner(state)], NOW)
    assert (row.age_seconds, row.partitions) == (age, 1)
    [row] = txn_list_rows([owner(state, partitions=None, start_timestamp=None)], NOW)
    assert (row.age_seconds, row.partitions) == (None, None)


def test_the_partition_of_the_coordinator_is_kafkas() -> None:
    """`Utils.abs("orders".hashCode()) % 50`; the hash is -1008770331."""
    [row] = txn_describe_rows(Transactions((owner(transactional_id="orders"),)), 50, NOW, {})
    assert row.coordinator_partition == 1008770331 % 50
    assert [(p.topic, p.partition) for p in row.partitions] == [("orders", 3)]


@pytest.mark.parametrize(("ahead", "age"), [(0, 5.0), (3_600_000, 3605.0), (-4_000, 1.0)])
def test_a_described_one_is_as_old_as_its_coordinators_clock_says(ahead: int, age: float) -> None:
    row = owner("Ongoing")
    found = Transactions((row,), clocks=(CoordinatorClock(row.coordinator, ahead),))
    assert [r.age_seconds for r in txn_describe_rows(found, 50, NOW, {})] == [age]


def test_a_row_takes_from_facts_what_is_not_given_and_misses_nothing_silently() -> None:
    row = LsoRow.of(P, blocking=None, blocking_known=True, leader=9)
    assert (row.topic, row.held, row.leader, row.error) == ("orders", 10, 9, None)
    with pytest.raises(AttributeError, match="blocking"):
        LsoRow.of(P)


def test_owners_are_those_of_the_rows_there_are_now() -> None:
    """What is looked up is no fact: a changed copy does not have it, and equality knows none."""
    rows = (owner(), replace(owner(), transactional_id="b"), replace(owner(), ghost=True))
    seen = Transactions(rows)
    assert seen.owners(7) == rows[:2]
    assert seen.owners(8) == ()
    assert replace(seen, rows=rows[1:]).owners(7) == rows[1:2]
    assert seen == Transactions(rows)
    assert copy.copy(seen).owners(7) == rows[:2]
