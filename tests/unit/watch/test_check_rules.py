"""Each rule of [check]: below its threshold, at it, and where something was not seen."""

import pytest

from eoctl.operations.watch.check_answer import thresholds
from eoctl.render.watch_words import check_row
from eoctl.settings.context import CheckThresholds
from recovery.errors import UsageError
from recovery.facts import CoordinatorFacts, GroupFacts, GroupOffsetFacts, Missing, TransactionFacts
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import (
    GAPS,
    Observed,
    Thresholds,
    ages_unknown,
    check_rules,
    living_clients,
    split_accepted,
    verdict_counts,
)
from tests.unit.check_facts import DAY, HOUR, NOW, closed, judged, observed, partition


def one(seen: Observed, **limits: object) -> CheckRow:
    """The row of the one rule that is on."""
    (judged,) = check_rules(seen, Thresholds(**limits))  # type: ignore[arg-type]
    return check_row(judged)


def test_every_rule_is_off_without_a_threshold() -> None:
    assert check_rules(observed(judged("orphan", 1)), Thresholds()) == []


@pytest.mark.parametrize(
    ("held", "observed_", "ok"),
    [
        ((), 0, True),
        ((4, 9), 9, True),
        ((4, 10), 10, False),
        ((4, 11), 11, False),
        ((4, None), 4, None),
        ((10, None), 10, False),
    ],
)
def test_held_records_is_the_partition_held_most(
    held: tuple[int | None, ...], observed_: int, ok: bool | None
) -> None:
    seen = observed(partitions=tuple(partition("t", h, n) for n, h in enumerate(held)))
    row = one(seen, held_records=10)
    assert (row.observed, row.ok, row.threshold) == (observed_, ok, 10)


@pytest.mark.parametrize(
    ("ages", "observed_", "ok"),
    [
        ((), 0, True),
        ((30.0, 59.5), 59.5, True),
        ((30.0, 60.0), 60.0, False),
        ((30.0, None), 30.0, None),
        ((61.0, None), 61.0, False),
    ],
)
def test_held_age_is_that_of_the_oldest_holder(
    ages: tuple[float | None, ...], observed_: float, ok: bool | None
) -> None:
    found = [judged("open", n, number=n, age=age) for n, age in enumerate(ages)]
    row = one(observed(*found), held_age=60.0)
    assert (row.observed, row.ok) == (observed_, ok)


def test_held_age_asks_only_what_stands_at_the_lso() -> None:
    """A transaction behind the one at the LSO holds nothing yet, however old it says it is."""
    seen = observed(judged("open", 1, start=100, age=5.0), judged("open", 2, start=200, age=5000.0))
    assert one(seen, held_age=60.0).observed == 5.0


def test_a_held_partition_of_unknown_age_is_an_error() -> None:
    seen = observed(judged("orphan", 1, age=None), judged("open", 2, number=1))
    assert [(m.topic, m.partition, m.error) for m in ages_unknown(seen.diagnosis)] == [
        ("t", 0, "AGE_UNKNOWN")
    ]


def test_verdicts_count_transactions_not_partitions() -> None:
    seen = observed(
        judged("orphan", 1, number=0), judged("orphan", 1, number=1), judged("orphan", 2, number=2)
    )
    assert verdict_counts(seen.diagnosis)["orphan"] == 2
    assert one(seen, verdicts={"orphan": 3}).ok is True
    assert one(seen, verdicts={"orphan": 2}).ok is False


def test_counts_have_every_verdict_zeros_too() -> None:
    counts = verdict_counts(observed(judged("long", 1)).diagnosis)
    assert counts["long"] == 1
    assert sum(counts.values()) == 1
    assert set(counts) == {
        "orphan",
        "marker-lost",
        "coordinator-fenced",
        "prepare-stuck",
        "overdue",
        "long",
        "two-phase",
        "unknown",
        "prepare",
        "open",
    }


@pytest.mark.parametrize("name", ["orphan", "marker-lost", "prepare-stuck", "overdue", "long"])
def test_an_unknown_may_be_any_verdict(name: str) -> None:
    row = one(observed(judged("unknown", 1)), verdicts={name: 1})
    assert (row.observed, row.ok) == (0, None)
    assert row.rule == f"verdicts.{name}"


def test_unknown_itself_can_be_a_rule() -> None:
    assert one(observed(judged("unknown", 1)), verdicts={"unknown": 1}).ok is False
    assert one(observed(), verdicts={"unknown": 1}).ok is True


def test_a_partition_that_was_not_seen_may_hold_any_verdict() -> None:
    seen = observed(partitions=(partition("t", None),))
    assert one(seen, verdicts={"orphan": 1}).ok is None


def group(name: str, pending: bool, client: str = "c") -> GroupFacts:
    offset = GroupOffsetFacts(name, "t", 0, 5, pending=pending)
    return GroupFacts(name, "Stable", members=((client, "h"),), offsets=(offset,))


def test_groups_pending() -> None:
    groups = (group("a", True), group("b", False), group("c", True))
    assert one(observed(groups=groups), groups_pending=3).ok is True
    row = one(observed(groups=groups), groups_pending=2)
    assert (row.observed, row.ok, row.detail) == (2, False, "a, c")
    unseen = (Missing("group", "COORDINATOR_NOT_AVAILABLE", "", id="d"),)
    assert one(observed(groups=groups, groups_missing=unseen), groups_pending=3).ok is None
    assert one(observed(groups=None), groups_pending=1).ok is None


@pytest.mark.parametrize(
    ("errors", "unavailable", "ok"),
    [
        ((None, None), 0, True),
        ((None, "LEADER_NOT_AVAILABLE"), 1, False),
        ((None, "COORDINATOR_LOAD_IN_PROGRESS"), 1, False),
        ((None, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), 0, None),
        (("TIMED_OUT", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), 1, False),
        (("UNSUPPORTED_VERSION",), 0, None),
    ],
)
def test_coordinators_unavailable(
    errors: tuple[str | None, ...], unavailable: int, ok: bool | None
) -> None:
    """A permission that is missing is not a coordinator that is gone."""
    facts = tuple(CoordinatorFacts(n, 1, e is None, e) for n, e in enumerate(errors))
    row = one(observed(coordinators=facts), coordinators_unavailable=1)
    assert (row.observed, row.ok) == (unavailable, ok)


def test_coordinators_that_cannot_be_found_are_not_known() -> None:
    hidden = (Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "", topic="__transaction_state"),)
    assert one(observed(missing=hidden), coordinators_unavailable=1).ok is None


# An id is dropped 7 days after its last change; the rule speaks an hour before.


@pytest.mark.parametrize(
    ("verdict", "idle", "left", "ok"),
    [
        ("marker-lost", 7 * DAY - 2 * HOUR, 7200.0, True),
        ("marker-lost", 7 * DAY - HOUR, 3600.0, False),
        ("orphan", 7 * DAY - HOUR // 2, 1800.0, False),
        ("unknown", 7 * DAY + HOUR, -3600.0, False),
        ("open", 7 * DAY, None, True),
    ],
)
def test_the_history_of_what_is_held_goes_with_its_id(
    verdict: str, idle: int, left: float | None, ok: bool
) -> None:
    seen = observed(judged(verdict, 7, history=closed("orders", NOW - idle)))
    row = one(seen, producer_id_expiry=3600.0)
    assert (row.observed, row.ok) == (left, ok)


def idle_id(name: str, idle: int, state: str = "CompleteCommit") -> TransactionFacts:
    return TransactionFacts(name, 1, 7, state, 1, 60_000, NOW - idle, ())


STREAMS_ID, STREAMS_CLIENT = "app-8f0c-1", "app-8f0c-StreamThread-1-consumer"


@pytest.mark.parametrize(
    ("row", "client", "ok"),
    [
        (idle_id(STREAMS_ID, 7 * DAY - HOUR), STREAMS_CLIENT, False),
        (idle_id(STREAMS_ID, 6 * DAY), STREAMS_CLIENT, True),
        (idle_id(STREAMS_ID, 7 * DAY - HOUR, "Ongoing"), STREAMS_CLIENT, True),
        (idle_id(STREAMS_ID, 7 * DAY - HOUR), "app-9999-StreamThread-1-consumer", True),
        (idle_id("orders", 7 * DAY - HOUR), "orders", False),
        (idle_id("orders", 7 * DAY - HOUR), "billing", True),
    ],
)
def test_an_idle_id_matters_while_its_client_lives(
    row: TransactionFacts, client: str, ok: bool
) -> None:
    seen = observed(rows=(row,), groups=(group("app", False, client),))
    assert one(seen, producer_id_expiry=3600.0).ok is ok


def test_threads_are_told_apart() -> None:
    client = "app-8f0c-StreamThread-11-consumer"
    clients = living_clients((group("app", False, client),))
    assert clients == {"app-8f0c-11": client, client: client}


@pytest.mark.parametrize(
    ("client", "ids"),
    [
        ("app-1", {"app-1"}),
        ("-StreamThread-1-consumer", {"-StreamThread-1-consumer"}),  # of no process
        ("a-StreamThread-1", {"a-StreamThread-1"}),
        (
            "a-StreamThread-1-StreamThread-2-x",
            {"a-StreamThread-1-StreamThread-2-x", "a-1", "a-StreamThread-1-2"},
        ),
    ],
)
def test_the_ids_that_a_client_may_have(client: str, ids: set[str]) -> None:
    assert set(living_clients((group("app", False, client),))) == ids


def test_an_expiration_that_is_not_known_is_no_answer() -> None:
    assert one(observed(expiration=None), producer_id_expiry=3600.0).ok is None


def test_rows_stand_in_the_order_of_the_config_file() -> None:
    limits = thresholds(CheckThresholds(groups_pending=1))
    assert [r.rule for r in check_rules(observed(groups=()), limits)] == [
        "held_records",
        "held_age",
        "verdicts.orphan",
        "verdicts.marker-lost",
        "verdicts.coordinator-fenced",
        "verdicts.prepare-stuck",
        "verdicts.overdue",
        "verdicts.long",
        "groups_pending",
        "coordinators_unavailable",
        "producer_id_expiry",
    ]


def test_what_reads_much_is_off_unless_it_is_set() -> None:
    assert thresholds(CheckThresholds()).group_expiry is None
    assert thresholds(CheckThresholds(group_expiry="1d")).group_expiry == 86_400


def test_a_wrong_name_or_duration_in_the_config_file_is_said() -> None:
    with pytest.raises(UsageError, match=r"no verdict 'orphn'.*one of orphan"):
        thresholds(CheckThresholds(verdicts={"orphn": 1}))
    with pytest.raises(UsageError, match=r"\[check\] held_age"):
        thresholds(CheckThresholds(held_age="soon"))


def test_known_gaps_are_notes_and_nothing_else_is() -> None:
    denied = "TOPIC_AUTHORIZATION_FAILED"
    history = Missing("partition", denied, "", topic="__transaction_state", partition=3)
    broken = Missing("partition", "CORRUPT", "", topic="__transaction_state", partition=3)
    other = Missing("partition", denied, "", topic="orders", partition=3)
    found = [history, broken, other, history]
    assert split_accepted(found, ()) == ([history, broken, other], [])
    assert split_accepted(found, ("transaction-history",)) == ([broken, other], [history])


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        (
            "transactional-ids",
            Missing("coordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "", broker=1),
        ),
        ("groups", Missing("group", "GROUP_AUTHORIZATION_FAILED", "", id="g")),
        (
            "group-commits",
            Missing("group", "TOPIC_AUTHORIZATION_FAILED", "", topic="__consumer_offsets"),
        ),
        ("settings", Missing("broker", "CLUSTER_AUTHORIZATION_FAILED", "", broker=1)),
    ],
)
def test_each_gap_covers_its_own(name: str, missing: Missing) -> None:
    for gap in GAPS:
        assert split_accepted([missing], (gap,))[1] == ([missing] if gap == name else [])


def test_an_unknown_gap_is_said() -> None:
    with pytest.raises(UsageError, match=r"no gap 'histry'.*transaction-history"):
        split_accepted([], ("histry",))
