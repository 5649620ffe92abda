"""The Groups screen: where groups are between LSO and high watermark."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from eoctl.render.columns import inspect
from eoctl.render.tables import Column
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import OffsetsShowRow
from tui.board.headline import stuck
from tui.widgets.shared_rows import Cell, Picked, Text, answer_table, cells_of, table_row
from tui.widgets.tables import MARK, TableData, TableRow

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


PENDING_WIDTH = 7
_group = Picked(inspect.OFFSETS)
COLUMNS = (
    MARK,
    _group("group", (12, 18, 34), "R", 2),
    _group("partition", (15, 20, 36), "P", 2),
    _group("committed_offset", (9, 10, 14), "O"),
    _group("last_stable_offset", (0, 0, 14), "L"),
    _group("lag", (6, 7, 10), "N"),
    _group("lag_hw", (6, 7, 10), "H"),
    _group("pending", (PENDING_WIDTH,) * 3, "X"),
    Column("state", "STATE", widths=(7, 8, 12), letter="S"),
)


def groups_table(s: "Snapshot", before: Mapping[str, TableRow], text: Text) -> TableData:
    """Return the table: groups that are held up first."""
    answer = s.groups
    findings = [h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)]
    listed = cast("list[dict[str, str | None]]", answer.extra.get("groups", ()) if answer else ())
    states = {str(g["group"]): g["state"] for g in listed}
    bare = set(states)
    rows: list[TableRow] = []
    for g in answer.rows if answer else ():
        assert isinstance(g, OffsetsShowRow)
        state = states.get(g.group)
        bare.discard(g.group)
        sign = "?" if g.error else "!" if stuck(g, findings) else ""
        row = before.get(f"{g.group}\0{g.topic_partition}")
        if row is None or row.mark != sign or row.sort[-1] != state or row.source != g:
            row = group_row(g, state, sign, text)
        rows.append(row)
    rows += [bare_group_row(name, state, text) for name, state in states.items() if name in bare]
    return answer_table(COLUMNS, rows, "groups", answer, s)


def group_row(g: OffsetsShowRow, state: str | None, sign: str, text: Text) -> TableRow:
    """Return the row of a group on a partition."""
    name = str(g.topic_partition)
    words = "yes" if g.pending else "-" if g.pending is None else "no"
    if g.pending_offset is not None and len(value := str(g.pending_offset)) <= PENDING_WIDTH:
        words = value  # a longer one would be cut, which no number may be
    said = g.error or state or "-"
    cells = cells_of(COLUMNS, g, text, pending=(words, words), state=(said, state))
    return table_row(f"{g.group}\0{name}", sign, cells, g, ("why", name))


def bare_group_row(group: str, state: str | None, text: Text) -> TableRow:
    """Return the row of a group that has committed nothing."""
    nothing: list[Cell] = [("-", None)] * 5
    cells: list[Cell] = [(text(group), group), *nothing, ("-", "-"), (state or "-", state)]
    return table_row(f"{group}\0", "", cells)
