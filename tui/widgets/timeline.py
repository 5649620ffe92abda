"""Draw one transaction over time: its decision, and a lane for each of its partitions.

The decision is from `__transaction_state`, batches and markers are from the partitions' logs. Their
clocks are the coordinator's, the producer's and the leaders', so neighbours may be swapped.
"""

from collections.abc import Collection, Sequence

from eoctl.render.sanitise import visible
from eoctl.render.strip_drawing import SIGNS, kind_of
from eoctl.render.width import cells, cut_middle
from eoctl.render.words import age as age_words
from recovery.inspect.cluster_rows import HistoryRow, StripRow
from recovery.plurals import counted
from recovery.times import rfc3339
from recovery.values import Value
from tui.widgets.lines import Line, Part, clipped

SAYS = 24  # cells of the words at the right end of a lane
OPEN, GAP = ".", "!"


class Transaction(Value):
    """A transaction of an id's history. Times: epoch ms; None: not yet, or not in the history."""

    producer_id: int | None
    producer_epoch: int | None
    begun: int
    decided: int | None = None
    outcome: str = ""  # commit, abort
    completed: int | None = None


def newest_transaction(rows: Sequence[HistoryRow]) -> Transaction | None:
    """Return the newest transaction that names partitions; None: none is in the history."""
    at = next((n for n in range(len(rows) - 1, -1, -1) if rows[n].partitions), None)
    if at is None:
        return None
    first = rows[at]
    begun = first.start_timestamp or first.timestamp
    if begun is None:
        return None
    times: dict[str, int | None] = {}
    outcome = ""
    for r in rows[at:]:
        state = r.state or ""
        if r is not first and state in ("Empty", "Ongoing"):
            break
        for word, name in (("Prepare", "decided"), ("Complete", "completed")):
            if state.startswith(word):
                times[name], outcome = r.timestamp, state.removeprefix(word).lower()
    return Transaction(first.producer_id, first.producer_epoch, begun, outcome=outcome, **times)


def transaction_lines(
    t: Transaction,
    names: Sequence[str],
    rows: Sequence[StripRow],
    lost: Collection[str],
    now: int,
    width: int,
) -> list[Line]:
    """Return the heading, the lanes, and the time axis.

    names: the partitions that were read, with `rows`. lost: those whose marker is proven lost.
    """
    name = min(max((cells(visible(n)) for n in (*names, "transaction")), default=0), width // 4)
    room = width - name - SAYS - 4
    if room < 12:
        return []
    end = max(t.completed or now, t.begun + 1)
    if lost or t.completed is None:
        end = max(now, t.begun + 1)
    axis = _Axis(t.begun, end, room)
    lines: list[Line] = [_heading(t, now), _line("transaction", name, axis.decision(t), "")]
    for partition in names:
        mine = [r for r in rows if f"{r.topic}:{r.partition}" == partition]
        data, marker = _of(t, mine)
        drawn, says = axis.partition(t, data, marker, gap=partition in lost)
        lines.append(_line(partition, name, drawn, *says))
    lines.append(((" " * (name + 2) + axis.times(), "dim"),))
    lines.append(_legend(t, bool(lost)))
    return [clipped(line, width) for line in lines]


def _of(t: Transaction, rows: Sequence[StripRow]) -> tuple[list[StripRow], StripRow | None]:
    """Return the producer's data since its last marker but one, and the marker after it."""
    data: list[StripRow] = []
    marker: StripRow | None = None
    for r in rows:
        if r.producer_id != t.producer_id or r.producer_id is None:
            continue
        if r.kind == "control":
            marker = r
        else:
            if marker is not None:
                data, marker = [], None
            data.append(r)
    if marker is not None and t.decided is None and t.completed is None:
        return [], None  # that is of the transaction before
    return data, marker


class _Axis:
    """Cells of time: from the beginning to the end of a transaction, or to now."""

    def __init__(self, begin: int, end: int, room: int) -> None:
        self.begin, self.end, self.room = begin, end, room

    def cell(self, at: int | None) -> int:
        """Return the cell of a time; None: of the beginning."""
        at = self.begin if at is None else at
        return max(
            0, min((at - self.begin) * (self.room - 1) // (self.end - self.begin), self.room - 1)
        )

    def decision(self, t: Transaction) -> list[Part]:
        """Return the lane of `__transaction_state`."""
        signs: list[Part] = [("-", "dim")] * self.room
        until = self.cell(t.completed) if t.completed is not None else self.room - 1
        signs[until + 1 :] = [(" ", "text")] * (self.room - until - 1)
        if t.decided is not None:
            since = self.cell(t.decided)
            signs[since : until + 1] = [("~", "look")] * (until + 1 - since)
            signs[since] = ("P", "key")
        if t.completed is not None:
            signs[until] = (t.outcome[:1].upper(), "key")
        signs[0] = ("B", "key")
        return signs

    def partition(
        self, t: Transaction, data: Sequence[StripRow], marker: StripRow | None, *, gap: bool
    ) -> tuple[list[Part], Part]:
        """Return the lane of a partition, and what it says."""
        signs: list[Part] = [(" ", "text")] * self.room
        if marker is None and data:
            since = self.cell(t.decided if gap else data[-1].last_timestamp)
            sign = (GAP, "act") if gap else (OPEN, "dim")
            signs[since:] = [sign] * (self.room - since)
        for r in data:
            first, last = self.cell(r.first_timestamp), self.cell(r.last_timestamp)
            signs[first : last + 1] = [SIGNS[kind_of(r)]] * (last + 1 - first)
        if marker is not None:
            signs[self.cell(marker.timestamp)] = SIGNS[kind_of(marker)]
        return signs, _says(data, marker, gap=gap)

    def times(self) -> str:
        begin, end = ((rfc3339(at) or "?")[11:19] for at in (self.begin, self.end))
        return begin + f"{end}Z".rjust(self.room - len(begin))


def _says(data: Sequence[StripRow], marker: StripRow | None, *, gap: bool) -> Part:
    if gap:
        return ("its marker is missing", "act")
    if not data:
        return ("nothing read of it" if marker is None else "its marker", "unknown")
    batches, records = sum(r.batches for r in data), sum(r.records for r in data)
    return (f"{counted(records, 'record')}, {batches} b.", "dim")


def _heading(t: Transaction, now: int) -> Line:
    begun = (rfc3339(t.begun) or "?")[11:23]
    if t.completed is not None:
        words = f"{t.outcome} in {age_words((t.completed - t.begun) / 1000)}"
    elif t.decided is not None:
        words = f"{t.outcome} decided, markers not all written"
    else:
        words = f"open for {age_words((now - t.begun) / 1000)}"
    return (
        (" Newest transaction", "title"),
        (f"  pid {t.producer_id} epoch {t.producer_epoch}, begun {begun}Z, {words}", "text"),
    )


def _line(label: str, name: int, signs: Sequence[Part], says: str, role: str = "dim") -> Line:
    shown = cut_middle(visible(label), name)
    parts: list[Part] = [(f" {shown}{' ' * (name - cells(shown))} ", "text")]
    for sign, own in signs:
        if parts[-1][1] == own and len(parts) > 1:
            parts[-1] = (parts[-1][0] + sign, own)
        else:
            parts.append((sign, own))
    return (*parts, (f"  {says}", role))


def _legend(t: Transaction, lost: bool) -> Line:
    words = " B begun"
    words += "  P decided" if t.decided is not None else ""
    words += "  C A markers" if t.completed is not None or t.decided is not None else ""
    words += "  # open  = committed  x aborted"
    parts: list[Part] = [(words, "dim")]
    if lost:
        parts.append((f"  {GAP} no marker", "act"))
    return tuple(parts)
