"""The Groups screen: where groups are between LSO and high watermark; one group's commits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from eoctl.render.columns import commits, inspect
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from eoctl.render.width import cells, cut_middle
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import OffsetsShowRow
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow
from recovery.times import rfc3339
from tui.board.headline import stuck
from tui.widgets.commit_lanes import SIGNS, commit_lanes, kind_of
from tui.widgets.lines import Line, clipped
from tui.widgets.shared_rows import Cell, Picked, Text, answer_table, cells_of, table_row
from tui.widgets.tables import MARK, TableData, TableRow
from tui.widgets.text import error_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot


PENDING_WIDTH = 7
STANDING_OUT = 20  # sentences on a group's page
NEWEST = 200  # commits listed on it
_group = Picked(inspect.OFFSETS)
COLUMNS = (
    MARK,
    _group("group", 20, "R", 2),
    _group("partition", 20, "P", 2, worth=1),
    _group("committed_offset", 10, "O"),
    _group("last_stable_offset", 10, "L", worth=-1),
    _group("lag", 7, "N", worth=1),
    _group("lag_hw", 7, "H"),
    _group("pending", PENDING_WIDTH, "X"),
    Column("state", "STATE", usual=19, worth=1, letter="S"),
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
    return table_row(f"{group}\0", "", cells, opens=("group", group))


def group_of(row: TableRow) -> str:
    """Return the group of a row of this screen."""
    return row.key.partition("\0")[0]


def group_page(s: "Snapshot | None", group: str, width: int) -> list[Line]:
    """Return a group's commits: a lane a partition, what stands out, then the newest commits."""
    if s is None or s.commits is None or s.commits_about != group:
        return [((f" reading the commits of {visible(group)}", "dim"),)]
    answer = s.commits
    rows = [r for r in answer.rows if isinstance(r, OffsetsHistoryRow)]
    lines = error_lines(answer.errors, width)
    if not rows:
        if not lines:
            lines = [((" no commit of it is left in __consumer_offsets", "dim"),)]
        return lines
    for text in (commits.COMMITS.summary(answer), *map(visible, answer.notes)):
        lines += [((part, "dim"),) for part in wrapped(text, width - 1, " ")]
    lines += [(), *commit_lanes(rows, answer.collected_at, width)]
    lines += _standing_out(rows, width)
    lines += [(), ((" newest commits", "title"),), *_newest(rows, width)]
    return lines


def _standing_out(rows: Sequence[OffsetsHistoryRow], width: int) -> Iterator[Line]:
    """Yield a sentence for each commit that stands out, the newest first."""
    found = [row for row in rows if row.event is not None]
    if not found:
        return
    yield ()
    yield ((" what stands out", "title"),)
    for row in reversed(found[-STANDING_OUT:]):
        first, *rest = wrapped(visible(commits.sentence(row)), width - 1, " ")
        yield ((first, "look"),)
        yield from ((("  " + part, "look"),) for part in rest)


def _newest(rows: Sequence[OffsetsHistoryRow], width: int) -> Iterator[Line]:
    """Yield a line for each of the newest commits."""
    shown = list(reversed(rows[-NEWEST:]))
    names = [visible(str(r.topic_partition)) for r in shown]
    wide = min(max(map(cells, names)), max(width // 4, 12))
    for r, name in zip(shown, (cut_middle(name, wide) for name in names), strict=True):
        sign, role = SIGNS[kind_of(r)]
        offset = "deleted" if r.deleted else str(r.committed_offset)
        words = "  ".join(filter(None, (commits.by(r), commits.outcome(r), commits.event(r))))
        line: Line = (
            (f" {(rfc3339(r.timestamp) or '?')[:19].replace('T', ' ')}  ", "dim"),
            (f"{sign} ", role),
            (f"{name}{' ' * (wide - cells(name))} {offset:>12} ", "text"),
            (f"{commits.moved(r) or '':>9}  {visible(words)}", "text"),
        )
        yield clipped(line, width)
