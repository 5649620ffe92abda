"""Checks that need programs of Debian's packages: `make test-tools`, no part of `make test`.

A test asks for its program by the fixture `program`; where that is missing the test is printed as
NOT RUN, with what would bring it. Nothing is installed here.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kafka.conftest import lab1 as lab1
from tests.kafka.conftest import lab_state as lab_state
from tests.kafka.conftest import topic as topic

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "chromium": "chromium",
    "man": "man-db",
    "mandb": "man-db",
    "systemd-analyze": "systemd",
    "debootstrap": "debootstrap",
    "lintian": "lintian",
    "tmux": "tmux",
}
"""Program → the Debian package that brings it."""
NOT_RUN = "NOT RUN: "

Program = Callable[[str], str]
Run = Callable[[Sequence[object]], str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder: `make test` leaves it out."""
    for item in items:
        if item.nodeid.startswith("tests/tools/"):
            item.add_marker("tools")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which checks ran, and which did not, a line each."""
    for report in terminalreporter.stats.get("passed", []):
        if "/tools/" in report.nodeid:
            terminalreporter.write_line(f"ran      {_name(report.nodeid)}")
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].partition(NOT_RUN)[2]
        terminalreporter.write_line(f"NOT RUN  {_name(report.nodeid)}: {reason}")


def _name(nodeid: str) -> str:
    return nodeid.rpartition("/")[2].replace(".py::test_", ": ").removeprefix("test_")


def built(module: str, *options: str) -> None:
    """Build what is shipped; with EOCTL_TEST_BUILT=1 what is in dist/ is tried as it is."""
    if "EOCTL_TEST_BUILT" not in os.environ:
        subprocess.run([sys.executable, "-m", module, *options], check=True, timeout=3000)


@pytest.fixture
def program() -> Program:
    """program(NAME): its path; the test is not run where it is missing."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{NOT_RUN}no {name} here; apt-get install {PACKAGES[name]}")
        return path

    return find


@pytest.fixture
def run() -> Run:
    """run(WORDS): what a program that succeeded printed, stdout and stderr."""

    def call(words: Sequence[object]) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


@pytest.fixture
def page(program: Program, run: Run, tmp_path: Path) -> Callable[..., str]:
    """page(URL, *OPTIONS): the document as a browser has it once it is loaded and its scripts ran.

    With `--screenshot=FILE` or `--print-to-pdf=FILE` among the browser's options: what it printed.
    """
    browser = program("chromium")

    def load(url: str, *options: str) -> str:
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        written = any(o.startswith(("--screenshot=", "--print-to-pdf=")) for o in options)
        options = options if written else (*options, "--dump-dom")
        return run([*words, f"--user-data-dir={tmp_path / 'browser'}", *options, url])

    return load
