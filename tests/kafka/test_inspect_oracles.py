"""`lso`, `producers` and `txn list` say what Kafka's own tools and the ground truth say.

Oracles: GetOffsetShell and TransactionsCommand (Kafka's), librdkafka's ListOffsets at both
isolation levels, the log files on disk, and the truth that a break knows by construction.
"""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.stage import batch
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.command import eoctl
from tests.kafka.conftest import STATE_PARTITIONS, MakeTopic
from tests.kafka.tools import admin_clients, kafka_tool
from tests.share import share

TOOLS = "org.apache.kafka.tools"


def tool(lab: Lab, name: str, *words: str) -> str:
    """What one of Kafka's tools prints."""
    done = kafka_tool(lab, f"{TOOLS}.{name}", "--bootstrap-server", lab.bootstrap_servers, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell_offsets(lab: Lab, topics: list[str], time: str) -> dict[tuple[str, int], int]:
    """GetOffsetShell: `topic:partition:offset` a line, at isolation level read_uncommitted."""
    pattern = "|".join(map(re.escape, topics))
    lines = tool(lab, "GetOffsetShell", "--topic-partitions", pattern, "--time", time).split()
    found = [line.rsplit(":", 2) for line in lines]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in found}


def stable_offsets(lab: Lab, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """librdkafka's ListOffsets at isolation level read_committed."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient(lab.client_properties())
    asked = admin.list_offsets(
        {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
    )
    return {(p.topic, p.partition): int(f.result(20).offset) for p, f in asked.items()}


@pytest.fixture(scope="module")
def troubles(lab3: Lab) -> list[GroundTruth]:
    """Of every kind that holds an LSO back, and of those that do not."""
    return [
        *break_(lab3, "open", count=4),
        *break_(lab3, "orphan", count=3),
        *break_(lab3, "mixed"),
        *break_(lab3, "zombie"),
    ]


def test_lso_agrees_with_kafka_at_both_isolation_levels(
    lab3: Lab, troubles: list[GroundTruth], topic: MakeTopic
) -> None:
    healthy = topic(lab3, partitions=6, replicas=3)
    topics = [*sorted({truth.topic for truth in troubles}), healthy]
    ran = eoctl("lso", *topics, "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    rows = {(row["topic"], row["partition"]): row for row in ran.rows}
    start, end = shell_offsets(lab3, topics, "-2"), shell_offsets(lab3, topics, "-1")
    stable = stable_offsets(lab3, list(end))
    assert set(rows) == set(end)
    for partition, row in rows.items():
        seen = (row["log_start_offset"], row["last_stable_offset"], row["high_watermark"])
        assert seen == (start[partition], stable[partition], end[partition]), partition
        assert row["held"] == end[partition] - stable[partition]
    assert sum(row["held"] > 0 for row in rows.values()) >= 8
    assert {row["leader"] for row in rows.values()} == {1, 2, 3}


def test_lso_names_what_blocks(lab3: Lab, troubles: list[GroundTruth]) -> None:
    ran = eoctl("lso", "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    rows = {(row["topic"], row["partition"]): row for row in ran.rows}
    holding = [t for t in troubles if t.last_stable_offset < t.high_watermark]
    assert {truth.kind for truth in holding} == {"open", "orphan", "mixed"}
    for truth in holding:
        row = rows[truth.topic, truth.partition]
        assert row["held"] == truth.high_watermark - truth.last_stable_offset
        assert row["blocking_known"]
        blocking = row["blocking"]
        assert blocking["producer_id"] == truth.producer_id
        assert blocking["producer_epoch"] == truth.producer_epoch
        assert blocking["start_offset"] == truth.start_offset == row["last_stable_offset"]
        owned = truth.kind != "orphan"
        assert blocking["transactional_id"] == truth.transactional_id  # idle, of an orphan
        assert blocking["age_clock"] == ("coordinator" if owned else "producer")
    zombie = next(truth for truth in troubles if truth.kind == "zombie")
    assert (zombie.topic, zombie.partition) not in rows
    assert ran.json["held_back"] == len(rows)


COLUMNS = (
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp",
    "current_txn_start_offset",
)


def described_producers(lab: Lab, topic: str, partition: int) -> dict[int, tuple[object, ...]]:
    """`kafka-transactions.sh describe-producers`: its columns, in the order of COLUMNS."""
    options = ("--topic", topic, "--partition", str(partition))
    lines = tool(lab, "TransactionsCommand", "describe-producers", *options).splitlines()
    assert lines[0].split() == [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]
    found: dict[int, tuple[object, ...]] = {}
    for line in lines[1:]:
        cells = [None if cell in ("-1", "None") else int(cell) for cell in line.split()]
        assert cells[0] is not None
        found[cells[0]] = tuple(cells)
    return found


def our_producers(lab: Lab, topic: str, partition: int) -> dict[int, tuple[object, ...]]:
    ran = eoctl("producers", f"{topic}:{partition}", "-o", "json", lab=lab)
    assert ran.status == 0, ran.stderr
    return {row["producer_id"]: tuple(_plain(row[name]) for name in COLUMNS) for row in ran.rows}


def _plain(value: object) -> object:
    """A timestamp as the epoch milliseconds that Kafka's tool prints."""
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    assert moment.tzinfo == UTC
    return round(moment.timestamp() * 1000)


def test_producers_agree_with_describe_producers(lab3: Lab, troubles: list[GroundTruth]) -> None:
    kinds: dict[str, GroundTruth] = {}
    for truth in troubles:
        kinds.setdefault(truth.kind, truth)
    open_starts = []
    for truth in kinds.values():
        theirs = described_producers(lab3, truth.topic, truth.partition)
        ours = our_producers(lab3, truth.topic, truth.partition)
        assert ours == theirs, truth.kind
        assert ours
        open_starts += [row[-1] for row in ours.values() if row[-1] is not None]
    assert len(open_starts) >= 3  # open, orphan, mixed


def test_producers_follow_known_sends(lab3: Lab, topic: MakeTopic) -> None:
    partition = topic(lab3, replicas=3)

    async def send() -> list[tuple[int, int, int | None, int | None]]:
        async with Client.to(lab3.bootstrap_servers) as client:
            idempotent = await Producer.init(client)
            await idempotent.send(partition, 0, batch(3, "a"))
            await idempotent.send(partition, 0, batch(4, "b"))  # sequences 0-2, 3-6
            # v1 keeps its epoch at a commit, v2 raises it (KIP-890): the marker's is the newest
            done = await Producer.init(client, f"{partition}-done")
            await done.send(partition, 0, batch(2, "c"))
            await done.commit()
            await (again := await Producer.init(client, f"{partition}-done")).send(
                partition, 0, batch(5, "d")
            )
            opened = await Producer.init(client, f"{partition}-open")
            first = await opened.send(partition, 0, batch(1, "e"))
            await opened.send(partition, 0, batch(9, "f"))
            return [
                (idempotent.producer_id, idempotent.epoch, 6, None),
                # 7 + 2 records and the commit's marker are before it
                (again.producer_id, again.epoch, 4, 10),
                (opened.producer_id, opened.epoch, 9, first),
            ]

    expected = asyncio.run(send())
    assert expected[2][3] == 15
    ran = eoctl("producers", partition, "-o", "json", lab=lab3)
    rows = {
        (
            row["producer_id"],
            row["producer_epoch"],
            row["last_sequence"],
            row["current_txn_start_offset"],
        )
        for row in ran.rows
    }
    assert rows == set(expected)


def ids_of_every_coordinator_partition(prefix: str) -> list[str]:
    found: dict[int, str] = {}
    number = 0
    while len(found) < STATE_PARTITIONS:
        name = f"{prefix}-{number}"
        found.setdefault(coordinator_partition(name, STATE_PARTITIONS), name)
        number += 1
    return list(found.values())


async def _initialise(lab: Lab, ids: list[str]) -> None:
    async with Client.to(lab.bootstrap_servers) as client:
        for transactional_id in ids:
            await Producer.init(client, transactional_id)


def test_txn_list_covers_every_coordinator(lab3: Lab, troubles: list[GroundTruth]) -> None:
    ids = ids_of_every_coordinator_partition("covers")
    asyncio.run(_initialise(lab3, ids))
    logs = [
        path
        for broker in lab3.broker_ids
        for path in Path(lab3.data_folder(broker)).glob("__transaction_state-*/*.log")
        if path.stat().st_size
    ]
    assert {path.parent.name for path in logs} == {
        f"__transaction_state-{n}" for n in range(STATE_PARTITIONS)
    }
    ran = eoctl("txn", "list", "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    lines = tool(lab3, "TransactionsCommand", "list").splitlines()[1:]
    # TransactionalId Coordinator ProducerId TransactionState
    theirs = {tuple(line.split()) for line in lines}
    ours = {
        (
            row["transactional_id"],
            str(row["coordinator"]),
            str(row["producer_id"]),
            row["state"],
        )
        for row in ran.rows
    }
    assert ours == theirs
    assert set(ids) <= {row["transactional_id"] for row in ran.rows}
    assert {row["coordinator"] for row in ran.rows} == {1, 2, 3}
    assert ran.json["coordinators"] == ran.json["coordinators_seen"] == STATE_PARTITIONS
    found = eoctl("txn", "list", "--state", "ongoing", "-o", "name", lab=lab3).stdout.split()
    assert set(found) == {row["transactional_id"] for row in ran.rows if row["state"] == "Ongoing"}
    open_ids = {t.transactional_id for t in troubles if t.kind in ("open", "mixed")}
    assert open_ids <= set(found)


# letters of one to four UTF-8 bytes; the last two are surrogate pairs in Java
ALPHABET = "aZ0-_ éßÅЖ中文日本☂𝄞🦄"


def test_coordinator_of_an_id_is_the_one_kafka_finds(lab3: Lab) -> None:
    """1,000 ids: FindCoordinator names the leader of the partition that we compute."""
    ids = [
        f"{number}{''.join(ALPHABET[(number * 7 + i * i) % len(ALPHABET)] for i in range(length))}"
        for number, length in zip(range(1000), list(range(1, 41)) * 25, strict=True)
    ]
    assert sum("🦄" in name for name in ids) > 100

    async def find() -> dict[str, int]:
        async with Client.to(lab3.bootstrap_servers) as client:
            return {name: await client.coordinator(name) for name in ids}

    found = asyncio.run(find())
    from confluent_kafka.admin import AdminClient

    state = AdminClient(lab3.client_properties()).list_topics("__transaction_state", timeout=20)
    leaders = {p.id: p.leader for p in state.topics["__transaction_state"].partitions.values()}
    assert len(leaders) == STATE_PARTITIONS
    assert set(leaders.values()) == {1, 2, 3}
    expected = {name: leaders[coordinator_partition(name, STATE_PARTITIONS)] for name in ids}
    assert found == expected


def test_coordinator_partition_is_where_the_record_lies(lab3: Lab) -> None:
    """Stronger than the leader: the very partition of __transaction_state that holds the id."""
    ids = [f"lies-{n}-{ALPHABET[n % len(ALPHABET)] * (n % 5)}🦄" for n in range(share(250, 25))]
    asyncio.run(_initialise(lab3, ids))
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **lab3.client_properties(),
            "group.id": "reads-transaction-state",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("__transaction_state", n, 0) for n in range(STATE_PARTITIONS)])
    lies: dict[str, int] = {}
    ended = 0
    while ended < STATE_PARTITIONS:
        message = consumer.poll(20)
        assert message is not None
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
            continue
        key = message.key()
        assert key is not None
        # TransactionLogKey version 0: version int16, length int16, UTF-8
        lies[key[4:].decode()] = message.partition()
    consumer.close()
    assert {name: lies[name] for name in ids} == {
        name: coordinator_partition(name, STATE_PARTITIONS) for name in ids
    }


def test_a_tool_leaves_no_client(lab1: Lab) -> None:
    """TransactionsCommand ends its JVM without closing its client; that of the tests stays."""
    assert "TransactionalId" in tool(lab1, "TransactionsCommand", "list")
    assert admin_clients(lab1) == 0
