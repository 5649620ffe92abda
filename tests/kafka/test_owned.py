"""Transactions that a coordinator owns: names, deadlines, life signs, clocks, on real brokers."""

import asyncio
import itertools
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.wire import Connection
from eoctl.lab import secure
from eoctl.lab.admin import set_config
from eoctl.lab.breaks import break_
from eoctl.lab.client import GROUP, Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.operations.diagnose import ids, looking
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.diagnosis import Judged
from recovery.inspect.observation import Settings
from recovery.times import rfc3339
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.diagnosing import judged

CYCLE = 3_600_000
ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
SETTINGS = {ABORT_CYCLE: str(CYCLE)}
STATE = "__transaction_state"
ORDINARY = (
    "etl-7-0",
    "orders-0-1",
    "connect-cluster-orders-2-0",
    "app-2024-01",
    "sums-6b1d1c6e-6f0e-4b1a-9f5a-123456789012-1",
)
HOUR = 3_600_000
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def late(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """One broker whose coordinator aborts nothing for an hour."""
    lab = start_lab(LabSpec(name="late", settings=SETTINGS))
    yield lab
    lab.down()


def begin(lab: Lab, topic: str, names: dict[str, int]) -> None:
    """Open a transaction of each id (with this timeout, ms) on partition 0, and leave it."""

    async def run() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            for name, timeout in names.items():
                producer = await Producer.init(client, name, timeout)
                await producer.send(topic, 0, [NewRecord(b"x")])

    asyncio.run(run())


def one(lab: Lab, topic: str) -> Judged:
    """What is judged on a topic on which one transaction is open."""
    [found] = judged(lab, topic).judged
    return found


def said(j: Judged, code: str) -> str:
    [text] = [evidence_words(e) for e in j.verdict.evidence if e.code == code]
    return text


def test_ordinary_names_are_open_and_nothing_is_found(late: Lab, topic: MakeTopic) -> None:
    """A name never makes a verdict: exit 0, and each shows when its coordinator aborts it."""
    where = topic(late)
    before = now_ms()
    begin(late, where, dict.fromkeys(ORDINARY, 600_000))
    asked = eoctl("txn", "hanging", where, "--all", "-o", "json", lab=late)
    assert asked.status == 0, asked.stderr
    assert {r["transactional_id"]: (r["verdict"], r["rule"]) for r in asked.rows} == dict.fromkeys(
        ORDINARY, ("open", "within-limits")
    )
    for j in judged(late, where).judged:
        assert j.verdict.deadline is not None
        assert before + 600_000 <= j.verdict.deadline <= now_ms() + 600_000
        assert "Restore the job from its last checkpoint within 9m " in said(
            j, "looks-precommitted"
        )
    page = eoctl("why", where, lab=late)
    assert page.status == 0, page.stderr
    assert "looks like a Flink sink (by its name)" in page.stdout
    assert "two-phase" not in page.stdout


def test_a_name_only_gates_the_fence(late: Lab, topic: MakeTopic) -> None:
    where = topic(late)
    begin(late, where, {"etl-8-0": 1_000})
    time.sleep(1.2)
    found = one(late, where)
    assert (found.verdict.name, found.verdict.remedy.action) == ("overdue", "wait")
    words = ("txn", "fence", "etl-8-0", "--sample-interval", "0.5s", "--execute", "--yes")
    refused = eoctl(*words, lab=late)
    assert refused.status == 4, refused.stdout
    assert "looks like a Flink sink (by its name)" in refused.stderr
    assert "--owner-is-gone" in refused.stderr
    assert one(late, where).verdict.name == "overdue"
    done = eoctl(*words, "--owner-is-gone", lab=late)
    assert done.status == 0, done.stderr
    assert judged(late, where).judged == ()


def test_an_overdue_one_shows_the_brokers_own_cycle_and_clock(late: Lab) -> None:
    """No sign of life: it may be fenced; the interval is the one that this broker was given."""
    [dead] = break_(late, "overdue", timeout_ms=1_000)
    found = one(late, dead.topic)
    v = found.verdict
    assert (v.name, v.remedy.action, v.gate) == ("overdue", "fence", None)
    assert v.abort_cycle == CYCLE
    assert v.deadline_in is not None
    assert v.deadline_in < 0
    assert said(found, "deadline").endswith("looks every 1h and should abort it now")
    assert said(found, "signs-of-life").startswith("No sign of life of its owner: ")


def test_a_live_application_past_its_timeout_is_not_a_dead_one(late: Lab, topic: MakeTopic) -> None:
    """It writes on: that is told, and its fence needs --owner-is-gone."""
    where = topic(late)

    async def run() -> tuple[Judged, int]:
        async with Client.to(late.bootstrap_servers) as client:
            producer = await Producer.init(client, "alive", 1_000)
            await producer.send(where, 0, [NewRecord(b"x")])

            async def work() -> None:
                while True:
                    await producer.send(where, 0, [NewRecord(b"y")])
                    await asyncio.sleep(0.1)

            working = asyncio.create_task(work())
            try:
                await asyncio.sleep(1.2)
                found = await asyncio.to_thread(one, late, where)
                words = ("txn", "fence", "alive", "--sample-interval", "1s", "--execute", "--yes")
                refused = await asyncio.to_thread(eoctl, *words, lab=late)
                assert not working.done()
            finally:
                working.cancel()
            await producer.commit()
            return found, refused.status

    found, refused = asyncio.run(run())
    assert (found.verdict.name, found.verdict.remedy.action) == ("overdue", "wait")
    assert said(found, "signs-of-life").startswith("Its owner shows signs of life: it worked on")
    assert refused == 4


def test_a_group_of_the_ids_name_with_members_gates_the_fence(late: Lab, topic: MakeTopic) -> None:
    where, source = topic(late), topic(late)
    group = f"app.{where}.g"  # digits alone at its end would be a number of Flink's
    begin(late, where, {f"{group}-1": 1_000})
    consumer = Consumer(late.client_properties() | {"group.id": group, "client.id": "worker"})
    consumer.subscribe([source])
    try:
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.2)
        time.sleep(1.2)
        found = one(late, where)
        assert (found.verdict.name, found.verdict.remedy.action) == ("overdue", "wait")
        assert found.verdict.gate is not None
        assert group in remedy_words(found.verdict.gate)
        assert "worker at " in said(found, "signs-of-life")
    finally:
        consumer.close()
    assert one(late, where).verdict.gate is None


@pytest.mark.parametrize("hours", [3, -3])
def test_a_clock_that_disagrees_is_measured_and_told(
    late: Lab, topic: MakeTopic, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's filter decides; no age is negative, and the deadline is by its clock."""
    where = topic(late)
    begin(late, where, {f"clock{hours}.a": 600_000})
    monkeypatch.setattr(looking, "now_ms", lambda: now_ms() - hours * HOUR)
    found = one(late, where)
    v = found.verdict
    assert v.name == "open"
    assert v.clock_ahead == pytest.approx(hours * HOUR, abs=5_000)
    assert v.age_seconds is not None
    assert 0 <= v.age_seconds < 60
    assert v.deadline_in == pytest.approx(600_000, abs=60_000)
    where_to = "ahead of" if hours > 0 else "behind"
    text = said(found, "clock")
    assert where_to in text
    assert "2h 59m" in text or "3h" in text


def test_no_coordinators_clock_could_be_asked(
    late: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before ListTransactions v1 (Kafka 3.8): within the skew of a limit nothing is claimed."""
    where = topic(late)
    begin(late, where, {"clock.none": 600_000})
    supports = Connection.supports

    def older(self: Connection, request: type, version: int = 0) -> bool:
        lists = request is messages.ListTransactionsRequest
        return not (lists and version >= 1) and supports(self, request, version)

    async def nothing(*_: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(Connection, "supports", older)
    monkeypatch.setattr(clocks, "measured", nothing)
    near, far = Settings(clock_skew=HOUR), Settings(clock_skew=60_000)
    [unsure] = judged(late, where, settings=near).judged
    assert (unsure.verdict.name, unsure.verdict.rule) == ("unknown", "clock-not-seen")
    assert unsure.verdict.remedy.action == "none"
    [found] = judged(late, where, settings=far).judged
    assert found.verdict.name == "open"
    ours = "by our clock (its coordinator's could not be measured)"
    assert ours in said(found, "running")
    assert ours in said(found, "deadline")


def test_a_coordinator_that_is_too_old_hides_no_age_of_the_ids_of_others(
    lab3: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker is as before Kafka 3.8: what its own ids are past is not known."""
    topics = [topic(lab3) for _ in range(2)]

    async def name(topic_name: str, *, of_the_old_one: bool) -> str:
        async with Client.to(lab3.bootstrap_servers) as client:
            names = (f"{topic_name}-{number}" for number in itertools.count())
            while True:
                found = next(names)
                home = await client.until(partial(client.coordinator, found))
                if (home == 1) == of_the_old_one:
                    return found

    for topic_name, old in zip(topics, (True, False), strict=True):
        begin(lab3, topic_name, {asyncio.run(name(topic_name, of_the_old_one=old)): 600_000})
    tells = ids._tells_how_long

    async def older(cluster: Cluster, broker: int) -> bool:
        return broker != 1 and await tells(cluster, broker)

    async def nothing(*_: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(ids, "_tells_how_long", older)
    monkeypatch.setattr(clocks, "measured", nothing)
    found = judged(lab3, *topics, settings=Settings(clock_skew=HOUR)).judged
    rules: dict[bool, set[str]] = {}
    for j in found:
        assert j.verdict.owner is not None
        rules.setdefault(j.verdict.owner.coordinator == 1, set()).add(j.verdict.rule)
    assert rules == {True: {"clock-not-seen"}, False: {"within-limits"}}


@pytest.fixture
def clocks_lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Three brokers that abort what is overdue every second."""
    lab = start_lab(LabSpec(name="clocks", brokers=3, settings={ABORT_CYCLE: "1000"}))
    yield lab
    lab.down()


@pytest.mark.long
def test_a_broker_whose_clock_is_ahead_and_one_that_does_not_abort(
    clocks_lab: Lab, topic: MakeTopic
) -> None:
    """The clock is the broker's own, not a patched test; the other's log takes no record."""
    lab = clocks_lab
    [truth] = break_(lab, "clock-ahead", hold=False)
    found = one(lab, truth.topic)
    assert (found.verdict.name, found.verdict.rule) == (truth.verdict, truth.rule)
    assert found.verdict.clock_ahead == pytest.approx(3 * HOUR, abs=5_000)
    assert found.verdict.deadline_in == pytest.approx(truth.timeout_ms, abs=60_000)
    name = truth.transactional_id or ""
    described = eoctl("txn", "describe", name, "-o", "json", lab=lab)
    [row] = described.rows
    assert 0 <= row["age_seconds"] < 60
    assert row["start_timestamp"] > (rfc3339(now_ms() + 2 * HOUR) or "")  # by the broker's clock
    assert "the clock of broker 1 is 3h" in described.stderr

    where, dead = topic(lab), "clock.ignored"

    async def plant() -> set[int]:
        async with Client.to(lab.bootstrap_servers) as client:
            coordinator = await client.until(lambda: client.coordinator(dead))
            producer = await Producer.init(client, dead, 8_000)
            await producer.send(where, 0, [NewRecord(b"x")])
            await set_config(client, 2, STATE, {"min.insync.replicas": "3"})
            return {coordinator, await client.leader(where, 0)}

    needed = asyncio.run(plant())
    lab.kill(max(set(lab.broker_ids) - needed))
    deadline = time.monotonic() + 60
    while True:
        seen = [j for j in judged(lab, where).judged if j.verdict.cycles_missed]
        if seen:
            break
        assert time.monotonic() < deadline, judged(lab, where).judged
        time.sleep(0.5)
    [late] = seen
    assert (late.verdict.name, late.verdict.rule) == ("overdue", "past-timeout")
    assert "the coordinator is not doing it" in said(late, "deadline")
    assert "does not abort it although it is due" in remedy_words(late.verdict.remedy.does)


# --- what happened before ------------------------------------------------------------------------


def test_a_fence_past_the_timeout_is_not_called_a_timeout(late: Lab) -> None:
    """The records of an abort by a fence and by a timeout are the same: neither is claimed.

    The raise after it is no timeout: it leaves the id Empty.
    """
    [dead] = break_(late, "overdue", timeout_ms=1_000)
    name = dead.transactional_id or ""
    act = ("--sample-interval", "0.5s", "--execute", "--yes")
    fenced = eoctl("txn", "fence", name, *act, lab=late)
    assert fenced.status == 0, fenced.stderr
    rows = eoctl("txn", "history", name, "-o", "json", lab=late).rows
    assert {(r["state"], r["epoch_bump"]) for r in rows if r["epoch_bump"]} == {
        ("PrepareAbort", "past-timeout"),
        ("Empty", "fence"),
    }


def test_a_late_orphan_is_told_from_the_commit_before_it(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    """The commit marker at offset 1 ends before this batch."""
    lab = start_lab(LabSpec(name=f"strays{time.time_ns() % 10_000}", settings=UNVERIFIED))
    # nothing was ever begun here: that is told, too
    listed = eoctl("txn", "list", "-o", "json", lab=lab)
    assert (listed.status, listed.json["complete"]) == (3, False), listed.stdout
    assert "no __transaction_state is visible" in listed.json["errors"][0]["detail"]
    for words in (("lso",), ("producers",)):
        assert eoctl(*words, lab=lab).status == 0
    where = topic(lab)

    async def late_write() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            producer = await Producer.init(client, "late")
            await producer.send(where, 0, [NewRecord(b"x")])
            await producer.commit()
            await producer.write(where, 0, [NewRecord(b"too late")])

    asyncio.run(late_write())
    found = one(lab, where)
    assert found.verdict.name == "orphan"
    assert said(found, "earlier-marker").startswith(
        "The commit marker of its producer at offset 1 is before this batch, which begins at "
        "offset 2"
    )
    _an_older_epoch_that_stands_and_one_that_wrote(lab, topic(lab), topic(lab))
    lab.down()


def _an_older_epoch_that_stands_and_one_that_wrote(lab: Lab, stands: str, wrote: str) -> None:
    """Only what was begun after its fence is a zombie; the epoch that was left behind is none."""

    async def fenced() -> int:
        async with Client.to(lab.bootstrap_servers) as client:
            old = await Producer.init(client, "twice")
            for where in (stands, wrote):
                await old.send(where, 0, [NewRecord(b"x")])
            await old.commit()
            await Producer.init(client, "twice")
            before = eoctl("producers", stands, wrote, "--resolve", "-o", "json", lab=lab).rows
            fields = ("older_epoch", "stale_epoch", "wrote_after_fence")
            assert {tuple(r[f] for f in fields) for r in before} == {(True, None, False)}
            await old.write(wrote, 0, [NewRecord(b"too late")])
            return old.producer_id

    pid = asyncio.run(fenced())
    words = ("producers", stands, wrote, "--resolve")
    rows = eoctl(*words, "-o", "json", lab=lab).rows
    assert {(r["topic"], r["producer_id"], r["wrote_after_fence"]) for r in rows} == {
        (stands, pid, False),
        (wrote, pid, True),
    }
    shown = eoctl(*words, "-o", "wide", lab=lab)
    assert "2 older (1 zombie)" in shown.stderr
    last = sorted(line.split()[-1] for line in shown.stdout.splitlines()[1:3])
    assert last == ["older", "zombie"]
    assert one(lab, wrote).verdict.name == "orphan"


def test_an_id_of_a_worker_group_of_connect(late: Lab, topic: MakeTopic) -> None:
    """A member that says what a worker says: real workers are in test_connect.py.

    A group of the same name that speaks another protocol proves nothing, and no verdict changes.
    """
    where = topic(late)
    group, url = f"w.{where}", "http://10.0.0.7:8083/"
    names = [f"{group}-orders-x-0", f"connect-cluster-{group}"]
    begin(late, where, dict.fromkeys(names, 600_000))

    def told() -> list[object]:
        rows = eoctl("txn", "describe", *names, "-o", "json", lab=late).rows
        return [
            r["connect"] and {k: v for k, v in r["connect"].items() if k != "said"} for r in rows
        ]

    hint = {"group": group, "group_exists": False, "connector": None, "task": None}
    assert told() == [None, {**hint, "workers": [], "runs": None}]
    before = [j.verdict.name for j in judged(late, where).judged]
    asyncio.run(join(late, group, url, "orders-x"))
    proven = {"group": group, "group_exists": True, "workers": [url]}
    assert told() == [
        {**proven, "connector": "orders-x", "task": 0, "runs": True},
        {**proven, "connector": None, "task": None, "runs": None},
    ]
    assert [j.verdict.name for j in judged(late, where).judged] == before == ["open", "open"]
    asked = eoctl("why", where, lab=late)
    assert f"connector orders-x in Kafka Connect's worker group {group}, which exists" in asked.text
    assert f"its worker: {url} at 127.0.0.1" in asked.text


async def join(lab: Lab, group: str, url: str, connector: str) -> None:
    """Join a group as Connect's worker with this REST address, and be given a connector's task."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    metadata = struct.pack(">h", 2) + text(url) + struct.pack(">qi", 1, -1)
    given = struct.pack(">hh", 2, 0) + text("leader") + text(url) + struct.pack(">qi", 1, 1)
    given += text(connector) + struct.pack(">iii", 2, -1, 0) + struct.pack(">ii", -1, 0)
    async with Client.to(lab.bootstrap_servers) as client:
        home = await client.until(lambda: client.coordinator(group, GROUP))
        asks = {"group_id": group, "group_instance_id": None, "protocol_type": "connect"}
        joining = {
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "protocols": [("sessioned", metadata)],
            "reason": None,
        }
        request = messages.JoinGroupRequest(**asks, **joining, member_id="")
        first = await client.cluster.ask(home, request)
        request = messages.JoinGroupRequest(**asks, **joining, member_id=first.member_id)
        joined = await client.cluster.ask(home, request)
        assert joined.error_code == 0
        request = messages.SyncGroupRequest(
            **asks,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_name="sessioned",
            assignments=[(joined.member_id, given)],
        )
        assert (await client.cluster.ask(home, request)).error_code == 0


def test_an_id_that_does_not_exist_is_no_gap(late: Lab) -> None:
    asked = eoctl("txn", "describe", "nosuch", "-o", "json", lab=late)
    assert (asked.status, asked.rows, asked.json["complete"]) == (0, [], True), asked.stdout
    shown = eoctl("txn", "describe", "nosuch", lab=late)
    assert "nosuch does not exist" in shown.stderr
    assert "INCOMPLETE" not in shown.stdout + shown.stderr


# --- what may not be seen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("lso",), ("lso", "--all", "--internal"), ("producers",), ("txn", "list")]
)
def test_without_any_permission_it_is_told(secure_lab: Lab, words: tuple[str, ...]) -> None:
    client = str(secure.client_file(secure_lab.folder, "nobody", "SCRAM"))
    server = ("--bootstrap-server", secure_lab.record.bootstrap_servers("SCRAM"))
    asked = eoctl(*words, *server, "--command-config", client, "-o", "json")
    assert (asked.status, asked.json["complete"], asked.rows) == (3, False, []), asked.stderr
    assert "DESCRIBE" in asked.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    "words", [("status",), ("check",), ("why",), ("txn", "hanging", "--all")], ids=lambda w: w[-1]
)
def test_without_any_permission_nothing_is_called_healthy(
    secure_lab: Lab, words: tuple[str, ...]
) -> None:
    client = str(secure.client_file(secure_lab.folder, "nobody", "SCRAM"))
    server = ("--bootstrap-server", secure_lab.record.bootstrap_servers("SCRAM"))
    for output in (("-o", "json"), ()):
        asked = eoctl(*words, *server, "--command-config", client, *output, "--timeout", "30s")
        assert asked.status == 3, asked.stdout + asked.stderr
        if output:
            assert asked.json["complete"] is False
            assert asked.json["errors"]
        else:
            assert "all within limits" not in asked.stdout
            assert "INCOMPLETE" in asked.stdout + asked.stderr
