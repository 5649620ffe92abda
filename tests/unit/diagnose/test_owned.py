"""Owned transactions: deadlines, signs of life and clocks, as the verdict tells them."""

from collections.abc import Callable

import pytest

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.verdicts import Verdict
from recovery.facts import ConnectTask, ConnectWorker, CoordinatorClock, GroupFacts, Missing
from recovery.inspect.observation import Sample, Settings
from recovery.remedy.repairs import remedy_allowed
from recovery.times import span
from recovery.values import replace
from tests.unit.inspect.test_verdicts import P, Q, judged, live
from tests.unit.said import said
from tests.unit.transaction_model import Eyes, Id, World

HOUR = 3_600_000
MEMBER = (("worker-1", "/10.0.0.7"),)


def overdue(name: str = "orders", by: int = 1) -> tuple[World, Id]:
    """An id that is past its timeout of a minute by so many ms after a second look."""
    w, i = live(name=name, timeout=60_000)
    w.tick(60_000 - 5_000 - (w.now - i.started_true) + by)
    return w, i


def having(**more: object) -> Callable[[Sample], Sample]:
    return lambda s: replace(s, **more)  # type: ignore[arg-type]


def ahead(ms: int) -> Callable[[Sample], Sample]:
    """Both looks measured that the coordinator's clock is so far ahead of ours."""
    clocks = (CoordinatorClock(1, ms),)
    return lambda s: replace(s, transactions=replace(s.transactions, clocks=clocks))


def evidence(v: Verdict, code: str) -> str:
    [text] = [evidence_words(e) for e in v.evidence if e.code == code]
    return text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (300, "300ms"),
        (2_900, "2s"),
        (60_500, "1m"),
        (590_000, "9m 50s"),
        (-260_000, "4m 20s"),
        (2_147_483_647, "24d 20h"),
    ],
)
def test_spans_are_for_people(ms: int, text: str) -> None:
    assert span(ms) == text


def test_every_owned_one_shows_its_deadline() -> None:
    w, i = live(timeout=600_000)
    v = judged(w)
    assert v.deadline == i.started + 600_000
    assert v.deadline_in == i.started_true + 600_000 - w.now
    assert evidence(v, "deadline").startswith("Its coordinator aborts it in 9m 5")


def test_two_phase_has_no_deadline() -> None:
    v = judged(live(timeout=2_147_483_647)[0])
    assert (v.deadline, v.deadline_in) == (None, None)
    assert evidence(v, "deadline") == "Its coordinator never aborts it: two-phase has no timeout"
    assert "has no timeout" in evidence(v, "running")


@pytest.mark.parametrize(
    ("by", "cycle", "text"),
    [
        (5_000, 10_000, "5s ago; its coordinator looks every 10s and should abort it now"),
        (19_999, 10_000, "should abort it now"),
        (20_000, 10_000, "20s ago: due 2 cycles ago: the coordinator is not doing it"),
        (260_000, 10_000, "4m 20s ago: due 26 cycles ago: the coordinator is not doing it"),
        (260_000, HOUR, "looks every 1h and should abort it now"),
        (260_000, None, "how often its coordinator looks for such is hidden"),
    ],
)
def test_overdue_counts_the_brokers_own_cycles(by: int, cycle: int | None, text: str) -> None:
    w, _i = overdue(by=by)
    cycles = having(abort_cycles=((1, cycle),) if cycle else ())
    v = judged(w, change=lambda s: cycles(ahead(0)(s)))
    assert (v.name, v.remedy.action) == ("overdue", "fence")
    assert text in evidence(v, "deadline")
    assert v.deadline_in == -by
    not_doing_it = cycle is not None and by >= 2 * cycle
    assert ("does not abort it although it is due" in remedy_words(v.remedy.does)) == not_doing_it


def test_without_its_clock_no_coordinator_is_accused() -> None:
    """By our clock it may look due for hours: that proves nothing of what it does."""
    w, _i = overdue(by=260_000)
    v = judged(w, change=having(abort_cycles=((1, 10_000),)))
    assert "should abort it now" in evidence(v, "deadline")
    assert "although it is due" not in remedy_words(v.remedy.does)
    assert v.cycles_missed is None


def test_an_owner_that_works_on_is_alive() -> None:
    w, i = overdue()
    v = judged(w, between=lambda: w.write(i, P))
    assert (v.name, v.remedy.action) == ("overdue", "wait")
    assert evidence(v, "signs-of-life").startswith("Its owner shows signs of life: it worked on")
    assert remedy_allowed(v, "fence") is not None
    assert remedy_allowed(v, "fence", owner_is_gone=True) is None


def test_an_owner_that_takes_another_partition_is_alive() -> None:
    w, i = overdue()
    assert said(judged(w, between=lambda: w.write(i, Q)).gate) == (
        "orders is alive: its owner worked on between the two looks"
    )


def test_without_a_trace_it_may_be_fenced() -> None:
    v = judged(overdue()[0])
    assert (v.gate, v.remedy.action) == (None, "fence")
    text = evidence(v, "signs-of-life")
    assert text.startswith("No sign of life of its owner: it wrote nothing here between two looks")
    assert "no group of its name has members" in text


@pytest.mark.parametrize(
    ("name", "group", "members", "gated"),  # members None: not seen, which is not nobody
    [
        ("orders", "orders", MEMBER, True),
        ("orders-7.1", "orders", MEMBER, True),
        ("orders", "orders", (), False),
        ("orders", "orders", None, True),
        ("billing", "orders", None, False),
        ("orders7", "orders", MEMBER, False),
        ("orders", "", MEMBER, False),
        ("orders", "orders-a", MEMBER, False),
    ],
)
def test_a_group_of_its_name_with_members_gates(
    name: str, group: str, members: tuple[tuple[str, str], ...] | None, gated: bool
) -> None:
    w, _i = overdue(name)
    v = judged(w, change=having(groups=(GroupFacts(group, "Stable", members=members),)))
    assert (v.gate is not None) == gated
    assert ("worker-1 at /10.0.0.7" in evidence(v, "signs-of-life")) == (gated and bool(members))
    unseen = "group 'orders': its members were not seen (NOT_SEEN)"
    assert (unseen in said(v.gate)) == (gated and members is None)
    assert v.remedy.action == ("wait" if gated else "fence")


def test_groups_that_could_not_be_seen_gate_too() -> None:
    hidden = (Missing("group", "GROUP_AUTHORIZATION_FAILED", ""),)
    v = judged(overdue()[0], change=having(groups_missing=hidden))
    assert "could not be seen" in said(v.gate)
    assert "could not be seen" in evidence(v, "signs-of-life")


def test_a_flink_like_one_is_told_its_deadline_as_the_danger() -> None:
    w, _i = live(name="etl-7-0", timeout=600_000)
    text = evidence(judged(w), "looks-precommitted")
    assert "by its name" in text
    assert "Restore the job from its last checkpoint within 9m 5" in text
    late = evidence(judged(overdue("etl-7-0")[0]), "looks-precommitted")
    assert "Restore the job from its last checkpoint at once" in late
    assert not [e for e in judged(live()[0]).evidence if e.code == "looks-precommitted"]


RUNS_ORDERS_2 = ConnectWorker("c-1", "10.0.0.7", "http://w:8083/", (ConnectTask("orders-2", 0),))


def workers(*some: ConnectWorker, group: str = "etl", protocol: str = "connect") -> GroupFacts:
    return GroupFacts(group, "Stable", members=MEMBER, protocol=protocol, workers=some)


@pytest.mark.parametrize(
    ("name", "group", "guessed"),
    [
        ("etl-orders-2-0", workers(RUNS_ORDERS_2), False),
        ("connect-cluster-etl-2-0", workers(RUNS_ORDERS_2, group="etl-2-0"), False),
        # a worker group of that name alone proves nothing: Flink's ids may begin with it too
        ("etl-orders-2-1", workers(RUNS_ORDERS_2), True),
        ("connect-cluster-etl-2-0", workers(group="etl-2-0"), True),
        ("etl-orders-2-0", workers(RUNS_ORDERS_2, protocol="consumer"), True),
        ("etl-orders-2-0", workers(RUNS_ORDERS_2, group="et"), True),
    ],
)
def test_what_a_worker_of_connect_runs_is_not_guessed_to_be_flinks(
    name: str, group: GroupFacts, guessed: bool
) -> None:
    seen = having(groups=(group,))
    young, late = judged(live(name=name)[0], change=seen), judged(overdue(name)[0], change=seen)
    for v in (young, late):
        assert ("looks-precommitted" in {e.code for e in v.evidence}) == guessed
        assert ("looks like a Flink sink" in said(v.gate)) == guessed
    assert late.gate is not None  # Connect's too: its workers live
    assert late.remedy.action == "wait"


@pytest.mark.parametrize("off", [3 * HOUR, -3 * HOUR, 6_000])
def test_the_coordinators_clock_decides_and_is_told(off: int) -> None:
    w, i = live(timeout=600_000)
    eyes = Eyes(clock=-off)
    v = judged(w, eyes=eyes, change=ahead(off))
    assert v.age_seconds == pytest.approx((w.now - i.started_true) / 1000)
    assert v.deadline_in == i.started_true + 600_000 - w.now
    assert v.clock_ahead == off
    text = evidence(v, "clock")
    assert f"{span(off)} {'ahead of' if off > 0 else 'behind'} ours" in text


def test_a_clock_within_the_skew_is_not_told() -> None:
    v = judged(live()[0], change=ahead(5_000))
    assert "clock" not in [e.code for e in v.evidence]


def test_a_clock_that_was_not_measured_gives_no_negative_age() -> None:
    v = judged(live()[0], eyes=Eyes(clock=-3 * HOUR))
    assert (v.name, v.age_seconds) == ("open", None)
    assert "clock" not in [e.code for e in v.evidence]


@pytest.mark.parametrize("measured", [True, False])
def test_a_stuck_prepare_is_stuck_although_its_coordinator_is_hours_ahead(measured: bool) -> None:
    """It was `prepare`, exit 0, for three hours, though the coordinator's filter said stuck."""
    w, i = live()
    w.end(i, "commit", stalled=True)
    w.tick(70_000)
    change: Callable[[Sample], Sample] = ahead(3 * HOUR) if measured else lambda s: s
    v = judged(w, eyes=Eyes(clock=-3 * HOUR), change=change)
    assert v.name == "prepare-stuck"
    assert "-" not in evidence(v, "decided-when").split(";")[0]


def test_below_list_transactions_v1_our_clock_is_used_beyond_the_skew() -> None:
    w, _i = live(timeout=60_000)
    w.tick(60_000 + 10_000)
    v = judged(w, eyes=Eyes(filters=False), settings=Settings())
    assert v.name == "overdue"
    assert "by our clock" in evidence(v, "running")


def test_whose_clock_an_age_and_a_deadline_are_by_is_told() -> None:
    """The filter decides whether it is late; how late is by our clock where none was measured."""
    ours = "by our clock (its coordinator's could not be measured)"
    for change, by in ((ahead(0), "by its coordinator's clock"), (having(), ours)):
        young, late = live(timeout=600_000)[0], overdue(by=5_000)[0]
        assert by in evidence(judged(young, change=change), "running")
        assert f"start + timeout, {by}" in evidence(judged(young, change=change), "deadline")
        assert by in evidence(judged(late, change=change), "running")
    assert f"5s ago, {ours};" in evidence(judged(overdue(by=5_000)[0]), "deadline")
    assert "5s ago;" in evidence(judged(overdue(by=5_000)[0], change=ahead(0)), "deadline")
