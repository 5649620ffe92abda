"""A map of the held partitions where they are too many for a list: a cell each, or a few in one.

Their order is that of topics and partitions, so that a cell stays where it is. The map has no
cursor of its own: it shows the list's, and moves it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log
from operator import is_

from textual import events
from textual.geometry import Region
from textual.strip import Strip

from eoctl.render.words import age as age_words
from recovery.inspect.cluster_rows import LsoRow
from recovery.plurals import count
from tui.widgets.charts import short
from tui.widgets.edges import EDGE, Edged, Titles
from tui.widgets.lines import Line, Part, strip
from tui.widgets.tables import TableRow, urgency

LEAST = 100  # held partitions from which on the map is shown
Levels = tuple[str, str, str]
"""Signs of rising values, with ASCII only, and the role."""
LEVELS: Mapping[str, Levels] = {
    "!!": ("░▒▓█", "ABCD", "act"),
    "!": ("▁▃▅▇", "abcd", "look"),
    "?": ("????", "????", "unknown"),
    "": ("·-+*", ".-+*", "text"),
}
"""By the mark of a cell's worst partition: signs differ, too, not colours alone."""
WORDS = {"!!": "act", "!": "look", "?": "cannot tell", "": "within limits"}


def mapped(rows: Sequence[TableRow], before: tuple[TableRow, ...]) -> tuple[TableRow, ...]:
    """Return the held partitions in the map's order; none if a list shows them as well.

    rows: of the Partitions screen, whose first ones are held. before: returned if nothing changed.
    """
    held = []
    for row in rows:
        if not (isinstance(row.source, LsoRow) and (row.source.held or row.mark)):
            break
        if row.source.held:
            held.append(row)
    found = tuple(sorted(held, key=_place)) if len(held) >= LEAST else ()
    alike = len(found) == len(before) and all(map(is_, found, before))
    return before if alike else found


def _place(row: TableRow) -> tuple[str, int]:
    assert isinstance(row.source, LsoRow)
    return row.source.topic, row.source.partition


def _held(row: TableRow) -> float:
    """Return a partition's offsets that are held."""
    return float(row.source.held or 0) if isinstance(row.source, LsoRow) else 0.0


def _age(row: TableRow) -> float:
    """Return for how many seconds a partition is held; 0 if not known."""
    blocking = row.source.blocking if isinstance(row.source, LsoRow) else None
    return (blocking.age_seconds if blocking is not None else None) or 0.0


def _levels(values: Sequence[float]) -> list[int]:
    """Return 0 to 3 for each value: quarters of the way from the lowest to the highest, as powers.

    >>> _levels([1, 10, 100, 1000, 10_000]), _levels([5, 5])
    ([0, 0, 1, 2, 3], [3, 3])
    """
    low, high = (log(1 + end) for end in (min(values, default=0), max(values, default=0)))
    if low == high:
        return [3] * len(values)
    return [min(int(4 * (log(1 + value) - low) / (high - low)), 3) for value in values]


class HeatMap(Edged, can_focus=True):
    """Draws the map. on_pick: called with the key of the partition that a key or the mouse picks.

    picked: returns the list's cursor. by_age: whether cells show ages, else what is held.
    """

    DEFAULT_CSS = "HeatMap { width: 1fr; height: 1fr; }"

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name)
        self.rows: tuple[TableRow, ...] = ()
        self.by_age = False
        self.on_pick: Callable[[str], None] = lambda key: None
        self.on_open: Callable[[], None] = lambda: None
        self.picked: Callable[[], str | None] = lambda: None
        self._index: Mapping[str, int] = {}
        self._here = -1  # the cell of the list's cursor, as drawn
        self._cells: Line = ()
        self.across, self.in_line, self.each = 1, 1, 1  # see `measure`

    def show(self, rows: tuple[TableRow, ...], *, by_age: bool) -> None:
        """Show these partitions. Without the focus the cursor is drawn once it rests: `point`."""
        if rows is not self.rows or by_age != self.by_age:
            self._index = {row.key: number for number, row in enumerate(rows)}
            self.rows, self.by_age = rows, by_age
            self.measure()
            self.refresh()
        elif self.has_focus:
            self.point()

    def point(self) -> None:
        """Draw the cell of the list's cursor."""
        here = self._cursor()
        if here != self._here:
            lines = {cell // self.in_line for cell in (self._here, here) if cell >= 0}
            self._here = here
            for line in lines:
                self.refresh(Region(0, line + EDGE, self.size.width, 1))

    @property
    def room(self) -> int:
        """Return how many lines of cells there are."""
        return max(1, self.high)

    def measure(self) -> None:
        """Make the cells: how wide one is, how many are in a line, how many rows are in each."""
        wide, high, number = self.wide, self.room, len(self.rows)
        self.across = max(n for n in (1, 2, 3) if n == 1 or number <= wide // n * high)
        self.in_line = max(1, wide // self.across)
        self.each = max(1, -(-number // (self.in_line * high)))
        levels = _levels([max(map(self._value, self._of(n))) for n in range(self.length)])
        self._cells = tuple(map(self._part, range(self.length), levels))
        self._here = self._cursor()

    def move(self, step: int) -> None:
        """Move the list's cursor by lines of cells."""
        self._pick(max(self._cursor(), 0) + step * self.in_line)

    def turn(self, step: int) -> None:
        """Move the list's cursor by cells."""
        self._pick(max(self._cursor(), 0) + step)

    def to(self, number: int) -> None:
        """Move the list's cursor to the first or the last cell."""
        self._pick(number)

    @property
    def length(self) -> int:
        """Return the number of cells."""
        return -(-len(self.rows) // self.each)

    def _cursor(self) -> int:
        """Return the cell of the list's cursor; -1 if it is on no held partition."""
        return self._index.get(self.picked() or "", -1) // self.each

    def _pick(self, cell: int) -> None:
        mine = self._of(max(0, min(cell, self.length - 1)))
        if mine:
            self.on_pick(min(mine, key=lambda row: (urgency(row), -self._value(row))).key)

    def _of(self, cell: int) -> Sequence[TableRow]:
        return self.rows[cell * self.each : (cell + 1) * self.each]

    def _value(self, row: TableRow) -> float:
        return _age(row) if self.by_age else _held(row)

    # -- drawing -----------------------------------------------------------------------------

    def titles(self) -> Titles:
        number: Part = (f"{count(len(self.rows))} held ", "text")
        each = f" {self.each} a cell," if self.each > 1 else ""
        ends = [self._value(row) for row in self.rows] or [0.0]
        low, high = (age_words(n) if self.by_age else short(n) for n in (min(ends), max(ends)))
        shows = f"{'age' if self.by_age else 'offsets'} {low} to {high}"
        return ((" Map ", "title"), number), ((f"{each} {shows} ", "dim"),)

    def note(self) -> Line:
        seen = {row.mark for row in self.rows}
        parts: list[Part] = []
        for mark, (signs, plain, role) in LEVELS.items():
            if mark in seen:
                parts.append((f" {plain if self.ascii_only else signs}", role))
                parts.append((f" {WORDS[mark]} ", "dim"))
        return tuple(parts)

    def body(self, y: int, width: int) -> Strip:
        begin, here = y * self.in_line, self._here
        line: list[Part] = []
        for cell, (sign, own) in enumerate(self._cells[begin : begin + self.in_line], begin):
            role = "tab" if cell == here else own
            if line and line[-1][1] == role:
                line[-1] = (line[-1][0] + sign, role)
            else:
                line.append((sign, role))
        return strip(tuple(line), self.role_theme(), width)

    def _part(self, cell: int, level: int) -> Part:
        """Return a cell: the sign of its highest value, in the colour of its worst partition."""
        signs, plain, role = LEVELS[min(self._of(cell), key=urgency).mark]
        return (plain if self.ascii_only else signs)[level] * self.across, role

    # -- events ------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.measure()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        x, y = event.x - EDGE, event.y - EDGE
        cell = y * self.in_line + x // self.across
        if 0 <= x < self.in_line * self.across and 0 <= y < self.high and cell < self.length:
            self._pick(cell)
            if event.chain > 1:
                self.on_open()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(-1)
