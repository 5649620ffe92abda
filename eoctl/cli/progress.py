"""Progress on stderr while one waits: one line that changes on a terminal, elsewhere few lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from eoctl.render.sanitise import visible
from eoctl.render.words import size

SECONDS_BETWEEN_LINES = 10.0


def note(sentence: str) -> None:
    """One line on stderr."""
    print(visible(sentence), file=sys.stderr)


class ChangingLine:
    """One line of a terminal that is written over, and erased at the end of the block."""

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self._stands = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stands:
            self._over("")

    def write_over(self, text: str) -> None:
        """Replace the line; only on a terminal."""
        self._over(text)
        self._stands = True

    def _over(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Progress(ChangingLine):
    """Call with (what, done, total): the changing line on a terminal, else now and then a line."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[str, float] | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        line, now = f"{what} {done}/{total}", time.monotonic()
        if self.on_terminal:
            self.write_over(line)
        elif self._last is None or self._last[0] != what or self._due(done, total, now):
            note(line)
            self._last = (what, now)

    def _due(self, done: int, total: int, now: float) -> bool:
        assert self._last is not None
        return done == total or now - self._last[1] >= SECONDS_BETWEEN_LINES


@contextmanager
def reading_progress(
    what: str, show: bool = True
) -> Iterator[Callable[[int, int, int], None] | None]:
    """Show bytes and offsets on one changing line of a terminal, a few times a second.

    what: `reading`, `counting`. None where there is no terminal or `show` is False.
    """
    if not show or not sys.stderr.isatty():
        yield None
        return
    due = 0.0
    with Progress() as line:

        def told(bytes_read: int, done: int, total: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + 0.25
                line(f"{what}: {size(bytes_read)}, offsets", done, total)

        yield told
