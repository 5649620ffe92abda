"""One row of a screen from one model: what each cell says, and what it is sorted by."""

from collections.abc import Callable, Sequence

from eoctl.render.sanitise import visible
from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis import ORDER, mark
from recovery.rows.diagnosis import TxnHangingRow
from recovery.rows.offsets import OffsetsShowRow
from recovery.rows.row import LsoRow, ProducerRow, TxnListRow
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


def partition_row(
    r: LsoRow, name: str, verdict: TxnHangingRow | None, spark: str, text: Text
) -> TableRow:
    """A partition; verdict: the worst judged transaction that holds it."""
    b = r.blocking
    if r.error:
        sign, held_by = "?", r.error
    elif verdict is not None:
        sign = mark(verdict.verdict) or ""
        held_by = verdict.transactional_id or f"pid {verdict.producer_id}, no owner"
    else:
        sign = "" if r.blocking_known else "?"
        held_by = (b.transactional_id or f"pid {b.producer_id}") if b else ""
        held_by = held_by if r.blocking_known else "not known"
    cells: list[Cell] = [
        (text(name), (r.topic, r.partition)),
        numbered(r.last_stable_offset),
        numbered(r.high_watermark),
        numbered(r.held),
        (spark, None),
        aged(b.age_seconds if b else None, b.age_clock if b else None),
        (text(held_by) if held_by else "", held_by or None),
        numbered(r.leader),
    ]
    return table_row(name, sign, cells, r, ("why", name), verdict)


def producer_row(r: ProducerRow, now: int, text: Text) -> TableRow:
    """A producer of a partition."""
    name = f"{r.topic}:{r.partition}"
    sign = "?" if r.error else "!" if r.stale_epoch else ""
    cells: list[Cell] = [
        (text(name), (r.topic, r.partition)),
        numbered(r.producer_id),
        numbered(r.producer_epoch),
        numbered(r.last_sequence),
        numbered(r.current_txn_start_offset),
        aged(since(r.last_timestamp, now), "producer"),
        (text(r.transactional_id) if r.transactional_id else "-", r.transactional_id),
        ("zombie" if r.stale_epoch else "", r.stale_epoch),
    ]
    opens = ("timeline", r.transactional_id) if r.transactional_id else ("why", name)
    return table_row(f"{name}:{r.producer_id}", sign, cells, r, opens)


def group_row(g: OffsetsShowRow, state: str | None, sign: str, text: Text) -> TableRow:
    """A group on a partition."""
    name = f"{g.topic}:{g.partition}"
    words = "yes" if g.pending else "-" if g.pending is None else "no"
    cells: list[Cell] = [
        (text(g.group), g.group),
        (text(name), (g.topic, g.partition)),
        numbered(g.committed_offset),
        numbered(g.last_stable_offset),
        numbered(g.lag),
        numbered(g.lag_hw),
        (words, words),
        (g.error or state or "-", state),
    ]
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
    timeout = "-" if t.timeout_ms is None else age_words(t.timeout_ms / 1000)
    cells: list[Cell] = [
        (text(t.transactional_id), t.transactional_id),
        (h.verdict, ORDER.index(h.verdict)) if h else ("-", None),
        (t.error or t.state or "-", t.state),
        aged(t.age_seconds, "coordinator"),
        (timeout, t.timeout_ms),
        numbered(t.partitions),
        numbered(t.producer_id),
        numbered(t.producer_epoch),
        numbered(t.coordinator),
    ]
    return table_row(key, sign, cells, h or t, ("timeline", t.transactional_id), h)


def stray_row(key: str, found: Sequence[TxnHangingRow]) -> TableRow:
    """An open transaction that no transactional id owns."""
    h = found[0]
    name = h.transactional_id
    said = f"(was {visible(name, spaces=True)})" if name else f"pid {h.producer_id}, no owner"
    cells: list[Cell] = [
        (said, said),
        (h.verdict, ORDER.index(h.verdict)),
        (h.state or "-", h.state),
        aged(h.age_seconds, h.age_clock),
        ("-", None),
        numbered(len(found)),
        numbered(h.producer_id),
        numbered(h.producer_epoch),
        ("-", None),
    ]
    return table_row(key, mark(h.verdict) or "", cells, h, ("why", h.where), h)


def number(value: int | None) -> str:
    """Plain digits; `-` where it is not known."""
    return "-" if value is None else str(value)


def numbered(value: int | None) -> Cell:
    """A cell of a number."""
    return number(value), value


def aged(seconds: float | None, clock: str | None = None) -> Cell:
    """A cell of an age: `3m`, by a producer's clock `~3m`."""
    if seconds is None:
        return "", None
    return age_words(max(seconds, 0.0), producer_clock=clock == "producer"), seconds


def since(moment: int | None, now: int) -> float | None:
    """Return the seconds from a moment to now, both epoch milliseconds."""
    return None if moment is None else (now - moment) / 1000
