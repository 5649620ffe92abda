"""The commands that README and docs show, and the output that a page shows for each.

In an indented or fenced block a prompt says what becomes of a line. What follows `$ ` is run by
test_pages.py, and the lines below it are its output; `# exit status N` at its end says how it ends,
else with 0. What a runbook says is to be copied: tests/kafka/test_runbooks.py runs it, with a lab's
names in place of the page's. What follows `prod$ ` needs a cluster of the reader's own, and is only
parsed, as is a script (a block of `sh`) elsewhere and a line of a crontab. A command without any of
these is a mistake (`marked` is False).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted(p for at in ("*.md", "docs/**/*.md", "eoctl/explain/*.md") for p in ROOT.glob(at))
COPIED = [page for page in PAGES if page.parent.name == "runbooks"]
RUNBOOKS = [page for page in PAGES if page.parent.name == "runbooks" and page.stem != "README"]
CRON = re.compile(r"(?:[*/\d,-]+ +){5}(?=eoctl )")


@dataclass(frozen=True)
class Shown:
    """A command line of a page. marked: the page says whether it runs.

    runs: as it stands; output: what the page shows below it. copied: it runs with a lab's names.
    """

    page: Path
    number: int  # of its line, from 1
    text: str
    marked: bool
    runs: bool = False
    output: str = ""
    copied: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}: {self.text}"

    @property
    def status(self) -> int:
        """The exit status that the page says."""
        told = re.search(r"# exit status (\d+)", self.text)
        return int(told[1]) if told else 0


def _code(page: Path) -> Iterator[tuple[int, str | None, bool]]:
    """Lines of code blocks without their indent, by number; None where a block ends.

    The third value is True in a script.
    """
    fence: str | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
            yield number, None, False
        elif fence is not None:
            yield number, line, fence == "sh"
        elif line.startswith("    "):
            yield number, line[4:], False
        else:
            yield number, None, False


def commands(page: Path) -> list[Shown]:
    """Return the page's command lines in their order."""
    found: list[Shown] = []
    output: list[str] | None = None
    lines = iter(_code(page))
    for number, line, script in lines:
        if line is None:
            output = None
            continue
        text = re.sub(rf"^((prod)?\$ |{CRON.pattern})", "", line)
        copied = page in COPIED and text == line
        marked = script or text != line or copied
        if text != line or (
            text.startswith("eoctl ") and not (output is not None and found[-1].runs)
        ):
            while text.endswith("\\"):
                text = text[:-1] + (next(lines)[1] or "").strip()
            runs = line.startswith("$ ")
            found.append(Shown(page, number, text, marked, runs, copied=copied))
            output = []
        elif output is not None and found[-1].runs:
            output.append(line)
            found[-1] = replace(found[-1], output="\n".join(output))
    return found


def counted() -> str:
    """Say how many commands of README and docs run, and how many are only parsed."""
    shown = [c for page in PAGES for c in commands(page)]
    run = sum(c.runs or c.copied for c in shown)
    return f"commands of README and docs: {run} run on a lab, {len(shown) - run} are parsed (prod$)"


_AGE = r"~?\d+(?:\.\d+)?(?:ms|s|m|h|d)\b(?: \d+(?:ms|s|m|h)\b)*"
_MASKS = [  # ids first: one may end as an age does
    (r"\bj-\d{8}-\d{6}-[0-9a-f]{4}\b", "ENTRY"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"(?<![\w-])(?=[\w-]*\d)[\w-]{22}(?![\w-])", "CLUSTER"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\d\d:\d\d:\d\dZ?", "TIME"),
    (rf"{_AGE}|~?\d+ min\b", "AGE"),
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
