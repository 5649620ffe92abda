"""The columns of the words that `explain` knows."""

from eoctl.render.columns.table import Table
from eoctl.render.explain import ExplainRow
from eoctl.render.tables import Column
from recovery.plurals import counted

WORDS = Table(
    ExplainRow,
    (
        Column("kind", "KIND", "text"),
        Column("word", "WORD", "word"),
        Column("means", "MEANS", "text"),
    ),
    names=("word",),
    summary=lambda answer: f"{counted(len(answer.rows), 'word')}; `eoctl explain WORD` says more",
)
