"""Generated histories: whatever happens and whatever is hidden, no verdict destroys data.

The model (transaction_model.py) plays random lives of three ids and of strays and keeps the truth;
the verdict sees two looks and the log. Found, too: with open eyes every stray must be an orphan and
every lost marker marker-lost, else "always unknown" would pass.
Counts: `EOCTL_TEST_SHARE` of 5,000 histories for each property (tests/share.py).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from recovery.observation import OpenTransaction, Settings
from recovery.repairs import remedy_allowed
from recovery.verdicts import Verdict, judge
from tests.share import share
from tests.unit.transaction_model import (
    STATE_PARTITIONS,
    TEN_YEARS,
    Eyes,
    World,
    history,
    sample,
    start_batch,
)

NAMES = ("orders", "billing", "flink-sink-3-17")
TPS = (("t", 0), ("t", 1), ("t", 2))
RULES = Settings()
HALF_SKEW = RULES.clock_skew // 2

SMALL = st.integers(0, 2)
OPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write"] * 6
            + ["commit", "commit-lost", "abort", "abort-lost", "stall", "finish", "finish-lost"]
            + ["timeout", "timeout-lost", "init", "late", "foreign", "fresh", "marked"]
            + [
                "stall",
                "wait",
                "wait-long",
                "wait-long",
                "compact",
                "compact",
                "lose",
                "lose",
                "lose",
            ]
        ),
        SMALL,
        SMALL,
    ),
    min_size=1,
    max_size=20,
)
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
    max_examples=share(5000, 100), deadline=None, suppress_health_check=list(HealthCheck)
)


def play(w: World, ops: Sequence[tuple[str, int, int]], *, compaction: bool = True) -> None:
    """Carry out what is possible of it; the rest does nothing."""
    for op, a, b in ops:
        i, tp = w.ids[NAMES[a]], TPS[b]
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
    w.tick(5000)
    play(w, between)
    found = []
    still = set(w.open_transactions())
    for o in abouts:
        second = sample(w, o.topic_partition, then, RULES)
        start = starts[o]
        past = history(w, o, start, then, RULES) if start else None
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
    fates = w.open_fates(about)
    event(v.name)
    if v.name == "orphan":
        assert "live" not in fates
        if clocks_agree:
            assert set(fates) == {"stray"}
    if remedy_allowed(v, "abort") is None:
        assert v.name == "orphan"
        assert not [i for i in w.ids.values() if i.pid == about.producer_id and i.partitions]
    if not clocks_agree:
        return
    if remedy_allowed(v, "resolve") is None:
        # a stray below or above decided data may be decided with it: its writer has no owner
        assert set(fates) - {"stray"} == {v.proven_outcome}
    if v.mixed:
        assert "live" in fates
        assert v.proven_outcome in fates
    if remedy_allowed(v, "fence", owner_is_gone=True) is None and v.name != "orphan":
        assert "commit" not in fates


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
@given(OPS, OPS.map(lambda ops: ops[:3]), VERSIONS, EPOCHS, EYES, SKEWED, SKEWED, ANY_CLOCK)
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
    """Brokers' clocks within the skew, producers' anywhere; compaction, lost markers, gaps."""
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
        if v.rule == "order-unclear":
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
            unclear |= v.rule == "earlier-decision-not-excluded"
            assert v.mixed or (unclear and ever and ever.version == 1)
            assert remedy_allowed(v, "fence", owner_is_gone=True) is not None


def test_the_generated_histories_reach_every_verdict() -> None:
    """Else the properties would be about nothing."""
    met: Counter[tuple[str, bool]] = Counter()

    @settings(max_examples=1000, deadline=None, derandomize=True, database=None)
    @given(OPS, VERSIONS)
    def run(ops: list[tuple[str, int, int]], versions: tuple[int, ...]) -> None:
        w = world(versions, 0, 0, 0, 0)
        play(w, ops, compaction=False)
        met.update((v.name, v.mixed) for _, v in judged(w, Eyes(), Eyes()))

    run()
    names = {name for name, _ in met}
    assert names >= {
        "open", "long", "overdue", "two-phase", "prepare", "marker-lost", "orphan", "unknown"
    }  # fmt: skip
    assert met["marker-lost", True] > 0


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
