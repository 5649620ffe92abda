"""The scorecard of `make trust`: only what passed counts; what tried nothing is said."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from release.parts import ROOT
from tests.conftest import Tried
from tests.started import left_of, started
from tests.trust import __main__ as trust

REPORT = """<testsuites><testsuite>
<testcase classname="tests.kafka.test_a" name="test_good[1]"><properties>
  <property name="commands" value="5"/></properties></testcase>
<testcase classname="tests.kafka.test_a" name="test_bad"><properties>
  <property name="commands" value="10"/></properties><failure message="no"/></testcase>
<testcase classname="tests.kafka.test_b" name="test_away"><properties>
  <property name="commands" value="7"/></properties><skipped message="no registry"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path: Path) -> trust.Report:
    (tmp_path / "report.xml").write_text(REPORT)
    return trust.read(tmp_path / "report.xml")


def test_only_what_passed_counts(report: trust.Report) -> None:
    assert report.tried == {"tests": 1, "commands": 5}
    assert report.wrong == ["test_bad"]
    assert report.not_run == ["test_away"]


def test_an_entry_whose_tests_were_left_out_tried_nothing(report: trust.Report) -> None:
    assert report.has_passed("kafka/test_a.py")
    assert report.has_passed("kafka/test_a.py::test_good")
    assert not report.has_passed("kafka/test_a.py::test_goo")
    assert not report.has_passed("kafka/test_b.py")
    assert not report.has_passed("kafka/test_c.py")


def test_a_line_that_collects_nothing_is_named() -> None:
    """Whose only test `make trust-long` alone runs."""
    found = trust.run("1", {"title": "none", "tests": ["kafka/test_versions.py"]}, long=False)
    assert not found.good
    assert found.found == "NOTHING TRIED: kafka/test_versions.py"


def test_no_test_has_a_second_try() -> None:
    """The mark that gives one to tests with brokers would hide what failed once."""
    show = [*trust.PYTEST, "--collect-only", "-m", "", "tests/kafka/test_soak.py"]
    done = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "second try" not in done.stdout
    marks = [*trust.PYTEST, "--markers"]
    assert "flaky" not in subprocess.run(marks, cwd=ROOT, capture_output=True, text=True).stdout
    assert trust.PYTEST[0] == sys.executable


def test_a_tree_with_changes_is_named(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = trust.commit_of(tmp_path)
    (tmp_path / "file").write_text("one")
    subprocess.run([*git, "add", "file"], cwd=tmp_path, check=True)
    assert trust.commit_of(tmp_path) == f"{clean} with uncommitted changes"


def outcome(number: str, title: str) -> trust.Outcome:
    return trust.Outcome(number, title, {"tests": 2}, (), ("test_away",), 3.2, True)


def test_a_part_writes_its_own_row_and_keeps_the_others() -> None:
    lines = {"1": {"title": "one"}, "2": {"title": "two"}, "10": {"title": "ten"}}
    page = trust.page("", outcome("10", "ten"), "abc", lines)
    page = trust.page(page, outcome("2", "two"), "abc", lines)
    [two, ten] = page.removeprefix(trust.HEAD).splitlines()
    assert re.fullmatch(
        r"\| 2 \| two \| 2 tests \| nothing \| test_away \| 3 "
        r"\| \d{4}-\d\d-\d\d, abc \| `make trust-long LINE=2` \|",
        two,
    )
    assert ten.startswith("| 10 | ten |")
    again = trust.page(page, outcome("10", "ten"), "def", lines)
    assert again == page.replace(ten, ten.replace("abc", "def"))
    assert "| ten |" not in trust.page(
        page, outcome("2", "two"), "x", lines | {"10": {"title": "?"}}
    )


def test_each_row_of_the_page_has_as_many_cells_as_its_head() -> None:
    page = trust.page("", outcome("1", "one"), "abc", {"1": {"title": "one"}})
    assert {row.count("|") for row in page.splitlines() if row.startswith("|")} == {9}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scorecard_leaves_no_process(number: int) -> None:
    """Of a line whose tests do not end by SIGINT, and have a child."""
    script = """
import signal, subprocess
from tests.trust import __main__ as trust
trust.TO_END = 0.5
signal.signal(signal.SIGTERM, trust._terminated)
words = ["/bin/sh", "-c", "trap '' INT; echo; sleep 60; sleep 60"]
trust._wait(subprocess.Popen(words, process_group=0), 60)
"""
    quiet = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    words = [sys.executable, "-c", script]
    with started(words, start_new_session=True, **quiet) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) in (-signal.SIGINT, 128 + signal.SIGTERM)
        assert left_of(process.pid) == []


def test_something(tried: Tried) -> None:
    tried("things", 3)
    tried("faults that were met", True)


def test_nothing(tried: Tried) -> None:
    tried("faults that were met", False)


def test_a_line_has_the_counts_of_its_tests() -> None:
    line = {"title": "a line", "tests": ["unit/house/test_trust.py::test_something"]}
    made = trust.run("0", line, long=False)
    assert made.good, made.found
    assert made.tried == {"tests": 1, "things": 3, "faults that were met": 1}


def test_a_line_whose_faults_were_never_met_tried_nothing() -> None:
    line = {"title": "a line", "tests": ["unit/house/test_trust.py::test_nothing"]}
    made = trust.run("0", line, long=False)
    assert made.found == "NOTHING TRIED: faults that were met"
