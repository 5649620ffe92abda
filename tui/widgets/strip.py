"""The page of the partition strip: the drawing, and the stretches from the LSO on."""

from typing import TYPE_CHECKING

from eoctl.render.strip_drawing import SIGNS, drawn, kind_of
from recovery.inspect.cluster_rows import StripRow
from recovery.plurals import counted
from tui.widgets.lines import Line
from tui.widgets.text import error_lines

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

MOST_LISTED = 40


def strip_page(
    s: "Snapshot | None", subject: str | None, width: int, *, listed: bool = True
) -> list[Line]:
    """Return the strip of TOPIC:P, its legend and, listed, the stretches from the LSO on."""
    if s is None or subject is None or s.strip is None or s.strip_about != subject:
        return [((" reading the log around the LSO", "dim"),)] if subject else []
    lines = error_lines(s.strip.errors, width)
    rows = [r for r in s.strip.rows if isinstance(r, StripRow)]
    extra = s.strip.extra
    lso, high = extra.get("last_stable_offset"), extra.get("high_watermark")
    if not rows or not isinstance(lso, int) or not isinstance(high, int):
        return lines or [((" an empty log", "dim"),)]
    lines += drawn(rows, lso, high, width)
    if not listed:
        return lines
    held = [r for r in rows if r.end_offset > lso]
    shown = held[:MOST_LISTED] if held else rows[-MOST_LISTED:]
    lines.append(())
    lines += [_line(r, lso) for r in shown]
    if len(held) > MOST_LISTED:
        lines.append(((f" and {counted(len(held) - MOST_LISTED, 'more stretch')}", "dim"),))
    return lines


def _line(r: StripRow, lso: int) -> Line:
    sign, role = SIGNS[kind_of(r)]
    last = r.end_offset - 1
    span = str(r.first_offset) if last == r.first_offset else f"{r.first_offset} to {last}"
    words = f" {r.outcome} marker" if r.outcome else f" {r.kind}"
    words += {"ours": ", ours", "foreign": " that nobody decided"}.get(r.origin or "", "")
    if r.producer_id is not None:
        words += f", pid {r.producer_id}"
    if last > r.first_offset:
        words += f", {counted(r.records, 'record')}" if r.batches else ""
    if r.batches > 1:
        words += f" in {counted(r.batches, 'batch', 'batches')}"
    if r.first_offset >= lso and r.kind in ("committed", "aborted", "plain"):
        words += "; waits"
    return ((f" {sign} ", role), (f"{span:<24}", "text"), (words, "text"))
