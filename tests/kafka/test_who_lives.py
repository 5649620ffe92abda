"""Members of groups of each kind gate what would end their transactions, whatever was not seen."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as Confluent

from eoctl.kafka.ask.groups import describe_groups, find_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import GroupFacts, Missing
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.kafka.remedying import read_committed
from tests.kafka.rights import as_user, rights
from tests.kafka.test_groups import consumer
from tests.kafka.tools import kafka_tool
from tests.streams.living import Living, Share, Streams

PROTOCOLS = ("classic", "streams")
RECORDS = 20
LATE = ("--long-after", "1s", *FAST)


def produce(lab: Lab, topic: str, first: int, count: int) -> None:
    """Write the numbers from `first` on, a record each."""
    producer = Confluent(lab.client_properties())
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


class World:
    """An application of each protocol of Kafka Streams, each with an open transaction."""

    def __init__(self, living: Living, applications: dict[str, Streams]) -> None:
        self.living, self.lab, self.applications = living, living.lab, applications
        self.produced = 0

    def feed(self, count: int) -> None:
        """Have each application process so many records more."""
        for a in self.applications.values():
            produce(self.lab, a.source, self.produced, count)
        self.produced += count
        for a in self.applications.values():
            self.living.processed(a.name, self.produced)

    def transactional_id(self, protocol: str) -> str:
        """The id of the application's open transaction, by Kafka's own tool."""
        shown = kafka_tool(
            self.lab,
            "org.apache.kafka.tools.TransactionsCommand",
            *("--bootstrap-server", self.lab.bootstrap_servers, "list"),
        )
        rows = [line.split() for line in shown.stdout.splitlines()]
        name = self.applications[protocol].name
        (found,) = [row[0] for row in rows if row and row[0].startswith(f"{name}-")]
        return found


@pytest.fixture(scope="module")
def world(lab1: Lab, topic: MakeTopic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    applications = {}
    for protocol in PROTOCOLS:
        source, output = topic(lab1), topic(lab1)
        applications[protocol] = Streams(f"app-{source}", protocol, source, output)
    folder = tmp_path_factory.mktemp("living")
    living = Living(lab1, folder, *applications.values())
    made = World(living, applications)
    try:
        living.start()
        made.feed(RECORDS)
        yield made
    finally:
        living.stop()


async def found(lab: Lab, name: str) -> tuple[list[GroupFacts], list[Missing]]:
    async with Cluster(client_settings(lab.client_properties()), Deadline(30)) as cluster:
        return await find_groups(cluster, [name])


def test_members_of_a_streams_group_as_the_tool_shows_them(world: World) -> None:
    """Client, host and process of each; and the owner of its transaction is named by that."""
    a, name = world.applications["streams"], world.transactional_id("streams")
    shown = kafka_tool(
        world.lab,
        "org.apache.kafka.tools.streams.StreamsGroupCommand",
        *("--bootstrap-server", world.lab.bootstrap_servers, "--describe", "--members"),
        *("--verbose", "--group", a.name),
    )
    header, row = (line.split() for line in shown.stdout.splitlines() if line.strip())
    theirs = dict(zip(header, row, strict=False))
    (group,), missing = asyncio.run(found(world.lab, a.name))
    assert (missing, group.type, group.state) == ([], "streams", "Stable")
    assert group.members == ((theirs["CLIENT-ID"], "127.0.0.1"),)
    (process,) = group.processes
    assert process.process_id == theirs["PROCESS"]
    assert name.startswith(f"{a.name}-{theirs['PROCESS']}-")
    asked = as_published(eoctl("why", "--group", a.name, *FAST, "-o", "json", lab=world.lab), "why")
    story = asked.json["group_story"]
    assert (story["type"], story["state"]) == ("streams", "Stable")
    assert story["members"] == [f"{theirs['CLIENT-ID']} at 127.0.0.1"]
    # it has read everything, and commits it with its transaction, which is still open
    assert (story["verdict"], story["partitions"]) == ("nothing-committed", [])
    time.sleep(1)
    ran = eoctl("why", a.output, *LATE, "-o", "json", lab=world.lab)
    (page,) = ran.rows
    assert page["owner"]["clients"] == [f"{theirs['CLIENT-ID']} at 127.0.0.1"]
    assert f"client of its process: {theirs['CLIENT-ID']} at 127.0.0.1" in page["owner"]["said"]


def test_a_group_that_cannot_be_described_has_members_that_are_not_known(world: World) -> None:
    """Of a type of a later Kafka; and one whose type was not listed, as by Kafka 3.7."""
    name = world.applications["streams"].name

    async def run() -> tuple[list[GroupFacts], list[Missing]]:
        properties = client_settings(world.lab.client_properties())
        async with Cluster(properties, Deadline(30)) as cluster:
            later = GroupFacts("later", "Stable", "Quorum")
            return await describe_groups(cluster, [later, GroupFacts(name, "Stable", None)])

    (later, untyped), (missing,) = asyncio.run(run())
    assert (later.members, missing.id, missing.error) == (None, "later", "UNKNOWN_GROUP_TYPE")
    assert (untyped.type, len(untyped.members or ())) == ("streams", 1)


@pytest.mark.parametrize("denied", ["group", "topic"])
def test_members_that_may_not_be_seen_gate(secure_lab: Lab, topic: MakeTopic, denied: str) -> None:
    """Kafka's list leaves a denied group out without an error: it is asked for by its name."""
    lab, where, source = secure_lab, topic(secure_lab), topic(secure_lab)
    group = f"hidden-{source}"
    name = f"{group}-1"

    async def begin() -> None:
        async with Client.of(lab.client_properties()) as client:
            producer = await Producer.init(client, name, 600_000)
            await producer.send(where, 0, [NewRecord(b"x")])

    asyncio.run(begin())
    produce(lab, source, 0, 1)
    kind = {"group": "GROUP", "topic": "TOPIC"}[denied]
    right = (kind, group if denied == "group" else source, "DESCRIBE")
    words = ("txn", "fence", name, *LATE)
    with consumer(lab, group, "consumer", source), rights(lab, "viewer", right, deny=True):
        time.sleep(1)
        ran = as_user(lab, "viewer", *words)
    assert ran.status in (3, 4), ran.text
    assert f"group '{group}': DESCRIBE on" in ran.text
    assert "not granted" in ran.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_application_that_lives_is_not_fenced(world: World, protocol: str) -> None:
    """Past a limit, and idle between two looks: its members are the sign of life."""
    a, name = world.applications[protocol], world.transactional_id(protocol)
    time.sleep(1)
    ran = eoctl("txn", "fence", name, *LATE, "--execute", "--yes", lab=world.lab)
    assert ran.status == 4, ran.text
    assert f"the group of its name has members ({a.name})" in ran.text
    assert world.transactional_id(protocol) == name
    assert read_committed(world.lab, a.output, 0) == []
    world.living.ask("commit", a.name)
    world.feed(1)
    expected = [str(number).encode() for number in range(world.produced)]
    world.living.until(
        lambda: read_committed(world.lab, a.output, 0)[: len(expected)] == expected,
        "its transaction was not committed",
    )


def share_lag(lab: Lab, group: str) -> tuple[int, int]:
    """Start offset and lag of a share group's only partition, by Kafka's own tool."""
    shown = kafka_tool(
        lab,
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", group),
    )
    (row,) = [line.split() for line in shown.stdout.splitlines() if line.startswith(group)]
    return int(row[3]), int(row[4])


@pytest.fixture(scope="module")
def share(
    lab1: Lab, topic: MakeTopic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Living]:
    """A share consumer of each isolation level: 20 records read, all but the third accepted."""
    source = topic(lab1)
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    members = []
    for level in ("read_committed", "read_uncommitted"):
        group = f"{level}-{source}"
        settings = f"share.auto.offset.reset=earliest,share.isolation.level={level}"
        named = ("--entity-type", "groups", "--entity-name", group)
        kafka_tool(
            lab1,
            "kafka.admin.ConfigCommand",
            *(*server, *named, "--alter", "--add-config", settings),
        )
        members.append(Share(group, source))
    living = Living(lab1, tmp_path_factory.mktemp("share"), *members)
    try:
        living.start()
        produce(lab1, source, 0, RECORDS)
        for m in members:
            assert living.share(m.group, RECORDS, released=2) == list(range(RECORDS))
        yield living
    finally:
        living.stop()


def test_the_lag_of_a_share_group_is_kafkas(share: Living) -> None:
    """Not what lies above its start offset: one record of 18 there is not acknowledged."""
    for m in share.members:
        assert isinstance(m, Share)
        start, theirs = share_lag(share.lab, m.group)
        ran = eoctl("offsets", "show", "--group", m.group, "--count", "-o", "json", lab=share.lab)
        (row,) = ran.rows
        assert theirs < RECORDS - start
        assert (row["committed_offset"], row["lag"], row["lag_hw"]) == (start, theirs, theirs)
        assert row["data_records"] is None
        page = eoctl("why", "--group", m.group, *FAST, lab=share.lab)
        assert page.status == 0, page.text
        assert f"LSO {RECORDS} lag {theirs}, records not counted" in page.text
        asked = as_published(
            eoctl("why", "--group", m.group, *FAST, "-o", "json", lab=share.lab), "why"
        )
        story = asked.json["group_story"]
        (at,) = story["partitions"]
        assert (story["type"], at["lag"], at["committed_offset"]) == ("share", theirs, start)
        # it has members, and between two looks it acknowledged nothing
        assert (story["verdict"], at["moved"]) == ("not-moving", False)
        assert story["members"] == [f"client-of-{m.group} at 127.0.0.1"]


def test_an_open_transaction_holds_a_share_group_of_read_committed_alone(share: Living) -> None:
    first, second = share.members
    assert isinstance(first, Share)
    assert isinstance(second, Share)
    for m in (first, second):
        share.share(m.group, 1)  # the one that it gave back

    async def begin() -> Producer:
        async with Client.to(share.lab.bootstrap_servers) as client:
            producer = await Producer.init(client, f"open-{first.topic}", 600_000)
            await producer.send(first.topic, 0, [NewRecord(b"x")] * 3)
            return producer

    asyncio.run(begin())
    ran = eoctl("why", first.topic, *FAST, "-o", "json", lab=share.lab)
    (page,) = ran.rows
    rows = {g["group"]: (g["isolation"], g["held_up"]) for g in page["groups"]}
    assert rows == {
        first.group: ("read_committed", True),
        second.group: ("read_uncommitted", False),
    }
    for m, held in ((first, 3), (second, 0)):
        ran = eoctl("why", "--group", m.group, *FAST, "-o", "json", lab=share.lab)
        (at,) = ran.json["group_story"]["partitions"]
        assert (at["held"], at["verdict"]) == (held, "open" if held else None)
        # the lag of one is all held; the other may read it now
        assert at["lag"] == 3 - held
    assert len(share.share(second.group, 3)) == 3  # it reads them, undecided as they are


@pytest.mark.parametrize("kind", ["streams", "share"])
def test_restart_plan_refuses_what_it_never_writes(world: World, share: Living, kind: str) -> None:
    """At plan time, whether it has members or not, with the tool that can."""
    member = share.members[0]
    assert isinstance(member, Share)
    group = world.applications["streams"].name if kind == "streams" else member.group
    ran = eoctl(
        *("restart", "plan", "--group", group, "--all-topics", "--to-earliest"), lab=world.lab
    )
    assert ran.status == 4, ran.text
    assert f"kafka-{kind}-groups.sh" in ran.text


def test_why_of_a_group_that_does_not_exist_is_exit_3(lab1: Lab) -> None:
    for words in (("why",), ("offsets", "show")):
        ran = eoctl(*words, "--group", "nobody", "-o", "json", lab=lab1)
        assert (ran.status, ran.rows) == (3, [])
        assert [e["error"] for e in ran.json["errors"]] == ["GROUP_ID_NOT_FOUND"]


def test_why_of_an_id_shows_its_own_remedy_where_another_holds_first(
    lab1: Lab, topic: MakeTopic
) -> None:
    where = topic(lab1)
    first, second = f"{where}.first", f"{where}.second"

    async def begin() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for name in (first, second):
                producer = await Producer.init(client, name, 600_000)
                await producer.send(where, 0, [NewRecord(b"x")])
                await asyncio.sleep(1.5 if name == first else 0)

    asyncio.run(begin())
    ran = eoctl(
        *("why", "--transactional-id", second, *FAST, "--long-after", "1s", "-o", "json"),
        lab=lab1,
    )
    (page,) = ran.rows
    assert page["held_by"]["transactional_id"] == second
    assert page["owner"]["transactional_id"] == second
    assert [other["transactional_id"] for other in page["others"]] == [first]
    shown = eoctl("why", "--transactional-id", second, *FAST, lab=lab1)
    assert f"this page and its remedy are about {second}" in shown.text


def test_a_config_file_that_is_not_there_is_not_needed_for_an_address(
    lab1: Lab, tmp_path: Path
) -> None:
    env = environment(EOCTL_CONFIG=str(tmp_path / "none.toml"))
    ran = eoctl("lso", lab=lab1, env=env)
    assert ran.status in (0, 1), ran.text
    assert "none.toml, which EOCTL_CONFIG names, is not there" in ran.text
    ran = eoctl("lso", "--context", "prod", env=env)
    assert ran.status == 2, ran.text
    assert "none.toml: no such file" in ran.text
