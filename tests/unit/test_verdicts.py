"""One named case for each row and each bullet of the rules, and every combination of facts.

The cases are played on the model of coordinators and partitions (transaction_model.py), which keeps
the truth; what is expected is written down here from the rules, not computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import pytest

from recovery import repairs
from recovery.facts import (
    Missing,
    PartitionFacts,
    ProducerFacts,
    TransactionFacts,
    Transactions,
)
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.history import History, StateRecord
from recovery.observation import OpenTransaction, Sample, Settings, StartBatch
from recovery.repairs import remedy_allowed
from recovery.verdicts import RULES, Verdict, judge
from tests.unit.transaction_model import (
    TEN_YEARS,
    Eyes,
    Id,
    World,
    history,
    sample,
    start_batch,
)

P, Q, APPEND_TIME = ("t", 0), ("t", 1), ("t", 2)
SETTINGS = Settings()
HOME = 0
"""The partition of `__transaction_state`, of three, that "orders" belongs to."""
CLEAR = Eyes()


def only(w: World, tp: tuple[str, int] = P) -> OpenTransaction:
    """The one transaction that is open on a partition."""
    (about,) = [o for o in w.open_transactions() if o.topic_partition == tp]
    return about


def look(
    w: World,
    about: OpenTransaction | None = None,
    eyes: Eyes = CLEAR,
    then: Eyes | None = None,
    *,
    once: bool = False,
    between: Callable[[], object] = lambda: None,
    change: Callable[[Sample], Sample] = lambda s: s,
    settings: Settings = SETTINGS,
) -> Verdict | None:
    """Two looks 5 s apart (or one), the history after them, and the verdict."""
    about = about or only(w)
    first = change(sample(w, about.topic_partition, eyes, settings))
    start = start_batch(w, about, eyes)
    second = None
    if not once:
        w.tick(5000)
        between()
        second = change(sample(w, about.topic_partition, then or eyes, settings))
    past = history(w, about, start, then or eyes, settings) if start else None
    return judge(about, start, first, second, past, settings)


def judged(*args: object, **kwargs: object) -> Verdict:
    v = look(*args, **kwargs)  # type: ignore[arg-type]
    assert v is not None
    return v


def live(version: int = 2, name: str = "orders", timeout: int = 3_600_000) -> tuple[World, Id]:
    """An id that has committed twice on P and has its next transaction open there."""
    w = World()
    i = w.init(name, version, timeout)
    for _ in range(2):
        w.write(i, P)
        w.end(i, "commit")
        w.tick(20_000)
    w.write(i, P)
    return w, i


def lost(version: int, outcome: str = "commit", name: str = "orders") -> tuple[World, Id]:
    """As `live`, then ended while P had no leader: its marker is lost."""
    w, i = live(version, name)
    w.write(i, Q)
    w.tick(20_000)
    w.end(i, outcome, lost=[P])
    w.tick(20_000)
    return w, i


# --- the table, row by row --------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A verdict in short: name (or `unknown: reason`), remedy, proven outcome, mixed."""

    verdict: str
    remedy: str
    outcome: str | None = None
    mixed: bool = False


def short(v: Verdict) -> Seen:
    name = f"unknown: {v.rule}" if v.name == "unknown" else v.name
    return Seen(name, v.remedy.action, v.proven_outcome, v.mixed)


CASES: dict[str, tuple[Callable[[], Verdict], Seen]] = {}


Play = Callable[[], Verdict]


def case(
    name: str, verdict: str, remedy: str, outcome: str | None = None, mixed: bool = False
) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        assert name not in CASES
        CASES[name] = play, Seen(verdict, remedy, outcome, mixed)
        return play

    return add


def unknown(name: str, reason: str) -> Callable[[Play], Play]:
    return case(name, f"unknown: {reason}", "none")


@case("open: owned, within its timeout and 15 min", "open", "wait")
def _() -> Verdict:
    return judged(live()[0], once=True)


@case("open on v1: earlier decisions of the same epoch have their markers", "open", "wait")
def _() -> Verdict:
    return judged(live(1)[0])


@case("open although the producer's clock is ten years behind", "open", "wait")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.producer = -TEN_YEARS
    w.write(i, P)
    return judged(w)


@case("open is known from one coordinator, the others unseen", "open", "wait")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(unseen=frozenset({1, 2})))


@case("long: past 15 min, within its timeout", "long", "fence")
def _() -> Verdict:
    w, _i = live()
    w.tick(15 * 60_000 + 1)
    return judged(w, once=True)


@case("overdue: past its timeout", "overdue", "fence")
def _() -> Verdict:
    w, _i = live(timeout=60_000)
    w.tick(60_001)
    return judged(w, once=True)


@case("overdue wins over long", "overdue", "fence")
def _() -> Verdict:
    w, _i = live(timeout=60_000)
    w.tick(3_600_000)
    return judged(w)


@case("long below ListTransactions v1: past by more than the skew, by our clock", "long", "fence")
def _() -> Verdict:
    w, _i = live()
    w.tick(15 * 60_000 + 5001)
    return judged(w, eyes=Eyes(filters=False), once=True)


@unknown("below v1, past by less than the skew", "clock-not-seen")
def _() -> Verdict:
    w, _i = live()
    w.tick(15 * 60_000 + 4000)
    return judged(w, eyes=Eyes(filters=False), once=True)


@case("the coordinator's clock decides, not ours", "open", "wait")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(clock=TEN_YEARS))


@unknown(
    "long, but the history was not read: a decided one may lie below",
    "earlier-decision-not-excluded",
)
def _() -> Verdict:
    w, _i = live(1)
    w.tick(15 * 60_000 + 1)
    return judged(w, eyes=Eyes(history=False))


@unknown("long on v1, the history compacted", "earlier-decision-not-excluded")
def _() -> Verdict:
    w, _i = live(1)
    w.compact(HOME, w.ends[HOME])
    w.tick(15 * 60_000 + 1)
    return judged(w)


@case("long on v2, the history compacted: each transaction has its epoch", "long", "fence")
def _() -> Verdict:
    w, _i = live(2)
    w.compact(HOME, w.ends[HOME])
    w.tick(15 * 60_000 + 1)
    return judged(w)


@case("two-phase: timeout 2147483647 (KIP-939), however old", "two-phase", "none")
def _() -> Verdict:
    w, _i = live(timeout=2_147_483_647)
    w.tick(30 * 86_400_000)
    return judged(w)


@case("two-phase: an id as Flink gives it", "two-phase", "none")
def _() -> Verdict:
    w, _i = live(name="flink-sink-3-17", timeout=60_000)
    w.tick(3_600_000)
    return judged(w)


def _leader_silent(young: bool, state: str = "PrepareCommit") -> Verdict:
    """The data partition's leader answers nobody; only the coordinator tells of it."""
    w, i = live()
    at = w.now
    name, pid, epoch = i.name, i.pid, i.epoch
    row = TransactionFacts(name, 1, pid, state, epoch + 1, 60_000, at, (P,))
    seen = sample(w, P, CLEAR, SETTINGS)
    unseen = replace(
        seen,
        partition=PartitionFacts(*P, leader=3, error="TIMED_OUT"),
        producers=None,
        topic_describe=False,
        transactions=replace(seen.transactions, rows=(row,)),
        over_stuck=frozenset() if young else frozenset({name}),
        collected_at=at + (1_000 if young else 120_000),
    )
    decided = TransactionValue(
        pid, epoch + 1, 60_000, TransactionState(state), (P,), at, at, client_transaction_version=2
    )
    past = History(pid, (name,), (), (StateRecord(name, HOME, 9, at, decided),), None, 0, None)
    about = OpenTransaction(*P, pid, None)
    verdict = judge(about, None, unseen, None, past, SETTINGS)
    assert verdict is not None
    return verdict


@case("prepare: decided a moment ago, its data partition's leader silent", "prepare", "wait", None)
def _() -> Verdict:
    return _leader_silent(young=True)


@case("prepare-stuck: decided long ago, that leader silent", "prepare-stuck", "restore-leader")
def _() -> Verdict:
    return _leader_silent(young=False)


@unknown("an Ongoing id on a partition whose leader is silent", "partition-not-seen")
def _() -> Verdict:
    return _leader_silent(young=False, state="Ongoing")


@case("prepare: decided, markers on their way", "prepare", "wait", "commit")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit", stalled=True)
    return judged(w, once=True)


@case("prepare on v1", "prepare", "wait", "abort")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "abort", stalled=True)
    return judged(w)


@case("prepare: a long transaction that was decided just now", "prepare", "wait", "commit")
def _() -> Verdict:
    w, i = live()
    w.tick(3_600_000)
    w.end(i, "commit", stalled=True)
    return judged(w)


@case("prepare: 60 s old, but not beyond the skew", "prepare", "wait", "commit")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit", stalled=True)
    w.tick(57_000)
    return judged(w)


@case("prepare: decided since nobody knows when is not stuck", "prepare", "wait", "commit")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit", stalled=True)
    w.tick(600_000)
    return judged(w, eyes=Eyes(history=False))


@case(
    "prepare-stuck, a partition of the record without leader",
    "prepare-stuck",
    "restore-leader",
    "commit",
)
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.tick(65_000)
    v = judged(w, eyes=Eyes(no_leader=frozenset({Q})))
    assert v.remedy.partitions == ("t:1",)
    return v


@case("prepare-stuck, all have a leader", "prepare-stuck", "restart-coordinator", "commit")
def _() -> Verdict:
    w, i = live(1)
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.tick(65_001)
    v = judged(w)
    assert v.remedy.broker == 1
    return v


@case(
    "prepare-stuck: a partition that was not asked counts as leaderless",
    "prepare-stuck",
    "restore-leader",
    "commit",
)
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.tick(65_000)
    return judged(w, change=lambda s: replace(s, named=()))


@case("marker-lost: a commit, v2", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    return judged(lost(2)[0])


@case("marker-lost: a commit, v1", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    return judged(lost(1)[0])


@case("marker-lost: an abort, v2", "marker-lost", "resolve", "abort")
def _() -> Verdict:
    return judged(lost(2, "abort")[0])


@case("marker-lost: a timeout raised the epoch on v1", "marker-lost", "resolve", "abort")
def _() -> Verdict:
    w, i = live(1)
    w.server_abort(i, lost=[P])
    return judged(w)


@case(
    "marker-lost: the first transaction ever on the partition, v1",
    "marker-lost",
    "resolve",
    "commit",
)
def _() -> Verdict:
    w = World()
    i = w.init("orders", 1)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    return judged(w)


@case("marker-lost: the id committed elsewhere meanwhile", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    w, i = lost(1)
    w.write(i, Q)
    w.end(i, "commit")
    return judged(w)


@case("marker-lost: the id is open elsewhere now", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    w, i = lost(2)
    w.write(i, Q)
    return judged(w, only(w, P))


@case(
    "marker-lost: its id went on with another producer id (epochs used up)",
    "marker-lost",
    "resolve",
    "commit",
)
def _() -> Verdict:
    w = World()
    i = w.init("orders", 2, epoch=32_766)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    assert i.epoch == 0
    w.write(i, Q)
    return judged(w, only(w, P))


@case("mixed, v2: the next transaction is open on it", "marker-lost", "wait", "commit", True)
def _() -> Verdict:
    w, i = lost(2)
    w.write(i, P)
    v = judged(w)
    assert v.remedy.deadline == i.started + i.timeout
    return v


@case("mixed, v1: both have one epoch", "marker-lost", "wait", "commit", True)
def _() -> Verdict:
    w, i = lost(1)
    w.write(i, P)
    return judged(w)


@case("mixed wins over two-phase", "marker-lost", "wait", "commit", True)
def _() -> Verdict:
    w, i = lost(2, name="flink-sink-3-17")
    w.write(i, P)
    return judged(w)


@case(
    "the later one lost its commit too: one marker is right for both",
    "marker-lost",
    "resolve",
    "commit",
)
def _() -> Verdict:
    w, i = lost(2)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    v = judged(w)
    assert v.decision is not None
    assert v.decision.producer_epoch == i.epoch
    return v


@unknown("two lost decisions that differ: no one marker is right", "decisions-differ")
def _() -> Verdict:
    w, i = lost(2)
    w.write(i, P)
    w.end(i, "abort", lost=[P])
    return judged(w)


def twice_lost(compacted: bool) -> Verdict:
    """v1: a lost commit, then on the same partition a timeout whose abort is lost too."""
    w, i = lost(1)
    w.write(i, P)
    w.server_abort(i, lost=[P])
    if compacted:
        w.compact(HOME, w.ends[HOME] - 1)  # of the two decisions, the abort's record is left
    return judged(w)


@unknown("v1: a lost abort over a lost commit", "decisions-differ")
def _() -> Verdict:
    return twice_lost(False)


@unknown(
    "v1: a lost abort over a lost commit that was compacted away", "earlier-decision-compacted"
)
def _() -> Verdict:
    return twice_lost(True)


@unknown("batches beyond the lost decision that nobody owns", "written-beyond-decision")
def _() -> Verdict:
    w, i = lost(2)
    w.stray(i, P)
    return judged(w)


@unknown(
    "only a decision two epochs above (Kafka 4.0.0 raises twice): not proven", "decisions-differ"
)
def _() -> Verdict:
    w, i = live()
    i.epoch += 1
    w.server_abort(i, lost=[P])
    return judged(w)


@unknown("a lost decision is not judged from one look", "lost-seen-once")
def _() -> Verdict:
    return judged(lost(2)[0], once=True)


@unknown("Prepare in the first look, gone in the second: may still be ending", "owner-changed")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit", stalled=True)
    return judged(w, between=lambda: w.finish(i, lost=[P]))


@unknown("Prepare in the first look, the id's next transaction in the second", "owner-changed")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit", stalled=True)

    def go_on() -> None:
        w.finish(i, lost=[P])
        w.write(i, P)

    return judged(w, between=go_on)


@unknown("the decider's coordinator was not seen: it may still be in Prepare", "decider-not-seen")
def _() -> Verdict:
    return judged(lost(2)[0], eyes=Eyes(unseen=frozenset({HOME})))


@case("orphan: fresh, no coordinator ever knew the producer id", "orphan", "abort")
def _() -> Verdict:
    w, _i = live()
    w.fresh(Q)
    return judged(w, only(w, Q))


@case("orphan: marked, its producer id has an earlier marker", "orphan", "abort")
def _() -> Verdict:
    w, _i = live()
    w.fresh(Q, marked=True)
    return judged(w, only(w, Q))


@case("orphan: late, its id has ended elsewhere, v2", "orphan", "abort")
def _() -> Verdict:
    w = World()
    i = w.init("orders")
    w.write(i, Q)
    w.end(i, "commit")
    w.stray(i, P)
    return judged(w)


@case("orphan: late, on a partition of the ended transaction, v1", "orphan", "abort")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit")
    w.stray(i, P)
    return judged(w)


@case("orphan: late, on a partition of the ended transaction, v2", "orphan", "abort")
def _() -> Verdict:
    w, i = live(2)
    w.end(i, "commit")
    w.stray(i, P)
    return judged(w)


@case("orphan: late by ten years, says the producer's clock", "orphan", "abort")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit")
    w.producer = TEN_YEARS
    w.stray(i, P)
    return judged(w)


@case("orphan: foreign, its id is Ongoing elsewhere: no marker yet", "orphan", "wait")
def _() -> Verdict:
    w = World()
    i = w.init("orders")
    w.write(i, Q)
    w.stray(i, P)
    v = judged(w)
    assert v.remedy.transactional_id == "orders"
    return v


@case("orphan: its id is in Prepare elsewhere: no marker yet", "orphan", "wait")
def _() -> Verdict:
    w = World()
    i = w.init("orders")
    w.write(i, Q)
    w.stray(i, P)
    w.end(i, "commit", stalled=True)
    return judged(w)


@unknown("one sample only", "one-sample")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    return judged(w, once=True)


@unknown("owned in the first look, not in the second", "owner-changed")
def _() -> Verdict:
    w, _i = live()
    return judged(w, then=Eyes(unseen=frozenset({HOME})))


@case("owned in the second look only: not an orphan", "open", "wait")
def _() -> Verdict:
    w, _i = live()
    return judged(w, eyes=Eyes(unseen=frozenset({HOME})), then=CLEAR)


@unknown("no DESCRIBE on transactional ids", "coordinators-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(ids_describe=False))


@unknown("a coordinator moves: it omits its ids without an error", "coordinators-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(unseen=frozenset({HOME})))


@unknown("a coordinator unseen in the first look only", "coordinators-not-seen")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    return judged(w, eyes=Eyes(unseen=frozenset({HOME})), then=CLEAR)


def missing(*holes: Missing) -> Verdict:
    """A fresh stray, all coordinators proven, and something that is missing all the same."""
    w, _i = live()
    w.fresh(Q)

    def lacking(s: Sample) -> Sample:
        return replace(s, transactions=replace(s.transactions, missing=holes))

    return judged(w, only(w, Q), change=lacking)


@unknown("a broker that did not answer the listing", "coordinators-not-seen")
def _() -> Verdict:
    return missing(Missing("broker", "TIMED_OUT", "", broker=2))


@unknown("an id that is not in the list could not be described", "coordinators-not-seen")
def _() -> Verdict:
    return missing(Missing("transaction", "COORDINATOR_LOAD_IN_PROGRESS", "", id="billing"))


@case("another id, in the list with its producer id, could not be described", "orphan", "abort")
def _() -> Verdict:
    return missing(Missing("transaction", "COORDINATOR_LOAD_IN_PROGRESS", "", id="orders"))


@unknown("__transaction_state has no partition that was asked", "coordinators-not-seen")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    return judged(w, change=lambda s: replace(s, transactions=Transactions()))


@unknown("a DENY on one id hides it without an error: its log tells", "log-says-open")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(denied=frozenset({"orders"})))


@unknown(
    "a DENY hides the id that lives elsewhere: a marker could hit its next write", "log-says-open"
)
def _() -> Verdict:
    w = World()
    i = w.init("orders")
    w.write(i, Q)
    w.stray(i, P)
    return judged(w, eyes=Eyes(denied=frozenset({"orders"})))


@unknown("no READ on the topic", "producers-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(topic_read=False))


@unknown("the partition has no leader", "partition-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(no_leader=frozenset({P})))


@unknown("the start batch was deleted", "start-batch-not-read")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    about = only(w)
    w.logs[P].batches.clear()
    return judged(w, about)


@unknown("an id of this producer id that could not be described", "owner-not-described")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(undescribed=frozenset({"orders"})))


@unknown("without DESCRIBE on the topic the list of partitions is empty", "owner-not-described")
def _() -> Verdict:
    def hide(s: Sample) -> Sample:
        rows = tuple(replace(t, partitions=()) for t in s.transactions.rows)
        seen = replace(s.transactions, rows=rows)
        return replace(s, topic_describe=False, transactions=seen)

    return judged(live()[0], change=hide)


@unknown("without DESCRIBE on the topic, no id with this producer id", "topic-not-described")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    return judged(w, change=lambda s: replace(s, topic_describe=False))


@unknown("held, and the leader names no transaction", "no-open-transaction")
def _() -> Verdict:
    w, _i = live()
    return judged(w, OpenTransaction(*P, None, None))


@unknown("the history was not read", "history-not-read")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    return judged(w, eyes=Eyes(history=False))


@unknown("the history has a record in a version that is not understood", "history-unreadable")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    unreadable = StateRecord("x", 1, 0, w.now, UnknownVersion(9))
    w.state[1].append(unreadable)
    w.ends[1] = 1
    return judged(w)


@unknown("a lost commit whose Prepare was compacted away", "history-compacted")
def _() -> Verdict:
    w, i = lost(2)
    w.write(i, Q)
    w.end(i, "commit")
    for number in w.state:
        w.compact(number, w.ends[number])
    return judged(w)


@unknown("the same on v1", "history-compacted")
def _() -> Verdict:
    w, _i = lost(1)
    for number in w.state:
        w.compact(number, w.ends[number])
    return judged(w)


@unknown("no id known: one partition with a gap is enough", "history-compacted")
def _() -> Verdict:
    w, i = live()
    w.fresh(Q)
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    return judged(w, only(w, Q))


@case("the gap ends before the batch by the leader's clock (a marker before it)", "orphan", "abort")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.write(i, P)
    w.end(i, "commit")
    w.tick(60_000)
    w.write(i, P)
    w.end(i, "commit")  # its marker: what follows was written after it
    w.fresh(P)
    return judged(w)


@unknown("the gap ends before the batch only by the producer's clock", "history-compacted")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.tick(60_000)
    w.fresh(Q)
    return judged(w, only(w, Q))


@case("the same on LogAppendTime: the time is the broker's", "orphan", "abort")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.tick(60_000)
    w.fresh(APPEND_TIME)
    return judged(w, only(w, APPEND_TIME))


@unknown("v1: a transaction right after another, one marker: whose is it", "order-unclear")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit")
    w.tick(100)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    return judged(w)


@unknown("the producer writes on between the looks", "still-writing")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.stray(i, Q)
    return judged(w, only(w, Q), between=lambda: w.stray(i, Q))


@unknown("a live later transaction over a batch whose end is not known", "later-transaction")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.stray(i, Q)
    w.init("orders")
    w.write(i, Q)
    return judged(w, only(w, Q))


@unknown("an id in a state that is not known", "owner-odd")
def _() -> Verdict:
    def odd(s: Sample) -> Sample:
        rows = tuple(replace(t, state="PrepareEpochFence") for t in s.transactions.rows)
        return replace(s, transactions=replace(s.transactions, rows=rows))

    return judged(live()[0], change=odd)


@case("a decision made after the looks is no lost one", "open", "wait")
def _() -> Verdict:
    w, i = live(1)
    about = only(w)
    first = sample(w, P, CLEAR, SETTINGS)
    w.tick(5000)
    second = sample(w, P, CLEAR, SETTINGS)
    start = start_batch(w, about, CLEAR)
    assert start is not None
    markers = w.logs[P].markers.copy()
    w.end(i, "commit")
    w.logs[P].markers = markers  # the data log was read before, the coordinators' after
    v = judge(about, start, first, second, history(w, about, start, CLEAR, SETTINGS))
    assert v is not None
    return v


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    play, expected = CASES[name]
    v = play()
    assert short(v) == expected
    assert v.evidence
    assert v.remedy.does
    if v.remedy.action != "abort":
        assert remedy_allowed(v, "abort") is not None


def test_every_rule_has_a_case() -> None:
    """A rule that no case reaches would be a rule that nobody tested."""
    reached = {play().rule for play, _ in CASES.values()}
    assert {r.name for r in RULES} == reached


# --- what is gone ------------------------------------------------------------------------------


def test_ended_between_the_looks_is_no_verdict() -> None:
    w, i = live()
    assert look(w, between=lambda: w.end(i, "commit")) is None


def test_began_anew_between_the_looks_is_no_verdict() -> None:
    w, i = live()

    def again() -> None:
        w.end(i, "commit")
        w.write(i, P)

    assert look(w, only(w), between=again) is None


def test_a_bystander_on_the_same_partition_is_judged_on_its_own() -> None:
    w, i = live()
    w.fresh(P)
    verdicts = {o.producer_id: judged(w, o).name for o in w.open_transactions()}
    assert sorted(verdicts.values()) == ["open", "orphan"]
    assert verdicts[i.pid] == "open"


# --- the attributes ------------------------------------------------------------------------------


def test_pending_offsets_are_an_attribute() -> None:
    w = World()
    offsets = ("__consumer_offsets", 7)
    w.logs[offsets] = type(w.logs[P])()
    i = w.init("orders")
    w.write(i, offsets)
    v = judged(w, only(w, offsets))
    assert (v.name, v.offsets_pending) == ("open", True)


def test_age_is_by_the_coordinator_if_owned_else_by_the_producer() -> None:
    w, _i = live()
    w.tick(60_000 - 8)
    w.producer = -TEN_YEARS
    w.fresh(Q)
    owned, stray = judged(w, only(w)), judged(w, only(w, Q))
    assert owned.age_clock == "coordinator"
    assert owned.age_seconds == pytest.approx(65, abs=0.1)
    assert stray.age_clock == "producer"
    assert stray.age_seconds == pytest.approx(TEN_YEARS / 1000 + 10, abs=10)


def test_an_age_that_makes_no_sense_is_not_known() -> None:
    w = World(producer=TEN_YEARS)
    w.fresh(P)
    v = judged(w)
    assert (v.age_seconds, v.age_clock) == (None, None)


def test_evidence_is_sentences_with_the_numbers_in_them() -> None:
    w = World()
    w.fresh(P)
    batch, owner = [e.text for e in judged(w).evidence][:2]
    assert batch == "the batch at offset 0 of t:0 is producer id 4001, epoch 0"
    assert owner == (
        "no coordinator lists producer id 4001 as open on t:0; 3 of 3 coordinator partitions "
        "answered, twice, 5 s apart"
    )


def test_evidence_of_a_lost_commit_cites_the_record() -> None:
    w, i = lost(2)
    (said,) = [e for e in judged(w).evidence if e.code == "decision"]
    assert said.text.startswith(
        f"__transaction_state-{HOME} offset {said.data['offset']}: orders decided commit with "
        f"producer id {i.pid}, epoch 3"
    )
    assert said.data["client_version"] == 2


def test_held_groups_are_named() -> None:
    w, _i = live()
    about = only(w)
    start = start_batch(w, about, CLEAR)
    assert start is not None
    v = judge(about, replace(start, groups=("billing",)), sample(w, P, CLEAR, SETTINGS))
    assert v is not None
    assert "groups billing" in v.evidence[0].text


# --- remedies: what is allowed -------------------------------------------------------------------


def allowed(v: Verdict, **how: bool) -> set[str]:
    return {a for a in ("abort", "fence", "resolve") if remedy_allowed(v, a, **how) is None}


def compacted() -> Verdict:
    return CASES["a lost commit whose Prepare was compacted away"][0]()


@pytest.mark.parametrize(
    ("name", "plain", "overridden"),
    [
        ("open: owned, within its timeout and 15 min", {"fence"}, {"fence"}),
        ("long: past 15 min, within its timeout", {"fence"}, {"fence"}),
        ("overdue: past its timeout", {"fence"}, {"fence"}),
        ("two-phase: timeout 2147483647 (KIP-939), however old", set(), {"fence"}),
        ("two-phase: an id as Flink gives it", set(), {"fence"}),
        ("prepare: decided, markers on their way", set(), set()),
        ("prepare-stuck, all have a leader", set(), set()),
        ("marker-lost: a commit, v2", {"resolve"}, {"resolve"}),
        ("mixed, v1: both have one epoch", set(), set()),
        ("mixed, v2: the next transaction is open on it", set(), set()),
        ("orphan: fresh, no coordinator ever knew the producer id", {"abort"}, {"abort"}),
        ("orphan: foreign, its id is Ongoing elsewhere: no marker yet", {"fence"}, {"fence"}),
        ("orphan: its id is in Prepare elsewhere: no marker yet", set(), set()),
        ("a lost commit whose Prepare was compacted away", set(), {"resolve"}),
        ("two lost decisions that differ: no one marker is right", set(), set()),
        ("v1: a transaction right after another, one marker: whose is it", set(), set()),
        ("one sample only", set(), set()),
        ("a DENY on one id hides it without an error: its log tells", set(), set()),
    ],
)
def test_remedies_allowed(name: str, plain: set[str], overridden: set[str]) -> None:
    v = CASES[name][0]()
    assert allowed(v) == plain
    assert allowed(v, owner_is_gone=True, accept_unknown_outcome=True) == overridden


def test_open_is_not_fenced_while_decided_data_may_lie_below() -> None:
    v = judged(live(1)[0], eyes=Eyes(history=False))
    assert v.name == "open"
    assert "decided data" in (remedy_allowed(v, "fence") or "")
    assert [e.data for e in v.evidence if e.code == "earlier-unclear"] == [
        {"reason": "history-not-read"}
    ]
    assert "earlier-unclear" not in [e.code for e in judged(live(1)[0]).evidence]


def test_on_v2_an_owner_is_fenced_although_the_history_is_compacted() -> None:
    w, _i = live(2)
    for number in w.state:
        w.compact(number, w.ends[number])
    assert allowed(judged(w)) == {"fence"}


def test_a_foreign_orphan_of_a_two_phase_id_needs_the_override() -> None:
    w = World()
    i = w.init("flink-sink-3-17")
    w.write(i, Q)
    w.stray(i, P)
    v = judged(w)
    assert allowed(v) == set()
    assert allowed(v, owner_is_gone=True) == {"fence"}


def test_an_unknown_outcome_is_not_resolved_while_the_id_lives_elsewhere() -> None:
    w, i = live(1)
    w.end(i, "commit")
    w.write(i, Q)
    w.stray(i, P)
    w.compact(HOME, w.ends[HOME])
    v = judged(w, only(w, P))
    assert v.rule == "history-compacted"
    assert allowed(v, accept_unknown_outcome=True) == set()


def test_a_refusal_is_a_sentence_that_names_the_right_remedy() -> None:
    said = remedy_allowed(judged(lost(2)[0]), "abort")
    assert said is not None
    assert "is marker-lost" in said
    assert "the remedy is resolve" in said


# --- remedies: the requests ----------------------------------------------------------------------

ABOUT = OpenTransaction("t", 0, 4001, 0)


def described(epoch: int = 4, coordinator_epoch: int | None = None) -> ProducerFacts:
    return ProducerFacts("t", 0, 4001, epoch, 1, None, coordinator_epoch, 0)


def known(epoch: int | None) -> Transactions:
    return Transactions((TransactionFacts("x", 1, 4001, "Empty", epoch),))


@pytest.mark.parametrize(
    ("epoch", "transactions", "feature", "expected"),
    [
        (4, Transactions(), 2, (5, 2)),  # no coordinator knows it
        (4, known(5), 2, (5, 2)),  # its epoch is at least that already
        (4, known(6), 2, (5, 2)),
        (4, known(4), 2, (4, 0)),  # + 1 would fence the id's next write
        (4, known(None), 2, (4, 0)),
        (4, Transactions(), 1, (4, 0)),  # the cluster has no transactions v2
        (4, Transactions(), 0, (4, 0)),
        (32_767, Transactions(), 2, (32_767, 0)),  # there is no higher epoch
    ],
)
def test_abort_marker(
    epoch: int, transactions: Transactions, feature: int, expected: tuple[int, int]
) -> None:
    marker = repairs.abort_marker(ABOUT, described(epoch), transactions, feature)
    assert (marker.producer_epoch, marker.transaction_version) == expected
    assert (marker.outcome, marker.producer_id) == ("abort", 4001)


@pytest.mark.parametrize(("seen", "sent"), [(None, 0), (-1, 0), (0, 0), (7, 7)])
def test_the_coordinator_epoch_is_never_raised(seen: int | None, sent: int) -> None:
    row = described(coordinator_epoch=seen)
    assert repairs.abort_marker(ABOUT, row, Transactions(), 2).coordinator_epoch == sent
    decision = judged(lost(2)[0]).decision
    assert decision is not None
    assert repairs.resolve_marker(ABOUT, row, decision).coordinator_epoch == sent


@pytest.mark.parametrize(("version", "epoch", "tag"), [(2, 3, 2), (1, 0, 0)])
def test_resolve_copies_the_prepare_record(version: int, epoch: int, tag: int) -> None:
    # two commits before: on v2 the third transaction has epoch 2 and is ended with 3
    w, i = lost(version)
    v = judged(w)
    row = sample(w, P, CLEAR, SETTINGS).producer(i.pid)
    assert v.decision is not None
    assert row is not None
    marker = repairs.resolve_marker(v.about, row, v.decision)
    assert (marker.producer_id, marker.producer_epoch, marker.outcome) == (i.pid, epoch, "commit")
    assert marker.transaction_version == tag


def test_fence_is_compare_and_set() -> None:
    row = TransactionFacts("x", 1, 4001, "Ongoing", 7, 60_000, 1, ())
    assert repairs.fence_requests(row, 2) == (repairs.EndRequest(5, "x", 4001, 7), None)
    assert repairs.fence_requests(row, 1) == (
        repairs.EndRequest(3, "x", 4001, 7),
        repairs.InitRequest("x", 4001, 7, 60_000),
    )
    with pytest.raises(ValueError, match="is Empty"):
        repairs.fence_requests(replace(row, state="Empty"), 2)


# --- every combination of facts --------------------------------------------------------------


def test_every_combination_of_facts_has_one_verdict() -> None:
    """All states, epochs, lists, histories and gaps in view, first and second look: one verdict.

    abort is offered only where nothing at all is missing and nobody owns or decided it.
    """
    states = (None, "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "New")
    pasts = ("none", "clean", "lost", "compacted")
    views = ("clear", "no-producers", "moving", "no-describe", "once")
    w = World()
    w.fresh(P)
    about = only(w)
    pid = about.producer_id or 0
    start = StartBatch(pid, 0)
    plain = sample(w, P, CLEAR, SETTINGS)
    decided = judged(lost(2)[0]).decision
    assert decided is not None
    decision = replace(decided, producer_id=pid, producer_epoch=1, started=-5)
    counts: dict[str, int] = {}
    for first_state, second_state, epoch, names, past, view in product(
        states, states, (0, 1, 2), (True, False, None), pasts, views
    ):
        rows = []
        for state in (first_state, second_state):
            named = {True: (P,), False: (), None: None}[names]
            row = TransactionFacts("x", 1, pid, state or "", epoch, 60_000, 1, named)
            rows.append(() if state is None else (row,))
        samples = [replace(plain, transactions=replace(plain.transactions, rows=r)) for r in rows]
        if view == "no-producers":
            samples[1] = replace(samples[1], producers=None)
        if view == "moving":
            moving = tuple(
                replace(c, seen=c.partition != HOME) for c in plain.transactions.coordinators
            )
            seen = replace(samples[0].transactions, coordinators=moving)
            samples[0] = replace(samples[0], transactions=seen)
        if view == "no-describe":
            samples = [replace(s, topic_describe=False) for s in samples]
        made = {
            "none": None,
            "clean": History(pid, (), (), (), None, 0, None, markers_from=0),
            "lost": History(pid, ("x",), (decision,), (), None, 0, None, markers_from=0),
            "compacted": History(pid, (), (), (), "history-compacted", 9, 1, markers_from=0),
        }[past]
        second = None if view == "once" else samples[1]
        v = judge(about, start, samples[0], second, made)
        assert v is not None
        counts[v.name] = counts.get(v.name, 0) + 1
        here = [s if names is not False else None for s in (first_state, second_state)]
        may_own = any(s not in (None, "Empty", "CompleteCommit") for s in here)
        if v.name == "orphan":
            assert (past, view) == ("clean", "clear")
            assert not may_own
        if remedy_allowed(v, "abort") is None:
            live = {"Ongoing", "PrepareCommit", "PrepareAbort", "New"}
            assert not live & {first_state, second_state}
        if past == "lost" and v.name not in ("unknown", "prepare", "prepare-stuck"):
            # epoch 0 names it Ongoing: an epoch that fits the batch, and a decision with + 1
            assert v.name == "marker-lost"
            assert v.proven_outcome == "commit"
    assert {"unknown", "prepare", "marker-lost", "open", "orphan"} <= set(counts)
