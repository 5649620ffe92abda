"""The scorecard of `make trust`: only what passed counts; what tried nothing is said."""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
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
    assert report.none == []
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


def test_a_part_is_not_called_changed_by_the_page_that_a_part_before_it_wrote(
    tmp_path: Path,
) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    page = tmp_path / trust.PAGE.relative_to(ROOT)
    page.parent.mkdir()
    page.write_text("| 1 |")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = trust.commit_of(tmp_path)
    page.write_text("| 1 |\n| 2 |")
    assert trust.commit_of(tmp_path) == clean
    (page.parent / "other.md").write_text("changed")
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
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


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scorecard_leaves_no_process(number: int, times: int) -> None:
    """Of a line whose tests do not end by SIGINT, and have a child; nor a second interrupt."""
    script = f"""
import signal, subprocess
from tests.trust import __main__ as trust
trust.TO_END = {0.5 if times == 1 else 40}
signal.signal(signal.SIGTERM, trust._terminated)
words = ["/bin/sh", "-c", "trap echo INT; echo; for n in $(seq 300); do sleep 0.1; done"]
line = subprocess.Popen(words, process_group=0)
print(flush=True)
trust._wait(line, 60)
"""
    quiet = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    words = [sys.executable, "-c", script]
    with started(words, start_new_session=True, **quiet) as process:
        assert process.stdout is not None
        for lines in (2, 1)[:times]:  # both run; the line has been interrupted
            assert [process.stdout.readline() for _ in range(lines)] == [b"\n"] * lines
            time.sleep(0.2)  # until it waits
            process.send_signal(number)
        assert process.wait(20) in (-signal.SIGINT, 128 + signal.SIGTERM)
        end = time.monotonic() + 5  # what is killed is there for a moment
        while left_of(process.pid) and time.monotonic() < end:
            time.sleep(0.05)
        assert left_of(process.pid) == []


def test_something(tried: Tried) -> None:
    tried("things", 3)
    tried("faults that were met", True)


@pytest.mark.parametrize("met", [False])
def test_nothing(tried: Tried, met: bool) -> None:
    tried("faults that were met", met)


@pytest.mark.parametrize("met", [False, True])
def test_once(tried: Tried, met: bool) -> None:
    tried("faults that were met", met)


def test_a_line_has_the_counts_of_its_tests() -> None:
    line = {"title": "a line", "tests": ["unit/house/test_trust.py::test_something"]}
    made = trust.run("0", line, long=False)
    assert made.good, made.found
    assert made.tried == {"tests": 1, "things": 3, "faults that were met": 1}


def test_a_line_whose_faults_were_never_met_tried_nothing() -> None:
    """Those that other tests of the line met do not stand for them."""
    here = "unit/house/test_trust.py"
    tests = [f"{here}::{name}" for name in ("test_something", "test_nothing", "test_once")]
    made = trust.run("0", {"title": "a line", "tests": tests}, long=False)
    assert made.found == "NOTHING TRIED: faults that were met (test_nothing)"


@pytest.mark.parametrize(
    ("seconds", "long", "said", "status"),
    [
        (600, False, "2 of 2 lines good, in 1,200 s", 0),
        (601, False, "2 of 2 lines good, in 1,202 s: more than 1,200 s", 1),
        (3000, True, "2 of 2 lines good, in 6,000 s", 0),
    ],
)
def test_all_lines_are_done_in_twenty_minutes(
    seconds: float, long: bool, said: str, status: int
) -> None:
    one = replace(outcome("1", "one"), seconds=seconds)
    assert trust.summary([one, one], long) == (said, status)


def test_a_line_that_is_not_good_is_counted() -> None:
    one = outcome("1", "one")
    said = "1 of 2 lines good, in 6 s"
    assert trust.summary([one, replace(one, wrong=["test_bad"])], False) == (said, 1)


LINES = tomllib.loads((ROOT / "tests/trust/lines.toml").read_text())
SHORT = {entry for line in LINES.values() for entry in line["tests"]}
NAMED = {entry for line in LINES.values() for entry in line.get("long_tests", ())} | SHORT
# the others say what a change sends, what a bundle tells, what executors lack, what jobs do
ONE_OF_THEM = {
    *("kafka/test_bundle.py", "kafka/test_what_is_sent.py", "unit/spark/test_spark_job.py"),
    *("spark/test_executors.py", "spark/test_rebuild.py"),
}


@pytest.mark.parametrize(
    "file", sorted({file for file, test, _ in (e.partition("::") for e in NAMED) if test} - NAMED)
)
def test_of_a_file_that_is_named_by_its_tests_none_is_left_out(file: str) -> None:
    tests = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / "tests" / file).read_text(), re.M)
    assert tests
    missing = [test for test in tests if f"{file}::{test}" not in NAMED]
    assert missing == [] or file in ONE_OF_THEM


def test_no_entry_of_the_short_scorecard_is_only_tried_by_the_long_one() -> None:
    show = [*trust.PYTEST, "--collect-only", "-m", trust.SHORT]
    words = [*show, *(f"tests/{entry}" for entry in sorted(SHORT))]
    env = os.environ | {"EOCTL_TEST_SHARE": trust.SHARE}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = {line.partition("[")[0].removeprefix("tests/") for line in done.stdout.splitlines()}
    found = tests | {test.partition("::")[0] for test in tests}
    assert sorted(SHORT - found) == []
