"""The commands that README and docs show, and the output that a page shows for each.

In an indented or fenced block a prompt says what becomes of a line. What follows `$ ` is run by
test_pages.py, and the lines below it are its output; `# exit status N` at its end says how it ends,
else with 0. What a runbook says is to be copied: tests/kafka/test_runbooks.py runs it, with a lab's
names in place of the page's. What follows `prod$ ` needs what the reader has and a lab has not: a
test makes that and runs the lines below a heading of `WORLDS` in it, with its names; so it does
with a script (a block of `sh`) and a line of a crontab. A command without any of these is a mistake
(`marked` is False).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(p for at in ("*.md", "docs/**/*.md", "eoctl/explain/*.md") for p in ROOT.glob(at))
COPIED = [page for page in PAGES if page.parent.name == "runbooks"]
RUNBOOKS = [page for page in PAGES if page.parent.name == "runbooks" and page.stem != "README"]
HERE = {"README.md", "docs/runbooks/README.md", "docs/runbooks/readers-stuck.md"}
"""Pages whose commands `make test` runs; those of the others run in `make test-long`."""
WORLDS = {
    ("README.md", "Your own cluster"): "make test",
    ("docs/audit.md", "Audits: what is doubled, missing or torn"): "make test-long",
    ("docs/audit.md", "end-to-end"): "make test",
    ("docs/bundle.md", "A broker's own files"): "make test-long",
    ("docs/check.md", "`eoctl check`: for cron, Prometheus and Nagios"): "make test",
    ("docs/configuration.md", "Four ways to name it"): "make test",
    ("docs/configuration.md", "The configuration file"): "make test",
    ("docs/connect.md", "Set a source connector to another place"): "make test-long",
    ("docs/connect.md", "Sink connectors"): "make test-long",
    ("docs/dedup.md", "The clean copy of a topic"): "make test",
    ("docs/exporter.md", "`eoctl exporter`: a Prometheus endpoint"): "make test",
    ("docs/failover.md", "Over to another cluster, exactly"): "make test",
    ("docs/failover.md", "The way back"): "make test",
    ("docs/failover.md", "Transactions that were cut"): "make test",
    ("docs/failover.md", "Byte copies"): "make test",
    ("docs/failover.md", "Without A"): "make test",
    ("docs/failover.md", "When the cluster is gone"): "make test",
    ("docs/flink.md", "Salvage what was lost"): "make test",
    ("docs/flink.md", "The source's offsets"): "make test",
    ("docs/flink.md", "What became of them"): "make test",
    ("docs/merge.md", "Merge logs"): "make test",
    ("docs/records.md", "The records at stake"): "make test",
    ("docs/restart.md", "A damaged Spark checkpoint"): "make test",
    ("docs/restart.md", "Plans without an application file"): "make test",
    ("docs/restart.md", "Stores"): "make test",
    ("docs/restart.md", "The five commands"): "make test",
    ("docs/spark.md", "An environment for the executors"): "make test-long",
    ("docs/spark.md", "Executors in several racks"): "make test-long",
    ("docs/spark.md", "Launching"): "make test-long",
    ("docs/state.md", "In object storage"): "make test",
    ("docs/state.md", "Into a Kafka Streams application"): "make test-long",
    ("docs/state.md", "Into a topic or a database"): "make test",
    ("docs/state.md", "Spark's own state"): "make test-long",
    ("docs/state.md", "State from changelogs"): "make test",
    ("docs/tui.md", "The dashboard: `eoctl tui`"): "make test",
}
"""Page and heading → what runs the commands below it that need what the reader has.

A test with `@follows(page, heading)` does.
"""
CRON = re.compile(r"(?:[*/\d,-]+ +){5}(?=eoctl )")


@dataclass(frozen=True)
class Shown:
    """A command line of a page. marked: the page says whether it runs.

    heading: the nearest one above it. runs: as it stands; output: what the page shows below it.
    copied: it runs with a lab's names.
    """

    page: Path
    number: int  # of its line, from 1
    heading: str
    text: str
    marked: bool
    runs: bool = False
    output: str = ""
    copied: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}: {self.text}"

    @property
    def where(self) -> tuple[str, str]:
        """Its page and heading, as WORLDS has them."""
        return self.page.relative_to(ROOT).as_posix(), self.heading

    @property
    def run_by(self) -> str | None:
        """What runs it: `make test`, `make test-long`, or None, where WORLDS lacks its heading."""
        if self.runs or self.copied:
            return "make test" if self.where[0] in HERE else "make test-long"
        return WORLDS.get(self.where)

    @property
    def status(self) -> int:
        """The exit status that the page says."""
        told = re.search(r"# exit status (\d+)", self.text)
        return int(told[1]) if told else 0


def _code(page: Path) -> Iterator[tuple[int, str, str | None, str]]:
    """Lines of code blocks without their indent, by number and heading; None where a block ends.

    The last value is the language that a fence names, empty without one.
    """
    fence: str | None = None
    heading = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
            yield number, heading, None, ""
        elif fence is not None:
            yield number, heading, line, fence
        elif line.startswith("    "):
            yield number, heading, line[4:], ""
        else:
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
            yield number, heading, None, ""


def files(page: Path, language: str) -> list[tuple[str, str]]:
    """The blocks of a language, such as the `toml` of an application file: heading and text."""
    found: list[tuple[str, str]] = []
    inside = False
    for _, heading, line, fence in _code(page):
        if line is None or fence != language:
            inside = False
            continue
        before = found.pop()[1] if inside else ""
        found.append((heading, f"{before}{line}\n"))
        inside = True
    return found


def commands(page: Path) -> list[Shown]:
    """Return the page's command lines in their order."""
    found: list[Shown] = []
    output: list[str] | None = None
    lines = iter(_code(page))
    for number, heading, line, language in lines:
        if line is None:
            output = None
            continue
        script = language == "sh"
        text = re.sub(rf"^((prod)?\$ |{CRON.pattern})", "", line)
        copied = page in COPIED and text == line
        marked = script or text != line or copied
        if text != line or (text.startswith("eoctl ") and output is None):
            while text.endswith("\\"):
                text = text[:-1] + (next(lines)[2] or "").strip()
            runs = line.startswith("$ ")
            found.append(Shown(page, number, heading, text, marked, runs, copied=copied))
            output = [] if line.startswith(("$ ", "prod$ ")) else None
        elif output is not None:
            output.append(line)
            found[-1] = replace(found[-1], output="\n".join(output))
    return found


def follows(page: str, heading: str) -> pytest.MarkDecorator:
    """Let a test run the commands of WORLDS below a heading: its fixture `it` reads them."""
    long = WORLDS[page, heading] != "make test"
    section = pytest.param(
        (page, heading), id=f"{page}: {heading}", marks=pytest.mark.long if long else ()
    )
    return pytest.mark.parametrize("section", [section])


def counted() -> str:
    """Say how many commands of README and docs run, and by what."""
    run_by = [c.run_by for page in PAGES for c in commands(page)]
    here, long = map(run_by.count, ("make test", "make test-long"))
    return f"commands of README and docs: {here} run in make test, {long} more in make test-long"


_AGE = r"~?\d+(?:\.\d+)?(?:ms|s|m|h|d)\b(?: \d+(?:ms|s|m|h)\b)*"
_MASKS = [  # ids first: one may end as an age does
    (r"\bj-\d{8}-\d{6}-[0-9a-f]{4}\b", "ENTRY"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"(?<![\w-])(?=[\w-]*(?:\d|[a-z][\w-]*[A-Z]|[A-Z][\w-]*[a-z]))[\w-]{22}(?![\w-])", "CLUSTER"),
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
        at = rest.find(part)
        if at < 0 or (index == 0 and at > 0):
            return f"no {part!r} in {rest!r}"
        rest = rest[at + len(part) :]
    if parts[-1] and rest.strip():
        return f"{rest!r} is not shown"
    return None
