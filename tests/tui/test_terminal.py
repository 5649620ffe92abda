"""The dashboard in a real terminal (tmux): started, driven, resized, suspended, ended every way."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tui.driving import RECORDINGS

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
COMMAND = f"{sys.executable} -m eoctl tui --replay {RECORDINGS / 'orders.jsonl'}"

HERE = ("TMUX", "NO_COLOR", "COLUMNS", "LINES")
"""What names this terminal."""


class Terminal:
    """A tmux server of its own with one window that runs a shell."""

    def __init__(self, socket: Path, size: tuple[int, int]) -> None:
        self._socket = socket
        environ = {k: v for k, v in os.environ.items() if k not in HERE}
        shell = ["bash", "--norc", "--noprofile"]
        width, height = map(str, size)
        self._run("new-session", "-d", "-x", width, "-y", height, *shell, env=environ)
        self.keys("PS1='ready> '", "Enter")
        self.until(lambda: self.screen().rstrip().endswith("ready>"))

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            check=True,
            env=env,
        ).stdout

    def keys(self, *keys: str) -> None:
        for key in keys:
            self._run("send-keys", key)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def raw(self) -> str:
        """The screen with its colours, as escape sequences."""
        return self._run("capture-pane", "-p", "-e")

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def flags(self) -> str:
        """Cursor shown, alternate screen, mouse taken."""
        return self._run("display-message", "-p", "#{cursor_flag}#{alternate_on}#{mouse_any_flag}")

    def until(self, true: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.screen()
            time.sleep(0.1)

    def start(self) -> None:
        self.keys(COMMAND, "Enter")
        self.until(lambda: "1 Over" in self.screen() and "? help" in self.screen())

    def pid(self) -> int:
        shell = self._run("display-message", "-p", "#{pane_pid}").strip()
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", shell], capture_output=True, text=True, check=True
        )
        return int(found.stdout.split()[0])

    def sane(self) -> None:
        """Back in the shell: cursor shown, no alternate screen, no mouse, echo and line mode."""
        self.until(lambda: self.screen().rstrip().endswith("ready>"))
        assert self.flags().strip() == "100"
        word = f"typed-{time.monotonic_ns()}"  # not one that stood on the screen before
        self.keys(f"clear; stty -a; echo {word}", "Enter")
        modes = ""

        def seen() -> bool:
            nonlocal modes
            modes = self.screen()
            return f"\n{word}\n" in modes

        self.until(seen)
        assert re.search(r"(?<!-)\bicanon\b", modes)
        assert re.search(r"(?<!-)\becho\b", modes)
        assert re.search(r"(?<!-)\bisig\b", modes)

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture(
    params=[(80, 24), pytest.param((200, 60), marks=pytest.mark.long)], ids=["80x24", "200x60"]
)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "tmux", request.param)
    yield made
    made.close()


def test_started_driven_resized_and_ended_every_way(terminal: Terminal) -> None:
    terminal.start()
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
        terminal.start()
        subprocess.run(["kill", f"-{signal}", str(terminal.pid())], check=True)
        terminal.until(lambda: "eoctl: interrupted" in terminal.screen())
        terminal.keys("echo status $?", "Enter")
        terminal.until(lambda: "status 130" in terminal.screen())
        terminal.keys("clear", "Enter")
        terminal.sane()
    terminal.start()
    terminal.keys("/", "abc", "C-q")
    terminal.sane()
    terminal.start()
    terminal.keys("q")
    terminal.sane()


def test_a_size_in_the_environment_is_not_the_terminals(tmp_path: Path) -> None:
    """Textual takes an exported one for the last word: the dashboard would stay as it began."""
    made = Terminal(tmp_path / "tmux", (100, 30))
    try:
        made.keys("export COLUMNS=80 LINES=24", "Enter")
        made.start()

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
