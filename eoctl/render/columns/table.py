"""The parts of a table, and the columns that several rows share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eoctl.render.tables import CellKind, Column
from eoctl.render.words import Age
from recovery.answers import Answer
from recovery.plurals import counted
from recovery.row import Row, json_names
from recovery.values import Value


class Table(Value):
    """One row model's table. names: the fields that `-o name` writes.

    in_order: rows stay as the answer has them; else marked and old ones come first.
    summary makes the closing sentence, below the lines after it, heading the line above the table.
    """

    model: type[Row]
    columns: Sequence[Column] = ()
    names: Sequence[str] = ()
    in_order: bool = False
    summary: Callable[[Answer], str] = lambda answer: ""
    below: Callable[[Answer], Iterable[str]] = lambda answer: ()
    heading: Callable[[Answer], str | None] = lambda answer: None

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the row's fields as JSON and CSV name them."""
        return json_names(self.model)

    def cells(self, row: object) -> Mapping[str, object]:
        """Return the value of each column, by its key."""
        return {column.key: column.of(row) for column in self.columns}


def partition_name(row: Any) -> str | None:
    """Return the row's `topic:partition`; None without a topic."""
    return None if row.topic is None else f"{row.topic}:{row.partition}"


def age_of(row: Any) -> Age | None:
    """Return the row's age, by the clock that it names."""
    return age_cell(row.age_seconds, row.age_clock)


def age_cell(seconds: float | None, clock: str | None) -> Age | None:
    """Return an age for a table: with `~` if only a producer's clock says it."""
    return None if seconds is None else Age(seconds, producer_clock=clock == "producer")


def marked(mark: Callable[[Any], str | None]) -> Column:
    """Return the column of marks. mark: a row's, or None."""
    return Column("mark", "", "mark", mark)


def plain(kind: CellKind, **titles: str) -> tuple[Column, ...]:
    """Return a column for each field, under its title.

    >>> [column.title for column in plain("number", start="FROM", end="TO")]
    ['FROM', 'TO']
    """
    return tuple(Column(key, title, kind) for key, title in titles.items())


FINDING = marked(lambda row: "!")
PARTITION = Column("partition", "TOPIC:PARTITION", "partition", partition_name)
RANGE = (
    Column("from", "FROM", "number", lambda row: row.start),
    Column("to", "TO", "number", lambda row: row.end),
)
TRANSACTIONAL_ID = Column("transactional_id", "TRANSACTIONAL ID", "name")
PID = Column("producer_id", "PID", "number")
EPOCH = Column("producer_epoch", "EPOCH", "number", wide_only=True)
DETAIL = Column("detail", "DETAIL", "text")


def with_gaps(text: str, answer: Answer) -> str:
    """Return the closing sentence, which says so when something could not be seen."""
    if answer.complete:
        return text
    return f"{text}; INCOMPLETE, {counted(len(answer.errors), 'thing')} could not be seen"
