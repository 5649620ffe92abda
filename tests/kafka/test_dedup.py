"""`dedup` on real brokers: topics with planted repeats, and runs that are killed."""

import asyncio
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write.topics import create as create_topic
from eoctl.lab.cluster import Lab
from recovery.errors import RefusedError
from recovery.facts import BrokerFacts
from tests.docs.pages import follows
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.dedup_world import (
    Copier,
    Key,
    check_clean,
    consumed,
    left_pending,
    produce,
    source,
    topics,
)
from tests.kafka.reading import Reading
from tests.kafka.relay import relayed
from tests.kafka.tools import kafka_tool
from tests.share import kills, only_here
from tests.started import started

CREATE_TOPICS = 19


@pytest.fixture
def dirty_and_clean(lab1: Lab, topic: MakeTopic) -> tuple[str, str, Copier]:
    dirty, clean = topics(lab1, topic)
    copier = Copier(lab1, dirty, seed=hash(dirty) & 0xFFFF)
    copier.run(600)
    return dirty, clean, copier


def dedup(lab: Lab, *words: str, kill_at: str | None = None) -> Ran:
    return eoctl("dedup", *words, lab=lab, env=environment(EOCTL_TEST_KILL_AT=kill_at))


@follows("docs/dedup.md", "The clean copy of a topic")
def test_the_page(it: Reading, lab1: Lab, dirty_and_clean: tuple[str, str, Copier]) -> None:
    dirty, clean, _ = dirty_and_clean
    it.lab = lab1
    it.names |= {"orders-enriched": dirty, "orders-clean": clean}
    assert "repeats left out" in it.run("dedup", 0).text
    assert not consumed(lab1, clean, 0)


def test_planned_copied_and_followed(lab1: Lab, dirty_and_clean: tuple[str, str, Copier]) -> None:
    dirty, clean, copier = dirty_and_clean
    planned = dedup(lab1, dirty, clean, "-o", "json")
    assert planned.status == 0, planned.stderr
    tally = planned.rows[0]["details"]["tally"]
    assert not consumed(lab1, clean, 0)

    done = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert done.status == 0, done.stderr
    repeats = check_clean(lab1, dirty, clean, source)
    assert repeats > 50
    assert (tally["duplicates"], tally["without_id"], tally["differs"]) == (repeats, 0, 0)

    again = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (again.status, "nothing new" in again.stderr) == (0, True)
    copier.run(200)
    refused = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (refused.status, "--follow" in refused.stderr) == (4, True)
    shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup")  # a shortcut, no more
    for _ in range(2):
        followed = dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")
        assert followed.status == 0, followed.stderr
        check_clean(lab1, dirty, clean, source)
        copier.run(100)


KILLS = (
    "begun",
    "dedup-batch",
    "dedup-committed",
    "step-1-performed",
    "step-2-started",
    "step-2-done",
)


@pytest.mark.parametrize("kill_at", only_here(KILLS, "dedup-committed"))
def test_killed_at_a_step_the_same_command_ends_it(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], kill_at: str
) -> None:
    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, "--execute", "--yes", kill_at=kill_at)
    assert killed.status == -signal.SIGKILL
    ended = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert ended.status == 0, ended.stderr
    check_clean(lab1, dirty, clean, source)


def test_what_a_killed_run_sent_and_never_committed_is_no_record_of_the_output(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    """Killed in its first transaction, with records of it at the broker already."""
    dirty, clean, _ = dirty_and_clean
    ids = [f"{dirty}-{clean}-eoctl-dedup-{p}" for p in range(2)]
    killed = [Producer({**lab1.client_properties(), "transactional.id": i}) for i in ids]
    for partition, producer in enumerate(killed):
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(clean, value=b"never committed", partition=partition)
        producer.flush(20)
    killed[1].abort_transaction(20)  # the other is open still
    ended = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert ended.status == 0, ended.stderr
    check_clean(lab1, dirty, clean, source)


@pytest.mark.parametrize("kill_at", [None, "step-1-performed"])
def test_a_position_that_a_killed_run_left_pending_is_not_waited_for(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], kill_at: str | None
) -> None:
    """Killed between the position and the commit: open for ten minutes if nobody ends it."""
    dirty, clean, _ = dirty_and_clean
    if kill_at is not None:
        killed = dedup(lab1, dirty, clean, "--execute", "--yes", kill_at=kill_at)
        assert killed.status == -signal.SIGKILL
    name = f"{dirty}-{clean}-eoctl-dedup"
    left = left_pending(lab1, f"{name}-1", name, (dirty, 1), (clean, 1))
    ended = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert ended.status == 0, ended.stderr
    check_clean(lab1, dirty, clean, source)
    assert left  # lived until here: what it left open was not ended by its own end


def test_an_output_in_which_somebody_else_has_a_transaction_open_is_no_beginning(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    dirty, clean, _ = dirty_and_clean
    other = Producer({**lab1.client_properties(), "transactional.id": f"other-{clean}"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(clean, value=b"of somebody else", partition=0)
    other.flush(20)
    ended = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (ended.status, "a transaction is open in it" in ended.stdout) == (6, True), ended.stderr
    other.commit_transaction(20)
    assert [r.value for r in consumed(lab1, clean, 0)] == [b"of somebody else"]
    again = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (again.status, "has been written to" in again.stdout) == (4, True), again.stderr


def test_killed_at_any_moment(lab1: Lab, topic: MakeTopic) -> None:
    """Seeded kills, --follow between them, and the memory lost now and then."""
    chance = random.Random(7)
    dirty, clean = topics(lab1, topic)
    copier = Copier(lab1, dirty, seed=7)
    killed = 0
    command = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, "dedup", dirty, clean]
    wanted = kills(30, 2)
    for _ in range(4 * wanted):  # on a quick machine a run may end before its kill
        if killed == wanted:
            break
        copier.run(400)
        with started(
            [*command, "--follow", "--execute", "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        ) as running:
            time.sleep(chance.uniform(0.3, 2.0))
            running.kill()
            killed += running.wait() == -signal.SIGKILL
        if chance.random() < 0.3:
            shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup", ignore_errors=True)
    assert killed
    while (last := dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")).stderr.count(
        "going on"
    ):
        assert last.status == 0, last.stderr
    assert last.status == 0, last.stderr
    check_clean(lab1, dirty, clean, source)


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("key", lambda r: r.key),
        ("value", lambda r: r.value),
        ("header:source.offset", lambda r: r.header("source.offset")),
        ("json:order.id", lambda r: r.value),
    ],
    ids=["key", "value", "header", "json"],
)
def test_by_an_id(lab1: Lab, dirty_and_clean: tuple[str, str, Copier], by: str, key: Key) -> None:
    dirty, clean, _ = dirty_and_clean
    done = dedup(lab1, dirty, clean, "--by", by, "--execute", "--yes")
    assert done.status == 0, done.stderr
    assert check_clean(lab1, dirty, clean, key)


def test_a_horizon_bounds_what_is_remembered_and_the_plan_says_so(
    lab1: Lab, topic: MakeTopic
) -> None:
    dirty, clean = topic(lab1, name="dirty"), topic(lab1, name="clean")
    producer = Producer(lab1.client_properties())
    for one in ["a", "b", "a", "c", "d", "e", "f", "a", "b", "a"]:
        producer.produce(dirty, key=one, value=b"")
    producer.flush(20)
    words = (dirty, clean, "--by", "key", "--horizon", "4")
    planned = dedup(lab1, *words, "-o", "json")
    assert "more than 4 offsets after" in planned.rows[0]["details"]["beyond"]
    assert dedup(lab1, *words, "--execute", "--yes").status == 0
    found = [r.key for r in consumed(lab1, clean, 0)]
    assert found == [b"a", b"b", b"c", b"d", b"e", b"f", b"a", b"b"]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(0, "1", "a"), (0, "3", "b"), (0, "2", "c")], "comes for the first time after"),
        ([(0, "1", "a"), (1, "1", "a")], "in partitions 0 and 1"),
        ([(0, "one", "a")], "not decimal digits"),
    ],
    ids=["order", "scattered", "no number"],
)
def test_refused_where_numbers_cannot_tell(
    lab1: Lab, topic: MakeTopic, rows: list[tuple[int, str, str]], why: str
) -> None:
    dirty, clean = topic(lab1, 2, name="dirty"), topic(lab1, 2, name="clean")
    produce(lab1, dirty, rows)
    refused = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (refused.status, why in refused.stderr) == (4, True), refused.stderr
    assert not consumed(lab1, clean, 0)


def test_the_same_number_with_other_content_is_copied_and_told(lab1: Lab, topic: MakeTopic) -> None:
    dirty, clean = topic(lab1, name="dirty"), topic(lab1, name="clean")
    produce(lab1, dirty, [(0, "1", "a"), (0, "2", "b"), (0, "2", "other"), (0, "2", "b")])
    done = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (
        done.status,
        "1 copied with a number that repeats and other content" in done.stderr,
    ) == (0, True)
    assert [r.value for r in consumed(lab1, clean, 0)] == [b"a", b"b", b"other"]


def test_refusals_of_topics(lab1: Lab, topic: MakeTopic) -> None:
    dirty, clean, small = (topic(lab1, n, name="t") for n in (2, 2, 1))
    produce(lab1, dirty, [(0, "1", "a")])
    produce(lab1, clean, [(0, "1", "a")])
    for output, status, why in (
        (small, 4, f"it has 1 partition, {dirty} has 2"),
        (clean, 4, "has been written to"),
        ("not-there", 4, "--replication-factor 1 --config cleanup.policy="),
        (dirty, 2, "its own clean copy"),
    ):
        refused = dedup(lab1, dirty, output)
        assert (refused.status, why in refused.stderr) == (status, True), refused.stderr


def test_a_position_that_expired_is_no_beginning(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    from confluent_kafka.admin import AdminClient

    dirty, clean, _ = dirty_and_clean
    assert dedup(lab1, dirty, clean, "--execute", "--yes").status == 0
    admin = AdminClient(lab1.client_properties())
    group = f"{dirty}-{clean}-eoctl-dedup"
    admin.delete_consumer_groups([group])[group].result(20)
    refused = dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")
    assert (refused.status, "no position of this job is known" in refused.stderr) == (4, True)
    check_clean(lab1, dirty, clean, source)


def test_a_position_that_expires_between_kill_and_rerun_doubles_nothing(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier]
) -> None:
    from confluent_kafka.admin import AdminClient

    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, "--execute", "--yes", kill_at="step-1-performed")
    assert killed.status == -signal.SIGKILL
    there = [consumed(lab1, clean, p) for p in range(2)]
    assert any(there)
    admin = AdminClient(lab1.client_properties())
    group = f"{dirty}-{clean}-eoctl-dedup"
    admin.delete_consumer_groups([group])[group].result(20)
    again = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert again.status != 0, again.stderr
    assert consumed(lab1, clean, 0) == there[0]


def test_an_empty_partition_has_a_position_too(lab1: Lab, topic: MakeTopic) -> None:
    """What comes there and is deleted before the next run is missed, not passed over."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    dirty, clean = topics(lab1, topic)
    produce(lab1, dirty, [(0, "1", "a"), (0, "1", "a")])
    first = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (first.status, "nothing is there yet" in first.stderr) == (0, True), first.stderr
    assert len(consumed(lab1, clean, 0)) == 1
    produce(lab1, dirty, [(1, str(n), "b") for n in range(10)])
    as_planned = dedup(lab1, dirty, clean, "--execute", "--yes")
    assert (as_planned.status, "--follow" in as_planned.stderr) == (4, True), as_planned.stderr
    admin = AdminClient(lab1.client_properties())
    partition = TopicPartition(dirty, 1, 5)
    admin.delete_records([partition])[partition].result(20)
    refused = dedup(lab1, dirty, clean, "--follow", "--execute", "--yes")
    assert (refused.status, "5 offsets are gone" in refused.stderr) == (4, True), refused.stderr
    assert consumed(lab1, clean, 1) == []


def test_what_compaction_took_from_the_memory_is_told(lab1: Lab, topic: MakeTopic) -> None:
    """The log begins at 0 as before, but the original of a repeat is no longer in it."""
    compact = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "200",
        "min.compaction.lag.ms": "0",
        "retention.ms": "-1",
    }
    dirty = topic(lab1, 1, 1, compact, "dirty")
    clean = topic(lab1, 1, 1, {"retention.ms": "-1"}, "clean")
    producer = Producer(lab1.client_properties())

    def send(key: str) -> None:
        producer.produce(dirty, key=key, value=b"x", headers=[("id", key)])
        producer.flush(20)

    send("a")
    send("b")
    words = ("--by", "header:id", "--execute", "--yes")
    first = dedup(lab1, dirty, clean, *words)
    assert first.status == 0, first.stderr
    shutil.rmtree(Path(environment()["EOCTL_STATE_DIR"]) / "dedup")
    until = time.monotonic() + 60
    while [r.key for r in consumed(lab1, dirty, 0)][:2] == [b"a", b"b"]:
        assert time.monotonic() < until, "nothing was compacted"
        time.sleep(0.3)
        send("a")
    refused = dedup(lab1, dirty, clean, "--follow", *words)
    told = "2 records were copied from offsets [0, 2), and the log still holds 1:"
    assert (refused.status, told in refused.stderr) == (4, True), refused.stderr
    assert [r.key for r in consumed(lab1, clean, 0)] == [b"a", b"b"]


@pytest.mark.long
def test_no_transaction_grows_old_while_reading_is_slow(lab1: Lab, topic: MakeTopic) -> None:
    """Between two responses lies more than the transaction may last."""
    dirty, clean = topics(lab1, topic)
    values = [random.Random(n).randbytes(60_000).hex() for n in range(6)]
    for number, value in enumerate(values):  # a batch each
        produce(lab1, dirty, [(0, str(number), value)])
    slow = ["--max-rate", "30KB/s", "--execute", "--yes"]
    code = (
        "import sys; from eoctl.engine import dedup_task; from eoctl.cli.main import run; "
        "dedup_task.TRANSACTION_MS, dedup_task.TRANSACTION_SECONDS = 1500, 0.5; "
        "sys.exit(run(sys.argv[1:]))"
    )
    command = ["--bootstrap-server", lab1.bootstrap_servers, "dedup", dirty, clean, *slow]
    done = subprocess.run(
        [EOCTL[0], "-c", code, *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [r.value for r in consumed(lab1, clean, 0)] == [v.encode() for v in values]


def test_the_copys_topic_is_made_as_its_input_is(lab3: Lab, topic: MakeTopic) -> None:
    """Asked for first; Kafka's own tool shows the same partitions, replicas and settings."""
    kept = {"retention.ms": "123456789", "min.insync.replicas": "2", "max.message.bytes": "54321"}
    dirty = topic(lab3, partitions=3, replicas=3, config=kept)
    clean = f"{dirty}-clean"
    produce(lab3, dirty, [(0, "0", "a"), (1, "1", "b")])

    def described(name: str) -> str:
        ran = kafka_tool(
            lab3,
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", lab3.bootstrap_servers, "--describe", "--topic", name),
        )
        return ran.stdout.splitlines()[0] if ran.stdout else ""

    words = (dirty, clean, "--by", "value", "--create")
    planned = dedup(lab3, *words)
    assert planned.status == 0, planned.stderr
    assert "CREATE" in planned.stdout
    assert "does not exist" in described(clean)
    refused = dedup(lab3, *words[:-1], "--execute", "--yes")
    assert refused.status == 4
    assert "does not exist" in described(clean)
    done = dedup(lab3, *words, "--execute", "--yes")
    assert done.status == 0, done.stderr
    there = described(clean)
    expected = ("PartitionCount: 3", "ReplicationFactor: 3", *(f"{k}={v}" for k, v in kept.items()))
    assert [part for part in expected if part not in there] == []
    assert [r.value for r in consumed(lab3, clean, 0)] == [b"a"]
    again = dedup(lab3, *words)
    assert (again.status, "nothing new" in again.stderr) == (0, True)


def test_a_topic_is_created_beside_a_broker_that_is_away_and_where_the_answer_is_lost(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """Nothing is sent to a broker without a connection; a lost answer is settled by looking."""
    name = topic(lab1)

    async def create() -> None:
        async with Cluster(client_settings(lab1.client_properties()), Deadline(30)) as cluster:
            away = {0: BrokerFacts(0, "127.0.0.1", 1, None)}  # nobody listens on port 1
            cluster.brokers = away | cluster.brokers
            await create_topic(cluster, f"{name}-beside", 2, 1, {})
            cluster.brokers = away
            with pytest.raises(RefusedError, match="nothing was created"):
                await create_topic(cluster, f"{name}-nowhere", 1, 1, {})

    asyncio.run(create())
    produce(lab1, name, [(0, "0", "a")])
    with relayed(lab1) as relay:
        relay.lose = frozenset({CREATE_TOPICS})
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        words = (
            "dedup",
            name,
            f"{name}-clean",
            "--by",
            "value",
            "--create",
            "--context",
            "relayed",
        )
        [plan] = eoctl(*words, "-o", "json", env=env).rows
        approved = ("--execute", "--yes", "--plan-sha256", plan["sha256"])
        made = eoctl(*words, *approved, env=env)
        assert sum(relay.sent(CREATE_TOPICS).values()) == 1
    assert made.status == 0, made.stderr
    done = dedup(lab1, name, f"{name}-clean", "--by", "value", "--execute", "--yes")
    assert done.status == 0, done.stderr
    there = AdminClient(lab1.client_properties()).list_topics(timeout=10).topics
    assert len(there[f"{name}-beside"].partitions) == 2
    assert f"{name}-nowhere" not in there
    assert [r.value for r in consumed(lab1, f"{name}-clean", 0)] == [b"a"]
