"""The tables of docs/compatibility.md: rows of works_with.toml, with what tests passed and when.

`make test-long` and `make test-tools` keep that in tried.txt, a line for each test that a row
names: `2026-11-28 tests/...`; the line of a test that fails goes.
"""

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRIED = HERE / "tried.txt"

Row = Mapping[str, Any]


@cache
def rows() -> Mapping[str, list[Row]]:
    """Return the rows of each table."""
    return tomllib.loads((HERE / "works_with.toml").read_text(encoding="utf-8"))


def dates(text: str) -> dict[str, str]:
    """Return when each test last passed, from the lines of tried.txt."""
    return {name: date for date, _, name in (line.partition(" ") for line in text.splitlines())}


def named(test: str) -> bool:
    """Return True if a row's word depends on when this test last passed."""
    wanted = [t for table in rows().values() for row in table if not row.get("each")
              for t in row.get("tests", ())]  # fmt: skip
    return any(test.startswith(one) for one in wanted)


def keep(passed: Iterable[str], failed: Iterable[str], date: str, file: Path = TRIED) -> None:
    """Write what a run has shown into tried.txt."""
    known = dates(file.read_text()) if file.exists() else {}
    known.update({test: date for test in passed if named(test)})
    for test in failed:
        known.pop(test, None)
    file.write_text("".join(f"{known[test]} {test}\n" for test in sorted(known)))


def said(row: Row, known: Mapping[str, str]) -> str:
    """Return a row's word: tried, by what and when, where all its tests have passed."""
    if "said" in row:
        return str(row["said"])
    if not row.get("tests"):
        return "not tried"
    if row.get("each"):
        return "tried, each test"
    by = "`make test-tools`" if row["tests"][0].startswith("tests/tools/") else "long tests"
    when = [[d for t, d in known.items() if t.startswith(test)] for test in row["tests"]]
    if not all(when):
        return f"{by}; no run is kept here"
    return f"tried, {by}, {min(d for found in when for d in found)}"


def table(name: str) -> str:
    """Return one of the tables in Markdown."""
    known = dates(TRIED.read_text())
    lines = [f"| {name} | | |" if name != "here" else "| | | |", "|---|---|---|"]
    lines += [f"| {r['name']} | {said(r, known)} | {r.get('note', '')} |" for r in rows()[name]]
    return "\n".join([*lines, ""]).replace("|  |", "| |")


def brokers() -> str:
    """Return the table of brokers."""
    return table("brokers")


def here() -> str:
    """Return the table of what is on eoctl's own side."""
    return table("here")
