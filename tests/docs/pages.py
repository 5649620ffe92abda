"""The commands that README and docs show, and the output that a page shows for each.

In an indented or fenced block, a line that begins with `$ ` is run by test_readme.py, and the lines
below it are its output; a line that begins with `eoctl ` is an example that is parsed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md")])
RUNBOOKS = [page for page in PAGES if page.parent.name == "runbooks" and page.stem != "README"]


@dataclass(frozen=True)
class Shown:
    """A command line of a page. runs: it began with `$ `; output: what the page shows below it."""

    page: Path
    number: int  # of its line, from 1
    text: str
    runs: bool
    output: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}: {self.text}"


def _code(page: Path) -> Iterator[tuple[int, str | None]]:
    """Lines of code blocks without their indent, by number; None where a block ends."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
            yield number, None
        elif fenced:
            yield number, line
        elif line.startswith("    "):
            yield number, line[4:]
        else:
            yield number, None


def commands(page: Path) -> list[Shown]:
    """Return the page's command lines in their order."""
    found: list[Shown] = []
    output: list[str] | None = None
    lines = iter(_code(page))
    for number, line in lines:
        runs = line is not None and line.startswith("$ ")
        if line is not None and (runs or line.startswith("eoctl ")):
            text = line.removeprefix("$ ")
            while text.endswith("\\"):
                text = text[:-1] + (next(lines)[1] or "").strip()
            found.append(Shown(page, number, text, runs, ""))
            output = []
        elif line is None:
            output = None
        elif output is not None and found[-1].runs:
            output.append(line)
            last = found[-1]
            found[-1] = Shown(page, last.number, last.text, True, "\n".join(output))
    return found


_AGE = r"~?\d+(?:\.\d+)?(?:ms|s|m|h|d)\b(?: \d+(?:ms|s|m|h)\b)*"
_MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\d\d:\d\d:\d\dZ?", "TIME"),
    (rf"{_AGE}|~?\d+ min\b", "AGE"),
    (r"\bj-\d{8}-\d{6}-[0-9a-f]{4}\b", "ENTRY"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"(?<![\w-])(?=[\w-]*\d)[\w-]{22}(?![\w-])", "CLUSTER"),
]


def masked(text: str) -> str:
    """Return a text on one line, with one word for each time, age, journal entry and cluster id."""
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())


def differs(shown: str, printed: str) -> str | None:
    """Return where printed is not what a page shows; `...` in a page stands for any text."""
    rest = masked(printed)
    parts = [part.strip() for part in masked(shown).split("...")]
    for index, part in enumerate(parts):
        place = rest.find(part)
        if place < 0 or (index == 0 and place > 0):
            return f"no {part!r} in {rest!r}"
        rest = rest[place + len(part) :]
    if parts[-1] and rest.strip():
        return f"{rest!r} is not shown"
    return None
