"""The Doctor screen: what will hurt exactly-once here, and the page of one finding."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eoctl.render.columns.doctor import DOCTOR
from eoctl.render.doctor_words import labelled_parts, mark_of, subject_words
from eoctl.render.sanitise import visible
from eoctl.render.width import LABEL, labelled
from recovery.doctor.doctor_rows import DoctorRow
from recovery.doctor.findings import ALL
from recovery.doctor.narrowing import NAMED_KINDS
from recovery.values import replace
from tui.widgets.lines import Line
from tui.widgets.shared_rows import (
    Cell,
    Picked,
    Text,
    cells_of,
    table_row,
    unseen_by_error,
    unseen_lines,
)
from tui.widgets.table import MARK_ROLES
from tui.widgets.tables import MARK, TableData, TableRow, table_data, urgency
from tui.widgets.text import command_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

_doctor = Picked(DOCTOR)
COLUMNS = (
    MARK,
    _doctor("rule", 25, "R", kind="word"),
    _doctor("subject", 24, "S", 1, worth=1),
    _doctor("evidence", 15, "E", 3, worth=1),
)


def doctor_table(s: "Snapshot", text: Text, *, replay: bool) -> TableData:
    """Return the table: findings, then what the rules cannot tell, then what was not seen."""
    answer = s.doctor
    rows = [_row(key, row, text) for key, row in _by_key(answer).items()]
    if answer is not None and was_judged(answer):
        rows += _unseen(answer, text)
    return table_data(
        COLUMNS,
        sorted(rows, key=urgency),
        collected_at=answer.collected_at if answer else None,
        empty=_nothing(answer, replay=replay),
    )


def _row(key: str, row: DoctorRow, text: Text) -> TableRow:
    return table_row(key, mark_of(row), cells_of(COLUMNS, row, text), row, ("finding", key))


def _unseen(answer: "Answer", text: Text) -> Iterator[TableRow]:
    """Yield a line for what no rule could see, and for a name that nothing has."""
    for key, shown, e in unseen_lines(unseen_by_error(answer.errors)):
        what: Cell = ("not seen", "not seen")
        says = f"{e.detail} ({e.error})"
        yield table_row(key, "?", [what, (text(shown), shown), (text(says), says)], e)


def _nothing(answer: "Answer | None", *, replay: bool) -> str:
    """Return the sentence shown instead of rows."""
    if answer is None and replay:
        return "doctor was not asked in this recording, which holds no settings"
    if answer is None:
        return "asking the cluster for its settings"
    if not was_judged(answer):
        return f"? {visible(answer.errors[0].detail)}"
    return DOCTOR.summary(answer)


def was_judged(answer: "Answer") -> bool:
    """Return True if the rules were asked; False if the cluster did not answer, or is a bundle."""
    return "rules" in answer.extra


def _by_key(answer: "Answer | None") -> dict[str, DoctorRow]:
    """Return the findings by their permanent keys: rule and subject, and the number of a bug.

    What one rule cannot tell of one subject, for several reasons, is numbered.
    """
    found: dict[str, DoctorRow] = {}
    for row in answer.rows if answer else ():
        assert isinstance(row, DoctorRow)
        bug = [source for source in row.sources if source.startswith("KAFKA-")]
        name = " ".join((row.rule, *bug, subject_words(row)))
        alike = sum(key == name or key.startswith(f"{name} #") for key in found)
        found[f"{name} #{alike + 1}" if alike else name] = row
    return found


def finding_answer(answer: "Answer | None", about: str) -> "Answer | None":
    """Return the answer with this finding alone; None if it has no such finding. about: its key."""
    row = _by_key(answer).get(about)
    return None if answer is None or row is None else replace(answer, rows=[row], errors=())


def finding_page(s: "Snapshot | None", about: str, width: int) -> list[Line]:
    """Return the page of one finding. about: its key."""
    answer = s.doctor if s is not None else None
    row = _by_key(answer).get(about)
    if row is None:
        text = "asking the cluster" if answer is None else "doctor has no such finding now"
        return [((f" {text}", "dim"),)]
    return finding_lines(row, width)


def finding_lines(row: DoctorRow, width: int) -> list[Line]:
    """Return one finding: what was seen, harm, remedy, sources, command."""
    mark = mark_of(row)
    title = visible(f"{row.rule}  {subject_words(row)}")
    lines: list[Line] = [((f" {mark} ", MARK_ROLES[mark]), (title, "title"))]
    for label, text in labelled_parts(row):
        parts = labelled(label, visible(text), width - 1, "…")
        lines += [((part[:LABEL], "dim"), (part[LABEL:], "text")) for part in parts]
    if row.command is not None:
        says = "the change, with a tool of Kafka; nothing here runs it:"
        lines += [(), *(((part, "dim"),) for part in wrapped(says, width - 1, " "))]
        lines += [((part, "key"),) for part in command_lines(row.command, width)]
    return lines


def named_by(source: object) -> list[str]:
    """Return the name after which `doctor` shows this finding alone; none for the cluster's."""
    if not isinstance(source, DoctorRow) or source.subject.kind not in NAMED_KINDS:
        return []
    return [source.subject.name] if source.subject.name != ALL else []
