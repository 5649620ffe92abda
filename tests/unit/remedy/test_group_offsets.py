"""What a plan says of the groups whose offsets its transaction holds: the rule, and the words."""

from typing import Any

import pytest

from eoctl.cli.dialog.acting import plan_lines
from eoctl.render.group_offset_words import harm, offset_lines
from eoctl.render.plans import plan_facts
from recovery.change.plan import Plan, Step, dump, load
from recovery.facts import Missing
from recovery.remedy.group_offsets import (
    MOST_NAMED,
    GroupOffset,
    Outcome,
    outcomes,
    partitions_named,
    row_fields,
)
from tests.unit.change.test_plan import make

HOME = "__consumer_offsets:7"
HOME_PARTITION = ("__consumer_offsets", 7)


def held(outcomes: tuple[Outcome, ...] = ("abort",), /, **more: Any) -> GroupOffset:
    """The only commit of `poster`, 50 of 60 records."""
    offset = GroupOffset("poster", "in", 0, HOME, True, outcomes, pending_offset=50)
    fields = {**offset.as_dict(), "outcomes": outcomes} | more
    return GroupOffset(**fields)


def lines(offset: GroupOffset) -> list[str]:
    return list(offset_lines(offset.values()))


def test_an_abort_falls_back_and_a_commit_goes_on() -> None:
    earlier = held(("commit", "abort"), committed_offset=20)
    assert earlier.after("abort") == {"offset": 20, "known": True}
    assert earlier.after("commit") == {"offset": 50, "known": True}
    assert earlier.without == []
    assert lines(earlier) == [
        "poster   in in:0   now 20   pending 50",
        "  after commit 50   after abort 20",
    ]


def test_an_only_commit_leaves_nothing_if_it_is_aborted() -> None:
    only = held(("abort", "commit"), records_before=50, records_after=10)
    assert only.without == ["abort"]
    assert lines(only) == [
        "poster   in in:0   now -   pending 50",
        (
            "  after abort NONE: auto.offset.reset decides (earliest: up to 50 again, latest: "
            "up to 60 skipped)   after commit 50"
        ),
    ]
    assert held(("commit",)).without == []


def test_a_transaction_that_deletes_the_offset() -> None:
    """Its position is the one that counts now, and nothing before that is skipped."""
    gone = held(
        ("commit",),
        pending_offset=None,
        pending_deleted=True,
        committed_offset=20,
        records_before=20,
        records_after=40,
    )
    assert gone.without == ["commit"]
    assert lines(gone) == [
        "poster   in in:0   now 20   pending deleted",
        (
            "  after commit NONE: auto.offset.reset decides (earliest: up to 20 again, "
            "latest: 40 skipped)"
        ),
    ]
    assert held(("abort",), pending_deleted=True, committed_offset=20).without == []


def test_what_was_not_seen_is_not_none() -> None:
    refused = held(("abort",), committed_error="GROUP_AUTHORIZATION_FAILED")
    assert refused.without == []
    assert lines(refused) == [
        "poster   in in:0   now not seen (GROUP_AUTHORIZATION_FAILED)   pending 50",
        "  after abort not seen, perhaps none",
    ]
    unread = held(("commit",), pending_offset=None)
    assert unread.without == []
    assert lines(unread) == [
        "poster   in in:0   now -   pending not seen",
        "  after commit not seen, perhaps none",
    ]


def test_a_later_commit_stays_whatever_the_outcome() -> None:
    overtaken = held(("commit", "abort"), committed_offset=55, overtaken=True)
    assert [overtaken.after(o)["offset"] for o in ("commit", "abort")] == [55, 55]
    assert lines(overtaken)[1] == (
        "  after commit 55   after abort 55   (a later commit counts already)"
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"records_before": 0, "records_after": 9}, "earliest: 0 again, latest: 9 skipped"),
        (
            {"records_before": 9, "records_after": 0},
            "earliest: up to 9 again, latest: up to 9 skipped",
        ),
        (
            {"log_start_offset": 10, "last_stable_offset": 70},
            "earliest: up to 40 offsets again, latest: up to 60 offsets skipped",
        ),
        (
            {"log_start_offset": 60, "last_stable_offset": 70},
            "earliest: 0 offsets again, latest: 10 offsets skipped",
        ),
        (
            {"log_start_offset": 10, "last_stable_offset": 30},
            "earliest: up to 20 offsets again, latest: up to 20 offsets skipped",
        ),
        ({"log_start_offset": 10}, "how many records that is was not seen"),
    ],
)
def test_what_each_reset_costs(counts: dict[str, int], words: str) -> None:
    assert f"decides ({words})" in lines(held(**counts))[1]


def test_another_partition_stays_open() -> None:
    assert lines(held(("abort", "commit"), ends=False, committed_offset=2))[1] == (
        f"  stays pending: this step does not end it on {HOME}.   after abort 2   after commit 50"
    )


def step(action: str, **parameters: Any) -> Step:
    [one] = make().steps
    return one.model_copy(update={"action": action, "parameters": parameters})


@pytest.mark.parametrize(
    ("action", "parameters", "ends", "shown"),
    [
        ("fence", {}, True, ("abort", "commit")),
        ("write-marker", {"outcome": "abort", "without_proof": False}, True, ("abort",)),
        ("write-marker", {"outcome": "commit"}, True, ("commit",)),
        ("write-marker", {"outcome": "commit"}, False, ("commit", "abort")),
        ("write-marker", {"outcome": "commit", "without_proof": True}, True, ("commit", "abort")),
        ("write-marker", {"outcome": "abort", "without_proof": True}, True, ("abort", "commit")),
        ("commit-open", {"outcome": "commit"}, True, ("commit", "abort")),
        ("commit-checkpoint", {"outcome": "commit"}, True, ("commit", "abort")),
    ],
)
def test_both_outcomes_show_where_none_is_proven(
    action: str, parameters: dict[str, Any], ends: bool, shown: tuple[str, ...]
) -> None:
    assert outcomes(step(action, **parameters), ends=ends) == shown


def test_groups_that_keep_nothing_come_first_and_the_rest_is_counted() -> None:
    others = [held(group=f"g{n:02}", committed_offset=1) for n in range(25)]
    beside = held(group="a", ends=False)
    fields = row_fields([*others, beside, held(group="z")], ())
    named = [o["group"] for o in fields["group_offsets"]]
    assert named == ["z", *(f"g{n:02}" for n in range(MOST_NAMED - 1))]
    assert fields["group_offsets_more"] == 27 - MOST_NAMED
    assert row_fields([], ()) == {}
    gaps = [Missing("partition", "NOT_SEEN", "silent", None, "t", n) for n in range(5)]
    unseen = row_fields([held()], gaps)
    assert unseen["group_offsets_more"] == 0
    assert [u["partition"] for u in unseen["group_offsets_unseen"]] == [0, 1, 2]
    assert unseen["group_offsets_unseen_more"] == 2
    assert row_fields([], gaps[:2])["group_offsets_unseen_more"] == 0


def test_what_the_plans_own_outcome_leaves_without_an_offset_is_named_first() -> None:
    other = [held(group=f"a{n:02}", outcomes=("commit", "abort")) for n in range(MOST_NAMED)]
    own = held(group="z", outcomes=("commit", "abort"), pending_offset=None, pending_deleted=True)
    assert (own.without[0], other[0].without) == ("commit", ["abort"])
    assert row_fields([*other, own], ())["group_offsets"][0]["group"] == "z"


def test_a_group_is_counted_from_the_newest_position_that_it_had() -> None:
    assert held(committed_offset=20).position == 50
    assert held(committed_offset=20, pending_offset=None).position == 20


def test_a_marker_ends_its_target_and_a_fence_what_its_record_names() -> None:
    assert partitions_named(step("write-marker", outcome="abort", partitions=["t:0"])) is None
    assert partitions_named(step("fence", partitions=["t:0", HOME])) == {"t:0", HOME}
    assert partitions_named(step("fence")) == set()


def test_the_harm_asks_the_owner_and_has_the_way_out() -> None:
    only = held(records_before=50, records_after=0, group="my group")
    [sentence] = harm([only], "abort", ["--context", "prod-eu"])
    assert sentence == (
        "group my group has NO offset of in:0 after the abort: its auto.offset.reset decides where "
        "it reads on (earliest: up to 50 again, latest: up to 50 skipped). Ask its owner which one "
        "is set. To set one afterwards: eoctl --context prod-eu restart plan --group 'my group' "
        "--topic in:0 --to-earliest (or --to-offset N)"
    )
    many = [held(group=f"g{n}") for n in range(7)]
    sentences = harm(many, "abort", [])
    assert [s.split()[1] for s in sentences[:5]] == ["g0", "g1", "g2", "g3", "g4"]
    assert sentences[5:] == ["2 more offsets of groups: none left either"]
    [nul] = harm([held(group="\0")], "abort", [])  # no shell can say that name
    assert nul.endswith("Ask its owner which one is set.")


def plan_with(fields: dict[str, Any], *harms: str) -> Plan:
    [one] = make().steps
    row: dict[str, Any] = {
        "transactional_id": None,
        "partition": HOME,
        "producer_id": 7,
        "verdict": "orphan",
        "rule": "nobody-owns-it",
        "evidence": [],
        "dropped": 1,
        "freed": 0,
        "counted_whole": True,
    }
    return make(steps=(one.model_copy(update={"about": [row | fields], "harms": harms}),))


def test_a_plan_begins_with_the_groups_and_what_was_not_seen_is_told() -> None:
    hidden = Missing("partition", "TOPIC_AUTHORIZATION_FAILED", "READ", None, *HOME_PARTITION)
    many = [held(group=f"g{n:02}", records_before=1, records_after=1) for n in range(21)]
    plan = plan_with(row_fields(many, [hidden]), "none left")
    facts = list(plan_facts(plan))
    labels = [label for label, _ in facts]
    assert labels[:4] == ["what", "step 1", "groups", ""]
    assert labels.index("groups") < labels.index("on") < labels.index("harm")
    assert facts[1 + 1 + 2 * MOST_NAMED] == ("", "and 1 more offset of groups")
    [unseen] = [text for label, text in facts if label == "unseen"]
    assert unseen.startswith("There may be more offsets of groups in this transaction: ")
    assert "TOPIC_AUTHORIZATION_FAILED" in unseen
    assert max(map(len, plan_lines(plan))) <= 80


def test_a_hostile_name_is_harmless_in_a_plan() -> None:
    name = "g\x1b[31m[/x]\n harm  nothing"
    only = held(group=name)
    plan = plan_with(row_fields([only], ()), *harm([only], "abort", []))
    shown = plan_lines(plan)
    assert not any(c in line for line in shown for c in "\x1b\n\r")
    assert not any(line.startswith(" harm     nothing") for line in shown)


def test_it_is_no_part_of_what_is_approved_and_a_plan_without_has_no_field_of_it() -> None:
    plan, before = plan_with(row_fields([held()], ()), "none left"), plan_with({})
    assert plan.sha256 == before.sha256
    assert load(dump(plan), "f") == plan
    assert "group_offsets" not in dump(before)
    assert not [label for label, _ in plan_facts(before) if label in ("groups", "")]
