"""A table's memory while other screens are shown: order, cursor, filter, marked rows.

Rows keep their order until a sort key is pressed; a vanished row stays until the next key.
"""

import re
from itertools import zip_longest

import msgspec

from recovery.values import replace
from tui.widgets.tables import TableData, TableRow, Widths, layout, sorted_rows


class Filter(msgspec.Struct):
    """A regular expression over a row's cells, any case; a leading `!` inverts it."""

    text: str
    pattern: re.Pattern[str]
    inverted: bool

    @classmethod
    def parse(cls, text: str) -> "Filter":
        """Return the filter of a text. Raises re.error."""
        inverted = text.startswith("!")
        return cls(text, re.compile(text.removeprefix("!"), re.IGNORECASE), inverted)

    def keeps(self, row: TableRow) -> bool:
        """Return True if the row is shown."""
        return bool(self.pattern.search("  ".join(row.cells))) != self.inverted


class TableState(msgspec.Struct):
    """One screen's table as it was when another screen replaced it."""

    data: TableData
    order: list[str] = msgspec.field(default_factory=list)
    gone: dict[str, TableRow] = msgspec.field(default_factory=dict)
    cursor: str | None = None
    top: int = 0
    column: int = 0  # which cell of the cursor's row `c` copies
    sort: int | None = None
    descending: bool = False
    filter: Filter | None = None
    selected: set[str] = msgspec.field(default_factory=set)
    moved: bool = False  # the cursor was moved below the first row
    live: bool = False  # a short list that always keeps its own order: the overview's
    shown: list[tuple[int, int]] = msgspec.field(default_factory=list)  # columns and their cells
    _shown_for: tuple[object, ...] = ()  # width, columns, whether there were rows
    _cursor_index: int = 0  # the cursor's last place: searching a long order takes time

    def row(self, key: str) -> TableRow | None:
        """Return the row of a key, also if it vanished."""
        return self.data.by_key.get(key) or self.gone.get(key)

    @property
    def cursor_index(self) -> int:
        """Return the cursor's place in the order; 0 if it has none."""
        if not (
            self._cursor_index < len(self.order) and self.order[self._cursor_index] == self.cursor
        ):
            self._cursor_index = self.order.index(self.cursor) if self.cursor in self.order else 0
        return self._cursor_index

    def point(self, index: int) -> None:
        """Put the cursor on the row at an index of the order."""
        self._cursor_index, self.cursor = index, self.order[index]

    def sort_by(self, letter: str) -> bool:
        """Sort by the column of this letter: numbers highest first; again to reverse.

        Return False if no column has the letter.
        """
        columns = [i for i, c in enumerate(self.data.columns) if c.letter == letter]
        if not columns:
            return False
        numeric = self.data.columns[columns[0]].right
        same = self.sort == columns[0]
        self.descending = not self.descending if same else numeric
        self.sort = columns[0]
        return True

    def sorted_by(self, key: str) -> bool:
        """Return True if the rows are sorted by the column with this key."""
        return self.sort is not None and self.data.columns[self.sort].key == key

    def lay_out(self, width: int, *, again: bool = False) -> None:
        """Choose the columns; if they were chosen, only their sizes, while they have room.

        again: choose them once more.
        """
        made_for = (width, self.data.columns, bool(self.data.widths))
        kept = self.shown if made_for == self._shown_for and not again else ()
        self.shown = layout(self.data, width, [i for i, _ in kept])
        self._shown_for = made_for

    def settle(self) -> None:
        """Filter and sort again; vanished rows come last, until a key is pressed."""
        keeps = self.filter.keeps if self.filter else None
        rows = [r for r in self.data.rows if keeps(r)] if keeps else self.data.rows
        index = self.cursor_index
        self.order = [r.key for r in sorted_rows(rows, self.sort, descending=self.descending)]
        self.order += self.gone
        self.selected &= self.data.by_key.keys()
        if not self.moved and self.order:
            self.cursor = self.order[0]
        elif self.cursor not in self.order:
            self.cursor = self.order[min(index, len(self.order) - 1)] if self.order else None

    def renew(self, data: TableData) -> None:
        """Update rows in place, add new ones at the end, keep vanished ones struck through.

        Columns stay as wide as they were, so that nothing jumps between two refreshes.
        """
        before = self.data
        if before.columns == data.columns and before.widths:
            pairs = zip_longest(before.widths, data.widths, fillvalue=Widths())
            data = replace(data, widths=tuple(one.joined(other) for one, other in pairs))
        self.data = data
        if not self.order:
            self.settle()
            return
        for key in self.order:
            if key not in data.by_key and key not in self.gone:
                self.gone[key] = before.by_key[key]
        for key in [key for key in self.gone if key in data.by_key]:
            del self.gone[key]
        if len(self.order) - len(self.gone) < len(data.rows):
            shown = set(self.order)
            keeps = self.filter.keeps if self.filter else None
            self.order += [
                r.key for r in data.rows if r.key not in shown and (keeps is None or keeps(r))
            ]
        if self.live:
            self.settle()
