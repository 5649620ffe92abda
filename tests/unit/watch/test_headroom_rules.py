"""The rules that speak before something ends: where they begin, and what they cannot see."""

import pytest

from eoctl.render.watch_words import check_row
from recovery.facts import CoordinatorClock, CoordinatorFacts, TransactionFacts, Transactions
from recovery.values import replace
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import Observed, Thresholds
from recovery.watch.headroom_rules import headroom_rules
from tests.unit.check_facts import DAY, HOUR, NOW, observed

MINUTE = 60_000
TWO_PHASE = 2_147_483_647


def ongoing(
    name: str, started_ago: int, timeout: int | None = 15 * MINUTE, epoch: int = 3
) -> TransactionFacts:
    """An open transaction of a coordinator on broker 1."""
    return TransactionFacts(name, 1, 7, "Ongoing", epoch, timeout, NOW - started_ago, ())


def look(*rows: TransactionFacts, seen: bool = True, ahead: int | None = None) -> Observed:
    """What check observed of these ids. ahead: of broker 1's clock, ms."""
    clocks = () if ahead is None else (CoordinatorClock(1, ahead),)
    transactions = Transactions(rows, (CoordinatorFacts(0, 1, seen),), (), clocks)
    return replace(observed(), transactions=transactions)


def one(facts: Observed, **limits: float) -> CheckRow:
    """The row of the one rule that is on."""
    (judged,) = headroom_rules(facts, Thresholds(**limits))  # type: ignore[arg-type]
    return check_row(judged)


@pytest.mark.parametrize(
    ("started_ago", "left", "ok"),
    [
        (0, None, True),
        (11 * MINUTE, None, True),  # a healthy job: 4 of 15 minutes are left, less than 3/4 spent
        (11 * MINUTE + 15_000, 225.0, False),  # exactly three quarters
        (14 * MINUTE, 60.0, False),
        (15 * MINUTE, 0.0, False),
        (16 * MINUTE, -60.0, False),
    ],
)
def test_a_deadline_counts_once_three_quarters_of_the_timeout_are_spent(
    started_ago: int, left: float | None, ok: bool
) -> None:
    row = one(look(ongoing("flink-0-7", started_ago)), deadline=300.0)
    assert (row.observed, row.ok) == (left, ok)


def test_a_deadline_is_a_finding_only_within_the_threshold() -> None:
    facts = look(ongoing("slow", 50 * MINUTE, 60 * MINUTE))
    assert one(facts, deadline=300.0).ok is True
    assert one(facts, deadline=600.0).ok is False


def test_a_deadline_is_judged_by_when_the_transaction_was_described() -> None:
    """The rest of what `check` asks for takes its time; the transaction may be over by then."""
    facts = look(ongoing("busy", 11 * MINUTE))
    late = replace(facts, now=NOW + 5 * MINUTE)
    assert one(late, deadline=300.0).ok is False
    seen = replace(late, transactions=replace(late.transactions, described_at=NOW))
    assert one(seen, deadline=300.0).ok is True


def test_the_nearest_deadline_is_named_and_whose_clock_it_is_by() -> None:
    facts = look(ongoing("a", 13 * MINUTE), ongoing("b", 14 * MINUTE), ahead=30_000)
    row = one(facts, deadline=300.0)
    assert row.observed == 30.0
    assert "'b'" in row.detail
    assert "its coordinator's clock" in row.detail
    assert "this host's clock" in one(look(ongoing("b", 14 * MINUTE)), deadline=300.0).detail


def test_two_phase_transactions_have_an_age_and_no_deadline() -> None:
    facts = look(ongoing("etl", 2 * DAY, TWO_PHASE), ongoing("new", HOUR, TWO_PHASE))
    assert one(facts, deadline=300.0).ok is True
    row = one(facts, two_phase_age=DAY / 1000)
    assert (row.observed, row.ok) == (2 * DAY / 1000, False)
    assert one(look(ongoing("new", HOUR, TWO_PHASE)), two_phase_age=DAY / 1000).ok is True
    assert one(look(ongoing("app", 2 * DAY)), two_phase_age=DAY / 1000).observed is None


@pytest.mark.parametrize(("epoch", "left", "ok"), [(3, 32_764, True), (32_667, 100, False)])
def test_epochs_left_before_a_new_producer_id(epoch: int, left: int, ok: bool) -> None:
    row = one(look(ongoing("app", 0, epoch=epoch)), epochs_left=100)
    assert (row.observed, row.ok, row.unit) == (left, ok, "epochs")


def test_any_idle_id_near_expiry_counts() -> None:
    idle = TransactionFacts("old", 1, 7, "CompleteCommit", 3, 60_000, NOW - 6 * DAY, ())
    facts = replace(look(idle, ongoing("busy", 6 * DAY)), expiration_ms=7 * DAY)
    row = one(facts, id_expiry=2 * DAY / 1000)
    assert (row.observed, row.ok) == (DAY / 1000, False)
    assert one(facts, id_expiry=HOUR / 1000).ok is True
    assert one(replace(facts, expiration_ms=None), id_expiry=HOUR / 1000).ok is None


@pytest.mark.parametrize("limit", ["deadline", "two_phase_age", "epochs_left"])
def test_a_coordinator_that_was_not_seen_makes_a_rule_unknown(limit: str) -> None:
    row = one(look(ongoing("app", 0), seen=False), **{limit: 1})
    assert row.ok is None
    assert row.detail.endswith("; 1 of 1 coordinator partition not seen")


def test_a_finding_stands_although_a_coordinator_was_not_seen() -> None:
    assert one(look(ongoing("app", 14 * MINUTE), seen=False), deadline=300.0).ok is False
