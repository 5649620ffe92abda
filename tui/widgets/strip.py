"""The partition strip: a cell per offset or per few, a sign per kind, the LSO marked below."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoctl.render.words import counted
from recovery.rows.strip import StripKind, StripRow
from tui.widgets.lines import Line
from tui.widgets.text import error_lines

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

SIGNS: dict[StripKind, tuple[str, str]] = {
    # a cell of several kinds shows the first of them in this order
    "open": ("#", "act"),
    "undecided": ("?", "unknown"),
    "aborted": ("x", "look"),
    "control": ("|", "key"),
    "committed": ("=", "good"),
    "plain": ("-", "text"),
    "unread": (":", "dim"),
    "missing": (" ", "dim"),
}
"""How each kind is drawn, and its role: the sign says it where colours do not."""

MOST_LISTED = 40


def strip_page(s: "Snapshot | None", subject: str | None, width: int) -> list[Line]:
    """The strip of TOPIC:P, its legend, and the stretches from the LSO on."""
    if s is None or subject is None or s.strip is None or s.strip_about != subject:
        return [((" reading the log around the LSO", "dim"),)] if subject else []
    lines = error_lines(s.strip.errors, width)
    rows = [r for r in s.strip.rows if isinstance(r, StripRow)]
    extra = s.strip.extra
    lso, high = extra.get("last_stable_offset"), extra.get("high_watermark")
    if not rows or not isinstance(lso, int) or not isinstance(high, int):
        return lines or [((" an empty log", "dim"),)]
    lines += drawn(rows, lso, high, width)
    held = [r for r in rows if r.end_offset > lso]
    shown = held[:MOST_LISTED] if held else rows[-MOST_LISTED:]
    lines.append(())
    lines += [_line(r, lso) for r in shown]
    if len(held) > MOST_LISTED:
        lines.append(((f" and {counted(len(held) - MOST_LISTED, 'more stretch')}", "dim"),))
    return lines


def drawn(rows: Sequence[StripRow], lso: int, high: int, width: int) -> list[Line]:
    """The strip in `width` cells, the place of the LSO, and what the signs mean."""
    start, end = rows[0].first_offset, rows[-1].end_offset
    room = max(min(width - 2, end - start), 1)
    step = -(-(end - start) // room)  # offsets per cell
    kinds: list[set[StripKind]] = [set() for _ in range(-(-(end - start) // step))]
    for r in rows:
        for cell in range((r.first_offset - start) // step, (r.end_offset - 1 - start) // step + 1):
            kinds[cell].add(r.kind)
    parts: list[tuple[str, str]] = [(" ", "text")]
    for kinds_here in kinds:
        parts.append(next(SIGNS[kind] for kind in SIGNS if kind in kinds_here))
    at = (lso - start) // step
    words = f"LSO {lso}" if lso < high else f"LSO = HW {lso}"
    # the words stand on the side of the arrow that has room for them
    if at + 2 + len(words) <= width - 2:
        below = " " * (at + 1) + "^ " + words
    else:
        below = (" " * max(at - len(words), 0) + words + " ^")[-(at + 2) :].rjust(at + 2)
    scale = "an offset a cell" if step == 1 else f"{step} offsets a cell"
    signs = [(sign, kind, role) for kind, (sign, role) in SIGNS.items() if sign.strip()]
    present = {r.kind for r in rows}
    legend: list[tuple[str, str]] = []
    for sign, kind, role in signs:
        if kind in present:
            legend += [(f" {sign}", role), (f" {kind} ", "dim")]
    head = f" offsets {start} to {end - 1}, HW {high}, {scale}"
    return [
        ((head, "dim"),),
        tuple(parts),
        ((below, "title"),),
        tuple(legend),
    ]


def _line(r: StripRow, lso: int) -> Line:
    sign, role = SIGNS[r.kind]
    last = r.end_offset - 1
    span = str(r.first_offset) if last == r.first_offset else f"{r.first_offset} to {last}"
    words = f" {r.outcome} marker" if r.outcome else f" {r.kind}"
    if r.producer_id is not None:
        words += f", pid {r.producer_id}"
    if last > r.first_offset:
        words += f", {counted(r.records, 'record')}" if r.batches else ""
    if r.batches > 1:
        words += f" in {counted(r.batches, 'batch', 'batches')}"
    if r.first_offset >= lso and r.kind in ("committed", "aborted", "plain"):
        words += "; waits"
    return ((f" {sign} ", role), (f"{span:<24}", "text"), (words, "text"))
