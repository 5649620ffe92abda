"""What moved on between two looks: over is only what its leader proves to be over."""

from collections.abc import Sequence
from typing import Any

import pytest

from recovery.facts import PartitionFacts, ProducerFacts, Transactions
from recovery.inspect.observation import OpenTransaction, Sample, continues, is_over
from recovery.values import replace

P = ("t", 0)
PID, OTHER = 4001, 4002
ABOUT = OpenTransaction(*P, PID, 10)
UNNAMED = OpenTransaction(*P, None, None)


def look(
    lso: int | None,
    opened: Sequence[tuple[int, int | None]] | None = (),
    *,
    hw: int = 30,
    epoch: int | None = 3,
    **facts: Any,
) -> Sample:
    """Look at the partition. opened: producer id and start offset of each; None: hidden."""
    partition = replace(
        PartitionFacts(*P, leader=1, leader_epoch=epoch, last_stable_offset=lso, high_watermark=hw),
        **facts,
    )
    producers = (
        None
        if opened is None
        else tuple(ProducerFacts(*P, pid, 0, 0, 1, 0, start) for pid, start in opened)
    )
    return Sample(partition, producers, Transactions(), 0, topic_describe=True)


HELD = look(10, [(PID, 10)])


@pytest.mark.parametrize(
    ("after", "over"),
    [
        (look(30, [(PID, None)]), True),
        (look(30, []), True),  # its producer id expired
        (look(20, [(PID, 20)]), True),  # its next transaction
        (look(11, [(OTHER, 11)]), True),
        (look(10, [(PID, None)]), False),  # the marker is not on all replicas yet
        (look(10, [(OTHER, 10)]), False),
        (look(5, [(OTHER, 5), (PID, None)]), True),  # an older one is what holds the partition
        (look(5, [(OTHER, 5), (PID, 10)]), False),
        (look(5, [(OTHER, 8), (PID, None)]), False),  # what holds it is not named
        (look(5, [(OTHER, 5)], hw=8), False),  # the log was cut off below it
        (look(5, [(OTHER, 5)], epoch=4), False),  # another leader's log
        (look(11, [(PID, 10)]), False),  # the rows are of a moment before the offsets
        (look(30, [(PID, None)], epoch=2), False),  # a deposed leader
        (look(30, [(PID, None)], epoch=4), True),
        (look(30, None), False),  # DescribeProducers was refused
        (look(None, [(PID, None)]), False),
        (look(30, [(PID, None)], error="NOT_LEADER_OR_FOLLOWER"), False),
    ],
)
def test_over_is_what_the_leader_shows_below_the_lso_and_without_a_row(
    after: Sample, over: bool
) -> None:
    assert is_over(ABOUT, HELD, after) is over


def test_a_recreated_topic_proves_nothing_of_the_one_before() -> None:
    before = look(10, [(PID, 10)], topic_id="a")
    for topic_id, over in (("a", True), (None, True), ("b", False)):
        assert is_over(ABOUT, before, look(30, [], topic_id=topic_id)) is over


@pytest.mark.parametrize(
    ("after", "over"),
    [
        (look(30, []), True),  # nothing is held
        (look(10, []), False),
        (look(12, [(OTHER, 12)]), True),  # the LSO moved
        (look(10, [(OTHER, 10)]), False),
    ],
)
def test_one_that_nobody_could_name_is_over_once_the_lso_moves(after: Sample, over: bool) -> None:
    assert is_over(UNNAMED, look(10, []), after) is over


def test_one_of_a_producer_whose_start_was_not_seen_is_over_without_its_row() -> None:
    about = replace(ABOUT, start_offset=None)
    assert is_over(about, HELD, look(12, [(OTHER, 12), (PID, None)]))
    assert not is_over(about, HELD, look(12, [(PID, 12)]))


@pytest.mark.parametrize(
    ("about", "before", "held_from", "same"),
    [
        (ABOUT, ABOUT, 10, True),
        (replace(ABOUT, partition=1), ABOUT, 10, False),
        (replace(ABOUT, start_offset=20), ABOUT, 10, False),  # its next transaction
        (replace(ABOUT, producer_id=OTHER), ABOUT, 10, False),
        (ABOUT, replace(ABOUT, start_offset=None), 10, True),
        (replace(ABOUT, producer_id=OTHER), replace(ABOUT, start_offset=None), 10, False),
        (ABOUT, UNNAMED, 10, True),
        (ABOUT, UNNAMED, None, True),
        (replace(ABOUT, start_offset=11), UNNAMED, 10, False),  # it began after that look
        (UNNAMED, UNNAMED, 10, True),
    ],
)
def test_a_later_look_goes_on_with_what_an_earlier_one_meant(
    about: OpenTransaction, before: OpenTransaction, held_from: int | None, same: bool
) -> None:
    assert continues(about, before, held_from) is same
