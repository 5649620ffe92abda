"""What a drill makes of each ending: a table by hand, of what readers lose or get twice."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from eoctl.cli.main import run
from eoctl.host.processes import Process
from eoctl.lab.drills import grading, judge, own
from eoctl.lab.drills.catalogue import DRILLS, OWN
from eoctl.lab.drills.drill_state import FILE, Case, DrillState, Role
from eoctl.lab.drills.judge import Ending, Fence
from eoctl.lab.twin import build
from eoctl.lab.twin.rows import TwinRow
from eoctl.operations.dashboard import twins
from eoctl.stores import bundle_files
from recovery.diagnose.diagnosis_rows import Action
from recovery.diagnose.remedies import Remedy
from recovery.diagnose.verdicts import VerdictName
from recovery.errors import UnverifiedError, UsageError
from recovery.facts import Missing
from recovery.times import rfc3339
from recovery.values import Reason, replace
from tests.docs.pages import ROOT

OPEN, COMMIT, ABORT = Ending(None, 5), Ending("commit", 5, 9), Ending("abort", 5, 9)
ENDINGS: list[tuple[Role, Ending, Fence | None, str, int, int]] = [
    # role, ending, fence, result, records lost, records doubled
    ("orphan", ABORT, None, "right", 0, 0),
    ("orphan", OPEN, None, "left", 0, 0),
    ("orphan", COMMIT, None, "harmful", 0, 5),
    ("alive", OPEN, None, "right", 0, 0),
    ("alive", COMMIT, None, "right", 0, 0),
    ("alive", ABORT, None, "harmful", 5, 0),
    ("alive", ABORT, Fence(after_question=True), "harmful", 5, 0),
    ("others", OPEN, None, "right", 0, 0),
    ("others", ABORT, None, "harmful", 5, 0),
    ("others", COMMIT, None, "harmful", 0, 5),
    ("dead", ABORT, Fence(after_question=True), "right", 0, 0),
    ("dead", ABORT, Fence(after_question=False), "wrong", 0, 0),
    ("dead", ABORT, None, "right", 0, 0),  # its coordinator, at the timeout
    ("dead", Ending("abort", 5, 9, unasked=True), None, "wrong", 0, 0),
    ("dead", OPEN, None, "left", 0, 0),
    ("dead", COMMIT, None, "harmful", 0, 5),
    ("promised", COMMIT, None, "right", 0, 0),
    ("promised", OPEN, None, "left", 0, 0),
    ("promised", ABORT, None, "harmful", 5, 0),
    ("unpromised", OPEN, None, "right", 0, 0),
    ("unpromised", ABORT, None, "right", 0, 0),
    ("unpromised", COMMIT, None, "harmful", 0, 5),
    ("lost-commit", COMMIT, None, "right", 0, 0),
    ("lost-commit", ABORT, None, "harmful", 5, 0),
    ("lost-commit", OPEN, None, "left", 0, 0),
    ("lost-abort", ABORT, None, "right", 0, 0),
    ("lost-abort", COMMIT, None, "harmful", 0, 5),
    ("lost-abort", OPEN, None, "left", 0, 0),
]


@pytest.mark.parametrize(("role", "ending", "fence", "result", "lost", "doubled"), ENDINGS)
def test_what_became_of_a_transaction(
    role: Role, ending: Ending, fence: Fence | None, result: str, lost: int, doubled: int
) -> None:
    row = judge.transaction(Case(role, "orders:3"), ending, fence)
    assert (row.result, row.records_lost, row.records_doubled) == (result, lost, doubled)


def test_harm_costs_most_and_doing_nothing_least() -> None:
    p = judge.POINTS
    assert p["harmful"] < -2 * p["right"] < p["wrong"] < p["left"] == 0 < p["right"]


@pytest.mark.parametrize(
    ("lost", "doubled", "whole", "result"),
    [(0, 0, True, "right"), (0, 0, False, "left"), (0, 2, False, "wrong"), (1, 2, True, "harmful")],
)
def test_what_a_topic_holds(lost: int, doubled: int, whole: bool, result: str) -> None:
    case = Case("copy", "orders-clean")
    row = judge.records(case, present=3, lost=lost, doubled=doubled, whole=whole, done="copied")
    assert row.result == result


def test_a_broker_is_right_only_once_it_left_and_came_back() -> None:
    case = Case("broker", "broker 2", broker=2)
    looks = [(False, True), (True, False), (True, True)]  # gone, ready
    results = [judge.broker(case, gone=gone, ready=ready).result for gone, ready in looks]
    assert results == ["left", "left", "right"]


def test_praise_is_for_what_was_right_and_nowhere_wrong() -> None:
    alive, dead = Case("alive", "a:0"), Case("dead", "a:1")
    good = [judge.transaction(alive, OPEN), judge.transaction(dead, ABORT)]
    assert len(judge.well_done(good, asked=False)) == 2
    assert judge.well_done(good, asked=True)[0] == "an owner was asked"
    bad = [*good, judge.transaction(alive, ABORT)]
    assert judge.well_done(bad, asked=False) == [judge.PRAISE["abort"]]


def test_the_truth_is_hidden_and_comes_back(tmp_path: Path) -> None:
    case = Case("alive", "orders:3", "orders", 3, "etl-4", 1, 2, "alive", "x", Process(7, "now"))
    state = DrillState("orphan", 7, 1, "s" * 20_000, (case,), ("orders",), ("g",))
    assert DrillState.load(tmp_path) is None
    state.save(tmp_path)
    assert DrillState.load(tmp_path) == state
    text = (tmp_path / FILE).read_text()
    assert not any(word in text for word in ("etl-4", "alive", "orders", "orphan"))
    first = state.ask("etl-4", 5)
    assert first.ask("etl-4", 9).questions == {"etl-4": 5}
    assert replace(first, questions={}) == state
    (tmp_path / FILE).write_text(text[:-20])
    with pytest.raises(UsageError, match="damaged"):
        DrillState.load(tmp_path)


KEPT = ROOT / "tests" / "kept" / "0.2.0" / "incident.eoctl"


def judged_as(
    monkeypatch: pytest.MonkeyPatch, action: Action, name: VerdictName, outcome: str | None = None
) -> bundle_files.Bundle:
    """Return a bundle whose one open transaction is judged so."""
    bundle, _ = bundle_files.read(KEPT)
    d = bundle_files.judged_again(bundle)
    [one, *_] = d.judged
    remedy = Remedy(action, Reason("abort"))
    verdict = replace(one.verdict, name=name, remedy=remedy, proven_outcome=outcome)
    about = replace(one.about, producer_id=4001, start_offset=42)
    judged = (replace(one, about=about, verdict=verdict),)
    monkeypatch.setattr(bundle_files, "judged_again", lambda _: replace(d, judged=judged))
    return bundle


@pytest.mark.parametrize(
    ("action", "name", "outcome", "role", "answer"),
    [
        ("abort", "orphan", None, "orphan", "unknown"),
        ("fence", "overdue", None, "dead", "dead"),
        ("resolve", "marker-lost", "commit", "lost-commit", "unknown"),
        ("resolve", "marker-lost", "abort", "lost-abort", "unknown"),
        ("none", "unknown", None, "others", "unknown"),
    ],
)
def test_a_bundles_verdicts_are_the_truth_of_its_drill(
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    name: VerdictName,
    outcome: str | None,
    role: Role,
    answer: str,
) -> None:
    [case] = own.cases_of(judged_as(monkeypatch, action, name, outcome))
    assert (case.role, case.answer) == (role, answer)
    assert (case.producer_id, case.start_offset) == (4001, 42)


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("wait", "prepare"),
        ("wait", "open"),  # its time passes on the twin too, and its owner is not there
        ("none", "long"),
        ("wait", "overdue"),
        ("none", "two-phase"),
        ("restart-coordinator", "prepare-stuck"),
        ("restore-leader", "overdue"),
    ],
)
def test_what_a_twin_cannot_show_is_no_part_of_a_drill(
    monkeypatch: pytest.MonkeyPatch, action: Action, name: VerdictName
) -> None:
    bundle = judged_as(monkeypatch, action, name)
    with pytest.raises(UsageError, match="no open transaction that can be practised on"):
        own.cases_of(bundle)


def test_an_end_on_a_twin_is_right_only_after_the_question() -> None:
    case = Case("dead", "orders:3", transactional_id="etl-4")
    state = DrillState(OWN.name, 0, 1, "", (case,))
    asked = state.ask("etl-4", 50)
    assert grading.asked_at(asked, case) == 50
    assert grading.asked_at(state, case) == grading.NEVER
    assert grading.asked_at(replace(asked, drill="orphan"), case) is None


def test_a_case_that_the_twin_judges_otherwise_is_left_out_and_said() -> None:
    same, other, gone = (Case("orphan", f"a:{n}", "a", n, None, 7, 5) for n in range(3))
    rows = [
        TwinRow(
            topic="a",
            partition=n,
            producer_id=7,
            start_offset=5,
            transactional_id=None,
            bundle="orphan (x)",
            twin=here,
            equal=n == 0,
            because=None,
        )
        for n, here in enumerate(("orphan (x)", "unknown (y)"))
    ]
    kept, without = twins.alike([same, other, gone], rows)
    assert kept == [same]
    assert "a:1 from offset 5" in without[0]
    assert "verdict is orphan (x), the twin's unknown (y)" in without[0]
    assert "a:2" in without[1]


def test_a_twin_that_was_not_seen_completely_is_no_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, _ = bundle_files.read(KEPT)
    gap = Missing("broker", "TIMED_OUT", "broker 1 did not answer", broker=1)
    unseen = replace(bundle_files.judged_again(bundle), missing=(gap,))
    downs: list[str] = []
    lab = SimpleNamespace(name="twin", down=lambda: downs.append("twin"))
    monkeypatch.setattr(build, "make", lambda *_: SimpleNamespace(lab=lab, shift=0, left_out=0))
    monkeypatch.setattr(twins.Started, "judged", lambda _: unseen)
    with pytest.raises(UnverifiedError, match="broker 1 did not answer"):
        twins.drill(KEPT, "twin")
    assert downs == ["twin"]


def test_the_story_of_an_own_incident_names_topics_and_time_and_no_cause() -> None:
    bundle, _ = bundle_files.read(KEPT)
    cases = own.cases_of(bundle)
    state = own.drill_of(bundle, cases)
    assert state.drill == OWN.name
    for case in cases:
        assert str(case.topic) in state.story
    assert str(rfc3339(bundle.diagnosis.collected_at)) in state.story
    assert not any(str(case.transactional_id) in state.story for case in cases)


def test_a_mistyped_file_is_no_drill_whether_a_lab_runs_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    assert run(["lab", "drill", "incidnet.eoctl"]) == 2
    assert "is no drill, and no file of a bundle" in capsys.readouterr().err


def test_each_drill_has_its_page_and_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "drills.md").read_text()
    for drill in DRILLS.values():
        assert (ROOT / "docs" / "runbooks" / f"{drill.page}.md").exists()
        assert f"| `{drill.name}`: " in text
