"""What goes on while one waits, on stderr: one line that changes on a terminal, else few lines."""

import sys
import time
from types import TracebackType
from typing import Self

from eoctl.render.sanitise import visible

SECONDS_BETWEEN_LINES = 10.0


def note(sentence: str) -> None:
    """One line on stderr."""
    print(visible(sentence), file=sys.stderr)


class Progress:
    """Call with (what, done, total). On a terminal the line is erased at the end of the block."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._last: tuple[str, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._on_terminal and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, what: str, done: int, total: int) -> None:
        line, now = f"{what} {done}/{total}", time.monotonic()
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._last = (what, now)
        elif self._last is None or self._last[0] != what or self._due(done, total, now):
            note(line)
            self._last = (what, now)

    def _due(self, done: int, total: int, now: float) -> bool:
        assert self._last is not None
        return done == total or now - self._last[1] >= SECONDS_BETWEEN_LINES
