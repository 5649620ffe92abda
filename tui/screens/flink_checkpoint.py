"""The page of a Flink checkpoint: what became of each transaction that the checkpoint holds."""

from typing import TYPE_CHECKING

from eoctl.render.columns.flink_checkpoint import COMMITTABLES
from eoctl.render.sanitise import visible
from eoctl.render.tables import render_table, sort_rows
from tui.widgets.lines import Line
from tui.widgets.table import MARK_ROLES
from tui.widgets.text import error_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


def checkpoint_page(s: "Snapshot | None", path: str, width: int) -> list[Line]:
    """Return the command's table, its last column below. path: the checkpoint's folder."""
    answer = s.checkpoint if s is not None and s.checkpoint_about == path else None
    if answer is None:
        return [((f" reading the checkpoint {visible(path)}", "dim"),)]
    lines = error_lines(answer.errors, width, named=True)
    if "checkpoint_id" not in answer.extra:
        return lines  # the checkpoint could not be read
    summary = visible(COMMITTABLES.summary(answer))
    lines = [((part, "title"),) for part in wrapped(summary, width - 1, " ")] + lines
    rows = sort_rows([COMMITTABLES.cells(row) for row in answer.rows], COMMITTABLES.columns)
    columns = [column for column in COMMITTABLES.columns if column.key != "what"]
    head, *texts = render_table(rows, columns, width=width - 1)
    lines += [(), ((f" {head}", "dim"),)]
    for row, text in zip(rows, texts, strict=True):
        lines.append(((f" {text}", MARK_ROLES.get(str(row["mark"]), "text")),))
        lines += [
            ((part, "dim"),) for part in wrapped(visible(str(row["what"])), width - 1, "    ")
        ]
    return lines
