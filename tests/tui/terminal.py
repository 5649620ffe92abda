"""A terminal (tmux) in which a program is started, driven and looked at."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

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

    def start(self, command: str) -> None:
        """Start a dashboard in the shell."""
        self.keys(command, "Enter")
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
