"""Find transactional ids that are initialised again and again: `contested-id`.

`__transaction_state` records that a producer was initialised, never by which process. A producer
that is initialised while another one's transaction is open ends that one and fences its owner. So a
series of such records has three possible causes: two owners of the id that fence each other, one
owner that restarts for ever, or one client that raises its own epoch (KIP-360). All three are named
until a record excludes one.

What counts is an initialisation that ended an open transaction before its deadline. Not counted:
Empty after Complete*, as Flink initialises a producer for each transaction; a transaction that ran
past its timeout, which its coordinator may have ended; an abort that its own client asked for, as
far as the records show it: transactions v1 do, and under v2 only if the next initialisation comes
later than whoever fences retries (RETRIED_WITHIN_MS); one that comes at once looks the same. Empty
after Empty is named beside: a pool of Flink's does that too, while nothing is written.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, groupby, pairwise
from statistics import median
from typing import Literal

from recovery.diagnose.decided import Decided
from recovery.facts import GroupFacts, Missing
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.values import Value

WINDOW_MS = 600_000
"""Initialisations that lie further apart from the newest one are not part of the contest."""
NAMED_WITHIN_MS = 60_000
"""A contest is named within a minute: a look that reached less far back excludes none."""
RETRIED_WITHIN_MS = 5_000
"""From CompleteAbort to the initialisation that asked for it. Clients repeat InitProducerId upon
CONCURRENT_TRANSACTIONS after retry.backoff.ms, 100 ms, up to retry.backoff.max.ms, 1 s; the rest is
for a slow coordinator."""
LEAST = 3
"""A rolling restart, a failover and a restore each initialise an id once or twice."""
TURNS = 4
"""A B A B: timeouts that are taken for those of two owners, which a client never changes itself."""

Cause = Literal["two-owners", "restarts", "raises-its-own-epoch"]


class Initialisation(Value):
    """A new producer of an id that began before the one before it had finished.

    at: ms, when the record was appended. aborted: it ended an open transaction, else the one
    before had written nothing. timeout_ms: what the new producer asked for.
    """

    at: int
    offset: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    aborted: bool


class Contest(Value):
    """A series of initialisations of one transactional id, oldest first, none older than WINDOW_MS.

    causes: those that the records do not exclude. producer_id, producer_epoch, state: of its newest
    record, so who holds the id now. at: when that was appended (ms).
    """

    transactional_id: str
    initialisations: tuple[Initialisation, ...]
    causes: tuple[Cause, ...]
    producer_id: int
    producer_epoch: int
    state: str
    at: int

    @property
    def aborted(self) -> int:
        """Return how many of them ended an open transaction."""
        return sum(i.aborted for i in self.initialisations)

    @property
    def interval_ms(self) -> float:
        """Return the median time between two of them."""
        return median(b.at - a.at for a, b in pairwise(self.initialisations))

    @property
    def timeouts(self) -> tuple[int, ...]:
        """Return the timeouts that the producers asked for, in ms, in order, repeats left out."""
        return tuple(ms for ms, _ in groupby(i.timeout_ms for i in self.initialisations))


class Contests(Value):
    """The contests in a cluster that go on, as far as `__transaction_state` was read.

    contests: by transactional id; they began at most WINDOW_MS before the reading. read_from: epoch
    ms, by our clock, from which on all partitions were read; None = as far back as that.
    unfinished: partitions whose newest records were not read, since there were too many bytes: one
    of `missing`, which is what could not be read, so that other ids may be contested too. groups:
    those that the ids may be named after; groups_missing: what could not be seen of these. decided:
    the decisions in what was read; None: not all of it was, or an older eoctl made this bundle.
    """

    contests: tuple[Contest, ...] = ()
    read_from: int | None = None
    unfinished: int = 0
    missing: tuple[Missing, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    groups_missing: tuple[Missing, ...] = ()
    decided: Decided | None = None

    @property
    def number(self) -> int | None:
        """Return how many ids are contested; None: none was seen, and not all could be read."""
        return len(self.contests) if self.contests or not self.missing else None


def contests(records: Iterable[StateRecord]) -> list[Contest]:
    """Return the contests among these records, by transactional id."""
    ordered = sorted(records, key=lambda r: (r.transactional_id, r.partition, r.offset))
    series: dict[str, Series] = {}
    for record in ordered:
        series.setdefault(record.transactional_id, Series()).add(record)
    return [c for name, mine in series.items() if (c := mine.contest(name)) is not None]


def goes_on(until: int | None, now: int) -> bool:
    """Return True if the newest initialisation is at most WINDOW_MS ago. Times: epoch ms."""
    return until is not None and now - until <= WINDOW_MS


class Newest(Value):
    """What the newest record of an id says, as far as the next one is judged by it."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    at: int


class Series:
    """The initialisations of one id that came before the producer before had finished.

    newest: None: there is no record, or one without a state.
    """

    __slots__ = ("_fenced", "found", "newest")

    def __init__(self, newest: Newest | None = None) -> None:
        self.newest = newest
        self.found: list[Initialisation] = []
        self._fenced = False

    def add(self, record: StateRecord) -> None:
        """Add the next record of the id."""
        last, value = self.newest, record.value
        if not isinstance(value, TransactionValue):
            self.newest, self._fenced = None, False
            return
        self.newest = Newest(value.state, value.producer_id, value.producer_epoch, record.timestamp)
        if last is not None:
            self._judge(last, record, value)

    def _judge(self, last: Newest, record: StateRecord, value: TransactionValue) -> None:
        if value.state is TransactionState.PREPARE_ABORT:
            ongoing = last.state is TransactionState.ONGOING
            self._fenced = ongoing and _may_be_fence(last.producer_epoch, value)
        elif value.state is TransactionState.EMPTY:
            aborted = self._fenced and record.timestamp - last.at <= RETRIED_WITHIN_MS
            if aborted or last.state is TransactionState.EMPTY:
                self.found.append(
                    Initialisation(
                        record.timestamp,
                        record.offset,
                        value.producer_id,
                        value.producer_epoch,
                        value.timeout_ms,
                        aborted,
                    )
                )
            self._fenced = False
        elif value.state is not TransactionState.COMPLETE_ABORT:
            self._fenced = False

    def contest(self, transactional_id: str) -> Contest | None:
        """Return the contest about the id, or None."""
        newest = self.newest
        if not self.found or newest is None:
            return None
        series = [i for i in self.found if i.at > self.found[-1].at - WINDOW_MS]
        if sum(i.aborted for i in series) < LEAST:
            return None
        return Contest(
            transactional_id,
            tuple(series),
            _causes(series),
            newest.producer_id,
            newest.producer_epoch,
            str(newest.state),
            newest.at,
        )


def _may_be_fence(ongoing_epoch: int, abort: TransactionValue) -> bool:
    """Return True if an initialisation may have ended this transaction.

    A fence and a timeout raise the epoch; a v1 client's own abort does not. Its own coordinator
    ends it at its deadline, never before.
    """
    ran = abort.last_update_ms - abort.start_ms
    early = abort.start_ms < 0 or abort.timeout_ms <= 0 or ran < abort.timeout_ms
    return early and abort.producer_epoch > ongoing_epoch


def _causes(series: Sequence[Initialisation]) -> tuple[Cause, ...]:
    """Return the causes that the records leave open.

    No client changes its own timeout. One that changes back and forth twice is that of two
    configurations, so of two owners; one owner's may be changed, and changed back.
    """
    timeouts = [i.timeout_ms for i in series]
    if any(_turns(timeouts, pair) >= TURNS for pair in combinations(set(timeouts), 2)):
        return ("two-owners",)
    if len(set(timeouts)) > 1:
        return ("two-owners", "restarts")
    return ("two-owners", "restarts", "raises-its-own-epoch")


def _turns(timeouts: Iterable[int], pair: tuple[int, int]) -> int:
    """Return how often the two take turns: 3 for A B A, whatever is between them."""
    return sum(1 for _ in groupby(ms for ms in timeouts if ms in pair))
