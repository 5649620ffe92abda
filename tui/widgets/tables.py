"""A table's data: columns, immutable rows of safe text, and how wide each column is.

Made in the feed's thread; the widget (table.py) only draws it.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from eoctl.render.tables import CellKind, Column
from eoctl.render.width import cells, cut_end, cut_middle
from recovery.values import Value

if TYPE_CHECKING:
    from recovery.diagnose.diagnosis_rows import TxnHangingRow

LEVELS = " _.-:=+*#▁▂▃▄▅▆▇█"  # for sparklines, ASCII and not, lowest first
GUTTER = 2  # cursor and selection
NAMES: frozenset[CellKind] = frozenset({"partition", "name"})
SENTENCES: frozenset[CellKind] = frozenset({"text"})
CUT = NAMES | SENTENCES
NEVER_CUT: frozenset[CellKind] = frozenset({"number", "age", "time", "word"})
MARK = Column("mark", "", "mark", usual=2)
LEAST_NAME = 10  # cells of a name that is cut
DIGITS = 3  # by which a number may grow before a column that is worth less loses its room
ALWAYS = 2  # columns that every width shows: the mark, and what leads the row


class TableRow(Value, eq=False):
    """One row. key: its permanent identity. cells: safe text. sort: a value per column, or None.

    source: the model it shows, for JSON. opens: (screen, argument) for enter. judged: the row's
    worst open transaction, whose remedy `x` plans.
    """

    key: str
    cells: tuple[str, ...]
    sort: tuple[object, ...]
    mark: str = ""
    source: object = None
    opens: tuple[str, str] | None = None
    judged: "TxnHangingRow | None" = None

    @property
    def command(self) -> str | None:
        """Return the command that shows the remedy's plan."""
        return self.judged.remedy.command if self.judged else None

    def looks_like(self, other: "TableRow") -> bool:
        """Return True if both rows look alike."""
        return self is other or (self.cells == other.cells and self.mark == other.mark)


def urgency(row: TableRow) -> int:
    """Return the sort key: act first, then what may be wrong, what is unknown, the rest."""
    return ("!!", "!", "?").index(row.mark) if row.mark else 3


class Widths(Value):
    """The cells of a column's texts: most fits nine in ten of them, widest all."""

    most: int = 0
    widest: int = 0

    def joined(self, other: "Widths") -> "Widths":
        """Return what has room for both."""
        return Widths(max(self.most, other.most), max(self.widest, other.widest))


class TableData(Value, eq=False):
    """Rows in their default order (the worst first), and what the widget needs to draw them.

    widths: of each column's cells; empty before the first row. collected_at: epoch ms, None before
    the first answer. titles: for columns whose title says more than the column's own.
    empty: the sentence shown instead of rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...] = ()
    by_key: Mapping[str, TableRow] = msgspec.field(default_factory=dict)
    widths: tuple[Widths, ...] = ()
    titles: Mapping[str, str] = msgspec.field(default_factory=dict)
    collected_at: int | None = None
    empty: str = "waiting for the first answer"

    @property
    def marked(self) -> int:
        """Return the rows that need a look."""
        return sum(bool(row.mark) for row in self.rows)


def table_data(
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    *,
    collected_at: int | None,
    empty: str,
    titles: Mapping[str, str] | None = None,
) -> TableData:
    """Return rows with what follows from them. Of two rows with one key the first is kept."""
    by_key: dict[str, TableRow] = {}
    for row in rows:
        by_key.setdefault(row.key, row)
    every = range(len(columns) if rows else 0)
    widths = (_widths([row.cells[i] for row in rows]) for i in every)
    return TableData(
        tuple(columns),
        tuple(by_key.values()),
        by_key,
        tuple(widths),
        titles or {},
        collected_at,
        empty,
    )


def _widths(texts: Sequence[str]) -> Widths:
    """Return the cells of a column's texts; of 100,000 only those not ASCII are measured."""
    wide = sorted(len(t) if t.isascii() else cells(t) for t in texts)
    return Widths(wide[-(-len(wide) * 9 // 10) - 1], wide[-1])


def layout(data: TableData, width: int, kept: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return (column's index, its cells) of the columns shown at this width, left to right.

    kept: those shown before; they stay while all of them have room. What the columns leave goes to
    names of a usual size, to names that are cut, nine in ten before the longest, then keeps numbers
    from moving as they grow, then to sentences, then to columns that grow.
    """
    room = width - GUTTER
    sizes = {i: _least(data, i) for i in kept}
    if not kept or _taken(data, sizes) > room:
        sizes = {i: _least(data, i) for i in _fitting(data, width)}
    last = max(sizes, default=0)
    if (over := _taken(data, sizes) - room) > 0:  # of those that every width shows
        sizes[last] = max(1, sizes[last] - over)

    def widen(kinds: Container[CellKind], needs: Callable[[int], int]) -> None:
        # the smallest first, so that what it does not take is for the others
        more = {i: needs(i) - size for i, size in sizes.items() if data.columns[i].kind in kinds}
        in_order = sorted((need, i) for i, need in more.items() if need > 0)
        for n, (need, i) in enumerate(in_order):
            sizes[i] += min(need, max(0, room - _taken(data, sizes)) // (len(in_order) - n))

    widen(CUT, lambda i: _usual(data, i))
    if data.widths:
        widen(NAMES, lambda i: data.widths[i].most)
        widen(NAMES, lambda i: data.widths[i].widest)
    widen(NEVER_CUT, lambda i: data.columns[i].usual)
    if data.widths:
        widen(SENTENCES, lambda i: data.widths[i].widest)
    shares = sum(data.columns[i].grow for i in sizes)
    rest = max(0, room - _taken(data, sizes))
    return [
        (i, size + (rest * data.columns[i].grow // shares if shares else 0))
        for i, size in sizes.items()
    ]


def by_worth(data: TableData) -> list[int]:
    """Return the columns in the order in which they get room."""
    return sorted(range(len(data.columns)), key=lambda i: (i >= ALWAYS, -data.columns[i].worth))


def _fitting(data: TableData, width: int) -> list[int]:
    """Return the columns that have room, left to right; a wider list shows these and more.

    They are tried in the order of `by_worth`, up to the first without room. To show a column that
    is worth more than 0, those before it may shrink to their least; for any other they keep their
    usual cells.
    """
    shown: list[int] = []
    for i in by_worth(data):
        wanted = _least if data.columns[i].worth > 0 else _usual
        sizes = {j: wanted(data, j) for j in shown} | {i: _least(data, i)}
        if len(shown) >= ALWAYS and _taken(data, sizes) > width - GUTTER:
            break
        shown.append(i)
    return sorted(shown)


def _taken(data: TableData, sizes: Mapping[int, int]) -> int:
    """Return the cells of columns and of the blanks between them: two, but one after a mark."""
    blanks = sum(1 if data.columns[i].kind == "mark" else 2 for i in sorted(sizes)[:-1])
    return sum(sizes.values()) + blanks


def _least(data: TableData, i: int) -> int:
    """Return the cells without which a column is not shown: names and sentences can be cut."""
    column, title, usual = data.columns[i], cells(title_of(data, i)), _usual(data, i)
    if column.kind in CUT:
        return min(usual, max(title, LEAST_NAME))
    return max(1, title, data.widths[i].widest) if _measured(data, column) else usual


def _usual(data: TableData, i: int) -> int:
    """Return the cells that a column has before those worth less are shown."""
    column, title = data.columns[i], cells(title_of(data, i))
    usual = column.usual
    if _measured(data, column):
        widest = data.widths[i].widest
        if column.kind in CUT:
            usual = min(widest, usual)
        else:
            grows = 0 if column.kind == "word" else DIGITS
            usual = max(widest, min(widest + grows, usual))
    return max(1, title, usual)


def _measured(data: TableData, column: Column) -> bool:
    """Return True if a column is as wide as its texts, which are known."""
    return bool(data.widths) and column.kind not in ("mark", "spark")


def _title(data: TableData, column: Column) -> str:
    return data.titles.get(column.key, column.title)


def title_of(data: TableData, index: int) -> str:
    """Return a column's title as shown."""
    return _title(data, data.columns[index])


def fitted(text: str, column: Column, size: int) -> str:
    """Return a cell's text in exactly `size` cells, cut if its kind allows."""
    wide = cells(text)
    if column.kind == "spark" and wide > size:
        text = narrowed(text, size)
        wide = cells(text)
    if wide > size:
        if column.kind == "partition":
            topic, colon, number = text.rpartition(":")
            room = size - len(colon + number)
            text = cut_middle(topic, room) + colon + number if colon else cut_middle(text, size)
        elif column.kind == "name":
            text = cut_middle(text, size)
        else:
            text = cut_end(text, size)
        wide = cells(text)
    blank = " " * (size - wide)
    return blank + text if column.right or column.kind == "mark" else text + blank


def narrowed(spark: str, size: int) -> str:
    """Return a sparkline in fewer cells, each with the highest of its samples."""
    step = len(spark) / size
    parts = [
        spark[int(n * step) : max(int((n + 1) * step), int(n * step) + 1)] for n in range(size)
    ]
    return "".join(max(part, key=LEVELS.find) for part in parts)


def sorted_rows(
    rows: Sequence[TableRow], column: int | None, *, descending: bool
) -> Sequence[TableRow]:
    """Sort rows by one column, None last; without a column keep their order."""
    if column is None:
        return rows
    known = [row for row in rows if row.sort[column] is not None]
    unknown = [row for row in rows if row.sort[column] is None]
    known.sort(key=lambda row: row.sort[column], reverse=descending)  # type: ignore[arg-type, return-value]
    return [*known, *unknown]
