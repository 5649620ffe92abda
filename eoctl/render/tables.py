"""Turn rows of values into lines of text: tables for a terminal and for a pipe.

Without a terminal nothing is cut: one row per line, two blanks between columns, `-` for null, so
that awk and cut can read it. On a terminal the lines fit: names are cut in the middle, sentences at
the end, never a number, a partition, an age or a command. Plain strings, no Rich: quick to load.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from eoctl.render import words
from eoctl.render.sanitise import hidden, visible
from eoctl.render.width import cells, cut_end, cut_middle
from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.times import rfc3339
from recovery.values import Value, replace

CellKind = Literal[
    "name", "partition", "number", "word", "time", "mark", "age", "text", "command", "spark"
]
Row = Mapping[str, object]

URGENCY = ("!!", "!", "?")  # act, look, unknown; other marks come after these
_COLOURS = {"!!": "\x1b[1;31m", "!": "\x1b[33m", "?": "\x1b[36m"}
_GAP = 2
_LEAST = 8  # cells that a name keeps, however narrow the terminal


class Column(Value):
    """One column. key: of the row's value. title: upper case; "" for marks.

    value makes the value from a row; None: it is the row's field named `key`.

    kind says how a value is shown and cut:
    name       text, cut in the middle
    partition  `topic:3`, cut within the topic
    number     an integer in plain digits, or text that is never cut; right-aligned
    word       text that is never cut; left-aligned
    time       epoch milliseconds, shown in RFC 3339
    mark       `!!`, `!`, `?`, `<<`, `>>`, or None
    age        seconds or `words.Age`; right-aligned
    text       a sentence, cut at its end
    command    what `shell.command` made; printed as it is, last
    spark      a sparkline, of the dashboard only

    min_width: cells kept free when values are shorter, so that columns stand still between two
    rounds of --watch; given up before a name is cut. wide_only: only with `-o wide` or --columns.
    spare: where lines are too long for the terminal the column is left out if its cells are all
    null, all null or 0, or whatever they are. asked: named by --columns, never left out.

    The rest is for the dashboard. usual: cells that a name or a sentence gets, if it is as long,
    before columns of less worth are shown; a number has them while no name is cut. worth: where not
    all columns have room, those of more worth are shown, of equals the left one. letter: sorts by
    it, with shift. grow: its share of what is left.
    """

    key: str
    title: str
    kind: CellKind = "text"
    value: Callable[[Any], object] | None = None
    min_width: int = 0
    wide_only: bool = False
    spare: Literal["null", "zero", "any"] = "null"
    asked: bool = False
    usual: int = 0
    worth: int = 0
    letter: str = ""
    grow: int = 0

    @property
    def right(self) -> bool:
        """Return True if the cells are right-aligned."""
        return self.kind in ("number", "age")

    def of(self, row: object) -> object:
        """Return the row's value in this column."""
        value: Any = self.value(row) if self.value else getattr(row, self.key)
        return rfc3339(value) if self.kind == "time" else value


def render_table(
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    width: int | None,
    wide: bool = False,
    headers: bool = True,
    colour: bool = False,
    ascii_only: bool = False,
) -> list[str]:
    """Return the lines of a table, without newlines; it has its header even without rows.

    width: cells of the terminal, or None off a terminal: then nothing is cut and a missing mark is
    `-` like every null, so that all lines have the same fields. wide: never cut, and also the
    wide_only columns (the caller's `choose_columns` may have picked them before). If names at their
    narrowest are still too wide, columns to spare are left out, the last first, empty ones before
    the others; only if that does not suffice is a line longer than width. colour: of marks, by
    ANSI. ascii_only: for an output that is not UTF-8.
    """
    columns = [column for column in columns if wide or not column.wide_only]
    piped = width is None
    table = [[_cell(row.get(c.key), c, piped, ascii_only) for c in columns] for row in rows]
    titles = [column.title or ("-" if piped else "") for column in columns]
    while True:
        sizes = _fit(columns, titles if headers else [""] * len(columns), table, width, wide)
        if wide or width is None or not rows or _total(columns, sizes) <= width:
            break
        silent = [i for i, column in enumerate(columns) if _says_nothing(column, rows)]
        spare = [i for i, c in enumerate(columns) if c.spare == "any" and not c.asked]
        if not (silent or spare):
            break
        gone = (silent or spare)[-1]
        del columns[gone], titles[gone]
        for line in table:
            del line[gone]
    ellipsis = ".." if ascii_only else "…"
    lines = [_line(columns, titles, sizes, piped)] if headers else []
    for line in table:
        cut = [
            _cut(text, column.kind, size, ellipsis)
            for text, column, size in zip(line, columns, sizes, strict=True)
        ]
        lines.append(_line(columns, cut, sizes, piped, colour))
    return lines


def choose_columns(columns: Sequence[Column], names: str | None) -> list[Column]:
    """Apply `--columns a,b`: these columns in this order, by key or title; None: unchanged.

    Chosen columns are shown, `wide_only` or not, whatever their content. Raises UsageError.
    """
    if names is None:
        return list(columns)
    chosen = [_find(columns, name, "--columns") for name in names.split(",")]
    return [replace(column, wide_only=False, asked=True) for column in chosen]


def sort_rows(rows: Sequence[Row], columns: Sequence[Column], by: str | None = None) -> list[Row]:
    """Sort by `--sort-by COL` (`-COL`: descending); None: by mark (`!!` first), then oldest first.

    Rows that compare equal keep their order. Nulls come last in both directions. Raises UsageError.
    """
    if by is not None:
        column = _find(columns, by.removeprefix("-"), "--sort-by")
        return _sorted(rows, column, descending=by.startswith("-"))
    ordered = list(rows)
    for kind in ("age", "mark"):
        for column in columns:
            if column.kind == kind:
                ordered = _sorted(ordered, column, descending=kind == "age")
                break
    return ordered


def _find(columns: Sequence[Column], name: str, where: str) -> Column:
    plain_name = _plain(name)
    for column in columns:
        if plain_name and plain_name in (_plain(column.key), _plain(column.title)):
            return column
    raise UsageError(
        f"there is no column {quoted(name)}",
        where=where,
        remedy="columns are " + ",".join(column.key for column in columns),
    )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def _sorted(rows: Sequence[Row], column: Column, *, descending: bool) -> list[Row]:
    known = [row for row in rows if row.get(column.key) is not None]
    unknown = [row for row in rows if row.get(column.key) is None]
    key = _sort_key(column)
    # reverse=True keeps the order of equal rows.
    return sorted(known, key=lambda row: key(row[column.key]), reverse=descending) + unknown


def _sort_key(column: Column) -> Callable[[object], tuple[float, str, float]]:
    def key(value: object) -> tuple[float, str, float]:
        if isinstance(value, words.Age):
            value = value.seconds
        if isinstance(value, (int, float)):
            return (0, "", value)
        text = str(value)
        if column.kind == "mark":
            return (URGENCY.index(text) if text in URGENCY else len(URGENCY), text, 0)
        topic, _, number = text.rpartition(":")
        if column.kind == "partition" and re.fullmatch("[0-9]{1,10}", number):
            return (1, topic, int(number))
        return (1, text, 0)

    return key


def _cell(value: object, column: Column, piped: bool, ascii_only: bool) -> str:
    if value is None:
        return "" if column.kind == "mark" and not piped else "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column.kind == "age" and isinstance(value, (int, float)):
        return words.age(value)
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(item) for item in value)
    text = str(value)
    if column.kind == "command" and not any(hidden(text)):
        return text  # its backslashes are meant for the shell
    return visible(text, spaces=True, ascii_only=ascii_only) or '""'


def _says_nothing(column: Column, rows: Sequence[Row]) -> bool:
    if column.asked or column.kind == "mark":
        return False
    nothing = (None,) if column.spare == "null" else (None, 0)
    return all(row.get(column.key) in nothing for row in rows)


def _fit(
    columns: Sequence[Column],
    titles: Sequence[str],
    table: Sequence[Sequence[str]],
    width: int | None,
    wide: bool,
) -> list[int]:
    """Return the cells per column. If they do not fit, blanks go first, then parts of names."""
    widest = [
        max((cells(line[i]) for line in table), default=0) if column.kind != "mark" else 2
        for i, column in enumerate(columns)
    ]
    titled = [cells(title) for title in titles]
    free = [column.min_width for column in columns]
    sizes = list(map(max, widest, titled, free))
    if wide or width is None or _total(columns, sizes) <= width:
        return sizes
    packed = list(map(max, widest, titled))
    floors = [
        max(title, _narrowest(column, size, (line[i] for line in table)))
        for i, (column, title, size) in enumerate(zip(columns, titled, packed, strict=True))
    ]
    for limits in (packed, floors):
        while (excess := _total(columns, sizes) - width) > 0:
            # The widest column that can shrink does so, down to the next widest.
            can = [i for i, limit in enumerate(limits) if sizes[i] > limit]
            if not can:
                break
            can.sort(key=lambda i: sizes[i], reverse=True)
            step = sizes[can[0]] - sizes[can[1]] if len(can) > 1 else excess
            room = sizes[can[0]] - limits[can[0]]
            sizes[can[0]] -= min(max(step, 1), room, excess)
    return sizes


def _narrowest(column: Column, size: int, texts: Iterable[str]) -> int:
    if column.kind in ("name", "text"):
        return min(size, _LEAST)
    if column.kind == "partition":
        suffix = max((len(text) - text.rfind(":") for text in texts), default=0)
        return min(size, suffix + _LEAST - 2)
    return size


def _total(columns: Sequence[Column], sizes: Sequence[int]) -> int:
    gaps = sum(1 if column.kind == "mark" else _GAP for column in columns[:-1])
    return sum(sizes) + gaps


def _cut(text: str, kind: CellKind, size: int, ellipsis: str) -> str:
    if kind == "text":
        return cut_end(text, size, ellipsis)
    if kind == "name":
        return cut_middle(text, size, ellipsis)
    if kind == "partition" and cells(text) > size:
        topic, colon, number = text.rpartition(":")
        return cut_middle(topic, size - len(colon + number), ellipsis) + colon + number
    return text


def _line(
    columns: Sequence[Column],
    texts: Sequence[str],
    sizes: Sequence[int],
    piped: bool,
    colour: bool = False,
) -> str:
    parts: list[str] = []
    gap = 0
    for column, text, size in zip(columns, texts, sizes, strict=True):
        blanks = size - cells(text)
        right = column.right or (column.kind == "mark" and not piped)
        if colour and column.kind == "mark" and text in _COLOURS:
            text = f"{_COLOURS[text]}{text}\x1b[0m"
        before, after = (blanks, 0) if right else (0, blanks)
        parts.append(" " * (gap + before) + text + " " * after)
        gap = 1 if column.kind == "mark" and not piped else _GAP
    return "".join(parts).rstrip(" ")
