"""What the overview remembers of earlier snapshots, and the board that it makes of them.

Bounded: a number per topic and bucket, for at most MOST_TOPICS topics and half an hour.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.words import age as age_words
from recovery.change.journal_rows import JournalRow
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow
from recovery.plurals import count, counted
from recovery.times import rfc3339
from recovery.values import Value
from tui.board import STALE_INTERVALS
from tui.board.headline import QUIET
from tui.board.prospects import deleted_in, ends_in
from tui.widgets.lines import Line
from tui.widgets.trend import BUCKETS, Samples, Trend

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

MOST_TOPICS = 200
MOST_LANES = 60  # a screen has no room for more
MOST_LINES = 12  # in one part of the board: no more fit, and the part's own screen has them all
RATE_SECONDS = 300
RECORDS_OF_ONE = 3
"""A transaction that ends wrote at least Ongoing, Prepare and Complete to `__transaction_state`."""


Mark = tuple[int, str]
"""The bucket in which a change began, and the first letter of what it did."""


class Lane(Value):
    """One topic. age: seconds, of the oldest transaction that holds it; `~`: approximately."""

    topic: str
    held: int
    age: str
    held_samples: Samples
    age_samples: Samples
    marks: tuple[Mark, ...]


class Board(Value, eq=False):
    """What the overview shows besides its list. lanes: all topics together, then the worst ones.

    seconds: how far back a lane goes; until: its right end, epoch ms. more_topics: topics without a
    lane. elsewhere: changes on topics without a lane. ends, rate, changes: the texts of what ends
    by itself, of how many transactions ended, and of the last changes.
    """

    seconds: int
    until: int
    lanes: tuple[Lane, ...]
    more_topics: int
    elsewhere: tuple[Mark, ...]
    held_ceiling: int
    age_ceiling: int
    ends: tuple[Line, ...]
    rate: tuple[Line, ...]
    changes: tuple[Line, ...]
    ascii_only: bool


class History:
    """Remembers snapshots. `add` takes each one once, in order; `board` shows the last."""

    def __init__(self) -> None:
        self.held = Trend(most=MOST_TOPICS)
        self.ages = Trend(most=MOST_TOPICS, of_all=max)
        self._ends: deque[tuple[int, dict[str, Any]]] = deque()
        self._counted = 0
        self._partitions: Answer | None = None

    def add(self, s: "Snapshot", held: "dict[str, LsoRow]") -> None:
        """Add a snapshot; held: its held partitions. An answer counts once."""
        if s.partitions is not None and s.partitions is not self._partitions:
            self._partitions = s.partitions
            amounts, ages = _by_topic(held)
            at, joins = s.partitions.collected_at, joins_ms(s)
            self.held.add(at, amounts, joins_ms=joins)
            self.ages.add(at, {t: int(a) for t, (a, _) in ages.items()}, joins_ms=joins)
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
        held: "dict[str, LsoRow]",
        hanging: Sequence[TxnHangingRow],
        text: Callable[[str], str],
        *,
        ascii_only: bool,
    ) -> Board:
        """Return the board of the newest snapshot."""
        changes = _changes(s)
        amounts, ages = _by_topic(held)
        findings = {h.topic for h in hanging if h.verdict not in QUIET}

        def order(topic: str) -> tuple[bool, float, int, str]:
            seconds = ages[topic][0] if topic in ages else 0.0
            return topic not in findings, -seconds, -amounts.get(topic, 0), topic

        every = {*self.held.names, *amounts}
        topics = heapq.nsmallest(MOST_LANES, every, key=order)
        marks: dict[str, list[Mark]] = {topic: [] for topic in topics}
        elsewhere: list[Mark] = []
        for change in changes:
            mark = self._mark(change)
            if mark is not None:
                marks.get(change.scope.rpartition(":")[0], elsewhere).append(mark)

        def lane(name: str, topic: str | None) -> Lane:
            known = max(ages.values(), default=None) if topic is None else ages.get(topic)
            return Lane(
                name,
                sum(amounts.values()) if topic is None else amounts.get(topic, 0),
                "" if known is None else age_words(known[0], producer_clock=known[1]),
                self.held.samples(topic),
                self.ages.samples(topic),
                tuple(marks[topic]) if topic is not None else (),
            )

        lanes = [lane(text(topic), topic) for topic in topics]
        if len(every) != 1:
            name = f"all {counted(len(every), 'topic')}" if every else "no topic"
            lanes.insert(0, lane(name, None))
        return Board(
            self.held.seconds,
            self.held.until,
            tuple(lanes) if s.partitions else (),
            len(every) - len(topics),
            tuple(elsewhere),
            self.held.total,
            self.ages.total,
            _ends_lines(s, hanging, text),
            self._rate_lines(s),
            _changes_lines(changes, text),
            ascii_only,
        )

    def _mark(self, change: JournalRow) -> Mark | None:
        """Return where a change is on the time axis."""
        if change.started is None:
            return None
        back = self.held.until - change.started
        bucket = BUCKETS - 1 - back // self.held.bucket_ms
        return (min(bucket, BUCKETS - 1), change.action[:1]) if bucket >= 0 else None

    def _rate_lines(self, s: "Snapshot") -> tuple[Line, ...]:
        """Return the ends per minute in the last snapshots and, as far as seen, how they ended."""
        now, how = s.transactions, ""
        if now is not None and now.errors and not now.rows:
            words, how = f"not known: {now.errors[0].error}", "Describe on the ids would show it"
        elif not self._ends:
            words = (
                "not known yet: it takes two looks" if s.intervals else "not known from one look"
            )
        else:
            looks = [since for _, since in self._ends]
            seconds, ended, commits, aborts = (
                sum(look[name] for look in looks)
                for name in ("seconds", "ended", "commits", "aborts")
            )
            records = [look["records"] for look in looks]
            most = None if None in records else -(-sum(records) // RECORDS_OF_ONE)
            words = f"{_range(ended, most, seconds)} a minute, over {age_words(seconds)}"
            rest = ended - commits - aborts
            how = f"seen: {counted(commits, 'commit')}, {counted(aborts, 'abort')}"
            how += f", {count(rest)} with an unseen outcome" if rest else ""
        return tuple(((f" {part}", "text"),) for part in (words, how) if part)


def _range(least: int, most: int | None, seconds: float) -> str:
    """Return the rate per minute: `20 to about 260`, `at least 20`, `about 260`."""
    low = _a_minute(least, seconds)
    if most is None:
        return f"at least {low}"
    high = _a_minute(most, seconds)
    return f"about {low}" if least >= most or low == high else f"{low} to about {high}"


def joins_ms(s: "Snapshot") -> int:
    """Return for how long a drawing extends a snapshot towards the next: until it is stale."""
    return int(STALE_INTERVALS * s.intervals.get("look", 0) * 1000)


def _a_minute(number: int, seconds: float) -> str:
    each = number * 60 / seconds
    return count(round(each)) if each >= 10 or each == int(each) else f"{each:.1f}"


def _by_topic(
    held: "dict[str, LsoRow]",
) -> tuple[dict[str, int], dict[str, tuple[float, bool]]]:
    """Return offsets held per topic, and the oldest age with whether a producer's clock gave it."""
    amounts: dict[str, int] = {}
    ages: dict[str, tuple[float, bool]] = {}
    for r in held.values():
        amounts[r.topic] = amounts.get(r.topic, 0) + (r.held or 0)
        b = r.blocking
        if b is not None and b.age_seconds is not None:
            this = (b.age_seconds, b.age_clock == "producer")
            ages[r.topic] = max(ages.get(r.topic, this), this)
    return amounts, ages


def _changes(s: "Snapshot") -> list[JournalRow]:
    """Return what this host changed on this cluster, the newest first."""
    rows = [
        e
        for e in (s.journal.rows if s.journal else ())
        if isinstance(e, JournalRow) and e.cluster_id == s.cluster_id
    ]
    return sorted(rows, key=lambda e: -(e.started or 0))


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
