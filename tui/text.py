"""Words on lines."""

from eoctl.render.width import cells


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Words on lines of `width` cells; a word that is longer is broken."""
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
    """How many characters fit."""
    end = min(len(text), room)
    while cells(text[:end]) > room:
        end -= 1
    return max(end, 1)
