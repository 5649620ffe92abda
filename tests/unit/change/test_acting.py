"""Changes killed, refused, raced and repeated, as real processes over a file of cells."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from eoctl.operations import kinds  # noqa: F401 - fills KINDS
from eoctl.operations.change.acting import KINDS, kind_module
from eoctl.stores import plan_files
from eoctl.stores.unfinished import unfinished_notice
from recovery.errors import UsageError
from tests.unit.cells import ACT, SET, Cells

POINTS = [
    "locked",
    "read-again",
    "begun",
    "step-1-started",
    "step-1-performed",
    "step-1-done",
    "step-2-started",
    "step-2-performed",
    "step-2-done",
    "verified",
]
SENT_NOTHING = POINTS[:4]


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path)


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_same_command_ends_it(cells: Cells, point: str) -> None:
    cells.run(*SET, "--out", "plan.json")
    apply = ("apply", "plan.json", *ACT)
    cells.kill_at(point, *apply)
    assert cells.now in ({"a": 1, "b": 2}, {"a": 5, "b": 2}, {"a": 5, "b": 7})
    if point in SENT_NOTHING:
        assert cells.writes == []
    again = cells.run(*apply)
    assert again.returncode == 0, again.stderr
    assert cells.now == {"a": 5, "b": 7}
    assert cells.writes == ["a=5", "b=7"]
    assert [entry["state"] for entry in cells.entries()] == ["done"]
    third = cells.run(*apply)
    assert third.returncode == 0
    assert "done already" in third.stderr
    assert cells.writes == ["a=5", "b=7"]


@pytest.mark.parametrize("point", POINTS[2:-1])
def test_killed_anywhere_resume_ends_it(
    cells: Cells, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells.kill_at(point, *SET, *ACT)
    [entry] = cells.entries("--unfinished")
    monkeypatch.setenv("EOCTL_STATE_DIR", str(cells.folder / "state"))
    notice = unfinished_notice()
    assert notice is not None
    assert f"eoctl journal resume {entry['id']}" in notice
    shown = cells.run("journal", "resume", entry["id"])
    assert shown.returncode == 0
    assert "nothing was sent" in shown.stdout
    assert len(cells.entries("--unfinished")) == 1
    resumed = cells.run("journal", "resume", entry["id"], *ACT)
    assert resumed.returncode == 0, resumed.stderr
    assert cells.now == {"a": 5, "b": 7}
    assert cells.writes == ["a=5", "b=7"]
    assert unfinished_notice() is None
    refused = cells.run("journal", "resume", entry["id"], *ACT)
    assert refused.returncode == 4
    assert "it is done" in refused.stderr


@pytest.mark.parametrize("point", POINTS[2:-1])
def test_killed_anywhere_undo_puts_back(cells: Cells, point: str) -> None:
    cells.kill_at(point, *SET, *ACT)
    [entry] = cells.entries()
    undone = cells.run("journal", "undo", entry["id"], *ACT)
    assert undone.returncode == 0, undone.stderr
    assert cells.now == {"a": 1, "b": 2}
    first, second = cells.entries()
    assert (first["state"], second["state"]) == ("undone", "done")
    assert (first["undone_by"], second["undoes"]) == (second["id"], first["id"])


@pytest.mark.parametrize(
    "point", ["begun", "step-1-started", "step-1-performed", "step-2-done", "undone"]
)
def test_an_undo_killed_anywhere_is_resumed(cells: Cells, point: str) -> None:
    cells.kill_at("step-2-performed", *SET, *ACT)
    [entry] = cells.entries()
    cells.kill_at(point, "journal", "undo", entry["id"], *ACT)
    undo = cells.entries("--unfinished")[-1]
    assert undo["undoes"] == entry["id"]
    if point != "undone":
        refused = cells.run("journal", "resume", entry["id"], *ACT)
        assert refused.returncode == 4
        assert undo["id"] in refused.stderr
    ended = cells.run("journal", "resume", undo["id"], *ACT)
    assert ended.returncode == 0, ended.stderr
    assert cells.now == {"a": 1, "b": 2}
    assert [e["state"] for e in cells.entries()] == ["undone", "done"]
    assert cells.writes[2:] == ["a=1", "b=2"]


def test_what_a_step_changed_beyond_its_plan_is_told_and_kept(cells: Cells) -> None:
    """It is done, so nothing is resumed; and nobody calls it a success."""
    done = cells.run(*SET, *ACT, "-o", "json", CELL_TROUBLE="beyond:a")
    assert done.returncode == 6, done.stderr
    first, second = json.loads(done.stdout)["rows"][0]["steps"]
    assert (first["status"], second["status"]) == ("beyond-plan", "done")
    assert "NOT PLANNED: one cell more was written" in first["detail"]
    assert cells.now == {"a": 5, "b": 7}
    [entry] = cells.entries()
    assert entry["state"] == "done"
    kept = cells.run("journal", "show", entry["id"])
    assert "NOT PLANNED: one cell more was written" in " ".join(kept.stdout.split())


def test_the_journal_shows_times_plan_and_what_was_seen(cells: Cells) -> None:
    cells.run(*SET, *ACT)
    [entry] = cells.entries()
    listed = cells.run("journal", "list").stdout.splitlines()
    assert listed[1].split()[1] == f"{entry['started'][:19]}Z"
    shown = cells.run("journal", "show", entry["id"]).stdout.splitlines()
    assert shown[0].startswith(f"{entry['action'].upper()} on {entry['context']}")
    assert any(line.startswith(" what ") for line in shown)
    done = next(line for line in shown if " step-done " in line)
    target, seen = re.split("  +", done.strip())[-2:]
    assert seen != "-"
    assert not seen.startswith(f"{target}:")  # the name stands beside it
    assert any("every step was seen done once more" in line for line in shown)


def test_a_report_of_an_entry_and_of_a_journal(cells: Cells) -> None:
    cells.run(*SET, *ACT)
    [entry] = cells.entries()
    assert cells.run("journal", "undo", entry["id"], *ACT).returncode == 0
    undo = cells.entries()[1]["id"]
    for what in (entry["id"], undo, cells.environment()["EOCTL_STATE_DIR"]):
        made = cells.run("report", what)
        assert made.returncode == 0, made.stderr
        assert made.stdout.startswith("<!DOCTYPE html>")
        assert made.stdout.rstrip().endswith("</html>")
        for part in (entry["id"], undo, "undone by", "Before", "For the ticket"):
            assert part in made.stdout, (what, part)


def test_a_report_overwrites_nothing_and_says_what_it_takes(cells: Cells) -> None:
    cells.run(*SET, *ACT)
    [entry] = cells.entries()
    file = cells.folder / "page.html"
    assert cells.run("report", entry["id"], "--output", str(file)).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    again = cells.run("report", entry["id"], "--output", str(file))
    assert (again.returncode, file.read_bytes()) == (2, before)
    assert "exists already" in again.stderr
    for what, why in (
        ("nothing", "no bundle, state folder or journal entry 'nothing'"),
        ("j-20200101-000000-0000", "no journal entry"),
        (str(cells.folder), "holds no journal"),
        (str(cells.config), "not a bundle"),
    ):
        refused = cells.run("report", what)
        assert (refused.returncode, refused.stdout) == (2, ""), what
        assert why in refused.stderr
    words = ["-m", "eoctl", "report", entry["id"]]
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable, words, env=cells.environment(), encoding="utf-8", timeout=30
    )
    terminal.expect("an HTML page cannot be shown on a terminal; add --output")
    terminal.expect(pexpect.EOF)


def test_a_report_says_which_lines_of_the_journal_are_damaged(cells: Cells) -> None:
    cells.run(*SET, *ACT)
    state = Path(cells.environment()["EOCTL_STATE_DIR"])
    journal = state / "journal" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], b"{damaged}\n", *lines[2:]]))
    made = cells.run("report", str(state))
    assert made.returncode == 3
    assert "line 3 cannot be read" in made.stdout


def test_a_finished_change_is_undone_once(cells: Cells) -> None:
    cells.run(*SET, *ACT)
    [entry] = cells.entries()
    assert cells.run("journal", "undo", entry["id"], *ACT).returncode == 0
    again = cells.run("journal", "undo", entry["id"], *ACT)
    assert again.returncode == 4
    assert "it is undone" in again.stderr


def test_without_execute_nothing_is_sent_and_the_command_to_act_is_shown(cells: Cells) -> None:
    shown = cells.run(*SET, "--yes")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[-1].strip() == "eoctl set a=5 b=7 --yes --execute"
    assert cells.writes == []
    assert cells.entries() == []
    row = json.loads(cells.run(*SET, "-o", "json").stdout)["rows"][0]
    assert row["journal"] is None
    assert [step["status"] for step in row["steps"]] == [None, None]
    assert row["observed"] == {"a": {"value": 1}, "b": {"value": 2}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "not a terminal"),
        (("--yes", "--context", "looked-at"), "read-only"),
        (("--yes", "--context", "dear"), "--yes needs --plan-sha256"),
        (("--yes", "--plan-sha256", "00" * 32), "not 0000"),
        (("--yes", "--valid-ms", "0"), "expired"),
    ],
)
def test_what_is_not_permitted_sends_nothing(
    cells: Cells, words: tuple[str, ...], says: str
) -> None:
    refused = cells.run(*SET, "--execute", *words)
    assert refused.returncode == 4
    assert says in refused.stderr
    assert cells.writes == []
    assert not (cells.folder / "state" / "journal").exists()


def test_an_approved_hash_opens_a_protected_context(cells: Cells) -> None:
    shown = json.loads(cells.run(*SET, "--context", "dear", "-o", "json").stdout)["rows"][0]
    time.sleep(0.01)  # another creation time: the approved hash is of the change
    done = cells.run(*SET, "--context", "dear", *ACT, "--plan-sha256", shown["sha256"])
    assert done.returncode == 0, done.stderr
    assert cells.now == {"a": 5, "b": 7}


def test_a_right_that_only_the_second_step_needs_refuses_before_the_first(cells: Cells) -> None:
    refused = cells.run(*SET, *ACT, CELL_TROUBLE="ungranted:b")
    assert refused.returncode == 4
    assert "WRITE on b is not granted" in refused.stderr
    assert (cells.writes, cells.entries()) == ([], [])
    cells.kill_at("step-1-done", *SET, *ACT)
    refused = cells.run(*SET, *ACT, CELL_TROUBLE="ungranted:b")
    assert refused.returncode == 4
    assert "1 of 2 steps done, the entry stays unfinished; grant WRITE; then" in refused.stderr
    assert cells.writes == ["a=5"]
    assert cells.run(*SET, *ACT).returncode == 0
    assert cells.writes == ["a=5", "b=7"]


def test_another_cluster_is_refused(cells: Cells) -> None:
    refused = cells.run(*SET, *ACT, CELL_CLUSTER="cells-2")
    assert refused.returncode == 4
    assert "cells-1" in refused.stderr
    assert "cells-2" in refused.stderr
    assert cells.writes == []


def test_facts_that_changed_refuse_the_plan_and_are_named(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json")
    cells.file.write_text('{"a": 1, "b": 3}')
    refused = cells.run("apply", "plan.json", *ACT)
    assert refused.returncode == 4
    assert "b value: was 2 when planned, is 3 now" in refused.stderr
    assert cells.writes == []
    assert cells.entries() == []


def test_done_by_somebody_else_is_no_success(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json")
    cells.file.write_text('{"a": 5, "b": 7}')
    assert cells.run("apply", "plan.json", *ACT).returncode == 4


def test_an_edited_plan_file_is_refused(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json")
    file = cells.folder / "plan.json"
    file.write_text(file.read_text().replace('"value": 5', '"value": 6'))
    refused = cells.run("apply", "plan.json", *ACT)
    assert refused.returncode == 4
    assert "changed after it was made" in refused.stderr
    assert cells.writes == []


def test_an_expired_plan_that_was_begun_in_time_can_be_ended(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json", "--valid-ms", "4000")
    cells.kill_at("step-1-performed", "apply", "plan.json", *ACT)
    time.sleep(
        max(0.0, plan_files.read(cells.folder / "plan.json").expires_at / 1000 - time.time())
    )
    assert cells.run("apply", "plan.json", *ACT).returncode == 0
    assert cells.writes == ["a=5", "b=7"]


def test_a_lost_answer_is_found_done(cells: Cells) -> None:
    done = cells.run(*SET, *ACT, CELL_TROUBLE="lose:a")
    assert done.returncode == 0, done.stderr
    assert cells.writes == ["a=5", "b=7"]


def test_acted_but_not_seen_is_6_and_the_next_run_ends_it(cells: Cells) -> None:
    unseen = cells.run(*SET, *ACT, CELL_TROUBLE="ignore:b", CELL_SETTLE="0.3")
    assert unseen.returncode == 6
    [entry] = cells.entries("--unfinished")
    assert entry["id"] in unseen.stderr
    assert "b is 2" in unseen.stderr
    assert cells.run(*SET, *ACT).returncode == 0
    assert cells.now == {"a": 5, "b": 7}


def test_overwritten_after_it_was_done_is_6(cells: Cells) -> None:
    overwritten = cells.run(*SET, *ACT, CELL_TROUBLE="zombie:b")
    assert overwritten.returncode == 6
    assert "step 1 (a) was done and has changed since: a is 99" in overwritten.stderr
    assert cells.entries()[0]["state"] == "unfinished"


def test_acted_and_blind_is_6(cells: Cells) -> None:
    unseen = cells.run(*SET, *ACT, CELL_TROUBLE="blind:a", CELL_SETTLE="0.3")
    assert unseen.returncode == 6
    assert "cannot be read" in unseen.stderr
    assert cells.writes == ["a=5"]
    blind = cells.run(*SET, *ACT, CELL_TROUBLE="blind:a")
    assert blind.returncode == 3
    assert cells.writes == ["a=5"]


def test_a_refusal_of_the_cluster_closes_the_entry_when_nothing_happened(cells: Cells) -> None:
    refused = cells.run(*SET, *ACT, CELL_TROUBLE="refuse:a")
    assert refused.returncode == 4
    assert [entry["state"] for entry in cells.entries()] == ["failed"]
    half = cells.run(*SET, *ACT, CELL_TROUBLE="refuse:b")
    assert half.returncode == 4
    entry = cells.entries()[-1]["id"]
    assert f"{entry}: b: the file said no; 1 of 2 steps done" in half.stderr
    ways = (
        f"see `eoctl journal show {entry}`, then `eoctl journal resume {entry}` or "
        f"`eoctl journal undo {entry}`; where neither is possible, close it with "
        f"`eoctl journal resume {entry} --abandon --execute`"
    )
    assert f"1 of 2 steps done, the entry stays unfinished; {ways}" in half.stderr
    assert "ask the file" not in half.stderr, "no remedy of an entry that is begun"
    assert [entry["state"] for entry in cells.entries()] == ["failed", "unfinished"]
    other = cells.run("set", "b=9", *ACT)
    assert other.returncode == 4
    assert "is unfinished there: a becomes 5, b becomes 7" in other.stderr
    assert f"end that first: {ways}" in other.stderr
    assert cells.now == {"a": 5, "b": 2}


def test_a_right_that_a_later_step_lacks_comes_before_the_ways_out(cells: Cells) -> None:
    half = cells.run(*SET, *ACT, CELL_TROUBLE="deny:b")
    assert half.returncode == 4
    [entry] = cells.entries()
    says = (
        "b: no right; 1 of 2 steps done, the entry stays unfinished; grant WRITE on the file; then "
    )
    assert f"{says}see `eoctl journal show {entry['id']}`" in half.stderr


def test_killed_before_anything_was_sent_and_changed_since_proves_nothing_happened(
    cells: Cells,
) -> None:
    cells.run(*SET, "--out", "plan.json")
    cells.kill_at("step-1-started", "apply", "plan.json", *ACT)
    cells.file.write_text('{"a": 1, "b": 3}')
    refused = cells.run("apply", "plan.json", *ACT)
    assert refused.returncode == 4
    assert "b value: was 2 when planned, is 3 now" in refused.stderr
    assert "happened, it is closed" in refused.stderr
    assert [entry["state"] for entry in cells.entries()] == ["abandoned"]
    assert cells.writes == []


def test_what_may_have_been_sent_is_never_closed_as_if_nothing_happened(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json")
    cells.kill_at("step-1-started", "apply", "plan.json", *ACT)
    cells.file.write_text('{"a": 3, "b": 2}')  # instead of 1, or of the 5 that was sent?
    refused = cells.run("apply", "plan.json", *ACT)
    assert refused.returncode == 4
    assert "a value: was 1 when planned, is 3 now" in refused.stderr
    assert "some of it may have been" in refused.stderr
    assert [entry["state"] for entry in cells.entries()] == ["unfinished"]


def test_a_step_done_by_half_and_then_refused_can_be_undone(cells: Cells) -> None:
    half = cells.run("set", "a=5", *ACT, CELL_TROUBLE="half:a", CELL_SETTLE="0.3")
    assert half.returncode == 6
    assert cells.now == {"a": "half", "b": 2}
    [entry] = cells.entries("--unfinished")
    resumed = cells.run("journal", "resume", entry["id"], *ACT, CELL_TROUBLE="refuse:a")
    assert resumed.returncode == 4
    assert [e["state"] for e in cells.entries()] == ["unfinished"]
    undone = cells.run("journal", "undo", entry["id"], *ACT)
    assert undone.returncode == 0, undone.stderr
    assert cells.now == {"a": 1, "b": 2}


def test_half_done_and_changed_since_stays_unfinished_until_given_up(cells: Cells) -> None:
    cells.kill_at("step-1-done", *SET, *ACT)
    cells.file.write_text('{"a": 5, "b": 3}')
    [entry] = cells.entries()
    refused = cells.run("journal", "resume", entry["id"], *ACT)
    assert refused.returncode == 4
    assert "1 of 2 steps done" in refused.stderr
    cells.file.write_text('{"a": 9, "b": 2}')
    refused = cells.run("journal", "resume", entry["id"], *ACT)
    assert refused.returncode == 4
    assert "step 1 (a) was done and has changed since: a is 9" in refused.stderr
    assert cells.entries()[0]["state"] == "unfinished"
    assert cells.run("journal", "resume", entry["id"], "--abandon").returncode == 2
    assert cells.run("journal", "resume", entry["id"], "--abandon", "--execute").returncode == 0
    assert cells.entries()[0]["state"] == "abandoned"
    assert cells.writes == ["a=5"]


def test_independent_steps_fail_one_by_one(cells: Cells) -> None:
    cells.run("set", "a=5", "b=7", "c=9", "--independent", "--out", "plan.json")
    cells.file.write_text('{"a": 4, "b": 2}')
    apply = ("apply", "plan.json", *ACT, "-o", "json")
    done = cells.run(*apply, CELL_TROUBLE="ignore:c", CELL_SETTLE="0.3")
    assert done.returncode == 6
    steps = json.loads(done.stdout)["rows"][0]["steps"]
    assert [step["status"] for step in steps] == ["refused", "done", "unverified"]
    assert "a value: was 1 when planned, is 4 now" in steps[0]["detail"]
    again = cells.run(*apply)
    steps = json.loads(again.stdout)["rows"][0]["steps"]
    assert [step["status"] for step in steps] == ["refused", "already-done", "done"]
    assert again.returncode == 4
    assert cells.writes == ["b=7", "c=9"]
    assert cells.entries("--unfinished") == []


def test_of_all_or_none_no_step_begins_unless_all_may(cells: Cells) -> None:
    cells.run("set", "a=5", "b=7", "--all-or-none", "--out", "plan.json")
    cells.file.write_text('{"a": 1, "b": 3}')
    refused = cells.run("apply", "plan.json", *ACT)
    assert refused.returncode == 4
    assert "b value: was 2 when planned, is 3 now" in refused.stderr
    assert cells.writes == []


def test_of_all_or_none_the_rest_is_read_again_after_a_kill(cells: Cells) -> None:
    """Between the two runs somebody writes b, which the first run had still found as planned."""
    cells.run("set", "a=5", "b=7", "--all-or-none", "--out", "plan.json")
    cells.kill_at("step-1-done", "apply", "plan.json", *ACT)
    cells.file.write_text('{"a": 5, "b": 3}')
    again = cells.run("apply", "plan.json", *ACT, "-o", "json")
    steps = json.loads(again.stdout)["rows"][0]["steps"]
    assert [step["status"] for step in steps] == ["already-done", "refused"]
    assert again.returncode == 4
    assert cells.writes == ["a=5"]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 6), (signal.SIGTERM, 6), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_interrupted_while_acting_it_is_ended_by_the_next_run(
    cells: Cells, number: signal.Signals, status: int
) -> None:
    started = cells.start(*SET, *ACT, CELL_TROUBLE="wait:b")
    pid = started.pid
    wait_for((cells.folder / "cells.waiting").exists)
    assert [entry["state"] for entry in cells.entries()] == ["running"]
    other = cells.run("set", "a=6", *ACT)
    assert other.returncode == 4
    assert f"pid {pid}" in other.stderr
    same = cells.run(*SET, *ACT)
    assert same.returncode == 4
    assert f"pid {pid}" in same.stderr
    os.kill(pid, number)
    ran = started.end()
    assert ran.returncode == status, ran.stderr
    assert cells.entries()[0]["state"] == "unfinished"
    assert cells.run(*SET, *ACT).returncode == 0
    assert cells.writes == ["a=5", "b=7"]


def test_out_of_time_while_acting_is_6_and_names_the_entry(cells: Cells) -> None:
    late = cells.run(*SET, *ACT, "--timeout", "1s", CELL_TROUBLE="wait:b")
    assert late.returncode == 6
    assert cells.entries()[0]["id"] in late.stderr


def test_two_at_once_write_once(cells: Cells) -> None:
    cells.run(*SET, "--out", "plan.json")
    for started in [cells.start("apply", "plan.json", *ACT) for _ in range(3)]:
        ran = started.end()
        assert ran.returncode == 0, ran.stderr  # the later ones find it done
    assert cells.writes == ["a=5", "b=7"]
    assert [entry["state"] for entry in cells.entries()] == ["done"]


@pytest.mark.parametrize("break_", ["file in the way", "damaged line"])
def test_no_journal_no_change(cells: Cells, break_: str) -> None:
    journal = cells.folder / "state" / "journal"
    journal.parent.mkdir()
    if break_ == "file in the way":
        journal.write_text("")
    else:
        cells.run("set", "a=1", *ACT)
        cells.run("set", "a=1", *ACT)
        lines = (journal / "journal.jsonl").read_bytes().splitlines(keepends=True)
        (journal / "journal.jsonl").write_bytes(lines[0][:40] + b"X" + lines[0][41:] + lines[1])
    before = cells.writes
    refused = cells.run(*SET, *ACT)
    assert refused.returncode in (3, 4)
    assert str(journal) in refused.stderr
    assert cells.writes == before


def ask(
    cells: Cells, answers: str | list[str | None] | None, *words: str, pause: float = 0
) -> tuple[int, str]:
    """Exit status and screen of a run on a terminal, after these answers; None: Ctrl-C.

    pause: s before each answer.
    """
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "tests.unit.cell_change", *SET, "--execute", *words],
        env=cells.environment(PYTHONPATH=str(Path(__file__).parents[3]), TERM="dumb"),
        encoding="utf-8",
        dimensions=(24, 200),
        timeout=60,
    )
    screen = ""
    for answer in answers if isinstance(answers, list) else [answers]:
        terminal.expect("Type set-[0-9a-f]{4}[: ]")
        question = str(terminal.after)
        screen += f"{terminal.before}{question}"
        word = question.split()[-1].rstrip(":")
        time.sleep(pause)
        if answer is None:
            terminal.sendintr()
        elif answer == "EOF":
            terminal.sendeof()
        else:
            terminal.sendline(answer.replace("WORD", word))
    terminal.expect(pexpect.EOF)
    screen += terminal.before or ""
    terminal.close()
    assert terminal.exitstatus is not None
    return terminal.exitstatus, screen


def test_the_question_on_a_terminal(cells: Cells) -> None:
    status, screen = ask(cells, "WORD")
    assert "SET on cells (cluster cells-1): a becomes 5, b becomes 7. Type set-" in screen
    assert status == 0
    assert cells.now == {"a": 5, "b": 7}


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([""], 4),
        (["EOF"], 4),
        ([None], 130),
        (["y", "yes", "set-0000x"], 4),
        (["WORD2", ""], 4),
        (["y", "EOF"], 4),
        (["y", "y", None], 130),
    ],
)
def test_any_other_answer_is_no(cells: Cells, answers: list[str | None], status: int) -> None:
    assert ask(cells, answers)[0] == status
    assert cells.writes == []
    assert cells.entries() == []


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_wrong_word_is_asked_again_on_the_same_plan(cells: Cells, wrong: int) -> None:
    status, screen = ask(cells, [*["se-12"] * wrong, "WORD"])
    assert status == 0
    assert cells.writes == ["a=5", "b=7"]
    assert screen.count("SET on cells (cluster") == 2, "shown once, asked once in full"
    assert "Not confirmed, nothing was sent." in screen
    assert f"({'2 more tries' if wrong == 1 else '1 more try'}" in screen


def test_no_word_is_asked_again_once_the_plan_has_expired(cells: Cells) -> None:
    status, screen = ask(cells, ["wrong"], "--valid-ms", "1500", pause=2)
    assert status == 4
    assert "expired" in screen
    assert "more tries" not in screen
    assert cells.writes == []


def test_a_protected_context_can_be_asked(cells: Cells) -> None:
    assert ask(cells, "WORD", "--context", "dear")[0] == 0
    assert cells.writes == ["a=5", "b=7"]


def test_a_kind_that_this_version_does_not_know_is_told() -> None:
    with pytest.raises(UsageError, match="does not carry out plans of kind 'state-sink'"):
        kind_module("state-sink")
    assert set(KINDS) >= {"txn-abort", "txn-fence", "txn-resolve", "txn-many", "restart"}


@pytest.mark.parametrize("door", ["eoctl.cli.dialog.acting", "eoctl.cli.commands.remedy"])
def test_every_door_knows_every_kind(door: str) -> None:
    """In a process of its own: a door that forgets to register them refuses every plan."""
    code = (
        f"import {door}; from eoctl.operations.change.acting import KINDS, kind_module; "
        "print(*sorted(k for k in KINDS if hasattr(kind_module(k), 'opened')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(k for k in KINDS if not k.startswith("test-"))


def test_each_step_of_many_is_looked_at_right_before_it_is_sent(cells: Cells) -> None:
    """While b is written somebody writes a, which the plan stands on."""
    cells.run("set", "b=7", "a=5", "--independent", "--out", "plan.json")
    done = cells.run("apply", "plan.json", *ACT, "-o", "json", CELL_TROUBLE="zombie:b")
    steps = {s["target"]: s for s in json.loads(done.stdout)["rows"][0]["steps"]}
    assert {name: step["status"] for name, step in steps.items()} == {"b": "done", "a": "refused"}
    assert "a value: was 1 when planned, is 99 now" in steps["a"]["detail"]
    assert "a=5" not in cells.writes
