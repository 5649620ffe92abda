"""The columns of what `doctor` found."""

from eoctl.render.columns.table import Table, marked, with_gaps
from eoctl.render.doctor_words import mark_of, subject_words
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.doctor.doctor_rows import DoctorRow
from recovery.plurals import counted


def _summary(answer: Answer) -> str:
    rows = [row for row in answer.rows if isinstance(row, DoctorRow)]
    found = sum(row.state == "finding" for row in rows)
    text = counted(found, "finding") if found else "no finding"
    if unknown := len(rows) - found:
        text += f", {counted(unknown, 'question')} without an answer"
    return with_gaps(f"{text} by {counted(answer.extra['rules'], 'rule')}", answer)


DOCTOR = Table(
    DoctorRow,
    (
        marked(mark_of),
        Column("rule", "RULE", "text"),
        Column("subject", "SUBJECT", "name", subject_words),
        Column("evidence", "EVIDENCE", "text", lambda row: "; ".join(e.text for e in row.evidence)),
        Column("remedy", "REMEDY", "text", wide_only=True),
        Column("command", "COMMAND", "command", wide_only=True),
    ),
    names=("rule",),
    summary=_summary,
)
