"""Draw numbers over time as lines: axes, a legend beside the lines, marks on the time axis.

A picture begins with its first sample and at 0, and its lines share one ceiling. A missing sample
leaves a gap. Lines are braille, 2x4 dots a cell; with ASCII only, a sign per line.
"""

from collections.abc import Callable, Sequence
from math import ceil, log10

from eoctl.render.width import cells, cut_middle
from eoctl.render.words import age as age_words
from recovery.times import rfc3339
from recovery.values import Value
from tui.widgets.lines import Line, Part
from tui.widgets.text import wrapped

LEAST_SAMPLES = 3
LEAST_WIDTH, LEAST_PLOT = 24, 2
AXIS_LINES = 2  # the axis with its marks, and the times below it
MOST_LINES = 8  # of one picture; the others are dots among dots
_SIGNS = "*o+x.%@~"  # of the lines, with ASCII only
_ROUND = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10)
_ROUND_SECONDS = (
    *(10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600),
    *(7200, 14_400, 28_800, 43_200, 86_400, 172_800, 345_600),
)
"""Whose halves are round, too."""
_LEFT, _RIGHT = (64, 4, 2, 1), (128, 32, 16, 8)
"""The bits of braille dots in the halves of a cell, from below."""


def _sign(dots: int) -> str:
    """Return the sign of a cell. dots: four bits of its left half from below, then of its right."""
    left = sum(bit for n, bit in enumerate(_LEFT) if dots >> n & 1)
    right = sum(bit for n, bit in enumerate(_RIGHT) if dots >> n + 4 & 1)
    return chr(0x2800 + left + right) if dots else " "


_BRAILLE = [_sign(dots) for dots in range(256)]


class Series(Value):
    """A line. name: safe text. role: of the palette. values: one per time; None: not seen."""

    name: str
    role: str
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """Return the newest value; None: not seen."""
        return self.values[-1] if self.values else None


class Picture(Value, eq=False):
    """Lines over the time that was seen. times: epoch ms of the samples, rising.

    marks: what happened when (epoch ms), a letter each. seconds: values are durations. few: the
    sentence in place of lines, below three samples or without a line. The first line is on top.
    """

    title: str
    times: tuple[int, ...]
    series: tuple[Series, ...]
    few: str
    marks: tuple[tuple[int, str], ...] = ()
    seconds: bool = False
    ascii_only: bool = False

    @property
    def seen(self) -> list[Series]:
        """Return the lines to draw: with a value, in a picture of enough samples."""
        if len(self.times) < LEAST_SAMPLES or self.times[0] == self.times[-1]:
            return []
        return [s for s in self.series if any(v is not None for v in s.values)][:MOST_LINES]


def picture_lines(picture: Picture, width: int, height: int) -> list[Line]:
    """Return the picture in at most `height` lines of `width` cells, or the sentence instead."""
    seen = picture.seen
    if not seen or width < LEAST_WIDTH or height < LEAST_PLOT + AXIS_LINES:
        words = wrapped(picture.few, max(width - 1, 8), " ")[:height]
        return [((part, "dim"),) for part in words]
    plot = height - AXIS_LINES
    ceiling = _ceiling(picture, seen)
    label = _seconds if picture.seconds else short
    scale = _scale(label, ceiling, plot)
    left = max(map(cells, scale))
    legend = _legend(seen, label, ceiling, plot, width * 2 // 5, ascii_only=picture.ascii_only)
    room = width - left - 1 - max((_wide(part) for part in legend), default=0) - 1
    drawn = _drawn(picture, seen, room, plot, ceiling)
    edge = "|" if picture.ascii_only else "│"
    lines: list[Line] = [
        ((f"{scale[y]:>{left}}{edge}", "dim"), *drawn[y], (" ", "text"), legend[y])
        for y in range(plot)
    ]
    return [*lines, *_axis(picture, left, room)]


def short(number: float) -> str:
    """Return a number for an axis.

    >>> short(0), short(2.5), short(1204), short(1_016_400), short(250_000_000)
    ('0', '2.5', '1204', '1016k', '250M')
    """
    if number < 10 and number != int(number):
        return f"{number:.1f}"
    for unit, factor in (("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12)):
        if number < 100_000 * factor:
            return f"{number / factor:.0f}{unit}"
    return f"{number:.0e}"


def _seconds(number: float) -> str:
    return age_words(number) if number else "0"


def _ceiling(picture: Picture, seen: Sequence[Series]) -> float:
    """Return the round number at or above every value."""
    most = max((v for s in seen for v in s.values if v is not None), default=0)
    if picture.seconds:
        days = ceil(most / 172_800) * 172_800
        return next((n for n in _ROUND_SECONDS if n >= most), days)
    if most <= 10:
        return max(1, ceil(most))
    power: int = 10 ** int(log10(most))
    return next(n * power for n in (*_ROUND, 20) if n * power >= most)


def _scale(label: Callable[[float], str], ceiling: float, plot: int) -> list[str]:
    """Return the rows' labels, the top first: the ceiling, half of it if that is round, 0."""
    scale = [""] * plot
    scale[0], scale[-1] = label(ceiling), label(0)
    middle = (plot - 1) // 2
    if plot >= 7 and plot % 2 and ceiling % 2 == 0:
        scale[middle] = label(ceiling / 2)
    return scale


def _legend(
    seen: Sequence[Series],
    label: Callable[[float], str],
    ceiling: float,
    plot: int,
    most: int,
    *,
    ascii_only: bool,
) -> list[Part]:
    """Return each row's name and newest value, beside the end of its line as far as rows allow."""
    shown = sorted(seen[:plot], key=lambda s: -(s.last or 0))
    rows: list[int] = []
    for s in shown:
        wanted = round((1 - (s.last or 0) / ceiling) * (plot - 1))
        rows.append(max(wanted, rows[-1] + 1 if rows else 0))
    for n in range(len(rows)):
        rows[n] = min(rows[n], plot - len(rows) + n)
    legend: list[Part] = [("", "text")] * plot
    for s, row in zip(shown, rows, strict=True):
        sign = f"{_SIGNS[seen.index(s)]} " if ascii_only else ""
        value = "?" if s.last is None else label(s.last)
        name = cut_middle(s.name, max(most - len(sign) - len(value) - 1, 4))
        legend[row] = (f"{sign}{name} {value}", s.role)
    return legend


def _wide(part: Part) -> int:
    return cells(part[0])


def _drawn(
    picture: Picture, seen: Sequence[Series], room: int, plot: int, ceiling: float
) -> list[list[Part]]:
    """Return the rows of the plot, the top first, as runs of one role."""
    across, up = (1, 1) if picture.ascii_only else (2, 4)
    first, last = picture.times[0], picture.times[-1]
    wide, high = room * across - 1, plot * up - 1
    at = [(t - first) * wide // (last - first) for t in picture.times]
    rows: list[dict[int, tuple[int, int]]] = [{} for _ in range(plot)]
    for number, s in reversed(list(enumerate(seen))):
        rising = [None if v is None else round(v * high / ceiling) for v in s.values]
        _put(rows, number, _columns(at, rising, wide + 1), across, up)
    signs = [*_SIGNS] if picture.ascii_only else _BRAILLE
    return [_runs(row, seen, signs, room) for row in reversed(rows)]


def _columns(at: Sequence[int], rising: Sequence[int | None], wide: int) -> list[int]:
    """Return the dots of one line: for each column a number whose bits are its rows, from below."""
    columns = [0] * wide
    x0 = y0 = -1
    for x, y in zip(at, rising, strict=True):
        if y is None:
            x0 = -1
            continue
        if x0 < 0:
            x0, y0 = x, y
        for between in range(x0 + 1, x):
            here = y0 + (y - y0) // (x - x0)
            columns[between] |= _from_to(y0, here)
            x0, y0 = between, here
        columns[x] |= _from_to(y0, y)
        x0, y0 = x, y
    return columns


def _from_to(y0: int, y: int) -> int:
    """Return the dots of a column that go on from row y0 to row y: without y0 unless it is y."""
    if y > y0:
        return (2 << y) - (2 << y0)
    return (1 << y0) - (1 << y) if y < y0 else 1 << y


def _put(
    rows: Sequence[dict[int, tuple[int, int]]],
    number: int,
    columns: Sequence[int],
    across: int,
    up: int,
) -> None:
    """Put a line over those that are drawn: each cell's dots, and the number of its line."""
    cell = (1 << up) - 1
    for x in range(len(columns) // across):
        left, right = columns[x * across], columns[x * across + across - 1]
        both = left | right
        row = ((both & -both).bit_length() - 1) // up if both else 0
        while both >> row * up:
            dots = left >> row * up & cell | (right >> row * up & cell) << up
            if dots:
                known = rows[row].get(x, (0, 0))[0]
                rows[row][x] = (dots | known if up > 1 else number), number
            row += 1


def _runs(
    row: dict[int, tuple[int, int]], seen: Sequence[Series], signs: Sequence[str], room: int
) -> list[Part]:
    """Return the text of a row, cut where the line changes."""
    parts: list[Part] = []
    text, role, end = "", "text", 0
    for x in sorted(row):
        sign, number = row[x]
        if seen[number].role != role:
            parts += [(text, role)] if text else []
            text, role = "", seen[number].role
        text += " " * (x - end) + signs[sign]
        end = x + 1
    return [*parts, (text + " " * (room - end), role)]


def _axis(picture: Picture, left: int, room: int) -> list[Line]:
    """Return the axis with its marks, and below it when it begins and ends."""
    first, last = picture.times[0], picture.times[-1]
    corner, stroke = ("+", "-") if picture.ascii_only else ("└", "─")
    strokes = [stroke] * room
    for at, letter in picture.marks:
        if first <= at <= last:
            x = (at - first) * (room - 1) // (last - first)
            strokes[x] = letter if strokes[x] in (stroke, letter) else "*"
    parts: list[Part] = [(" " * left + corner, "dim")]
    for sign in strokes:
        role = "dim" if sign == stroke else "key"
        if parts[-1][1] == role:
            parts[-1] = (parts[-1][0] + sign, role)
        else:
            parts.append((sign, role))
    begin, end = _times(first, last)
    gap = " " * max(1, room - len(begin) - len(end))
    times = f"{' ' * (left + 1)}{begin}{gap}{end}" if len(begin) + len(end) < room else ""
    return [tuple(parts), ((times, "dim"),)]


def _times(first: int, last: int) -> tuple[str, str]:
    """Return both ends as UTC: seconds where it is short, the day where it is long."""
    span = last - first
    part = slice(11, 19) if span < 600_000 else slice(11, 16)
    if span > 86_400_000:
        part = slice(5, 16)
    begin, end = ((rfc3339(at) or "?")[part].replace("T", " ") for at in (first, last))
    return begin, f"{end}Z"
