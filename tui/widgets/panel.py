"""A page of text within an edge; a picture is one whose lines depend on its height, too."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from textual.geometry import Region
from textual.strip import Strip

from recovery.plurals import counted
from tui.widgets.edges import EDGE, Edged, Titles
from tui.widgets.lines import Line, Page, strip


class Panel(Edged, Page):
    """Shows lines that can be scrolled. on_length: called when it has more or fewer of them."""

    def __init__(self, *, name: str, title: str = "") -> None:
        super().__init__(name=name)
        self.title = title
        self._titles: Callable[[], Titles] = lambda: (((f" {self.title} ", "title"),), ())
        self._edges: tuple[Titles, Line] = (((), ()), ())  # as drawn last
        self.on_length: Callable[[], None] = lambda: None

    def fill(
        self, make: Callable[[int], Sequence[Line]], titles: Callable[[], Titles] | None = None
    ) -> None:
        """Show what `make(width)` returns. titles: what is on the edge, if not the title alone."""
        self._make, self._titles = make, titles or self._titles
        self.remake()

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

    def retitle(self) -> None:
        self.refresh(Region(0, 0, self.size.width, EDGE))

    def remake(self) -> None:
        """Make the lines again; only those that changed are sent to the terminal."""
        width, room, top = self.wide, self.room, self.top
        if not width:
            return
        before, edges = self.shown, self._edges
        self.take(self._make(width))
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
        if changed:
            first = min(changed)
            self.refresh(Region(0, first, width + 2 * EDGE, max(changed) - first + 1))


class Picture(Panel):
    """Shows a drawing that fills its panel."""

    def draw(self, make: Callable[[int, int], Sequence[Line]]) -> None:
        """Show what `make(width, height)` returns."""
        self.fill(lambda width: make(width, self.room))
