"""`offsets count` against consumers that read record by record, on whatever a log may hold."""

import asyncio
import json
import os
import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pexpect
import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.read.pump import Reading
from eoctl.lab import admin
from eoctl.lab.admin import BROKER, TOPIC
from eoctl.lab.breaks import break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import TopicPartition
from recovery.formats.counting import Counts
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.offsets_oracle import Seen, consumed_number, look
from tests.kafka.planting import flip_a_bit
from tests.share import share
from tests.started import started

COUNTS = (
    "data_records",
    "aborted_records",
    "control_records",
    "open_records",
    "missing_offsets",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def counted(
    lab: Lab, wanted: Sequence[Cuts], reading: Reading = Reading()
) -> dict[TopicPartition, list[Counts]]:
    settings = client_settings(lab.client_properties())

    async def run() -> dict[TopicPartition, list[Counts]]:
        async with Cluster(settings, Deadline(120)) as cluster:
            found, missing = await count(cluster, wanted, reading)
            assert not missing
            return found

    return asyncio.run(run())


def ranges(seen: Seen, seed: int, number: int) -> list[tuple[int, int]]:
    """Ranges of a partition: the whole one, and random ones from 0 on, below the log start too."""
    draw = random.Random(seed)
    pairs = [(0, seen.high), (seen.log_start, seen.stable), (seen.stable, seen.high)]
    return pairs + [
        (min(pair), max(pair))
        for pair in (
            (draw.randint(0, seen.high), draw.randint(0, seen.high)) for _ in range(number)
        )
    ]


def check(lab: Lab, found: dict[tuple[str, int], Seen], number: int) -> None:
    """Every range of every partition counts as the oracle does; so do neighbours cut at once."""
    for seed in range(number + 3):
        chosen = {partition: ranges(seen, seed, number)[seed] for partition, seen in found.items()}
        cuts = [
            Cuts(*partition, chosen[partition], seen.log_start, seen.stable)
            for partition, seen in found.items()
        ]
        for partition, (piece,) in counted(lab, cuts).items():
            assert dict(zip(COUNTS, piece, strict=True)) == found[partition].counts(
                *chosen[partition]
            )
    draw = random.Random(number)
    many = {
        partition: tuple(sorted({draw.randint(0, seen.high) for _ in range(6)}))
        for partition, seen in found.items()
    }
    cuts = [
        Cuts(*partition, many[partition], seen.log_start, seen.stable)
        for partition, seen in found.items()
        if len(many[partition]) > 1
    ]
    for partition, pieces in counted(lab, cuts).items():
        for start, end, piece in zip(many[partition], many[partition][1:], pieces, strict=False):
            assert dict(zip(COUNTS, piece, strict=True)) == found[partition].counts(start, end)


@pytest.fixture(scope="module")
def mixed(lab1: Lab) -> dict[tuple[str, int], Seen]:
    """Two partitions of `lab break mixed`; what consumers see agrees with the ground truth."""
    truths = break_(lab1, "mixed", count=2, records=4, hold=False)
    found = look(lab1, [(t.topic, t.partition) for t in truths])
    kinds = {"committed", "plain", "idempotent"}
    for truth in truths:
        seen = found[truth.topic, truth.partition]
        assert seen.stable == truth.last_stable_offset
        by_offset = {o.offset: o.content for o in truth.offsets}
        for offset, content in by_offset.items():
            assert (offset in seen.control) == (content == "control")
            assert (offset in seen.visible) == (content in kinds and offset < seen.stable)
            assert (offset in seen.data) == (content not in ("control", "missing"))
    return found


def test_what_lab_break_mixed_made(lab1: Lab, mixed: dict[tuple[str, int], Seen]) -> None:
    assert all(min(s.counts(0, s.high).values()) > 0 for s in mixed.values())  # all five occur
    check(lab1, mixed, share(50, 10))


def test_the_command_says_the_same(
    lab1: Lab, mixed: dict[tuple[str, int], Seen], tmp_path: Path
) -> None:
    (topic, partition), seen = next(iter(mixed.items()))
    words = ("offsets", "count", f"{topic}:{partition}", "3", "hw", "-o", "json")
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    ran = eoctl(*words, lab=lab1, env=env)
    assert (ran.status, ran.json["complete"], ran.stderr) == (0, True, "")
    (row,) = ran.rows
    assert list(row) == ["topic", "partition", "from", "to", *COUNTS, "error"]
    expected = seen.counts(3, seen.high)
    assert {name: row[name] for name in COUNTS} == expected
    assert sum(expected.values()) == seen.high - 3
    assert (row["from"], row["to"], row["error"]) == (3, seen.high, None)
    ran = eoctl(
        "offsets", "count", topic, "--start", "earliest", "--end", "lso", "-o", "json", lab=lab1
    )
    assert {r["partition"]: [r[n] for n in COUNTS] for r in ran.rows} == {
        p: [s.counts(s.log_start, s.stable)[n] for n in COUNTS] for (_, p), s in mixed.items()
    }


class Script:
    """Writes one partition by a seed: codecs, plain, idempotent, v1 and v2 transactions."""

    def __init__(self, lab: Lab, topic_partition: tuple[str, int], seed: int) -> None:
        self.lab, self.partition = lab, topic_partition
        self.draw = random.Random(seed)
        self.name = f"{topic_partition[0]}-{topic_partition[1]}"
        self.open: Producer | None = None

    def records(self) -> list[NewRecord]:
        keys = [b"k%d" % self.draw.randrange(12) for _ in range(self.draw.randint(1, 7))]
        return [NewRecord(self.draw.randbytes(5) * 20, key) for key in keys]

    async def write(self, client: Client, old: Client) -> None:
        ended = [await Producer.init(c, f"{self.name}-{c is old}") for c in (client, old)]
        idempotent = await Producer.init(client)
        for _ in range(self.draw.randint(4, 14)):
            step = self.draw.choice(("plain", "idempotent", "end", "end", "open", "codec"))
            if step == "plain":
                await client.plain(*self.partition, self.records())
            elif step == "idempotent":
                await idempotent.send(*self.partition, self.records())
            elif step == "codec":
                await asyncio.to_thread(self.by_codec)
            elif step == "open" and self.open is None:
                self.open = await Producer.init(client, f"{self.name}-open")
                await self.open.send(*self.partition, self.records())
            else:
                producer = self.draw.choice(ended)
                for _ in range(self.draw.randint(1, 3)):
                    await producer.send(*self.partition, self.records())
                    if self.draw.random() < 0.3:
                        await client.plain(*self.partition, self.records())
                await (producer.commit() if self.draw.random() < 0.5 else producer.abort())
        if self.open is not None and self.draw.random() < 0.6:
            await self.open.abort()

    def by_codec(self) -> None:
        """A transaction of librdkafka's, compressed."""
        from confluent_kafka import Producer as Confluent

        producer = Confluent(
            self.lab.client_properties()
            | {
                "compression.type": self.draw.choice(CODECS),
                "transactional.id": f"{self.name}-codec",
                "linger.ms": 50,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for record in self.records() * self.draw.randint(1, 20):
            producer.produce(self.partition[0], record.value, record.key, self.partition[1])
        if self.draw.random() < 0.6:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.001",
}
QUIET = {**COMPACTED, "min.cleanable.dirty.ratio": "1.0", "segment.ms": "604800000"}


def test_generated_logs(lab1: Lab, topic: MakeTopic) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    number = share(100, 12)
    kept, cleaned = topic(lab1, partitions=number), topic(lab1, partitions=number, config=COMPACTED)
    partitions = [(name, p) for name in (kept, cleaned) for p in range(number)]
    deleter = AdminClient(lab1.client_properties())

    async def write() -> None:
        async with (
            Client.to(lab1.bootstrap_servers) as client,
            Client.to(lab1.bootstrap_servers) as old,
        ):
            old.transaction_version = 1  # as a client before KIP-890 speaks
            for seed, topic_partition in enumerate(partitions):
                await Script(lab1, topic_partition, seed).write(client, old)
            await asyncio.sleep(0.6)
            for topic_partition in partitions:
                await client.plain(*topic_partition, [NewRecord(b"rolls", b"roll")])
            await admin.set_config(client, BROKER, "1", {"log.cleaner.backoff.ms": "100"})
            try:
                await asyncio.to_thread(_wait_for_the_cleaner, lab1, cleaned, number)
                await admin.set_config(client, TOPIC, cleaned, QUIET)
                await asyncio.sleep(2.0)  # a cleaning under way ends
            finally:
                await admin.set_config(client, BROKER, "1", {"log.cleaner.backoff.ms": None})
            draw = random.Random(number)
            for topic_partition in draw.sample(partitions, number // 3):
                _, stable, _ = await client.offsets(*topic_partition)
                where = TopicPartition(*topic_partition, draw.randint(0, stable))
                if topic_partition[0] == kept:
                    for done in deleter.delete_records([where]).values():
                        await asyncio.to_thread(done.result, 20)

    asyncio.run(write())
    found = look(lab1, partitions)
    sums = [sum(s.counts(0, s.high)[name] for s in found.values()) for name in COUNTS]
    assert min(sums) > 0
    # whole batches of the compacted topic lost some of their records, not all
    assert any(s.log_start == 0 and s.counts(0, s.high)["missing_offsets"] for s in found.values())
    check(lab1, found, share(100, 15))


def _wait_for_the_cleaner(lab: Lab, topic: str, number: int) -> None:
    """Until compaction took something from most partitions."""

    async def thinned() -> int:
        async with Client.to(lab.bootstrap_servers) as client:
            found = 0
            for p in range(number):
                start, _, high = await client.offsets(topic, p)
                left = sum(b.records_count for b in await client.batches(topic, p))
                found += left < high - start
            return found

    end = time.monotonic() + 90
    while asyncio.run(thinned()) < number // 2:
        assert time.monotonic() < end, "the cleaner did not come"
        time.sleep(0.5)


@pytest.mark.long
def test_a_leader_killed_midway_changes_nothing(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3, partitions=3, replicas=3)

    async def write() -> int:
        async with Client.to(lab3.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            for p in range(3):
                for i in range(share(300, 60)):
                    await client.plain(name, p, [NewRecord(b"p" * 2000)] * 20)
                    if i % 3 == 0:
                        await owner.send(name, p, [NewRecord(b"t" * 2000)] * 20)
                        await (owner.abort() if i % 2 else owner.commit())
            return await client.leader(name, 0)

    leader = asyncio.run(write())
    found = look(lab3, [(name, p) for p in range(3)])
    killed: list[int] = []

    def kill(bytes_read: int, done: int, total: int) -> None:
        if not killed and 0 < done < total:
            killed.append(leader)
            lab3.kill(leader)

    cuts = [Cuts(*partition, (1, s.high - 1), 0, s.stable) for partition, s in found.items()]
    try:
        for partition, (piece,) in counted(
            lab3, cuts, Reading(max_rate=2 << 20, progress=kill)
        ).items():
            expected = found[partition].counts(1, found[partition].high - 1)
            assert dict(zip(COUNTS, piece, strict=True)) == expected
        assert killed
    finally:
        for broker in killed:
            lab3.start(broker)


def test_what_cannot_be_counted_is_a_row_with_an_error(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=2)

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            await client.plain(name, 0, [NewRecord(b"a")] * 5)

    asyncio.run(write())
    ran = eoctl("offsets", "count", name, "--start", "0", "--end", "5", "-o", "json", lab=lab1)
    assert (ran.status, ran.json["complete"]) == (3, False)
    assert [(r["data_records"], r["error"]) for r in ran.rows] == [
        (5, None),
        (None, "OFFSET_OUT_OF_RANGE"),
    ]
    (error,) = ran.json["errors"]
    assert (error["partition"], error["detail"]) == (1, "5 is above the high watermark 0")
    ran = eoctl("offsets", "count", f"{name}:0", "lso", "earliest", "-o", "json", lab=lab1)
    assert (ran.status, ran.rows[0]["error"]) == (3, "INVALID_REQUEST")
    ran = eoctl("offsets", "count", f"{name}:0", "5", "4", lab=lab1)
    assert (ran.status, ran.stdout) == (2, "")
    assert "runs backwards" in ran.stderr
    ran = eoctl("offsets", "count", "no-such-topic", name, "--end", "hw", "-o", "json", lab=lab1)
    assert ran.status == 3
    assert [r["data_records"] for r in ran.rows] == [5, 0]
    ran = eoctl("offsets", "count", f"{name}:0", "-o", "json", lab=lab1)
    assert [(r["from"], r["to"], r["data_records"]) for r in ran.rows] == [(0, 5, 5)]
    for words in (
        (),
        (name, "0"),
        (name, name, name, name),
        (name, "0", "soon"),
        ("--end", "hw"),
        (name, "-1", "2"),
    ):
        assert eoctl("offsets", "count", *words, lab=lab1).status == 2


def test_instants_are_the_first_record_not_older(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, config={"retention.ms": "-1"})
    base = 1_700_000_000_000

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for i in range(10):
                await client.plain(name, 0, [NewRecord(b"v", timestamp=base + 1000 * i)])

    asyncio.run(write())

    def range_of(start: str, end: str) -> tuple[int, int, int]:
        ran = eoctl("offsets", "count", f"{name}:0", start, end, "-o", "json", lab=lab1)
        (row,) = ran.rows
        return row["from"], row["to"], row["data_records"]

    # 2023-11-14T22:13:20Z is base
    assert range_of("2023-11-14T22:13:22Z", "2023-11-14T22:13:24.5Z") == (2, 5, 3)
    assert range_of("2020-01-01", "now") == (0, 10, 10)
    assert range_of("1m ago", "hw") == (10, 10, 0)


def test_a_log_that_may_not_be_read(secure_lab: Lab, topic: MakeTopic) -> None:
    name = topic(secure_lab)
    properties = secure_lab.client_properties("no-topic-read")
    words = [f"-X{key}={value}" for key, value in properties.items()]
    ran = eoctl("offsets", "count", f"{name}:0", "0", "0", "-o", "json", *words)
    assert ran.status == 0  # there is nothing to read
    admin_lab = secure_lab.client_properties()
    from confluent_kafka import Producer as Confluent

    producer = Confluent(admin_lab)
    producer.produce(name, b"v")
    producer.flush(20)
    ran = eoctl("offsets", "count", f"{name}:0", "earliest", "hw", "-o", "json", *words)
    assert (ran.status, ran.rows[0]["error"]) == (3, "TOPIC_AUTHORIZATION_FAILED")
    assert ran.json["errors"][0]["detail"] == "READ on the topic is not granted"


def test_a_bit_that_fell_over_is_found_by_its_checksum(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            await client.plain(name, 0, [NewRecord(b"some value to be hit")] * 3)

    asyncio.run(write())
    flip_a_bit(lab1, name, b"to be hit")
    ran = eoctl("offsets", "count", f"{name}:0", "0", "3", "-o", "json", lab=lab1)
    assert (ran.status, ran.rows[0]["error"]) == (3, "CORRUPT_MESSAGE")
    assert "CRC" in ran.json["errors"][0]["detail"]
    ran = eoctl("offsets", "count", f"{name}:0", "0", "3", "--no-crc", "-o", "json", lab=lab1)
    assert (ran.status, ran.rows[0]["data_records"]) == (0, 3)


def test_progress_is_for_terminals(lab1: Lab, mixed: dict[tuple[str, int], Seen]) -> None:
    topic = next(iter(mixed))[0]
    ran = eoctl("offsets", "count", topic, "--end", "hw", lab=lab1)
    assert "counting" not in ran.stderr
    words = ["--bootstrap-server", lab1.bootstrap_servers, "offsets", "count", topic, "--end", "hw"]
    child = pexpect.spawn(EOCTL[0], [*EOCTL[1:], *words], env=environment(), encoding="utf-8")
    child.expect(r"counting: [0-9.]+ [KMG]?i?B, offsets \d+/\d+")
    child.expect("data record")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_million_records(lab1: Lab, topic: MakeTopic) -> None:
    """Counted as read_committed and read_uncommitted consumers count them, in bounded memory."""
    from confluent_kafka import Producer as Confluent

    name = topic(lab1, partitions=4)
    number, each = share(10_000_000, 200_000), 5_000
    committed = Confluent(
        lab1.client_properties()
        | {"transactional.id": name, "compression.type": "lz4", "batch.num.messages": 500}
    )
    committed.init_transactions(30)
    data = 0
    for begin in range(0, number, each):
        committed.begin_transaction()
        for i in range(begin, begin + each):
            while True:
                try:
                    committed.produce(name, b"%020d" % i, partition=i % 4)
                    break
                except BufferError:
                    committed.poll(0.05)
        if begin // each % 7 == 3:
            assert committed.flush(60) == 0
            committed.abort_transaction(60)
        else:
            committed.commit_transaction(60)
            data += each
    words = ["--bootstrap-server", lab1.bootstrap_servers, "offsets", "count", name]
    with started(
        [*EOCTL, *words, "--end", "hw", "-o", "json"], env=environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        rows = json.loads(process.stdout.read())["rows"]
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert used.ru_maxrss <= 150 * 1024
    sums = {column: sum(row[column] for row in rows) for column in COUNTS}
    assert sums["data_records"] == data
    assert sums["aborted_records"] == number - data
    assert (sums["open_records"], sums["missing_offsets"]) == (0, 0)
    for isolation, expected in (("read_committed", data), ("read_uncommitted", number)):
        ends = {(name, row["partition"]): (0, row["to"]) for row in rows}
        assert consumed_number(lab1, isolation, ends) == expected
