"""Draw the board in the available room: the topics' lanes, and the parts below or beside them."""

from collections.abc import Sequence

from eoctl.render.width import cells, cut_middle
from eoctl.render.words import age as age_words
from recovery.plurals import count, counted
from recovery.times import rfc3339
from tui.board.history import Board, Lane, Mark, Part
from tui.widgets.lines import Line, clipped
from tui.widgets.trend import BUCKETS, bars, cell_of

NARROWEST = 60
BRIEF = 12  # below this height each part has one line
BRIEF_NARROW = 16  # the height if the parts are below each other
BESIDE = 150  # from this width on the parts are beside the lanes
COLUMNS = 100  # from this width on the parts are in two columns below the lanes
PARTS_WIDTH = 66
TALLEST = 10  # lines of one lane
HEAD, AXIS = 1, 1


def height_of(board: Board, width: int, room: int, rows: int) -> int:
    """Return the board's lines of `room`: those that a list of `rows` lines leaves, or a few."""
    own = 0 if room < 14 or width < NARROWEST else 7 if room < 24 else room * 2 // 5
    return min(_most(board, width), max(own, room - rows)) if own and board.lanes else 0


def board_lines(board: Board, width: int, height: int) -> list[Line]:
    """Return the board in at most `height` lines of `width` cells."""
    if width < NARROWEST:
        return []
    if width >= BESIDE and height >= BRIEF:
        left = width - PARTS_WIDTH
        lanes = _lanes(board, left - 2, height)
        parts = _stacked(board.parts, PARTS_WIDTH, height)
        return _beside(lanes, parts, left, height)
    if height < (BRIEF if width >= COLUMNS else BRIEF_NARROW):
        briefs = [part.brief for part in board.parts][: max(0, height - HEAD - 1)]
        lanes = _lanes(board, width, height - len(briefs))
        return [clipped(line, width) for line in (*lanes, *briefs)]
    if width >= COLUMNS:
        half = width // 2
        most = height * 3 // 5
        one = _stacked(board.parts[:2], half - 2, most)
        other = _stacked(board.parts[2:], width - half, most)
        parts = _beside(one, other, half, max(len(one), len(other)))
    else:
        parts = _stacked(board.parts, width, height * 3 // 5)
    return [*_lanes(board, width, height - len(parts)), *parts]


def _beside(left: Sequence[Line], right: Sequence[Line], at: int, most: int) -> list[Line]:
    """Return two blocks of lines next to each other, the right one from column `at`."""
    made = []
    for n in range(min(most, max(len(left), len(right)))):
        first = clipped(left[n] if n < len(left) else (), at - 2)
        made.append((*first, ("  ", "text"), *(right[n] if n < len(right) else ())))
    return made


def _stacked(parts: Sequence[Part], width: int, height: int) -> list[Line]:
    """Return the parts below each other; if they do not fit, the longest are cut and say so."""
    room = {part.title: len(part.lines) for part in parts}
    while sum(room.values()) + len(parts) > height and max(room.values(), default=0) > 1:
        longest = max(room, key=lambda title: room[title])
        room[longest] -= 1
    made: list[Line] = []
    for part in parts:
        shown = room[part.title]
        more = len(part.lines) - shown
        title = (f" {part.title}", "title")
        made.append((title, (f"  {count(more)} more", "dim")) if more else (title,))
        made += [clipped(line, width) for line in part.lines[:shown]]
    return made[:height]


def _lanes(board: Board, width: int, height: int) -> list[Line]:
    """Return the heading, each topic's held offsets and oldest age, then the time axis."""
    name = 18 if width < 100 else 28
    number = max(5, *(len(str(lane.held)) for lane in board.lanes))
    aged = max(4, *(len(lane.age) for lane in board.lanes))
    wide = min(BUCKETS, (width - name - number - aged - 7) // 2)
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
    return made


Widths = tuple[int, int, int, int]
"""Of a lane's name, number, age, and each of its two drawings."""


def _titles(board: Board, name: int, number: int, aged: int, wide: int) -> Line:
    left = cut_middle(f"Last {age_words(board.seconds)}", name)
    held = f"{'HELD':>{number}} ^{count(board.held_ceiling)}"
    ages = f"{'AGE':>{aged}} ^{age_words(board.age_ceiling)}"
    room = number + 1 + wide
    return (
        (f" {left:<{name}} ", "title"),
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


def _most(board: Board, width: int) -> int:
    """Return the most lines that the board can fill."""
    lanes = len(board.lanes) * TALLEST + sum(bool(lane.marks) for lane in board.lanes)
    lanes += HEAD + AXIS + bool(board.elsewhere)
    parts = sum(len(part.lines) + 1 for part in board.parts)
    return max(lanes, parts) if width >= BESIDE else lanes + parts
