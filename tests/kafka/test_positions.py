"""Positions that are kept, and logs that went another way since: unclean elections.

One election cuts the log at the records that both replicas have; two, the second back to a leader
that had more records of its own, leave other records at the same offsets without any cut below the
position. Each record has an id, and what came of it is counted by ids.
"""

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import positions
from eoctl.lab import admin
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer as StepProducer
from recovery.facts import TopicPartition
from recovery.shared.log_position import LogPosition, Standing
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import made_topic
from tests.kafka.crashed import committed
from tests.kafka.planting import led_uncleanly
from tests.kafka.state_oracle import Rebuilt
from tests.kafka.test_state_compaction import CLEANED, configure

pytestmark = pytest.mark.long
BOTH, EXTRA, READ, OTHERS = 20, 30, 10, 40
POSITION = BOTH + READ
WAYS = ("once", "back")


def produce(
    lab: Lab, name: str, rows: Sequence[tuple[bytes | None, bytes, int]], *, numbered: bool = True
) -> None:
    """Key, value, number: which is the source offset in the headers. One batch for each.

    numbered: with producer id and sequence, of which a cleaner keeps the last batch, emptied.
    """
    config = {"enable.idempotence": numbered, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer(lab.client_properties() | config)
    lost = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            lost.append((message.value(), error))

    for key, value, number in rows:
        headers = [("source.partition", b"0"), ("source.offset", b"%d" % number)]
        producer.produce(name, value, key, partition=0, headers=headers, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert lost == []  # else the log lacks a record that a test counts


def values(lab: Lab, name: str) -> list[bytes]:
    """The values of a partition, by a plain consumer."""
    config = {"group.id": "oracle", "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    consumer = Consumer(lab.client_properties() | config)
    consumer.assign([ConfluentPartition(name, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    return found


@dataclass
class Way:
    """The topics of one kind of divergence. read: what the commands read before it, then ended."""

    lab: Lab
    dirty: str
    clean: str
    log: str
    stream: str
    merged: str
    changelog: str
    lost: str
    salvaged: str
    folder: Path
    read: dict[str, Ran] = field(default_factory=dict)
    owner: StepProducer | None = None

    @property
    def cut(self) -> list[str]:
        """The topics whose logs go another way."""
        return [self.dirty, self.log, self.changelog, self.lost]

    def write(self, side: str, numbers: range) -> None:
        """To each of them, records that this side of the divergence has."""
        ids = [(b"key-%d" % (n % 7), f"{side}-{n}".encode(), n) for n in numbers]
        produce(self.lab, self.dirty, ids)
        produce(self.lab, self.changelog, ids)
        entries = [
            json.dumps({"topic": self.stream, "partition": 0, "offset": n}).encode()
            for n in numbers
        ]
        produce(self.lab, self.log, [(None, e, 0) for e in entries])
        if side not in ("both", "read"):
            produce(self.lab, self.lost, ids)

    def in_transaction(self, numbers: range, *, abort: bool = False) -> None:
        """To `lost`, records of one producer id and epoch: of a client of transactions v1."""
        name = f"id-{self.lost}"

        async def write() -> None:
            async with Client.of(self.lab.client_properties()) as client:
                before = self.owner or await StepProducer.init(client, name, 900_000, version=1)
                one = StepProducer(client, before.producer_id, before.epoch, name, version=1)
                one.sequences = before.sequences
                self.owner = one
                await one.add_partition(self.lost, 0)
                if numbers:
                    await one.send(self.lost, 0, [NewRecord(b"lost-%d" % n) for n in numbers])
                if abort:
                    await one.end(commit=False)
                    await one.completed()

        asyncio.run(write())

    def salvage(self, *words: str) -> Ran:
        assert self.owner is not None
        whose = ("--pid", str(self.owner.producer_id), "--epoch", str(self.owner.epoch))
        to = ("--to", self.salvaged)
        return eoctl("txn", "salvage", f"id-{self.lost}", *whose, *to, *words, lab=self.lab)

    def restart(self, group: str, *words: str) -> Ran:
        """Plan an offset of a group in `dirty`."""
        given = ("--group", group, "--topic", self.dirty, "--out", str(self.folder / group))
        return eoctl("restart", "plan", *given, *words, lab=self.lab)

    def applied(self, group: str, command: str = "apply") -> Ran:
        act = (str(self.folder / group), "--execute", "--yes")
        return eoctl("restart", command, *act, lab=self.lab)

    def dedup(self, *words: str) -> Ran:
        given = (self.dirty, self.clean, "--by", "source", "--execute", "--yes")
        return eoctl("dedup", *given, *words, lab=self.lab)

    @property
    def merge_words(self) -> list[str]:
        words = [f"--merge-log={self.log}", "--format=json", f"--input={self.stream}"]
        return [*words, f"--to={self.merged}"]

    def merge(self, command: str, *words: str) -> Ran:
        return eoctl("merge", command, *self.merge_words, *words, lab=self.lab, timeout=150)

    def rebuild(self, name: str, *words: str, status: int = 0) -> Ran:
        given = ("state", "rebuild", self.changelog, "--format", "plain", "--engine", "local")
        output = ("--output", str(self.folder / name), "-o", "json")
        ran = eoctl(*given, *output, *words, lab=self.lab)
        assert ran.status == status, ran.stderr
        return ran

    def consume(self) -> None:
        """A group reads what is there, and commits as librdkafka does."""
        config = {"group.id": f"group-{self.dirty}", "auto.offset.reset": "earliest"}
        consumer = Consumer(self.lab.client_properties() | config)
        consumer.subscribe([self.dirty])
        last = None
        while last is None or last.offset() < POSITION - 1:
            last = consumer.poll(1) or last
        consumer.commit(asynchronous=False)
        consumer.close()


def leads(lab: Lab, names: Sequence[str], leader: int) -> None:
    """Wait until this broker leads partition 0 of all of them."""
    seen, end = AdminClient(lab.client_properties()), time.monotonic() + 60
    while True:
        topics = seen.list_topics(timeout=10).topics
        if all(topics[name].partitions[0].leader == leader for name in names):
            return
        assert time.monotonic() < end
        time.sleep(0.2)


def answer(lab: Lab, names: Sequence[str]) -> None:
    """Wait until the leader of each gives offsets: a new one, when its followers have fetched."""
    consumer = Consumer(lab.client_properties() | {"group.id": "answer"})
    end = time.monotonic() + 60
    for name in names:
        while True:
            try:
                consumer.get_watermark_offsets(ConfluentPartition(name, 0), timeout=5, cached=False)
                break
            except KafkaException:
                assert time.monotonic() < end
                time.sleep(0.2)
    consumer.close()


@pytest.fixture(scope="module")
def ways(lab3: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """Logs that went another way after all commands had read up to POSITION."""
    first, second, _ = lab3.broker_ids
    made = {}
    compacted = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
    for name in WAYS:
        stream = made_topic(lab3, 1, 3, {"retention.ms": "-1"}, f"stream-{name}")
        produce(lab3, stream, [(None, b"stream-%d" % n, n) for n in range(200)])
        dirty, log, lost = (
            made_topic(lab3, 1, 2, None, f"{what}-{name}") for what in ("dirty", "log", "lost")
        )
        clean, merged, salvaged = (
            made_topic(lab3, 1, 3, None, f"{what}-{name}")
            for what in ("clean", "merged", "salvaged")
        )
        changelog = made_topic(lab3, 1, 2, compacted, f"changelog-{name}")
        folder = tmp_path_factory.mktemp(name)
        made[name] = Way(lab3, dirty, clean, log, stream, merged, changelog, lost, salvaged, folder)
    once, back = made.values()
    every = [name for way in made.values() for name in way.cut]
    for name in every:
        asyncio.run(led_uncleanly(lab3, name, first, second))
    for way in made.values():
        way.write("both", range(BOTH))
        way.in_transaction(range(BOTH))
    try:
        lab3.kill(first)
        leads(lab3, every, second)
        back.write("extra", range(BOTH + 60, BOTH + 60 + EXTRA))
        lab3.kill(second)
        lab3.start(first)
        leads(lab3, every, first)
        for way in made.values():
            way.write("read", range(BOTH, BOTH + READ))
            way.read["dedup"] = way.dedup()
            way.read["replay"] = way.merge("replay", "--execute", "--yes")
            way.read["rebuild"] = way.rebuild("first", "--at", "lso")
            way.consume()
            way.read["plan"] = way.restart("moved", "--to-offset", str(POSITION))
            way.in_transaction(range(BOTH, POSITION), abort=True)
            way.read["salvage"] = way.salvage("--execute", "--yes")
            assert [ran.status for ran in way.read.values()] == [0] * 5, way.read
            assert len(values(lab3, way.salvaged)) == POSITION
            assert len(values(lab3, way.clean)) == len(values(lab3, way.merged)) == POSITION
        lab3.kill(first)
        lab3.start(second)
        leads(lab3, every, second)
        once.write("others", range(BOTH + 60, BOTH + 60 + OTHERS))
        back.write("others", range(BOTH + 60 + EXTRA, BOTH + 60 + OTHERS))
        lab3.start(first)
        leads(lab3, every, first)  # it takes its partitions back
        answer(lab3, every)
        yield made
    finally:
        for broker in (first, second):
            lab3.start(broker)


def standing(lab: Lab, name: str, position: LogPosition) -> Standing:
    async def ask() -> Standing:
        async with Cluster(client_settings(lab.client_properties()), Deadline(60)) as cluster:
            return (await positions.standings(cluster, {TopicPartition(name, 0): position}))[
                TopicPartition(name, 0)
            ]

    return asyncio.run(ask())


def committed_epoch(lab: Lab, group: str, name: str) -> tuple[int, int | None]:
    """A group's offset and leader epoch, by a raw OffsetFetch."""
    rows = eoctl("offsets", "show", "--group", group, "-o", "json", lab=lab).rows
    [row] = [r for r in rows if r["topic"] == name]
    return row["committed_offset"], row.get("leader_epoch")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("memory", ["kept", "lost"])
def test_a_dedup_does_not_go_on(ways: dict[str, Way], way: str, memory: str) -> None:
    """It would leave out the records at the offsets that it had read in the other log."""
    one = ways[way]
    if memory == "lost":
        shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup", ignore_errors=True)
    before = values(one.lab, one.clean)
    for words in ((), ("--follow",)):
        ran = one.dedup(*words)
        assert ran.status == 4, ran.text + ran.stderr
        assert refused_at(way) in ran.stderr
    assert values(one.lab, one.clean) == before
    left_out = Counter(values(one.lab, one.dirty)) - Counter(before)
    assert len(left_out) == OTHERS  # what a copy that goes on would have to have


def refused_at(way: str) -> str:
    """Of two elections the leader can tell no more than that the record before is another one."""
    offset = BOTH if way == "once" else POSITION - 1
    return f"cut off at offset {offset} or before it and written again"


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_does_not_go_on_and_verify_compares_records(
    ways: dict[str, Way], way: str
) -> None:
    one = ways[way]
    before = values(one.lab, one.merged)
    ran = one.merge("replay", "--execute", "--yes")
    assert ran.status == 4, ran.text + ran.stderr
    assert refused_at(way) in ran.stderr
    assert values(one.lab, one.merged) == before == [b"stream-%d" % n for n in range(POSITION)]
    verified = one.merge("verify", "-o", "json")
    assert verified.status == 1, verified.stderr
    # by the oracle: the outputs that are not what the log's entries name now
    named = [json.loads(entry)["offset"] for entry in values(one.lab, one.log)]
    other = [n for n in range(POSITION) if named[n] != n]
    rows = [r for r in verified.rows if r["finding"] == "output-differs"]
    assert sum(r["records"] for r in rows) == len(other) == READ
    assert (rows[0]["merge_offset"], rows[0]["offset"]) == (BOTH, named[BOTH])


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_finds_the_stored_offset_of_another_log(ways: dict[str, Way], way: str) -> None:
    one = ways[way]
    group = f"group-{one.dirty}"
    assert committed_epoch(one.lab, group, one.dirty)[0] == POSITION
    words = ("--group", group, "--topic", one.dirty, "--to-current")
    ran = eoctl("restart", "plan", *words, lab=one.lab)
    assert ran.status == 4, ran.text + ran.stderr
    offset = BOTH if way == "once" else POSITION - 1
    assert f"diverged at offset {offset} or before it" in ran.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_of_the_log_before_the_cut_is_not_applied(ways: dict[str, Way], way: str) -> None:
    one = ways[way]
    ran = one.applied("moved")
    assert ran.status == 4, ran.text + ran.stderr
    assert refused_at(way) in ran.stderr
    assert committed(one.lab, "moved").get((one.dirty, 0)) is None


@pytest.mark.parametrize("way", WAYS)
def test_an_apply_writes_the_epoch_of_the_record_before(ways: dict[str, Way], way: str) -> None:
    """Which a plain consumer sees; an undo puts back the one that was there."""
    one, group = ways[way], f"applied-{way}"
    reader = Consumer(one.lab.client_properties() | {"group.id": "oracle"})
    epochs = {}
    for offset in (BOTH, POSITION):
        reader.assign([ConfluentPartition(one.dirty, 0, offset - 1)])
        message = reader.poll(20)
        assert message is not None
        epochs[offset] = message.leader_epoch()
    reader.close()
    assert epochs[BOTH] < epochs[POSITION]
    for offset in (BOTH, POSITION):
        planned = one.restart(group, "--to-offset", str(offset))
        assert planned.status == 0, planned.stderr
        assert one.applied(group).status == 0
        assert committed_epoch(one.lab, group, one.dirty) == (offset, epochs[offset])
    assert one.applied(group, "undo").status == 0
    assert committed_epoch(one.lab, group, one.dirty) == (BOTH, epochs[BOTH])


@pytest.mark.parametrize("way", WAYS)
def test_a_salvage_is_not_found_done_in_another_log(ways: dict[str, Way], way: str) -> None:
    """A part of the transaction that was copied is in the new log, where its records have ended."""
    one = ways[way]
    one.in_transaction(range(0), abort=True)
    before = values(one.lab, one.salvaged)
    for words in ((), ("--execute", "--yes")):
        ran = one.salvage(*words)
        assert ran.status == 4, ran.text + ran.stderr
        assert refused_at(way) in ran.stderr
    assert values(one.lab, one.salvaged) == before == [b"lost-%d" % n for n in range(POSITION)]


@pytest.mark.parametrize("way", WAYS)
def test_a_rebuild_since_an_earlier_one_reads_everything(ways: dict[str, Way], way: str) -> None:
    one = ways[way]
    since = one.rebuild("since", "--at", "lso", "--since", str(one.folder / "first"))
    full = one.rebuild("full", "--at", "lso")
    first, second = (Rebuilt(one.folder / name).digest for name in ("since", "full"))
    assert first == second, since.text
    assert full.json["notes"] == []


@pytest.mark.parametrize("way", WAYS)
def test_commits_hold_the_epoch_of_the_record_before_them(ways: dict[str, Way], way: str) -> None:
    """As a consumer's commit at the same place does, which librdkafka made of what it read."""
    one = ways[way]
    kept = committed_epoch(one.lab, f"{one.dirty}-{one.clean}-eoctl-dedup", one.dirty)
    assert kept == committed_epoch(one.lab, f"group-{one.dirty}", one.dirty)
    assert kept[1] is not None
    offset, epoch = committed_epoch(one.lab, f"eoctl-merge-{one.log}", one.log)
    assert (offset, epoch is None) == (POSITION, False)


@pytest.mark.parametrize("way", WAYS)
def test_a_position_without_an_epoch_is_gone_on_from_and_said(
    ways: dict[str, Way], way: str
) -> None:
    """As eoctl 0.2.0 kept it."""
    one = ways[way]
    asked = standing(one.lab, one.dirty, LogPosition(POSITION))
    assert (asked.held, "no leader epoch is kept" in asked.because) == (None, True)
    group = f"{one.dirty}-{one.clean}-eoctl-dedup"
    reader = Consumer(one.lab.client_properties() | {"group.id": group})
    partition = ConfluentPartition(one.dirty, 0)
    [now] = reader.committed([partition], 20)
    before = ConfluentPartition(one.dirty, 0, now.offset, now.metadata.rstrip("\0"))
    reader.commit(offsets=[before], asynchronous=False)
    planned = eoctl(
        *("dedup", one.dirty, one.clean, "--by", "source", "--follow", "-o", "json"), lab=one.lab
    )
    reader.commit(offsets=[now], asynchronous=False)
    reader.close()
    assert planned.status == 0, planned.stderr
    assert f"position {POSITION} of {one.dirty}:0 is not proven" in planned.rows[0]["summary"]


def test_a_compacted_log_is_not_called_another_one(lab3: Lab) -> None:
    """All records of an epoch are compacted away, and the replica is made again: it has no such
    epoch, and nobody can tell."""
    first, second, third = lab3.broker_ids
    name = made_topic(lab3, 1, 1, CLEANED)

    def led_by(broker: int) -> None:
        async def move() -> None:
            async with Client.to(lab3.bootstrap_servers) as client:
                await admin.set_replicas(client, name, 0, [broker])

        asyncio.run(move())
        leads(lab3, [name], broker)

    async def ask(offset: int) -> int | None:
        async with Cluster(client_settings(lab3.client_properties()), Deadline(60)) as cluster:
            return (await positions.record_epochs(cluster, {TopicPartition(name, 0): offset}))[
                TopicPartition(name, 0)
            ]

    def first_offset() -> int:
        async def read() -> int:
            async with Client.to(lab3.bootstrap_servers) as client:
                batches = await client.batches(name, 0)
                return min(int(record.offset) for batch in batches for record in batch)

        return asyncio.run(read())

    rows = [(b"key-%d" % n, b"value", n) for n in range(10)]
    led_by(first)
    produce(lab3, name, rows, numbered=False)
    kept = LogPosition(10, asyncio.run(ask(10)))
    assert kept.leader_epoch is not None
    led_by(second)
    configure(lab3, admin.BROKER, str(second), {"log.cleaner.backoff.ms": "100"})
    try:
        until_gone = time.monotonic() + 60
        while first_offset() < 10:
            assert time.monotonic() < until_gone, "the cleaner did not take them"
            time.sleep(1.1)  # segment.ms
            produce(lab3, name, rows, numbered=False)
    finally:
        configure(lab3, admin.BROKER, str(second), {"log.cleaner.backoff.ms": None})
    led_by(third)
    asked = standing(lab3, name, kept)
    assert (asked.held, "compacted away" in asked.because) == (None, True), asked
    end = len(values(lab3, name)) and first_offset()
    now = LogPosition(end + 1, asyncio.run(ask(end + 1)))
    assert standing(lab3, name, now).held is True
