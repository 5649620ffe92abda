"""Where a test run's time goes, and which tests needed a second try.

`--durations-file FILE` writes the seconds per folder, per file and per test; `make test` does so.
`--tried-file FILE` writes when the tests passed that docs/compatibility.md stands on.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from docs import works_with
from tests.docs.pages import counted

PHASES = ("setup", "call", "teardown")


class Timing:
    """Adds up the reports of a run, also those that its workers send."""

    def __init__(self, file: Path | None, tried: Path | None = None) -> None:
        self._file = file
        self._tried = tried
        self._passed: dict[str, bool] = {}
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
        self._again: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A second try's seconds count too; a first try's failure is kept in one line."""
        name = report.nodeid
        self._seconds[name][report.when or "call"] += report.duration
        if report.failed or (report.when == "call" and report.passed):
            self._passed[name] = report.passed and self._passed.get(name, True)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # pytest-rerunfailures'
            crash = getattr(report.longrepr, "reprcrash", None)
            said = str(crash.message if crash else report.longrepr).strip()
            self._again[name] = said.splitlines()[0] if said else ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tests that needed a second try, by name, and their number even if it is 0."""
        if not self._seconds:
            return
        count = len(self._again)
        if count:
            terminalreporter.section("second tries")
        for name, said in sorted(self._again.items()):
            terminalreporter.write_line(f"{name}: {said}")
        terminalreporter.write_line(f"{count} test{'' if count == 1 else 's'} needed a second try")
        if any(name.startswith("tests/docs/") for name in self._seconds):
            terminalreporter.write_line(counted())
        if self._tried is not None:
            passed, failed = (
                [n for n, ok in self._passed.items() if ok is kind] for kind in (True, False)
            )
            works_with.keep(passed, failed, f"{datetime.now(UTC):%Y-%m-%d}", self._tried)
            terminalreporter.write_line(f"{self._tried} is written; `make figures` writes its page")
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text("".join(f"{line}\n" for line in self._lines()))
            terminalreporter.write_line(f"seconds per test: {self._file}")

    def _lines(self) -> Iterable[str]:
        """The slowest first: folders, files, tests with setup, call and teardown."""
        total = {name: sum(phases.values()) for name, phases in self._seconds.items()}
        for depth, title in ((2, "folder"), (3, "file")):
            sums: dict[str, float] = defaultdict(float)
            for name, seconds in total.items():
                sums["/".join(name.partition("::")[0].split("/")[:depth])] += seconds
            yield f"# seconds per {title}"
            yield from (f"{s:9.2f} {n}" for n, s in _slowest_first(sums))
        yield "# seconds per test: all, setup, call, teardown"
        for name, seconds in _slowest_first(total):
            phases = " ".join(f"{self._seconds[name][phase]:8.2f}" for phase in PHASES)
            yield f"{seconds:9.2f} {phases} {name}"


def _slowest_first(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda one: -one[1])
