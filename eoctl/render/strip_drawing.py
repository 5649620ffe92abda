"""Draw the partition strip: a cell per offset or per few, a sign per kind, the LSO marked below.

The command line and the dashboard show the same drawing; the report draws it in HTML.
"""

from collections.abc import Sequence

from recovery.inspect.cluster_rows import MarkerRow, StripRow
from recovery.times import rfc3339

Part = tuple[str, str]
"""Text, and its role: the dashboard gives it a colour."""

SIGNS: dict[str, tuple[str, str]] = {
    # a cell of several kinds shows the first of them in this order
    "open": ("#", "act"),
    "undecided": ("?", "unknown"),
    "marker nobody decided": ("!", "look"),
    "aborted": ("x", "look"),
    "commit marker": ("C", "key"),
    "abort marker": ("A", "key"),
    "control": ("|", "key"),
    "committed": ("=", "good"),
    "plain": ("-", "text"),
    "unread": (":", "dim"),
    "missing": (" ", "dim"),
}
"""How each kind is drawn, and its role: the sign says it where colours do not."""


def kind_of(row: StripRow) -> str:
    """Return what a stretch is drawn as, a key of `SIGNS`."""
    if row.kind != "control" or row.outcome is None:
        return row.kind
    return "marker nobody decided" if row.origin == "foreign" else f"{row.outcome} marker"


def drawn(rows: Sequence[StripRow], lso: int, high: int, width: int) -> list[tuple[Part, ...]]:
    """Return the strip in `width` cells, the position of the LSO, and what the signs mean."""
    start, end = rows[0].first_offset, rows[-1].end_offset
    room = max(min(width - 2, end - start), 1)
    step = -(-(end - start) // room)  # offsets per cell
    kinds: list[set[str]] = [set() for _ in range(-(-(end - start) // step))]
    for r in rows:
        for cell in range((r.first_offset - start) // step, (r.end_offset - 1 - start) // step + 1):
            kinds[cell].add(kind_of(r))
    parts: list[Part] = [(" ", "text")]
    for kinds_here in kinds:
        parts.append(next(SIGNS[kind] for kind in SIGNS if kind in kinds_here))
    at = (lso - start) // step
    words = f"LSO {lso}" if lso < high else f"LSO = HW {lso}"
    # the words go to the side of the arrow that has room for them
    if at + 2 + len(words) <= width - 2:
        below = " " * (at + 1) + "^ " + words
    else:
        below = (" " * max(at - len(words), 0) + words + " ^")[-(at + 2) :].rjust(at + 2)
    scale = "one offset per cell" if step == 1 else f"{step} offsets per cell"
    signs = [(sign, kind, role) for kind, (sign, role) in SIGNS.items() if sign.strip()]
    present = {kind_of(r) for r in rows}
    legend: list[Part] = []
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


def strip_lines(rows: Sequence[StripRow], lso: int, high: int, width: int) -> list[str]:
    """Return the drawing as plain text that begins at the left edge."""
    drawing = drawn(rows, lso, high, width + 1)
    return ["".join(text for text, _ in line)[1:].rstrip() for line in drawing]


def marker_words(m: MarkerRow) -> str:
    """Say where a marker is that no coordinator decided, and whose it is."""
    text = (
        f"{m.outcome.upper()} at offset {m.offset}, {rfc3339(m.timestamp)}, pid {m.producer_id} "
        f"epoch {m.producer_epoch}, coordinator epoch {m.coordinator_epoch}"
    )
    if m.origin == "ours":
        return f"{text}: written by eoctl, see the journal"
    return f"{text}: no decision of its coordinator fits it, so another tool or a person wrote it"
