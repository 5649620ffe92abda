"""The rarer breaks are what their ground truth says, by Kafka's own tools and librdkafka.

Histories that were replaced, moved or stand twice; ids that hold nothing; group offsets.
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.errors import UsageError
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.test_breaks import (
    assert_held,
    assert_lost_commit,
    assert_owned,
    assert_pinned,
    decisions,
    described_id,
    dumped_batches,
    eventually,
    librdkafka_offsets,
    producer_ids,
    table,
)


@pytest.fixture(scope="module")
def pair(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers that let a restarted one in again soon, and a small `__transaction_state`."""
    settings = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "transaction.state.log.num.partitions": "5",
    }
    lab = start_lab(LabSpec(name="rare", brokers=2, settings=settings))
    yield lab
    lab.down()


def control_batches(lab: Lab, truth: GroundTruth) -> list[tuple[int, int]]:
    """(offset, producer id) of every control batch on the leader's disk."""
    found = [b for b in dumped_batches(lab, truth) if b["isControl"] == "true"]
    return [(int(b["baseOffset"]), int(b["producerId"])) for b in found]


def committed(lab: Lab, truth: GroundTruth, *, stable: bool) -> TopicPartition:
    """The group's offset by librdkafka's OffsetFetch."""
    partition = TopicPartition(truth.group_topic, truth.group_partition)
    assert truth.group is not None
    asked = ConsumerGroupTopicPartitions(truth.group, [partition])
    admin = AdminClient(lab.client_properties())
    found = admin.list_consumer_group_offsets([asked], require_stable=stable)
    return found[truth.group].result(20).topic_partitions[0]


def assert_group_is_held(lab: Lab, truth: GroundTruth) -> None:
    assert truth.topic == "__consumer_offsets"
    assert_pinned(lab, truth)
    assert committed(lab, truth, stable=False).offset == truth.committed_offset == 2
    assert committed(lab, truth, stable=True).error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


@pytest.mark.long
def test_an_abort_can_be_lost_too(pair: Lab) -> None:
    (truth,) = break_(pair, "marker-lost", outcome="abort")
    assert (truth.verdict, truth.outcome) == ("marker-lost", "abort")
    assert_lost_commit(pair, truth)
    here = [f"{truth.topic}-{truth.partition}"]
    assert (truth.transactional_id, 3, here) in decisions(pair)
    assert described_id(pair, truth)["TransactionState"] == "CompleteAbort"
    with pytest.raises(UsageError, match="'maybe' is no outcome"):
        break_(pair, "marker-lost", outcome="maybe")


@pytest.mark.long
def test_one_marker_stands_twice_and_the_other_is_lost(pair: Lab) -> None:
    (truth,) = break_(pair, "marker-twice")
    assert_pinned(pair, truth)
    assert control_batches(pair, truth) == [(3, truth.producer_id), (4, truth.producer_id)]
    here = [f"{truth.topic}-{truth.partition}"]
    decided = [row[1:] for row in decisions(pair) if row[0] == truth.transactional_id]
    assert [row for row in decided if row[0] in (2, 3)] == [(2, here)] * 2
    assert described_id(pair, truth)["ProducerEpoch"] == str(truth.producer_epoch)  # v1


@pytest.mark.long
def test_a_groups_commit_is_lost(pair: Lab) -> None:
    (truth,) = break_(pair, "offsets-marker-lost")
    assert_group_is_held(pair, truth)
    here = [f"{truth.topic}-{truth.partition}"]
    assert decisions(pair).count((truth.transactional_id or "", 2, here)) == 2
    assert described_id(pair, truth)["TransactionState"] == "CompleteCommit"


@pytest.mark.long
def test_a_history_that_was_replaced_names_nobody(pair: Lab) -> None:
    (truth,) = break_(pair, "replaced-history")
    assert (truth.verdict, truth.coordinator_state) == ("unknown", None)
    assert_lost_commit(pair, truth)
    assert truth.producer_id not in producer_ids(pair)
    assert truth.transactional_id not in {r["TransactionalId"] for r in table(pair, "list")}


@pytest.mark.long
def test_a_history_that_grew_keeps_the_decision_where_the_id_lived(pair: Lab) -> None:
    (truth,) = break_(pair, "grown-history")
    name = truth.transactional_id or ""
    size = len(
        AdminClient(pair.client_properties())
        .list_topics(timeout=20)
        .topics["__transaction_state"]
        .partitions
    )
    assert size > 5
    assert_lost_commit(pair, truth)
    assert (name, 2, [f"{truth.topic}-{truth.partition}"]) in decisions(pair)
    lives = {partition for partition in range(size) if name.encode() in keys_of(pair, partition)}
    assert lives == {coordinator_partition(name, 5)}
    assert lives != {coordinator_partition(name, size)}
    assert truth.coordinator_state is None


def keys_of(lab: Lab, partition: int) -> bytes:
    """All keys of one partition of `__transaction_state`, as librdkafka reads them."""
    from confluent_kafka import Consumer

    consumer = Consumer({**lab.client_properties(), "group.id": "reads-breaks"})
    topic_partition = TopicPartition("__transaction_state", partition, 0)
    _, end = consumer.get_watermark_offsets(topic_partition, timeout=20)
    consumer.assign([topic_partition])
    try:
        found = consumer.consume(end, 20) if end else []
        return b" ".join(m.key() or b"" for m in found)
    finally:
        consumer.close()


def test_an_id_goes_on_in_a_topic_that_was_made_anew(lab1: Lab) -> None:
    (alive,) = break_(lab1, "topic-made-anew", hold=False)
    (orphan,) = break_(lab1, "topic-made-anew", variant="orphan", hold=False)
    recorded = decisions(lab1)
    for truth in (alive, orphan):
        here = [f"{truth.topic}-{truth.partition}"]
        assert (truth.transactional_id, 2, here) in recorded
        assert control_batches(lab1, truth) == []
        assert (truth.start_offset, truth.producer_epoch) == (3, 0)
    assert_owned(lab1, alive)
    assert_held(lab1, alive)
    assert_pinned(lab1, orphan)
    row = described_id(lab1, orphan)
    assert (row["TransactionState"], row["ProducerEpoch"]) == ("Empty", "1")


def test_an_id_that_holds_nothing_is_ongoing(lab1: Lab) -> None:
    (added,) = break_(lab1, "holds-nothing", hold=False)
    (offsets,) = break_(lab1, "holds-nothing", variant="offsets", hold=False)
    for truth in (added, offsets):
        assert librdkafka_offsets(lab1, truth.topic, truth.partition) == (truth.high_watermark,) * 2
        assert truth.start_offset is None
        assert [o.content for o in truth.offsets] == ["plain"] * 3
    assert_owned(lab1, added)
    row = described_id(lab1, offsets)
    assert row["TransactionState"] == "Ongoing"
    assert row["TopicPartitions"].startswith("__consumer_offsets-")


@pytest.mark.long
def test_all_markers_are_written_and_the_coordinator_cannot_finish(lab3: Lab) -> None:
    (truth,) = break_(lab3, "prepare-holds-nothing")
    assert truth.stopped_broker is not None
    try:
        assert described_id(lab3, truth)["TransactionState"] == "PrepareCommit"
        end = truth.high_watermark
        assert librdkafka_offsets(lab3, truth.topic, truth.partition) == (end, end)
        assert control_batches(lab3, truth) == [(end - 1, truth.producer_id)]
    finally:
        lab3.start(truth.stopped_broker)

    def finished() -> None:
        assert described_id(lab3, truth)["TransactionState"] == "CompleteCommit"

    eventually(finished)


@pytest.mark.parametrize("variant", ["held", "contradicted"])
def test_a_foreign_marker_fences_the_coordinator(lab1: Lab, variant: str) -> None:
    (truth,) = break_(lab1, "coordinator-fenced", variant=variant)
    assert described_id(lab1, truth)["TransactionState"] == "PrepareCommit"
    (at,) = control_batches(lab1, truth)
    if variant == "held":
        assert_pinned(lab1, truth)
        assert at < (truth.start_offset or 0, 0)
    else:
        assert truth.start_offset is None
        assert librdkafka_offsets(lab1, truth.topic, 0) == (truth.high_watermark,) * 2


def test_a_groups_offsets_of_nobody(lab1: Lab) -> None:
    (truth,) = break_(lab1, "offsets-orphan")
    assert_group_is_held(lab1, truth)
    row = described_id(lab1, truth)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Empty", "")
    assert int(row["ProducerEpoch"]) > (truth.producer_epoch or 0)


def test_an_orphan_whose_owner_is_idle_and_lives(lab1: Lab) -> None:
    (truth,) = break_(lab1, "idle-owner")
    assert_pinned(lab1, truth)
    assert truth.owner_pid is not None
    os.kill(truth.owner_pid, 0)  # raises if there is no such process
    row = described_id(lab1, truth)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteCommit", "")
    assert row["ProducerEpoch"] == str(truth.producer_epoch)
    time.sleep(0.2)
    os.kill(truth.owner_pid, 0)
