"""How far a transaction reaches: the rule, what a plan keeps of it, and in which words it tells."""

from typing import Any

import pytest

from eoctl.render.plans import plan_facts
from recovery.change.plan import Plan, dump, load
from recovery.diagnose.reach import Beyond, Reach, also_holds, is_beyond, offsets_by_partition
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, TopicPartition
from tests.unit.change.test_plan import make

HIDDEN = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE on all topics is not granted")
DENIED = Missing("group", "GROUP_AUTHORIZATION_FAILED", "DESCRIBE is not granted", id="billing")


@pytest.mark.parametrize(
    ("committed", "start", "beyond"),
    [
        (4, 5, False),  # has not come to it
        (5, 5, False),  # held: the first record is the next that it reads
        (6, 5, True),  # has read the first record
        (0, 0, False),
        (1, 0, True),
        (None, 5, None),
        (5, None, None),
    ],
)
def test_a_group_is_past_a_record_once_it_stands_behind_it(
    committed: int | None, start: int | None, beyond: bool | None
) -> None:
    assert is_beyond(committed, start) is beyond


def test_other_places_are_each_named_once() -> None:
    here = TopicPartition("b", 1)
    listed = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 10)]
    seen = [TopicPartition("b", 2), TopicPartition("a", 2)]
    assert also_holds(here, listed, seen) == [("a", 2), ("b", 2), ("b", 10)]
    assert also_holds(here) == also_holds(here, [here]) == []
    assert also_holds(None, [here]) == [here]


def test_the_group_that_went_furthest_comes_first() -> None:
    def group(name: str, *offsets: tuple[int, int | None]) -> GroupFacts:
        return GroupFacts(
            name, "Empty", offsets=tuple(GroupOffsetFacts(name, "a", p, at) for p, at in offsets)
        )

    found = offsets_by_partition(
        [group("z", (0, 7)), group("b", (0, 9), (1, None)), group("a", (0, 7))]
    )
    assert found == {("a", 0): [Beyond("b", 9), Beyond("a", 7), Beyond("z", 7)]}


def test_a_plan_keeps_the_first_and_says_how_many_more() -> None:
    values = Reach(
        [TopicPartition("t", n) for n in range(23)],
        [Beyond(f"g-{n}", 50 - n) for n in range(21)],
        [HIDDEN],
        [Missing("group", "NO_ANSWER", "silent", id=f"g-{n}") for n in range(5)],
    ).values()
    assert values["also_holds"] == [f"t:{n}" for n in range(20)]
    assert values["also_holds_more"] == 3
    assert values["groups_beyond"][0] == {"group": "g-0", "committed_offset": 50}
    assert (len(values["groups_beyond"]), values["groups_beyond_more"]) == (20, 1)
    assert [u["error"] for u in values["partitions_unseen"]] == ["TOPIC_AUTHORIZATION_FAILED"]
    assert (len(values["groups_unseen"]), values["groups_unseen_more"]) == (3, 2)


def row(partition: str | None, reach: Reach | None = None, **changes: Any) -> dict[str, Any]:
    about: dict[str, Any] = {
        "transactional_id": "billing-1",
        "partition": partition,
        "producer_id": 4001,
        "verdict": "orphan",
        "rule": "nobody-owns-it",
        "evidence": [],
        "dropped": 3,
        "freed": 4,
        "bytes": 2048,
        "counted_whole": True,
    }
    return about | ({} if reach is None else reach.values()) | changes


def planned(*about: dict[str, Any], action: str = "write-marker") -> Plan:
    [step] = make().steps
    return make(steps=(step.model_copy(update={"action": action, "about": list(about)}),))


def told(plan: Plan, label: str) -> list[str]:
    return [text for name, text in plan_facts(plan) if name == label]


PARTITIONS = [TopicPartition("orders", 1), TopicPartition("payments", 0)]


@pytest.mark.parametrize(
    ("reach", "says"),
    [
        (Reach(), "Its producer id holds no other partition."),
        (
            Reach(PARTITIONS),
            "Its producer id also holds orders:1, payments:0. This step does not end it there.",
        ),
        (
            Reach([TopicPartition("orders", n) for n in range(1, 40)]),
            (
                "Its producer id also holds orders:1, orders:2, orders:3, orders:4, orders:5, "
                "orders:6 and 33 more. This step does not end it there."
            ),
        ),
        (
            Reach(partitions_unseen=[HIDDEN]),
            "Its producer id holds no other partition that can be seen.",
        ),
    ],
)
def test_a_marker_ends_one_partition_only(reach: Reach, says: str) -> None:
    assert told(planned(row("orders:0", reach)), "also") == [says]


def test_a_fence_ends_all_partitions() -> None:
    three = [
        ("orders:0", PARTITIONS),
        ("orders:1", [TopicPartition("orders", 0), TopicPartition("payments", 0)]),
    ]
    fence = planned(*(row(here, Reach(others)) for here, others in three), action="fence")
    assert told(fence, "also") == [
        (
            "The transaction is on 3 partitions: orders:0, orders:1, payments:0. This step "
            "ends it on all of them."
        )
    ]
    alone = planned(row("orders:0", Reach()), action="fence")
    assert told(alone, "also") == ["The transaction is on orders:0 alone."]
    nothing_written = planned(row(None, Reach(PARTITIONS)), action="fence")
    assert told(nothing_written, "also")[0].startswith(
        "The transaction is on 2 partitions: orders:1, payments:0."
    )
    assert told(nothing_written, "groups") == []
    bare = planned(row(None, Reach()), action="fence")
    assert told(bare, "also") == ["The transaction is on no partition yet."]


def test_of_many_partitions_the_first_are_named() -> None:
    here, others = TopicPartition("t", 0), [TopicPartition("t", n) for n in range(1, 30)]
    fence = planned(row("t:0", Reach(also_holds(here, others))), action="fence")
    [text] = told(fence, "also")
    assert text.startswith(
        "The transaction is on 30 partitions: t:0, t:1, t:2, t:3, t:4, t:5 and 24"
    )


def test_groups_past_it_are_named_with_where_they_stand() -> None:
    plan = planned(
        row("orders:0", Reach(groups_beyond=[Beyond("pricing", 9)])),
        row("orders:1", Reach(groups_beyond=[Beyond(f"g{n}", 5) for n in range(25)])),
        action="fence",
    )
    [text] = told(plan, "groups")
    assert text.startswith(
        "Past its first record: pricing (orders:0, at 9), g0 (orders:1, at 5), "
        "g1 (orders:1, at 5), g2 (orders:1, at 5), g3 (orders:1, at 5), g4 (orders:1, at 5) "
        "and 20 more. Unless"
    )
    assert told(planned(row("orders:0", Reach())), "groups") == [
        "No group has committed an offset past its first record."
    ]
    # what a transaction holds there is read by no group: the lines on their offsets say it
    assert told(planned(row("__consumer_offsets:7", Reach())), "groups") == []
    beyond = Reach(groups_beyond=[Beyond("mirror", 4)])  # of a reader of that topic itself
    [text] = told(planned(row("__consumer_offsets:7", beyond)), "groups")
    assert text.startswith("Past its first record: mirror (__consumer_offsets:7, at 4).")


def test_what_could_not_be_seen_is_said_once_and_never_as_none() -> None:
    unseen = Reach(partitions_unseen=[HIDDEN], groups_unseen=[DENIED])
    [step] = planned(row("orders:0", unseen)).steps
    plan = make(steps=(step, step))
    assert told(plan, "groups")[0] == (
        "No group that can be seen has committed an offset past its first record."
    )
    assert told(plan, "unseen") == [
        (
            "There may be more partitions: topic: DESCRIBE on all topics is not granted "
            "(TOPIC_AUTHORIZATION_FAILED)."
        ),
        "There may be more groups: billing: DESCRIBE is not granted (GROUP_AUTHORIZATION_FAILED).",
    ]
    many = [Missing("group", "NO_ANSWER", "silent", id=f"g-{n}") for n in range(5)]
    [text] = told(planned(row("orders:0", Reach(groups_unseen=many))), "unseen")
    assert text.endswith("g-2: silent (NO_ANSWER); and 2 more.")


def test_a_plan_of_before_tells_nothing_of_it() -> None:
    """Also not that there is none: it was not looked at."""
    labels = {label for label, _ in plan_facts(planned(row("orders:0")))}
    assert not labels & {"also", "groups", "unseen"}


def test_it_is_no_part_of_what_is_approved() -> None:
    plan = planned(row("orders:0", Reach(PARTITIONS, [Beyond("g", 9)], [HIDDEN], [DENIED])))
    assert plan.sha256 == planned(row("orders:0")).sha256
    assert load(dump(plan), "f") == plan


@pytest.mark.parametrize(
    ("row_changes", "says"),
    [
        ({"records": 3}, "3 dropped (2.0 KiB), 4 freed"),
        ({"records": 3, "dropped": 0, "freed": 7},
         "3 records delivered (2.0 KiB), 4 others freed; an abort drops the 3"),
        ({"records": 3, "dropped": 0, "freed": 7, "counted_whole": False},
         "at least 3 records delivered (2.0 KiB), at least 4 others freed; an abort drops the 3"),
        ({"records": 0, "dropped": 0, "freed": 7}, "0 dropped, 7 freed"),
        ({"dropped": 0, "freed": 7}, "0 dropped, 7 freed"),
        ({"records": None, "dropped": None, "freed": None}, "not counted"),
    ],
)  # fmt: skip
def test_what_each_outcome_costs(row_changes: dict[str, Any], says: str) -> None:
    assert told(planned(row("orders:0", **row_changes)), "records") == [says]
