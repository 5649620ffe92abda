"""Draw what was held, topic by topic, in the available room."""

from collections.abc import Sequence

from eoctl.render.width import cells, cut_middle
from eoctl.render.words import age as age_words
from recovery.plurals import count, counted
from recovery.times import rfc3339
from tui.board.history import Board, Lane, Mark
from tui.widgets.lines import Line, clipped
from tui.widgets.trend import BUCKETS, bars, cell_of

TALLEST = 10  # lines of one lane
HEAD, AXIS = 1, 1


def board_lines(board: Board, width: int, height: int) -> list[Line]:
    """Return the heading, each topic's held offsets and oldest age, then the time axis."""
    if not board.lanes:
        return [((" waiting for the first answer", "dim"),)]
    name = 18 if width < 90 else 28
    number = max(5, *(len(str(lane.held)) for lane in board.lanes))
    aged = max(4, *(len(lane.age) for lane in board.lanes))
    wide = max(8, min(BUCKETS, (width - name - number - aged - 7) // 2))
    widths = (name, number, aged, wide)
    axis = height > 4
    elsewhere = bool(board.elsewhere) and height > 6
    room = height - HEAD - axis - elsewhere
    shown: list[Lane] = []
    marked = 0
    for lane in board.lanes:
        if len(shown) + 1 + marked + bool(lane.marks) > room:
            break
        shown.append(lane)
        marked += bool(lane.marks)
    tall, spare = divmod(room - marked, max(len(shown), 1))
    made = [_titles(board, *widths)]
    for n, lane in enumerate(shown):
        made += _lane(board, lane, widths, min(TALLEST, tall + (n < spare)))
        if lane.marks:
            made.append(_marks(lane.marks, widths, "changes"))
    if elsewhere:
        made.append(_marks(board.elsewhere, widths, "other changes"))
    if axis:
        made.append(_axis(board, widths, len(board.lanes) - len(shown) + board.more_topics))
    return [clipped(line, width) for line in made]


Widths = tuple[int, int, int, int]
"""Of a lane's name, number, age, and each of its two drawings."""


def _titles(board: Board, name: int, number: int, aged: int, wide: int) -> Line:
    held = f"{'HELD':>{number}} ^{count(board.held_ceiling)}"
    ages = f"{'AGE':>{aged}} ^{age_words(board.age_ceiling)}"
    room = number + 1 + wide
    return (
        (f" {'TOPIC':<{name}} ", "dim"),
        (f"{held:<{room}}  {ages:<{aged + 1 + wide}}", "dim"),
    )


def _lane(board: Board, lane: Lane, widths: Widths, tall: int) -> list[Line]:
    name, number, aged, wide = widths
    held = bars(lane.held_samples, wide, tall, board.held_ceiling, ascii_only=board.ascii_only)
    ages = bars(lane.age_samples, wide, tall, board.age_ceiling, ascii_only=board.ascii_only)
    made: list[Line] = []
    for n in range(tall):
        last = n == tall - 1
        words = cut_middle(lane.topic, name) if last else ""
        pad = " " * (name - cells(words))
        made.append(
            (
                (f" {words}{pad} ", "text"),
                (f"{lane.held if last else '':>{number}} ", "text"),
                (f"{held[n]:<{wide}}", "spark"),
                (f"  {lane.age if last else '':>{aged}} ", "text"),
                (f"{ages[n]:<{wide}}", "spark"),
            )
        )
    return made


def _marks(marks: Sequence[Mark], widths: Widths, label: str) -> Line:
    """Return a line with each change's letter below the time when the change began."""
    name, number, aged, wide = widths
    signs = [" "] * wide
    for bucket, letter in marks:
        cell = cell_of(bucket, wide)
        signs[cell] = letter if signs[cell] in (" ", letter) else "*"
    drawn = "".join(signs)
    return (
        (f" {label:<{name}} {'':>{number}} ", "dim"),
        (drawn, "key"),
        (f"  {'':>{aged}} ", "dim"),
        (drawn, "key"),
    )


def _axis(board: Board, widths: Widths, more: int) -> Line:
    """Return the times at both ends of the drawings, and how many topics have no lane."""
    name, number, aged, wide = widths
    begin = (rfc3339(board.until - board.seconds * 1000) or "?")[11:16]
    end = (rfc3339(board.until) or "?")[11:16] + "Z"
    times = begin + end.rjust(wide - len(begin))
    left = f"{counted(more, 'more topic')}" if more > 0 else ""
    return ((f" {left:<{name}} {'':>{number}} {times}  {'':>{aged}} {times}", "dim"),)
