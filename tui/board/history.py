"""What the overview remembers of earlier snapshots, and the board that it makes of them."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.words import age as age_words
from recovery.change.journal_rows import JournalRow
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.plurals import count, counted
from recovery.times import rfc3339
from recovery.values import Value
from tui.board.headline import QUIET
from tui.board.pictures import (
    Colours,
    Drawing,
    age_picture,
    ended_picture,
    held_picture,
    marks_of,
)
from tui.board.prospects import deleted_in, ends_in
from tui.board.samples import Sample, Samples
from tui.widgets.charts import Picture
from tui.widgets.lines import Line

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

MOST_LINES = 12  # in one part of the board: no more fit, and the part's own screen has them all
RATE_SECONDS = 300
UNREAD = "not known: not all of __transaction_state was read"
RECORDS_OF_ONE = 3
"""A transaction that ends wrote at least Ongoing, Prepare and Complete to `__transaction_state`."""


class Board(Value, eq=False):
    """What the overview shows besides its list. pictures: the most important first.

    drawing: what pictures of other screens are made from. ends, rate, changes: the texts of what
    ends by itself, of how many transactions ended, and of the last changes.
    """

    drawing: Drawing
    pictures: tuple[Picture, ...]
    ends: tuple[Line, ...]
    rate: tuple[Line, ...]
    changes: tuple[Line, ...]


class History:
    """Remembers snapshots. `add` takes each one once, in order; `board` shows the last."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._colours = Colours()
        self._ends: deque[tuple[int, dict[str, Any]]] = deque()
        self._counted = 0

    def add(self, s: "Snapshot", sample: Sample | None) -> None:
        """Add a snapshot and what it adds to the pictures."""
        if sample is not None:
            self.samples.add(sample)
        self._count_ends(s.transactions)

    def _count_ends(self, listed: "Answer | None") -> None:
        """Count what the list says about the time since the snapshot before (see EndsCount)."""
        since = listed.extra.get("since_last_look") if listed is not None else None
        if listed is None or since is None or listed.collected_at <= self._counted:
            return
        self._counted = listed.collected_at
        self._ends.append((listed.collected_at, since))
        while self._ends[0][0] < listed.collected_at - RATE_SECONDS * 1000:
            self._ends.popleft()

    def board(
        self,
        s: "Snapshot",
        hanging: Sequence[TxnHangingRow],
        text: Callable[[str], str],
        *,
        ascii_only: bool,
    ) -> Board:
        """Return the board of the newest snapshot."""
        changes = _changes(s)
        samples = self.samples.samples
        drawing = Drawing(samples, marks_of(samples, changes), ascii_only)
        return Board(
            drawing,
            self._pictures(s, hanging, drawing),
            _ends_lines(s, hanging, text),
            self._rate_lines(s),
            _NOT_READ if s.journal is None else _changes_lines(changes, text),
        )

    def _pictures(
        self, s: "Snapshot", hanging: Sequence[TxnHangingRow], drawing: Drawing
    ) -> tuple[Picture, ...]:
        if not drawing.samples:
            return ()
        findings = {h.topic for h in hanging if h.topic is not None and h.verdict not in QUIET}
        unknown = "being judged" if s.hanging is None else UNREAD
        return (
            held_picture(drawing, findings, self._colours),
            ended_picture(drawing, self.samples.ended, unknown),
            age_picture(drawing),
        )

    def _rate_lines(self, s: "Snapshot") -> tuple[Line, ...]:
        """Return the ends per minute in the last minutes and, as far as seen, how they ended."""
        return tuple(((f" {part}", "text"),) for part in self._decided() or self._bounds(s))

    def _decided(self) -> list[str]:
        """Return the rate of decisions; empty if `__transaction_state` was not read."""
        ended = self.samples.ended
        recent = [e for e in ended if e.at >= ended[-1].until - RATE_SECONDS * 1000]
        if not recent:
            return []
        commits, aborts = sum(e.commits for e in recent), sum(e.aborts for e in recent)
        seconds = sum(e.until - e.at for e in recent) / 1000
        words = f"{_a_minute(commits + aborts, seconds)} a minute, over {age_words(seconds)}"
        return [words, f"{counted(commits, 'commit')}, {counted(aborts, 'abort')}"]

    def _bounds(self, s: "Snapshot") -> list[str]:
        """Return the rate between bounds, from what the lists of ids show."""
        now = s.transactions
        if now is not None and now.errors and not now.rows:
            return [f"not known: {now.errors[0].error}", "Describe on the ids would show it"]
        if not self._ends:
            return [
                "not known yet: it takes two looks" if s.intervals else "not known from one look"
            ]
        looks = [since for _, since in self._ends]
        seconds, ended, commits, aborts = (
            sum(look[name] for look in looks) for name in ("seconds", "ended", "commits", "aborts")
        )
        records = [look["records"] for look in looks]
        most = None if None in records else -(-sum(records) // RECORDS_OF_ONE)
        rest = ended - commits - aborts
        how = f"seen: {counted(commits, 'commit')}, {counted(aborts, 'abort')}"
        how += f", {count(rest)} with an unseen outcome" if rest else ""
        return [f"{_range(ended, most, seconds)} a minute, over {age_words(seconds)}", how]


def _range(least: int, most: int | None, seconds: float) -> str:
    """Return the rate per minute: `20 to about 260`, `at least 20`, `about 260`."""
    low = _a_minute(least, seconds)
    if most is None:
        return f"at least {low}"
    high = _a_minute(most, seconds)
    return f"about {low}" if least >= most or low == high else f"{low} to about {high}"


def _a_minute(number: int, seconds: float) -> str:
    each = number * 60 / seconds
    return count(round(each)) if each >= 10 or each == int(each) else f"{each:.1f}"


def _changes(s: "Snapshot") -> list[JournalRow]:
    """Return what this host changed on this cluster, the newest first."""
    rows = [
        e
        for e in (s.journal.rows if s.journal else ())
        if isinstance(e, JournalRow) and e.cluster_id == s.cluster_id
    ]
    return sorted(rows, key=lambda e: -(e.started or 0))


_NOT_READ: tuple[Line, ...] = (((" the host's are not shown here", "dim"),),)


def _changes_lines(changes: Sequence[JournalRow], text: Callable[[str], str]) -> tuple[Line, ...]:
    lines: list[Line] = []
    for e in changes[:MOST_LINES]:
        at = (rfc3339(e.started) or "?")[11:19]
        role = {"done": "good", "unfinished": "act", "failed": "act"}.get(e.state, "text")
        lines.append(
            (
                (f" {at}Z ", "dim"),
                (f"{e.action} ", "key"),
                (f"{e.state} ", role),
                (text(e.summary), "text"),
            )
        )
    return tuple(lines) or (((" none from this host", "dim"),),)


def _ends_lines(
    s: "Snapshot", hanging: Sequence[TxnHangingRow], text: Callable[[str], str]
) -> tuple[Line, ...]:
    """Return what ends next on its own, and what does not."""
    if s.hanging is None:
        return (((" being judged", "dim"),),)
    ends: dict[tuple[int, str], tuple[str, float | None, int]] = {}
    deletions: dict[str, float] = {}
    for h in hanging:
        words, seconds = ends_in(s, h)
        quiet = h.verdict in QUIET
        if words == "never" or seconds is not None:
            # one transaction may hold many partitions
            rank = 3 if quiet else 0 if seconds is None else 1
            key = rank, h.transactional_id or h.where
            ends[key] = words, seconds, ends[key][2] + 1 if key in ends else 1
        left = deleted_in(s, h)[1]
        if left is not None and h.topic is not None and not quiet:
            deletions[h.topic] = min(left, deletions.get(h.topic, left))
    found: list[tuple[int, float, str, str]] = []
    for (rank, name), (words, seconds, number) in ends.items():
        where = text(name) + (f" ({count(number)} partitions)" if number > 1 else "")
        says = "never ends by itself"
        if seconds is not None:
            says = (
                f"times out in {words}" if seconds >= 1 else "has timed out: is due to be aborted"
            )
        found.append((rank, seconds or 0.0, where, says))
    for topic, left in deletions.items():
        says = (
            f"retention deletes in {age_words(left)}" if left >= 1 else "retention may delete now"
        )
        found.append((2, left, text(topic), says))
    lines: list[Line] = [
        ((f" {where} ", "text"), (says, ("act", "look", "look", "dim")[rank]))
        for rank, _, where, says in sorted(found)
    ]
    if not lines:
        words = "nothing is open" if not hanging else "nothing that is open has a known end"
        if not hanging and (s.hanging.errors or (s.transactions and s.transactions.errors)):
            words = "not known: what is open could not all be seen"
        lines = [((f" {words}", "dim"),)]
    return tuple(lines[:MOST_LINES])
