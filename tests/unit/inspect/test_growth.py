"""What grows, counted from facts: by broker, topic, partition and prefix; and how fast."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.render.columns.growth import PRODUCERS_SUMMARY
from recovery.facts import (
    CoordinatorClock,
    CoordinatorFacts,
    Facts,
    Missing,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
from recovery.inspect.growth.prefixes import prefix_of
from recovery.inspect.growth.summaries import (
    Earlier,
    EarlierIds,
    per_hour,
    producers_summary,
    txn_summary,
)

NOW = 1_700_000_000_000
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
SALES = TopicPartition("sales", 0)
LEADERS = {ORDERS[0]: 1, ORDERS[1]: 2, SALES: 1}


@pytest.mark.parametrize(
    ("transactional_id", "prefix"),
    [
        ("pay-0", "pay-"),
        ("tx12", "tx"),  # Spring
        ("tx-group.topic.0", "tx-group.topic."),
        (f"app-{UUID}-1", "app-"),  # Kafka Streams, EOS v2
        ("app-0_1", "app-"),  # Kafka Streams, EOS v1: a task id
        (f"app-{UUID.replace('-', '')}", "app-"),
        ("flink-sink-2-17", "flink-sink-"),
        ("connect-cluster-etl-orders-3", "connect-cluster-etl-orders-"),
        ("orders-v2-0", "orders-v2-"),  # v2 is a part of the name
        (f"tx{UUID}", "tx"),  # nothing between
        (f"face{UUID}-1", "face"),  # letters that are digits too
        ("orders-7d4b9c8f6d-x2k4z", "orders-"),  # a pod of a Deployment
        ("orders-7d4b9c8f6d-x2k4z-3", "orders-"),
        ("orders-45678924-45678", "orders-"),  # a hash and a pod that look like numbers
        ("7d4b9c8f6d-x2k4z", "7d4b9c8f6d-x2k4z"),  # a name that is nothing else
        ("orders-7d4b9c8f6d-x2k4", "orders-7d4b9c8f6d-x2k"),  # too short for a pod
        ("orders-payments-queue", "orders-payments-queue"),  # vowels: a word
        ("billing", "billing"),
        ("app-1b2", "app-1b"),
        (UUID, ""),
        ("17", ""),
        ("", ""),
        ("a\x1b[31m-3", "a\x1b[31m-"),
    ],
)
def test_a_prefix_is_what_is_left_without_numbers_and_uuids(
    transactional_id: str, prefix: str
) -> None:
    assert prefix_of(transactional_id) == prefix


@given(
    st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8}){0,3}[-_.]", fullmatch=True),
    st.lists(st.one_of(st.integers(0, 10**6), st.uuids()), min_size=1, max_size=4),
    st.sampled_from("-_."),
)
def test_all_instances_of_an_application_share_its_prefix(
    application: str, parts: list[object], between: str
) -> None:
    assert prefix_of(application + between.join(map(str, parts))) == application


@given(st.text(string.ascii_letters + string.digits + "-_.:/é"))
def test_a_prefix_begins_its_id(transactional_id: str) -> None:
    assert transactional_id.startswith(prefix_of(transactional_id))


def test_an_id_made_to_be_slow_is_not() -> None:
    began = time.process_time()
    for hostile in ("1-" * 16_000 + "x", "x" + "1-" * 16_000 + "1", "1" * 32_000 + "a"):
        prefix_of(hostile)
    assert time.process_time() - began < 1


def producer(at: TopicPartition, pid: int, start: int | None = None) -> ProducerFacts:
    return ProducerFacts(*at, pid, 0, 5, NOW, 0, start)


def facts(
    states: dict[TopicPartition, list[ProducerFacts]], owners: Transactions | None = None
) -> Facts:
    found = {at: tuple(rows) for at, rows in states.items()}
    return Facts("c", NOW, producers=found, transactions=owners)


SEEN = facts(
    {
        ORDERS[0]: [producer(ORDERS[0], 7), producer(ORDERS[0], 8, start=3)],
        ORDERS[1]: [producer(ORDERS[1], 7)],
        SALES: [producer(SALES, 9), producer(SALES, 10), producer(SALES, 8)],
    }
)


def names(rows: list[ProducersSummaryRow], by: str) -> list[tuple[object, ...]]:
    return [
        (r.broker, r.topic, r.partition, r.producer_ids, r.producer_states, r.open)
        for r in rows
        if r.by == by
    ]


def test_producers_are_counted_by_leader_topic_and_partition_the_most_first() -> None:
    rows = producers_summary(SEEN, LEADERS)
    assert names(rows, "broker") == [(1, None, None, 4, 5, 1), (2, None, None, 1, 1, 0)]
    assert names(rows, "topic") == [
        (None, "orders", None, 2, 3, 1),  # 7 writes to both partitions: 2 ids, 3 states
        (None, "sales", None, 3, 3, 0),
    ]
    assert names(rows, "partition") == [
        (1, "sales", 0, 3, 3, 0),
        (1, "orders", 0, 2, 2, 1),
        (2, "orders", 1, 1, 1, 0),
    ]
    assert names(rows, "prefix") == []  # no coordinator was asked
    assert {r.new_states for r in rows} == {None}


def test_a_partition_that_was_not_described_is_counted_as_such() -> None:
    without = facts({at: list(rows) for at, rows in SEEN.producers.items() if at != ORDERS[1]})
    rows = producers_summary(without, LEADERS)
    unseen = {(r.by, r.broker, r.topic, r.partition): r.partitions_unseen for r in rows}
    assert unseen["broker", 2, None, None] == 1
    assert unseen["broker", 1, None, None] == 0
    assert unseen["topic", None, "orders", None] == 1
    assert unseen["partition", 2, "orders", 1] == 1


def test_producers_by_prefix_of_the_ids_that_coordinators_list() -> None:
    owners = Transactions(
        (
            TransactionFacts("pay-0", 1, 7, "Ongoing"),
            TransactionFacts("pay-1", 1, 8, "Empty"),
            TransactionFacts("flink-2-9", 1, 9, "CompleteCommit"),
        )
    )
    seen = facts({at: list(rows) for at, rows in SEEN.producers.items()}, owners)
    rows = [r for r in producers_summary(seen, LEADERS) if r.by == "prefix"]
    assert [(r.prefix, r.producer_ids, r.producer_states) for r in rows] == [
        ("pay-", 2, 4),
        ("flink-", 1, 1),
        (None, 1, 1),  # 10: an idempotent producer, or a former incarnation
    ]
    lost = producers_summary(seen, LEADERS | {TopicPartition("x", 0): 3})
    assert {r.partitions_unseen for r in lost if r.by == "prefix"} == {1}  # any may have some there


OWNER = TransactionFacts("pay-0", 1, 7, "Ongoing")
NOT_LISTED = Missing("coordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "hidden")


@pytest.mark.parametrize(
    ("owners", "shown"),
    [
        (Transactions((OWNER,)), [("pay-*", None, True), ("(no transactional id)", None, True)]),
        (
            Transactions((OWNER,), missing=(NOT_LISTED,)),
            [("pay-*", None, True), ("(owner not known)", "?", False)],
        ),
        (
            Transactions((OWNER,), (CoordinatorFacts(0, 1, seen=False),)),
            [("pay-*", None, True), ("(owner not known)", "?", False)],
        ),
    ],
)
def test_an_owner_is_nobody_only_if_all_coordinators_were_seen(
    owners: Transactions, shown: list[tuple[str, str | None, bool]]
) -> None:
    rows = {ORDERS[0]: [producer(ORDERS[0], 7)], ORDERS[1]: [producer(ORDERS[1], 8)]}
    before = facts({at: [] for at in rows})
    counted = producers_summary(facts(rows, owners), dict.fromkeys(rows, 1), Earlier(before, 60.0))
    by_prefix = [row for row in counted if row.by == "prefix"]
    cells = [(PRODUCERS_SUMMARY.cells(row), row) for row in by_prefix]
    assert [(c["name"], c["mark"], row.owner_known) for c, row in cells] == shown
    new = 1 if owners.complete else None  # those of a hidden owner may be of this prefix
    assert {row.new_states for row in by_prefix} == {new}
    assert {row.owner_known for row in counted if row.by != "prefix"} == {None}


def test_hidden_coordinators_leave_nothing_open_if_each_producer_has_its_owner() -> None:
    rows = {ORDERS[0]: [producer(ORDERS[0], 7)]}
    owners = Transactions((OWNER,), missing=(NOT_LISTED,))
    before = Earlier(facts({ORDERS[0]: []}), 60.0)
    [*_, row] = producers_summary(facts(rows, owners), {ORDERS[0]: 1}, before)
    assert (row.prefix, row.owner_known, row.new_states) == ("pay-", True, 1)


def test_two_looks_give_what_is_new_and_its_rate() -> None:
    before = facts(
        {
            ORDERS[0]: [producer(ORDERS[0], 7)],
            ORDERS[1]: [producer(ORDERS[1], 7), producer(ORDERS[1], 6)],
            SALES: [],
        }
    )
    rows = producers_summary(SEEN, LEADERS, Earlier(before, 30.0))
    new = {r.broker: (r.new_states, r.new_per_hour) for r in rows if r.by == "broker"}
    assert new == {1: (4, 480.0), 2: (0, 0.0)}


def test_what_the_first_look_did_not_see_is_not_new() -> None:
    before = facts({ORDERS[0]: [], ORDERS[1]: []})
    rows = producers_summary(SEEN, LEADERS, Earlier(before, 30.0))
    new = {r.topic: (r.new_states, r.new_per_hour) for r in rows if r.by == "topic"}
    assert new == {"orders": (3, 360.0), "sales": (None, None)}


def test_what_the_second_look_did_not_see_gives_no_rate() -> None:
    before = facts({at: [] for at in LEADERS})
    without = facts({at: list(rows) for at, rows in SEEN.producers.items() if at != ORDERS[1]})
    rows = producers_summary(without, LEADERS, Earlier(before, 30.0))
    new = {r.topic: r.new_states for r in rows if r.by == "topic"}
    assert new == {"orders": None, "sales": 3}


def test_as_many_states_are_in_the_order_of_their_partitions() -> None:
    at = [TopicPartition(t, n) for t, n in (("b", 1), ("a", 2), ("a", 0), ("c", 0))]
    seen = facts({key: [producer(key, 7)] for key in at})
    led = {at[0]: 3, at[1]: 2, at[2]: 2, at[3]: None}
    rows = producers_summary(seen, led)
    assert [r.broker for r in rows if r.by == "broker"] == [2, 3, None]
    assert [r.topic for r in rows if r.by == "topic"] == ["a", "b", "c"]
    by_partition = [(r.broker, r.topic, r.partition) for r in rows if r.by == "partition"]
    assert by_partition == [(2, "a", 0), (2, "a", 2), (3, "b", 1), (None, "c", 0)]


@pytest.mark.parametrize(
    ("new", "seconds", "rate"),
    [(None, 10.0, None), (3, None, None), (3, 0.0, None), (3, 0.5, 21_600.0), (1, 7.0, 514.3)],
)
def test_a_rate_needs_a_number_and_an_interval(
    new: int | None, seconds: float | None, rate: float | None
) -> None:
    assert per_hour(new, None if seconds is None else EarlierIds(listed(), seconds)) == rate


def listed(*rows: TransactionFacts, missing: tuple[Missing, ...] = ()) -> Transactions:
    return Transactions(
        rows,
        (CoordinatorFacts(0, 1, seen=True),),
        missing,
        (CoordinatorClock(1, 2_000),),
    )


IDS = (
    TransactionFacts("pay-0", 1, 1, "Ongoing", start_timestamp=NOW - 5_000),
    TransactionFacts("pay-1", 1, 2, "CompleteCommit", start_timestamp=NOW - 3_600_000),
    TransactionFacts("pay-2", 1, 3, "CompleteAbort", start_timestamp=NOW - 7_200_000),
    TransactionFacts("pay-3", 1, 4, "Empty"),
    TransactionFacts("billing", 1, 5, "PrepareCommit", start_timestamp=NOW - 9_000_000),
    TransactionFacts("pay-9", 2, 6, "Ongoing", ghost=True),
)


def test_without_its_coordinators_clock_an_id_is_as_idle_as_ours_says() -> None:
    closed = TransactionFacts("a", 2, 1, "CompleteCommit", start_timestamp=NOW - 5_000)
    [row] = txn_summary(listed(closed), NOW)
    assert row.oldest_idle_seconds == 5.0


def test_ids_are_counted_by_prefix_with_their_states_and_the_longest_idle() -> None:
    assert txn_summary(listed(*IDS), NOW) == [
        TxnSummaryRow(
            prefix="pay-",
            transactional_ids=4,
            open=1,
            idle=3,
            oldest_idle_seconds=7_202.0,  # by the coordinator's clock, 2 s ahead
            oldest_idle_id="pay-2",
            idle_unknown=1,
            states={"CompleteAbort": 1, "CompleteCommit": 1, "Empty": 1, "Ongoing": 1},
        ),
        TxnSummaryRow(
            prefix="billing",
            transactional_ids=1,
            open=1,
            idle=0,
            oldest_idle_seconds=None,
            oldest_idle_id=None,
            idle_unknown=0,
            states={"PrepareCommit": 1},
        ),
    ]


@pytest.mark.parametrize(
    ("hidden_before", "hidden_now", "new"),
    [(False, False, (2, 1, 720.0)), (True, False, (None, None, None)), (False, True, (None,) * 3)],
)
def test_ids_are_new_only_between_two_complete_looks(
    hidden_before: bool, hidden_now: bool, new: tuple[object, ...]
) -> None:
    hidden = (Missing("coordinator", "TIMED_OUT", "not seen"),)
    before = listed(*IDS[:2], missing=hidden if hidden_before else ())
    now = listed(*IDS, missing=hidden if hidden_now else ())
    pay, billing = txn_summary(now, NOW, EarlierIds(before, 10.0))
    assert (pay.new_ids, billing.new_ids, pay.new_per_hour) == new
