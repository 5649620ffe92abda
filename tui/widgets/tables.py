"""A table's data: columns, immutable rows of safe text, and how wide each column is.

Made in the feed's thread; the widget (table.py) only draws it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from eoctl.render.tables import CellKind, Column
from eoctl.render.width import cells, cut_end, cut_middle
from recovery.values import Value

if TYPE_CHECKING:
    from recovery.diagnose.diagnosis_rows import TxnHangingRow

LEVELS = " _.-:=+*#▁▂▃▄▅▆▇█"  # for sparklines, ASCII and not, lowest first
NARROW, NORMAL, WIDE = range(3)
GUTTER = 2  # cursor and selection
NAMES: frozenset[CellKind] = frozenset({"partition", "name"})
WORTH: tuple[frozenset[CellKind], ...] = (NAMES, frozenset({"text"}))
"""Whose cells get room first where some are cut. Numbers and words never are."""
MARK = Column("mark", "", "mark", widths=(2, 2, 2))


def breakpoint_of(width: int) -> int:
    """Return which of a column's widths is used: below 100 cells, below 150, or wide."""
    return NARROW if width < 100 else NORMAL if width < 150 else WIDE


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


class TableData(Value, eq=False):
    """Rows in their default order (the worst first), and what the widget needs to draw them.

    collected_at: epoch ms, None before the first answer. titles: for columns whose title says more
    than the column's own. empty: the sentence shown instead of rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...] = ()
    by_key: Mapping[str, TableRow] = msgspec.field(default_factory=dict)
    widest: tuple[int, ...] = ()
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
    """Return rows with what follows from them. Of two rows with one key the first is kept.

    A column of numbers or words is as wide as the widest: they are never cut. Names get room for
    nine in ten.
    """
    by_key: dict[str, TableRow] = {}
    for row in rows:
        by_key.setdefault(row.key, row)
    widest = (_wanted(c, [row.cells[i] for row in rows]) for i, c in enumerate(columns))
    return TableData(
        tuple(columns),
        tuple(by_key.values()),
        by_key,
        tuple(widest),
        titles or {},
        collected_at,
        empty,
    )


def _wanted(column: Column, texts: Sequence[str]) -> int:
    """Return how many cells a column needs for these; of 100,000 only those not ASCII are measured.

    A name of 249 characters gets no more room than is usual, so that its neighbours keep theirs.
    """
    if column.kind == "spark" or not texts:
        return 0
    wide = sorted(len(t) if t.isascii() else cells(t) for t in texts)
    nine_in_ten = wide[-(-len(wide) * 9 // 10) - 1]
    usual = column.widths[NORMAL] if column.kind in NAMES else 0
    return wide[-1] if _never_cut(column) else max(nine_in_ten, min(wide[-1], usual))


def _never_cut(column: Column) -> bool:
    return column.right or column.kind == "word"


def layout(data: TableData, width: int) -> list[tuple[int, int]]:
    """Return (column's index, its cells) of the columns shown at this width, left to right.

    If they are too wide, columns that do not grow are left out from the right, never the first two,
    until names of a usual size have their room; then names are cut, then others are left out. What
    is left goes to names that are cut, then keeps numbers from moving as they grow, then to columns
    that grow.
    """
    step = breakpoint_of(width)
    full = {i: c.widths[step] for i, c in enumerate(data.columns) if c.widths[step]}
    wanted = {i: data.widest[i] if data.widest else 0 for i in full}
    sizes = {i: _least(data, i, size, wanted[i]) for i, size in full.items()}

    def spare() -> int:
        return width - GUTTER - sum(sizes.values()) - gaps(data, list(sizes.items()))

    def widen(needs: Mapping[int, int]) -> None:
        # the smallest first, so that what it does not take is for the others
        in_order = sorted((needs[i] - sizes[i], i) for i in sizes if needs.get(i, 0) > sizes[i])
        for n, (more, i) in enumerate(in_order):
            sizes[i] += min(more, max(0, spare()) // (len(in_order) - n))

    while len(sizes) > 2 and spare() < 0:
        # the rightmost that does not grow goes first: the one that grows is the name
        fixed = [i for i in list(sizes)[2:] if not data.columns[i].grow]
        if not fixed and (roomy := [i for i in sizes if _is_roomy(data, i, sizes[i], full[i])]):
            sizes |= {i: full[i] for i in roomy}
        else:
            del sizes[fixed[-1] if fixed else list(sizes)[-1]]
    for kinds in WORTH:
        widen({i: wanted[i] for i in sizes if data.columns[i].kind in kinds})
    widen(full)
    shares, rest = sum(data.columns[i].grow for i in sizes), max(0, spare())
    return [
        (i, size + (rest * data.columns[i].grow // shares if shares else 0))
        for i, size in sizes.items()
    ]


def _least(data: TableData, i: int, size: int, wanted: int) -> int:
    """Return the cells without which a column is not shown. size: what it has if there is room."""
    column = data.columns[i]
    if column.right and data.widest:
        return max(wanted, len(_title(data, column)))
    if column.kind in NAMES and data.widest:  # before the columns right of it, up to a usual size
        usual = column.widths[NORMAL]
        return max(size, min(max(wanted, len(_title(data, column))), usual))
    return max(size, wanted if _never_cut(column) else 0, len(_title(data, column)) * column.right)


def _is_roomy(data: TableData, i: int, size: int, least: int) -> bool:
    return data.columns[i].kind in NAMES and size > least


def gaps(data: TableData, shown: Sequence[tuple[int, int]]) -> int:
    """Return the blanks between the columns: two, but one after a mark."""
    return sum(1 if data.columns[i].kind == "mark" else 2 for i, _ in shown[:-1])


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
