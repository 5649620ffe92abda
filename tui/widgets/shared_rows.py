"""What the tables of several screens share: cells, rows, and columns of the commands."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.columns.table import Table
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from eoctl.render.words import Age
from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.plurals import counted
from recovery.row import ErrorRow
from recovery.values import replace
from tui.widgets.tables import TableData, TableRow, table_data, urgency

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

Text = Callable[[str], str]
"""Makes text from the cluster safe to draw."""

MOST_ALIKE = 4  # unseen things of one kind and error; more are shown as one line
UnseenByError = dict[tuple[str, str], dict[str, ErrorRow]]
"""What could not be seen: (scope, error) → name → its row."""

Cell = tuple[str, object]
"""What a cell says, and what it is sorted by."""


def table_row(
    key: str,
    sign: str,
    cells: Sequence[Cell],
    source: object = None,
    opens: tuple[str, str] | None = None,
    judged: TxnHangingRow | None = None,
) -> TableRow:
    """Return a row from its mark and its other cells. The rest is as TableRow has it."""
    texts, values = zip(*cells, strict=True)
    return TableRow(key, (sign, *texts), (None, *values), sign, source, opens, judged)


def cells_of(columns: Sequence[Column], row: object, text: Text, **given: Cell) -> list[Cell]:
    """Return a row's cells after its mark: given ones by key, the others from their column."""
    return [given.get(c.key) or _cell(c, c.of(row), text) for c in columns[1:]]


def _cell(column: Column, value: Any, text: Text) -> Cell:
    if column.kind == "age":
        return aged(value.seconds, value.producer_clock) if isinstance(value, Age) else aged(value)
    if value is None:
        return "" if column.kind == "text" else "-", None
    if column.right:
        return str(value), value
    if column.kind == "partition":
        topic, _, partition = value.rpartition(":")
        return text(value), (topic, int(partition))
    return text(value), value


def number(value: int | None) -> str:
    """Return plain digits; `-` if unknown."""
    return "-" if value is None else str(value)


def numbered(value: int | None) -> Cell:
    """Return a number's cell."""
    return number(value), value


def aged(seconds: float | None, producer_clock: bool = False) -> Cell:
    """Return an age's cell: `3m`, by a producer's clock `~3m`."""
    if seconds is None:
        return "", None
    return age_words(max(seconds, 0.0), producer_clock=producer_clock), seconds


def since(moment: int | None, now: int) -> float | None:
    """Return the seconds from a moment to now, both epoch milliseconds."""
    return None if moment is None else (now - moment) / 1000


def unseen_by_error(errors: Iterable[ErrorRow]) -> UnseenByError:
    """Return what could not be seen: by kind and error, then by name."""
    by_error: UnseenByError = {}
    for e in errors:
        by_error.setdefault((e.scope, e.error), {})[_scope_name(e)] = e
    return by_error


def unseen_lines(unseen: UnseenByError) -> Iterator[tuple[str, str, ErrorRow]]:
    """Yield key, name and error of each line: one for many of a kind, since brokers hide thousands.

    Of many the error is that of the first.
    """
    for (scope, error), by_name in unseen.items():
        some = list(by_name.items())
        many = len(some) > MOST_ALIKE
        if many:
            some = [(counted(len(by_name), scope), some[0][1])]
        for shown, e in some:
            yield f"error\0{scope}\0{'' if many else shown}\0{error}", shown, e


def _scope_name(e: ErrorRow) -> str:
    if e.topic is not None:
        return e.topic if e.partition is None else f"{e.topic}:{e.partition}"
    if e.broker is not None:
        return f"broker {e.broker}"
    return e.id or e.scope


def nothing(what: str, answer: "Answer | None", s: "Snapshot") -> str:
    """Return the sentence shown instead of rows: what could not be seen is not called absent."""
    if answer is None:
        return "no answer yet" if s.problem else "waiting for the first answer"
    if answer.errors:
        first = answer.errors[0]
        subject = visible(first.topic or first.id or first.scope)
        return f"? no {what} could be seen: {first.error} on {subject}"
    return f"no {what}"


def answer_table(
    columns: Sequence[Column],
    rows: list[TableRow],
    what: str,
    answer: "Answer | None",
    s: "Snapshot",
) -> TableData:
    """Return the table of an answer's rows, the most urgent first. what: the rows' name."""
    return table_data(
        columns,
        sorted(rows, key=urgency),
        collected_at=answer.collected_at if answer else None,
        empty=nothing(what, answer, s),
    )


class Picked:
    """Takes columns of a command's table by their keys, with what the dashboard adds."""

    def __init__(self, table: Table) -> None:
        self._known = {column.key: column for column in table.columns}

    def __call__(
        self, key: str, usual: int, letter: str, grow: int = 0, worth: int = 0, **other: Any
    ) -> Column:
        made = replace(self._known[key], usual=usual, letter=letter, grow=grow, worth=worth)
        return replace(made, **other)


AGE = Column("age", "AGE", "age", usual=7, letter="A")
