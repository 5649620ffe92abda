"""Draw a group's commits over time: a lane for each partition, with what stands out in it."""

from collections.abc import Mapping, Sequence

from eoctl.render.sanitise import visible
from eoctl.render.width import cells, cut_middle
from eoctl.render.words import age as age_words
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow
from recovery.plurals import counted
from recovery.times import rfc3339
from tui.widgets.lines import Line, Part, clipped

SAYS = 34  # cells of the words at the right end of a lane
MOST = 40  # partitions
SIGNS: Mapping[str, tuple[str, str]] = {
    # a cell of several commits shows the first of them in this order
    "stands out": ("!", "act"),
    "deleted": ("D", "look"),
    "pending": ("?", "unknown"),
    "does not count": ("x", "look"),
    "in a transaction": ("=", "good"),
    "outside of transactions": ("o", "text"),
}
_RANK = {kind: rank for rank, kind in enumerate(SIGNS)}


def kind_of(row: OffsetsHistoryRow) -> str:
    """Return what a commit is drawn as, a key of `SIGNS`."""
    if row.event in ("reset", "back", "leap"):
        return "stands out"
    if row.deleted:
        return "deleted"
    if row.counts is None:
        return "pending"
    if not row.counts:
        return "does not count"
    return "outside of transactions" if row.outcome is None else "in a transaction"


def commit_lanes(rows: Sequence[OffsetsHistoryRow], now: int, width: int) -> list[Line]:
    """Return the lanes, the time axis and what the signs mean. now: where the axis ends."""
    lanes: dict[str, list[OffsetsHistoryRow]] = {}
    for row in rows:
        lanes.setdefault(str(row.topic_partition), []).append(row)
    names = sorted(lanes, key=lambda name: lanes[name][0].topic_partition)
    wide = min(max(map(cells, map(visible, names)), default=0), max(width // 4, 12))
    room = width - wide - SAYS - 4
    times = [row.timestamp for row in rows if row.timestamp is not None]
    if room < 12 or not times:
        return []
    begin, end = min(times), max(now, *times, min(times) + 1)
    lines: list[Line] = []
    for name in names[:MOST]:
        lane = _lane(lanes[name], begin, end, room)
        shown = cut_middle(visible(name), wide)
        head: Line = ((f" {shown}{' ' * (wide - cells(shown))} ", "text"),)
        lines.append((*head, *lane, (f"  {_says(lanes[name], now)}", "dim")))
    if len(names) > MOST:
        lines.append(((f" and {counted(len(names) - MOST, 'more partition')}", "dim"),))
    lines.append(((" " * (wide + 2) + _times(begin, end, room), "dim"),))
    lines.append(_legend(rows))
    return [clipped(line, width) for line in lines]


def _lane(rows: Sequence[OffsetsHistoryRow], begin: int, end: int, room: int) -> list[Part]:
    """Return a partition's cells as runs of one role."""
    worst: dict[int, str] = {}
    for row in rows:
        cell = ((row.timestamp or begin) - begin) * (room - 1) // (end - begin)
        kind = kind_of(row)
        worst[cell] = min(worst.get(cell, kind), kind, key=_RANK.__getitem__)
    parts: list[Part] = []
    for cell in range(room):
        sign, role = SIGNS[worst[cell]] if cell in worst else ("·", "dim")
        if parts and parts[-1][1] == role:
            parts[-1] = (parts[-1][0] + sign, role)
        else:
            parts.append((sign, role))
    return parts


def _says(rows: Sequence[OffsetsHistoryRow], now: int) -> str:
    """Return where the partition was, where it is now, and since when."""
    known = [row for row in rows if row.counts]
    if not known:
        return "nothing that counts"
    first, last = known[0], known[-1]
    ago = f", {age_words(max(0, now - last.timestamp) / 1000)} ago" if last.timestamp else ""
    if last.deleted:
        return f"no offset any more{ago}"
    begin = first.committed_offset if first.previous_offset is None else first.previous_offset
    moved = f"{begin} > " if begin not in (None, last.committed_offset) else ""
    return f"{moved}{last.committed_offset}{ago}"


def _times(begin: int, end: int, room: int) -> str:
    part = slice(11, 19) if end - begin < 86_400_000 else slice(5, 16)
    first, last = ((rfc3339(at) or "?")[part].replace("T", " ") for at in (begin, end))
    return first + f"{last}Z".rjust(room - len(first))


def _legend(rows: Sequence[OffsetsHistoryRow]) -> Line:
    kinds = {kind_of(row) for row in rows}
    return ((" ", "text"), *((f"{SIGNS[k][0]} {k}  ", SIGNS[k][1]) for k in SIGNS if k in kinds))
