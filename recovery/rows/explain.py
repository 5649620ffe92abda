"""The row of `explain`: one word with what it means."""

from recovery.rows.row import Row


class PartRow(Row):
    """One thing that is said about a word. label: what it is about (`cause`); "" for more text."""

    label: str
    text: str


class ExplainRow(Row):
    """One entry. aliases: other words that lead to it. drawing: its lines."""

    kind: str
    word: str
    aliases: list[str]
    means: str
    parts: list[PartRow]
    drawing: list[str]
