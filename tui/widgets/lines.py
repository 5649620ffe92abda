"""Lines of text with roles, and the two plain widgets that show them: a bar and a page."""

import re
from collections.abc import Callable, Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from eoctl.render.width import cells
from recovery.plurals import counted
from tui.widgets.palette import style

Part = tuple[str, str]
"""Text, already made safe by `visible`, and its role."""

Line = tuple[Part, ...]

SLIDER = "slider"
"""The role of a part that is dragged."""

LEFT = 1  # the mouse's button

FRAME_WIDTH, FRAME_HEIGHT = 6, 4
"""Of a dialog: its border and its padding."""

Touched = Callable[[int, int, str, float], None]
"""Called with the line, the part's number and role, and how far along it the mouse is (0 to 1)."""


def plain(line: Line) -> str:
    """Return the text of a line."""
    return "".join(text for text, _ in line)


def line_width(line: Line) -> int:
    """Return the cells of a line."""
    return sum(cells(text) for text, _ in line)


def spread(left: Line, right: Line, width: int, *, fill: str = "text") -> Line:
    """Return a line from both ends; if both do not fit, the left one is cut."""
    room = width - line_width(right)
    gap = room - line_width(left)
    if gap >= 0:
        return (*left, (" " * gap, fill), *right)
    return (*clipped(left, room - 1), (" ", fill), *right)


def clipped(line: Line, room: int) -> Line:
    """Return the start of a line within `room` cells, with an ellipsis if something is cut."""
    from eoctl.render.width import cut_end

    kept: list[Part] = []
    for text, role in line:
        if room <= 0:
            break
        wide = cells(text)
        kept.append((text if wide <= room else cut_end(text, room), role))
        room -= wide
    return (*kept, (" " * max(room, 0), "text"))


def flowed(line: Line, width: int) -> list[Line]:
    """Return a line on as many as it takes; all but the first are indented. Words stay whole."""
    made: list[list[Part]] = [[]]
    room = width
    for text, role in line:
        for word in re.split(r"(?<=\s)(?=\S)", text):
            if cells(word.rstrip()) > room and made[-1]:
                made.append([("   ", role)])
                room = width - 3
            made[-1].append((word, role))
            room -= cells(word)
    return [tuple(parts) for parts in made]


def strip(line: Line, theme: str, width: int, under: str | None = None) -> Strip:
    """Return the line as Textual draws it, exactly `width` cells."""
    filler = style(theme, line[-1][1] if line and line[-1][1] == "head" else "text", under)
    segments = [Segment(text, style(theme, role, under)) for text, role in line]
    return Strip(segments).adjust_cell_length(width, filler)


class Drawn(Widget):
    """A widget that draws lines in roles of the app's theme.

    They are kept until one of them changes: for a change of one widget Textual asks all of them.
    """

    _kept: tuple[Region, list[Strip]] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        if self._kept is None or self._kept[0] != crop:
            self._kept = crop, super().render_lines(crop)
        return self._kept[1]

    def _set_dirty(self, *regions: Region) -> None:
        self._kept = None
        super()._set_dirty(*regions)

    def role_theme(self) -> str:
        """Return the name of the current theme."""
        return str(self.app.theme)


class Bar(Drawn):
    """A few lines, replaced whenever `show` is called; it is as high as their number.

    on_touch: called where the mouse's left button presses; on a slider also as it is dragged.
    """

    DEFAULT_CSS = "Bar { height: auto; width: 1fr; }"

    def __init__(self, height: int, *, name: str) -> None:
        super().__init__(id=name)
        self._height = height
        self.styles.height = height
        self._lines: tuple[Line, ...] = ()
        self.on_touch: Touched = lambda line, part, role, share: None
        self._slides: tuple[int, int] | None = None  # the slider that is dragged

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines; only those that changed are sent to the terminal."""
        new = tuple(lines)
        if new == self._lines:
            return
        old, self._lines = self._lines, new
        if len(new) != self._height:
            self._height = len(new)
            self.styles.height = len(new)
        for y in range(max(len(old), len(new))):
            if old[y : y + 1] != new[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the lines shown."""
        return self._lines

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        return strip(line, self.role_theme(), self.size.width)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        if event.button != LEFT:
            return
        begin = 0
        for number, (text, role) in enumerate(
            self._lines[event.y] if self._lines[event.y :] else ()
        ):
            wide = cells(text)
            if begin <= event.x < begin + wide:
                self.on_touch(event.y, number, role, _share(event.x, begin, wide))
                if role == SLIDER:
                    self._slides = begin, wide
                    self.capture_mouse()
            begin += wide

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._slides is not None:
            self.on_touch(0, 0, SLIDER, _share(event.x, *self._slides))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._slides is not None:
            self._slides = None
            self.release_mouse()


def _share(x: int, begin: int, wide: int) -> float:
    """Return how far along a part x is, from 0 to 1."""
    return max(0.0, min((x - begin) / max(wide - 1, 1), 1.0))


class Page(Drawn, can_focus=True):
    """A page of text: a title line, then lines that can be scrolled.

    The lines depend on the width, so a function of the width makes them.
    """

    DEFAULT_CSS = "Page { width: 1fr; height: 1fr; }"

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name)
        self._make: Callable[[int], Sequence[Line]] = lambda width: ()
        self._title: Callable[[int], Line] = lambda width: ()
        self.shown: tuple[Line, ...] = ()
        self.top = 0

    def show(self, make: Callable[[int], Sequence[Line]], title: Callable[[int], Line]) -> None:
        """Show what `make(width)` returns below the line that `title(width)` returns."""
        self._make, self._title = make, title
        self.remake()

    def retitle(self) -> None:
        """Draw the title line again, because it shows an age."""
        self.refresh(Region(0, 0, self.size.width, 1))

    def move(self, step: int) -> None:
        """Scroll by lines."""
        self.to(self.top + step)

    def to(self, line: int) -> None:
        """Scroll until `line` is at the top, as far as lines follow."""
        top = max(0, min(line, len(self.shown) - self.room))
        if top != self.top:
            self.top = top
            self.refresh()

    @property
    def room(self) -> int:
        """Return the lines below the title."""
        return max(1, self.size.height - 1)

    @property
    def length(self) -> int:
        """Return the lines of the complete page."""
        return len(self.shown)

    def words(self, width: int) -> tuple[Sequence[Line], Line]:
        """Return the lines and the title at a width."""
        return self._make(width), self._title(width)

    def text(self) -> str:
        """Return the page as plain text."""
        return "\n".join(plain(line).rstrip() for line in self.shown)

    def on_resize(self, event: events.Resize) -> None:
        self.remake()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(-3)

    def remake(self) -> None:
        """Make the lines again, for this width."""
        self.take(self._make(max(self.size.width, 20)))
        self.refresh()

    def take(self, lines: Sequence[Line]) -> bool:
        """Take these lines as the page's. Return False if they are the same as before."""
        made = tuple(lines)
        if made == self.shown:
            return False
        self.shown = made
        self.top = max(0, min(self.top, len(made) - self.room))
        return True

    def line(self, y: int) -> Line:
        """Return a line as scrolled; y: lines below the title."""
        number = y + self.top
        return self.shown[number] if number < len(self.shown) else ()

    def render_line(self, y: int) -> Strip:
        width, theme = self.size.width, self.role_theme()
        if y == 0:
            return strip(self._title(width), theme, width)
        line, left = self.line(y - 1), len(self.shown) - self.top - self.room
        if y == self.room and left > 0:
            line = spread(line, ((f" v {counted(left, 'more line')}", "dim"),), width)
        return strip(line, theme, width)


def fit(box: Widget, page: Page, *, most: int = 120, rows: int = 0, widest: int = 0) -> None:
    """Make a dialog as large as its text; if the screen is too small, its page scrolls.

    most: limit of the width. rows: lines of other things in the box; widest: the widest one.
    """
    screen = box.app.size
    room = min(screen.width, most) - FRAME_WIDTH
    lines, title = page.words(room)
    wide = max(widest, line_width(title), *(line_width(line) for line in lines), 0) + 1
    high = len(lines) + 1 + rows
    tight = high + FRAME_HEIGHT > screen.height
    box.styles.padding = (0 if tight else 1, 2)
    box.styles.width = min(wide, room) + FRAME_WIDTH
    box.styles.height = min(high + FRAME_HEIGHT - 2 * tight, screen.height)
