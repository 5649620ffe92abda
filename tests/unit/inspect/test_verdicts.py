"""One named case for each row and each bullet of the rules, and every combination of facts.

The cases are played on the model of coordinators and partitions (transaction_model.py), which keeps
the truth; what is expected is written down here from the rules, not computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.id_verdicts import RULES as ID_RULES
from recovery.diagnose.verdicts import RULES, Verdict, judge
from recovery.facts import (
    CoordinatorFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import History, StateRecord
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch
from recovery.remedy import repairs
from recovery.remedy.repairs import commit_refused, remedy_allowed
from recovery.values import replace
from tests.unit.said import all_said, said
from tests.unit.transaction_model import TEN_YEARS, Eyes, Id, World, history, sample, start_batch

P, Q, APPEND_TIME = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
SETTINGS = Settings()
HOME = 0
"""The partition of `__transaction_state`, of three, that "orders" belongs to."""
BESIDE = next(n for n in map(str, range(99)) if coordinator_partition(n, 3) == HOME)
"""Another id that belongs there."""
CLEAR = Eyes()


def only(w: World, tp: TopicPartition = P) -> OpenTransaction:
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
    past = history(w, about, start, then or eyes) if start else None
    v = judge(about, start, first, second, past, settings)
    return None if v is None else all_said(v)


def judged(*args: object, **kwargs: object) -> Verdict:
    v = look(*args, **kwargs)  # type: ignore[arg-type]
    assert v is not None
    return v


def live(version: int = 2, name: str = "orders", timeout: int = 3_600_000) -> tuple[World, Id]:
    """An id that has committed twice on P and has its next transaction open there.

    Under v1 its application was started again after the first: that one measures the clocks.
    """
    w = World()
    i = w.init(name, version, timeout)
    for _ in range(2):
        w.write(i, P)
        w.end(i, "commit")
        w.tick(20_000)
        if version == 1 and i.epoch == 0:
            w.init(name)
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


def by_cache(v: Verdict) -> list[str]:
    """What the verdict says of this host's cache, up to the first comma."""
    return [evidence_words(e).split(",")[0] for e in v.evidence if e.code == "cache"]


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


@case(
    "marker-lost, v2: compacted but for the end that began its epoch",
    "marker-lost",
    "resolve",
    "commit",
)
def _() -> Verdict:
    w = World()
    i = w.init("orders", 2, 3_600_000)
    w.write(i, Q)
    w.end(i, "commit")
    other = w.init(BESIDE, 2, 3_600_000)
    for _ in range(2):
        w.write(other, Q)
        w.end(other, "commit")
    w.compact(HOME, w.ends[HOME])
    w.write(i, P)
    w.tick(20_000)
    w.end(i, "commit", lost=[P])
    w.tick(20_000)
    about = only(w)
    start = start_batch(w, about, CLEAR)
    assert start is not None
    past = history(w, about, start, CLEAR)
    assert past is not None
    assert not past.whole
    return judged(w)


def resumed(earlier: str, later: str) -> Verdict:
    """A lost v1 decision; the next transaction, of the same epoch, is ended by a v2 client."""
    w, i = lost(1, earlier)
    w.write(i, P)
    at = w.ends[HOME]
    w.end(i, later, lost=[P], resumed=True)
    w.compact(HOME, at)
    return judged(w)


@unknown("v1, then a lost commit of a v2 client over a lost abort", "earlier-decision-compacted")
def _() -> Verdict:
    return resumed("abort", "commit")


@unknown("v1, then a lost abort of a v2 client over a lost commit", "earlier-decision-compacted")
def _() -> Verdict:
    return resumed("commit", "abort")


@case("two-phase: timeout 2147483647 (KIP-939), however old", "two-phase", "none")
def _() -> Verdict:
    w, _i = live(timeout=2_147_483_647)
    w.tick(30 * 86_400_000)
    return judged(w)


@case("overdue, an id as Flink gives it: only gated", "overdue", "wait")
def _() -> Verdict:
    w, _i = live(name="flink-sink-3-17", timeout=60_000)
    w.tick(3_600_000)
    return judged(w)


@case("long, an id as Flink gives it: only gated", "long", "wait")
def _() -> Verdict:
    w, _i = live(name="flink-sink-3-17")
    w.tick(15 * 60_000 + 1)
    return judged(w)


def _leader_silent(
    young: bool, state: str = "PrepareCommit", error: str = "TIMED_OUT", *, describes: bool = False
) -> Verdict:
    """The data partition's leader gives no offsets; only the coordinator tells of it.

    describes: it does describe its producers, as a new leader that no follower has asked yet.
    """
    w, i = live()
    at = w.now
    name, pid, epoch = i.name, i.pid, i.epoch
    row = TransactionFacts(name, 1, pid, state, epoch + 1, 60_000, at, (P,))
    seen = sample(w, P, CLEAR, SETTINGS)
    unseen = replace(
        seen,
        partition=PartitionFacts(*P, leader=3, error=error),
        producers=seen.producers if describes else None,
        topic_describe=False,
        transactions=replace(seen.transactions, rows=(row,)),
        over_stuck=frozenset() if young else frozenset({name}),
        collected_at=at + (1_000 if young else 120_000),
    )
    decided = TransactionValue(
        pid, epoch + 1, 60_000, TransactionState(state), (P,), at, at, client_transaction_version=2
    )
    past = History(pid, (name,), (), (StateRecord(name, HOME, 9, at, decided),), None, 0)
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


@case("prepare: decided since nobody knows when is not stuck", "prepare", "wait", None)
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


@case("prepare-stuck on v2, no marker is written", "prepare-stuck", "restart-coordinator", "commit")
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.tick(65_001)
    return judged(w)


@case("prepare-stuck on v2, one marker is written: KAFKA-19999", "prepare-stuck", "none", "commit")
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.marker(Q, i.pid, i.epoch, "commit", 0)
    w.tick(65_001)
    v = judged(w)
    assert "restart-coordinator" in dict(v.remedy.refused)
    assert "KAFKA-19999" in remedy_words(v.remedy.does)
    return v


@case(
    "prepare-stuck on v2, one marker acknowledged and no longer named",
    "prepare-stuck",
    "none",
    "commit",
)
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.marker(Q, i.pid, i.epoch, "commit", 0)
    i.partitions.discard(Q)
    w.tick(65_001)
    return judged(w)


def refused(version: int, above: int, *, elsewhere: bool = False) -> World:
    """A commit in Prepare* that a foreign coordinator epoch on P (or only on Q) keeps out."""
    w, i = live(version)
    w.write(i, Q)
    w.logs[Q if elsewhere else P].producers[i.pid].coordinator_epoch = above
    w.end(i, "commit", stalled=True)
    return w


@case(
    "coordinator-fenced: one epoch above, v1", "coordinator-fenced", "restart-coordinator", "commit"
)
def _() -> Verdict:
    v = judged(refused(1, 1))
    assert "once" in remedy_words(v.remedy.does)
    return v


@case(
    "coordinator-fenced: 3 epochs above, v2", "coordinator-fenced", "restart-coordinator", "commit"
)
def _() -> Verdict:
    v = judged(refused(2, 3))
    assert "3 times" in remedy_words(v.remedy.does)
    return v


@case(
    "coordinator-fenced: 1000 epochs above", "coordinator-fenced", "write-prepared-marker", "commit"
)
def _() -> Verdict:
    return judged(refused(2, 1000))


@case(
    "coordinator-fenced: by another partition that it names",
    "coordinator-fenced",
    "write-prepared-marker",
    "commit",
)
def _() -> Verdict:
    w = refused(2, 1000, elsewhere=True)
    return judged(w)


@case(
    "coordinator-fenced: by a producer epoch above the Prepare's",
    "coordinator-fenced",
    "write-prepared-marker",
    "commit",
)
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.logs[Q].producers[i.pid].epoch = i.epoch + 1
    v = judged(w)
    assert v.rule == "producer-epoch-above"
    return v


@case("prepare: a producer epoch above that of one begun lately", "prepare", "wait", "commit")
def _() -> Verdict:
    """Under v2 it completed meanwhile, and its next transaction wrote: no second look."""
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.logs[Q].producers[i.pid].epoch = i.epoch + 1
    young = replace(sample(w, P, CLEAR, SETTINGS).ids[0], decided_long_ago=False)
    return judged(w, once=True, change=lambda s: replace(s, ids=(young,)))


@case(
    "coordinator-fenced: v1, an earlier COMMIT on the batch may be forgotten",
    "coordinator-fenced",
    "none",
    None,
)
def _() -> Verdict:
    """Its Prepare* is of the later transaction: its ABORT would drop what was committed."""
    w, i = live(1)
    w.end(i, "commit", lost=[P])
    w.tick(20_000)
    w.write(i, P)
    w.logs[P].producers[i.pid].coordinator_epoch = 1000
    w.end(i, "abort", stalled=True)
    v = judged(w, eyes=Eyes(history=False))
    assert v.proven_outcome is None
    return v


@unknown("coordinator-fenced, seen only once", "refused-seen-once")
def _() -> Verdict:
    return judged(refused(2, 1), once=True)


@case("prepare: refused in the first look, gone from it in the second", "prepare", "wait", "commit")
def _() -> Verdict:
    w = refused(2, 1)
    later = iter((False, True))
    return judged(w, change=lambda s: replace(s, ids=()) if next(later) else s)


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
    v = judged(lost(2)[0])
    assert by_cache(v) == []
    return v


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


def first_ever(sighted: bool) -> Verdict:
    """v1: the first transaction on the partition loses its marker: one outage, or another topic."""
    w = World()
    i = w.init("orders", 1)
    if sighted:
        w.sight()
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    return judged(w)


@unknown("v1: no decision has a marker in this log: is it the topic they name", "topic-identity")
def _() -> Verdict:
    return first_ever(sighted=False)


@case(
    "marker-lost: the first transaction ever on the partition, v1: its topic's id was seen before",
    "marker-lost",
    "resolve",
    "commit",
)
def _() -> Verdict:
    v = first_ever(sighted=True)
    assert by_cache(v) == ["This host's cache decided: only it knows which topic was named t"]
    return v


def remade(*, sighted: bool = False, stray: bool = False) -> World:
    """v1: commits on P, whose topic is then made anew; its next transaction there, or a stray."""
    w, i = live(1)
    w.end(i, "commit")
    if sighted:
        w.sight()
        w.sight()
    w.remake(P)
    if stray:
        w.stray(i, P)
    else:
        w.write(i, P)
    return w


@case("open on v1: its topic was made anew and holds no marker of its commits", "open", "wait")
def _() -> Verdict:
    v = judged(remade())
    assert "earlier-unclear" in {e.code for e in v.evidence}
    assert not v.fence_safe
    return v


@unknown("an orphan on a topic made anew, v1", "topic-identity")
def _() -> Verdict:
    return judged(remade(stray=True))


@case("an orphan on a topic made anew, v1, the earlier id was seen", "orphan", "abort")
def _() -> Verdict:
    v = judged(remade(sighted=True, stray=True))
    assert by_cache(v) == ["This host's cache decided: only it knows which topic was named t"]
    return v


@unknown("v1: commit, commit, the second marker lost and the first one twice", "order-unclear")
def _() -> Verdict:
    w = World()
    i = w.init("orders", 1)
    w.write(i, P)
    w.end(i, "commit")
    w.repeat(i, P)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    return judged(w)


@unknown("the log was made anew: a lost commit stands in none of them", "history-replaced")
def _() -> Verdict:
    w, _i = lost(2)
    w.replace_state(seen=False)
    return judged(w)


@unknown("the log was made anew, v1", "history-replaced")
def _() -> Verdict:
    w, _i = lost(1)
    w.replace_state(seen=False)
    w.init("orders", 1)
    return judged(w)


@case("the log was made anew, and a cache knows the decision", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    w, _i = lost(2)
    w.replace_state(seen=True)
    v = judged(w)
    assert [e.data["source"] for e in v.evidence if e.code == "decision"] == ["forgotten"]
    [text] = by_cache(v)
    assert "only it knows a decision that the cluster's own log no longer holds" in text
    return v


@unknown("the log was made anew, v1: a later decision may be unknown", "history-replaced")
def _() -> Verdict:
    w, _i = lost(1)
    w.replace_state(seen=True)
    return judged(w)


@unknown("no transactional id ever bore the producer id", "history-replaced")
def _() -> Verdict:
    w, _i = live()
    w.nameless(Q)
    return judged(w, only(w, Q))


@unknown("the epoch of the batch stands nowhere: the log lost its end", "history-replaced")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.stray(i, Q)
    last = max(n for n, r in enumerate(w.state[HOME]) if "Ongoing" in str(r.value))
    w.state[HOME], w.ends[HOME] = w.state[HOME][:last], last
    del w.ids["orders"]
    return judged(w, only(w, Q))


@unknown("a marker of a coordinator epoch that the log has not reached", "history-replaced")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.stray(i, P)
    w.logs[P].producers[i.pid].coordinator_epoch = 7
    return judged(w)


@unknown("the log lost an end that a cache had read", "history-replaced")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.stray(i, P)
    w.cut_epochs[HOME] = 0
    return judged(w)


@case("the log lost an end, and the epoch began after that", "orphan", "abort")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.cut_epochs[HOME] = 0
    w.fail_over(HOME, 0)
    w.init("orders")
    w.stray(i, P)
    return judged(w)


MOVES = "moves-2"
"""An id whose home is another partition of `__transaction_state` once there are five."""


def moved(version: int = 2) -> tuple[World, Id]:
    w = World()
    i = w.init(MOVES, version, 3_600_000)
    w.write(i, P)
    w.end(i, "commit")
    if version == 1:
        w.init(MOVES)
    w.write(i, P)
    return w, i


@pytest.mark.parametrize("version", [2, 1])
def test_the_id_of_the_cases_moves(version: int) -> None:
    w, i = moved(version)
    w.grow()
    assert [g.name for g in w.ghosts] == [MOVES]
    assert i.home != coordinator_partition(MOVES, len(w.state))


@case("the decision stands in the id's former partition", "marker-lost", "resolve", "commit")
def _() -> Verdict:
    w, i = moved()
    w.end(i, "commit", lost=[P])
    w.grow()
    w.init(MOVES)
    return judged(w)


@case(
    "Prepare in the former partition: nobody writes its marker", "marker-lost", "resolve", "commit"
)
def _() -> Verdict:
    w, i = moved()
    w.end(i, "commit", stalled=True)
    w.grow()
    return judged(w)


@unknown("Ongoing in the former partition: a ghost's listing is no owner", "history-moved")
def _() -> Verdict:
    w, _i = moved()
    w.grow()
    return judged(w)


@unknown("a stray of an id that moved", "history-moved")
def _() -> Verdict:
    w, i = moved()
    w.end(i, "commit")
    w.stray(i, P)
    w.grow()
    w.init(MOVES)
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


@case(
    "its coordinator lost the decision, and takes it for open",
    "marker-lost",
    "wait",
    "commit",
    True,
)
def _() -> Verdict:
    w, i = live()
    w.write(i, Q)
    w.end(i, "commit", lost=[P, Q])
    w.cut(i, seen=True)
    v = judged(w)
    assert i.state == "Ongoing"
    assert "has lost that decision" in remedy_words(v.remedy.does)
    assert "--owner-is-gone" in remedy_words(v.remedy.does)
    assert remedy_allowed(v, "resolve", owner_is_gone=True) is None
    assert remedy_allowed(v, "fence", owner_is_gone=True) is not None
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


@case(
    "an abort two epochs above, which is the next record (Kafka 4.0.0 raises twice)",
    "marker-lost",
    "resolve",
    "abort",
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


@unknown("its log has the id, and its coordinator does not know it", "history-replaced")
def _() -> Verdict:
    """A replica lost the end of the log and had removed the records before it."""
    w = World()
    i = w.init("orders", 1)
    w.read()
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    w.compact(i.home, w.ends[i.home] - 2)
    w.cut(i, seen=False)
    return judged(w)


@unknown(
    "its log went, too, after it had lost the decision: topics may have changed", "history-replaced"
)
def _() -> Verdict:
    w = World()
    i = w.init("orders", 2)
    w.write(i, P)
    w.end(i, "commit", lost=[P])
    w.cut(i, seen=True)
    w.remake(P)
    w.stray(i, P)
    w.cut(i, seen=True)
    return judged(w)


@case("a DENY hides an id that is at rest by its complete log", "orphan", "abort")
def _() -> Verdict:
    w = World()
    i = w.init("orders")
    w.write(i, Q)
    w.end(i, "commit")
    w.stray(i, P)
    return judged(w, only(w, P), eyes=Eyes(denied=frozenset({"orders"})))


@unknown("no READ on the topic", "producers-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(topic_read=False))


@unknown("the partition has no leader", "partition-not-seen")
def _() -> Verdict:
    return judged(live()[0], eyes=Eyes(no_leader=frozenset({P})))


@unknown("the topic was made anew between the looks: a stray of the same place", "topic-made-anew")
def _() -> Verdict:
    w = World()
    i = w.init("orders", 2, 3_600_000)
    w.write(i, P)
    w.end(i, "commit", lost=[P])

    def remade() -> None:
        w.remake(P)
        w.stray(i, P)

    return judged(w, between=remade)


@unknown("the log lost its end, its epochs came again, the topic is another", "history-replaced")
def _() -> Verdict:
    w = World()
    i = w.init("orders", 2, 3_600_000)
    w.write(i, P)
    w.end(i, "commit")
    w.cut(i, seen=True)
    w.remake(P)
    w.stray(i, P)
    return judged(w)


@unknown("every batch of it was deleted, and nobody owns it", "start-deleted")
def _() -> Verdict:
    w = World()
    w.stray(w.init("orders", 2, 3_600_000), P)
    about = only(w)
    start = start_batch(w, about, CLEAR)
    assert start is not None
    first = sample(w, P, CLEAR, SETTINGS)
    w.tick(5000)
    second = sample(w, P, CLEAR, SETTINGS)
    v = judge(about, replace(start, deleted=True), first, second, history(w, about, start, CLEAR))
    assert v is not None
    assert remedy_allowed(v, "resolve", without_proof=True) is None
    return v


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


@unknown("without DESCRIBE on the topic in one of two looks", "topic-not-described")
def _() -> Verdict:
    w = World()
    w.fresh(P)
    at = w.now
    return judged(w, change=lambda s: replace(s, topic_describe=s.collected_at == at))


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
    w.nameless(P)
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


@case("compacted until its epoch began: no offset is missing since", "orphan", "abort")
def _() -> Verdict:
    w, i = live()
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.stray(i, Q)
    return judged(w, only(w, Q))


@unknown("compacted behind the beginning of its epoch, v1", "history-compacted")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.stray(i, Q)
    return judged(w, only(w, Q))


@unknown("compacted, and by every clock before the batch: times prove nothing", "history-compacted")
def _() -> Verdict:
    w, i = live(1)
    w.end(i, "commit")
    w.compact(HOME, w.ends[HOME])
    w.tick(86_400_000)
    w.stray(i, APPEND_TIME)
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
    v = judge(about, start, first, second, history(w, about, start, CLEAR))
    assert v is not None
    return v


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    play, expected = CASES[name]
    v = play()
    assert short(v) == expected
    assert v.evidence
    assert remedy_words(v.remedy.does)
    if v.remedy.action != "abort":
        assert remedy_allowed(v, "abort") is not None


def test_the_id_that_a_verdict_is_about() -> None:
    for name, (play, _) in CASES.items():
        if name.startswith(("prepare", "open", "long", "overdue", "orphan: foreign")):
            owner = play().owner
            assert owner is not None, name
    assert CASES["orphan: fresh, no coordinator ever knew the producer id"][0]().owner is None


def test_every_rule_has_a_case() -> None:
    """A rule that no case reaches would be a rule that nobody tested."""
    reached = {play().rule for play, _ in CASES.values()}
    assert {r.name for r in RULES} == reached


ON_BROKERS = ("rule_names", "silence", "verdicts")
"""Files of tests/kafka that assert rules by their names."""


@pytest.mark.parametrize("rule", sorted({r.name for r in RULES} | {r.name for r in ID_RULES}))
def test_every_rule_is_asserted_by_its_name_on_a_real_broker(rule: str) -> None:
    folder = Path(__file__).parents[2] / "kafka"
    texts = [(folder / f"test_{name}.py").read_text(encoding="utf-8") for name in ON_BROKERS]
    assert any(f'"{rule}"' in text for text in texts)


# --- what is gone ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "granted"),
    [("TOPIC_AUTHORIZATION_FAILED", True), ("REQUEST_TIMED_OUT", False)],
)
def test_a_log_that_was_not_read_names_a_permission_only_where_it_was_refused(
    error: str, granted: bool
) -> None:
    """Of an orphan, and of an owner past a limit."""
    orphan, owned = World(), live(1)[0]
    orphan.fresh(P)
    owned.tick(15 * 60_000 + 1)
    for w in (orphan, owned):
        v = judged(w, eyes=Eyes(log_error=error))
        assert v.name == "unknown"
        assert ("grant READ on __transaction_state" in remedy_words(v.remedy.does)) is granted


@pytest.mark.parametrize(("above", "action"), [(1, "restart-coordinator"), (1000, "none")])
def test_a_move_of_the_coordinator_needs_no_proof_and_a_marker_does(
    above: int, action: str
) -> None:
    """v1, compacted: an earlier decision of the epoch may be gone, so the outcome is not proven."""
    w = refused(1, above)
    w.compact(HOME, w.ends[HOME])
    v = judged(w)
    assert (v.name, v.proven_outcome, v.remedy.action) == ("coordinator-fenced", None, action)


REFUSED, LATE = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "REQUEST_TIMED_OUT"


def coordinators(*errors: str | None, missing: tuple[Missing, ...] = ()) -> Verdict:
    """A stray, one coordinator for each error; None: it was seen."""
    w = World()
    w.fresh(P)
    rows = tuple(CoordinatorFacts(n, 1, e is None, e) for n, e in enumerate(errors))
    return judged(w, change=lambda s: replace(s, transactions=Transactions((), rows, missing)))


@pytest.mark.parametrize(
    ("errors", "holes", "told", "then"),
    [
        ((None, LATE), (), f"({LATE})", "wait for the coordinators"),
        ((REFUSED, LATE), (), f"({LATE}, {REFUSED})", "grant DESCRIBE on transactional id *"),
        ((None,), (Missing("broker", LATE, ""),), f"({LATE})", "wait for the coordinators"),
        ((None,), (Missing("broker", REFUSED, ""),), f"({REFUSED})", "grant DESCRIBE on trans"),
        ((None, ""), (), "answered, twice, 5s apart", "wait for the coordinators"),
    ],
)
def test_coordinators_that_were_not_seen_are_told_with_their_answers(
    errors: tuple[str | None, ...], holes: tuple[Missing, ...], told: str, then: str
) -> None:
    v = coordinators(*errors, missing=holes)
    assert v.rule == "coordinators-not-seen"
    assert evidence_words(v.evidence[-1]).endswith(told)
    assert remedy_words(v.remedy.does).startswith(then)


def test_what_a_seen_coordinator_answered_before_is_no_reason() -> None:
    """Its first answer was an error and its next one was not: it was seen."""
    w = World()
    w.fresh(P)
    rows = CoordinatorFacts(0, 1, True, "NOT_COORDINATOR"), CoordinatorFacts(1, 1, False, LATE)
    v = judged(w, change=lambda s: replace(s, transactions=Transactions((), rows)))
    assert evidence_words(v.evidence[-1]).endswith(f" ({LATE})")


@pytest.mark.parametrize(
    ("errors", "then"),
    [
        ((None,), "ask again; coordinators leave out topics without DESCRIBE"),
        (("NOT_COORDINATOR",), "ask again, until its coordinator describes it"),
        ((REFUSED,), "grant DESCRIBE on that transactional id and on the topic"),
        (
            ("NOT_COORDINATOR", None),
            "ask again; coordinators leave out topics without DESCRIBE",
        ),
        (("NOT_COORDINATOR", REFUSED), "grant DESCRIBE on that transactional id and on the topic"),
    ],
)
def test_what_to_do_about_an_owner_that_was_not_described(
    errors: tuple[str | None, ...], then: str
) -> None:
    """Without an error it is the topic that a coordinator hides, else the id itself."""
    w, i = live()

    def hide(s: Sample) -> Sample:
        rows = tuple(
            TransactionFacts(f"orders-{n}", 1, i.pid, "Ongoing", error=error)
            for n, error in enumerate(errors)
        )
        return replace(s, transactions=replace(s.transactions, rows=rows))

    v = judged(w, change=hide)
    assert (v.rule, remedy_words(v.remedy.does)) == ("owner-not-described", then)
    [told] = [evidence_words(e) for e in v.evidence if e.code == v.rule]
    for n, error in enumerate(errors):
        answer = f" (broker 1 answered DescribeTransactions with {error})" if error else ""
        assert f"orders-{n}{answer}" in told.split(": ", 1)[1].split(", ")


def test_a_leader_without_a_high_watermark_hides_no_stuck_prepare() -> None:
    """New, and its followers are away: it answers ListOffsets with OFFSET_NOT_AVAILABLE."""
    v = _leader_silent(False, error="OFFSET_NOT_AVAILABLE", describes=True)
    assert (v.name, v.remedy.action) == ("prepare-stuck", "restore-leader")


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


def test_only_a_lost_marker_shows_the_decision_that_it_copies() -> None:
    """What its coordinator still writes, or is kept from writing, is decided and not lost."""
    for w, decided in ((lost(2)[0], True), (refused(2, 1000), False), (refused(2, 1), False)):
        v = judged(w)
        assert v.proven_outcome == "commit"
        assert (v.decision is not None) is decided


def test_pending_offsets_are_an_attribute() -> None:
    w = World()
    offsets = TopicPartition("__consumer_offsets", 7)
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
    batch, owner = [evidence_words(e) for e in judged(w).evidence][:2]
    assert batch == "the batch at offset 0 of t:0 is producer id 4001, epoch 0"
    assert owner == (
        "no coordinator lists producer id 4001 as open on t:0; 3 of 3 coordinator partitions "
        "answered, twice, 5s apart"
    )


def test_evidence_of_a_lost_commit_cites_the_record() -> None:
    w, i = lost(2)
    (decision,) = [e for e in judged(w).evidence if e.code == "decision"]
    assert evidence_words(decision).startswith(
        f"__transaction_state-{HOME} offset {decision.data['offset']}: orders decided commit with "
        f"producer id {i.pid}, epoch 3"
    )
    assert decision.data["client_version"] == 2


def test_held_groups_are_named() -> None:
    w, _i = live()
    about = only(w)
    start = start_batch(w, about, CLEAR)
    assert start is not None
    v = judge(about, replace(start, groups=("billing",)), sample(w, P, CLEAR, SETTINGS))
    assert v is not None
    assert evidence_words(v.evidence[0]).endswith("; it holds offsets of group billing")


# --- remedies: what is allowed -------------------------------------------------------------------


def allowed(v: Verdict, **how: bool) -> set[str]:
    return {a for a in ("abort", "fence", "resolve") if remedy_allowed(v, a, **how) is None}


def compacted() -> Verdict:
    return CASES["a lost commit whose Prepare was compacted away"][0]()


@pytest.mark.parametrize(
    ("name", "plain", "overridden"),
    [
        ("open: owned, within its timeout and 15 min", set(), {"fence"}),
        ("long: past 15 min, within its timeout", {"fence"}, {"fence"}),
        ("overdue: past its timeout", {"fence"}, {"fence"}),
        ("two-phase: timeout 2147483647 (KIP-939), however old", set(), {"fence"}),
        ("overdue, an id as Flink gives it: only gated", set(), {"fence"}),
        ("long, an id as Flink gives it: only gated", set(), {"fence"}),
        ("prepare: decided, markers on their way", set(), set()),
        ("prepare-stuck, all have a leader", set(), set()),
        ("marker-lost: a commit, v2", {"resolve"}, {"resolve"}),
        ("mixed, v1: both have one epoch", set(), {"resolve"}),
        ("mixed, v2: the next transaction is open on it", set(), {"resolve"}),
        ("orphan: fresh, no coordinator ever knew the producer id", {"abort"}, {"abort"}),
        ("orphan: foreign, its id is Ongoing elsewhere: no marker yet", set(), set()),
        ("orphan: its id is in Prepare elsewhere: no marker yet", set(), set()),
        ("a lost commit whose Prepare was compacted away", set(), {"resolve"}),
        ("two lost decisions that differ: no one marker is right", set(), {"resolve"}),
        ("v1: a transaction right after another, one marker: whose is it", set(), {"resolve"}),
        ("one sample only", set(), set()),
        ("a DENY on one id hides it without an error: its log tells", set(), set()),
    ],
)
def test_remedies_allowed(name: str, plain: set[str], overridden: set[str]) -> None:
    v = CASES[name][0]()
    assert allowed(v) == plain
    # the two are not given together
    assert allowed(v, owner_is_gone=True) | allowed(v, without_proof=True) == overridden


def test_a_dead_owners_transaction_is_committed_only_over_a_lost_commit() -> None:
    v = CASES["mixed, v2: the next transaction is open on it"][0]()
    assert v.owner is not None

    def refused(v: Verdict) -> str:
        return said(remedy_allowed(v, "resolve", owner_is_gone=True))

    assert refused(v) == ""
    assert "deliver what was aborted" in refused(replace(v, proven_outcome="abort"))
    assert "nothing to commit" in refused(replace(v, owner=None))
    two_phase = replace(v.owner, timeout_ms=2_147_483_647)
    assert "only its own system knows" in refused(replace(v, owner=two_phase))
    decided = replace(v.owner, state="PrepareAbort")
    assert "nothing to commit" in refused(replace(v, owner=decided))
    plain = CASES["marker-lost: a commit, v2"][0]()
    assert "no later transaction of its id is open over it" in refused(plain)


def test_what_may_be_committed_beside_it() -> None:
    """Asked of the other partitions of a dead owner's transaction."""
    named = {name: CASES[name][0]() for name in CASES}
    fine = {name for name, v in named.items() if commit_refused(v) is None}
    assert {named[name].name for name in fine} == {"marker-lost", "open", "long", "overdue"}
    for name in fine:
        assert named[name].mixed or named[name].fence_safe
    open_here = named["open: owned, within its timeout and 15 min"]
    assert "not known" in said(commit_refused(replace(open_here, fence_safe=False)))


def test_open_is_not_fenced_while_decided_data_may_lie_below() -> None:
    v = judged(live(1)[0], eyes=Eyes(history=False))
    assert v.name == "open"
    assert "decided data" in said(remedy_allowed(v, "fence"))
    assert [e.data for e in v.evidence if e.code == "earlier-unclear"] == [
        {"reason": "history-not-read"}
    ]
    assert "earlier-unclear" not in [e.code for e in judged(live(1)[0]).evidence]


def test_on_v2_an_owner_is_fenced_although_the_history_is_compacted() -> None:
    w, _i = live(2)
    for number in w.state:
        w.compact(number, w.ends[number])
    assert allowed(judged(w)) == set()
    assert allowed(judged(w), owner_is_gone=True) == {"fence"}


ORDINARY = (
    "etl-7-0",
    "orders-0-1",
    "connect-cluster-orders-2-0",
    "app-2024-01",
    "sums-6b1d1c6e-6f0e-4b1a-9f5a-123456789012-1",
)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_name_never_makes_a_verdict(name: str) -> None:
    w, _i = live(name=name)
    v = judged(w)
    assert (v.name, v.rule) == ("open", "within-limits")
    assert "looks like a Flink sink (by its name)" in said(v.gate)


def test_only_what_speaks_for_an_owner_gates() -> None:
    assert judged(live()[0]).gate is None
    two_phase = judged(live(timeout=2_147_483_647)[0]).gate
    assert "KIP-939" in said(two_phase)
    named = Settings(two_phase_patterns=("order.*",))
    assert judged(live()[0], settings=named).gate is not None


def test_a_pattern_means_the_whole_name() -> None:
    assert judged(live(name="etl-7-0b")[0]).gate is None
    part = Settings(two_phase_patterns=("order",))
    assert judged(live(name="orders")[0], settings=part).gate is None


def test_a_fence_is_judged_where_the_id_is_open_and_not_by_its_stray() -> None:
    w = World()
    i = w.init("flink-sink-3-17")
    w.write(i, Q)
    w.stray(i, P)
    assert allowed(judged(w), owner_is_gone=True) == set()
    v = judged(w, only(w, Q))
    assert allowed(v) == set()
    assert "looks like a Flink sink" in said(remedy_allowed(v, "fence"))
    assert allowed(v, owner_is_gone=True) == {"fence"}


def test_only_what_no_look_can_answer_is_resolved_without_proof() -> None:
    """Each rule of `unknown`: either it never can be known, or another look may tell."""
    rules = {r.name for r in RULES if r.verdict == "unknown"}
    may_tell = rules - repairs.NEVER_KNOWN
    assert {"one-sample", "lost-seen-once", "coordinators-not-seen", "history-not-read"} <= may_tell
    v = compacted()
    assert v.rule == "history-compacted"
    for name in may_tell:
        assert remedy_allowed(replace(v, rule=name), "resolve", without_proof=True) is not None
    for name in repairs.NEVER_KNOWN & rules:
        assert remedy_allowed(replace(v, rule=name), "resolve", without_proof=True) is None
        assert remedy_allowed(replace(v, rule=name), "resolve") is not None
        once = replace(v, rule=name, samples=1)
        assert remedy_allowed(once, "resolve", without_proof=True) is not None
        owned = replace(v, rule=name, owner=id_at(4, "Ongoing"))
        assert remedy_allowed(owned, "resolve", without_proof=True) is not None


def test_the_source_of_a_copy_decides_only_where_nobody_does_here() -> None:
    """A byte copy is `unknown` here, or an `orphan` if its producer id is one of here by chance."""
    v = compacted()

    def by_source(v: Verdict) -> str:
        why = remedy_allowed(v, "resolve", by_source=True)
        return "allowed" if why is None else said(why)

    assert by_source(v) == "allowed"
    assert by_source(replace(v, name="orphan", rule="no-owner")) == "allowed"
    assert "only once" in by_source(replace(v, samples=1))
    assert "another look may still show" in by_source(replace(v, rule="coordinators-not-seen"))
    owned = replace(v, owner=id_at(4, "Ongoing"))
    assert "its coordinator here decides it" in by_source(owned)
    assert "leave out --from-cluster" in by_source(judged(lost(2)[0]))


def test_an_unknown_outcome_is_not_resolved_while_the_id_lives_elsewhere() -> None:
    w, i = live(1)
    w.end(i, "commit")
    w.write(i, Q)
    w.stray(i, P)
    w.compact(HOME, w.ends[HOME])
    v = judged(w, only(w, P))
    assert v.rule == "history-compacted"
    assert allowed(v, without_proof=True) == set()


def test_a_refusal_is_a_sentence_that_names_the_right_remedy() -> None:
    refused = said(remedy_allowed(judged(lost(2)[0]), "abort"))
    assert "is marker-lost" in refused
    assert "the remedy is resolve" in refused


# --- remedies: the requests ----------------------------------------------------------------------

ABOUT = OpenTransaction("t", 0, 4001, 0)


def described(epoch: int = 4, coordinator_epoch: int | None = None) -> ProducerFacts:
    return ProducerFacts("t", 0, 4001, epoch, 1, None, coordinator_epoch, 0)


def known(epoch: int | None) -> Transactions:
    return Transactions((TransactionFacts("x", 1, 4001, "Empty", epoch),))


@pytest.mark.parametrize(
    ("epoch", "write_version", "expected"),
    [
        (4, 2, (5, 2)),
        (0, 2, (1, 2)),
        (4, 1, (4, 0)),  # the leader speaks WriteTxnMarkers v1: refused if somebody wrote above
        (32_766, 2, (32_767, 2)),
        (32_767, 2, (32_767, 0)),  # there is no higher epoch
        (32_767, 1, (32_767, 0)),
    ],
)
@pytest.mark.parametrize("outcome", ["abort", "commit"])
def test_the_rule_for_every_marker(
    epoch: int, write_version: int, expected: tuple[int, int], outcome: str
) -> None:
    marker = repairs.marker_for(ABOUT, described(epoch), outcome, write_version=write_version)
    assert (marker.producer_epoch, marker.transaction_version) == expected
    assert (marker.outcome, marker.producer_id) == (outcome, 4001)
    assert (marker.topic, marker.partition) == ("t", 0)


@pytest.mark.parametrize(("seen", "sent"), [(None, 0), (-1, 0), (0, 0), (7, 7)])
def test_the_coordinator_epoch_is_never_raised(seen: int | None, sent: int) -> None:
    row = described(coordinator_epoch=seen)
    assert repairs.marker_for(ABOUT, row, "abort", write_version=2).coordinator_epoch == sent


def test_a_v2_marker_is_the_one_that_its_coordinator_would_have_written() -> None:
    # two commits before: the third transaction has epoch 2 and is ended with 3
    w, i = lost(2)
    v = judged(w)
    row = sample(w, P, CLEAR, SETTINGS).producer(i.pid)
    assert v.decision is not None
    assert row is not None
    marker = repairs.marker_for(v.about, row, "commit", write_version=2)
    assert (marker.producer_id, marker.producer_epoch) == (i.pid, v.decision.producer_epoch)


def id_at(
    epoch: int | None,
    state: str = "Empty",
    *,
    partitions: tuple[TopicPartition, ...] = (),
    timeout: int | None = 60_000,
) -> TransactionFacts:
    return TransactionFacts("x", 1, 4001, state, epoch, timeout, 1, partitions)


@pytest.mark.parametrize(
    ("ids", "able", "raised"),
    [
        ([], False, None),  # no coordinator knows the producer id
        ([id_at(5)], False, None),  # its epoch is above
        ([id_at(5, "Ongoing")], False, None),
        ([id_at(4)], True, "raise"),  # idle at the same epoch: a living owner may begin to write
        ([id_at(4, "CompleteCommit")], True, "raise"),
        ([id_at(3)], True, "raise"),  # a restart gives it 4
        ([id_at(4, "Ongoing")], True, "refuse"),
        (
            [id_at(4, "PrepareCommit", partitions=(TopicPartition("t", 0),))],
            False,
            None,
        ),  # for this very one
        ([id_at(4, "PrepareCommit", partitions=(TopicPartition("t", 1),))], True, "refuse"),
        ([id_at(4, "PrepareCommit", partitions=(TopicPartition("u", 0),))], True, "refuse"),
        ([id_at(4, "Ongoing", partitions=(TopicPartition("t", 0),))], True, "refuse"),
        ([replace(id_at(4, "PrepareCommit"), partitions=None)], True, "refuse"),
        ([id_at(None)], True, "refuse"),  # could not be described
        ([id_at(4, timeout=None)], True, "refuse"),
        ([id_at(4), replace(id_at(4), transactional_id="y")], True, "refuse"),
        ([replace(id_at(4), producer_id=4002)], False, None),  # another producer's
    ],
)
def test_nobody_may_write_with_the_marker_s_epoch(
    ids: list[TransactionFacts], able: bool, raised: str | None
) -> None:
    transactions = Transactions(tuple(ids))
    assert bool(repairs.still_able_to_write(described(4), transactions)) is able
    if raised == "refuse":
        with pytest.raises(ValueError, match=r"is |has "):
            repairs.raise_first(described(4), transactions, end_version=5)
        return
    found = repairs.raise_first(described(4), transactions, end_version=5)
    if raised is None:
        assert found is None
        return
    assert found is not None
    assert (found.transactional_id, found.producer_id, found.above) == ("x", 4001, 4)
    assert found.producer_epoch == ids[0].producer_epoch


def test_the_end_of_a_fence_is_compare_and_set() -> None:
    row = TransactionFacts("x", 1, 4001, "Ongoing", 7, 60_000, 1, ())
    assert repairs.end_request(row, 2) == repairs.EndRequest(5, "x", 4001, 7)
    assert repairs.end_request(row, 1) == repairs.EndRequest(3, "x", 4001, 7)
    with pytest.raises(ValueError, match="is Empty"):
        repairs.end_request(replace(row, state="Empty"), 2)


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
            "clean": History(pid, (), (), (), None, 0, markers_from=0),
            "lost": History(pid, ("x",), (decision,), (), None, 0, markers_from=0),
            "compacted": History(pid, (), (), (), "history-compacted", 9, markers_from=0),
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


def test_a_two_phase_transaction_has_no_deadline() -> None:
    """Kafka never aborts it; start plus its timeout would be in 24 days."""
    w, i = lost(2)
    i.timeout = 2_147_483_647
    w.write(i, P)
    v = judged(w)
    assert (v.mixed, v.remedy.action, v.remedy.deadline) == (True, "wait", None)
