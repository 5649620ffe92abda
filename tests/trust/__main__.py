"""`make trust`: the scorecard. Each line of lines.toml runs its tests and prints what they tried.

A line ends within SECONDS, or the bound that it names, with the small counts of `make test`.
`--long` runs the full counts, at most an hour a line, and writes each line's row of docs/trust.md
as it ends. Counts are of this run: how many tests passed, and what these say of themselves
(`tests.conftest.Tried`), such as `commands: 71`. There is no second try: a test that fails once is
found.

    make trust                     # all lines
    make trust LINE=9              # one of them
    make trust-long                # full counts, for hours; writes docs/trust.md
    make trust-long LINE="9 12"    # a part: the rows of the other lines stay as they are

Exit status 1: a line failed, was not done in time, an entry or a test of it tried nothing, or all
lines together took more than ALL_SECONDS.
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
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree as ET

from release.parts import ROOT
from release.supply import NotInstalledError, tool

PAGE = ROOT / "docs" / "trust.md"
SECONDS, LONG_SECONDS, ALL_SECONDS, TO_END = 45.0, 3600.0, 1200.0, 20.0
SHARE = "0.02"
# no second try; and the newer form of the report has no place for what was tried
PYTEST = (
    *(sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:rerunfailures"),
    *("-o", "junit_family=xunit1"),
)
LONG, SHORT = "not tools", "not tools and not long"
HEAD = """\
# What was tried

Made by `make trust-long`. Every figure of a line is of the run that its row names. `make trust`
repeats all lines with small counts, within 20 minutes, and `make trust LINE=N` one of them.

| line | what is held to | tried | found | not run | seconds | run | again |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Outcome:
    """One line as it ran. tried: what → how often; wrong: what failed or tried nothing."""

    number: str
    title: str
    tried: Mapping[str, int]
    wrong: Sequence[str]
    not_run: Sequence[str]
    seconds: float
    ended: bool

    @property
    def good(self) -> bool:
        return self.ended and not self.wrong

    @property
    def found(self) -> str:
        late = () if self.ended else (f"not done in {self.seconds:.0f} s",)
        return ", ".join((*late, *self.wrong)) or "nothing"

    @property
    def cells(self) -> tuple[str, ...]:
        tried = ", ".join(f"{count:,} {what}" for what, count in self.tried.items())
        not_run = ", ".join(self.not_run) or "–"
        return self.number, self.title, tried, self.found, not_run, f"{self.seconds:.0f}"


@dataclass
class Report:
    """What the report of a line's tests says. passed: (class, test); wrong, not_run: of tests.

    counts: (test without its parameters, what it tried) → how often, of those that passed.
    """

    passed: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def tried(self) -> Counter[str]:
        """What → how often, by all tests of the line."""
        tried = Counter(tests=len(self.passed))
        for (_, what), count in self.counts.items():
            tried[what] += count
        return tried

    @property
    def none(self) -> list[str]:
        """What a test says that it tried, and did not once, whatever others tried."""
        return [f"{what} ({test})" for (test, what), count in self.counts.items() if not count]

    def has_passed(self, entry: str) -> bool:
        """Return whether a test of an entry of lines.toml, FILE or FILE::TEST, has passed."""
        file, _, test = entry.partition("::")
        where = "tests." + file.removesuffix(".py").replace("/", ".")
        return any(
            of == where and (not test or name.partition("[")[0] == test) for of, name in self.passed
        )


def run(number: str, line: Mapping[str, Any], long: bool) -> Outcome:
    """Run the tests of one line in a process of their own; read what they tried."""
    entries = [*line.get("tests", ()), *(line.get("long_tests", ()) if long else ())]
    bound = LONG_SECONDS if long else line.get("seconds", SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        begun = time.monotonic()
        with (Path(folder) / "out").open("w") as out:
            tried = subprocess.Popen(
                [*PYTEST, f"--junitxml={report}", "-m", LONG if long else SHORT]
                + [f"tests/{entry}" for entry in entries],
                cwd=ROOT,
                env=os.environ | {"EOCTL_TEST_SHARE": "1.0" if long else SHARE},
                stdout=out,
                stderr=out,
                process_group=0,
            )
            ended = _wait(tried, bound)
        seconds = time.monotonic() - begun
        told = read(report) if report.exists() else Report(wrong=["no report"])
    empty = [f"NOTHING TRIED: {entry}" for entry in entries if not told.has_passed(entry)]
    empty += [f"NOTHING TRIED: {what}" for what in told.none]
    wrong = told.wrong or (empty if ended else [])
    return Outcome(number, line["title"], told.tried, wrong, told.not_run, seconds, ended)


def _wait(process: subprocess.Popen[bytes], bound: float) -> bool:
    """Wait for its end. After `bound` seconds, and if this process is interrupted, end it.

    Its tests may take down what they have started; an interrupt meanwhile ends this as well.
    """
    try:
        try:
            process.wait(bound)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(TO_END)
            raise
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return True


def _terminated(number: int, frame: object) -> NoReturn:
    """End as after Ctrl-C, with SIGTERM's exit status."""
    sys.exit(128 + number)


def read(path: Path) -> Report:
    """Return what a JUnit report says of each test; only those that passed count."""
    report = Report()
    for case in ET.parse(path).iter("testcase"):
        name = str(case.get("name"))
        if case.find("failure") is not None or case.find("error") is not None:
            report.wrong.append(name)
        elif case.find("skipped") is not None:
            report.not_run.append(name)
        else:
            report.passed.append((str(case.get("classname")), name))
            test = name.partition("[")[0]
            for told in case.iter("property"):
                report.counts[test, str(told.get("name"))] += int(str(told.get("value")))
    return report


def main() -> int:
    """Run the lines that are asked for, print them, and with --long write the page."""
    parser = argparse.ArgumentParser(prog="make trust", description=__doc__)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--line", action="append", help="only this one")
    asked = parser.parse_args()
    lines = tomllib.loads(Path(__file__).with_name("lines.toml").read_text())
    if unknown := set(asked.line or ()) - set(lines):
        parser.error(f"no line {', '.join(sorted(unknown))}; there are {', '.join(lines)}")
    signal.signal(signal.SIGTERM, _terminated)
    with suppress(NotInstalledError):  # a test that needs them says so
        tool("python")  # else the first such line waits for a registry
    outcomes, commit = [], commit_of(ROOT)  # before a test changes a file
    for number in asked.line or lines:
        outcome = run(number, lines[number], asked.long)
        outcomes.append(outcome)
        print("{:>2}  {}\n    {}; found: {}; not run: {}; {} s".format(*outcome.cells), flush=True)
        if asked.long:
            before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
            PAGE.write_text(page(before, outcome, commit, lines), encoding="utf-8")
    said, status = summary(outcomes, asked.long)
    print(said)
    return status


def summary(outcomes: Sequence[Outcome], long: bool) -> tuple[str, int]:
    """Return the last line that is printed, and the exit status."""
    good, seconds = sum(one.good for one in outcomes), sum(one.seconds for one in outcomes)
    late = not long and seconds > ALL_SECONDS
    said = f"{good} of {len(outcomes)} lines good, in {seconds:,.0f} s"
    said += f": more than {ALL_SECONDS:,.0f} s" if late else ""
    return said, 1 if late or good < len(outcomes) else 0


def page(before: str, outcome: Outcome, commit: str, lines: Mapping[str, Any]) -> str:
    """Return the page with the row of a line that has ended, and the other rows of the page before.

    A row is left out if lines.toml has no such line any more, or another one of that number.
    """
    run = f"{datetime.now(UTC):%Y-%m-%d}, {commit}"
    again = f"`make trust-long LINE={outcome.number}`"
    mine = f"| {' | '.join((*outcome.cells, run, again))} |"
    rows = []
    for number, line in lines.items():
        begin = f"| {number} | {line['title']} |"
        kept = [row for row in before.splitlines() if row.startswith(begin)]
        rows += [mine] if number == outcome.number else kept
    return HEAD + "\n".join([*rows, ""])


def commit_of(root: Path) -> str:
    """Return the commit of HEAD, and whether there are uncommitted changes but of PAGE.

    The page is changed by each line: a part that runs after another would call itself changed.
    """
    named = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    mine = f":!{PAGE.relative_to(ROOT)}"
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", mine], cwd=root)
    return named.stdout.strip() + (" with uncommitted changes" if changed.returncode else "")


if __name__ == "__main__":
    sys.exit(main())
