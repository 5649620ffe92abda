"""Rules of `check` for what grows, and what `status` says of it: nothing on a healthy cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.operations.diagnose.live import Live
from eoctl.render.watch_words import check_row, growth_line, internal_topic_line
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.facts import (
    CoordinatorFacts,
    Facts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.growth.growth_rows import InternalTopicRow
from recovery.inspect.growth.internal_topics import internal_topics
from recovery.values import replace
from recovery.watch.check_rules import Thresholds
from recovery.watch.growth_rules import (
    Growth,
    cleaner_held,
    growth_rules,
    large_topics,
    most_common_prefix,
)
from tests.unit.check_facts import NOW, judged, observed

GIB = 1 << 30
LOG = TopicPartition("__transaction_state", 3)
OFFSETS = TopicPartition("__consumer_offsets", 7)
HIDDEN = Missing("broker", "CLUSTER_AUTHORIZATION_FAILED", "hidden", broker=1)


def producers(counts: dict[tuple[str, int], int], **leaders: int) -> Facts:
    """So many producers on each topic and broker; a partition's number is its leader."""
    states = {
        TopicPartition(topic, broker): tuple(
            ProducerFacts(topic, broker, pid, 0, 0, NOW, 0, None) for pid in range(number)
        )
        for (topic, broker), number in counts.items()
    }
    partitions = tuple(PartitionFacts(*at, leader=at.partition) for at in states)
    unseen = tuple(PartitionFacts(topic, n, leader=n) for topic, n in leaders.items())
    return Facts("c", NOW, partitions=(*partitions, *unseen), producers=states)


def ids(*names: str, seen: bool = True) -> Transactions:
    rows = tuple(TransactionFacts(name, 1, n, "Empty") for n, name in enumerate(names))
    return Transactions(rows, (CoordinatorFacts(0, 1, seen=seen),))


def one(growth: Growth, transactions: Transactions, **limits: Any) -> Any:
    [judged] = growth_rules(growth, transactions, Thresholds(**limits))
    return check_row(judged)


def test_every_rule_is_off_by_default() -> None:
    assert growth_rules(Growth(), ids("a-1"), Thresholds()) == []


def test_producer_states_are_those_of_the_leader_with_the_most() -> None:
    growth = Growth(producers({("orders", 1): 2, ("sales", 1): 3, ("orders", 2): 4}))
    row = one(growth, ids(), producer_states=5)
    assert (row.observed, row.ok, row.unit) == (5, False, "producers")
    assert row.detail == "broker 1 leads with the most; topic 'orders' has 6 in all"
    assert one(growth, ids(), producer_states=6).ok is True


def test_producers_that_were_not_described_leave_the_rule_unknown() -> None:
    growth = Growth(producers({("orders", 1): 2}, sales=2))
    row = one(growth, ids(), producer_states=3)
    assert (row.observed, row.ok) == (2, None)
    assert row.detail.endswith("; 1 partition not seen")
    assert one(growth, ids(), producer_states=2).ok is False


def test_without_producers_there_is_nothing_to_name() -> None:
    row = one(Growth(), ids(), producer_states=5)
    assert (row.observed, row.ok, row.detail) == (0, True, "no partition has a producer")


@pytest.mark.parametrize(
    ("facts", "detail"),
    [
        (replace(producers({}), missing=(HIDDEN,)), "none was seen"),  # every topic is hidden
        (producers({}, orders=1), "none was seen; 1 partition not seen"),
        (replace(producers({("orders", 1): 0}), missing=(HIDDEN,)), "none was seen"),
    ],
)
def test_producers_of_which_none_was_seen_are_not_zero(facts: Facts, detail: str) -> None:
    row = one(Growth(facts), ids(), producer_states=5)
    assert (row.observed, row.ok, row.detail) == (None, None, detail)


def test_hidden_topics_leave_the_rule_unknown() -> None:
    seen = producers({("orders", 1): 2})
    row = one(Growth(replace(seen, missing=(HIDDEN,))), ids(), producer_states=3)
    assert (row.observed, row.ok) == (2, None)
    assert Growth(replace(seen, missing=(HIDDEN,))).missing == (HIDDEN,)


def test_transactional_ids_name_the_prefix_of_most() -> None:
    row = one(Growth(), ids("pay-0", "flink-1", "flink-2"), transactional_ids=3)
    assert (row.observed, row.ok, row.detail) == (3, False, "2 ids of prefix 'flink-'")
    unseen = ids("pay-0", seen=False)
    assert one(Growth(), unseen, transactional_ids=3).ok is None
    none = one(Growth(), ids(), transactional_ids=3)
    assert (none.observed, none.detail) == (0, "there is no transactional id")
    hidden = one(Growth(), ids(seen=False), transactional_ids=3)
    assert (hidden.observed, hidden.ok) == (None, None)
    assert hidden.detail == "none was seen; not all coordinators were seen"
    refused = one(Growth(), Transactions(missing=(HIDDEN,)), transactional_ids=3)
    assert (refused.observed, refused.ok) == (None, None)


def test_a_ghost_is_no_transactional_id() -> None:
    listed = ids("pay-0", "pay-1")
    ghost = replace(listed, rows=(listed.rows[0], replace(listed.rows[1], ghost=True)))
    assert one(Growth(), ghost, transactional_ids=2).observed == 1
    assert most_common_prefix(ghost.rows) == ("pay-", 1)
    assert most_common_prefix(()) == (None, 0)


def test_the_largest_log_of_the_internal_topics() -> None:
    growth = Growth(sizes={LOG: 10, OFFSETS: 30})
    row = one(growth, ids(), internal_topic_bytes=30)
    assert (row.observed, row.ok, row.unit) == (30, False, "bytes")
    assert row.detail == "__consumer_offsets:7 is the largest"
    assert one(growth, ids(), internal_topic_bytes=31).ok is True


def test_hidden_sizes_are_unknown_and_name_the_right() -> None:
    row = one(Growth(sizes={}, sizes_missing=(HIDDEN,)), ids(), internal_topic_bytes=30)
    assert (row.observed, row.ok) == (None, None)
    assert row.detail == "no size is known: grant DESCRIBE on the cluster"
    assert Growth(sizes={}, sizes_missing=(HIDDEN,)).missing == (HIDDEN,)


SILENT = Missing("broker", "TIMED_OUT", "sizes of logs", broker=2)
LARGEST = "__transaction_state:3 is the largest of those that were seen"
UNNAMED = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic="__consumer_offsets")


@pytest.mark.parametrize(
    ("sizes", "missing", "detail"),
    [
        ({}, (SILENT,), "no size is known"),
        ({LOG: 10}, (SILENT,), LARGEST),
        ({}, (UNNAMED,), "no size is known: grant DESCRIBE on the internal topics"),
        (
            {LOG: 10},
            (HIDDEN, UNNAMED),
            f"{LARGEST}: grant DESCRIBE on the cluster and DESCRIBE on the internal topics",
        ),
    ],
)
def test_a_right_is_named_only_where_it_was_refused(
    sizes: dict[TopicPartition, int], missing: tuple[Missing, ...], detail: str
) -> None:
    row = one(Growth(sizes=sizes, sizes_missing=missing), ids(), internal_topic_bytes=30)
    assert (row.ok, row.detail) == (None, detail)


def test_a_cluster_without_internal_topics_is_within_the_limit() -> None:
    row = one(Growth(), ids(), internal_topic_bytes=30)
    assert (row.observed, row.ok, row.detail) == (None, True, "there is no internal topic")


class OneAnswer:
    """A cluster whose Metadata says this error of each topic."""

    def __init__(self, error: str) -> None:
        self.error = error

    async def metadata(self, topics: list[str]) -> Any:
        found = {name: TopicMetadata(name, None, True, (), self.error) for name in topics}
        return SimpleNamespace(topics=found)

    async def ask_each(self, questions: dict[int, Any]) -> Any:
        assert questions == {}
        return {}, {}


@pytest.mark.parametrize(
    ("error", "hidden"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", True),
        ("LEADER_NOT_AVAILABLE", True),
        ("UNKNOWN_TOPIC_OR_PARTITION", False),  # never created: it has no log
    ],
)
def test_a_topic_that_is_not_described_has_no_known_size(error: str, *, hidden: bool) -> None:
    sizes, missing = asyncio.run(Live(cast("Cluster", OneAnswer(error))).log_sizes([LOG.topic]))
    assert sizes == {}
    expected = [("topic", error, LOG.topic)] if hidden else []
    assert [(m.scope, m.error, m.topic) for m in missing] == expected
    row = one(Growth(sizes=sizes, sizes_missing=tuple(missing)), ids(), internal_topic_bytes=30)
    assert (row.observed, row.ok) == (None, None if hidden else True)


def held(*transactions: Judged) -> Diagnosis:
    return observed(*transactions).diagnosis


@pytest.mark.parametrize(
    ("verdict", "age", "topic", "said"),
    [
        ("orphan", 3_600.0, "__consumer_offsets", True),
        ("orphan", 3_599.0, "__consumer_offsets", False),
        ("orphan", None, "__consumer_offsets", False),
        ("open", 9_999.0, "__consumer_offsets", False),  # within its limits
        ("orphan", 9_999.0, "orders", False),  # not compacted
    ],
)
def test_the_cleaner_is_held_by_a_finding_of_an_hour_on_a_compacted_topic(
    verdict: str, age: float | None, topic: str, *, said: bool
) -> None:
    rows = cleaner_held(held(judged(verdict, 7, topic=topic, age=age)), {"__consumer_offsets"})
    assert len(rows) == said


def test_the_first_transaction_of_a_partition_stops_the_cleaner() -> None:
    found = held(
        judged("orphan", 8, topic="state", start=105, age=9_000.0),
        judged("orphan", 7, topic="state", start=100, age=7_200.0),
    )
    [row] = cleaner_held(found, {"state"})
    assert (row.producer_id, row.last_stable_offset, row.held, row.prefix) == (7, 100, 10, None)
    assert growth_line(row.json_values()) == (
        "the log cleaner cannot pass offset 100 of state:0: a transaction of producer id 7 has "
        "been open for 2 h, and 10 offsets from there on stay uncompacted"
    )


def test_an_age_by_a_producers_timestamps_is_said_to_be_that() -> None:
    one = judged("orphan", 7, topic="state", age=7_200.0)
    by_producer = replace(one, verdict=replace(one.verdict, age_clock="producer"))
    [row] = cleaner_held(held(by_producer), {"state"})
    assert row.age_clock == "producer"
    assert "has been open for ~2 h by its own timestamps, and " in growth_line(row.json_values())


def test_a_large_internal_topic_is_named_with_its_prefix() -> None:
    assert large_topics({LOG: GIB - 1, OFFSETS: 5}) == []
    assert large_topics({}) == []
    assert [row.bytes for row in large_topics({OFFSETS: GIB})] == [GIB]
    [row] = large_topics({LOG: 2 * GIB, TopicPartition("__transaction_state", 4): GIB, OFFSETS: 5})
    assert (row.topic, row.partition, row.bytes) == (*LOG, 2 * GIB)
    said = replace(row, prefix="flink-", transactional_ids=1200)
    assert growth_line(said.json_values()) == (
        "__transaction_state:3 has 2.0 GiB, over the limit of 1.0 GiB: prefix 'flink-*' has 1,200 "
        "transactional ids (`eoctl txn list --summary`)"
    )


def topics(sizes: dict[TopicPartition, int]) -> list[InternalTopicRow]:
    partitions = (
        PartitionFacts(*OFFSETS, "id", 1, 0, (1,), 5, 100, 110),
        PartitionFacts("__consumer_offsets", 8, "id", 1, 0, (1,), 0, 20, 20),
        PartitionFacts(*LOG, error="LEADER_NOT_AVAILABLE"),
    )
    opened = ProducerFacts(*OFFSETS, 7, 0, 9, NOW - 60_000, 0, 100)
    return internal_topics(
        Facts("c", NOW, partitions=partitions, producers={OFFSETS: (opened,)}), sizes
    )


def test_internal_topics_are_summed_and_name_the_largest_and_the_held() -> None:
    offsets, state = topics({OFFSETS: 4096, TopicPartition("__consumer_offsets", 8): 8192})
    assert (offsets.partitions, offsets.offsets, offsets.bytes) == (2, 125, 12_288)
    assert (offsets.largest_partition, offsets.largest_bytes, offsets.held) == (8, 8192, 1)
    blocking = offsets.logs[0].blocking
    assert blocking is not None
    assert (blocking.producer_id, blocking.age_seconds, offsets.logs[1].blocking) == (7, 60, None)
    assert (state.offsets, state.bytes, state.largest_bytes, state.held) == (None,) * 4
    assert internal_topic_line(offsets.json_values()) == (
        "__consumer_offsets: 2 partitions, 125 offsets, 12.0 KiB, largest is 8 with 8.0 KiB; open "
        "transactions stop the log cleaner in 1 partition: `eoctl lso __consumer_offsets`"
    )
    assert internal_topic_line(state.json_values()) == (
        "__transaction_state: 1 partition, offsets not known, sizes not known; where the log "
        "cleaner stops is not known"
    )


def test_a_partition_that_was_not_seen_leaves_the_numbers_of_its_topic_unknown() -> None:
    partitions = (
        PartitionFacts(*OFFSETS, "id", 1, 0, (1,), 5, 100, 110),
        PartitionFacts("__consumer_offsets", 9, error="LEADER_NOT_AVAILABLE"),
    )
    [row] = internal_topics(Facts("c", NOW, partitions=partitions), {OFFSETS: 4096})
    assert (row.held, row.bytes, row.largest_bytes) == (None, None, 4096)
    assert internal_topic_line(row.json_values()) == (
        "__consumer_offsets: 2 partitions, offsets not known, largest seen is 7 with 4.0 KiB; open "
        "transactions stop the log cleaner in at least 1 partition: `eoctl lso __consumer_offsets`"
    )


def test_a_size_that_is_not_known_makes_the_sum_unknown() -> None:
    offsets, _ = topics({OFFSETS: 4096})
    assert (offsets.bytes, offsets.largest_bytes) == (None, 4096)


def test_offsets_need_both_ends() -> None:
    whole = PartitionFacts(*LOG, "id", 1, 0, (1,), 0, 20, 20)
    without_start = replace(whole, log_start_offset=None)
    without_end = replace(whole, high_watermark=None)
    for known, offsets in ((whole, 20), (without_start, None), (without_end, None)):
        [row] = internal_topics(Facts("c", NOW, partitions=(known,)), {})
        assert (row.offsets, row.logs[0].offsets) == (offsets, offsets)


def test_of_logs_with_as_many_bytes_the_first_is_the_largest() -> None:
    offsets, _ = topics({OFFSETS: 4096, TopicPartition("__consumer_offsets", 8): 4096})
    assert offsets.largest_partition == 7
