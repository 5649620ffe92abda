"""Groups and their offsets against Kafka's own tools and what `lab break offsets-pending` knows."""

import asyncio
import json
import re
import time
import zipfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Producer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eoctl.kafka.ask.groups import describe_groups, find_groups, list_groups
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.committed import with_offsets
from eoctl.lab.breaks import break_
from eoctl.lab.client import GROUP, Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.values import replace
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.tools import kafka_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
T = TypeVar("T")


def ask(
    lab: Lab, use: Callable[[Cluster], Awaitable[T]], properties: dict[str, str] | None = None
) -> T:
    settings = client_settings(properties or lab.client_properties())

    async def run() -> T:
        async with Cluster(settings, Deadline(60)) as cluster:
            return await use(cluster)

    return asyncio.run(run())


def produce(lab: Lab, topic: str, count: int, partition: int = 0) -> None:
    producer = Confluent(lab.client_properties())
    for i in range(count):
        producer.produce(topic, str(i), partition=partition)
    assert producer.flush(30) == 0


def commit(lab: Lab, group: str, topic: str, offset: int) -> None:
    """Commit an offset for partition 0 as a client that is no member."""
    committer = Consumer(lab.client_properties() | {"group.id": group})
    end = time.monotonic() + 30
    while True:
        try:
            committer.commit(offsets=[ConfluentPartition(topic, 0, offset)], asynchronous=False)
            break
        except KafkaException:  # coordinators are elected, and move when a broker comes back
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    committer.close()


@contextmanager
def consumer(lab: Lab, group: str, protocol: str, topic: str) -> Iterator[Consumer]:
    """A member that has read one record and committed it."""
    member = Consumer(
        lab.client_properties()
        | {
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    try:
        message = None
        end = time.monotonic() + 60
        while message is None and time.monotonic() < end:
            message = member.poll(1)
        assert message is not None
        assert message.error() is None
        member.commit(message, asynchronous=False)
        yield member
    finally:
        member.close()


def tool(lab: Lab, *words: str) -> list[dict[str, str]]:
    """The rows of kafka-consumer-groups."""
    done = kafka_tool(lab, TOOL, "--bootstrap-server", lab.bootstrap_servers, *words)
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    (at,) = [i for i, line in enumerate(lines) if line[0] == "GROUP"][:1]
    return [dict(zip(lines[at], line, strict=False)) for line in lines[at + 1 :]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_as_the_tool_shows_it(lab1: Lab, topic: MakeTopic, protocol: str) -> None:
    name = topic(lab1)
    group = f"g-{name}"
    produce(lab1, name, 7)
    with consumer(lab1, group, protocol, name):
        (theirs,) = tool(lab1, "--describe", "--group", group)
        (state,) = tool(lab1, "--describe", "--group", group, "--state")

        async def use(cluster: Cluster) -> Any:
            listed, missing = await list_groups(cluster)
            found, more = await find_groups(cluster, [group])
            found, rest = await with_offsets(cluster, found)
            return listed, found, [*missing, *more, *rest]

        listed, (mine,), missing = ask(lab1, use)
        ran = eoctl("offsets", "show", "--group", group, "--count", "-o", "json", lab=lab1)
    assert missing == []
    (in_list,) = [g for g in listed if g.group == group]
    assert in_list == replace(mine, members=None, offsets=(), protocol=in_list.protocol)
    assert (mine.state, mine.type) == (state["STATE"], protocol)
    assert state["STATE"] == "Stable"
    ((client, host),) = mine.members
    assert (client, f"/{host}") == (theirs["CLIENT-ID"], theirs["HOST"])
    (offset,) = mine.offsets
    assert (offset.topic, offset.partition) == (theirs["TOPIC"], int(theirs["PARTITION"]))
    assert (offset.committed_offset, offset.pending) == (int(theirs["CURRENT-OFFSET"]), False)
    (row,) = ran.rows
    assert ran.status == 0
    assert row["lag_hw"] == int(theirs["LAG"])
    assert row["high_watermark"] == int(theirs["LOG-END-OFFSET"])
    assert (row["lag"], row["data_records"], row["pending"]) == (6, 6, False)


def test_every_group_of_three_brokers_is_listed(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3, partitions=1, replicas=3)
    produce(lab3, name, 3)
    names = [f"{name}-{i}" for i in range(12)]
    for i, group in enumerate(names):
        commit(lab3, group, name, i % 3)

    async def use(cluster: Cluster) -> Any:
        listed, missing = await list_groups(cluster)
        described, more = await describe_groups(cluster, listed)
        found, rest = await with_offsets(cluster, described)
        at, last = await with_offsets(cluster, listed, [TopicPartition(name, 0)])
        return listed, found, [g for g in at if g.offsets], [*missing, *more, *rest, *last]

    end = time.monotonic() + 30
    while True:  # leaders and coordinators may still move back to a broker that came back
        listed, found, at, missing = ask(lab3, use)
        if not missing:
            break
        assert time.monotonic() < end, missing
        time.sleep(0.2)
    theirs = kafka_tool(lab3, TOOL, "--bootstrap-server", lab3.bootstrap_servers, "--list")
    assert sorted(g.group for g in listed) == sorted(theirs.stdout.split())
    mine = {g.group: g for g in found if g.group in names}

    async def coordinators() -> dict[str, int]:
        async with Client.to(lab3.bootstrap_servers) as client:
            return {group: await client.coordinator(group, GROUP) for group in names}

    assert {name: g.coordinator for name, g in mine.items()} == asyncio.run(coordinators())
    assert all(g.members == () and g.state == "Empty" for g in mine.values())
    expected = {group: [(name, 0, i % 3)] for i, group in enumerate(names)}
    for groups in (mine.values(), at):
        seen = {
            g.group: [(o.topic, o.partition, o.committed_offset) for o in g.offsets] for g in groups
        }
        assert seen == expected


def test_pending_commits_and_the_last_stable_offset(lab1: Lab) -> None:
    truths = break_(lab1, "offsets-pending", count=3, hold=False)
    groups = [t.group for t in truths if t.group]
    words = [word for group in groups for word in ("--group", group)]
    ran = eoctl("offsets", "show", *words, "-o", "json", lab=lab1)
    assert (ran.status, ran.json["complete"]) == (0, True)
    rows = {r["group"]: r for r in ran.rows}
    for truth in truths:
        row = rows[truth.group]
        assert (row["topic"], row["partition"]) == (truth.group_topic, truth.group_partition)
        assert row["committed_offset"] == truth.committed_offset != truth.pending_offset
        assert row["pending"] is True
        assert row["pending_producer_id"] == truth.producer_id
    table = eoctl("offsets", "show", *words, lab=lab1)
    for truth in truths:
        (line,) = [line for line in table.stdout.splitlines() if f" {truth.group} " in line]
        assert line.startswith("!")
        assert line.endswith(f"pid {truth.producer_id}")


def test_a_first_commit_that_is_pending_is_not_overlooked(lab1: Lab, topic: MakeTopic) -> None:
    """Asked for all topics, the coordinator does not list it."""
    name = topic(lab1, partitions=2)
    group = f"first-{name}"

    async def make() -> Producer:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            await owner.send_offsets(group, {TopicPartition(name, 1): 0})
            return owner

    owner = asyncio.run(make())
    for words in (("--group", group), ("--group", group, name), (name,)):
        ran = eoctl("offsets", "show", *words, "-o", "json", lab=lab1)
        (row,) = ran.rows
        assert (row["group"], row["topic"], row["partition"]) == (group, name, 1)
        assert (row["committed_offset"], row["pending"], row["lag"]) == (None, True, None)
        assert row["pending_producer_id"] == owner.producer_id

    async def committed(cluster: Cluster, partition: int) -> list[str]:
        listed, missing = await list_groups(cluster)
        groups, more = await with_offsets(cluster, listed, [TopicPartition(name, partition)])
        assert missing + more == []
        return [g.group for g in groups if g.offsets]

    assert ask(lab1, lambda c: committed(c, 1)) == [group]
    assert ask(lab1, lambda c: committed(c, 0)) == []


def test_lag_counts_up_to_the_lso_and_data_records_only_what_is_seen(
    lab1: Lab, topic: MakeTopic
) -> None:
    name = topic(lab1)

    async def make() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            await owner.send(name, 0, [NewRecord(b"c")] * 3)  # 0..2, marker 3
            await owner.commit()
            await owner.send(name, 0, [NewRecord(b"a")] * 2)  # 4..5, marker 6
            await owner.abort()
            await client.plain(name, 0, [NewRecord(b"p")] * 2)  # 7..8
            await owner.send(name, 0, [NewRecord(b"o")] * 4)  # 9..12, open

    asyncio.run(make())
    committed = {f"{name}-{offset}": offset for offset in (0, 1, 5, 9, 11)}
    for group, offset in committed.items():
        commit(lab1, group, name, offset)
    ran = eoctl("offsets", "show", name, "--count", "-o", "json", lab=lab1)
    assert ran.status == 0
    assert {
        r["committed_offset"]: (r["lag"], r["lag_hw"], r["data_records"]) for r in ran.rows
    } == {
        0: (9, 13, 5),
        1: (8, 12, 4),
        5: (4, 8, 2),
        9: (0, 4, 0),
        11: (-2, 2, 0),
    }
    uncounted = eoctl("offsets", "show", name, "-o", "json", lab=lab1)
    assert {r["data_records"] for r in uncounted.rows} == {None}
    marked = eoctl("offsets", "show", name, lab=lab1).stdout.splitlines()
    assert [
        line.split()[1].removeprefix(f"{name}-") for line in marked if line.startswith("!")
    ] == [
        "11",
        "9",
    ]


def test_share_groups_stand_at_their_start_offset(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    group = f"share-{name}"
    produce(lab1, name, 5)
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    group_config = ("--entity-type", "groups", "--entity-name", group)
    setting = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    kafka_tool(lab1, "kafka.admin.ConfigCommand", *server, *group_config, *setting)
    reading = ("--topic", name, "--group", group, "--max-messages", "3", "--timeout-ms", "30000")
    kafka_tool(lab1, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", *server, *reading)
    shown = kafka_tool(
        lab1,
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *server,
        *("--describe", "--group", group),
    )
    (theirs,) = [line.split() for line in shown.stdout.splitlines() if name in line.split()]
    ran = eoctl("offsets", "show", "--group", group, "-o", "json", lab=lab1)
    assert (ran.status, ran.json["groups"]) == (
        0,
        [{"group": group, "type": "share", "state": "Empty"}],
    )
    (row,) = ran.rows
    assert theirs[:4] == [group, name, "0", str(row["committed_offset"])]
    past = eoctl("offsets", "history", group, lab=lab1)
    assert (past.status, "a share group commits no offsets" in past.text) == (4, True)


def test_a_group_that_does_not_exist(lab1: Lab) -> None:
    ran = eoctl("offsets", "show", "--group", "nobody's", "-o", "json", lab=lab1)
    assert (ran.status, ran.rows) == (3, [])
    (error,) = ran.json["errors"]
    assert (error["id"], error["error"]) == ("nobody's", "GROUP_ID_NOT_FOUND")


def test_what_is_denied_is_said(secure_lab: Lab, topic: MakeTopic) -> None:
    name = topic(secure_lab)
    group = f"g-{name}"
    produce(secure_lab, name, 1)
    commit(secure_lab, group, name, 1)

    def as_user(user: str) -> list[str]:
        properties = secure_lab.client_properties(user)
        return [f"-X{key}={value}" for key, value in properties.items()]

    ran = eoctl("offsets", "show", "--group", group, "-o", "json", *as_user("viewer"))
    assert (ran.status, [r["committed_offset"] for r in ran.rows]) == (0, [1])
    ran = eoctl("offsets", "show", "-o", "json", *as_user("viewer"))
    assert (ran.status, group in [r["group"] for r in ran.rows]) == (0, True)
    # all that a user without rights is given by the brokers are empty lists, without an error
    ran = eoctl("offsets", "show", "-o", "json", *as_user("nobody"))
    assert (ran.status, ran.rows) == (3, [])
    assert ran.json["errors"]
    ran = eoctl("offsets", "show", "--group", group, "-o", "json", *as_user("nobody"))
    assert (ran.status, ran.rows) == (3, [])
    assert "GROUP_AUTHORIZATION_FAILED" in {e["error"] for e in ran.json["errors"]}
    ran = eoctl("offsets", "history", group, "-o", "json", *as_user("nobody"))
    assert (ran.status, ran.rows, ran.json["whole"]) == (3, [], False)
    denied = {"GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"}
    assert {e["error"] for e in ran.json["errors"]} == denied


def test_a_named_group_needs_no_look_at_the_internal_topic(
    secure_lab: Lab, topic: MakeTopic
) -> None:
    """Managed clusters hide it; the brokers still tell who coordinates a group."""
    name = topic(secure_lab)
    group = f"g-{name}"
    produce(secure_lab, name, 3)
    commit(secure_lab, group, name, 2)
    admin = AdminClient(secure_lab.client_properties())
    deny = (
        *(ResourceType.TOPIC, "__consumer_offsets", ResourcePatternType.LITERAL),
        *("User:viewer", "*", AclOperation.DESCRIBE, AclPermissionType.DENY),
    )
    properties = secure_lab.client_properties("viewer")
    words = ["-o", "json", *(f"-X{key}={value}" for key, value in properties.items())]
    (made,) = admin.create_acls([AclBinding(*deny)]).values()
    made.result(20)
    try:
        ran = eoctl("offsets", "show", "--group", group, *words)
        every = eoctl("offsets", "show", *words)
    finally:
        (gone,) = admin.delete_acls([AclBindingFilter(*deny)]).values()
        gone.result(20)
    assert (ran.status, [r["committed_offset"] for r in ran.rows]) == (0, [2])
    assert group in {r["group"] for r in every.rows}
    # but whether these are all groups cannot be proven
    assert (every.status, every.json["errors"][0]["topic"]) == (3, "__consumer_offsets")


@pytest.mark.long
def test_a_coordinator_that_moves_is_followed(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3, replicas=3)
    produce(lab3, name, 3)
    group = f"g-{name}"
    commit(lab3, group, name, 2)

    async def home() -> int:
        async with Client.to(lab3.bootstrap_servers) as client:
            return await client.coordinator(group, GROUP)

    before = asyncio.run(home())
    try:
        lab3.terminate(before)

        async def use(cluster: Cluster) -> Any:
            found, missing = await find_groups(cluster, [group])
            found, more = await with_offsets(cluster, found, [TopicPartition(name, 0)])
            return found, [*missing, *more]

        end = time.monotonic() + 60
        while True:  # Metadata may still name the broker that went
            found, missing = ask(lab3, use)
            if not missing:
                break
            assert time.monotonic() < end, missing
        assert found[0].coordinator != before
        assert [o.committed_offset for o in found[0].offsets] == [2]
    finally:
        with suppress(UsageError):  # had it not stopped in time, it would after `start` saw it
            lab3.kill(before)
        lab3.start(before)


def test_a_frozen_coordinator_is_missed_and_named(lab3: Lab, topic: MakeTopic) -> None:
    commit(lab3, "some-group", topic(lab3, replicas=3), 0)

    async def home() -> int:
        async with Client.to(lab3.bootstrap_servers) as client:
            return await client.coordinator("some-group", GROUP)

    broker = asyncio.run(home())
    lab3.freeze(broker)
    try:
        listed, missing = ask(lab3, list_groups)
    finally:
        lab3.thaw(broker)
    assert "some-group" not in {g.group for g in listed}
    assert ("coordinator", broker) in {(m.scope, m.broker) for m in missing}


def test_our_schemas_are_kafkas(lab1: Lab) -> None:
    """Field by field, against the message definitions in the clients' jar."""
    (jar,) = [p for p in lab1.classpath().split(":") if Path(p).name.startswith("kafka-clients-")]
    with zipfile.ZipFile(jar) as archive:
        for name in messages.OWN_SCHEMAS:
            for kind in ("Request", "Response"):
                text = archive.read(f"common/message/{name}{kind}.json").decode()
                theirs = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
                ours = files("eoctl.kafka.connection.schemas") / f"{name}{kind}.json"
                assert json.loads(ours.read_text()) == _bare(theirs)


def _bare(value: Any) -> Any:
    """Without what does not matter on the wire."""
    if isinstance(value, dict):
        silent = {"about", "entityType", "ignorable", "listeners", "mapKey"}
        return {key: _bare(v) for key, v in value.items() if key not in silent}
    return [_bare(v) for v in value] if isinstance(value, list) else value
