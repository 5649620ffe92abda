"""Generated histories: whatever happens and whatever is hidden, no verdict destroys data.

The model (transaction_model.py) plays random lives of three ids and of strays and keeps the truth;
the verdict sees two looks and the log. Found, too: with open eyes every stray must be an orphan and
every lost marker marker-lost, else "always unknown" would pass.
Counts: `EOCTL_TEST_SHARE` of 5,000 histories for each property (tests/share.py).
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from unittest import SkipTest

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.verdicts import Verdict, judge
from recovery.facts import TopicPartition, TransactionFacts
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import Marker
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.lost_markers import decisions_on, past_of, with_origins
from recovery.inspect.observation import OpenTransaction, Settings
from recovery.remedy.repairs import commit_refused, marker_for, raise_first, remedy_allowed
from recovery.values import replace
from tests.conftest import Tried
from tests.share import fewer
from tests.unit.transaction_model import (
    STATE_PARTITIONS,
    TEN_YEARS,
    Eyes,
    World,
    history,
    sample,
    start_batch,
    state_logs,
)

NAMES = ("orders", "moves-2", "flink-sink-3-17")
TPS = tuple(TopicPartition("t", p) for p in range(3))
RULES = Settings()
HALF_SKEW = RULES.clock_skew // 2

SMALL = st.integers(0, 2)
OP_OF_A_LIFE = st.tuples(
    st.sampled_from(
        ["write"] * 6
        + ["commit", "commit-lost", "abort", "abort-lost", "stall", "finish", "finish-lost"]
        + ["timeout", "timeout-lost", "init", "late", "foreign", "fresh", "marked"]
        + ["stall", "wait", "wait-long", "wait-long", "compact", "compact", "lose", "lose", "lose"]
    ),
    SMALL,
    SMALL,
)
OPS = st.lists(OP_OF_A_LIFE, min_size=1, max_size=20)
INCIDENTS = st.lists(
    OP_OF_A_LIFE
    | st.tuples(
        st.sampled_from(
            ["remake"] * 2
            + ["repeat"] * 2
            + ["anew", "anew", "twice", "twice", "forgotten", "forgotten"]
            + ["lead", "fail-over", "sight", "replace", "replace-seen", "nameless"]
            + ["grow", "hours", "hours", "cut", "cut-seen", "cut-lost", "swallowed"]
            + ["upgrade", "resumed", "resumed", "read", "read", "missed"]
        ),
        SMALL,
        SMALL,
    ),
    min_size=1,
    max_size=20,
)
"""A life, and what happens to the cluster meanwhile."""
THREE_HOURS = 3 * 3_600_000
SKEWED = st.integers(-HALF_SKEW, HALF_SKEW)
ANY_CLOCK = st.integers(-TEN_YEARS, TEN_YEARS)
VERSIONS = st.tuples(*[st.sampled_from([1, 2])] * 3)
EPOCHS = st.sampled_from([0, 0, 32_764, 32_765])
EYES = st.builds(
    Eyes,
    topic_read=st.sampled_from([True, True, True, False]),
    topic_describe=st.sampled_from([True, True, True, False]),
    ids_describe=st.sampled_from([True, True, True, False]),
    denied=st.frozensets(st.sampled_from(NAMES), max_size=1),
    unseen=st.frozensets(st.integers(0, STATE_PARTITIONS - 1), max_size=1),
    no_leader=st.frozensets(st.sampled_from(TPS), max_size=1),
    history=st.sampled_from([True, True, False]),
    undescribed=st.frozensets(st.sampled_from(NAMES), max_size=1),
    filters=st.booleans(),
    clock=ANY_CLOCK,
) | st.just(Eyes())
many = settings(
    max_examples=fewer(5000, 300), deadline=None, suppress_health_check=list(HealthCheck)
)

PLAYED = itertools.count()


@pytest.fixture(autouse=True)
def _worlds(tried: Tried) -> Iterator[None]:
    before = next(PLAYED)
    yield
    if worlds := next(PLAYED) - before - 1:
        tried("worlds", worlds)


def play(w: World, ops: Sequence[tuple[str, int, int]], *, compaction: bool = True) -> None:
    """Carry out what is possible of it; the rest does nothing."""
    next(PLAYED)
    for op, a, b in ops:
        tp = TPS[b]
        # an id that its coordinator forgot is begun anew
        i = w.ids.get(NAMES[a]) or w.init(NAMES[a], w.versions[NAMES[a]])
        match op.split("-"):
            case ["write"]:
                w.write(i, tp)
            case ["commit" | "abort" as outcome, *lost]:
                w.end(i, outcome, lost=[tp] if lost else [])
            case ["stall"]:
                w.write(i, tp)
                w.end(i, "commit" if b else "abort", stalled=True)
            case ["lose"]:
                w.write(i, tp)
                w.end(i, "commit", lost=[tp])
            case ["finish", *lost]:
                w.finish(i, lost=[tp] if lost else [])
            case ["timeout", *lost]:
                w.server_abort(i, lost=[tp] if lost else [])
            case ["init"]:
                w.init(i.name)
            case ["late" | "foreign" as kind]:
                if (i.state == "Ongoing") == (kind == "foreign") and "Prepare" not in i.state:
                    w.stray(i, tp)
            case ["fresh" | "marked" as kind]:
                w.fresh(tp, marked=kind == "marked")
            case ["wait", *long]:
                w.tick(1_000_000 if long else 7_000 * b + 100)
            case ["remake"]:
                w.remake(tp)
            case ["anew"]:  # an application that has committed goes on in a topic made anew
                w.write(i, tp)
                w.end(i, "commit")
                w.remake(tp)
                if "Prepare" not in i.state:
                    w.stray(i, tp)
            case ["twice"]:  # the first marker twice, the second one never
                w.write(i, tp)
                w.end(i, "commit")
                w.repeat(i, tp)
                w.write(i, tp)
                w.end(i, "commit", lost=[tp])
            case ["forgotten"]:  # a lost commit of which compaction leaves the Complete* alone
                w.write(i, tp)
                w.end(i, "commit", lost=[tp])
                w.compact(i.home, w.ends[i.home])
            case ["hours"]:  # the leader's clock is as far ahead as the next commit is off
                w.lead(tp, w.clocks[i.home] + THREE_HOURS)
                w.write(i, tp)
                w.end(i, "commit")
                w.tick(THREE_HOURS)
                w.write(i, tp)
                w.end(i, "commit", lost=[tp])
            case ["swallowed"]:  # a lost commit, a lost timeout over it, compaction between
                w.write(i, tp)
                w.end(i, "commit", lost=[tp])
                w.write(i, tp)
                at = w.ends[i.home]
                w.server_abort(i, lost=[tp])
                w.compact(i.home, at)
            case ["upgrade"]:
                w.upgrade(i)
            case ["resumed"]:  # v1, a lost end; a v2 client ends the next one; compaction between
                w.write(i, tp)
                w.end(i, "commit" if a else "abort", lost=[tp])
                w.write(i, tp)
                at = w.ends[i.home]
                w.end(i, "abort" if a else "commit", lost=[tp], resumed=True)
                w.compact(i.home, at)
            case ["missed"]:  # what happens in "resumed", between two reads of a log that goes then
                w.init(i.name)
                w.read()
                play(w, [("resumed", a, b)])
                w.replace_state(seen=True)
            case ["cut", *how]:
                if how == ["lost"]:
                    w.write(i, tp)
                    w.end(i, "commit", lost=[tp])
                w.cut(i, seen=how == ["seen"] or b == 0)
            case ["repeat"]:
                w.repeat(i, tp)
            case ["lead"]:
                w.lead(tp, (a - 1) * THREE_HOURS)
            case ["fail", "over"]:
                w.fail_over(i.home, (b - 1) * THREE_HOURS)
            case ["sight"]:
                w.sight()
            case ["read"]:
                w.read()
            case ["replace", *seen]:
                w.replace_state(seen=bool(seen))
            case ["grow"]:
                w.grow()
            case ["nameless"]:
                w.nameless(tp)
            case ["compact"] if compaction:
                for number in w.state:
                    w.compact(number, w.ends[number] - a)


def world(versions: Sequence[int], epoch: int, *clocks: int) -> World:
    w = World(coordinator=clocks[0], leader=clocks[1], producer=clocks[2])
    for name, version in zip(NAMES, versions, strict=True):
        w.init(name, version, timeout=600_000 if version == 1 else 3_600_000, epoch=epoch)
    return w


def judged(
    w: World, eyes: Eyes, then: Eyes, between: Sequence[tuple[str, int, int]] = ()
) -> list[tuple[OpenTransaction, Verdict]]:
    """Verdicts on all open transactions that are still open after the second look."""
    abouts = w.open_transactions()
    first = {o: sample(w, o.topic_partition, eyes, RULES) for o in abouts}
    starts = {o: start_batch(w, o, eyes) for o in abouts}
    w.looked = w.now
    w.tick(5000)
    play(w, between)
    found = []
    still = set(w.open_transactions())
    for o in abouts:
        second = sample(w, o.topic_partition, then, RULES)
        start = starts[o]
        past = history(w, o, start, then) if start else None
        v = judge(o, start, first[o], second, past, RULES)
        once = judge(o, start, first[o], None, past, RULES)
        assert once is None or once.remedy.action not in ("abort", "resolve")
        assert once is None or once.name not in ("orphan", "marker-lost")
        if o not in still:
            assert v is None or v.name == "unknown"
        elif v is not None:
            found.append((o, v))
    return found


def harmless(w: World, about: OpenTransaction, v: Verdict, *, clocks_agree: bool) -> None:
    """The truth against what the verdict says and would let happen."""
    fates, unread = w.open_fates(about), about.producer_id in w.unread
    # Ongoing by its coordinator, of what was decided: that was not read, or read before it was lost
    ongoing = "live" in fates or unread or v.remedy.does.code == "decision-lost"
    event(v.name)
    if v.name == "orphan":
        assert "live" not in fates
        if clocks_agree:
            assert set(fates) <= {"stray", "abort"}
    if remedy_allowed(v, "abort") is None:
        assert v.name == "orphan"
        assert not [i for i in w.ids.values() if i.pid == about.producer_id and i.partitions]
        # its coordinator does not know what its records say, nor do they say that it forgot
        assert about.producer_id not in {i.pid for i in w.ghosts}
    if not clocks_agree:
        return
    if remedy_allowed(v, "resolve") is None:
        # a stray below or above decided data may be decided with it: its writer has no owner
        assert set(fates) - {"stray"} == {v.proven_outcome}
    if v.mixed:
        assert ongoing
        made_between = w.logs[about.topic_partition].born > w.looked
        assert v.proven_outcome in fates or made_between  # it was so at the first look
        if remedy_allowed(v, "resolve", owner_is_gone=True) is None:
            event("commit in its owner's stead")
            assert v.proven_outcome == "commit"
    if commit_refused(v) is None:  # asked of each partition of the transaction
        assert ongoing
        assert "abort" not in fates or unread
    if remedy_allowed(v, "fence", owner_is_gone=True) is None and v.name != "orphan":
        assert "commit" not in fates or unread


@many
@given(OPS, OPS.map(lambda ops: ops[:3]), VERSIONS, EPOCHS, EYES, EYES, st.tuples(*[ANY_CLOCK] * 3))
def test_a_live_transaction_is_never_an_orphan(
    ops: list[tuple[str, int, int]],
    between: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    epoch: int,
    eyes: Eyes,
    then: Eyes,
    clocks: tuple[int, ...],
) -> None:
    """All clocks off by up to ten years, anything hidden, things happen between the looks."""
    w = world(versions, epoch, *clocks)
    play(w, ops)
    for about, v in judged(w, eyes, then, between):
        harmless(w, about, v, clocks_agree=False)


@many
@given(
    INCIDENTS,
    INCIDENTS.map(lambda ops: ops[:3]),
    VERSIONS,
    EPOCHS,
    EYES,
    ANY_CLOCK,
    ANY_CLOCK,
    ANY_CLOCK,
)
def test_no_remedy_destroys_decided_data(
    ops: list[tuple[str, int, int]],
    between: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    epoch: int,
    eyes: Eyes,
    coordinator: int,
    leader: int,
    producer: int,
) -> None:
    """All clocks anywhere; compaction, lost and repeated markers, logs and topics made anew."""
    w = world(versions, epoch, coordinator, leader, producer)
    play(w, ops)
    for about, v in judged(w, eyes, eyes, between):
        harmless(w, about, v, clocks_agree=True)


@many
@given(OPS, VERSIONS, EPOCHS, SKEWED, SKEWED, ANY_CLOCK)
def test_with_open_eyes_everything_is_found(
    ops: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    epoch: int,
    coordinator: int,
    leader: int,
    producer: int,
) -> None:
    """Nothing hidden, nothing compacted: each kind gets its verdict; unknown only where allowed."""
    w = world(versions, epoch, coordinator, leader, producer)
    play(w, ops, compaction=False)
    for about, v in judged(w, Eyes(), Eyes()):
        harmless(w, about, v, clocks_agree=True)
        fates = set(w.open_fates(about))
        owner = next((i for i in w.ids.values() if i.pid == about.producer_id), None)
        ever = next((i for i in w.ids.values() if about.producer_id in (i.pid, *i.retired)), None)
        if v.rule in ("order-unclear", "topic-identity"):
            assert ever is not None  # only where a v1 marker was lost at some time
            assert ever.version == 1
            assert ever.lost_ever
            continue
        here = owner is not None and about.topic_partition in owner.partitions
        if here and owner is not None and owner.state.startswith("Prepare"):
            assert v.name in ("prepare", "prepare-stuck")
        elif fates == {"stray"}:
            assert v.name == "orphan"
            alive = owner is not None and bool(owner.partitions)
            assert v.remedy.action == ("wait" if alive else "abort")
        elif fates == {"live"}:
            assert v.name in ("open", "long", "overdue", "two-phase")
        elif len(fates) == 1:
            assert v.name == "marker-lost"
            assert (v.proven_outcome, v.mixed) == (next(iter(fates)), False)
        elif fates in ({"commit", "live"}, {"abort", "live"}):
            # v1 transactions in quick succession: two orders are possible, and then no fence
            unclear = "earlier-unclear" in {e.code for e in v.evidence}
            unclear |= v.rule in ("earlier-decision-not-excluded", "later-transaction")
            assert v.mixed or (unclear and ever and ever.version == 1)
            assert remedy_allowed(v, "fence", owner_is_gone=True) is not None


@many
@given(INCIDENTS, VERSIONS, ANY_CLOCK, ANY_CLOCK, st.booleans())
def test_a_remedy_carried_out_destroys_nothing_and_harms_nobody(
    ops: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    coordinator: int,
    leader: int,
    goes_on: bool,
) -> None:
    """Each abort or resolve that is offered, with its owner writing on before the marker comes."""
    w = world(versions, 0, coordinator, leader, 0)
    play(w, ops)
    for about, v in judged(w, Eyes(), Eyes()):
        action = v.remedy.action
        if action not in ("abort", "resolve") or remedy_allowed(v, action) is not None:
            continue
        marked = carry_out(w, about, v.proven_outcome or "abort", goes_on=goes_on)
        event(f"{action}: {'refused' if marked is None else 'done'}")
        wrong = {"abort": {"live", "commit"}, "commit": {"live", "abort"}}
        assert not wrong[v.proven_outcome or "abort"] & set(marked or ())


@many
@given(INCIDENTS, VERSIONS, st.frozensets(st.sampled_from(TPS), min_size=1))
def test_no_fence_reaches_what_is_not_visible(
    ops: list[tuple[str, int, int]], versions: tuple[int, ...], hidden: frozenset[TopicPartition]
) -> None:
    """An id judged by what it holds where DESCRIBE is granted; its abort would go everywhere."""
    w = world(versions, 0, 0, 0, 0)
    play(w, ops)
    for i in w.ids.values():
        if i.state != "Ongoing":
            continue
        newest = [r for r in w.state[i.home] if r.transactional_id == i.name][-1:]
        row = TransactionFacts(
            i.name, 1, i.pid, i.state, i.epoch, i.timeout, i.started,
            tuple(sorted(i.partitions - hidden)),
        )  # fmt: skip
        facts = IdFacts(row, w.now, i.home, named=(), over_timeout=True, over_long=True)
        v = judge_id(facts, facts, newest[0] if newest else None)
        event(v.remedy.action)
        if v.remedy.action == "fence":
            below = [w.logs[tp].producers.get(i.pid) for tp in i.partitions & hidden]
            assert "commit" not in {b.txn.fate for p in below if p for b in p.open}


def write_by_hand(w: World, outcome: str) -> set[tuple[TopicPartition, str, int]]:
    """End whatever is open with Kafka's own tool: the epochs as described. Topic id and offset."""
    for o in w.open_transactions():
        assert o.producer_id is not None
        log = w.logs[o.topic_partition]
        p = log.producers[o.producer_id]
        w.by_hand.add((o.topic_partition, log.topic_id, log.end))
        w.marker(o.topic_partition, o.producer_id, p.epoch, outcome, p.coordinator_epoch or 0)
    return w.by_hand


def with_whose(w: World) -> list[tuple[TopicPartition, int, Marker]]:
    """Return every marker in the data logs with its origin, and its producer id."""
    logs = state_logs(w)
    return [
        (tp, pid, m)
        for tp, log in w.logs.items()
        for pid in {who for who, _ in log.markers}
        for m in with_origins(
            [m for who, m in log.markers if who == pid],
            decisions_on(logs, pid, tp),
            past_of(logs, pid),
        )
    ]


@many
@given(
    INCIDENTS,
    INCIDENTS.map(lambda ops: ops[:5]),
    VERSIONS,
    EPOCHS,
    ANY_CLOCK,
    ANY_CLOCK,
    st.sampled_from(["commit", "abort"]),
)
def test_no_marker_that_a_coordinator_wrote_is_foreign(
    ops: list[tuple[str, int, int]],
    then: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    epoch: int,
    coordinator: int,
    leader: int,
    outcome: str,
) -> None:
    """Compaction, lost and repeated markers, logs cut short and made anew, others' markers too."""
    w = world(versions, epoch, coordinator, leader, 0)
    play(w, ops)
    by_hand = write_by_hand(w, outcome)
    play(w, then)
    for tp, _, m in with_whose(w):
        ours = (tp, w.logs[tp].topic_id, m.offset) in by_hand
        event(f"{'by hand' if ours else 'by a coordinator'}: {m.origin}")
        assert ours or m.origin != "foreign"


@many
@given(OPS, OPS, VERSIONS, st.sampled_from(["commit", "abort"]))
def test_each_marker_that_nobody_decided_is_found_in_a_complete_history(
    ops: list[tuple[str, int, int]],
    then: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    outcome: str,
) -> None:
    """Nothing compacted: foreign, unless its coordinator decided the same at the same epoch."""
    w = world(versions, 0, 0, 0, 0)
    play(w, ops, compaction=False)
    by_hand = write_by_hand(w, outcome)
    play(w, then, compaction=False)
    decided = {
        (r.value.producer_id, r.value.producer_epoch, r.value.state, tp)
        for records in w.state.values()
        for r in records
        if isinstance(r.value, TransactionValue)
        for tp in r.value.partitions
    }
    for tp, pid, m in with_whose(w):
        if (tp, w.logs[tp].topic_id, m.offset) not in by_hand:
            assert m.origin == "decided"
        elif (pid, m.producer_epoch, f"Prepare{m.outcome.title()}", tp) not in decided:
            assert m.origin == "foreign"


def carry_out(w: World, about: OpenTransaction, outcome: str, *, goes_on: bool) -> list[str] | None:
    """The fates of what the marker decided; None: no marker is safe, and none was written.

    goes_on: whoever still can writes here between the last look and the marker.
    """
    pid, tp = about.producer_id, about.topic_partition
    assert pid is not None
    seen = sample(w, tp, Eyes(), RULES)
    row = seen.producer(pid)
    assert row is not None
    owner = next((i for i in w.ids.values() if i.pid == pid and not i.partitions), None)
    epoch = owner.epoch if owner else None
    try:
        first = raise_first(row, seen.transactions, end_version=None)
    except ValueError:
        return None
    if first is not None:
        assert owner is not None
        w.init(owner.name)
        w.init(owner.name)
    if goes_on and owner is not None and (owner.pid, owner.epoch) == (pid, epoch):
        w.write(owner, tp)
    marker = marker_for(about, row, outcome, write_version=2)
    written = w.logs[tp].producers[pid].epoch
    if marker.producer_epoch <= written - (marker.transaction_version < 2):
        return None  # the leader refuses it (INVALID_PRODUCER_EPOCH): somebody wrote with its epoch
    fates = w.open_fates(about)
    w.marker(tp, pid, marker.producer_epoch, outcome, marker.coordinator_epoch)
    return fates


def test_incidents_reach_the_verdicts_that_they_are_about() -> None:
    """Else the property would be about nothing."""
    met: Counter[str] = Counter()
    wanted = {"history-replaced", "history-moved", "topic-identity"}

    @settings(max_examples=600, deadline=None, derandomize=True, database=None)
    @given(INCIDENTS, VERSIONS)
    def run(ops: list[tuple[str, int, int]], versions: tuple[int, ...]) -> None:
        if met.keys() >= wanted:
            raise SkipTest("all were met")  # Hypothesis draws no more examples
        w = world(versions, 0, 0, 0, 0)
        play(w, ops)
        met.update(v.rule for _, v in judged(w, Eyes(), Eyes()))

    with suppress(SkipTest):
        run()
    assert met.keys() >= wanted


def test_the_generated_histories_reach_every_verdict() -> None:
    """Else the properties would be about nothing."""
    met: Counter[tuple[str, bool]] = Counter()
    names = ("open", "long", "overdue", "prepare", "marker-lost", "orphan", "unknown")
    wanted = {(name, False) for name in names} | {("marker-lost", True)}

    @settings(max_examples=1000, deadline=None, derandomize=True, database=None)
    @given(OPS, VERSIONS)
    def run(ops: list[tuple[str, int, int]], versions: tuple[int, ...]) -> None:
        if met.keys() >= wanted:
            raise SkipTest("all were met")  # Hypothesis draws no more examples
        w = world(versions, 0, 0, 0, 0)
        play(w, ops, compaction=False)
        met.update((v.name, v.mixed) for _, v in judged(w, Eyes(), Eyes()))

    with suppress(SkipTest):
        run()
    assert met.keys() >= wanted


def test_hiding_anything_that_matters_never_leaves_an_abort() -> None:
    """One stray of each kind, one thing hidden at a time."""
    hidden = [
        Eyes(topic_read=False),
        Eyes(topic_describe=False),
        Eyes(ids_describe=False),
        Eyes(history=False),
        *(Eyes(unseen=frozenset({n})) for n in range(STATE_PARTITIONS)),
    ]
    for kind in ("fresh", "marked", "late"):
        w = world((2, 2, 2), 0, 0, 0, 0)
        play(w, [("write", 0, 1), ("commit", 0, 0), (kind, 0, 0)])
        ((about, seen),) = judged(w, Eyes(), Eyes())
        assert (seen.name, seen.remedy.action) == ("orphan", "abort")
        for eyes in (*hidden, Eyes(no_leader=frozenset({about.topic_partition}))):
            for first, second in ((eyes, Eyes()), (Eyes(), eyes), (eyes, eyes)):
                if not first.history and second.history:
                    continue  # the history is read once, after the second look
                ((_, v),) = judged(w, replace(first), second)
                assert (v.name, v.remedy.action) == ("unknown", "none"), (kind, eyes)
