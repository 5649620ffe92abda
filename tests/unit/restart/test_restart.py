"""The plan's row, what a wrapper script gets, CSV, and ad-hoc plans with the guarantee left."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.render.columns.restart import lines
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.inspect.commits.commit_history import CommitRecord
from recovery.quoting import some
from recovery.restart.adhoc import Target, decide_adhoc, wanted_adhoc
from recovery.restart.decision import (
    Check,
    InputDecision,
    OutputDecision,
    RestartPlan,
    RestartState,
    gathered,
)
from recovery.restart.observed import PendingCommit, Question, SameLog
from recovery.restart.plan_output import (
    env_json,
    env_lines,
    env_name,
    export_csv,
    import_csv,
    restart_env,
    restart_plan_row,
)
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.shared.log_position import Standing
from recovery.values import replace
from tests.unit.restart_model import ABORTED, World

PLAN = RestartPlan(
    app="orders-enricher",
    strategy="commit-pair",
    inputs=(InputDecision("orders", 3, 2246, 1042, "rewind", 1204, 50_531_000, 50_320_000),),
    outputs=(
        OutputDecision("orders-enriched", 3, 512, 530, 4, 17, (TopicPartition("orders", 3),)),
    ),
    state=(RestartState("cl", 3, 9),),
    guarantee="exactly-once",
    because="of the pair",
    checks=(Check("fenced", None, "not fenced", "orders-enriched:3"),),
    store=(),
)


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ((50_531_000, 50_320_000), "14:02:11 > 13:58:40"),
        ((86_400_000, 50_320_000), "1970-01-02T00:00:00 > 1970-01-01T13:58:40"),
        ((None, 50_320_000), "? > 1970-01-01T13:58:40"),  # the day of the other is not known
    ],
)
def test_times_have_their_day_unless_both_have_the_same(
    times: tuple[int | None, int], shown: str
) -> None:
    moved = replace(PLAN.inputs[0], from_time=times[0], to_time=times[1])
    row = restart_plan_row(replace(PLAN, inputs=(moved,)))
    table = list(lines(row, width=None, wide=False, headers=True))
    assert table[1].endswith(f" {shown}")


def test_the_row_has_the_fields_of_the_contract() -> None:
    row = restart_plan_row(PLAN).json_values()
    assert row["inputs"] == [
        {
            "topic": "orders",
            "partition": 3,
            "current_offset": 2246,
            "restart_offset": 1042,
            "direction": "rewind",
            "records": 1204,
            "from_time": "1970-01-01T14:02:11.000Z",
            "to_time": "1970-01-01T13:58:40.000Z",
        }
    ]
    assert row["outputs"] == [
        {
            "topic": "orders-enriched",
            "partition": 3,
            "from": 512,
            "end_offset": 530,
            "leader_epoch": 4,
            "drop_first": 17,
            "fed_by": [{"topic": "orders", "partition": 3}],
        }
    ]
    assert row["state"] == [{"topic": "cl", "partition": 3, "end_offset": 9}]
    assert row["checks"] == [
        {"name": "fenced", "held": None, "detail": "not fenced", "where": "orders-enriched:3"}
    ]
    assert (row["guarantee"], row["because"]) == ("exactly-once", "of the pair")
    assert row["starting_offsets"] is None


def test_env() -> None:
    assert list(env_lines(PLAN)) == [
        "EOCTL_DROP_ORDERS_ENRICHED_3=17",
        "EOCTL_DROP_ORDERS_ENRICHED_3_END=530",
        "EOCTL_DROP_ORDERS_ENRICHED_3_FROM=512",
        "EOCTL_DROP_ORDERS_ENRICHED_3_LEADER_EPOCH=4",
        "EOCTL_RESTART_ORDERS_3=1042",
    ]
    assert json.loads(env_json(PLAN)) == {
        "restart": {"orders": {"3": 1042}},
        "drop": {
            "orders-enriched": {
                "3": {"drop_first": 17, "from": 512, "end_offset": 530, "leader_epoch": 4}
            }
        },
    }


def test_a_shell_reads_what_env_prints() -> None:
    script = "\n".join(env_lines(PLAN)) + "\necho $((EOCTL_RESTART_ORDERS_3 + 1))"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1043\n"


TOPICS = st.text("aA.-_1", min_size=1, max_size=4)


@given(st.lists(st.tuples(TOPICS, st.integers(0, 12)), max_size=5, unique=True))
@settings(deadline=None)
def test_no_two_partitions_share_a_variable(partitions: list[TopicPartition]) -> None:
    """Refused exactly when two topics of a partition number are equal once upper-cased."""
    plan = replace(
        PLAN,
        inputs=tuple(InputDecision(*p, None, n, "none", None) for n, p in enumerate(partitions)),
        outputs=(),
    )
    shouted = [(t.upper().replace(".", "_").replace("-", "_"), p) for t, p in partitions]
    if len(set(shouted)) < len(shouted):
        with pytest.raises(RefusedError, match="--env-json"):
            restart_env(plan)
    else:
        assert list(restart_env(plan).values()) == list(range(len(partitions)))


def test_a_collision_names_both() -> None:
    inputs = tuple(InputDecision(t, 0, None, 1, "none", None) for t in ("a.b", "a-b"))
    with pytest.raises(RefusedError) as caught:
        list(env_lines(replace(PLAN, inputs=inputs)))
    assert caught.value.what == "a.b:0 and a-b:0 would both be EOCTL_RESTART_A_B_0"
    assert json.loads(env_json(replace(PLAN, inputs=inputs)))["restart"] == {
        "a.b": {"0": 1},
        "a-b": {"0": 1},
    }
    assert env_name("DROP", TopicPartition("Straße", 3)) == "EOCTL_DROP_STRASSE_3"


# CSV


@given(
    st.dictionaries(
        st.tuples(st.from_regex("[a-zA-Z0-9_-]{1,30}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        min_size=1,
    )
)
@settings(deadline=None)
def test_csv_comes_back(offsets: dict[TopicPartition, int]) -> None:
    assert import_csv(export_csv(offsets.items()), "f", "g") == offsets


def test_csv_of_kafkas_own_tool() -> None:
    # Its CSV writer quotes what is longer than 24 characters.
    long = "a-topic-with-a-name-of-more-than-24"
    assert import_csv(f'orders,0,17\r\n"{long}",1,5\n', "f", "g") == {
        ("orders", 0): 17,
        (long, 1): 5,
    }
    assert import_csv("g,orders,0,17\nother,orders,0,3\n", "f", "g") == {("orders", 0): 17}
    assert export_csv([(TopicPartition("orders", 0), 17)]) == "orders,0,17\n"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "f", "empty"),
        ("\n\n", "f", "empty"),
        ("other,orders,0,1", "f", "about 'other', not 'g'"),
        ("orders,0", "f, line 1", "2 columns"),
        ("orders,0,1\nTOPIC,PARTITION,OFFSET", "f, line 2", "'PARTITION' is not a valid partition"),
        ("orders,0,-1", "f, line 1", "'-1' is not a valid offset"),
        ("orders,0,9223372036854775808", "f, line 1", "not a valid offset"),
        ("orders,2147483648,1", "f, line 1", "not a valid partition"),
        ("or ders,0,1", "f, line 1", "not a topic name"),
        ("or*,0,1", "f, line 1", "not a topic name"),
        ("orders,0,1\norders,0,2", "f, line 2", "orders:0 is there twice"),
        ('"orders,0,1', "f, line 1", "not CSV"),
        ("orders,0,٣", "f, line 1", "not a valid offset"),
    ],
)
def test_csv_that_is_wrong_names_its_line(text: str, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_csv(text, "f", "g")
    assert caught.value.where == where
    assert what in caught.value.what


# Ad-hoc plans

PARTITION = TopicPartition("in", 0)


def world(current: int | None = 5, output: bool = False) -> World:
    """`in`: log start 2; data at 0-6, aborted 7, marker 8, data 9, open 10: LSO 10, HW 11."""
    made = World()
    log = made.log("in")
    for number in range(7):
        log.write(number)
    log.write("gone", 9, transactional=True)
    log.marker(9, ABORTED)
    log.write("nine")
    log.write("open", 9, transactional=True)
    log.log_start, log.leader_epoch = 2, 3
    if current is not None:
        out = (StoredOutput(topic="out", partition=0, offset=1),) if output else ()
        made.commit(
            StoredPartition(
                input=StoredOffset(topic="in", partition=0, offset=current, leader_epoch=3),
                output=out,
            )
        )
    return made


def test_without_an_answer_to_its_questions_nothing_is_planned() -> None:
    unasked = world().observe({})
    assert wanted_adhoc(Target("by-duration", 1), (PARTITION,), unasked)
    with pytest.raises(IncompleteError, match="not looked at"):
        decide_adhoc(Target("by-duration", 1), "g", (PARTITION,), unasked)


def adhoc(made: World, target: Target, partitions: Any = (PARTITION,)) -> RestartPlan:
    answers: dict[Question[Any], Any] = {}
    for _ in range(5):
        observed = made.observe(answers)
        wants = wanted_adhoc(target, partitions, observed)
        if not wants:
            return decide_adhoc(target, "g", partitions, observed)
        for want in wants:
            answers[want] = made.answer(want)
    raise AssertionError(wants)


@pytest.mark.parametrize(
    ("target", "restart", "direction", "records", "guarantee"),
    [
        (Target("to-earliest"), 2, "rewind", 3, "at-least-once"),
        (Target("to-latest-stable"), 10, "skip", 3, "at-most-once"),
        (Target("to-lso"), 10, "skip", 3, "at-most-once"),
        (Target("to-offset", 4), 4, "rewind", 1, "at-least-once"),
        (Target("to-offset", 7), 7, "skip", 2, "at-most-once"),
        (Target("to-offset", 5), 5, "none", 0, "at-least-once"),
        (Target("to-datetime", 2500), 3, "rewind", 2, "at-least-once"),
        (Target("by-duration", 9000), 9, "skip", 2, "at-most-once"),
        (Target("shift-by", -3), 2, "rewind", 3, "at-least-once"),
        (Target("shift-by", 1), 6, "skip", 1, "at-most-once"),
        (Target("to-current"), 5, "none", 0, "at-least-once"),
        (Target("from-file", offsets={PARTITION: 3}), 3, "rewind", 2, "at-least-once"),
    ],
)
def test_targets(
    target: Target, restart: int, direction: str, records: int, guarantee: str
) -> None:
    plan = adhoc(world(), target)
    (i,) = plan.inputs
    assert (i.current_offset, i.restart_offset) == (5, restart)
    assert (i.direction, i.records, plan.guarantee) == (direction, records, guarantee)
    assert (plan.app, plan.strategy, plan.outputs) == ("g", target.kind, ())
    (kept,) = plan.store
    # What moves loses its leader epoch, which was that of another record.
    assert (kept.input.offset, kept.input.leader_epoch) == (restart, 3 if restart == 5 else None)


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (Target("to-offset", 1), "[1, 2) are gone"),
        (Target("to-offset", 11), "11 is above the last stable offset 10"),
        (Target("shift-by", -4), "[1, 2) are gone"),
        (Target("shift-by", 6), "11 is above the last stable offset 10"),
        (Target("to-datetime", 99_000), "11 is above the last stable offset 10"),
        (Target("from-file", offsets={PARTITION: 12}), "12 is above the last stable offset 10"),
    ],
)
def test_nothing_is_clamped(target: Target, what: str) -> None:
    with pytest.raises(RefusedError) as caught:
        adhoc(world(), target)
    assert what in caught.value.what
    assert caught.value.where == "in:0"


def test_an_instant_after_every_record_is_the_end() -> None:
    made = world()
    made.log("in").marker(9, ABORTED)
    assert adhoc(made, Target("to-datetime", 99_000)).inputs[0].restart_offset == 12


def test_markers_alone_are_no_records() -> None:
    plan = adhoc(world(7), Target("shift-by", 2))
    assert (plan.inputs[0].direction, plan.inputs[0].records) == ("skip", 0)
    assert plan.guarantee == "at-least-once"
    plan = adhoc(world(9), Target("shift-by", -2))
    assert (plan.inputs[0].direction, plan.inputs[0].records) == ("rewind", 0)
    assert plan.because == "what was processed after the last commit comes again"


def test_without_a_commit() -> None:
    for target in (Target("to-current"), Target("shift-by", 1)):
        with pytest.raises(RefusedError, match="nothing is committed for it"):
            adhoc(world(None), target)
    assert adhoc(world(None), Target("to-earliest")).guarantee == "at-least-once"
    plan = adhoc(world(None), Target("to-offset", 4))
    assert (plan.inputs[0].direction, plan.inputs[0].records) == ("none", None)
    assert plan.guarantee == "at-most-once"
    assert plan.because == "records may be left out: in:0 begins at 4"


def test_a_plan_from_the_log_start_is_decided_the_same_when_it_is_applied() -> None:
    """A plan keeps offsets, not --to-earliest: a changed guarantee would refuse it."""
    first = adhoc(world(None), Target("to-earliest"))
    [i] = first.inputs
    assert i.restart_offset == 2
    kept = Target("from-file", offsets={PARTITION: 2})
    again = adhoc(world(None), kept)
    assert (again.guarantee, again.because) == (first.guarantee, first.because)


def test_a_commit_that_lies_outside_of_the_log() -> None:
    plan = adhoc(world(1), Target("to-earliest"))
    (i,) = plan.inputs
    assert (i.direction, i.records, i.from_time) == ("skip", None, None)
    assert plan.guarantee == "at-most-once"
    assert "leaves out an unknown number of records" in plan.because


def test_forward_and_back_at_once() -> None:
    made = world()
    for number in range(9):
        made.log("in", 1).write(number)
    made.commit(StoredPartition(input=StoredOffset(topic="in", partition=1, offset=8)))
    plan = adhoc(made, Target("to-offset", 7), (PARTITION, ("in", 1)))
    assert plan.guarantee == "at-most-once"
    assert plan.because == (
        "records may be left out: in:0 leaves out 2 records; others come again: "
        "in:1 reads again 1 record"
    )


def test_a_pair_is_not_kept_for_another_offset() -> None:
    plan = adhoc(world(output=True), Target("to-earliest"))
    assert [c.held for c in plan.checks if c.name == "pair"] == [False]
    assert plan.store[0].output == ()
    plan = adhoc(world(output=True), Target("to-current"))
    assert not [c for c in plan.checks if c.name == "pair"]
    assert plan.store[0].output != ()


@pytest.mark.parametrize("target", [Target("shift-by", -1), Target("to-current")])
def test_a_move_from_a_commit_of_another_log(target: Target) -> None:
    """The commit (5, leader epoch 3): that epoch ended at 4, what is at 5 now is another record."""
    made = world()
    question = SameLog("in", 0, 5, 3)
    other = Standing(False, "leader epoch 3 ends at 4", 4)
    diverged: dict[Question[Any], Any] = {question: other}
    assert wanted_adhoc(target, (PARTITION,), made.observe()) == (question,)
    with pytest.raises(RefusedError) as caught:
        decide_adhoc(target, "g", (PARTITION,), made.observe(diverged))
    assert "diverged at offset 4: leader epoch 3 ends at 4" in caught.value.what
    assert caught.value.where == "in:0"
    made.log("in").leader_epoch = 2
    with pytest.raises(RefusedError, match="was stored in leader epoch 3, the leader is in 2"):
        adhoc(made, target)
    # What does not depend on the commit may be said all the same.
    assert adhoc(made, Target("to-offset", 4)).inputs[0].restart_offset == 4


@pytest.mark.parametrize(
    ("standing", "epoch"),
    [
        (Standing(True, "the record before it has leader epoch 3"), 3),
        (Standing(None, "no record of leader epoch 3 is in the log"), None),
    ],
)
def test_a_commit_of_then_keeps_its_epoch_only_if_its_record_has_it(
    standing: Standing, epoch: int | None
) -> None:
    """A commit at the end may hold the epoch of a leader that wrote nothing: `apply` would refuse
    it, as no record has that epoch. Without one, the record's own is read and kept."""
    made = world(7)
    commit = CommitRecord("in", 0, at=7, timestamp=1000, offset=5, leader_epoch=3)
    target = Target("as-of", 2000, commits={PARTITION: commit}, source="__consumer_offsets:4")
    question = SameLog("in", 0, 5, 3)
    answers: dict[Question[Any], Any] = {}
    while wants := wanted_adhoc(target, (PARTITION,), made.observe(answers)):
        answers |= {w: standing if w == question else made.answer(w) for w in wants}
    plan = decide_adhoc(target, "g", (PARTITION,), made.observe(answers))
    [entry] = plan.store
    assert (entry.input.offset, entry.input.leader_epoch) == (5, epoch)


def test_pending_commits_refuse_ad_hoc_plans_too() -> None:
    made = world()
    made.pending = [PendingCommit("in", 0, None, 9)]
    with pytest.raises(RefusedError, match="not decided"):
        adhoc(made, Target("to-earliest"))


def test_checks_are_told_once() -> None:
    checks = tuple(Check("a", True, "well", f"t:{n}") for n in range(5))
    assert gathered((*checks, Check("a", None, "well", "t:9"), Check("b", True, "x"))) == (
        Check("a", True, "well", "t:0, t:1, t:2 and 2 more"),
        Check("a", None, "well", "t:9"),
        Check("b", True, "x"),
    )
    assert some(["a", "b", "c"]) == "a, b, c"
