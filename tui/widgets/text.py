"""Wrap words into lines, and list in such lines what could not be seen."""

from collections.abc import Iterable

from eoctl.render.sanitise import visible
from eoctl.render.width import cells
from recovery.row import ErrorRow
from tui.widgets.lines import Line


def safe(text: str, *, ascii_only: bool) -> str:
    """Return a name that is safe to draw, and never empty."""
    return visible(text, spaces=True, ascii_only=ascii_only) or '""'


def error_lines(errors: Iterable[ErrorRow], width: int, *, named: bool = False) -> list[Line]:
    """Return what an answer could not see. named: with the name of each unseen thing."""
    return [
        ((part, "unknown"),)
        for e in errors
        for part in wrapped(
            visible(
                f"? {f'{e.topic or e.id or e.scope}: ' if named else ''}{e.detail} ({e.error})"
            ),
            width - 1,
            " ",
        )
    ]


def command_lines(command: str, width: int) -> list[str]:
    """Return a command on lines of `width` cells, broken between its words where they fit."""
    return wrapped(command, width - 1, "   ")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return words on lines of `width` cells; a longer word is broken."""
    lines: list[str] = []
    line = ""
    room = max(width - cells(indent), 8)
    for word in text.split(" "):
        if line and cells(line) + 1 + cells(word) > room:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        while cells(line) > room:
            lines.append(indent + line[: _fits(line, room)])
            line = line[_fits(line, room) :]
    return [*lines, indent + line]


def _fits(text: str, room: int) -> int:
    """Return how many characters fit."""
    end = min(len(text), room)
    while cells(text[:end]) > room:
        end -= 1
    return max(end, 1)
