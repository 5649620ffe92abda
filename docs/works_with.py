"""The tables of docs/compatibility.md: rows of works_with.toml, with what tests passed and when.

`make test-long` and `make test-tools` keep that in tried.txt, a line for each test that a row
names: `2026-11-28 tests/...`, or `2026-11-28 failed tests/...`. A row is tried if each of its
tests has passed and none of them, nor of their parameters, has failed since.
"""

import ast
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRIED = HERE / "tried.txt"
FAILED = "failed "

Row = Mapping[str, Any]


@cache
def rows() -> Mapping[str, list[Row]]:
    """Return the rows of each table."""
    return tomllib.loads((HERE / "works_with.toml").read_text(encoding="utf-8"))


def dates(text: str) -> dict[str, str]:
    """Return when each test last passed, from the lines of tried.txt."""
    lines = [line.partition(" ") for line in text.splitlines()]
    return {name: date for date, _, name in lines if not name.startswith(FAILED)}


def failures(text: str) -> list[str]:
    """Return the tests that failed when they last ran."""
    lines = [line.partition(" ")[2] for line in text.splitlines()]
    return [name.removeprefix(FAILED) for name in lines if name.startswith(FAILED)]


@cache
def wanted(name: str) -> tuple[str, ...]:
    """Return the tests that a row's name stands for: itself, or every test of a file."""
    if "::" in name:
        return (name,)
    body = ast.parse((HERE.parent / name).read_text(encoding="utf-8")).body
    found = (node.name for node in body if isinstance(node, ast.FunctionDef))
    return tuple(f"{name}::{test}" for test in found if test.startswith("test_"))


def is_of(ran: str, test: str) -> bool:
    """Return True if what ran is this test, or this test with a parameter."""
    return ran == test or ran.startswith(f"{test}[")


def named(ran: str) -> bool:
    """Return True if a row's word depends on when this test last passed."""
    names = (t for table in rows().values() for row in table if not row.get("each")
             for t in row.get("tests", ()))  # fmt: skip
    return any(is_of(ran, test) for name in names for test in wanted(name))


def keep(passed: Iterable[str], failed: Iterable[str], date: str, file: Path = TRIED) -> None:
    """Write what a run has shown into tried.txt."""
    lines = file.read_text().splitlines() if file.exists() else []
    known = {line.partition(" ")[2].removeprefix(FAILED): line for line in lines}
    known.update({test: f"{date} {test}" for test in passed if named(test)})
    known.update({test: f"{date} {FAILED}{test}" for test in failed if named(test)})
    file.write_text("".join(f"{known[test]}\n" for test in sorted(known)))


def said(row: Row, known: Mapping[str, str], failed: Collection[str] = ()) -> str:
    """Return a row's word: tried, by what and when, where all its tests have passed."""
    if "said" in row:
        return str(row["said"])
    if not row.get("tests"):
        return "not tried"
    if row.get("each"):
        return "tried, each test"
    by = "`make test-tools`" if row["tests"][0].startswith("tests/tools/") else "long tests"
    tests = [test for name in row["tests"] for test in wanted(name)]
    if any(is_of(ran, test) for ran in failed for test in tests):
        return f"{by}; failed when they last ran"
    when = [[d for ran, d in known.items() if is_of(ran, test)] for test in tests]
    if not all(when):
        return f"{by}; no run is kept here"
    return f"tried, {by}, {min(d for found in when for d in found)}"


def table(name: str) -> str:
    """Return one of the tables in Markdown."""
    known, failed = dates(TRIED.read_text()), failures(TRIED.read_text())
    lines = [f"| {name} | | |" if name != "here" else "| | | |", "|---|---|---|"]
    lines += [
        f"| {r['name']} | {said(r, known, failed)} | {r.get('note', '')} |" for r in rows()[name]
    ]
    return "\n".join([*lines, ""]).replace("|  |", "| |")


def brokers() -> str:
    """Return the table of brokers."""
    return table("brokers")


def here() -> str:
    """Return the table of what is on eoctl's own side."""
    return table("here")
