"""The parts of `make test-long`, and how the Makefile begins a run."""

import re
from pathlib import Path

from tests.parts import PARTS, part_of

TESTS = Path(__file__).parents[2]


def test_every_part_has_files() -> None:
    assert {part_of(file) for file in TESTS.rglob("test_*.py")} == set(PARTS)


def test_the_documentation_lists_the_parts() -> None:
    text = (TESTS.parent / "docs" / "development.md").read_text(encoding="utf-8")
    listed = text.partition("## The long tests")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)`", listed, re.MULTILINE) == list(PARTS)


def test_a_run_can_follow_another() -> None:
    """pytest takes the word behind an option of ours for a file to test, once it is a file.

    It then reads no conftest.py that knows the option, and refuses it.
    """
    made = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    assert "--durations-file=" in made
