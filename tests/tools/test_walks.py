"""Walks: an incident from first sight to the verified remedy, by keys only, in a terminal (tmux).

One lab has all the faults, one dashboard shows them; each walk mends its own. That it is mended
says librdkafka: a reader of what is committed may read to the end of the log.
"""

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab, up
from eoctl.lab.record import LabSpec
from tests.kafka.command import eoctl
from tests.kafka.conftest import SMALL
from tests.tools.conftest import NOT_RUN
from tests.tui.terminal import Terminal
from tests.tui.test_lab import UNCHECKED, offsets

NEVER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000"}
"""No coordinator ends what has timed out: walks do."""
ORPHANS = (
    "first",
    "beside",
    "listed",
    "named",
    "found",
    "one",
    "two",
    "read",
    "kept",
    "traced",
    "stake",
)
GROUP = "walk-readers"
READY = r"type (\S+-\S+)"


@pytest.fixture(scope="module")
def lab(lab_state: Path) -> Iterator[Lab]:
    if shutil.which("tmux") is None:
        pytest.skip(f"{NOT_RUN}no tmux here; apt-get install tmux")
    made = up(LabSpec(name="walks", settings=SMALL | UNCHECKED | NEVER))
    yield made
    made.down()


@pytest.fixture(scope="module")
def faults(lab: Lab) -> dict[str, GroundTruth]:
    """The faults, by the first part of their topic's name."""
    found = {}
    for name in ORPHANS:
        [found[name]] = break_(lab, "orphan", topic=f"{name}-walk", partition=0, hold=False)
    [found["late"]] = break_(lab, "overdue", topic="late-walk", partition=0)
    [found["slow"]] = break_(
        lab, "long", topic="slow-walk", partition=0, transactional_id="slow-walker"
    )
    reader = Consumer({**lab.client_properties(), "group.id": GROUP})
    reader.commit(offsets=[TopicPartition("read-walk", 0, 1)], asynchronous=False)
    reader.close()
    return found


@pytest.fixture(scope="module")
def dashboard(
    lab: Lab, faults: dict[str, GroundTruth], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("tmux") / "tmux", (120, 40))
    limits = "--interval 1s --sample-interval 1s --long-after 1s"
    terminal.start(f"{sys.executable} -m eoctl --context lab-{lab.name} tui {limits}")
    yield terminal
    terminal.keys("C-q")
    terminal.sane()
    terminal.close()


class Walk:
    """The dashboard for one walk, which begins at the overview."""

    def __init__(self, terminal: Terminal, lab: Lab) -> None:
        self.terminal, self.lab = terminal, lab
        self.press("Escape", "Escape", "Escape", "1", "Escape")  # the last one ends a filter
        self.see("Findings")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.terminal.keys(key)
            if key == "Escape":
                time.sleep(0.4)  # with the key after it, it would be another one

    def see(self, *texts: str, seconds: float = 90) -> None:
        """Wait until all these texts are on the screen."""

        def seen() -> bool:
            screen = self.terminal.screen()
            return all(text in screen for text in texts)

        self.terminal.until(seen, seconds)

    def filtered(self, text: str) -> None:
        """Leave the rows with this text in the list."""
        self.press("/", text, "Enter")
        self.see(f"/{text}", text)

    def remedy(self, *steps: str) -> None:
        """x, the word for which the dialog asks; see that each step is done, and close it."""

        def asks() -> bool:
            screen = self.terminal.screen()
            if "this data is old" in screen:  # on a busy machine: what the line says
                self.press("r")
                time.sleep(3)
                self.press("x")
            return re.search(READY, screen) is not None

        self.press("x")
        self.terminal.until(asks, 90)
        found = re.search(READY, self.terminal.screen())
        assert found is not None
        self.press(found[1], "Enter")
        self.see("journal entry", *(steps or ("step 1 done",)))
        self.press("Escape")

    def verified(self, named: str) -> None:
        """v on the newest entry that names this: each step is as the plan leaves it."""
        self.press("7")
        self.filtered(named)
        self.see("done  ", "v verify")  # the entry is in the list with the next round
        self.press("v")
        self.see("Verify", "step 1 (", "): done;", "esc closes")
        assert "not done" not in self.terminal.screen()
        self.press("Escape", "Escape", "1")

    def mended(self, *truths: GroundTruth, named: str = "") -> None:
        """Verified by `v`, and readers of what is committed may read each partition to its end."""
        self.verified(named or truths[0].topic)
        for t in truths:
            lso, end = offsets(self.lab, t.topic, t.partition)
            assert lso == end > t.high_watermark, t.topic


@pytest.fixture
def walk(dashboard: Terminal, lab: Lab) -> Walk:
    return Walk(dashboard, lab)


Faults = dict[str, GroundTruth]


def test_the_worst_finding_opened_and_aborted(walk: Walk, faults: Faults) -> None:
    walk.filtered("first-walk")
    walk.see("STUCK")
    walk.press("Enter")
    walk.see("Overview > Why", "x remedy")
    walk.remedy()
    walk.mended(faults["first"])


def test_from_the_story_beside_the_list(walk: Walk, faults: Faults) -> None:
    walk.filtered("beside-walk")
    walk.see("beside-walk:0", "at stake", "###")  # its page, unasked, once the cursor rests
    walk.remedy()
    walk.mended(faults["beside"])


def test_from_the_list_of_partitions(walk: Walk, faults: Faults) -> None:
    walk.press("2")
    walk.filtered("listed-walk")
    walk.remedy()
    walk.mended(faults["listed"])


def test_named_in_a_command(walk: Walk, faults: Faults) -> None:
    walk.press(":", "why named-walk:0", "Enter")
    walk.see("Why named-walk:0", "x remedy", "pid")
    walk.remedy()
    walk.mended(faults["named"])


def test_found_by_some_letters(walk: Walk, faults: Faults) -> None:
    walk.press("C-p")
    walk.see("a command, topic, transactional id or group")
    walk.press("fndwlk")
    walk.see("found-walk")
    walk.press("Enter")
    walk.see("1 of ", "found-walk:0")
    walk.remedy()
    walk.mended(faults["found"])


def test_two_marked_one_plan(walk: Walk, faults: Faults) -> None:
    walk.filtered("(one|two)-walk")
    walk.press("Space", "Space")
    walk.see("2 marked")
    walk.remedy("step 1 done", "step 2 done")
    walk.mended(faults["one"], faults["two"], named="2 transactions")


def test_why_a_group_does_not_move(walk: Walk, faults: Faults) -> None:
    walk.press("5")
    walk.filtered(GROUP)
    walk.press("t")
    walk.see(f"Group {GROUP}", "read-walk:0", "newest commits")
    walk.press("Escape", "Enter")
    walk.see("Groups > Why", GROUP, "x remedy")
    walk.remedy()
    walk.mended(faults["read"])


def test_a_plan_kept_before_is_carried_out(walk: Walk, faults: Faults, lab_state: Path) -> None:
    plans = lab_state / "plans"
    plans.mkdir(exist_ok=True)
    where = ["--context", f"lab-{walk.lab.name}", "txn", "hanging", "kept-walk"]
    eoctl(*where, "--sample-interval", "1s", "--plan", str(plans / "kept.json"))
    walk.press("7")
    walk.filtered("kept.json")
    walk.see("planned")
    walk.remedy()
    walk.mended(faults["kept"])


def test_what_is_at_stake_is_read_before_it_is_dropped(walk: Walk, faults: Faults) -> None:
    walk.filtered("stake-walk")
    walk.press("v")
    walk.see("Records of stake-walk:0")
    walk.terminal.until(lambda: " reading" not in walk.terminal.screen(), 60)
    walk.press("Escape")
    walk.remedy()
    walk.mended(faults["stake"])


def test_past_its_timeout_and_its_owner_gone(walk: Walk, faults: Faults) -> None:
    walk.filtered("late-walk")
    walk.remedy()
    walk.mended(faults["late"])


def test_a_long_transaction_is_fenced_by_its_id(walk: Walk, faults: Faults) -> None:
    walk.press("3")
    walk.filtered("slow-walker")
    walk.press("t")
    walk.see("Timeline slow-walker", "Newest transaction", "open for")
    walk.press("Escape")
    walk.remedy()
    walk.mended(faults["slow"], named="slow-walker")


def test_what_was_changed_is_on_the_overview(walk: Walk, faults: Faults) -> None:
    walk.filtered("traced-walk")
    walk.remedy()
    walk.mended(faults["traced"])
    walk.press("Escape")
    walk.see("abort done traced-walk:0")
