"""Each rule of the verdict table, by its name, on a real broker.

One lab holds all that one broker can hold at once; it is judged as a whole, so that each place
is also judged beside all the others.
"""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer as Librdkafka
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.admin import BROKER, TOPIC, delete_topic
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.markers import stoppable, stopped, write_marker
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.stage import BreakTarget, Options, Stage, batch
from eoctl.lab.breaks.truth import STRAY_NOT_YET, GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab, up
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.facts import TopicPartition, TransactionFacts
from recovery.formats.batches import batch_headers
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.records import records
from recovery.formats.transaction_state import (
    TransactionState,
    TransactionValue,
    decode_key,
    decode_value,
)
from recovery.inspect.observation import OpenTransaction, Sample, Settings
from recovery.values import replace
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene
from tests.kafka.diagnosing import judged, rule_of
from tests.kafka.remedying import read_committed
from tests.kafka.test_history_evidence import verdicts
from tests.kafka.test_restart_evidence import check, owner, planned, transaction

EVERYTHING = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    found = start_lab(LabSpec(name="rules", settings=EVERYTHING))
    yield found
    found.down()


# a broker that still verifies asks the coordinator, which knows another epoch of the id
NOT_YET = STRAY_NOT_YET | {"INVALID_PRODUCER_EPOCH"}


def stray_as(lab: Lab, truth: GroundTruth, epoch: int, sequence: int = 0) -> Producer:
    """A producer that no coordinator is asked about, with the truth's producer id."""
    assert truth.producer_id is not None
    client = Client.to(lab.bootstrap_servers)
    producer = Producer(client, truth.producer_id, epoch, truth.transactional_id)
    producer.sequences[truth.topic_partition] = sequence
    return producer


async def write_stray(producer: Producer, topic: str, partition: int) -> None:
    async with producer.client as client, unverified(client):
        await client.until(
            lambda: producer.write(topic, partition, batch(1, "stray")), also=NOT_YET
        )


def later_transaction(lab: Lab) -> GroundTruth:
    """An orphan, and its id's next transaction open on the same partition."""
    (truth,) = break_(lab, "orphan", hold=False)

    async def go_on() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            producer = await Producer.init(client, truth.transactional_id, 900_000)
            await producer.send(truth.topic, truth.partition, batch(1, "next"))

    asyncio.run(go_on())
    return truth


def owner_odd(lab: Lab) -> GroundTruth:
    """A batch of a later epoch than the one with which its id is open here."""
    (truth,) = break_(lab, "holds-nothing", hold=False)
    assert truth.producer_epoch is not None
    asyncio.run(write_stray(stray_as(lab, truth, truth.producer_epoch + 5), truth.topic, 0))
    return truth


def start_deleted(lab: Lab) -> GroundTruth:
    """An orphan all of whose records were deleted (DeleteRecords), with one of another's after."""
    (truth,) = break_(lab, "orphan")
    [seen] = judged(lab, truth.topic).judged
    partition = ConfluentPartition(
        truth.topic, truth.partition, (seen.partition.high_watermark or 0) - 1
    )
    admin = AdminClient(lab.client_properties())
    admin.delete_records([partition])[partition].result(20)
    return truth


@pytest.mark.long
def test_what_one_broker_can_hold(lab: Lab) -> None:
    foreign, home = break_(lab, "orphan", variant="foreign", hold=False)
    expected = {
        "nobody-owns-it": break_(lab, "orphan")[0],
        "stray-of-a-live-id": foreign,
        "within-limits": home,
        "past-timeout": break_(lab, "overdue")[0],
        "two-phase": break_(lab, "two-phase", hold=False)[0],
        "later-transaction": later_transaction(lab),
        "owner-odd": owner_odd(lab),
        "start-deleted": start_deleted(lab),
        "history-replaced": break_(lab, "orphan", variant="nameless")[0],
        "topic-identity": break_(lab, "topic-made-anew", variant="orphan")[0],
    }
    (anew,) = break_(lab, "topic-made-anew", hold=False)
    found = {j.about.topic_partition: j for j in judged(lab, sample_interval=0.5).judged}
    rules = {rule: found[t.topic_partition].verdict.rule for rule, t in expected.items()}
    assert rules == {rule: rule for rule in expected}
    assert found[anew.topic_partition].verdict.name == "open"

    # what cannot be judged is no refusal: exit status 3, and what would settle it
    for truth, status, said in (
        (expected["later-transaction"], 3, "how the batch's own ended is not known"),
        (anew, 4, "whether decided data lies under its transaction is not known"),
    ):
        fence = ("txn", "fence", truth.transactional_id or "", "--owner-is-gone")
        ran = eoctl(*fence, "--sample-interval", "0.3s", lab=lab)
        assert (ran.status, said in ran.stderr) == (status, True), ran.stderr

    # what the same looks at the orphan say when one of them had not been taken
    orphan = found[TopicPartition(expected["nobody-owns-it"].topic, 0)]
    assert orphan.second is not None
    assert rule_of(orphan, second=None) == "one-sample"
    assert rule_of(orphan, history=None) == "history-not-read"
    assert rule_of(orphan, start=None) == "start-batch-not-read"
    # a leader that is lost between two questions; DESCRIBE that is taken away between them
    unled = replace(orphan.second, partition=replace(orphan.partition, error="NOT_LEADER"))
    assert rule_of(orphan, second=unled) == "partition-not-seen"
    another = replace(orphan.second, partition=replace(orphan.partition, topic_id="another"))
    assert rule_of(orphan, second=another) == "topic-made-anew"
    undescribed = replace(orphan.second, topic_describe=False)
    assert rule_of(orphan, second=undescribed) == "topic-not-described"
    # a marker that the followers do not have yet: held, and nobody's transaction is open
    nobody = OpenTransaction(*orphan.about.topic_partition, None, None)
    assert rule_of(orphan, about=nobody) == "no-open-transaction"

    owned = found[expected["within-limits"].topic_partition]
    # DescribeTransactions of a coordinator that is loading
    rows = tuple(
        replace(t, partitions=None, producer_epoch=None, error="COORDINATOR_LOAD_IN_PROGRESS")
        for t in owned.first.transactions.rows
    )
    assert rule_of(owned, first=with_rows(owned.first, rows)) == "owner-not-described"
    # its coordinator moves between the looks: it is not listed, without an error
    assert rule_of(owned, second=with_rows(owned.first, ())) == "owner-changed"
    # ListTransactions v0 (Kafka before 3.8) has no duration filter, and our clock is no proof
    assert owned.verdict.owner is not None
    row = owned.verdict.owner
    blind = replace(owned.first, over_timeout=None, over_long=None, list_version=0)
    running = blind.collected_at - (row.start_timestamp or 0)
    assert rule_of(owned, Settings(long_after=running), first=blind) == "clock-not-seen"


def with_rows(sample: Sample, rows: tuple[TransactionFacts, ...]) -> Sample:
    return replace(sample, transactions=replace(sample.transactions, rows=rows))


def test_past_long(lab: Lab) -> None:
    (truth,) = break_(lab, "long", hold=False)
    time.sleep(0.3)
    (seen,) = judged(
        lab, truth.topic, settings=Settings(long_after=100), sample_interval=0.3
    ).judged
    assert (seen.verdict.name, seen.verdict.rule) == ("long", "past-long")


def test_still_writing(lab: Lab) -> None:
    """Its producer writes between the looks: somebody lives, whatever the coordinators say."""
    (truth,) = break_(lab, "orphan")
    ended = threading.Event()

    def keep_writing() -> None:
        sequence = 3
        while not ended.is_set():
            asyncio.run(write_more(sequence))
            sequence += 1

    async def write_more(sequence: int) -> None:
        producer = stray_as(lab, truth, truth.producer_epoch or 0, sequence)
        async with producer.client:
            await producer.write(truth.topic, truth.partition, batch(1, "more"))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        (seen,) = judged(lab, truth.topic, sample_interval=1.5).judged
    finally:
        ended.set()
        writer.join()
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", "still-writing")
    assert seen.verdict.remedy.action == "none"


STATE = "__transaction_state"


def test_an_id_that_moved(lab: Lab, topic: MakeTopic) -> None:
    """A late write of an id whose records stand in its former partition: partitions were added."""
    where = topic(lab)
    kafka = AdminClient(lab.client_properties())
    before = len(kafka.list_topics(STATE, timeout=20).topics[STATE].partitions)
    names = (f"moving-{n}" for n in range(1000))
    name = next(
        n for n in names if coordinator_partition(n, before) != coordinator_partition(n, before + 1)
    )

    async def write_late() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await write_stray(await Producer.init(client, name), where, 0)

    async def until_it_leads() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await client.until(partial(client.coordinator, name))

    asyncio.run(write_late())
    kafka.create_partitions([NewPartitions(STATE, before + 1)])[STATE].result(20)
    lab.terminate(1)  # brokers count the partitions when they start
    lab.start(1)
    asyncio.run(until_it_leads())
    deadline = time.monotonic() + 30
    while (found := judged(lab, where)).missing:
        assert time.monotonic() < deadline, found.missing
    (seen,) = found.judged
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", "history-moved")


def test_a_groups_offsets_of_nobody(lab: Lab) -> None:
    (truth,) = break_(lab, "offsets-orphan")
    found = judged(lab, "__consumer_offsets", sample_interval=0.3).judged
    (verdict,) = [j.verdict for j in found if j.about.producer_id == truth.producer_id]
    assert (verdict.name, verdict.rule, verdict.offsets_pending) == (
        "orphan",
        "nobody-owns-it",
        True,
    )


@contextmanager
def denied(lab: Lab, kind: ResourceType, name: str, operation: AclOperation) -> Iterator[None]:
    """The user `viewer` is denied this while the block runs."""
    what = (kind, name, ResourcePatternType.LITERAL, "User:viewer", "*", operation)
    rule = (*what, AclPermissionType.DENY)
    admin = AdminClient(lab.client_properties())
    (made,) = admin.create_acls([AclBinding(*rule)]).values()
    made.result(20)
    try:
        yield
    finally:
        (gone,) = admin.delete_acls([AclBindingFilter(*rule)]).values()
        gone.result(20)


@pytest.mark.parametrize(
    ("kind", "operation", "rule"),
    [
        (ResourceType.TOPIC, AclOperation.READ, "history-not-read"),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, "log-says-open"),
    ],
)
def test_what_a_denied_user_cannot_know(
    secure_lab: Lab, kind: ResourceType, operation: AclOperation, rule: str
) -> None:
    """A DENY hides the id or the log without an error; no orphan is made of that."""
    orphan, live = break_(secure_lab, "orphan", variant="foreign", hold=False)
    about = orphan if kind is ResourceType.TOPIC else live
    name = "__transaction_state" if kind is ResourceType.TOPIC else live.transactional_id or ""
    with denied(secure_lab, kind, name, operation):
        found = judged(
            secure_lab,
            about.topic,
            properties=secure_lab.client_properties(user="viewer"),
            sample_interval=0.3,
        ).judged
    (seen,) = [j for j in found if j.about.partition == about.partition]
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", rule)
    assert seen.verdict.remedy.action == "none"


@pytest.mark.parametrize(
    ("user", "rule"), [("no-txn", "coordinators-not-seen"), ("no-topic-read", "producers-not-seen")]
)
def test_what_a_user_without_a_right_cannot_know(secure_lab: Lab, user: str, rule: str) -> None:
    (orphan,) = break_(secure_lab, "orphan", hold=False)
    properties = secure_lab.client_properties(user=user)
    (seen,) = judged(secure_lab, orphan.topic, properties=properties).judged
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", rule)


def test_what_cannot_be_fenced_unseen(secure_lab: Lab, topic: MakeTopic) -> None:
    """Past a limit, and what lies below it, or whether it holds anything, may not be seen."""
    held, idle = topic(secure_lab), topic(secure_lab)
    kept = []

    async def begin() -> None:
        async with Client.of(secure_lab.client_properties()) as client:
            for where in (held, idle):
                producer = await Producer.init(client, f"{where}.id", version=1)
                await producer.add_partition(where, 0)
                kept.append(producer)
            await kept[0].send(held, 0, batch(1, "open"))

    asyncio.run(begin())
    late = Settings(long_after=1, clock_skew=1)
    with denied(secure_lab, ResourceType.TOPIC, STATE, AclOperation.READ):
        viewer = secure_lab.client_properties(user="viewer")
        (seen,) = judged(secure_lab, held, settings=late, properties=viewer).judged
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", "earlier-decision-not-excluded")
    reader = secure_lab.client_properties(user="no-topic-read")
    ids = judged(secure_lab, settings=late, properties=reader).ids
    rules = {j.name: (j.verdict.name, j.verdict.rule) for j in ids}
    assert rules[f"{idle}.id"] == ("unknown", "holds-not-known")


def test_a_group_whose_partition_may_not_be_read(secure_lab: Lab) -> None:
    """Who holds it is hidden: nothing is made of what the log does not show."""
    (truth,) = break_(secure_lab, "offsets-orphan")
    hidden = (ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)
    with denied(secure_lab, *hidden):
        found = judged(
            secure_lab,
            f"__consumer_offsets:{truth.partition}",
            properties=secure_lab.client_properties(user="viewer"),
            sample_interval=0.3,
        )
    (seen,) = found.judged
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", "producers-not-seen")
    assert seen.verdict.remedy.action == "none"
    assert "grant READ" in remedy_words(seen.verdict.remedy.does)
    assert found.missing


@pytest.fixture(scope="module")
def pair(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers that let a restarted one in again soon."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    found = start_lab(LabSpec(name="rulepair", brokers=2, settings=settings))
    yield found
    found.down()


def test_what_was_decided_and_has_no_marker(pair: Lab) -> None:
    """A lost ABORT, a lost COMMIT of group offsets, one under the id's next transaction."""
    (aborted,) = break_(pair, "marker-lost", outcome="abort")
    (offsets,) = break_(pair, "offsets-marker-lost")
    (mixed,) = break_(pair, "marker-lost", later="open")
    found = (
        *judged(pair, sample_interval=0.5).judged,
        *judged(pair, "__consumer_offsets", sample_interval=0.5).judged,
    )
    seen = {j.about.topic_partition: j for j in found if j.about.topic != "__transaction_state"}

    def told(truth: GroundTruth) -> tuple[object, ...]:
        verdict = seen[truth.topic_partition].verdict
        return verdict.name, verdict.rule, verdict.mixed, verdict.proven_outcome

    assert told(aborted) == ("marker-lost", "marker-not-written", False, "abort")
    assert told(offsets) == ("marker-lost", "marker-not-written", False, "commit")
    assert told(mixed) == ("marker-lost", "earlier-marker-lost", True, "commit")
    # a restart of that group fences nobody: its offsets wait for a marker
    partition = f"{offsets.group_topic}:{offsets.group_partition}"
    words = ("--group", offsets.group or "", "--topic", partition, "--to-earliest")
    act = ("--fence", "--execute", "--yes")
    refused = eoctl("restart", "plan", *words, *act, lab=pair)
    assert refused.status == 4, refused.stdout + refused.stderr
    assert f"eoctl txn resolve {offsets.topic}:{offsets.partition}" in refused.stderr
    assert "EndTxn" not in refused.stderr
    lost = seen[TopicPartition(aborted.topic, 0)]
    assert rule_of(lost, second=None) == "lost-seen-once"
    # its coordinator moves during the second look: it may still be in Prepare*
    assert lost.second is not None
    moving = replace(
        lost.second.transactions,
        rows=(),
        coordinators=tuple(replace(c, seen=False) for c in lost.second.transactions.coordinators),
    )
    unseen = replace(lost.second, transactions=moving)
    assert rule_of(lost, second=unseen) == "decider-not-seen"


ROLLED = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
EAGER = {"log.cleaner.backoff.ms": "100"}
RULES_OF_THE_PAST = (
    "decisions-differ",
    "written-beyond-decision",
    "order-unclear",
    "earlier-decision-compacted",
    "history-compacted",
    "history-unreadable",
    "earlier-decision-compacted",
    "history-compacted",
)
"""Each on the partition of its number."""


async def plant_the_past(lab: Lab, topic: str, read: Callable[[], None]) -> None:
    """Two outages of the partitions' one replica; between them `__transaction_state` is compacted.

    read: called once all epochs have begun, and before anything is decided on the last ones.

    Two of RULES_OF_THE_PAST are late writes. In the last two an ABORT of v1 loses its marker. Then
    a client of v2 resumes and commits the next transaction of that epoch, and loses its marker
    too; or the client learns of v2 and writes on with its epoch: it is not added to any.
    """
    async with Client.of(lab.client_properties()) as to_all:
        stage = Stage("rules", Options(), to_all, lab)
        async with stoppable(stage) as victim:
            client = stage.client
            size, ids = len(RULES_OF_THE_PAST), []
            await client.until(lambda: client.coordinator("lab"))
            await admin.create_topic(client, topic, size, 1, replicas=[[victim]] * size)
            homes = await _names_by_home(client)
            others = iter(sorted(homes))
            shared = next(others)  # one compaction serves two ids
            names = [homes[next(others)][0] for _ in range(3)] + homes[shared][:2]
            for number, name in enumerate(names):
                version = 1 if number >= 2 else 2
                producer = await Producer.init(client, name, 600_000, version=version)
                await producer.send(topic, number, batch(1, "first"))
                if version == 1:
                    await producer.commit()
                ids.append(producer)
            differ, beyond, twice, hidden, gone = ids
            rows = await client.producers(topic, 2)
            epoch = rows[twice.producer_id].coordinator_epoch or 0
            target = BreakTarget(topic, 2, names[2])
            await write_marker(client, target, twice, commit=True, coordinator_epoch=epoch)
            hidden = await Producer.init(client, names[3], 600_000, version=1)
            for producer, number in ((twice, 2), (hidden, 3)):
                await producer.send(topic, number, batch(1, "second"))
            resumed = await Producer.init(client, homes[shared][2], 600_000, version=1)
            await resumed.send(topic, 6, batch(1, "aborted"))
            learns = await Producer.init(client, homes[shared][3], 600_000, version=1)
            await learns.send(topic, 7, batch(1, "aborted"))
            await asyncio.to_thread(read)
            lost = [differ, beyond, twice, hidden, resumed, learns]
            async with stopped(stage, victim):
                for producer in lost:
                    await producer.end(commit=producer not in (resumed, learns))
                    await producer.completed()
            await differ.send(topic, 0, batch(1, "next"))
            await hidden.send(topic, 3, batch(1, "next"))
            await resumed.send(topic, 6, batch(1, "next"))
            learns.version = 2
            await learns.send(topic, 7, batch(1, "next"))
            seen = await client.transaction(homes[shared][3])
            assert seen is not None
            assert seen.state == "CompleteAbort"
            await compacted(client, shared, hidden, topic, 4)
            async with stopped(stage, victim):
                await differ.end(commit=False)
                await differ.completed()
                resumed.version, epoch = 2, resumed.epoch
                await resumed.end(commit=True)
                assert resumed.epoch == epoch + 1
                await resumed.completed()
                await Producer.init(client, names[3], version=1)  # fenced: the server's abort
            home = next(others)
            odd = await Producer.init(client, homes[home][0])
            beyond.sequences.clear()
            for producer, number in ((beyond, 1), (gone, 4), (odd, 5)):
                await write_stray(producer, topic, number)
            _write_unreadable(lab, home, homes[home][0])


async def _names_by_home(client: Client) -> dict[int, list[str]]:
    """Ids by the partition of `__transaction_state` that they belong to."""
    size = len(await client.partitions(STATE))
    found: dict[int, list[str]] = {}
    for number in range(1000):
        name = f"past-{number}"
        found.setdefault(coordinator_partition(name, size), []).append(name)
    return found


async def compacted(
    client: Client, home: int, producer: Producer, where: str, partition: int = 0
) -> None:
    """Of each id in that partition only its newest record so far is left."""
    brokers = [str(b) for b in client.cluster.brokers]
    first = (await client.batches(STATE, home))[0].base_offset
    await admin.set_config(client, TOPIC, STATE, ROLLED)
    for broker in brokers:
        await admin.set_config(client, BROKER, broker, EAGER)
    await asyncio.sleep(1.1)
    await producer.add_partition(where, partition)  # its record begins the next segment

    async def gone() -> None:
        if (await client.batches(STATE, home))[0].base_offset == first:
            raise WireError("NOT_YET", f"{STATE}-{home} was not compacted")

    await client.until(gone, also=frozenset({"NOT_YET"}))
    await admin.set_config(client, TOPIC, STATE, dict.fromkeys(ROLLED))
    for broker in brokers:
        await admin.set_config(client, BROKER, broker, dict.fromkeys(EAGER))


def _write_unreadable(lab: Lab, home: int, name: str) -> None:
    """A record of the id in a version that does not exist yet: a newer broker was here.

    Brokers take writes to this topic only from a client of this name.
    """
    properties = lab.client_properties() | {"client.id": "__admin_client"}
    tool = Librdkafka(properties)
    key = b"\0\0" + len(name).to_bytes(2, "big") + name.encode()
    errors: list[object] = []
    done = {"on_delivery": lambda error, _: errors.append(error)}
    tool.produce(STATE, key=key, value=b"\0\x63", partition=home, **done)
    tool.flush(20)
    assert errors == [None]


@pytest.mark.long
def test_what_the_past_does_not_tell(pair: Lab, tmp_path: Path) -> None:
    """A host that read before and after a decision was made and compacted away knows no more.

    Not even once the log is gone: the begin of the epoch and the next decision are in its cache.
    """
    where, env = "rules-of-the-past", environment(EOCTL_CACHE_DIR=str(tmp_path))

    def read() -> None:
        assert eoctl("txn", "history", "any", lab=pair, env=env).status == 0

    asyncio.run(plant_the_past(pair, where, read))
    found = judged(pair, where, sample_interval=0.5).judged
    rules = {j.about.partition: j.verdict.rule for j in found}
    assert rules == dict(enumerate(RULES_OF_THE_PAST))
    assert {j.verdict.name for j in found} == {"unknown"}
    assert {j.verdict.remedy.action for j in found} == {"none"}
    for _ in range(2):
        told = verdicts(pair, {where}, tmp_path)
        assert [told[where, n].rule for n in range(len(rules))] == list(RULES_OF_THE_PAST)
    asyncio.run(made_anew(pair))
    resumed = RULES_OF_THE_PAST.index("earlier-decision-compacted", 6)
    verdict = verdicts(pair, {where}, tmp_path)[where, resumed]
    assert (verdict.name, verdict.rule) == ("unknown", "earlier-decision-compacted")


async def made_anew(lab: Lab) -> None:
    """`__transaction_state` is deleted, and Kafka makes it again."""
    async with Client.to(lab.bootstrap_servers) as client:
        await delete_topic(client, STATE)
        await client.until(lambda: client.coordinator("anybody"))


def other_clusters(cache: Path) -> None:
    """Make of a cache what one of another cluster with the same id would be: other topic ids."""
    for path in cache.rglob("topics.json"):
        seen = json.loads(path.read_text())
        seen["topics"] = {
            name: {f"x{topic_id[1:]}": row for topic_id, row in ids.items()}
            for name, ids in seen["topics"].items()
        }
        path.write_text(json.dumps(seen))


@pytest.mark.long
def test_a_log_made_anew_and_who_has_read_the_one_before(pair: Lab, tmp_path: Path) -> None:
    """Who has decides by its cache and says so; who has not, or has another cluster's, cannot."""
    (lost,) = break_(pair, "marker-lost")

    def told(host: str) -> set[tuple[object, ...]]:
        return {
            (v.rule, v.proven_outcome, "cache" in {e.code for e in v.evidence})
            for v in verdicts(pair, {lost.topic}, tmp_path / host).values()
        }

    assert told("reader") == {("marker-not-written", "commit", False)}
    shutil.copytree(tmp_path / "reader", tmp_path / "stranger")
    other_clusters(tmp_path / "stranger")

    asyncio.run(made_anew(pair))
    for host in ("newcomer", "stranger"):
        assert told(host) == {("history-replaced", None, False)}, host
    for _ in range(2):
        assert told("reader") == {("marker-not-written", "commit", True)}


@pytest.mark.long
def test_a_coordinator_that_lost_its_decision_and_who_has_read_it(
    pair: Lab, tmp_path: Path
) -> None:
    """The log's end is cut off on every replica, so that a committed id looks open again.

    Who has read that end knows of the COMMIT: no fence, and its records can be delivered.
    """
    (truth,) = break_(pair, "marker-lost")
    where, name = {truth.topic}, truth.transactional_id or ""
    assert verdicts(pair, where, tmp_path)[truth.topic, 0].rule == "marker-not-written"
    state = f"{STATE}-{truth_home(pair, name)}"
    for broker in pair.broker_ids:  # both at once: alone, the second one has no quorum to leave
        pair.kill(broker)
    for broker in pair.broker_ids:
        cut_before_the_decision(pair.data_folder(broker) / state, name)
    up(pair.record.spec)
    verdict = verdicts(pair, where, tmp_path)[truth.topic, 0]
    assert (verdict.name, verdict.rule) == ("marker-lost", "earlier-marker-lost")
    assert (verdict.mixed, verdict.proven_outcome) == (True, "commit")
    assert "this host's cache" in " ".join(evidence_words(e) for e in verdict.evidence)
    env = environment(EOCTL_CACHE_DIR=str(tmp_path))
    fence = ("txn", "fence", name, "--owner-is-gone", "--sample-interval", "0.3s")
    refused = eoctl(*fence, "--execute", "--yes", lab=pair, env=env)
    assert refused.status == 4, refused.stdout + refused.stderr
    which = ("--pid", str(truth.producer_id), "--start-offset", str(truth.start_offset))
    resolve = ("txn", "resolve", f"{truth.topic}:0", *which, "--sample-interval", "0.3s")
    gone = ("--outcome", "commit", "--owner-is-gone", "--execute", "--yes")
    done = eoctl(*resolve, *gone, lab=pair, env=env)
    assert done.status == 0, done.stdout + done.stderr
    lost = [o for o in truth.offsets if o.content == "lost"]
    assert len(read_committed(pair, truth.topic, 0)) >= len(lost) > 0


def truth_home(lab: Lab, name: str) -> int:
    async def size() -> int:
        async with Client.of(lab.client_properties()) as client:
            return len(await client.partitions(STATE))

    return coordinator_partition(name, asyncio.run(size()))


def cut_before_the_decision(folder: Path, name: str) -> None:
    """Cut the log of a stopped broker off where the id's newest Prepare* stands."""
    (log,) = folder.glob("*.log")
    data = log.read_bytes()
    decided = max(
        header.position
        for header in batch_headers(data)
        for r in records(data, header)
        if r.key is not None
        and decode_key(r.key) == name
        and isinstance(value := decode_value(r.value), TransactionValue)
        and value.state is TransactionState.PREPARE_COMMIT
    )
    log.write_bytes(data[:decided])
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
        index.unlink()


def test_an_older_decision_does_not_stand_for_one_that_was_compacted_away_unread(
    pair: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Outputs and offsets in one transaction, then offsets alone: that decision nobody read."""
    scene = Scene.make(pair, topic, tmp_path, there=0)
    producer = owner(scene)
    transaction(scene, producer, outputs=4, offset=4)
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert check(row, "outputs-in-commit")["held"] is True
    transaction(scene, producer, offset=8)

    async def compact() -> None:
        async with Client.of(pair.client_properties()) as client:
            size = len(await client.partitions(STATE))
            home = coordinator_partition(f"{scene.group}-id", size)
            names = (f"{scene.group}-{n}" for n in range(1000))
            name = next(n for n in names if coordinator_partition(n, size) == home)
            other = await Producer.init(client, name, version=1)
            await compacted(client, home, other, scene.output)

    asyncio.run(compact())
    ran, row = planned(scene)
    assert ran.status == 0, ran.stderr
    assert row["inputs"][0]["restart_offset"] == 8
    assert check(row, "outputs-in-commit")["held"] is None
    assert "assumed" in row["because"]
