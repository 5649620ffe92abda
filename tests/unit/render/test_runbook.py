"""The runbook: each transaction in its one place, what keeps data first, nothing that acts."""

import re
import shlex
from typing import Any, get_args

import pytest

from eoctl.render.explain import ASK, part
from eoctl.render.runbook import runbook_lines
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import (
    ContestRow,
    EndsRow,
    EvidenceRow,
    OtherwiseRow,
    WayRow,
)
from recovery.diagnose.verdicts import VerdictName
from recovery.diagnose.why_rows import WhyRow
from recovery.remedy.repairs import NEVER_KNOWN
from recovery.row import ErrorRow
from recovery.values import replace
from tests.docs.test_examples import parse
from tests.unit.render.test_render_why import HOSTILE, NOW, hanging, page_row

ARGV = ("--context", "prod-eu")


def row(verdict: str, action: str, topic: str = "orders", **more: Any) -> WhyRow:
    h = hanging(verdict, action, topic=topic, **more)
    return page_row(topic=topic, held_by=h)


def told(*rows: WhyRow, errors: tuple[ErrorRow, ...] = (), **extra: Any) -> dict[str, str]:
    """The text of each section of the runbook, by its title."""
    answer = Answer(
        "runbook",
        "5L6gXyZ_5KQ0r1s2t3u4vw",
        NOW,
        rows,
        errors,
        extra={
            "context": "prod-eu",
            "read_only": False,
            "protected": False,
            "brokers_up": 3,
            "brokers_known": 3,
            "scanned": 9,
            "held_back": len(rows),
            "held_offsets": 1204,
            "left_out": 0,
            **extra,
        },
    )
    text = "\n".join(runbook_lines(answer, ARGV, ()))
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"": head} | {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith("eoctl ")]


def test_nothing_held_is_nothing_to_do() -> None:
    sections = told()
    assert list(sections) == [""]
    assert sections[""].endswith("Nothing to do.")


@pytest.mark.parametrize("verdict", get_args(VerdictName))
@pytest.mark.parametrize("action", ["abort", "fence", "wait", "resolve", "none"])
def test_all_commands_parse_and_none_acts(verdict: str, action: str) -> None:
    for more in ({}, {"mixed": True, "proven_outcome": "commit"}, {"transactional_id": "it's `x`"}):
        sections = told(row(verdict, action, rule="still-writing", **more))
        found = commands("\n".join(sections.values()))
        assert found
        for words in found:
            assert not {"--execute", "--yes"} & set(words)
            parse(words[1:], "runbook")
        assert not re.search(r"(?<!\.)\.\.(?!\.)", "\n".join(sections.values()))
        # each is told once: in one of the sections that say what to do
        names = ("Safe now", "Needs a person's answer", "Escalate", "Leave alone", "Not known yet")
        assert sum("orders:3" in sections.get(name, "") for name in names) == 1


@pytest.mark.parametrize("verdict", get_args(VerdictName))
@pytest.mark.parametrize("action", ["abort", "fence", "wait", "resolve", "none"])
def test_what_is_stuck_is_never_left_alone(verdict: str, action: str) -> None:
    """Without a safe way it is escalated, with whom to ask and the question."""
    ends_by_itself = verdict in ("open", "prepare")
    sections = told(row(verdict, action, rule="order-unclear"))
    if "Leave alone" in sections:
        assert ends_by_itself
    if "Escalate" in sections:
        assert not ends_by_itself
        assert re.search(r"  - Ask: .*\w", sections["Escalate"])
        assert "escalated   orders:3" in sections["For the ticket"]
    stuck = told(row("orphan", "wait"), row("coordinator-fenced", "none", "fenced"))
    assert stuck["Escalate"].count("Ask: ") == 2
    assert "Leave alone" not in stuck


def test_what_keeps_data_comes_first() -> None:
    safe = told(
        row("orphan", "abort", "a"),
        row("marker-lost", "resolve", "b", proven_outcome="abort"),
        row("prepare-stuck", "restore-leader", "c", rule="markers-not-written"),
        row("marker-lost", "resolve", "d", proven_outcome="commit"),
    )["Safe now"]
    assert re.findall(r"\*\*`(\w):3`\*\*", safe) == ["d", "c", "b", "a"]
    # the plan of many holds only what nobody need be asked of: never the overdue by default
    [many] = [words for words in commands(safe) if "--plan" in words]
    assert many[many.index("hanging") + 1 : many.index("--plan")] == [
        *("--verdict", "marker-lost"),
        *("--verdict", "orphan"),
    ]


def test_an_overdue_one_is_asked_about_once_for_all_its_partitions() -> None:
    rows = [row("overdue", "fence", t, transactional_id="sender") for t in ("a", "b")]
    asked = told(*rows)["Needs a person's answer"]
    assert asked.count("### ") == 1
    assert "`a:3`, `b:3`" in asked
    assert asked.count("It is dead") == 1
    assert "run it once" in asked


def test_records_that_were_not_counted_are_not_told_as_none() -> None:
    """37 on each partition; where one could not be counted, the fence drops at least the others."""
    whole = [row("overdue", "fence", t, transactional_id="sender") for t in ("a", "b")]
    asked = told(*whole)["Needs a person's answer"]
    assert "drops 74 records that wait" in asked
    counted = whole[1].waiting
    assert counted is not None
    for waiting in (None, replace(counted, at_least=True)):
        one = replace(whole[1], waiting=waiting)
        asked = told(whole[0], one)["Needs a person's answer"]
        assert re.search(r"drops at least (37|74) records that wait", asked)


def test_signs_of_life_ask_for_the_owners_word() -> None:
    gated = row("overdue", "wait", transactional_id="sender", gate="sender is alive: it wrote")
    asked = told(gated)["Needs a person's answer"]
    assert "sender is alive" in asked
    [fence] = [words for words in commands(asked) if "fence" in words]
    assert "--owner-is-gone" in fence
    assert fence[-1] == "sender"
    assert "--cluster-id" in fence


def test_under_a_mixed_one_no_fence_is_offered() -> None:
    """On none of its id's partitions: it would destroy the committed records."""
    for left, words in ((60.0, "before "), (-60.0, "at once")):
        mixed = row(
            "marker-lost",
            "wait",
            rule="earlier-marker-lost",
            mixed=True,
            proven_outcome="commit",
            transactional_id="sender",
            ends_at=NOW + 60_000,
            ends_in_seconds=left,
        )
        other = row("overdue", "fence", "other", transactional_id="sender")
        asked = told(mixed, other)["Needs a person's answer"]
        assert [w[4] for w in commands(asked)] == ["resolve"]
        assert words in asked
    lost_abort = replace(
        mixed,
        held_by=replace(mixed.held_by, proven_outcome="abort"),  # type: ignore[type-var]
    )
    assert commands(told(lost_abort)["Needs a person's answer"]) == []


@pytest.mark.parametrize("rule", sorted(NEVER_KNOWN))
def test_what_no_look_can_tell_is_asked(rule: str) -> None:
    asked = told(row("unknown", "none", rule=rule))["Needs a person's answer"]
    assert [w[w.index("--outcome") + 1] for w in commands(asked)] == ["commit", "abort"]
    assert "write nothing" in asked


def test_only_what_is_accepted_now_is_offered_as_an_answer() -> None:
    """The runbook asks `ends`, as `why` does; where nothing is named it says why."""
    fence = WayRow(
        action="fence",
        knows="owner-gone",
        outcome=None,
        argv=["eoctl"],
        command="eoctl txn fence a",
    )
    for known in ((), (fence,)):
        left = OtherwiseRow(code="ask-system", data={})
        ends = EndsRow(way=None, next=None, if_you_know=list(known), otherwise=left)
        held = row("two-phase", "none", transactional_id="a", ends=ends)
        asked = told(held)["Needs a person's answer"]
        assert commands(asked) == [["eoctl", "txn", "fence", "a"]] * len(known)
        assert ("Not from here now" in asked) == (not known)


def test_a_fenced_one_whose_outcome_nobody_can_prove_is_asked_about() -> None:
    ways = [
        WayRow(
            action="resolve", knows=k, outcome=o, argv=["eoctl"], command=f"eoctl txn resolve {o}"
        )
        for k, o in (("committed", "commit"), ("aborted", "abort"))
    ]
    left = OtherwiseRow(code="ask-owner", data={"rule": "order-unclear"})
    ends = EndsRow(way=None, next=None, if_you_know=ways, otherwise=left)
    held = row("coordinator-fenced", "none", rule="coordinator-fenced", ends=ends)
    sections = told(held)
    assert "Leave alone" not in sections
    asked = sections["Needs a person's answer"]
    assert commands(asked) == [["eoctl", "txn", "resolve", o] for o in ("commit", "abort")]
    assert str(part("order-unclear", "rule", ASK)) in asked
    unread = replace(
        ends,
        if_you_know=[],
        otherwise=OtherwiseRow(code="look-again", data={"rule": "history-not-read"}),
    )
    sections = told(row("coordinator-fenced", "none", rule="coordinator-fenced", ends=unread))
    assert "READ on `__transaction_state`" in sections["Not known yet"]


def test_what_was_not_seen_comes_first_and_offers_nothing() -> None:
    error = ErrorRow(
        scope="broker",
        broker=2,
        topic=None,
        partition=None,
        id=None,
        error="TIMED_OUT",
        detail="late",
    )
    sections = told(row("unknown", "none", rule="coordinators-not-seen"), errors=(error,))
    assert list(sections)[1] == "Not known yet"
    assert "broker 2: late (TIMED_OUT)" in sections["Not known yet"]
    assert "Abort nothing" in sections["Not known yet"]
    assert commands(sections["Not known yet"]) == []
    assert "Not everything was seen" in sections[""]


def test_a_stray_of_a_live_id_is_escalated_and_an_open_one_left_alone() -> None:
    stray = row(
        "orphan",
        "wait",
        "a",
        rule="stray-of-a-live-id",
        transactional_id="sender",
        ends=waits_for("sender"),
    )
    live = row("open", "wait", "b", transactional_id="sender", ends_at=NOW)
    sections = told(stray, live)
    assert "until 2023-11-14 22:13Z, when its coordinator aborts it" in sections["Leave alone"]
    assert "`a:3`" in sections["Escalate"]
    order = sections["Order across the partitions of one id"]
    assert "comes after that id's own transaction" in order
    assert order.index("`b:3`") < order.index("`a:3`")
    assert "Safe now" not in sections


def waits_for(name: str) -> EndsRow:
    left = OtherwiseRow(code="wait-for-id", data={"transactional_id": name})
    return EndsRow(way="id-at-work", next=None, if_you_know=[], otherwise=left)


@pytest.mark.parametrize(
    ("verdict", "action"), [("orphan", "wait"), ("marker-lost", "resolve"), ("unknown", "none")]
)
def test_what_waits_for_its_id_comes_after_it(verdict: str, action: str) -> None:
    more = {"transactional_id": "sender", "rule": "history-compacted"}
    first = row("overdue", "fence", "b", transactional_id="sender")
    sections = told(row(verdict, action, "a", ends=waits_for("sender"), **more), first)
    order = sections["Order across the partitions of one id"]
    assert order.index("`b:3`") < order.index("`a:3`")
    assert "What waits for an id that is open elsewhere comes after" in order


def test_an_id_has_one_page_however_many_rows_it_has_and_the_rest_is_counted() -> None:
    way = WayRow(action="fence", knows="owner-gone", outcome=None, argv=[], command="x")
    left = OtherwiseRow(code="wait-for-owner", data={})
    ends = EndsRow(way="within-limits", next=None, if_you_know=[way], otherwise=left)
    names = ["twice", *("id-" + str(n) for n in range(25)), "twice"]
    rows = [
        page_row(
            topic=None,
            partition=None,
            held_by=hanging(
                "open", "wait", topic=None, partition=None, transactional_id=name, ends=ends
            ),
        )
        for name in names
    ]
    left_alone = told(*rows)["Leave alone"]
    assert left_alone.count("--transactional-id=twice") == 1
    assert "and 6 more" in left_alone


def test_what_looks_like_flinks_is_lost_at_the_deadline_that_is_waited_for() -> None:
    named = EvidenceRow(code="looks-precommitted", text="a Flink sink's", data={})
    for evidence, losing in (([named], True), ([], False)):
        live = row("open", "wait", transactional_id="sink-0-7", ends_at=NOW, evidence=evidence)
        alone = told(live)["Leave alone"]
        assert ("its records are lost then" in alone) == losing
        assert ("restore its job from the last checkpoint" in alone) == losing


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_no_markdown(name: str) -> None:
    for verdict, action in (("orphan", "abort"), ("overdue", "wait"), ("open", "wait")):
        text = "\n".join(told(row(verdict, action, transactional_id=name)).values())
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert not [line for line in text.splitlines() if line.startswith("b\r")]


def test_a_contested_id_is_asked_about_even_if_nothing_is_held() -> None:
    row_of = ContestRow(
        transactional_id="it's `x`\x1b",
        initialisations=9,
        aborted=8,
        since=NOW - 60_000,
        until=NOW - 2_000,
        interval_seconds=7.0,
        timeouts_ms=[60_000, 45_000, 60_000],
        causes=["two-owners"],
        producer_id=4001,
        producer_epoch=8,
        state="Ongoing",
    )
    sections = told(contests=[row_of])
    text = sections["Contested ids"]
    assert "Nothing to do" not in sections[""]
    assert "initialised 9 times, about every 7 s, last 2 s ago" in text
    assert "with timeouts of 60 s and 45 s by turns" in text
    assert "Ask: which processes run with transactional.id" in text
    assert "\x1b" not in text
    assert "contested   it's `x`" in sections["For the ticket"]
    found = commands("\n".join(sections.values()))
    assert not [c for c in found if "fence" in c]
    named = told(contests=[replace(row_of, transactional_id="it's `x`")])["Contested ids"]
    assert ["why", "--transactional-id=it's `x`"] in [c[-2:] for c in commands(named)]
