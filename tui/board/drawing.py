"""Draw the board in the available room: pictures, and the parts below or beside them."""

from collections.abc import Sequence

from recovery.plurals import count
from tui.board.history import Board, Part
from tui.widgets.charts import Picture, picture_lines
from tui.widgets.lines import Line, clipped

NARROWEST = 60
BRIEF = 12  # below this height each part has one line, and there is no picture
BRIEF_NARROW = 16  # the height if the parts are below each other
BESIDE = 150  # from this width on the parts are beside the pictures
COLUMNS = 100  # from this width on pictures and parts are in two columns
PARTS_WIDTH = 66
LOWEST, TALLEST = 7, 16  # lines of a picture, with its title


def height_of(board: Board, width: int, room: int, rows: int) -> int:
    """Return the board's lines of `room`: those that a list of `rows` lines leaves, or a few."""
    if room < 14 or width < NARROWEST or not board.pictures:
        return 0
    lines = min(_most(board, width), max(room * 2 // 5, room - rows))
    return len(board.parts) if _brief(width, lines) else lines


def board_lines(board: Board, width: int, height: int) -> list[Line]:
    """Return the board in at most `height` lines of `width` cells."""
    if width < NARROWEST:
        return []
    if width >= BESIDE and height >= BRIEF:
        left = width - PARTS_WIDTH
        pictures = _pictures(board.pictures, left - 2, height)
        parts = _stacked(board.parts, PARTS_WIDTH, height)
        return _beside(pictures, parts, left, height)
    if _brief(width, height):
        return [clipped(part.brief, width) for part in board.parts[:height]]
    if width >= COLUMNS:
        half = width // 2
        most = height * 3 // 5
        one = _stacked(board.parts[:2], half - 2, most)
        other = _stacked(board.parts[2:], width - half, most)
        parts = _beside(one, other, half, max(len(one), len(other)))
    else:
        parts = _stacked(board.parts, width, height * 3 // 5)
    return [*_pictures(board.pictures, width, height - len(parts)), *parts]


def _brief(width: int, height: int) -> bool:
    return height < (BRIEF if width >= COLUMNS else BRIEF_NARROW)


def _pictures(pictures: Sequence[Picture], width: int, height: int) -> list[Line]:
    """Return as many pictures as fit, in rows of one or two, then what cannot be drawn yet."""
    columns = 2 if width >= COLUMNS else 1
    sentences = [_sentence(picture, width) for picture in _undrawn(pictures)]
    height -= len(sentences)
    shown = [p for p in pictures if p.seen][: columns * max(1, height // LOWEST)]
    rows = [shown[n : n + columns] for n in range(0, len(shown), columns)]
    made: list[Line] = []
    for number, row in enumerate(rows):
        room = min(TALLEST, (height - len(made)) // (len(rows) - number))
        at = width if len(row) == 1 else width // 2
        blocks = [_titled(picture, at - 2 * (len(row) > 1), room) for picture in row]
        made += _beside(blocks[0], blocks[1], at, room) if len(row) > 1 else blocks[0]
    return [*made, *sentences]


def _undrawn(pictures: Sequence[Picture]) -> list[Picture]:
    """Return those of the first two that have no line yet; the others then say nothing."""
    return [p for p in pictures[:2] if not p.seen]


def _sentence(picture: Picture, width: int) -> Line:
    return clipped(((f" {picture.title}  ", "title"), (picture.few, "dim")), width)


def _titled(picture: Picture, width: int, height: int) -> list[Line]:
    return [((f" {picture.title}", "title"),), *picture_lines(picture, width, height - 1)]


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


def _most(board: Board, width: int) -> int:
    """Return the most lines that the board can fill."""
    drawn = sum(bool(p.seen) for p in board.pictures)
    rows = -(-drawn // 2) if width >= COLUMNS else drawn
    pictures = rows * TALLEST + len(_undrawn(board.pictures))
    parts = sum(len(part.lines) + 1 for part in board.parts)
    return max(pictures, parts) if width >= BESIDE else pictures + parts
