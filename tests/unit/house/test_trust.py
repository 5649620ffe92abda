"""The scorecard of `make trust`: only what passed counts; what tried nothing is said."""

import subprocess
import sys
from pathlib import Path

import pytest

from release.parts import ROOT
from tests.conftest import Tried
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
    found = trust.run("1", {"title": "none", "tests": ["kafka/test_soak.py"]}, long=False)
    assert not found.good
    assert found.found == "NOTHING TRIED: kafka/test_soak.py"


def test_no_test_has_a_second_try() -> None:
    """The mark that gives one to tests with brokers would hide what failed once."""
    show = [*trust.PYTEST, "--collect-only", "-m", "", "tests/kafka/test_soak.py"]
    done = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "second try" not in done.stdout
    marks = [*trust.PYTEST, "--markers"]
    assert "flaky" not in subprocess.run(marks, cwd=ROOT, capture_output=True, text=True).stdout
    assert trust.PYTEST[0] == sys.executable


def test_a_page_names_a_tree_with_changes_and_each_lines_command(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = trust.commit_of(tmp_path)
    (tmp_path / "file").write_text("one")
    subprocess.run([*git, "add", "file"], cwd=tmp_path, check=True)
    assert trust.commit_of(tmp_path) == f"{clean} with uncommitted changes"
    outcome = trust.Outcome("9", "rights", {"tests": 2}, (), ("test_away",), 3.2, True)
    assert (
        "| 9 | rights | 2 tests | nothing | test_away | 3 | `make trust-long LINE=9` |"
        in trust.page([outcome], clean)
    )


def test_something(tried: Tried) -> None:
    tried("things", 3)


def test_a_line_has_the_counts_of_its_tests() -> None:
    line = {"title": "a line", "tests": ["unit/house/test_trust.py::test_something"]}
    made = trust.run("0", line, long=False)
    assert made.good, made.found
    assert made.tried == {"tests": 1, "things": 3}
