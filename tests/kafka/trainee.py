"""Someone in a drill or a night of trouble, who copies commands from a runbook."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eoctl.lab.cluster import Lab
from eoctl.lab.drills.catalogue import DRILLS
from eoctl.lab.drills.drill_state import DrillState
from tests.docs.pages import ROOT, Shown, commands
from tests.kafka.command import Ran, eoctl
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading, words_of

SECONDS = 90.0
ACT = ("--execute", "--yes")


def page(name: str) -> list[Shown]:
    """The command lines of a runbook."""
    return commands(ROOT / "docs" / "runbooks" / f"{name}.md")


class Trainee:
    """Someone in a lab's trouble."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.page = lab, folder, ""

    @contextmanager
    def reading(self, name: str, names: Mapping[str, str]) -> Iterator[Reading]:
        """Follow a runbook; nothing of it is left at the end."""
        followed = Reading([shown for shown in page(name) if shown.copied], names, self.lab)
        yield followed
        followed.end()

    def drill(self, *words: str) -> Ran:
        return eoctl("lab", "drill", *words, "--name", self.lab.name, timeout=180)

    def begin(self, name: str, seed: int = 7) -> Any:
        """Start a drill; its row."""
        self.page = DRILLS[name].page
        began = self.drill(name, "--seed", str(seed), "-o", "json")
        assert began.status == 0, began.stderr
        [row] = as_published(began, "lab-drill").rows
        assert row["started_at"] is not None
        return row

    def end(self) -> None:
        """End the drill, if one runs, with all brokers back."""
        if any(broker.state == "stopped" for broker in self.lab.status().brokers):
            self.up()
        if DrillState.load(self.lab.folder):
            ended = self.drill("--end")
            assert ended.status == 0, ended.stderr

    def up(self) -> None:
        """Bring a broker back by the page's command, with the options of the lab's first `up`."""
        line = next(c for c in page("coordinator-unavailable") if c.text.startswith("eoctl lab up"))
        done = eoctl(*words_of(line, {})[0], *self.up_options(), timeout=180)
        assert done.status == 0, done.stderr

    def up_options(self) -> list[str]:
        spec = self.lab.record.spec
        options = ["--name", spec.name, "--brokers", str(spec.brokers)]
        return options + [w for k, v in spec.settings.items() for w in ("--set", f"{k}={v}")]

    def copied(
        self, begins: str, names: dict[str, str], *more: str, page_name: str | None = None
    ) -> Ran:
        """Run the page's first command that begins so, each of the page's names replaced."""
        lines = page(page_name or self.page)
        shown = next(c for c in lines if c.text.startswith(begins))
        return eoctl(*words_of(shown, names)[0], *more, lab=self.lab, timeout=180)

    def held(self) -> list[str]:
        """The partitions that are held, by the page's command."""
        rows = self.copied("eoctl lso", {}, "-o", "json", page_name="readers-stuck").rows
        return [f"{row['topic']}:{row['partition']}" for row in rows if row["held"]]

    def gone(self) -> None:
        """Wait until the broker has left."""
        end = time.monotonic() + SECONDS
        while all(broker.state != "stopped" for broker in self.lab.status().brokers):
            assert time.monotonic() < end
            time.sleep(0.2)

    def app_file(self) -> Path:
        """The application file that the story names."""
        story = self.drill("-o", "json").rows
        [text] = [row["story"] for row in story if row["story"]]
        [path] = re.findall(r"\S+\.toml", text)
        return Path(path)

    def finish(self, env: Path) -> None:
        """Start the practice job again with a plan's numbers."""
        words = ("lab", "job", "--name", self.lab.name, "--env-file", str(env))
        eoctl(*words, timeout=180)

    def ask(self, name: str) -> str:
        """The answer of an id's owner."""
        [row] = as_published(self.drill("--ask", name, "-o", "json"), "lab-drill-ask").rows
        return str(row["answer"])

    def grade(self) -> tuple[int, dict[str, Any]]:
        """Exit status, and the envelope."""
        ran = as_published(self.drill("--grade", "-o", "json"), "lab-drill-grade")
        return ran.status, ran.json

    def full_marks(self) -> None:
        status, found = self.grade()
        assert [r for r in found["rows"] if r["result"] != "right"] == []
        assert (status, found["points"]) == (0, found["most"])
        assert found["well_done"]
        assert not any(r["records_lost"] or r["records_doubled"] for r in found["rows"])

    def results(self) -> dict[str, str]:
        """Result by subject, of a grade with exit status 1."""
        status, found = self.grade()
        assert status == 1
        assert found["points"] < found["most"]
        return {r["subject"]: r["result"] for r in found["rows"]}
