"""One row of a screen from one model: what each cell says, and what it is sorted by."""

from collections.abc import Callable, Sequence
from typing import Any

from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from eoctl.render.words import Age
from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis import ORDER, mark
from recovery.rows.diagnosis import TxnHangingRow
from recovery.rows.offsets import OffsetsShowRow
from recovery.rows.row import LsoRow, ProducerRow, TxnListRow
from tui.screens.views import GROUPS, PARTITIONS, PRODUCERS, TRANSACTIONS
from tui.widgets.tables import TableRow

Text = Callable[[str], str]
"""Makes text from the cluster safe to draw."""

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
    """A row of its mark and its other cells. The rest is as TableRow has it."""
    texts, values = zip(*cells, strict=True)
    return TableRow(key, (sign, *texts), (None, *values), sign, source, opens, judged)


def cells_of(columns: Sequence[Column], row: object, text: Text, **given: Cell) -> list[Cell]:
    """Return the cells of a row after its mark: those given by key, the others by their column."""
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


def partition_row(
    r: LsoRow, name: str, verdict: TxnHangingRow | None, spark: str, text: Text
) -> TableRow:
    """A partition; verdict: the worst judged transaction that holds it."""
    given: dict[str, Cell] = {"trend": (spark, None)}
    if verdict is not None and not r.error:
        held_by = verdict.transactional_id or f"pid {verdict.producer_id}, no owner"
        given["held_by"] = text(held_by), held_by
    elif r.blocking is None and r.blocking_known and not r.error:
        given["held_by"] = "", None
    unknown = r.error or (verdict is None and not r.blocking_known)
    sign = "?" if unknown else mark(verdict.verdict) or "" if verdict else ""
    cells = cells_of(PARTITIONS.columns, r, text, **given)
    return table_row(name, sign, cells, r, ("why", name), verdict)


def producer_row(r: ProducerRow, now: int, text: Text) -> TableRow:
    """A producer of a partition."""
    name = f"{r.topic}:{r.partition}"
    sign = "?" if r.error else "!" if r.stale_epoch else ""
    age = aged(since(r.last_timestamp, now), producer_clock=True)
    opens = ("timeline", r.transactional_id) if r.transactional_id else ("why", name)
    cells = cells_of(PRODUCERS.columns, r, text, age=age)
    return table_row(f"{name}:{r.producer_id}", sign, cells, r, opens)


def group_row(g: OffsetsShowRow, state: str | None, sign: str, text: Text) -> TableRow:
    """A group on a partition."""
    name = f"{g.topic}:{g.partition}"
    words = "yes" if g.pending else "-" if g.pending is None else "no"
    said = g.error or state or "-"
    cells = cells_of(GROUPS.columns, g, text, pending=(words, words), state=(said, state))
    return table_row(f"{g.group}\0{name}", sign, cells, g, ("why", name))


def bare_group_row(group: str, state: str | None, text: Text) -> TableRow:
    """A group that has committed nothing."""
    nothing: list[Cell] = [("-", None)] * 5
    cells: list[Cell] = [(text(group), group), *nothing, ("-", "-"), (state or "-", state)]
    return table_row(f"{group}\0", "", cells)


def listed_row(key: str, t: TxnListRow, found: Sequence[TxnHangingRow], text: Text) -> TableRow:
    """A transactional id with the worst verdict on what it has open."""
    h = found[0] if found else None
    late = bool(t.age_seconds and t.timeout_ms and t.age_seconds * 1000 > t.timeout_ms)
    sign = "?" if t.error else (mark(h.verdict) or "") if h else "!" if late else ""
    verdict = (h.verdict, ORDER.index(h.verdict)) if h else ("-", None)
    state = (t.error or t.state or "-", t.state)
    cells = cells_of(TRANSACTIONS.columns, t, text, verdict=verdict, state=state)
    return table_row(key, sign, cells, h or t, ("timeline", t.transactional_id), h)


def stray_row(key: str, found: Sequence[TxnHangingRow]) -> TableRow:
    """An open transaction that no transactional id owns."""
    h = found[0]
    name = h.transactional_id
    said = f"(was {visible(name, spaces=True)})" if name else f"pid {h.producer_id}, no owner"
    cells = cells_of(
        TRANSACTIONS.columns,
        h,
        str,
        transactional_id=(said, said),
        verdict=(h.verdict, ORDER.index(h.verdict)),
        state=(h.state or "-", h.state),
        age=aged(h.age_seconds, h.age_clock == "producer"),
        timeout=("-", None),
        partitions=numbered(len(found)),
        coordinator=("-", None),
    )
    return table_row(key, mark(h.verdict) or "", cells, h, ("why", h.where), h)


def number(value: int | None) -> str:
    """Plain digits; `-` where it is not known."""
    return "-" if value is None else str(value)


def numbered(value: int | None) -> Cell:
    """A cell of a number."""
    return number(value), value


def aged(seconds: float | None, producer_clock: bool = False) -> Cell:
    """A cell of an age: `3m`, by a producer's clock `~3m`."""
    if seconds is None:
        return "", None
    return age_words(max(seconds, 0.0), producer_clock=producer_clock), seconds


def since(moment: int | None, now: int) -> float | None:
    """Return the seconds from a moment to now, both epoch milliseconds."""
    return None if moment is None else (now - moment) / 1000
