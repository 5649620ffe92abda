"""The only table: draws the visible lines of an immutable tuple of rows, and keeps its place.

The cursor follows its row's key. Rows keep their order until a sort key is pressed; a row that
vanished stays, struck through, until the next key. Only changed lines are drawn again.
"""

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip

from eoctl.render.tables import Column
from eoctl.render.width import cells, cut_end
from tui.widgets.edges import EDGE, Edged, Titles
from tui.widgets.lines import Line, strip
from tui.widgets.palette import style
from tui.widgets.table_state import TableState
from tui.widgets.tables import GUTTER, TableData, TableRow, fitted, title_of

MARK_ROLES = {"!!": "act", "!": "look", "?": "unknown"}
HEAD_LINES = 2  # the edge with the panel's title, the columns' titles
FRAME_LINES = HEAD_LINES + EDGE
MOST_DRAWN = 500  # rows whose drawing is kept
LEADS = 1  # the column after the mark has its colour: the eye finds the row before it reads


class Table(Edged, can_focus=True):
    """Draws a TableState.

    on_cursor: called when the cursor's row changes; on_open: when a row is clicked twice;
    on_heading: with the letter of the column whose heading is clicked, "" of the marks.
    """

    DEFAULT_CSS = "Table { width: 1fr; height: 1fr; }"

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name)
        self.state = TableState(TableData(()))
        self.title: Callable[[], Titles] = lambda: ((), ())
        self.on_cursor: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_heading: Callable[[str], None] = lambda letter: None
        self._drawn: dict[str, tuple[TableRow, Strip]] = {}  # rows as they were drawn
        self._drawn_for: object = None  # their theme, width and columns

    # -- what the app calls ------------------------------------------------------------------

    def show(self, state: TableState) -> None:
        """Show another screen's table."""
        self.state = state
        self._lay_out(again=True)
        self._keep_in_view()
        self.refresh()
        self.on_cursor()

    def renew(self, data: TableData) -> None:
        """Show newer rows of the current screen."""
        state = self.state
        old = [self._at(y) for y in range(self.room)]
        order, titles = state.order, state.data.titles
        count = len(order)
        state.renew(data)
        before = state.shown
        self._lay_out()
        if before != state.shown or not count or state.order is not order:
            self._keep_in_view()
            self.refresh()
        else:
            width = self.size.width
            for y, was in enumerate(old):
                now = self._at(y)
                if now is was or (now and was and now.looks_like(was) and not self._is_gone(now)):
                    continue
                self.refresh(Region(0, y + HEAD_LINES, width, 1))
            self.retitle()
            if titles != state.data.titles:
                self.refresh(Region(0, EDGE, width, 1))
        self.on_cursor()

    def retitle(self) -> None:
        """Draw the edge again: it shows an age and counts."""
        self.refresh(Region(0, 0, self.size.width, EDGE))

    def settle(self) -> None:
        """Filter and sort again; keep the cursor's row on its line of the screen if possible."""
        state = self.state
        line = state.cursor_index - state.top
        state.settle()
        state.top = max(0, state.cursor_index - line)
        self._keep_in_view()
        self.refresh()
        self.on_cursor()

    def drop_gone(self) -> None:
        """Remove vanished rows, after a key press."""
        if self.state.gone:
            state = self.state
            index = state.cursor_index
            state.order = [key for key in state.order if key not in state.gone]
            if state.cursor in state.gone:
                state.cursor = (
                    state.order[min(index, len(state.order) - 1)] if state.order else None
                )
            state.gone.clear()
            self._keep_in_view()
            self.refresh()
            self.on_cursor()

    def pick(self, key: str) -> None:
        """Move the cursor to a row; a filter that hides it ends."""
        if key not in self.state.order:
            self.state.filter = None
            self.settle()
        if key in self.state.order:
            self.to(self.state.order.index(key))

    def move(self, step: int) -> None:
        """Move the cursor by rows."""
        self.to(self.cursor_index + step)

    def to(self, index: int) -> None:
        """Move the cursor to the row at `index` of the shown order."""
        state = self.state
        if not state.order:
            return
        old = self.cursor_index
        index = max(0, min(index, len(state.order) - 1))
        state.point(index)
        state.moved = index > 0
        top = state.top
        self._keep_in_view()
        if state.top != top:
            self.refresh()
        else:
            for line in {old, index}:
                self.refresh(Region(0, line - top + HEAD_LINES, self.size.width, 1))
            self.retitle()
        self.on_cursor()

    def turn(self, step: int) -> None:
        """Move by columns to the cell that is copied."""
        shown = [i for i, _ in self.state.shown]
        if shown:
            at = shown.index(self.state.column) if self.state.column in shown else 0
            self.state.column = shown[max(0, min(at + step, len(shown) - 1))]
            self.refresh()

    def select(self) -> None:
        """Mark the cursor's row, or remove its mark; the cursor moves on."""
        if self.state.cursor is not None:
            self.state.selected ^= {self.state.cursor}
            self.refresh()
            self.move(1)

    @property
    def cursor_index(self) -> int:
        """Return the cursor's place in the shown order."""
        return self.state.cursor_index

    @property
    def current(self) -> TableRow | None:
        """Return the cursor's row."""
        return self.state.row(self.state.cursor) if self.state.cursor is not None else None

    @property
    def room(self) -> int:
        """Return how many rows fit."""
        return max(1, self.size.height - FRAME_LINES)

    # -- drawing -----------------------------------------------------------------------------

    def _lay_out(self, *, again: bool = False) -> None:
        self.state.lay_out(self.wide, again=again)
        shown = [i for i, _ in self.state.shown]
        if self.state.column not in shown:
            self.state.column = next(
                (i for i in shown if self.state.data.columns[i].kind != "mark"), 0
            )

    def _keep_in_view(self) -> None:
        state, index = self.state, self.cursor_index
        most = max(0, len(state.order) - self.room)
        state.top = max(0, min(state.top, index, most))
        if index >= state.top + self.room:
            state.top = index - self.room + 1

    def _at(self, y: int) -> TableRow | None:
        number = self.state.top + y
        if number >= len(self.state.order):
            return None
        return self.state.row(self.state.order[number])

    def _is_gone(self, row: TableRow) -> bool:
        return row.key in self.state.gone

    def titles(self) -> Titles:
        return self.title()

    def body(self, y: int, width: int) -> Strip:
        theme = self.role_theme()
        if y == 0:
            return self._heads(theme, width)
        row = self._at(y - 1)
        if row is not None:
            return self._plain_row(row, theme, width)
        text = ""
        if y == 1 and not self.state.order:
            filtered = self.state.filter is not None and self.state.data.rows
            text = "   nothing matches the filter" if filtered else f"   {self.state.data.empty}"
        return strip(((text, "dim"),), theme, width)

    def _heads(self, theme: str, width: int) -> Strip:
        state = self.state
        parts = ["  "]
        for i, size in self.state.shown:
            column = state.data.columns[i]
            title, gap = title_of(state.data, i), 1 if column.kind == "mark" else 2
            text = fitted(title, column, size) + " " * gap
            if i == state.sort:
                arrow = ("^v" if self.ascii_only else "↑↓")[state.descending]
                last = i == self.state.shown[-1][0]
                text, taken = sorted_title(title, arrow, size, gap * (not last), column.right)
                parts[-1] = parts[-1][: len(parts[-1]) - taken]
            parts.append(text)
        line: Line = (("".join(parts), "title"),)
        return strip(line, theme, width)

    def _plain_row(self, row: TableRow, theme: str, width: int) -> Strip:
        """Return a row as drawn before, if it is; scrolling shows nearly the same rows again."""
        state = self.state
        if row.key == state.cursor or row.key in state.selected or self._is_gone(row):
            return self._row(row, theme, width)
        made_for = (theme, width, tuple(self.state.shown))
        if self._drawn_for != made_for or len(self._drawn) > MOST_DRAWN:
            self._drawn_for = made_for
            self._drawn.clear()
        known = self._drawn.get(row.key)
        if known is None or known[0] is not row:
            known = self._drawn[row.key] = row, self._row(row, theme, width)
        return known[1]

    def _row(self, row: TableRow, theme: str, width: int) -> Strip:
        state = self.state
        here = row.key == state.cursor
        selected = row.key in state.selected
        gone = self._is_gone(row)
        under = "cursor" if here else None
        base = "gone" if gone else "acts" if selected else "text"
        plain = style(theme, "text", under)
        gutter = (">" if here else " ") + ("*" if selected else " ")
        parts = [(gutter, style(theme, "acts" if selected else "text", under))]
        used = GUTTER
        for i, size in self.state.shown:
            column = state.data.columns[i]
            drawn = style(theme, _role(column, row, base, leads=i == LEADS), under)
            if here and i == state.column and column.kind not in ("mark", "spark"):
                drawn += style(theme, "cell")
            gap = min(1 if column.kind == "mark" else 2, max(0, width - used - size))
            parts += [(fitted(row.cells[i], column, size), drawn), (" " * gap, plain)]
            used += size + gap
        parts.append((" " * max(0, width - used), plain))
        made = Strip(joined(parts), max(used, width))
        return made if used <= width else made.crop(0, width)

    # -- events ------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()
        self._keep_in_view()
        self.refresh()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(-3)

    def _heading_at(self, x: int) -> str | None:
        """Return the letter of the column at x, "" of the marks'; None where no column sorts."""
        end = EDGE + GUTTER
        for i, size in self.state.shown:
            column = self.state.data.columns[i]
            end += size + (1 if column.kind == "mark" else 2)
            if x < end:
                return column.letter or ("" if column.kind == "mark" else None)
        return None

    def on_click(self, event: events.Click) -> None:
        line = event.y - HEAD_LINES
        if line == -1 and (letter := self._heading_at(event.x)) is not None:
            self.on_heading(letter)
        if 0 <= line < self.room and self._at(line) is not None:
            self.to(self.state.top + line)
            if event.chain > 1:
                self.on_open()


def sorted_title(title: str, arrow: str, size: int, gap: int, right: bool) -> tuple[str, int]:
    """Return a title with the arrow beside it, and how many blanks before its column it takes.

    size: the column's cells; gap: the blanks after it. right: it is a number's.

    >>> sorted_title("HW", "v", 4, 2, True), sorted_title("HW", "v", 2, 2, True)
    ((' vHW  ', 0), ('vHW  ', 1))
    >>> sorted_title("NAME", "v", 4, 2, False), sorted_title("NAME", "v", 4, 0, False)
    (('NAMEv ', 0), ('NA…v', 0))
    """
    if right:
        text = arrow + cut_end(title, size)
        blank = size - cells(text)
        return " " * blank + text + " " * gap, int(blank < 0)
    text = cut_end(title, size if gap else size - 1) + arrow
    return text + " " * (size + gap - cells(text)), 0


def joined(parts: Sequence[tuple[str, Style]]) -> list[Segment]:
    """Return neighbours of one style as one segment: what Textual does, it does for each."""
    made: list[Segment] = []
    texts: list[str] = []
    before = parts[0][1]
    for text, drawn in parts:
        if drawn is not before:
            made.append(Segment("".join(texts), before))
            texts, before = [], drawn
        texts.append(text)
    made.append(Segment("".join(texts), before))
    return made


def _role(column: Column, row: TableRow, base: str, *, leads: bool) -> str:
    if base == "gone":
        return base
    if column.kind == "mark" or (leads and base == "text"):
        return MARK_ROLES.get(row.mark, base)
    if column.kind == "spark":
        return "spark"
    return base
