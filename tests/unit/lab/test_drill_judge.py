"""What a drill makes of each ending: a table by hand, of what readers lose or get twice."""

from pathlib import Path

import pytest

from eoctl.host.processes import Process
from eoctl.lab.drills import judge
from eoctl.lab.drills.catalogue import DRILLS
from eoctl.lab.drills.drill_state import FILE, Case, DrillState, Role
from eoctl.lab.drills.judge import Ending, Fence
from recovery.errors import UsageError
from recovery.values import replace
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
    ("dead", ABORT, Fence(after_question=True), "right", 0, 0),
    ("dead", ABORT, Fence(after_question=False), "wrong", 0, 0),
    ("dead", ABORT, None, "right", 0, 0),  # its coordinator, at the timeout
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


def test_each_drill_has_its_page_and_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "drills.md").read_text()
    for drill in DRILLS.values():
        assert (ROOT / "docs" / "runbooks" / f"{drill.page}.md").exists()
        assert f"| `{drill.name}`: " in text
