"""The parts of `make test-long`."""

import re
from pathlib import Path

from tests.parts import PARTS, part_of

TESTS = Path(__file__).parents[1]


def test_every_part_has_files() -> None:
    assert {part_of(file) for file in TESTS.glob("*/test_*.py")} == set(PARTS)


def test_the_documentation_lists_the_parts() -> None:
    text = (TESTS.parent / "docs" / "development.md").read_text(encoding="utf-8")
    listed = text.partition("## The long tests")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)`", listed, re.MULTILINE) == list(PARTS)
