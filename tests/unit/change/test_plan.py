"""Plans: the file round-trips and refuses edits, changed facts are named, approval is exact."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eoctl.operations import kinds  # noqa: F401 - fills KINDS
from eoctl.operations.change.acting import KINDS, lock_scope
from eoctl.operations.change.new_plan import new_plan
from eoctl.render.plans import plan_facts
from eoctl.settings.context import Context
from eoctl.stores import plan_files
from recovery.change.plan import VALID_MS, Plan, Step, differences, dump, load, typeable
from recovery.errors import IncompleteError, RefusedError, UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=12),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=6), below),
    max_leaves=12,
)


def make(**changes: Any) -> Plan:
    step = Step(
        action="abort",
        target="orders:3",
        parameters={"producer_id": 4001, "producer_epoch": 7},
        does="writes an abort marker to orders:3",
        stands_on=("orders:3",),
    )
    return Plan(
        **{
            "kind": "txn-abort",
            "action": "abort",
            "created_at": 1_000_000,
            "expires_at": 1_000_000 + VALID_MS,
            "context": "prod-eu",
            "argv": ("--context", "prod-eu"),
            "cluster_id": "5L6gABC",
            "scope": "orders:3",
            "summary": "orders:3 pid 4001; 37 records dropped, 1143 freed",
            "lock": "this host only",
            "observed": {"orders:3": {"topic_id": "x", "start_offset": 182736450}},
            "steps": (step,),
            **changes,
        }
    )


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), JSON)
def test_a_plan_file_gives_back_its_plan(facts: dict[str, Any], details: object) -> None:
    plan = make(observed={**facts, "orders:3": 1}, details=details)
    text = dump(plan)
    assert load(text, "f") == plan
    assert dump(load(text, "f")) == text
    assert text.isascii()


def test_the_order_of_facts_is_no_difference() -> None:
    one = dump(make(observed={"orders:3": {"x": 1, "y": 2}, "b:1": 3}))
    assert dump(make(observed={"b:1": 3, "orders:3": {"y": 2, "x": 1}})) == one
    assert [*json.loads(one)] == sorted(json.loads(one))


def test_a_fact_stands_on_a_line_of_its_own() -> None:
    before = dump(make()).splitlines()
    after = dump(make(observed={"orders:3": {"topic_id": "x", "start_offset": 9}})).splitlines()
    changed = [a.strip(" ,") for a, b in zip(before, after, strict=True) if a != b]
    assert '"start_offset": 182736450' in changed
    assert len(changed) == 3  # the fact and the two hashes


def test_any_edited_character_is_refused_or_no_plan() -> None:
    text = dump(make())
    refused = 0
    for position in range(len(text)):
        for other in "0}":
            edited = text[:position] + other + text[position + 1 :]
            if json_or_none(edited) == json.loads(text):
                continue  # the same content: an indent's blank cannot become another character
            with pytest.raises((RefusedError, UsageError)) as caught:
                load(edited, "plan.json")
            assert caught.value.where == "plan.json"
            refused += isinstance(caught.value, RefusedError)
    assert refused > 400


def json_or_none(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("expires_at",), 9_999_999_999_999),
        (("summary",), "nothing to see"),
        (("observed", "orders:3", "start_offset"), 1),
        (("steps", 0, "parameters", "producer_id"), 4002),
        (("argv",), ["--context", "prod-us"]),
    ],
)
def test_an_edited_field_is_refused_and_the_hash_named(path: tuple[Any, ...], value: Any) -> None:
    content = json.loads(dump(make()))
    there = content["plan"]
    for key in path[:-1]:
        there = there[key]
    there[path[-1]] = value
    with pytest.raises(RefusedError) as caught:
        load(json.dumps(content), "plan.json")
    assert content["seal"][:16] in caught.value.sentence
    assert caught.value.exit_status == 4


def test_a_forged_seal_does_not_hide_a_wrong_hash() -> None:
    content = json.loads(dump(make()))
    del content["seal"]
    content["plan"]["observed"]["orders:3"]["start_offset"] = 1
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["seal"] = hashlib.sha256(canonical.encode()).hexdigest()
    with pytest.raises(RefusedError, match="sha256"):
        load(json.dumps(content), "plan.json")


def test_formatting_is_no_edit() -> None:
    content = json.loads(dump(make()))
    assert load(json.dumps(content, indent=8), "f") == make()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a plan file"),
        ("orders", "not a plan file"),
        ("[]", "no schema"),
        ("{}", "no schema"),
        ('{"schema": "eoctl.plan/v2"}', "eoctl.plan/v2"),
        ('{"schema": "eoctl.lso/v1", "rows": []}', "eoctl.lso/v1"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": 1.5}', "not an integer"),
        ('{"a": NaN}', "not an integer"),
        ("[" * 100_000, "not a plan file"),
    ],
)
def test_what_is_no_plan_is_told(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        load(text, "plan.json")
    assert "\n" not in caught.value.sentence
    assert caught.value.where == "plan.json"


def test_floats_and_facts_that_are_missing_make_no_plan() -> None:
    with pytest.raises(ValidationError, match="float"):
        make(observed={"orders:3": {"age": 1.5}})
    with pytest.raises(ValidationError, match="not observed"):
        make(observed={"orders:4": {}})


def test_the_word_names_what_is_hit() -> None:
    assert make(hits="orders:3").word == "abort-orders:3"
    assert make(hits="orders:3").question.endswith("Type abort-orders:3:")
    assert make(hits="orders:3").sha256 == make().sha256
    assert load(dump(make(hits="orders:3")), "f").word == "abort-orders:3"


@pytest.mark.parametrize(
    ("hits", "begins", "ends"),
    [
        ("payments-enriched-by-region-and-day:11", "abort-payments..", ""),
        (
            "payments-enriched-by-region-and-day-0_17-owner-is-gone",
            "abort-payments..",
            "-owner-is-gone",
        ),
        (
            "commit-without-proof-payments-enriched-by-region-and-day:11",
            "abort-commit-without-proof-payments..",
            "",
        ),
    ],
)
def test_a_long_name_is_not_typed_whole(hits: str, begins: str, ends: str) -> None:
    """Its two ends are, with what was said of owner and outcome; and the file keeps all of it."""
    plan = make(hits=hits)
    assert plan.word.startswith(begins)
    assert plan.word.endswith(ends)
    assert len(plan.word) <= 50
    assert make(hits=hits.replace("region", "regiom")).word != plan.word
    assert f'"hits": "{hits}"' in dump(plan)
    assert plan.sha256 == make().sha256
    assert load(dump(plan), "f") == plan


@pytest.mark.parametrize("name", ["a b", "a\nb", "\x1b[2J", "ö", "", "x" * 101, "\ud800"])
def test_what_no_keyboard_has_is_typed_with_digits_of_a_hash(name: str) -> None:
    typed = typeable(name)
    assert typed.isascii()
    assert typed.isprintable()
    assert " " not in typed
    assert len(typed) <= 65
    assert typed != typeable(name + "?")
    assert typeable(typed) == typed


def test_a_plan_tells_what_each_step_stands_on_and_what_has_none() -> None:
    about = {
        "transactional_id": "billing-1",
        "partition": "orders:3",
        "producer_id": 4001,
        "verdict": "orphan",
        "rule": "nobody-owns-it",
        "evidence": [{"code": "nobody", "text": "no coordinator owns it", "data": {}}],
        "dropped": 3,
        "freed": 4,
        "bytes": 2048,
        "counted_whole": False,
        "at_stake": {
            "records": 3,
            "first_offset": 7,
            "last_offset": 9,
            "keys": ["k1"],
            "whole": True,
        },
    }
    left = about | {"reason": "still-writing", "verdict": "unknown", "transactional_id": None}
    plain_step = make().steps[0]
    step = plain_step.model_copy(update={"about": [about], "harms": ("billing-1 is shut out",)})
    told = list(plan_facts(make(steps=(step,), details={"left_out": [left]})))
    assert ("on", "orders:3  pid 4001  billing-1  orphan (nobody-owns-it)") in told
    assert ("records", "at least 3 dropped (2.0 KiB), at least 4 freed") in told
    assert ("at stake", "3 records, offsets 7 to 9, keys k1") in told
    assert ("because", "no coordinator owns it") in told
    assert ("harm", "billing-1 is shut out") in told
    assert ("left out", "orders:3  pid 4001  unknown (nobody-owns-it): still-writing") in told
    assert make(steps=(step,)).sha256 == make().sha256


def test_all_remedies_of_a_cluster_exclude_one_another() -> None:
    """One lock for every kind of remedy, whatever it is about; other changes have their own."""
    remedies = [kind for kind in KINDS if kind.startswith("txn-")]
    assert len(remedies) == 6
    scopes = ("orders:3", "orders:4", "id billing-1", "transactions")
    locks = {lock_scope(make(kind=k, scope=s)) for k in remedies for s in scopes}
    assert locks == {"transactions"}
    assert lock_scope(make(kind="restart", scope="group a")) == "group a"


def test_the_approved_hash_is_of_the_change_not_of_its_times_and_words() -> None:
    plan = make()
    later = make(
        created_at=2_000_000,
        expires_at=2_600_000,
        summary="orders:3 pid 4001; 37 records dropped, 1200 freed",
        context="other name",
        argv=(),
        details={"anything": 1},
    )
    assert later.sha256 == plan.sha256
    assert later.word == plan.word == f"abort-{plan.sha256[:4]}"
    for other in (
        make(cluster_id="other"),
        make(scope="orders:4"),
        make(kind="txn-resolve"),
        make(observed={"orders:3": {"topic_id": "x", "start_offset": 182736451}}),
        make(steps=(plan.steps[0].model_copy(update={"parameters": {"producer_id": 4002}}),)),
        make(steps=(plan.steps[0].model_copy(update={"target": "orders:4"}),)),
        make(steps=plan.steps * 2),
        make(independent=True),
    ):
        assert other.sha256 != plan.sha256


def test_the_question_is_the_one_of_the_screens() -> None:
    plan = make()
    assert plan.question == (
        "ABORT on prod-eu (cluster 5L6gABC): orders:3 pid 4001; 37 records dropped, 1143 freed. "
        f"Type abort-{plan.sha256[:4]}:"
    )


def test_a_plan_expires_at_its_moment() -> None:
    plan = make()
    plan.check_expiry(plan.expires_at - 1)
    with pytest.raises(RefusedError, match=r"1970-01-01T00:26:40\.000Z"):
        plan.check_expiry(plan.expires_at)


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"lso": 7}}, {"a": {"lso": 9}}, ["a lso: was 7 when planned, is 9 now"]),
        ({"a": {"x": "p"}}, {"a": {}}, ['a x: was "p" when planned, is gone now']),
        ({"a": {}}, {"a": {"x": None}}, ["a x: was not there when planned, is null now"]),
        ({"a": 1}, {"a": True}, ["a: was 1 when planned, is true now"]),
        ({"a": None}, {"a": 0}, ["a: was null when planned, is 0 now"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a [1]: was 2 when planned, is 3 now"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: was [1] when planned, is [1, 2] now"]),
        ({"a": (1,)}, {"a": [1]}, []),
        ({"b": 1, "a": 1}, {}, ["a: was 1", "b: was 1"]),
        ({"a": {"b": 1}}, {"a": 3}, ['a: was {"b": 1} when planned, is 3 now']),
        # what an application keeps beside an offset is JSON, and librdkafka ends it with a NUL
        (
            {"g": {"metadata": '{"a": {"b": "c"}}\0'}},
            {"g": {}},
            ["""g metadata: was '{"a": {"b": "c"}}' when planned, is gone now"""],
        ),
    ],
)
def test_differences_name_the_place_and_both_values(
    then: dict[str, object], now: dict[str, object], said: list[str]
) -> None:
    found = differences(then, now)
    assert len(found) == len(said)
    assert all(a.startswith(b) for a, b in zip(found, said, strict=True))


def test_a_long_value_is_cut_only_beyond_120_characters() -> None:
    """The JSON text of 118 letters has 120 characters with its quotes."""
    (whole,) = differences({"a": "x" * 118}, {"a": 1})
    assert whole == f'a: was "{"x" * 118}" when planned, is 1 now'
    (short,) = differences({"a": "x" * 119}, {"a": 1})
    assert short == f'a: was "{"x" * 118}… when planned, is 1 now'


def test_a_plan_cannot_be_changed_in_place() -> None:
    plan = make()
    for value, name in ((plan, "kind"), (plan.steps[0], "action")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, name, "other")


@given(st.dictionaries(st.text(max_size=4), JSON), st.dictionaries(st.text(max_size=4), JSON))
def test_no_difference_means_equal(then: dict[str, Any], now: dict[str, Any]) -> None:
    equal = json.dumps(then, sort_keys=True) == json.dumps(now, sort_keys=True)
    assert (differences(then, now) == []) == equal


def test_only_the_facts_a_step_stands_on_count() -> None:
    plan = make(observed={"orders:3": 1, "orders:4": 1})
    assert plan.changed({"orders:3": 1, "orders:4": 2}, plan.steps) == []
    assert plan.changed({"orders:3": 2}, plan.steps) == ["orders:3: was 1 when planned, is 2 now"]
    assert plan.changed({}, plan.steps) == ["orders:3: was 1 when planned, is gone now"]


def test_plan_files(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    plan_files.write(make(), path)
    assert plan_files.read(path) == make()
    assert path.stat().st_mode & 0o777 == 0o600
    plan_files.write(make(scope="other"), path)
    assert plan_files.read(path).scope == "other"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UsageError, match="No such file"):
        plan_files.read(tmp_path / "none.json")
    with pytest.raises(UsageError, match="Is a directory"):
        plan_files.read(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        plan_files.write(make(), tmp_path / "none" / "p.json")
    with pytest.raises(UsageError, match="cannot be written"):
        plan_files.write(make(), tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not text"):
        plan_files.read(path)


@pytest.mark.parametrize("told", [None, ""])
def test_no_plan_is_made_for_a_cluster_that_does_not_tell_its_id(told: str | None) -> None:
    with pytest.raises(IncompleteError, match="cluster id"):
        new_plan(
            Context("here", {}, ()),
            told,
            kind="k",
            action="abort",
            scope="s",
            summary="",
            observed={},
            steps=(),
        )
