"""Brokers that are away come before any question to an owner, and change no verdict."""

from collections.abc import Callable

import pytest

from eoctl.render.diagnose_words import wait_words
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.prospect import prospect
from recovery.facts import CoordinatorFacts, PartitionFacts
from recovery.inspect.observation import Sample
from recovery.remedy.repairs import commit_refused, remedy_allowed
from recovery.values import replace
from tests.unit.diagnose.test_owned import overdue
from tests.unit.inspect.test_id_verdicts import look as id_look
from tests.unit.inspect.test_verdicts import P, Q, judged, live
from tests.unit.transaction_model import World


def short(in_sync: int | None = 1, least: int | None = 2) -> Callable[[Sample], Sample]:
    """Each coordinator's log with so many of three replicas in sync."""

    def change(s: Sample) -> Sample:
        logs = tuple(
            replace(c, in_sync=in_sync, away=(2, 3)[: 3 - (in_sync or 0)], least=least)
            for c in s.transactions.coordinators
        )
        return replace(s, transactions=replace(s.transactions, coordinators=logs))

    return change


@pytest.mark.parametrize(
    ("in_sync", "least", "few"),
    [(1, 2, True), (2, 2, False), (3, 2, False), (0, 1, True), (None, 2, False), (1, None, False)],
)
def test_too_few_in_sync_is_known_only_with_both_numbers(
    in_sync: int | None, least: int | None, few: bool
) -> None:
    log = CoordinatorFacts(0, 1, True, in_sync=in_sync, least=least)
    assert log.takes_no_record is few


def test_the_remedy_of_what_is_owned_is_to_start_brokers_and_its_verdict_stays() -> None:
    for world in (live()[0], overdue(by=5_000)[0]):
        before = judged(world)
        v = judged(world, change=short())
        assert (v.name, v.rule) == (before.name, before.rule)
        assert v.remedy.action == "restore-leader"
        assert remedy_words(v.remedy.does).startswith("start brokers 2, 3: ")
        assert (
            remedy_words(v.remedy.caveats[0])
            == f"not before that: {remedy_words(before.remedy.does)}"
        )
        assert v.remedy.partitions == ("__transaction_state:0",)
        assert "coordinator-log" in [e.code for e in v.evidence]
        kept = [r for r in before.remedy.refused if r[0] != "fence"]
        assert list(v.remedy.refused[:-1]) == kept
        for action in ("fence", "resolve"):
            assert remedy_allowed(v, action, owner_is_gone=True) is not None
        assert commit_refused(v) == dict(v.remedy.refused)["fence"]
        p = prospect(v, None, {}, 0)
        assert (p.ending, p.ends_at, p.ends_in) == ("brokers", None, None)
        assert wait_words(p, 0).startswith("it cannot end before missing brokers are back")
    text = next(
        evidence_words(e)
        for e in judged(live()[0], change=short()).evidence
        if e.code == "deadline"
    )
    assert text.startswith("Its timeout passes in ")
    text = next(evidence_words(e) for e in v.evidence if e.code == "deadline")
    assert text.startswith("Its timeout passed ")
    assert "ago; its coordinator cannot abort it" in text


def test_enough_in_sync_changes_nothing() -> None:
    v = judged(live()[0], change=short(in_sync=2))
    assert v == replace(judged(live()[0]), evidence=v.evidence)
    assert v.short_log is None
    assert v.remedy.action == "wait"


def test_what_needs_no_coordinator_keeps_its_remedy() -> None:
    """A marker for an orphan or a lost decision goes to the partition's leader."""
    w = World()
    w.stray(w.init("orders", 2, 3_600_000), P)
    lost = World()
    i = lost.init("orders", 2, 3_600_000)
    lost.write(i, P)
    lost.end(i, "commit", lost=[P])
    for world, action in ((w, "abort"), (lost, "resolve")):
        v = judged(world, change=short())
        assert (v.remedy.action, v.short_log) == (action, None)


def test_a_partition_of_it_without_a_leader() -> None:
    """Its coordinator can decide; the end cannot be written everywhere."""

    def without(s: Sample) -> Sample:
        rows = tuple(
            replace(t, partitions=(P, Q)) if t.state == "Ongoing" else t
            for t in s.transactions.rows
        )
        gone = PartitionFacts(*Q, leader=None, error="LEADER_NOT_AVAILABLE")
        return replace(s, named=(gone,), transactions=replace(s.transactions, rows=rows))

    v = judged(live()[0], change=without)
    assert (v.name, v.unled, v.short_log) == ("open", ("t:1",), None)
    assert v.remedy.action == "restore-leader"
    assert "bring back a leader that answers for t:1" in remedy_words(v.remedy.does)
    assert remedy_allowed(v, "fence", owner_is_gone=True) is not None
    assert commit_refused(v) is not None
    assert prospect(v, None, {}, 0).ending == "timeout"  # here it ends


def test_an_id_that_holds_nothing() -> None:
    few = id_look("Ongoing", in_sync=1, away=(2, 3))
    v = judge_id(few, few)
    assert v.remedy.action == "restore-leader"
    assert v.remedy.partitions == ("__transaction_state:7",)
    enough = id_look("Ongoing")
    assert judge_id(enough, enough).remedy.action != "restore-leader"
    decided = id_look("PrepareCommit", in_sync=1, away=(2, 3))
    assert "coordinator-log" not in [e.code for e in judge_id(decided).evidence]
