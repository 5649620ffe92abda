"""What a merge takes as the ends of its logs, and what it says of them to its Spark job."""

import pytest

from eoctl.operations.merge import planning
from eoctl.operations.merge import replay_on_spark as on_spark
from eoctl.operations.merge.planning import Merge, MergeLook, Reached
from eoctl.operations.merge.replay_change import asked_again
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.merge.merge_request import Log, MergePart, ReplayRequest, log_of
from recovery.merge.replay import Base, ReplayPosition
from recovery.restart import observed
from recovery.values import replace

IN = TopicPartition("a", 0)
FACTS = PartitionFacts(
    "a", 0, "id", leader_epoch=5, log_start_offset=2, last_stable_offset=7, high_watermark=9
)
LOOK = MergeLook({IN: FACTS}, (Missing("partition", "X", "not seen", None, "b", 0),), {})


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 7), ("read_uncommitted", 9)])
def test_a_log_ends_for_its_reader(isolation: str, end: int) -> None:
    """At the last stable offset, or at the high watermark, where nothing is held back."""
    assert LOOK.bounds(IN, isolation) == (2, end)


def test_a_partition_that_was_not_seen_has_no_end() -> None:
    with pytest.raises(IncompleteError, match="not seen"):
        LOOK.bounds(TopicPartition("b", 0), "read_committed")
    with pytest.raises(UsageError, match="no such partition"):
        LOOK.bounds(TopicPartition("c", 0), "read_committed")


@pytest.mark.parametrize(
    ("leader", "stable", "high", "why"),
    [
        (9, 9, 9, None),
        (9, 7, 9, "2 offsets are open from 7 on"),
        (9, 9, 8, "replicated up to 8"),
        (None, 9, 9, "could not be read"),
    ],
)
def test_an_end_is_final_where_all_three_are_one(
    leader: int | None, stable: int, high: int, why: str | None
) -> None:
    facts = PartitionFacts(
        "a", 0, "id", log_start_offset=0, last_stable_offset=stable, high_watermark=high
    )
    ends = {} if leader is None else {IN: leader}
    read = planning._end(facts, ends)
    reads = (read, read)
    logs = {IN: observed.Log("a", 0, "id", 5, 0, reads)}
    look = MergeLook({IN: facts}, (), logs)
    if why is None:
        assert look.final(IN) == 9
    else:
        with pytest.raises((RefusedError, IncompleteError), match=why):
            look.final(IN)


@pytest.mark.parametrize(
    ("isolation", "at"), [("read_committed", "lso"), ("read_uncommitted", "hw")]
)
def test_the_job_reads_what_a_reader_of_its_isolation_sees(isolation: str, at: str) -> None:
    """Both offsets are in the cut that the Data Source is given: below the stable one it waits."""
    log = log_of(FACTS, 2, 6)
    assert log == Log(
        topic="a",
        partition=0,
        low=2,
        high=6,
        last_stable_offset=7,
        high_watermark=9,
        leader_epoch=5,
    )
    part = MergePart(
        partition=0, base=Base(0, TopicPartition("o", 0), 0), position=3, drop_left=1, tip=6
    )
    request = ReplayRequest(
        merge="m",
        format="json",
        inputs=("a",),
        output="o",
        isolation=isolation,
        group="g",
        staging="/nowhere",
        cluster_id="c",
        created_at="2026-01-02T03:04:05Z",
        topic_ids={"a": "id"},
        logs=(log,),
        parts=(part,),
        range_offsets=5,
    )
    cut = request.cut({IN: (2, 6)})
    assert cut.at == at
    [partition] = cut.topics[0].partitions
    found = (
        partition.start,
        partition.end,
        partition.last_stable_offset,
        partition.high_watermark,
        partition.leader_epoch,
    )
    assert found == (2, 6, 7, 9, 5)


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 6), ("read_uncommitted", 8)])
def test_the_job_is_told_of_the_merge_log_up_to_its_tips_and_of_all_inputs(
    isolation: str, end: int
) -> None:
    """A merge log of two partitions, of which one is replayed; what cannot be read is left out."""

    def facts(topic: str, partition: int, low: int, error: str | None = None) -> PartitionFacts:
        return PartitionFacts(
            topic,
            partition,
            "id",
            error=error,
            leader_epoch=5,
            log_start_offset=low,
            last_stable_offset=6,
            high_watermark=8,
        )

    without_end = replace(facts("b", 1, 1), high_watermark=None)
    refused = facts("b", 2, 1, error="NOT_LEADER_OR_FOLLOWER")
    seen = [
        *(facts("m", 0, 2), facts("m", 1, 2), facts("o", 0, 0)),
        *(facts("a", 1, 1), facts("a", 0, 4), facts("b", 0, 3)),
        *(without_end, refused),
    ]
    look = MergeLook({f.topic_partition: f for f in seen}, (), {})
    at = ReplayPosition(3)
    now = {0: Reached(None, 5, 0, 0, 0, at)}
    merge = Merge("m", "json", ("a", "b"), "o", isolation)
    logs = on_spark._logs(merge, look, now)
    assert [(log.topic, log.partition, log.low, log.high) for log in logs] == [
        ("a", 0, 4, end),
        ("a", 1, 1, end),
        ("b", 0, 3, end),
        ("m", 0, 2, 5),
    ]


def test_a_plan_s_step_asks_for_the_same_again() -> None:
    merge = Merge("m", "json", ("a", "b"), "o", "read_uncommitted", (0, 3), {0: (4, 5), 3: (6, 7)})
    parameters = {
        "format": "json",
        "inputs": ["a", "b"],
        "output": "o",
        "isolation": "read_uncommitted",
        "follow": True,
        "bases": {"3": [6, 7], "0": [4, 5]},
    }
    step = Step(action="follow", target="m", parameters=parameters, does="", stands_on=())
    assert asked_again(step) == merge
