"""Stores of offsets in Kafka: groups of both protocols and compacted topics, on real brokers."""

import asyncio
import json
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.client import GROUP, Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer as Transactional
from eoctl.lab.record import LabSpec
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import OffsetStore
from eoctl.stores.offsets.topic import TopicOffsets
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.shared.app_file import App
from recovery.shared.store_tables import KafkaGroupStore, Store, TopicStore
from tests.kafka.conftest import MakeTopic
from tests.kafka.tools import kafka_tool
from tests.offset_stores import Open, change, kept, position, read, there_and_back
from tests.relay import Relay

OFFSET_COMMIT, OFFSET_DELETE = 8, 47


def opening(
    lab: Lab,
    described: Store,
    *,
    properties: dict[str, str] | None = None,
    hosts: dict[str, str] | None = None,
    read_only: bool = False,
    app: App | None = None,
    seconds: float = 30,
) -> Open:
    settings = client_settings(properties or lab.client_properties(), hosts=hosts)

    @asynccontextmanager
    async def opened() -> AsyncIterator[OffsetStore]:
        async with (
            Cluster(settings, Deadline(seconds), read_only=read_only) as cluster,
            open_store(described, cluster=cluster, app=app, seconds=seconds) as store,
        ):
            yield store

    return opened


def group(name: str, **more: Any) -> KafkaGroupStore:
    return KafkaGroupStore(kind="kafka-group", group=name, **more)


def committed(lab: Lab, name: str) -> dict[tuple[str, int], tuple[int, str, int | None]]:
    """What the coordinator tells kafka-python of a group.

    librdkafka would read on behind metadata that does not end in a NUL, into any memory.
    """
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMITTED, lab.bootstrap_servers, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {(t, p): (offset, text, epoch) for t, p, offset, text, epoch in json.loads(said.stdout)}


COMMITTED = """
import json, sys
from kafka.admin import KafkaAdminClient
found = KafkaAdminClient(bootstrap_servers=sys.argv[1]).list_group_offsets([sys.argv[2]])
rows = [[*partition[:2], at.offset, at.metadata or "", at.leader_epoch]
        for partition, at in found[sys.argv[2]].items()]
print(json.dumps(rows))
"""


def group_ids(lab: Lab) -> set[str]:
    listed = AdminClient(lab.client_properties()).list_consumer_groups().result(20)
    return {g.group_id for g in listed.valid}


def records(lab: Lab, topic: str, count: int) -> None:
    producer = Producer(lab.client_properties())
    for i in range(count):
        producer.produce(topic, str(i), b"key", partition=0)
    assert producer.flush(30) == 0


@contextmanager
def member(lab: Lab, name: str, protocol: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        end = time.monotonic() + 60
        while (message := consumer.poll(1)) is None:
            assert time.monotonic() < end
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_a_group_there_and_back(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=2)
    store = opening(lab1, group(f"g {name} ☃ '\";"))
    there_and_back(store, (TopicPartition(name, 0), TopicPartition(name, 1)))
    assert f"g {name} ☃ '\";" not in group_ids(lab1)


@pytest.mark.long
def test_a_group_of_kafka_2_8_there_and_back(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    lab = start_lab(LabSpec(name="stores-2.8", kafka_version="2.8.2"))
    try:
        name = topic(lab, partitions=2)
        there_and_back(
            opening(lab, group(f"g-{name}")), (TopicPartition(name, 0), TopicPartition(name, 1))
        )
        assert f"g-{name}" not in group_ids(lab)
    finally:
        lab.down()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_only_a_group_without_members_is_written(
    lab1: Lab, topic: MakeTopic, protocol: str
) -> None:
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    records(lab1, name, 5)
    store = opening(lab1, group(known))
    with member(lab1, known, protocol, name):
        found = read(store)
        assert found.facts == {"type": protocol, "state": "Stable", "members": 1}
        [entry] = found.entries
        with pytest.raises(RefusedError, match="the group is Stable with 1 member;"):
            change(store, (partition, entry.kept, kept(store, position(partition, 0))))
    # the application's own commit, with what it kept beside it
    assert committed(lab1, known) == {
        partition: (entry.kept["offset"], entry.kept["metadata"], entry.kept["leader_epoch"])
    }
    assert entry.kept["leader_epoch"] == 0
    after = kept(store, position(partition, 0, 3))
    change(store, (partition, entry.kept, after))
    [(offset, metadata, epoch)] = committed(lab1, known).values()
    assert (offset, metadata) == (
        0,
        '{"output":{"topic":"out","partition":7,"offset":3}}',
    )
    assert epoch in (None, -1)
    change(store, (partition, after, entry.kept))
    assert read(store).entries == found.entries
    change(store, (partition, entry.kept, None))
    found = read(store)
    assert (found.exists, found.entries, found.facts["type"]) == (True, (), protocol)


def test_a_member_that_comes_in_between_is_refused_by_the_broker(
    lab1: Lab, topic: MakeTopic
) -> None:
    """The coordinator itself takes no commit of a stranger once there are members."""
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    records(lab1, name, 1)
    store = opening(lab1, group(known))
    opened: list[Any] = []

    def join() -> None:
        opened.append(member(lab1, known, "classic", name))
        opened[0].__enter__()

    try:
        with pytest.raises(RefusedError, match=r"answered UNKNOWN_MEMBER_ID.*has members again"):
            change(store, (partition, None, kept(store, position(partition, 0))), held=join)
        assert committed(lab1, known)[partition][0] == 1
    finally:
        opened[0].__exit__(None, None, None)


def test_a_pending_commit_and_a_share_group_are_refused(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    records(lab1, name, 5)
    store = opening(lab1, group(known))
    change(store, (partition, None, kept(store, position(partition, 1))))

    async def pend() -> Transactional:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Transactional.init(client, name)
            await owner.send_offsets(known, {partition: 4})
            return owner

    asyncio.run(pend())
    found = read(store)
    assert [(o.topic, o.partition) for o in found.pending] == [partition]
    [entry] = found.entries  # the stable one
    assert entry.position.input.offset == 1
    with pytest.raises(RefusedError, match="an open transaction holds a commit"):
        change(store, (partition, entry.kept, kept(store, position(partition, 0))))
    share = f"share-{name}"
    kafka_tool(
        lab1,
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", lab1.bootstrap_servers, "--topic", name, "--group", share),
        *("--timeout-ms", "2000", "--max-messages", "1"),
    )
    with pytest.raises(RefusedError, match="a share group has no positions"):
        read(opening(lab1, group(share)))


def test_positions_that_a_group_keeps_as_the_last_processed(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    store = opening(lab1, group(known, position="last"))
    change(store, (partition, None, kept(store, position(partition, 5, 8))))
    assert committed(lab1, known)[partition][:2] == (
        4,
        '{"output":{"topic":"out","partition":7,"offset":7}}',
    )
    assert read(store).entries[0].position == position(partition, 5, 8)
    with pytest.raises(RefusedError, match="cannot keep that nothing was done yet"):
        kept(store, position(partition, 0))
    with pytest.raises(RefusedError, match="has no room for state"):
        kept(store, position(partition, 5, state=b"x"))


def test_metadata_that_is_too_large_or_damaged(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    store = opening(lab1, group(known))
    large = {"offset": 1, "leader_epoch": None, "metadata": "x" * 5000}
    with pytest.raises(RefusedError, match=r"OFFSET_METADATA_TOO_LARGE.*offset\.metadata\.max"):
        change(store, (partition, None, large))
    assert read(store).entries == ()
    change(store, (partition, None, {**large, "metadata": '{"output": 1}'}))
    with pytest.raises(IncompleteError, match=f"{name}:0: metadata"):
        read(store)
    # somebody else's words, which undo puts back as they are
    other = opening(lab1, group(f"{known}-other"))
    change(other, (partition, None, {**large, "metadata": '{"outputs'}))
    [entry] = read(other).entries
    assert (entry.kept["metadata"], entry.position) == ('{"outputs', position(partition, 1))
    after = kept(other, position(partition, 9))
    change(other, (partition, entry.kept, after))
    change(other, (partition, after, entry.kept))
    assert committed(lab1, f"{known}-other")[partition][:2] == (1, '{"outputs')


@pytest.mark.parametrize("api", [OFFSET_COMMIT, OFFSET_DELETE])
def test_an_answer_that_is_lost_is_looked_for(lab1: Lab, topic: MakeTopic, api: int) -> None:
    name = topic(lab1)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    direct = opening(lab1, group(known))
    one, two = kept(direct, position(partition, 1)), kept(direct, position(partition, 2))
    change(direct, (partition, None, one))
    after = two if api == OFFSET_COMMIT else None
    port = int(lab1.bootstrap_servers.rpartition(":")[2])

    def mine(data: bytes) -> bool:
        return len(data) > 6 and struct.unpack_from(">h", data, 4)[0] == api

    def arrived() -> bool:
        return read(direct).at(partition) is None or read(direct).entries[0].kept == after

    def relayed(relay: Relay) -> Open:
        return opening(lab1, group(known), hosts={lab1.bootstrap_servers: relay.address})

    relay = Relay(port, mine, arrived)
    change(relayed(relay), (partition, one, after))  # cut, looked, found done
    assert relay.cuts == 1
    relay.close()
    if after is not None:
        change(direct, (partition, after, one))
    else:
        change(direct, (partition, None, one))
    relay = Relay(port, mine, arrived, stay_cut=True)
    with pytest.raises(UnverifiedError, match="the coordinator's answer was lost"):
        change(relayed(relay), (partition, one, after))
    assert relay.cuts == 1
    relay.close()


@pytest.mark.long
def test_a_frozen_coordinator(lab3: Lab, topic: MakeTopic) -> None:
    """Frozen before: nothing was written. Frozen in between: nobody knows, and it says so."""
    name = topic(lab3, replicas=3)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    store = opening(lab3, group(known), seconds=8)
    one, two = kept(store, position(partition, 1)), kept(store, position(partition, 2))
    change(opening(lab3, group(known)), (partition, None, one))

    async def home() -> int:
        async with Client.to(lab3.bootstrap_servers) as client:
            return await client.coordinator(known, GROUP)

    broker = asyncio.run(home())
    begin = time.monotonic()
    try:
        with pytest.raises((UnverifiedError, RefusedError)) as trouble:
            change(store, (partition, one, two), held=lambda: lab3.freeze(broker))
    finally:
        lab3.thaw(broker)
    assert time.monotonic() - begin < 15
    end = time.monotonic() + 30
    while True:
        try:
            [entry] = read(opening(lab3, group(known))).entries
            break
        except IncompleteError:
            assert time.monotonic() < end
    if isinstance(trouble.value, RefusedError):
        assert entry.kept == one
    assert entry.kept in (one, two)


def test_rights_that_are_missing(secure_lab: Lab, topic: MakeTopic) -> None:
    name = topic(secure_lab)
    partition, known = TopicPartition(name, 0), f"g-{name}"
    mine = opening(secure_lab, group(known))
    one, two = kept(mine, position(partition, 1)), kept(mine, position(partition, 2))
    change(mine, (partition, None, one))
    viewer = opening(secure_lab, group(known), properties=secure_lab.client_properties("viewer"))
    assert read(viewer).entries[0].kept == one
    with pytest.raises(RefusedError, match="AUTHORIZATION_FAILED"):
        change(viewer, (partition, one, two))
    nobody = opening(secure_lab, group(known), properties=secure_lab.client_properties("nobody"))
    with pytest.raises(IncompleteError, match="AUTHORIZATION_FAILED"):
        read(nobody)
    with pytest.raises(RefusedError, match="the context is read-only"):
        change(opening(secure_lab, group(known), read_only=True), (partition, one, two))
    assert read(mine).entries[0].kept == one


def in_topic(name: str, key: str | None, **more: Any) -> TopicStore:
    return TopicStore(kind="topic", topic=name, key=key, **more)


def compacted(lab: Lab, topic: MakeTopic, partitions: int = 2) -> str:
    return topic(lab, partitions=partitions, config={"cleanup.policy": "compact"}, name="store")


def produced(lab: Lab, name: str, key: bytes, value: bytes | None, partition: int = -1) -> None:
    producer = Producer(lab.client_properties() | {"partitioner": "murmur2_random"})
    producer.produce(name, value, key, partition=partition)
    assert producer.flush(30) == 0


def everything(lab: Lab, name: str, isolation: str = "read_committed") -> list[Any]:
    """(partition, key, value) as librdkafka's consumer reads the topic."""
    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": "oracle",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    partitions = consumer.list_topics(name, 10).topics[name].partitions
    consumer.assign([ConfluentPartition(name, p, 0) for p in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ends += 1
        else:
            found.append((message.partition(), message.key(), message.value()))
    consumer.close()
    return found


def test_a_record_there_and_back(lab1: Lab, topic: MakeTopic) -> None:
    name, key = compacted(lab1, topic), "my app's ☃"
    produced(lab1, name, b"another's key", b"kept", 0)
    store = opening(lab1, in_topic(name, key))
    there_and_back(
        store,
        (TopicPartition("orders", 0), TopicPartition("orders", 3)),
        state=b"\x00\xff",
        merge=7,
    )
    records_of_key = [row for row in everything(lab1, name) if row[1] == key.encode()]
    assert records_of_key[-1][2] is None  # a tombstone
    assert len({partition for partition, _, _ in records_of_key}) == 1
    before = len(records_of_key)
    produced(lab1, name, key.encode(), b'{"partitions": []}')  # where Java would put it
    [*_, last] = [row for row in everything(lab1, name) if row[1] == key.encode()][before:]
    assert last[0] == records_of_key[0][0]
    assert read(store).exists


def test_the_value_is_what_a_read_committed_reader_sees(lab1: Lab, topic: MakeTopic) -> None:
    name, partition = compacted(lab1, topic, 1), TopicPartition("orders", 0)
    store = opening(lab1, in_topic(name, "k"))
    one, two = kept(store, position(partition, 1)), kept(store, position(partition, 2))
    change(store, (partition, None, one))
    records(lab1, name, 3000)  # more than the first look reads
    other = b'{"partitions":[{"input":{"topic":"orders","partition":0,"offset":9}}]}'

    async def transact(*, end: bool) -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Transactional.init(client, name)
            await owner.send(name, 0, [NewRecord(other, key=b"k")])
            if end:
                await owner.abort()

    asyncio.run(transact(end=True))
    assert [e.kept for e in read(store).entries] == [one]
    asyncio.run(transact(end=False))
    assert [e.kept for e in read(store).entries] == [one]
    with pytest.raises(RefusedError, match="an open transaction holds the key"):
        change(store, (partition, one, two))


def test_a_writer_beside_us_is_found_afterwards(lab1: Lab, topic: MakeTopic) -> None:
    name, partition = compacted(lab1, topic, 1), TopicPartition("orders", 0)
    store = opening(lab1, in_topic(name, "k"))
    one, two = kept(store, position(partition, 1)), kept(store, position(partition, 2))
    change(store, (partition, None, one))
    theirs = b'{"partitions":[{"input":{"topic":"orders","partition":0,"offset":9}}]}'
    with pytest.raises(UnverifiedError, match="another writer's record is at offset 1"):
        change(store, (partition, one, two), held=lambda: produced(lab1, name, b"k", theirs))
    assert [e.kept for e in read(store).entries] == [two]


def test_a_writer_beside_us_is_found_without_an_answer_too(lab1: Lab, topic: MakeTopic) -> None:
    name, value = compacted(lab1, topic, 1), b'{"partitions": []}'

    async def written(times: int) -> None:
        async with opening(lab1, in_topic(name, "k"))() as store:
            assert isinstance(store, TopicOffsets)
            found = await store._find()
            for _ in range(times):
                produced(lab1, name, b"k", value)
            await store._look_for_others(found, None)

    asyncio.run(written(1))  # ours alone
    with pytest.raises(UnverifiedError, match="another writer's record is at offset 1"):
        asyncio.run(written(2))


def test_damaged_records(lab1: Lab, topic: MakeTopic) -> None:
    name, topic_partition = compacted(lab1, topic), TopicPartition("orders", 0)
    for key, value in (("a", b"nonsense"), ("b", b"\xff"), ("c", b'{"partitions": [], "x": 1}')):
        produced(lab1, name, key.encode(), value)
        store = opening(lab1, in_topic(name, key))
        with pytest.raises(CorruptError, match=f"topic {name} key {key}"):
            read(store)
        with pytest.raises(RefusedError, match=f"topic {name} key {key}.*nothing was written"):
            change(store, (topic_partition, None, kept(store, position(topic_partition, 1))))
    store = opening(lab1, in_topic(name, "large"))
    with pytest.raises(RefusedError, match="MSG_SIZE_TOO_LARGE; nothing was written"):
        change(
            store,
            (
                topic_partition,
                None,
                kept(store, position(topic_partition, 1, state=b"x" * 2_000_000)),
            ),
        )
    for partition in (0, 1):
        produced(lab1, name, b"d", b'{"partitions": []}', partition)
    with pytest.raises(CorruptError, match="the key is in the partitions 0 and 1"):
        read(opening(lab1, in_topic(name, "d")))
    with pytest.raises(IncompleteError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        read(opening(lab1, in_topic("no-such-topic", "d")))


@pytest.mark.long
def test_a_broker_that_freezes_before_the_record_comes(lab1: Lab, topic: MakeTopic) -> None:
    name, partition = compacted(lab1, topic, 1), TopicPartition("orders", 0)
    store = opening(lab1, in_topic(name, "k"), seconds=3)
    one, two = kept(store, position(partition, 1)), kept(store, position(partition, 2))
    change(store, (partition, None, one))
    begin = time.monotonic()
    try:
        with pytest.raises(UnverifiedError, match="no answer to what was produced"):
            change(store, (partition, one, two), held=lambda: lab1.freeze(1))
    finally:
        lab1.thaw(1)
    assert time.monotonic() - begin < 10
    time.sleep(1)
    values = [value for _, key, value in everything(lab1, name) if key == b"k"]
    assert len(values) in (1, 2)  # once or not at all
    assert [e.kept for e in read(store).entries] in ([one], [two])


def test_rights_on_a_topic(secure_lab: Lab, topic: MakeTopic) -> None:
    name, partition = compacted(secure_lab, topic, 1), TopicPartition("orders", 0)
    mine = opening(secure_lab, in_topic(name, "k"))
    one = kept(mine, position(partition, 1))
    viewer = secure_lab.client_properties("viewer")
    with pytest.raises(RefusedError, match="AUTHORIZATION_FAILED"):
        change(opening(secure_lab, in_topic(name, "k"), properties=viewer), (partition, None, one))
    with pytest.raises(RefusedError, match="the context is read-only"):
        change(opening(secure_lab, in_topic(name, "k"), read_only=True), (partition, None, one))
    assert read(mine).entries == ()


def test_a_changelog_is_read_and_never_written(lab1: Lab, topic: MakeTopic) -> None:
    name = compacted(lab1, topic, 2)
    app = App(
        name="enricher",
        strategy="changelog",
        inputs=("orders",),
        outputs=("out",),
        store=in_topic(name, None),
    )
    for upstream, downstream, partition in ((3, 5, 0), (8, 9, 1), (4, 7, 0)):
        value = struct.pack(">qqi", upstream, downstream, 5) + b"state"
        produced(lab1, name, b"\0\0\0\1k", value, partition)
    store = opening(lab1, in_topic(name, None), app=app)
    found = read(store)
    assert [(e.position.input.offset, e.position.output[0].offset) for e in found.entries] == [
        (4, 7),
        (8, 9),
    ]
    assert [e.topic_partition for e in found.entries] == [("orders", 0), ("orders", 1)]
    with pytest.raises(RefusedError, match="never written"):
        change(store, (TopicPartition("orders", 0), found.entries[0].kept, None))
