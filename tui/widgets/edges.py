"""The edge around a panel: it carries the title, what does not fit, and marks the focus."""

from rich.segment import Segment
from textual import events
from textual.strip import Strip

from tui.widgets.lines import Drawn, Line, Part, clipped, line_width, strip
from tui.widgets.palette import style

EDGE = 1  # cells on each side
_ROUND, _ASCII = "╭─╮│╰╯", "+-+|++"
Titles = tuple[Line, Line]
"""What is on the left and on the right of a panel's upper edge."""


class Edged(Drawn):
    """A widget that draws its lines within an edge; Textual's would draw all again for a title."""

    ascii_only = False
    placed = True  # set by the layout: a panel without room gets no focus

    def titles(self) -> Titles:
        """Return the texts on the upper edge."""
        raise NotImplementedError

    def note(self) -> Line:
        """Return the text on the lower edge."""
        return ()

    def body(self, y: int, width: int) -> Strip:
        """Return a line within the edge, exactly `width` cells."""
        raise NotImplementedError

    @property
    def wide(self) -> int:
        """Return the cells between the edges."""
        return max(0, self.size.width - 2 * EDGE)

    @property
    def high(self) -> int:
        """Return the lines between the edges."""
        return max(0, self.size.height - 2 * EDGE)

    def allow_focus(self) -> bool:
        """Return True if the panel has room on the screen."""
        return self.placed

    def on_focus(self, event: events.Focus) -> None:
        self.refresh()

    def on_blur(self, event: events.Blur) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        size, theme = self.size, self.role_theme()
        width = size.width
        signs = _ASCII if self.ascii_only else _ROUND
        role = "key" if self.has_focus else "edge"
        if y == 0:
            left, right = self.titles()
            named = left if role == "key" else tuple(_unfocused(part) for part in left)
            return strip(_edge(named, right, width, role, signs[:3]), theme, width)
        if y == size.height - 1:
            corners = signs[4] + signs[1] + signs[5]
            return strip(_edge((), self.note(), width, role, corners), theme, width)
        side = Segment(signs[3], style(theme, role))
        return Strip([side, *self.body(y - 1, width - 2 * EDGE), side], width)


def _unfocused(part: Part) -> Part:
    return (part[0], "text") if part[1] == "title" else part


def _edge(left: Line, right: Line, width: int, role: str, signs: str) -> Line:
    """Return an edge with its texts; the left one is cut if both do not fit. signs: its parts."""
    first, dash, last = signs[0], signs[1], signs[2]
    room = max(width - 4 * EDGE, 0)
    shown = right if line_width(right) <= room else ()
    rest = room - line_width(shown)
    if line_width(left) > rest:
        left = clipped(left, rest)
    dashes = dash * (rest - line_width(left))
    return ((first + dash, role), *left, (dashes, role), *shown, (dash + last, role))
