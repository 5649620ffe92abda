"""Remedies beside living applications, on transactions v1: nobody alive loses a record unawares.

Under v1 an id keeps its epoch from one transaction to the next, so a marker on a stray batch of an
idle id could take what its owner writes a moment later.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write import markers as repairs
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.operations.remedy import commit as remedy_commit
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy import remedy_change as remedy
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import MAX_EPOCH
from recovery.inspect.observation import Settings
from recovery.remedy.repairs import MarkerRequest, RaiseRequest
from recovery.values import replace
from tests.kafka.command import Ran, environment, eoctl, unfinished
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import until
from tests.kafka.planting import with_last_epoch
from tests.kafka.relay import END_TXN, INIT_PRODUCER_ID, relayed
from tests.kafka.remedying import dumped_markers, read_committed

FAST = ("--sample-interval", "0.3s")
ACT = ("--execute", "--yes")
FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Transactions v1, strays accepted, nothing aborted for its age."""
    made = start_lab(
        LabSpec(
            name="unharmed",
            transaction_version=1,
            settings={
                "transaction.partition.verification.enable": "false",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
            },
        )
    )
    yield made
    made.down()


@dataclass
class Scene:
    """A living owner of an id, and the partition where its stray batch lies."""

    lab: Lab
    topic: str
    owner: Producer
    start: int = 0

    @property
    def name(self) -> str:
        return self.owner.transactional_id or ""

    @property
    def abort(self) -> tuple[str, ...]:
        pid, start = str(self.owner.producer_id), str(self.start)
        where = f"{self.topic}:0"
        return ("txn", "abort", where, "--pid", pid, "--start-offset", start, *FAST)

    def run(self, *words: str, kill_at: str | None = None) -> Ran:
        return eoctl(*words, lab=self.lab, env=environment(EOCTL_TEST_KILL_AT=kill_at))


async def with_stray(lab: Lab, client: Client, topic: str) -> Scene:
    """The owner commits on partition 1; then a late write of that transaction reaches 0."""
    owner = await Producer.init(client, f"{topic}-id")
    await owner.send(topic, 1, [NewRecord(b"home")])
    late = Producer(client, owner.producer_id, owner.epoch, owner.transactional_id)
    await owner.commit()
    start = await late.write(topic, 0, [NewRecord(b"stray 1"), NewRecord(b"stray 2")])
    owner.sequences[TopicPartition(topic, 0)] = late.sequences[TopicPartition(topic, 0)]
    return Scene(lab, topic, owner, start)


def in_client(lab: Lab, scenario: Callable[[Client], object]) -> None:
    async def main() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await scenario(client)  # type: ignore[misc]

    asyncio.run(main())


def test_the_stray_of_an_idle_id_is_aborted_and_its_owner_hears_of_it(
    lab: Lab, topic: MakeTopic
) -> None:
    """The id is raised first: the owner's next write fails, instead of a commit that lies."""
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        scene = await with_stray(lab, client, name)
        shown = scene.run(*scene.abort)
        assert shown.status == 0, shown.stderr
        assert "must be restarted" in shown.text
        assert f"{name}:0 pid {scene.owner.producer_id}" in shown.text
        planned = scene.run(*scene.abort, "-o", "json").rows[0]
        assert [step["action"] for step in planned["steps"]] == ["raise-id", "write-marker"]
        killed = scene.run(*scene.abort, *ACT, kill_at="step-1-done")
        assert killed.status < 0
        with pytest.raises(WireError) as refused:
            await scene.owner.send(name, 0, [NewRecord(b"live")])
        assert refused.value.error in FENCED
        done = scene.run(*scene.abort, *ACT, "-o", "json")
        assert done.status == 0, done.stderr
        assert [s["status"] for s in done.rows[0]["steps"]] == ["already-done", "done"]
        about = done.rows[0]["steps"][1]["about"][0]
        assert (about["verdict"], about["dropped"], about["freed"]) == ("orphan", 2, 0)
        assert about["rule"]
        assert about["evidence"]
        await client.plain(name, 0, [NewRecord(b"after")])
        assert read_committed(lab, name, 0) == [b"after"]
        restarted = await Producer.init(client, scene.name)
        await restarted.send(name, 0, [NewRecord(b"restarted")])
        await restarted.commit()
        assert read_committed(lab, name, 0) == [b"after", b"restarted"]

    in_client(lab, scenario)


def test_what_another_host_has_done_meanwhile_is_found_done(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """The id is raised here, then another host does all of it: the entry here is closed."""
    name, before = topic(lab, 2), unfinished("txn")

    async def scenario(client: Client) -> None:
        scene = await with_stray(lab, client, name)
        assert scene.run(*scene.abort, *ACT, kill_at="step-1-done").status < 0
        [entry] = unfinished("txn") - before
        elsewhere = environment(EOCTL_STATE_DIR=str(tmp_path))
        won = eoctl(*scene.abort, *ACT, lab=lab, env=elsewhere)
        assert won.status == 0, won.stderr
        lost = scene.run("journal", "resume", entry, *ACT, "-o", "json")
        assert lost.status == 0, lost.stdout + lost.stderr
        assert [s["status"] for s in lost.rows[0]["steps"]] == ["already-done", "already-done"]
        assert unfinished("txn") == before
        pid = scene.owner.producer_id
        assert [o for o, _ in dumped_markers(lab, name, 0, pid)] == ["abort"], "one marker"

    in_client(lab, scenario)


def test_an_owner_that_begins_between_look_and_marker_keeps_its_records(
    lab: Lab, topic: MakeTopic
) -> None:
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        scene = await with_stray(lab, client, name)
        assert scene.run(*scene.abort, *ACT, kill_at="begun").status < 0
        await scene.owner.send(name, 0, [NewRecord(b"live")])
        refused = scene.run(*scene.abort, *ACT)
        assert refused.status == 4, refused.stdout + refused.stderr
        await scene.owner.commit()
        assert b"live" in read_committed(lab, name, 0)

    in_client(lab, scenario)


def test_what_was_dropped_beyond_the_plan_is_told(lab: Lab, topic: MakeTopic) -> None:
    """Its producer writes once more between the last look and the marker."""
    name = topic(lab, 2)
    told: list[tuple[str, object]] = []

    async def scenario(client: Client) -> None:
        scene = await with_stray(lab, client, name)
        made: list[Plan] = []
        context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
        request = remedy.RemedyRequest(
            "abort", f"{name}:0", producer_id=scene.owner.producer_id, start_offset=scene.start
        )

        async def plan(cluster: Cluster) -> None:
            found = await remedy.plan(cluster, context, request, Settings(), pause=0.3)
            assert found.plan is not None
            made.append(found.plan)

        await asyncio.to_thread(with_cluster, context, 30.0, plan)
        step = made[0].steps[-1]
        more = Producer(client, scene.owner.producer_id, scene.owner.epoch, scene.name)
        more.sequences[TopicPartition(name, 0)] = 2
        beyond = await more.write(
            name, 0, [NewRecord(b"one"), NewRecord(b"two"), NewRecord(b"three")]
        )

        async def write_and_look(cluster: Cluster) -> None:
            fields = MarkerRequest.__struct_fields__
            marker = MarkerRequest(**{k: v for k, v in step.parameters.items() if k in fields})
            assert await repairs.write_marker(cluster, step.parameters["leader"], marker) == "NONE"
            seen = await remedy_marker.ended(cluster, step)
            assert seen.done
            told.append((seen.beyond or "", seen.saw))

        await asyncio.to_thread(with_cluster, context, 30.0, write_and_look)
        [(sentence, saw)] = told
        assert f"wrote 3 more records, from offset {beyond} on" in sentence
        assert "dropped" in sentence
        assert isinstance(saw, dict)
        assert (saw["planned_end"], saw["marker_offset"]) == (beyond, beyond + 3)

    in_client(lab, scenario)


def test_half_done_it_is_closed_only_by_hand(lab: Lab, topic: MakeTopic) -> None:
    """The id was raised, then its application was restarted there: the marker can't be sent."""
    name, before = topic(lab, 2), unfinished("txn")

    async def scenario(client: Client) -> None:
        scene = await with_stray(lab, client, name)
        assert scene.run(*scene.abort, *ACT, kill_at="step-1-done").status < 0
        restarted = await Producer.init(client, scene.name)
        await restarted.send(name, 0, [NewRecord(b"restarted")])
        [entry] = unfinished("txn") - before
        resume = f"eoctl journal resume {entry}"
        ways = (
            f"`{resume} --execute` tries the rest again; where that is refused, only "
            f"`{resume} --abandon --execute` closes it: what was done stays (it cannot be undone)"
        )
        for words, said in (
            ((*scene.abort, *ACT), "1 of 2 steps done, the entry stays unfinished"),
            (("journal", "resume", entry, *ACT), "1 of 2 steps done"),
            (("journal", "undo", entry, *ACT), "abort cannot be undone"),
        ):
            refused = scene.run(*words)
            assert refused.status == 4, (words, refused.stdout, refused.stderr)
            assert said in refused.stderr
            assert ways in refused.stderr
        assert unfinished("txn") - before == {entry}
        await restarted.end(commit=False)
        await restarted.completed()
        abandon = ("journal", "resume", entry, "--abandon", "--execute")
        assert scene.run(*abandon).status == 0
        assert unfinished("txn") == before
        assert read_committed(lab, name, 0) == []

    in_client(lab, scenario)


def test_each_request_of_a_raise_is_sent_under_the_lock(lab: Lab, topic: MakeTopic) -> None:
    """By InitProducerId alone, as before Kafka 4.0: the lock goes after 0, 1, 2 and 3 requests."""
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, f"{name}-id")
        await owner.send(name, 0, [NewRecord(b"home")])
        await owner.commit()
        await owner.completed()
        with relayed(lab) as relay:
            server = Connect(bootstrap_server=",".join(relay.addresses))
            context = replace(resolve(server), hosts=relay.hosts)

            async def attempt(held: int, end_version: int | None, timeout_ms: int) -> str:
                seen = await client.transaction(f"{name}-id")
                assert seen is not None
                assert seen.producer_epoch is not None
                request = RaiseRequest(
                    *(f"{name}-id", seen.producer_id, seen.producer_epoch),
                    *(timeout_ms, seen.producer_epoch, end_version),
                )
                step = remedy_raise.step(request, seen, owner_is_gone=False)
                relay.requests.clear()
                return await asyncio.to_thread(
                    with_cluster, context, 30.0, lambda c: raised(c, step, held)
                )

            assert "lost; nothing was sent" in await attempt(0, None, 60_000)
            assert relay.changing == []
            assert await attempt(1, None, 60_000) == "unsure: the lock is lost"
            assert relay.sent(INIT_PRODUCER_ID).total() == 1
            assert await attempt(2, None, 60_000) == "unsure: the lock is lost"
            assert relay.sent(INIT_PRODUCER_ID).total() == 2
            assert await attempt(3, None, 60_000) == "done"
            assert relay.sent(INIT_PRODUCER_ID).total() == 3
            assert await attempt(3, 5, 60_000) == "done"
            assert (relay.sent(INIT_PRODUCER_ID).total(), relay.sent(END_TXN).total()) == (2, 1)
            # and a timeout that these brokers don't take is refused, with the way out
            before = await client.transaction(f"{name}-id")
            said = await attempt(2, None, 3_600_000)
            assert said.startswith("refused: the coordinator refuses, nothing was changed")
            assert "INVALID_TRANSACTION_TIMEOUT; its timeout is 1h, above" in said
            assert "shorter transaction.timeout.ms" in said
            assert await client.transaction(f"{name}-id") == before

    in_client(lab, scenario)


async def raised(cluster: Cluster, step: Step, held: int) -> str:
    """What became of a raise whose lock is lost after so many requests."""
    asked = 0

    def ensure_held() -> None:
        nonlocal asked
        asked += 1
        if asked > held:
            raise UnverifiedError("the lock is lost")

    try:
        seen_raised = await remedy_raise.send(cluster, step, ensure_held)
    except RefusedError as error:
        return f"refused: {error.what}; {error.remedy}"
    except UnverifiedError as error:
        return f"unsure: {error.what}"
    seen = await remedy_raise.ended(cluster, step, seen_raised)
    return "done" if seen.done else seen.detail


@pytest.mark.parametrize("outcome", ["abort", "commit"])
def test_a_marker_at_the_last_epoch_stays_there(lab: Lab, topic: MakeTopic, outcome: str) -> None:
    """There is no epoch above 32767: the marker bears it, and the leader takes it."""
    name = topic(lab)

    async def scenario(client: Client) -> None:
        await Producer.init(client, f"{name}-other")  # makes __transaction_state
        given = await Producer.init(client)
        last = Producer(client, given.producer_id, MAX_EPOCH, f"{name}-nobody")
        start = await last.write(name, 0, [NewRecord(b"1"), NewRecord(b"2")])
        await client.plain(name, 0, [NewRecord(b"after")])
        which = ("--pid", str(last.producer_id), "--start-offset", str(start))
        done = eoctl(
            *("txn", "resolve", f"{name}:0", *which, "--outcome", outcome, "--without-proof"),
            *(*FAST, *ACT, "-o", "json"),
            lab=lab,
        )
        assert done.status == 0, done.stderr
        sent = done.rows[0]["steps"][-1]["parameters"]
        assert (sent["producer_epoch"], sent["transaction_version"]) == (MAX_EPOCH, 0)
        mine = [b"1", b"2"] if outcome == "commit" else []
        assert read_committed(lab, name, 0) == [*mine, b"after"]
        assert dumped_markers(lab, name, 0, last.producer_id) == [(outcome, MAX_EPOCH)]

    in_client(lab, scenario)


@pytest.mark.long
def test_an_id_whose_epochs_are_exhausted_is_raised_to_another_producer_id(
    lab: Lab, topic: MakeTopic
) -> None:
    """32,766 starts of an application: the raise before the marker rotates the producer id."""
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        owner = await with_last_epoch(client, f"{name}-id")
        first = owner.producer_id
        await owner.send(name, 1, [NewRecord(b"home")])
        late = Producer(client, owner.producer_id, owner.epoch, owner.transactional_id)
        await owner.commit()
        await owner.completed()
        start = await late.write(name, 0, [NewRecord(b"stray")])
        await client.plain(name, 0, [NewRecord(b"after")])
        scene = Scene(lab, name, owner, start)
        done = scene.run(*scene.abort, *ACT, "-o", "json")
        assert done.status == 0, done.stderr
        assert [s["action"] for s in done.rows[0]["steps"]] == ["raise-id", "write-marker"]
        now = await client.transaction(f"{name}-id")
        assert now is not None
        assert now.producer_id != first
        [(outcome, marked)] = dumped_markers(lab, name, 0, first)
        assert (outcome, marked) == ("abort", MAX_EPOCH)
        assert read_committed(lab, name, 0) == [b"after"]
        with pytest.raises(WireError) as refused:
            await owner.send(name, 0, [NewRecord(b"too late")])
        assert refused.value.error in (*FENCED, "INVALID_PRODUCER_ID_MAPPING")
        restarted = await Producer.init(client, f"{name}-id")
        await restarted.send(name, 0, [NewRecord(b"restarted")])
        await restarted.commit()
        assert read_committed(lab, name, 0) == [b"after", b"restarted"]

    in_client(lab, scenario)


def test_fence_judges_first(lab: Lab, topic: MakeTopic) -> None:
    """open and idle: refused with the reason, and the owner goes on; only the override acts."""
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, f"{name}-live")
        fence = ("txn", "fence", f"{name}-live", *FAST)
        await owner.send(name, 0, [NewRecord(b"open")])
        refused = eoctl(*fence, *ACT, lab=lab)
        assert refused.status == 4, refused.stdout + refused.stderr
        assert "within its limits" in refused.stderr
        assert "--owner-is-gone" in refused.stderr
        await owner.commit()
        idle = eoctl(*fence, *ACT, lab=lab)
        assert idle.status == 4, idle.stdout + idle.stderr
        assert "nothing is open" in idle.stderr
        await owner.send(name, 0, [NewRecord(b"still there")])
        await owner.commit()
        assert read_committed(lab, name, 0) == [b"open", b"still there"]
        gone = eoctl(*fence, "--owner-is-gone", *ACT, "-o", "json", lab=lab)
        assert gone.status == 0, gone.stderr
        [step] = gone.rows[0]["steps"]
        assert step["parameters"]["owner_is_gone"] is True
        entry = eoctl("journal", "show", gone.rows[0]["journal"], "-o", "json").json
        [kept] = entry["plan"]["steps"][0]["about"]
        assert (kept["verdict"], kept["rule"]) == ("at rest", "idle")
        assert "CompleteCommit" in kept["evidence"][0]["text"]
        with pytest.raises(WireError) as shut_out:
            await owner.send(name, 0, [NewRecord(b"too late")])
        assert shut_out.value.error in FENCED

    in_client(lab, scenario)


def test_only_a_dead_owner_s_transaction_is_committed_in_its_stead(
    lab: Lab, topic: MakeTopic
) -> None:
    """And only to save an earlier commit. Whoever writes, or whose group has members, lives."""
    name = topic(lab, 2)
    id_, other = f"{name}-id", f"of-{name}"

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, id_)
        start = await owner.send(name, 0, [NewRecord(b"open")])
        which = ("--pid", str(owner.producer_id), "--start-offset", str(start))
        words = ("txn", "resolve", f"{name}:0", *which, "--outcome", "commit", "--owner-is-gone")
        refused = eoctl(*words, *FAST, *ACT, lab=lab)
        assert refused.status == 4, refused.stdout + refused.stderr
        assert "no later transaction of its id is open over it" in refused.text

        async def judged(interval: float = 0.05) -> remedy_fence.Judgement:
            row = await client.transaction(id_)
            assert row is not None
            return await remedy_commit.judged(client.cluster, row, Settings(), interval)

        quiet = await judged()
        assert quiet.partitions == (TopicPartition(name, 0),)
        assert [j.about.producer_id for j in quiet.mine] == [owner.producer_id]
        writing = asyncio.create_task(judged(1.0))
        while not writing.done():
            await owner.send(name, 0, [NewRecord(b"alive")])
            await asyncio.sleep(0.05)
        with pytest.raises(RefusedError, match="its owner wrote between two looks"):
            await writing
        await owner.send_offsets(other, {TopicPartition(name, 1): 0})
        with member(lab, other, name):
            with pytest.raises(RefusedError, match=f"group {other}.* has 1 member"):
                await judged()
            living = pytest.raises(RefusedError, match="the group of its name has members")
            with member(lab, name, name), living:
                await judged()
        await owner.commit()
        with pytest.raises(RefusedError, match="it is CompleteCommit: its outcome is decided"):
            await judged()

    in_client(lab, scenario)


@contextmanager
def member(lab: Lab, group: str, topic: str) -> Iterator[None]:
    """A consumer that has joined a group, for as long as the block runs."""
    from confluent_kafka import Consumer

    consumer = Consumer(lab.client_properties() | {"group.id": group})
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        yield
    finally:
        consumer.close()


def test_an_overdue_transaction_is_fenced_unless_its_owner_writes(
    lab: Lab, topic: MakeTopic
) -> None:
    name = topic(lab, 2)

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, f"{name}-late", 500)
        fence = ("txn", "fence", f"{name}-late", "--sample-interval", "1.5s")
        await owner.send(name, 0, [NewRecord(b"0")])
        await asyncio.sleep(1.0)
        running = asyncio.create_task(asyncio.to_thread(eoctl, *fence, *ACT, lab=lab))
        while not running.done():
            await owner.send(name, 0, [NewRecord(b"alive")])
            await asyncio.sleep(0.1)
        refused = await running
        assert refused.status == 4, refused.stdout + refused.stderr
        assert "is alive: its owner worked on" in refused.stderr
        done = eoctl(*fence, *ACT, "-o", "json", lab=lab)
        assert done.status == 0, done.stderr
        [about] = done.rows[0]["steps"][0]["about"]
        assert (about["partition"], about["verdict"]) == (f"{name}:0", "overdue")
        entry = eoctl("journal", "show", done.rows[0]["journal"], "-o", "json").json
        [kept] = entry["plan"]["steps"][0]["about"]
        assert (kept["verdict"], kept["rule"]) == ("overdue", "past-timeout")
        assert kept["evidence"]
        assert read_committed(lab, name, 0) == []

    in_client(lab, scenario)


@pytest.mark.long
def test_a_timeout_above_the_brokers_limit_of_today_is_refused_before_anything_is_sent(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """EndTxn alone would leave the owner its epoch (v1): so the plan is refused, not its end."""
    name = topic(lab)

    async def begin(client: Client) -> None:
        owner = await Producer.init(client, f"{name}-id", 600_000)
        await owner.send(name, 0, [NewRecord(b"open")])

    async def look(client: Client) -> None:
        seen.append(await client.until(lambda: client.transaction(f"{name}-id")))

    seen: list[object] = []
    in_client(lab, begin)
    settings = lab.broker_folder(1) / "server.properties"
    before = settings.read_text()
    for text in (f"{before}\ntransaction.max.timeout.ms=60000\n", before):
        lab.terminate(1)
        settings.write_text(text)
        lab.start(1)
        in_client(lab, look)
        if text == before:
            break
        with relayed(lab) as relay:
            env = environment(EOCTL_CONFIG=relay.config(tmp_path))
            for act in ((), ACT):
                words = ("txn", "fence", f"{name}-id", "--owner-is-gone", *FAST, *act)
                refused = eoctl(*words, "--context", "relayed", env=env)
                assert refused.status == 4, refused.stdout + refused.stderr
                assert "its timeout is 10m, above the brokers' transaction.max.timeout.ms" in (
                    refused.stderr
                )
            assert relay.changing == []
    assert seen[0] == seen[1]


def test_where_a_producer_stands_is_not_known_on_a_partition_that_is_not_there(lab: Lab) -> None:
    gone = TopicPartition("never-there", 0)

    async def look() -> None:
        async with Cluster(client_settings(lab.client_properties()), Deadline(30)) as cluster:
            await remedy_commit.stands(cluster, [gone], 7)

    with pytest.raises(IncompleteError) as unknown:
        asyncio.run(look())
    assert "its producers could not be read" in unknown.value.sentence
    assert "never-there:0" in unknown.value.sentence
