"""`doctor` on real brokers: each rule once on what the test itself has set so, none on a healthy
cluster of three, and what a user may not see is unknown with the right that shows it."""

import asyncio
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as JobProducer

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import group_commits
from eoctl.kafka.read.recent_log import Bounds
from eoctl.lab import admin, secure
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab, up
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.conftest import SMALL, MakeTopic
from tests.kafka.planting import as_published
from tests.kafka.relay import LIST_OFFSETS, LIST_TRANSACTIONS, METADATA, relayed
from tests.kafka.rights import as_user
from tests.kafka.tools import kafka_tool
from tests.share import only_here

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
ORDERS, CHANGELOG, IDS = "orders", "app-store-changelog", "doctor-id"
TIMEOUT_MS = 900_000  # what brokers allow by default
CONFIGS, ACLS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.AclCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
HOUR_MS = 3_600_000
SEEN_SECONDS = 30.0  # until all brokers know of a change

Found = list[tuple[str, str, str]]


def examined(lab: Lab, *names: str) -> Ran:
    return as_published(eoctl("doctor", *names, "-o", "json", lab=lab), "doctor")


def found(ran: Ran) -> Found:
    """Each row's rule and subject."""
    return [(r["rule"], r["subject"]["kind"], r["subject"]["name"]) for r in ran.rows]


def until_found(lab: Lab, expected: Found, *names: str) -> Ran:
    """Ask until the findings are these: brokers apply a change a moment later."""
    end = time.monotonic() + SEEN_SECONDS
    while found(ran := examined(lab, *names)) != expected:
        assert time.monotonic() < end, (found(ran), ran.stderr)
        time.sleep(0.1)
    return ran


async def _set(lab: Lab, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
    async with Client.of(lab.client_properties()) as client:
        await admin.set_config(client, kind, name, settings)


@pytest.fixture(scope="module")
def three(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Three brokers with the settings of `eoctl lab up`, and work on them: an open transaction, a
    group's offsets, a changelog."""
    settings = {key: value for key, value in SMALL.items() if key != "min.insync.replicas"}
    lab = up(LabSpec(name="doctor", brokers=3, settings=settings))

    async def work() -> None:
        async with Client.of(lab.client_properties()) as client:
            await admin.create_topic(client, ORDERS, 3, 3)
            await admin.create_topic(client, CHANGELOG, 1, 3, {"cleanup.policy": "compact"})
            await write(client, f"{ORDERS}-done", ORDERS, group="sales", commit=True)
            await write(client, IDS, ORDERS, timeout_ms=TIMEOUT_MS)

    asyncio.run(work())
    yield lab
    lab.down()


async def write(
    client: Client,
    name: str,
    topic: str,
    *,
    timeout_ms: int = 60_000,
    group: str | None = None,
    commit: bool = False,
    two_phase: bool = False,
) -> Producer:
    """Write a record in a transaction of an id, with a group's offsets or none; open unless
    commit."""
    from recovery.facts import TopicPartition as Partition

    producer = await Producer.init(client, name, timeout_ms, two_phase=two_phase)
    await producer.send(topic, 0, [NewRecord(b"1")])
    if group is not None:
        await producer.send_offsets(group, {Partition(topic, 0): 1})
    if commit:
        await producer.commit()
    return producer


def test_a_healthy_cluster_of_three_has_no_finding(three: Lab) -> None:
    ran = examined(three)
    assert (ran.status, ran.rows, ran.json["errors"]) == (0, [], []), ran.stdout
    page = eoctl("doctor", lab=three)
    assert (page.status, page.stdout) == (0, "")
    assert page.stderr == f"no finding by {ran.json['rules']} rules\n"
    checked = eoctl("check", "--doctor", *FAST, "-o", "json", lab=three)
    mine = [row for row in checked.rows if row["rule"].startswith("doctor.")]
    assert len(mine) == ran.json["rules"]
    assert {(row["ok"], row["observed"]) for row in mine} == {(True, 0)}


def test_check_lists_transactions_once(three: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With doctor's rules as without them: both judge the same answers."""
    calls = 0
    listing = coordinators.transactions

    def lists(cluster: Cluster, **which: Any) -> Any:
        nonlocal calls
        calls += not which.get("producer_ids")
        return listing(cluster, **which)

    monkeypatch.setattr(coordinators, "transactions", lists)
    made = []
    for words in ((), ("--doctor",)):
        calls = 0
        assert eoctl("check", *words, *FAST, lab=three).status == 0
        made.append(calls)
    assert made[0] == made[1] > 0


def test_check_notes_what_a_context_accepts(three: Lab, tmp_path: Path) -> None:
    def checked(accepted: str, *words: str) -> Ran:
        path = tmp_path / "config.toml"
        context = f'bootstrap_servers = "{three.bootstrap_servers}"\naccept_findings = {accepted}'
        path.write_text(f"[contexts.here]\n{context}\n")
        env = environment(EOCTL_CONFIG=str(path))
        every = ("check", "--doctor", *FAST, "--context", "here", "-o", "json", *words)
        return eoctl(*every, env=env)

    asyncio.run(_set(three, TOPIC, ORDERS, {"unclean.leader.election.enable": "true"}))
    try:
        until_found(three, [("unclean-election", "topic", ORDERS)])
        assert checked("[]").status == 1
        assert checked('["unclean-election:payments"]').status == 1
        ran = checked(f'["unclean-election:{ORDERS}"]', "--broker-version", "4.3.1")
        assert (ran.status, ran.json["errors"]) == (0, []), ran.stdout
        [note] = ran.json["notes"]
        assert (note["error"], note["topic"]) == ("ACCEPTED_FINDING", ORDERS)
        refused = checked("[]", "--broker-version", "2.8")
        assert (refused.status, "no broker answers like that version" in refused.text) == (2, True)
        wrong = checked('["unclean"]')
        assert (wrong.status, "accept_findings: no finding 'unclean'" in wrong.text) == (2, True)
    finally:
        asyncio.run(_set(three, TOPIC, ORDERS, {"unclean.leader.election.enable": None}))
    until_found(three, [])


TOPIC, BROKER = admin.TOPIC, admin.BROKER
CHANGES: Mapping[str, tuple[int, str, dict[str, str]]] = {
    "one-copy-suffices": (TOPIC, STATE, {"min.insync.replicas": "1"}),
    "every-copy-needed": (TOPIC, OFFSETS, {"min.insync.replicas": "3"}),
    "unclean-election": (TOPIC, ORDERS, {"unclean.leader.election.enable": "true"}),
    "verification-off": (BROKER, "2", {"transaction.partition.verification.enable": "false"}),
    "producers-expire-early": (BROKER, "3", {"producer.id.expiration.ms": "60000"}),
    "changelog-deletes": (TOPIC, CHANGELOG, {"cleanup.policy": "delete"}),
    "changelog-forgets-deletes": (TOPIC, CHANGELOG, {"delete.retention.ms": "1000"}),
}
"""Rule → the one setting of a healthy cluster that is changed."""
WITHOUT_COMMAND = {"changelog-deletes"}


@pytest.mark.parametrize("rule", CHANGES)
def test_a_setting_is_found_and_its_command_ends_the_finding(three: Lab, rule: str) -> None:
    kind, name, settings = CHANGES[rule]
    asyncio.run(_set(three, kind, name, settings))
    try:
        subject = "topic" if kind == TOPIC else "broker"
        ran = until_found(three, [(rule, subject, name)])
        assert ran.status == 1
        [row] = ran.rows
        [(setting, value)] = settings.items()
        assert row["evidence"][0]["data"]["setting"] == setting
        assert str(row["evidence"][0]["data"]["value"]) == value
        assert (row["command"] is None) == (rule in WITHOUT_COMMAND)
        if row["command"] is not None:
            tool, *words = shlex.split(row["command"])
            assert tool == "kafka-configs.sh"
            done = kafka_tool(three, CONFIGS, *words)
            assert done.returncode == 0, done.stdout + done.stderr
            until_found(three, [])
    finally:
        before = {"cleanup.policy": "compact"} if name == CHANGELOG else {}
        back = {key: before.get(key) for key in settings}
        asyncio.run(_set(three, kind, name, back))
    until_found(three, [])


@pytest.mark.long
def test_one_copy_is_found_while_a_transaction_writes_it(three: Lab) -> None:
    """A topic with one copy is nobody's loss before that, unless somebody names it."""
    name = "single"

    async def scenario() -> None:
        async with Client.of(three.client_properties()) as client:
            await admin.create_topic(client, name, 1, 1)
            assert found(examined(three)) == []
            assert found(examined(three, name)) == [("few-copies", "topic", name)]
            producer = await write(client, "single-id", name)
            for names in ((), (name,), ("single-id",)):
                ran = examined(three, *names)
                # a partition with one copy may be without a leader, which is a bug's occasion
                bug = [] if names else [("known-bug", "cluster", "*")]
                assert found(ran) == [("few-copies", "topic", name), *bug], names
                assert [r["sources"] for r in ran.rows[1:]] == [["KAFKA-20734"]] * len(bug)
                assert ran.rows[0]["evidence"][1]["data"] == {"names": ["single-id"], "number": 1}
            assert found(examined(three, ORDERS, IDS, "sales")) == []
            await producer.commit()
            until_found(three, [])

    asyncio.run(scenario())


def test_a_name_that_is_nothing_makes_it_incomplete(three: Lab) -> None:
    ran = examined(three, "nothing")
    assert (ran.status, ran.rows) == (3, [])
    assert [(e["error"], e["id"]) for e in ran.json["errors"]] == [("UNKNOWN_NAME", "nothing")]


@pytest.mark.long
def test_it_only_lists_and_describes_and_asks_no_more_for_more_partitions(
    three: Lab, tmp_path: Path
) -> None:
    list_groups, describe_groups, describe_transactions = 16, 15, 65
    describe_configs, versions, fetch = 32, 18, 1
    allowed = {METADATA, LIST_OFFSETS, LIST_TRANSACTIONS, list_groups}
    allowed |= {describe_groups, describe_transactions, describe_configs, versions}
    allowed |= {fetch}  # of __transaction_state
    asked = []
    with relayed(three) as relay:
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        for partitions in (0, 200):
            if partitions:
                admin.add_topic(three, f"wide-{uuid.uuid4().hex[:6]}", partitions, {})
            relay.requests.clear()
            ran = eoctl("doctor", "--context", "relayed", "-o", "json", env=env)
            assert ran.status == 0, ran.stdout
            assert {key for _, key, _ in relay.requests} <= allowed
            asked.append(len(relay.requests))
    assert asked[1] == asked[0]


@pytest.mark.long
def test_a_broker_that_is_away_does_not_make_the_cluster_healthy(three: Lab) -> None:
    """Metadata omits it: two copies are few for three brokers all the same.

    The last test of this cluster: the broker leads nothing for a while after it.
    """
    name, away = "pair", 3

    async def scenario() -> None:
        async with Client.of(three.client_properties()) as client:
            await admin.create_topic(client, name, 3, 2)
            producer = await write(client, "pair-id", name)
            copies = [(rule, "topic", name) for rule in ("few-copies", "every-copy-needed")]
            until_found(three, copies, name)
            await asyncio.to_thread(three.terminate, away)
            try:
                ran = until_away(three, away)
                assert {*copies} <= {*found(ran)}, ran.stdout
                assert ran.status == 3
                assert ("verification-off", None) in unknown(ran)
            finally:
                await asyncio.to_thread(three.start, away)
            await producer.commit()

    asyncio.run(scenario())
    until_found(three, [])


def until_away(lab: Lab, broker: int) -> Ran:
    """Ask until Metadata omits a broker that was stopped."""
    end = time.monotonic() + SEEN_SECONDS
    while True:
        ran = examined(lab)
        if ("BROKER_NOT_AVAILABLE", broker) in [
            (e["error"], e["broker"]) for e in ran.json["errors"]
        ]:
            return ran
        assert time.monotonic() < end, ran.stdout
        time.sleep(0.2)


@pytest.fixture(scope="module")
def brief(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """A broker that forgets ids and offsets soon, and allows timeouts of two hours."""
    settings = {
        "transaction.max.timeout.ms": str(2 * HOUR_MS),
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transactional.id.expiration.ms": "8000",
        "offsets.retention.minutes": "60",
    }
    lab = start_lab(LabSpec(name="doctor-brief", settings=settings))
    yield lab
    lab.down()


@pytest.mark.long
def test_timeouts_and_expirations(brief: Lab, topic: MakeTopic) -> None:
    """Then the broker restarts with a lower limit, and without two-phase commit."""
    name = topic(brief)
    short = {"transactional.id.expiration.ms": "8000", "offsets.retention.minutes": "60"}
    until_found(
        brief, [("ids-expire-early", "cluster", "*"), ("offsets-expire-early", "cluster", "*")]
    )

    async def ids() -> None:
        async with Client.of(brief.client_properties()) as client:
            await write(client, "slow-1", name, timeout_ms=HOUR_MS + 1, commit=True)
            await write(client, "slow-2", name, timeout_ms=HOUR_MS + 1, commit=True)
            await write(client, "idle-1", name, commit=True)
            await write(client, "two-phase-1", name, two_phase=True)

    asyncio.run(ids())
    settings: dict[str, Any] = brief.client_properties() | {"group.id": "idlers"}
    consumer = Consumer(settings | {"client.id": "idle-1"})
    away = Consumer(settings | {"group.id": "away"})
    try:
        consumer.subscribe([name])
        end = time.monotonic() + SEEN_SECONDS
        while not consumer.assignment():
            assert time.monotonic() < end
            consumer.poll(0.2)
        away.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
        ran = until_found(
            brief,
            [
                ("timeout-long", "transactional-id", "slow-1"),
                ("ids-expire-early", "cluster", "*"),
                ("idle-id-in-use", "transactional-id", "idle-1"),
                ("offsets-expire-early", "group", "away"),
            ],
        )
        assert found(examined(brief, "idle-1")) == [
            ("idle-id-in-use", "transactional-id", "idle-1")  # by a member of a group not named
        ]
        assert found(examined(brief, "idlers")) == [("offsets-expire-early", "group", "idlers")]
        rows = {row["rule"]: row for row in ran.rows}
        assert rows["timeout-long"]["evidence"][1]["data"] == {
            "names": ["slow-1", "slow-2"],
            "number": 2,
        }
        for rule, setting in zip(("ids-expire-early", "offsets-expire-early"), short, strict=True):
            data = rows[rule]["evidence"][0]["data"]
            assert (data["setting"], str(data["value"])) == (setting, short[setting])
    finally:
        consumer.close()
        away.close()

    brief.terminate(1)
    file = brief.broker_folder(1) / "server.properties"
    text = file.read_text(encoding="latin-1")
    file.write_text(
        text.replace(f"max.timeout.ms={2 * HOUR_MS}", f"max.timeout.ms={HOUR_MS}").replace(
            "two.phase.commit.enable=true", "two.phase.commit.enable=false"
        ),
        encoding="latin-1",
    )
    brief.start(1)
    until_found(
        brief,
        [
            ("timeout-above-max", "transactional-id", "slow-1"),
            ("timeout-long", "transactional-id", "slow-1"),
        ],
        "slow-1",
    )
    until_found(brief, [("two-phase-off", "transactional-id", "two-phase-1")], "two-phase-1")


def test_a_job_that_was_away_for_longer_than_its_timeout(brief: Lab, topic: MakeTopic) -> None:
    """And none that ends its transaction in time, or that another owner ends."""
    name = topic(brief)
    ids = ("away-0-1", "away-0-2", "home-0-1", "home-0-2")

    async def write_(number: int, **more: Any) -> Producer:
        async with Client.of(brief.client_properties()) as client:
            return await write(client, ids[number], name, **more)

    def state(of: str) -> str:
        return str(eoctl("txn", "describe", of, "-o", "json", lab=brief).rows[0]["state"])

    before = time.time()
    asyncio.run(write_(0, timeout_ms=1_000))
    asyncio.run(write_(2, timeout_ms=60_000))
    asyncio.run(write_(2, timeout_ms=60_000, commit=True))  # fences the one before
    end = time.monotonic() + SEEN_SECONDS
    while state(ids[0]) != "CompleteAbort":
        assert time.monotonic() < end
        time.sleep(0.2)
    ended = time.time()
    assert found(examined(brief, *ids[:1])) == []  # whoever is still away has lost nothing more
    asyncio.run(write_(1, commit=True))
    asyncio.run(write_(3, commit=True))
    ran = examined(brief, ids[0], *ids[2:])
    assert found(ran) == [("timeout-too-short", "transactional-id", ids[0])]
    data = ran.rows[0]["evidence"][0]["data"]
    assert data["timeout_ms"] == 1_000
    times = ("started", "silent_from", "aborted", "back")
    moments = [before * 1000 - 1, *(data[key] for key in times), time.time() * 1000]
    assert moments == sorted(moments)
    assert data["back"] >= ended * 1000 - 1
    assert data["aborted"] - data["started"] >= 1_000


@pytest.mark.long
def test_an_exclusive_output_has_one_writer(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Its own producers are many; another application's is one too many."""
    name = topic(lab1)
    file = tmp_path / "app.toml"
    file.write_text(
        f'[app]\nname = "{name}"\nstrategy = "transactional"\ninputs = ["in"]\n'
        f'outputs = ["{name}"]\n[app.store]\nkind = "kafka-group"\ngroup = "{name}"\n'
    )

    async def write_(*ids: str) -> None:
        async with Client.of(lab1.client_properties()) as client:
            for one in ids:
                await write(client, one, name, commit=True)

    asyncio.run(write_(f"{name}-mine-0", f"{name}-mine-1"))
    alone = examined(lab1, name, "--app", str(file))
    assert [one for one in found(alone) if one[0] == "two-writers"] == []
    asyncio.run(write_(f"{name}-other-0"))
    ran = examined(lab1, name, "--app", str(file))
    [row] = [row for row in ran.rows if row["rule"] == "two-writers"]
    assert (row["state"], row["subject"]["name"], ran.status) == ("finding", name, 1)
    writers = row["evidence"][0]["data"]["writers"]
    assert {(w["prefix"], w["producers"]) for w in writers} == {
        (f"{name}-mine-", 2),
        (f"{name}-other-", 1),
    }
    assert "two-writers" not in {r["rule"] for r in examined(lab1, name).rows}
    assert ran.json["rules"] == alone.json["rules"] == examined(lab1, name).json["rules"] + 1


class Job:
    """A consumer of a group and a transactional producer beside it, as an application has them."""

    def __init__(self, lab: Lab, topic: str, group: str, protocol: str) -> None:
        settings: dict[str, Any] = lab.client_properties()
        self.topic = topic
        self.producer = JobProducer(settings | {"transactional.id": f"{group}-id"})
        self.producer.init_transactions(30)
        self.settings = settings | {
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }

    def commit(self, ways: str) -> None:
        """Join, commit once for each letter, leave. T: in a transaction, A: in one that is aborted,
        P: outside."""
        consumer = Consumer(self.settings)
        try:
            consumer.subscribe([self.topic])
            end = time.monotonic() + SEEN_SECONDS
            while not consumer.assignment():
                assert time.monotonic() < end
                consumer.poll(0.2)
            for number, way in enumerate(ways):
                self._commit(consumer, way, [TopicPartition(self.topic, 0, number)])
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, way: str, at: list[TopicPartition]) -> None:
        if way == "P":
            consumer.commit(offsets=at, asynchronous=False)
            return
        self.producer.begin_transaction()
        self.producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 30)
        if way == "T":
            self.producer.commit_transaction(30)
        else:
            self.producer.abort_transaction(30)


def reset(lab: Lab, group: str, topic: str) -> None:
    """Reset the group's offset with Kafka's own tool, once its member has left."""
    words = ("--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    end = time.monotonic() + SEEN_SECONDS
    while True:
        done = kafka_tool(lab, GROUPS, "--bootstrap-server", lab.bootstrap_servers, *words)
        if "inactive" not in done.stdout + done.stderr and done.returncode == 0:
            return
        assert time.monotonic() < end, done.stdout + done.stderr
        time.sleep(0.2)


@pytest.mark.parametrize("protocol", only_here(["classic", "consumer"], "consumer"))
def test_a_group_that_commits_both_ways_is_found(
    lab1: Lab, topic: MakeTopic, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none that commits one way, whose offset a tool resets, or that aborts."""
    name = topic(lab1)
    both, inside, outside, repaired = (f"{name}-{way}" for way in ("both", "in", "out", "reset"))
    Job(lab1, name, both, protocol).commit("TPTAPPT")
    Job(lab1, name, inside, protocol).commit("TTAT")
    Job(lab1, name, outside, protocol).commit("PPPP")
    job = Job(lab1, name, repaired, protocol)
    for _ in range(2):
        job.commit("TAT")
        reset(lab1, repaired, name)
    job.commit("T")
    ran = examined(lab1, both, inside, outside, repaired)
    assert found(ran) == [("mixed-commits", "group", both)], ran.stdout
    assert ran.status == 1
    data = ran.rows[0]["evidence"][0]["data"]
    assert (data["topic"], data["partition"], data["partitions"]) == (name, 0, 1)
    assert (data["transactional"], data["plain"], data["turns"]) == (4, 3, 2)
    assert found(examined(lab1, inside, outside, repaired)) == []
    rows = [one for one in found(examined(lab1)) if one[:2] == ("mixed-commits", "group")]
    assert [group for _, _, group in rows if group.startswith(name)] == [both]
    assert "mixed-commits" not in ran.stderr
    monkeypatch.setattr(group_commits, "OF_RECORDS", Bounds(4, 16 << 20))
    bounded = examined(lab1, both)
    assert (bounded.status, bounded.rows) == (0, [])
    assert "mixed-commits: only the last" in bounded.stderr


def unknown(ran: Ran) -> set[tuple[str, str | None]]:
    """The rules that cannot tell, each with the right that is lacking."""
    return {(r["rule"], r["lacks"]) for r in ran.rows if r["state"] == "unknown"}


def test_what_a_user_may_not_see_names_the_right(secure_lab: Lab, topic: MakeTopic) -> None:
    name = topic(secure_lab)

    async def used() -> None:
        async with Client.of(secure_lab.client_properties()) as client:
            await write(client, f"{name}-id", name, group=f"{name}-group", commit=True)

    asyncio.run(used())

    def as_(user: str, *names: str) -> Ran:
        words = ("doctor", *names, "-o", "json")
        return as_published(as_user(secure_lab, user, *words), "doctor")

    assert unknown(as_("viewer")) == set()
    hidden_ids = as_("no-txn")
    assert hidden_ids.status == 3
    assert unknown(hidden_ids) == {
        (rule, "transactional ids: DESCRIBE")
        for rule in (
            "timeout-long",
            "timeout-above-max",
            "two-phase-off",
            "timeout-too-short",
            "idle-id-in-use",
        )
    }
    unread = unknown(as_("no-topic-read"))
    assert ("mixed-commits", "__consumer_offsets: READ") in unread
    assert {right for _, right in unread} == {
        "__consumer_offsets: READ",
        "__transaction_state: READ",
    }
    nobody = as_("nobody")
    assert nobody.status == 3
    rights = unknown(nobody)
    assert ("verification-off", "cluster: DESCRIBE_CONFIGS") in rights
    assert ("few-copies", "topics: DESCRIBE") in rights
    assert not [row for row in nobody.rows if row["state"] == "finding"]
    assert ("known-bug", "topics: DESCRIBE") in rights  # one of few copies
    assert {rule for rule, _ in rights} == {*rules(), "known-bug"} - {"two-writers"}  # no --app
    assert ("speaks-v1", "__transaction_state: READ") in rights
    named = ("--topic", name, "--operation", "DescribeConfigs", "--deny-principal", "User:viewer")
    try:
        acl(secure_lab, "--add", *named)
        end = time.monotonic() + SEEN_SECONDS
        expected = {
            (rule, "topics: DESCRIBE_CONFIGS")
            for rule in ("one-copy-suffices", "every-copy-needed", "unclean-election")
        }
        while unknown(refused := as_("viewer", name)) != expected:
            assert time.monotonic() < end, refused.stdout
            time.sleep(0.1)
    finally:
        acl(secure_lab, "--remove", "--force", *named)


def rules() -> list[str]:
    """The rules that the table in docs/doctor.md names, without those that need no right."""
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if "| [" in line and "| none |" not in line]
    return [line.split("]")[0].removeprefix("| [") for line in lines]


def acl(lab: Lab, *words: str) -> None:
    server = ("--bootstrap-server", lab.bootstrap_servers)
    client = ("--command-config", str(secure.client_file(lab.folder, "admin")))
    done = kafka_tool(lab, ACLS, *server, *client, *words)
    assert done.returncode == 0, done.stderr
