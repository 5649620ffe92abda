"""Every break is what its ground truth says: held against Kafka's own tools and another client.

TransactionsCommand, DumpLogSegments and ConsoleConsumer are Kafka's; librdkafka gives the offsets
at both isolation levels and the records that a reader gets. eoctl's own readers are not asked.
"""

import asyncio
import json
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab import handle
from eoctl.lab.breaks import KINDS, break_
from eoctl.lab.breaks.stage import batch
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.values import replace
from tests.kafka.command import FAST, eoctl
from tests.kafka.merging import consumed
from tests.kafka.tools import kafka_tool

TOOLS = "org.apache.kafka.tools"
ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


def librdkafka_offsets(lab: Lab, topic: str, partition: int) -> tuple[int, int]:
    """(LSO, high watermark) by librdkafka's ListOffsets."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin, found = AdminClient(lab.client_properties()), []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        topic_partition = TopicPartition(topic, partition)
        asked = admin.list_offsets({topic_partition: OffsetSpec.latest()}, isolation_level=level)
        found.append(int(asked[topic_partition].result(20).offset))
    return found[0], found[1]


def delivered(lab: Lab, topic: str, partition: int, isolation: str) -> list[int]:
    """The offsets that a librdkafka consumer hands out, up to the end that it may see."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "reads-breaks",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "no end of the partition within 20 s"
            if message.error() is None:
                found.append(message.offset())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


def table(lab: Lab, *args: str) -> list[dict[str, str]]:
    """Rows of TransactionsCommand by the names of its columns."""
    done = kafka_tool(
        lab, f"{TOOLS}.TransactionsCommand", "--bootstrap-server", lab.bootstrap_servers, *args
    )
    assert done.returncode == 0, done.stderr
    header, *rows = [line.split("\t") for line in done.stdout.splitlines() if line.strip()]
    names = [name.strip() for name in header]
    return [dict(zip(names, (cell.strip() for cell in row), strict=False)) for row in rows]


def described_producer(lab: Lab, truth: GroundTruth) -> dict[str, str]:
    """Kafka's own DescribeProducers row of the truth's producer."""
    rows = table(
        lab,
        *("describe-producers", "--topic", truth.topic, "--partition", str(truth.partition)),
    )
    (row,) = [row for row in rows if row["ProducerId"] == str(truth.producer_id)]
    return row


def described_id(lab: Lab, truth: GroundTruth) -> dict[str, str]:
    """Kafka's own DescribeTransactions row of the truth's id."""
    assert truth.transactional_id is not None
    (row,) = table(lab, "describe", "--transactional-id", truth.transactional_id)
    return row


def assert_pinned(lab: Lab, truth: GroundTruth) -> None:
    """LSO and high watermark are as the truth says, and readers are held at its start."""
    seen = librdkafka_offsets(lab, truth.topic, truth.partition)
    assert seen == (truth.last_stable_offset, truth.high_watermark)
    assert truth.last_stable_offset == truth.start_offset
    assert truth.start_offset is not None
    assert truth.start_offset < truth.high_watermark


def assert_held(lab: Lab, truth: GroundTruth) -> None:
    """The same, and the leader names the truth's producer and start."""
    assert_pinned(lab, truth)
    row = described_producer(lab, truth)
    assert row["CurrentTransactionStartOffset"] == str(truth.start_offset)


def found_hanging(lab: Lab, *args: str) -> set[tuple[str, ...]]:
    """(topic, partition, producer id, epoch, start offset) of what find-hanging lists."""
    names = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "StartOffset")
    return {
        tuple(row[name] for name in names)
        for broker in lab.broker_ids
        for row in table(lab, "find-hanging", "--broker-id", str(broker), *args)
    }


def as_hanging(truth: GroundTruth) -> tuple[str, ...]:
    """The same columns by the truth."""
    numbers = (truth.partition, truth.producer_id, truth.producer_epoch, truth.start_offset)
    return (truth.topic, *map(str, numbers))


def assert_owned(lab: Lab, truth: GroundTruth, state: str = "Ongoing") -> dict[str, str]:
    """The coordinator owns this partition for the truth's producer."""
    row = described_id(lab, truth)
    assert row["TransactionState"] == truth.coordinator_state == state
    assert row["ProducerId"] == str(truth.producer_id)
    assert row["ProducerEpoch"] == str(truth.current_producer_epoch)
    assert row["CoordinatorId"] == str(truth.coordinator)
    assert row["TransactionTimeoutMs"] == str(truth.timeout_ms)
    assert f"{truth.topic}-{truth.partition}" in row["TopicPartitions"].split(",")
    return row


def eventually(attempt: Callable[[], None], seconds: float = 20) -> None:
    """The assertions in `attempt` hold within some seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


# -- one broker, nothing special ----------------------------------------------------------------


def test_open_is_held_by_a_live_process_that_commits_when_it_is_told_to_end(lab1: Lab) -> None:
    (truth,) = break_(lab1, "open")
    assert_held(lab1, truth)
    assert_owned(lab1, truth)
    assert truth.owner_pid is not None
    os.kill(truth.owner_pid, 0)  # raises if there is no such process
    os.kill(truth.owner_pid, signal.SIGTERM)
    end = truth.high_watermark + 1

    def committed() -> None:
        assert librdkafka_offsets(lab1, truth.topic, truth.partition) == (end, end)

    eventually(committed)
    assert delivered(lab1, truth.topic, truth.partition, "read_committed") == list(range(end - 1))


@pytest.mark.long
def test_an_owner_that_is_killed_leaves_its_transaction_to_the_coordinator(lab1: Lab) -> None:
    (truth,) = break_(lab1, "open")
    assert truth.owner_pid is not None
    os.kill(truth.owner_pid, signal.SIGKILL)
    time.sleep(0.5)
    assert_owned(lab1, truth)
    assert_pinned(lab1, truth)


@pytest.mark.long
def test_lab_down_ends_the_owner(start_lab: Callable[[LabSpec], Lab]) -> None:
    lab = start_lab(LabSpec(name="owners"))
    (truth,) = break_(lab, "open")
    assert truth.owner_pid is not None
    os.kill(truth.owner_pid, 0)
    lab.down()
    with pytest.raises(ProcessLookupError):
        os.kill(truth.owner_pid, 0)


@pytest.mark.long
def test_a_secure_lab_can_be_broken_and_its_owner_shows_no_password(secure_lab: Lab) -> None:
    (truth,) = break_(secure_lab, "open")
    assert_pinned(secure_lab, truth)
    shown = Path(f"/proc/{truth.owner_pid}/cmdline").read_bytes().decode()
    assert "eoctl.lab.breaks.owner" in shown
    assert secure_lab.client_properties()["sasl.password"] not in shown


def test_long_is_within_its_timeout(lab1: Lab) -> None:
    (truth,) = break_(lab1, "long", hold=False)
    row = assert_owned(lab1, truth)
    assert int(row["TransactionDurationMs"]) < int(row["TransactionTimeoutMs"]) == 900_000
    assert_pinned(lab1, truth)


VARIANTS = ("fresh", "marked", "late", "foreign", "nameless")


def test_no_coordinator_owns_an_orphan(lab1: Lab) -> None:
    made = {
        variant: break_(lab1, "orphan", variant=variant, hold=False, age_seconds=1500)
        for variant in VARIANTS
    }
    assert {(v, made[v][0].kind, made[v][0].variant) for v in VARIANTS} == {
        (v, "orphan", v) for v in VARIANTS
    }
    for truths in made.values():
        assert_pinned(lab1, truths[0])
    assert {as_hanging(truths[0]) for truths in made.values()} <= found_hanging(lab1)
    known = {row["ProducerId"]: row["TransactionalId"] for row in table(lab1, "list")}
    named = producer_ids(lab1)
    for variant, (truth, *others) in made.items():
        assert known.get(str(truth.producer_id)) == truth.transactional_id
        assert named.get(truth.producer_id or 0) == truth.transactional_id
        assert (truth.transactional_id is None) == (variant == "nameless")
        assert truth.verdict == ("unknown" if variant == "nameless" else "orphan")
        assert len(others) == (1 if variant == "foreign" else 0)
    for variant in ("fresh", "marked"):
        row = described_id(lab1, made[variant][0])
        assert (row["TransactionState"], row["TopicPartitions"]) == ("Empty", "")
        assert int(row["ProducerEpoch"]) == (made[variant][0].producer_epoch or 0) + 1
    late = described_id(lab1, made["late"][0])
    assert (late["TransactionState"], late["TopicPartitions"]) == ("CompleteCommit", "")
    stray, live = made["foreign"]
    assert live.kind == "open"
    row = assert_owned(lab1, live)
    assert f"{stray.topic}-{stray.partition}" not in row["TopicPartitions"].split(",")
    assert_pinned(lab1, live)


def test_a_marked_orphan_has_a_marker_of_its_producer_before_it(lab1: Lab) -> None:
    (truth,) = break_(lab1, "orphan", variant="marked")
    markers = [b for b in dumped_batches(lab1, truth) if b["isControl"] == "true"]
    assert [(b["producerId"], b["baseOffset"]) for b in markers] == [(str(truth.producer_id), "3")]
    assert truth.start_offset == 7


def test_a_second_orphan_on_a_partition_has_a_producer_id_of_its_own(lab1: Lab) -> None:
    name = f"two-orphans-{uuid.uuid4().hex[:8]}"
    (first,) = break_(lab1, "orphan", topic=name)
    (second,) = break_(lab1, "orphan", topic=name)
    assert first.transactional_id != second.transactional_id
    assert_pinned(lab1, replace(first, high_watermark=second.high_watermark))
    row = described_producer(lab1, second)
    assert row["CurrentTransactionStartOffset"] == str(second.start_offset)


def test_verification_is_on_again_after_an_orphan(lab1: Lab) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource

    break_(lab1, "orphan")
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(lab1.client_properties())

    def restored() -> None:
        asked = admin.describe_configs([resource])
        entry = asked[resource].result(20)["transaction.partition.verification.enable"]
        assert entry.value == "true"

    eventually(restored)


def test_pending_offsets_hold_the_group_and_its_partition(lab1: Lab) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient

    (truth,) = break_(lab1, "offsets-pending", hold=False)
    assert truth.topic == "__consumer_offsets"
    assert_owned(lab1, truth)
    assert_held(lab1, truth)
    admin = AdminClient(lab1.client_properties())
    assert truth.group is not None
    partition = TopicPartition(truth.group_topic, truth.group_partition)

    def fetch(stable: bool) -> TopicPartition:
        asked = ConsumerGroupTopicPartitions(truth.group, [partition])
        found = admin.list_consumer_group_offsets([asked], require_stable=stable)
        return found[truth.group].result(20).topic_partitions[0]

    assert fetch(False).offset == truth.committed_offset == 2
    assert fetch(True).error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


def test_several_groups_on_one_partition_of_consumer_offsets(lab1: Lab) -> None:
    truths = break_(lab1, "offsets-pending", hold=False, count=3, group="same")
    assert len({truth.group for truth in truths}) == 3
    for truth in truths:
        row = described_producer(lab1, truth)
        assert row["CurrentTransactionStartOffset"] == str(truth.start_offset)


def test_a_checkpoint_promises_half_of_what_is_open(lab1: Lab) -> None:
    truths = break_(lab1, "checkpoint", count=2)
    open_ids = {
        row["TransactionalId"]
        for row in table(lab1, "list")
        if row["TransactionState"] == "Ongoing"
    }
    assert {t.transactional_id for t in truths} <= open_ids
    assert [t.start_offset for t in truths] == [0, 3, 0, 3]
    assert librdkafka_offsets(lab1, truths[0].topic, 0) == (0, 6)
    [metadata] = (lab1.folder / "checkpoints" / truths[0].topic).glob("chk-*/_metadata")
    written = metadata.read_bytes()
    promised = [(t.transactional_id or "").encode() in written for t in truths]
    assert promised == [True, False, True, False]


@pytest.mark.long
def test_a_dead_task_of_connect_leaves_its_offset_and_an_open_transaction(lab1: Lab) -> None:
    [truth] = break_(lab1, "connect", topic="files", group="gone", records=4)
    assert truth.transactional_id == "gone-files-0"
    assert librdkafka_offsets(lab1, "files", 0) == (truth.last_stable_offset, 9)
    assert truth.start_offset == truth.last_stable_offset == 5
    lines = (lab1.folder / "connect" / "gone" / "files.txt").read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    [offset] = committed_records(lab1, "gone-offsets")
    name, partition = json.loads(offset[0] or b"")
    assert (name, list(partition)) == ("files", ["filename"])
    assert json.loads(offset[1] or b"") == {"position": len(b"".join(lines[:4]))}
    open_ids = {
        row["TransactionalId"]
        for row in table(lab1, "list")
        if row["TransactionState"] == "Ongoing"
    }
    assert "gone-files-0" in open_ids
    [row] = eoctl("why", "files:0", "-o", "json", *FAST, lab=lab1).rows
    connect = row["owner"]["connect"]
    assert (connect["group"], connect["group_exists"], connect["runs"]) == ("gone", True, False)
    assert connect["said"].endswith("which exists, and has no worker that is known")
    with pytest.raises(UsageError, match="the lab has this connector already"):
        break_(lab1, "connect", topic="files", group="gone")


def committed_records(lab: Lab, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record that a read_committed consumer reads from partition 0."""
    return [copied[:2] for rows in consumed(lab, [(topic, 0)]).values() for _, copied in rows]


def test_a_zombie_is_fenced_and_its_records_are_aborted(lab1: Lab) -> None:
    (truth,) = break_(lab1, "zombie")
    assert truth.refused in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert librdkafka_offsets(lab1, truth.topic, 0) == (truth.high_watermark,) * 2
    readable = delivered(lab1, truth.topic, 0, "read_committed")
    assert readable == [o.offset for o in truth.offsets if o.content == "plain"]
    row = described_id(lab1, truth)
    assert row["ProducerEpoch"] == str(truth.current_producer_epoch)
    assert truth.producer_epoch is not None
    assert int(described_producer(lab1, truth)["ProducerEpoch"]) < int(row["ProducerEpoch"])
    assert truth.producer_epoch < int(row["ProducerEpoch"])


# -- mixed --------------------------------------------------------------------------------------


def dumped_batches(lab: Lab, truth: GroundTruth) -> list[dict[str, str]]:
    """The batches on the leader's disk, as DumpLogSegments prints them; `offsets` in each."""
    folder = lab.data_folder(truth.leader or 0) / f"{truth.topic}-{truth.partition}"
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    done = kafka_tool(lab, f"{TOOLS}.DumpLogSegments", "--print-data-log", "--files", files)
    assert done.returncode == 0, done.stderr
    batches: list[dict[str, str]] = []
    for line in done.stdout.splitlines():
        if line.startswith("baseOffset: "):
            batches.append(dict(re.findall(r"(\w+): (\S+)", line)) | {"offsets": ""})
        elif match := re.match(r"\| offset: (\d+)", line):
            batches[-1]["offsets"] += f" {match.group(1)}"
    return batches


def test_every_offset_of_mixed_is_what_the_truth_says(lab1: Lab) -> None:
    (truth,) = break_(lab1, "mixed", hold=False)
    assert_owned(lab1, truth)
    assert_held(lab1, truth)
    content = {o.offset: o.content for o in truth.offsets}
    assert sorted(content) == list(range(truth.high_watermark))
    assert set(content.values()) == {
        *("committed", "aborted", "control", "plain", "idempotent", "missing", "open")
    }
    shapes = {  # (transactional, control, has a producer id)
        "plain": ("false", "false", False),
        "idempotent": ("false", "false", True),
        "committed": ("true", "false", True),
        "aborted": ("true", "false", True),
        "open": ("true", "false", True),
        "control": ("true", "true", True),
    }
    on_disk: dict[int, tuple[str, str, bool]] = {}
    for b in dumped_batches(lab1, truth):
        shape = (b["isTransactional"], b["isControl"], b["producerId"] != "-1")
        on_disk.update(dict.fromkeys(map(int, b["offsets"].split()), shape))
    assert on_disk == {o: shapes[c] for o, c in content.items() if c != "missing"}

    def where(*kinds: str) -> list[int]:
        return [offset for offset, kind in sorted(content.items()) if kind in kinds]

    uncommitted = where("plain", "idempotent", "committed", "aborted", "open")
    assert delivered(lab1, truth.topic, 0, "read_uncommitted") == uncommitted
    committed = where("plain", "idempotent", "committed")
    assert delivered(lab1, truth.topic, 0, "read_committed") == [
        offset for offset in committed if offset < truth.last_stable_offset
    ]


# -- many, names, refusals ----------------------------------------------------------------------


@pytest.mark.long
def test_many_are_spread_over_topics_and_brokers(lab3: Lab) -> None:
    truths = break_(lab3, "orphan", count=23, records=1)
    partitions = {(truth.topic, truth.partition) for truth in truths}
    assert len(partitions) == 23
    assert len({topic for topic, _ in partitions}) == 3
    assert {truth.leader for truth in truths} == {1, 2, 3}
    assert len({truth.producer_id for truth in truths}) == 23
    hanging = found_hanging(lab3, "--max-transaction-timeout", "0")
    assert set(map(as_hanging, truths)) <= hanging


HOSTILE = "\x1b[31m'; rm -rf $HOME \u202e[/x]\n\U0001f480" + "x" * 200


@pytest.mark.long
def test_a_hostile_transactional_id_is_kept_as_given(lab1: Lab) -> None:
    (truth,) = break_(lab1, "open", transactional_id=HOSTILE, hold=False)
    assert truth.transactional_id == HOSTILE
    assert (HOSTILE, 1, [f"{truth.topic}-0"]) in decisions(lab1)
    several = break_(lab1, "open", transactional_id=HOSTILE, hold=False, count=2)
    assert [t.transactional_id for t in several] == [f"{HOSTILE}.0", f"{HOSTILE}.1"]


def test_a_second_break_on_a_partition_knows_the_first(lab1: Lab) -> None:
    name = f"shared-by-two-{uuid.uuid4().hex[:8]}"
    (first,) = break_(lab1, "open", topic=name, hold=False)
    (second,) = break_(lab1, "open", topic=name, transactional_id=f"second-{name}", hold=False)
    assert second.start_offset == first.high_watermark + 3
    assert second.last_stable_offset == first.start_offset
    seen = librdkafka_offsets(lab1, name, 0)
    assert seen == (second.last_stable_offset, second.high_watermark)


def test_words_that_are_no_break_are_refused(lab1: Lab) -> None:
    with pytest.raises(UsageError, match="'explode' is not a kind of break"):
        break_(lab1, "explode")
    with pytest.raises(UsageError, match="`open` does not take variant"):
        break_(lab1, "open", variant="late")
    with pytest.raises(UsageError, match="'old' is no sort of orphan"):
        break_(lab1, "orphan", variant="old")
    with pytest.raises(UsageError, match="count and records are at least 1"):
        break_(lab1, "open", count=0)
    break_(lab1, "zombie", topic="one-partition")
    with pytest.raises(UsageError, match="has 1 partition and the break needs partition 3"):
        break_(lab1, "zombie", topic="one-partition", partition=3)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("overdue", f"--set {ABORT_CYCLE}=3600000"),
        ("two-phase", "--set transaction.two.phase.commit.enable=true "),
        ("two-phase", "--set unstable.api.versions.enable=true"),
        ("marker-lost", "--brokers 2"),
        ("prepare-stuck", "--brokers 2"),
        ("prepare-holds-nothing", "--brokers 3"),
    ],
)
def test_what_a_lab_lacks_is_named_and_nothing_is_made(lab1: Lab, kind: str, named: str) -> None:
    before = topics(lab1)
    with pytest.raises(RefusedError) as refused:
        break_(lab1, kind)
    assert named in refused.value.sentence
    assert topics(lab1) == before


def test_prepare_stuck_names_the_session_timeout(lab3: Lab) -> None:
    with pytest.raises(RefusedError, match=r"--set broker.session.timeout.ms=600000"):
        break_(lab3, "prepare-stuck")


def topics(lab: Lab) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient(lab.client_properties()).list_topics(timeout=20).topics)


def test_every_kind_is_described() -> None:
    assert set(KINDS) == {
        *("open", "long", "overdue", "two-phase", "zombie", "offsets-pending", "orphan"),
        *("mixed", "marker-lost", "prepare-stuck", "marker-twice", "idle-owner", "clock-ahead"),
        *("offsets-marker-lost", "offsets-orphan", "coordinator-fenced", "holds-nothing"),
        *("prepare-holds-nothing", "replaced-history", "grown-history", "topic-made-anew"),
        *("checkpoint", "connect", "fence-storm"),
    }
    assert all(kind.summary and name == kind.name for name, kind in KINDS.items())


# -- settings that some kinds need, under transaction.version 1 -----------------------------------


@pytest.fixture(scope="module")
def tuned(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """One broker with every setting that a one-broker kind needs, transaction.version 1."""
    settings = {
        ABORT_CYCLE: "3600000",
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
    }
    lab = start_lab(LabSpec(name="tuned", transaction_version=1, settings=settings))
    yield lab
    lab.down()


@pytest.mark.long
def test_overdue_is_past_its_timeout_by_the_coordinators_clock(tuned: Lab) -> None:
    (truth,) = break_(tuned, "overdue")
    assert truth.transaction_version == 1
    row = assert_owned(tuned, truth)
    assert int(row["TransactionDurationMs"]) > int(row["TransactionTimeoutMs"]) == 1000
    assert_pinned(tuned, truth)


def test_two_phase_never_times_out(tuned: Lab) -> None:
    (truth,) = break_(tuned, "two-phase", hold=False)
    row = assert_owned(tuned, truth)
    assert row["TransactionTimeoutMs"] == "2147483647"
    assert_pinned(tuned, truth)


def test_orphans_under_transaction_version_1(tuned: Lab) -> None:
    made = {
        variant: break_(tuned, "orphan", variant=variant, hold=False, age_seconds=1500)[0]
        for variant in VARIANTS
    }
    for truth in made.values():
        assert_pinned(tuned, truth)
    assert set(map(as_hanging, made.values())) <= found_hanging(tuned)
    # version 1 does not bump the epoch at a commit
    row = described_id(tuned, made["late"])
    assert (row["TransactionState"], row["ProducerEpoch"]) == ("CompleteCommit", "0")


# -- decided, but the marker is not there ---------------------------------------------------------


@pytest.fixture(scope="module")
def pair(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers that let a restarted one in again soon."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    lab = start_lab(LabSpec(name="pair", brokers=2, settings=settings))
    yield lab
    lab.down()


def producer_ids(lab: Lab) -> dict[int, str]:
    """The transactional id of each producer id that stands in a log of __transaction_state."""
    return {value["producerId"]: name for name, value in transaction_state(lab)}


def decisions(lab: Lab) -> list[tuple[str, int, list[str]]]:
    """(id, transactionStatus, partitions) of each record of __transaction_state.

    Status 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort.
    """
    return [
        (
            name,
            value["transactionStatus"],
            [
                f"{t['topic']}-{p}"
                for t in value["transactionPartitions"] or ()
                for p in t["partitionIds"]
            ],
        )
        for name, value in transaction_state(lab)
    ]


def transaction_state(lab: Lab) -> list[tuple[str, dict[str, Any]]]:
    """(id, value) of each record that __transaction_state holds, by Kafka's formatter."""
    from confluent_kafka import Consumer, TopicPartition

    # one client for all: fifty would take a quarter of a minute
    consumer = Consumer({**lab.client_properties(), "group.id": "reads-breaks"})
    there = consumer.list_topics("__transaction_state", timeout=20).topics["__transaction_state"]
    partitions = [TopicPartition("__transaction_state", p) for p in there.partitions]
    count = sum(
        consumer.get_watermark_offsets(partition, timeout=20)[1] for partition in partitions
    )
    consumer.close()
    done = kafka_tool(
        lab,
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", "__transaction_state"),
        *("--formatter", f"{TOOLS}.consumer.TransactionLogMessageFormatter"),
        *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"),
    )
    assert f"Processed a total of {count} messages" in done.stderr, done.stderr
    found, decoder, text = [], json.JSONDecoder(), done.stdout
    while text.startswith("{"):
        record, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        value = (record["value"] or {}).get("data")
        if value:
            found.append((record["key"]["data"]["transactionalId"], value))
    return found


def assert_lost_commit(lab: Lab, truth: GroundTruth) -> None:
    """Readers are held, and no marker is there, although the records are the truth's."""
    assert_pinned(lab, truth)
    batches = dumped_batches(lab, truth)
    assert [b for b in batches if b["isControl"] == "true"] == []
    lost = [o.offset for o in truth.offsets if o.content == "lost"]
    (first,) = [b for b in batches if int(b["baseOffset"]) == truth.start_offset]
    assert list(map(int, first["offsets"].split())) == lost
    assert first["producerId"] == str(truth.producer_id)
    assert first["producerEpoch"] == str(truth.producer_epoch)


@pytest.mark.long
def test_a_commit_marker_is_lost(pair: Lab) -> None:
    (truth,) = break_(pair, "marker-lost")
    assert_lost_commit(pair, truth)
    assert as_hanging(truth) in found_hanging(pair, "--max-transaction-timeout", "0")
    row = described_id(pair, truth)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteCommit", "")


@pytest.mark.long
def test_a_broker_that_did_not_stop_in_time_is_up_again(
    pair: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to stop and would, once nobody looks any more."""
    before = [b.pid for b in pair.status().brokers]
    monkeypatch.setattr(handle, "STOP_SECONDS", 0.0)
    with pytest.raises(IncompleteError, match="did not stop within 0 s"):
        break_(pair, "marker-lost")

    def up_again() -> None:
        brokers = pair.status().brokers
        assert [b.state for b in brokers] == ["ready", "ready"]
        assert len({b.pid for b in brokers} - set(before)) == 1

    eventually(up_again)


@pytest.mark.long
def test_a_commit_marker_is_lost_and_the_id_commits_elsewhere(pair: Lab) -> None:
    truths = break_(pair, "marker-lost", later="elsewhere", count=2)
    recorded = decisions(pair)
    for truth in truths:
        assert_lost_commit(pair, truth)
        prepared = [
            names
            for name, status, names in recorded
            if (name, status) == (truth.transactional_id, 2)
        ]
        assert prepared[0] == [f"{truth.topic}-{truth.partition}"]
        assert len(prepared) == 2
        assert f"{truth.topic}-{truth.partition}" not in prepared[1]


@pytest.mark.long
def test_a_commit_marker_is_lost_under_the_ids_next_transaction(pair: Lab) -> None:
    (truth,) = break_(pair, "marker-lost", later="open")
    assert truth.mixed
    assert_lost_commit(pair, truth)
    here = [f"{truth.topic}-{truth.partition}"]
    recorded = [row[1:] for row in decisions(pair) if row[0] == truth.transactional_id]
    assert (2, here) in recorded
    assert recorded[-1] == (1, here)
    assert described_producer(pair, truth)["ProducerEpoch"] == str(truth.current_producer_epoch)
    assert [o.content for o in truth.offsets][-3:] == ["open"] * 3


@pytest.mark.long
def test_prepare_stuck_lasts_until_its_broker_is_thawed(
    start_lab: Callable[[LabSpec], Lab],
) -> None:
    settings = {"broker.session.timeout.ms": "600000"}
    spec = LabSpec(name="stuck", brokers=2, transaction_version=1, settings=settings)
    lab = start_lab(spec)
    try:
        with pytest.raises(RefusedError, match="which would not come back"):
            break_(lab, "marker-lost")
        (truth,) = break_(lab, "prepare-stuck")
        assert truth.frozen_broker is not None
        states = {b.broker: b.state for b in lab.status().brokers}
        assert [b for b, state in states.items() if state == "frozen"] == [truth.frozen_broker]
        assert truth.leader == truth.frozen_broker != truth.coordinator
        time.sleep(2)
        other = next(b.address for b in lab.status().brokers if b.broker == truth.coordinator)
        assert asyncio.run(state_by(other, truth)) == "PrepareCommit"
        lab.thaw(truth.frozen_broker)
        end = truth.high_watermark + 1

        def finished() -> None:
            assert librdkafka_offsets(lab, truth.topic, truth.partition) == (end, end)
            assert described_id(lab, truth)["TransactionState"] == "CompleteCommit"

        eventually(finished)
    finally:
        lab.down()


async def state_by(address: str, truth: GroundTruth) -> str | None:
    """The id's state as the broker at `address` describes it."""
    from eoctl.kafka.connection import messages

    async with Client.to(address, truth.frozen_broker) as client:
        question = messages.DescribeTransactionsRequest(transactional_ids=[truth.transactional_id])
        answer = await client.cluster.ask(truth.coordinator or 0, question)
        return str(answer.transaction_states[0].transaction_state)


# -- the client itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_producers_follow_the_clusters_transaction_version(
    lab1: Lab, tuned: Lab, version: int
) -> None:
    lab = lab1 if version == 2 else tuned
    topic = f"script-{uuid.uuid4().hex[:8]}"

    async def script() -> tuple[Producer, Producer, list[int]]:
        async with Client.to(lab.bootstrap_servers) as client:
            assert client.transaction_version == version
            from eoctl.lab import admin

            await admin.create_topic(client, topic, 2)
            idempotent = await Producer.init(client)
            first = await idempotent.send(topic, 0, batch(3, "a"))
            second = await idempotent.send(topic, 0, batch(2, "b"))
            transactional = await Producer.init(client, topic)
            await transactional.send(topic, 1, batch(4, "c"))
            await transactional.commit()
            third = await transactional.send(topic, 1, batch(1, "d"))
            await transactional.abort()
            return idempotent, transactional, [first, second, third]

    idempotent, transactional, bases = asyncio.run(script())
    assert bases == [0, 3, 5]
    rows = {
        partition: table(
            lab,
            *("describe-producers", "--topic", topic, "--partition", str(partition)),
        )
        for partition in (0, 1)
    }
    assert (rows[0][0]["ProducerId"], rows[0][0]["LastSequence"]) == (
        str(idempotent.producer_id),
        "4",
    )
    # version 2 bumps the epoch with each end (KIP-890), version 1 never
    assert transactional.epoch == (2 if version == 2 else 0)
    assert rows[1][0]["ProducerEpoch"] == str(transactional.epoch)
    assert delivered(lab, topic, 1, "read_committed") == [0, 1, 2, 3]
