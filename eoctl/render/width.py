"""Count the cells of a terminal that a text takes, and cut it so that it fits.

For text from `sanitise.visible`: no controls, no joiners, no variation selectors. If terminals
differ (emoji with a skin tone, spacing marks) the larger number counts, so that a line never
overflows.
"""

import re
import unicodedata

# A number on its own within a sentence ("pid 4001, no owner"): half of it would be wrong.
_NUMBER = r"(?<!\S)\d{1,19}(?=[,;.]?(?:\s|$))"
# Unicode 16 made these wide; older Pythons' tables do not include that.
_WIDE_SINCE_16 = (
    "[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d356\U0001d360-\U0001d376]"
)
_LEAST_TAIL = 4  # cells of a name's end that a number before it leaves


def cells(text: str) -> int:
    """Return the cells taken: 2 for wide characters (UAX #11: W, F), 0 for combining marks, else
    1."""
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if character < "\x7f":
        return 1
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    wide = unicodedata.east_asian_width(character) in "WF" or re.match(_WIDE_SINCE_16, character)
    return 2 if wide else 1


def cut_end(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut the text to `width` cells, replacing its end by the ellipsis if it is longer."""
    if cells(text) <= width:
        return text
    if (room := width - len(ellipsis)) < 0:
        return ellipsis[: max(width, 0)]
    end = _keep_number(text, _head(text, room), room)
    return text[:end] + ellipsis


def cut_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut the text to `width` cells, replacing its middle: both ends of a name identify it."""
    if cells(text) <= width:
        return text
    if (room := width - len(ellipsis)) < 0:
        return ellipsis[: max(width, 0)]
    end = _keep_number(text, _head(text, (room + 1) // 2), room - _LEAST_TAIL)
    start = _tail(text, room - cells(text[:end]))
    for number in re.finditer(_NUMBER, text, re.ASCII):
        if number.start() <= start < number.end() and number.group() != text:
            start = number.end()
    return text[:end] + ellipsis + text[start:]


def _keep_number(text: str, end: int, room: int) -> int:
    """Return where to cut, but not in a number or right after one: past it if there is room."""
    for number in re.finditer(_NUMBER, text, re.ASCII):
        if number.start() < end <= number.end() and number.group() != text:
            behind = number.end() + 1
            return behind if cells(text[:behind]) <= room else number.start()
    return end


def _head(text: str, room: int) -> int:
    """Return the index at which the longest start of the text within `room` cells ends."""
    for index, character in enumerate(text):
        room -= _cell(character)
        if room < 0:
            return index
    return len(text)


def _tail(text: str, room: int) -> int:
    """Return the index at which the longest end within `room` cells starts, never at a mark."""
    start = len(text)
    for index in range(len(text) - 1, -1, -1):
        room -= _cell(text[index])
        if room < 0:
            break
        if _cell(text[index]):
            start = index
    return start


LABEL = 14  # cells before a labelled text


def labelled(label: str, text: str, width: int | None, dots: str) -> list[str]:
    """Wrap words after their label; without a terminal, on one line."""
    head = f" {label:<{LABEL - 1}}"
    if width is None or cells(head + text) <= width:
        return [head + text]
    parts = wrapped(text, max(width - LABEL, 20), dots)
    return [(head if number == 0 else " " * LABEL) + part for number, part in enumerate(parts)]


def wrapped(text: str, room: int, dots: str) -> list[str]:
    """Return lines of at most `room` cells; a longer word loses its middle."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and cells(line) + 1 + cells(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [cut_middle(part, room, dots) for part in [*lines, line]]
