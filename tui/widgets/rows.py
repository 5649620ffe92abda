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
    seconds = b.age_seconds if b else None
    return TableRow(
        name,
        (
            sign,
            text(name),
            number(r.last_stable_offset),
            number(r.high_watermark),
            number(r.held),
            spark,
            age(seconds, b.age_clock if b else None),
            text(held_by) if held_by else "",
            number(r.leader),
        ),
        (
            None,
            (r.topic, r.partition),
            r.last_stable_offset,
            r.high_watermark,
            r.held,
            None,
            seconds,
            held_by or None,
            r.leader,
        ),
        sign,
        r,
        ("why", name),
        verdict,
    )


def producer_row(r: ProducerRow, now: int, text: Text) -> TableRow:
    """A producer of a partition."""
    name = f"{r.topic}:{r.partition}"
    sign = "?" if r.error else "!" if r.stale_epoch else ""
    seconds = None if r.last_timestamp is None else (now - r.last_timestamp) / 1000
    opens = ("timeline", r.transactional_id) if r.transactional_id else ("why", name)
    return TableRow(
        f"{name}:{r.producer_id}",
        (
            sign,
            text(name),
            str(r.producer_id),
            str(r.producer_epoch),
            number(r.last_sequence),
            number(r.current_txn_start_offset),
            age(seconds, "producer"),
            text(r.transactional_id) if r.transactional_id else "-",
            "zombie" if r.stale_epoch else "",
        ),
        (
            None,
            (r.topic, r.partition),
            r.producer_id,
            r.producer_epoch,
            r.last_sequence,
            r.current_txn_start_offset,
            seconds,
            r.transactional_id,
            r.stale_epoch,
        ),
        sign,
        r,
        opens,
    )


def group_row(g: OffsetsShowRow, state: str | None, sign: str, text: Text) -> TableRow:
    """A group on a partition."""
    name = f"{g.topic}:{g.partition}"
    words = "yes" if g.pending else "-" if g.pending is None else "no"
    return TableRow(
        f"{g.group}\0{name}",
        (
            sign,
            text(g.group),
            text(name),
            number(g.committed_offset),
            number(g.last_stable_offset),
            number(g.lag),
            number(g.lag_hw),
            words,
            g.error or state or "-",
        ),
        (
            None,
            g.group,
            (g.topic, g.partition),
            g.committed_offset,
            g.last_stable_offset,
            g.lag,
            g.lag_hw,
            words,
            state,
        ),
        sign,
        g,
        ("why", name),
    )


def bare_group_row(group: str, state: str | None, text: Text) -> TableRow:
    """A group that has committed nothing."""
    return TableRow(
        f"{group}\0",
        ("", text(group), "-", "-", "-", "-", "-", "-", state or "-"),
        (None, group, None, None, None, None, None, "-", state),
    )


def listed_row(key: str, t: TxnListRow, found: Sequence[TxnHangingRow], text: Text) -> TableRow:
    """A transactional id with the worst verdict on what it has open."""
    h = found[0] if found else None
    late = bool(t.age_seconds and t.timeout_ms and t.age_seconds * 1000 > t.timeout_ms)
    sign = "?" if t.error else (mark(h.verdict) or "") if h else "!" if late else ""
    return TableRow(
        key,
        (
            sign,
            text(t.transactional_id),
            h.verdict if h else "-",
            t.error or t.state or "-",
            age(t.age_seconds, "coordinator"),
            "-" if t.timeout_ms is None else age_words(t.timeout_ms / 1000),
            number(t.partitions),
            number(t.producer_id),
            number(t.producer_epoch),
            number(t.coordinator),
        ),
        (
            None,
            t.transactional_id,
            None if h is None else ORDER.index(h.verdict),
            t.state,
            t.age_seconds,
            t.timeout_ms,
            t.partitions,
            t.producer_id,
            t.producer_epoch,
            t.coordinator,
        ),
        sign,
        h or t,
        ("timeline", t.transactional_id),
        h,
    )


def stray_row(key: str, found: Sequence[TxnHangingRow]) -> TableRow:
    """An open transaction that no transactional id owns."""
    h = found[0]
    name = h.transactional_id
    said = f"(was {visible(name, spaces=True)})" if name else f"pid {h.producer_id}, no owner"
    sign = mark(h.verdict) or ""
    return TableRow(
        key,
        (
            sign,
            said,
            h.verdict,
            h.state or "-",
            age(h.age_seconds, h.age_clock),
            "-",
            str(len(found)),
            number(h.producer_id),
            number(h.producer_epoch),
            "-",
        ),
        (
            None,
            said,
            ORDER.index(h.verdict),
            h.state,
            h.age_seconds,
            None,
            len(found),
            h.producer_id,
            h.producer_epoch,
            None,
        ),
        sign,
        h,
        ("why", h.where),
        h,
    )


def number(value: int | None) -> str:
    """Plain digits; `-` where it is not known."""
    return "-" if value is None else str(value)


def age(seconds: float | None, clock: str | None) -> str:
    """`3m`, by a producer's clock `~3m`."""
    if seconds is None:
        return ""
    return age_words(max(seconds, 0.0), producer_clock=clock == "producer")
