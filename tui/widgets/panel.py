"""A page of text, or a picture, within an edge."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from textual import events
from textual.geometry import Region
from textual.strip import Strip

from recovery.plurals import counted
from tui.widgets.edges import EDGE, Edged, Titles
from tui.widgets.lines import Line, Page, flowed, strip

if TYPE_CHECKING:
    from tui.widgets.charts import Picture


class Panel(Edged, Page):
    """Shows lines that can be scrolled. on_length: called when it has more or fewer of them."""

    def __init__(self, *, name: str, title: str = "") -> None:
        super().__init__(name=name)
        self.title = title
        self._titles: Callable[[], Titles] = lambda: (((f" {self.title} ", "title"),), ())
        self._edges: tuple[Titles, Line] = (((), ()), ())  # as drawn last
        self.on_length: Callable[[], None] = lambda: None
        self._of: object = None
        self._made: tuple[object, int] = (None, 0)  # of what the lines are, and their width

    def fill(
        self,
        make: Callable[[int], Sequence[Line]],
        titles: Callable[[], Titles] | None = None,
        of: object = None,
    ) -> None:
        """Show what `make(width)` returns. titles: what is on the edge, if not the title alone.

        of: the only object from which the lines are made: while it is the same, so are they. None:
        they are made again each time.
        """
        self._make, self._titles, self._of = make, titles or self._titles, of
        self.remake()

    def _lines(self, width: int) -> Sequence[Line]:
        of, wide = self._made
        if self._of is not None and self._of is of and width == wide:
            return self.shown
        self._made = self._of, width
        return self._make(width)

    def titles(self) -> Titles:
        return self._titles()

    def note(self) -> Line:
        left = self.length - self.top - self.room
        return ((f" v {counted(left, 'more line')} ", "dim"),) if left > 0 else ()

    @property
    def room(self) -> int:
        return max(1, self.high)

    def body(self, y: int, width: int) -> Strip:
        return strip(self.line(y), self.role_theme(), width)

    def on_resize(self, event: events.Resize) -> None:
        self.remake()
        self.refresh()  # it may have been drawn with the lines of its former size

    def retitle(self) -> None:
        self.refresh(Region(0, 0, self.size.width, EDGE))

    def remake(self) -> None:
        """Make the lines again; only those that changed are sent to the terminal."""
        width, room, top = self.wide, self.room, self.top
        if not width:
            return
        before, edges = self.shown, self._edges
        self.take(self._lines(width))
        self._edges = self.titles(), self.note()
        if len(before) != len(self.shown):
            self.on_length()
        if self.top != top:
            self.refresh()
            return
        old, new = before[top : top + room], self.shown[top : top + room]
        changed = [n for n, (a, b) in enumerate(zip_longest(old, new), EDGE) if a != b]
        ends = (0, room + EDGE)  # the edges' own lines
        changed += [y for y, a, b in zip(ends, edges, self._edges, strict=True) if a != b]
        for y in changed:
            self.refresh(Region(0, y, width + 2 * EDGE, 1))


class PicturePanel(Panel):
    """Shows a picture in all its room; a sentence, or other lines, if there is nothing to draw."""

    fills = False  # a picture is shown

    def draw(self, picture: "Picture | None", instead: Sequence[Line] = ()) -> None:
        """Show this picture. instead: what is said where it has no line yet."""
        self.fills = picture is not None and bool(picture.seen)
        if picture is not None:
            self.title = picture.title
        if picture is None or not self.fills:
            few: Line = ((f" {picture.few}", "dim"),) if picture is not None else ()
            lines = [line for line in (*instead, few) if line]
            self.fill(lambda width: [part for line in lines for part in flowed(line, width)])
            return
        from tui.widgets.charts import picture_lines  # loaded after the first paint

        self.fill(lambda width: picture_lines(picture, width, self.room))
