"""`make trust`: the scorecard. Each line of lines.toml runs its tests and prints what they tried.

A line ends within SECONDS, with the small counts of `make test`; `--long` runs the full counts
without that bound and writes docs/trust.md. Counts are of this run: how many tests passed, and
what these say of themselves (`tests.conftest.Tried`), such as `commands: 71`.

    make trust                 # all lines
    make trust LINE=9          # one of them
    make trust-long            # full counts, for hours; writes docs/trust.md

Exit status 1: a line failed, was not done in time, or tried nothing.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trust.md"
SECONDS, LONG_SECONDS, TO_END = 45.0, 3600.0, 20.0
SHARE = "0.02"
HEAD = """\
# What was tried

Made by `make trust-long`, {when}, at {commit}. Every figure is of that run. `make trust` repeats
all lines with small counts, at most 45 seconds each, and `make trust LINE=N` one of them.

| line | what is held to | tried | found | seconds |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Outcome:
    """One line as it ran. tried: what → how often; wrong: names of tests that failed."""

    number: str
    title: str
    tried: Mapping[str, int]
    wrong: Sequence[str]
    seconds: float
    ended: bool

    @property
    def good(self) -> bool:
        return self.ended and not self.wrong and self.tried.get("tests", 0) > 0

    @property
    def found(self) -> str:
        if not self.ended:
            return f"not done in {self.seconds:.0f} s"
        return ", ".join(self.wrong) if self.wrong else "nothing" if self.good else "NOTHING TRIED"

    @property
    def cells(self) -> tuple[str, ...]:
        tried = ", ".join(f"{count:,} {what}" for what, count in self.tried.items())
        return self.number, self.title, tried, self.found, f"{self.seconds:.0f}"


def run(number: str, line: Mapping[str, object], long: bool) -> Outcome:
    """Run the tests of one line in a process of their own; read what they tried."""
    bound = LONG_SECONDS if long else SECONDS
    tests = [f"tests/{test}" for test in line["tests"]]  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-p", "no:xdist", f"--junitxml={report}"]
        words += ["-o", "junit_family=xunit1"]  # the newer one has no place for what was tried
        words += ["-m", "not tools" if long else "not tools and not long"]
        env = os.environ | {"EOCTL_TEST_SHARE": "1.0" if long else SHARE}
        begun = time.monotonic()
        with (Path(folder) / "out").open("w") as out:
            tried = subprocess.Popen(
                [*words, *tests], cwd=ROOT, env=env, stdout=out, stderr=out, process_group=0
            )
            ended = _wait(tried, bound)
        seconds = time.monotonic() - begun
        counts, wrong = _read(report) if report.exists() else (Counter[str](), ["no report"])
    return Outcome(number, str(line["title"]), counts, wrong, seconds, ended)


def _wait(process: subprocess.Popen[bytes], bound: float) -> bool:
    """Wait for its end; after `bound` seconds let it take down what it has started."""
    try:
        process.wait(bound)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TO_END)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
        return False
    return True


def _read(report: Path) -> tuple[Counter[str], list[str]]:
    """What passed and what the tests say they tried; the names of those that did not pass."""
    tried, wrong = Counter[str](tests=0), list[str]()
    for case in ET.parse(report).iter("testcase"):
        name = str(case.get("name"))
        if case.find("failure") is not None or case.find("error") is not None:
            wrong.append(name)
        elif case.find("skipped") is None:
            tried["tests"] += 1
        for told in case.iter("property"):
            tried[str(told.get("name"))] += int(str(told.get("value")))
    return tried, wrong


def main() -> int:
    """Run the lines that are asked for, print them, and with --long write the page."""
    parser = argparse.ArgumentParser(prog="make trust", description=__doc__)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--line", action="append", help="only this one")
    asked = parser.parse_args()
    lines = tomllib.loads(Path(__file__).with_name("lines.toml").read_text())
    if unknown := set(asked.line or ()) - set(lines):
        parser.error(f"no line {', '.join(sorted(unknown))}; there are {', '.join(lines)}")
    outcomes = []
    for number in asked.line or lines:
        if lines[number].get("long") and not asked.long:
            print(f"{number:>2}  {lines[number]['title']}\n    only in make trust-long", flush=True)
            continue
        outcome = run(number, lines[number], asked.long)
        outcomes.append(outcome)
        print("{:>2}  {}\n    {}; found: {}; {} s".format(*outcome.cells), flush=True)
    if asked.long and not asked.line:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    good = sum(outcome.good for outcome in outcomes)
    print(f"{good} of {len(outcomes)} lines good")
    return 0 if good == len(outcomes) else 1


def page(outcomes: Sequence[Outcome]) -> str:
    """The page of a run, in Markdown."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    rows = [f"| {' | '.join(outcome.cells)} |" for outcome in outcomes]
    return HEAD.format(when=when, commit=commit.strip()) + "\n".join([*rows, ""])


if __name__ == "__main__":
    sys.exit(main())
