"""What the first of two looks saw, on a terminal until the verdict is there."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from eoctl.cli.options import Format
from eoctl.render.width import cut_end
from recovery.times import format_duration

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # half of one would colour the terminal
AT_LEAST = 1.0  # seconds between the looks: what is shown for less is only a flicker


class FirstLook:
    """Lines that `show` writes to stdout, and `erase` takes away before the whole answer.

    active: only where a person waits: stdout is a terminal that can erase, text is written, once.
    No line is longer than the terminal and no page higher, so that what is erased is what was
    written. Where the terminal was resized or the command stopped and resumed meanwhile, nobody
    knows which lines these are now: they stay, and the answer follows.
    """

    def __init__(self, output: Format, seconds: float, *, one_cluster: bool = True) -> None:
        self.active = (
            one_cluster
            and seconds >= AT_LEAST
            and output.interval is None
            and output.output in ("table", "wide")
            and sys.stdout.isatty()
            and os.environ.get("TERM", "dumb") != "dumb"
        )
        self._mark = f"first look; a verdict needs a second in {format_duration(seconds)}"
        self._size = os.terminal_size((0, 0))
        self._lines = 0
        self._moved = False

    def show(self, lines: Sequence[str]) -> None:
        """Write the lines that fit, and below them what they are."""
        if not self.active or self._lines:
            return
        self._size = shutil.get_terminal_size()
        signal.signal(signal.SIGCONT, self._resumed)
        room = max(self._size.columns, 1)
        plain = (_COLOUR.sub("", line) for line in lines[: max(self._size.lines - 2, 0)])
        shown = [*plain, self._mark]
        self._lines = len(shown)
        sys.stdout.write("".join(f"{cut_end(line, room)}\n" for line in shown))
        sys.stdout.flush()

    def erase(self) -> None:
        """Make room for the answer."""
        if not self._lines:
            return
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        known = not self._moved and shutil.get_terminal_size() == self._size
        sys.stdout.write(f"\x1b[{self._lines}A\r\x1b[J" if known else "\n")
        self._lines = 0

    def _resumed(self, _signal: int, _frame: FrameType | None) -> None:
        self._moved = True
