"""The dashboard in a real terminal (tmux): started, driven, resized, suspended, ended every way."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.driving import RECORDINGS
from tests.tui.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
COMMAND = f"{sys.executable} -m eoctl tui --replay {RECORDINGS / 'orders.jsonl'}"


@pytest.fixture(
    params=[(80, 24), pytest.param((200, 60), marks=pytest.mark.long)], ids=["80x24", "200x60"]
)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "tmux", request.param)
    yield made
    made.close()


def test_started_driven_resized_and_ended_every_way(terminal: Terminal) -> None:
    terminal.start(COMMAND)
    assert terminal.flags().strip()[1] == "1"
    terminal.keys("2")
    terminal.until(lambda: "TOPIC:PARTITION" in terminal.screen())
    terminal.keys("/", "orders", "Enter")
    terminal.until(lambda: "/orders" in terminal.screen() and "hostile" not in terminal.screen())
    terminal.keys("Escape")
    terminal.until(lambda: "hostile" in terminal.screen())
    for width, height in ((220, 60), (80, 24), (40, 10), (120, 40)):
        terminal.resize(width, height)
        terminal.until(lambda: "2 Part" in terminal.screen())
        terminal.until(lambda h=height: len(terminal.screen().splitlines()) == h)  # type: ignore[misc]
    terminal.keys("6")
    terminal.until(lambda: "Why" in terminal.screen())

    terminal.keys("C-z")
    terminal.until(lambda: "Stopped" in terminal.screen())
    terminal.keys("clear", "Enter")
    terminal.sane()
    terminal.keys("fg", "Enter")
    terminal.until(lambda: "1 Over" in terminal.screen())
    terminal.keys("C-c")
    terminal.sane()

    for signal in ("TERM", "HUP"):
        terminal.start(COMMAND)
        subprocess.run(["kill", f"-{signal}", str(terminal.pid())], check=True)
        terminal.until(lambda: "eoctl: interrupted" in terminal.screen())
        terminal.keys("echo status $?", "Enter")
        terminal.until(lambda: "status 130" in terminal.screen())
        terminal.keys("clear", "Enter")
        terminal.sane()
    terminal.start(COMMAND)
    terminal.keys("/", "abc", "C-q")
    terminal.sane()
    terminal.start(COMMAND)
    terminal.keys("q")
    terminal.sane()


def test_a_size_in_the_environment_is_not_the_terminals(tmp_path: Path) -> None:
    """Textual takes an exported one for the last word: the dashboard would stay as it began."""
    made = Terminal(tmp_path / "tmux", (100, 30))
    try:
        made.keys("export COLUMNS=80 LINES=24", "Enter")
        made.start(COMMAND)

        def filled(width: int, height: int) -> bool:
            """The age of what is shown stands at the right edge, the keys in the last line."""
            lines = made.screen().splitlines()
            return len(lines) == height and len(lines[0]) == width - 1 and "? help" in lines[-1]

        for size in ((100, 30), (120, 40), (80, 24)):
            made.resize(*size)
            made.until(lambda size=size: filled(*size))  # type: ignore[misc]
        made.keys("C-c")
        made.sane()
    finally:
        made.close()


def test_without_colour_everything_is_still_said(tmp_path: Path) -> None:
    """NO_COLOR: no colour reaches the terminal, and the marks say what the colours said."""
    made = Terminal(tmp_path / "tmux", (120, 40))
    try:
        made.keys(f"NO_COLOR=1 {COMMAND}", "Enter")
        made.until(lambda: "!! orphan" in made.screen())
        made.keys("2")
        made.until(lambda: "TOPIC:PARTITION" in made.screen() and "^ LSO" in made.screen())
        raw = made.raw()
        for codes in re.findall(r"\x1b\[([0-9;]*)m", raw):
            numbers = [int(n) for n in codes.split(";") if n]
            if 38 in numbers or 48 in numbers:
                # a grey says nothing that a colour would: red, green and blue are the same
                at = numbers.index(38 if 38 in numbers else 48)
                if numbers[at + 1] == 2:
                    red, green, blue = numbers[at + 2 : at + 5]
                    assert max(red, green, blue) - min(red, green, blue) <= 2, codes
        for said in ("!!", "###", "# open", ">"):
            assert said in made.screen()
        made.keys("C-c")
        made.sane()
    finally:
        made.close()
