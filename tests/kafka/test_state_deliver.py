"""`state deliver` into topics of a real broker: what a plain consumer gets is what a dict holds."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import dict_state, digest, fill
from tests.share import share

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
ACT = ("--execute", "--yes")
Row = tuple[bytes | None, bytes | None, int]


def consumed(lab: Lab, topic: str, partition: int) -> list[Row]:
    """Every record that a read_committed consumer gets, in order."""
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found.append((message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def last_values(lab: Lab, topic: str, partition: int) -> list[Row]:
    """The last record of each key that is no tombstone, in the order of the log."""
    last: dict[bytes | None, Row] = {}
    for key, value, timestamp in consumed(lab, topic, partition):
        last.pop(key, None)
        if value is not None and key is not None:
            last[key] = (key, value, timestamp)
    return list(last.values())


def high_watermark(lab: Lab, topic: str, partition: int) -> int:
    consumer = Consumer({**lab.client_properties(), "group.id": "oracle"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)[1])
    finally:
        consumer.close()


def deliver(lab: Lab, *words: str, kill_at: str | None = None) -> Ran:
    return eoctl("state", "deliver", *words, lab=lab, env=environment(EOCTL_TEST_KILL_AT=kill_at))


def same(lab: Lab, log: str, new: str, partitions: int = 2) -> int:
    """The new topic holds the state and nothing else; how many records."""
    total = 0
    for p in range(partitions):
        wanted = last_values(lab, log, p)
        assert consumed(lab, new, p) == wanted
        total += len(wanted)
    return total


@pytest.fixture(scope="module")
def state(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A changelog of two partitions, and the folder of its state."""
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = tmp_path_factory.mktemp("deliver") / "state"
    log = f"log-{folder.parent.name}-{random.randrange(10**6)}"
    admin = AdminClient(lab1.client_properties())
    admin.create_topics([NewTopic(log, 2, 1, config=COMPACT)])[log].result(20)
    fill(lab1, log, seed=1, records=1500, keys=300, partitions=2)
    writer = Producer(lab1.client_properties() | {"linger.ms": 50})
    for number in range(50_000):  # more than one transaction of a delivery
        writer.produce(log, b"%d" % number, b"many-%d" % number, partition=0, timestamp=1 + number)
        writer.poll(0)
    writer.flush(30)
    made = eoctl(
        *("state", "rebuild", log, "--format", "plain", "--at", "lso", "--output", str(folder)),
        lab=lab1,
    )
    assert made.status == 0, made.stderr
    return log, str(folder)


def test_planned_delivered_and_a_changelog_again(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], tmp_path: Path
) -> None:
    log, folder = state
    new = topic(lab1, 2, config=COMPACT)
    into = (folder, "--into", f"topic:{new}")
    planned = deliver(lab1, *into, "-o", "json")
    assert planned.status == 0, planned.stderr
    assert [s["action"] for s in planned.rows[0]["steps"]] == ["deliver", "deliver"]
    assert high_watermark(lab1, new, 0) == 0
    done = deliver(lab1, *into, *ACT)
    assert done.status == 0, done.stderr
    assert same(lab1, log, new) > 50_000
    again = deliver(lab1, *into, *ACT)
    assert (again.status, "there already" in again.stderr) == (0, True), again.stderr
    same(lab1, log, new)
    # it is a changelog itself: its state is the same one
    made = eoctl(
        *("state", "rebuild", new, "--format", "plain", "--at", "lso"),
        *("--output", str(tmp_path / "again"), "-o", "json"),
        lab=lab1,
    )
    assert made.status == 0, made.stderr
    expected, _ = dict_state(lab1, log, {p: high_watermark(lab1, log, p) for p in (0, 1)})
    rows, sha256_sum = digest(expected)
    assert made.json["digest"] == {"rows": rows, "sha256_sum": sha256_sum}
    # what its application writes there from now on is not taken for the delivery
    writer = Producer(lab1.client_properties())
    writer.produce(new, b"new", b"key-1", partition=1)
    writer.flush(20)
    refused = deliver(lab1, *into, *ACT)
    assert refused.status == 4, refused.stderr
    assert "somebody else writes" in refused.stderr


KILLS = (
    "begun",
    "deliver-committed-1",  # the number 0, without a row
    "deliver-sent",
    "deliver-committed-2",
    "step-1-performed",
    "step-2-started",
    "step-2-done",
)


@pytest.mark.parametrize("kill_at", KILLS)
def test_killed_at_a_step_the_same_command_ends_it(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], kill_at: str
) -> None:
    log, folder = state
    new = topic(lab1, 2, config=COMPACT)
    into = (folder, "--into", f"topic:{new}", *ACT)
    killed = deliver(lab1, *into, kill_at=kill_at)
    assert killed.status == -signal.SIGKILL, killed.stderr
    ended = deliver(lab1, *into)
    assert ended.status == 0, ended.stderr
    assert "going on with journal entry" in ended.stderr
    same(lab1, log, new)


def test_killed_at_any_moment(lab1: Lab, topic: MakeTopic, state: tuple[str, str]) -> None:
    """A transaction that was cut short is aborted, and its rows come again, once."""
    log, folder = state
    chance, killed = random.Random(3), 0
    for _ in range(share(15)):
        new = topic(lab1, 2, config=COMPACT)
        words = ("state", "deliver", folder, "--into", f"topic:{new}", *ACT)
        command = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words]
        with subprocess.Popen(
            command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            end = time.monotonic() + 60
            while not high_watermark(lab1, new, 0) and running.poll() is None:
                assert time.monotonic() < end
            time.sleep(chance.random() * 0.5)
            killed += running.poll() is None
            running.kill()
        ended = eoctl(*words, lab=lab1)
        assert ended.status == 0, ended.stderr
        same(lab1, log, new)
    assert killed


def test_refused(lab1: Lab, topic: MakeTopic, state: tuple[str, str], tmp_path: Path) -> None:
    """Other numbers of partitions, foreign records, settings that lose some, another state."""
    log, folder = state
    three, used, short = topic(lab1, 3), topic(lab1, 2), topic(lab1, 2)
    stamped = topic(lab1, 2, config={"message.timestamp.type": "LogAppendTime"})
    writer = Producer(lab1.client_properties())
    writer.produce(used, b"x", b"x", partition=1)
    writer.flush(20)
    forever = topic(lab1, 2, config={"retention.ms": "-1"})
    for name, why in (
        (three, "3 partitions"),
        (used, "has been written to"),
        (short, "retention.ms"),  # a week by default, and the entries are of 1970
        (stamped, "CreateTime"),
        (f"{forever}-not-there", "does not exist"),
    ):
        refused = deliver(lab1, folder, "--into", f"topic:{name}", *ACT)
        assert refused.status == 4, (name, refused.stderr)
        assert why in refused.stderr
    assert deliver(lab1, folder, "--into", f"topic:{forever}", *ACT).status == 0
    made = eoctl(
        *("state", "rebuild", used, "--format", "plain", "--at", "lso"),
        *("--output", str(tmp_path / "other")),
        lab=lab1,
    )
    assert made.status == 3  # of a topic that deletes: not provably complete
    other = (str(tmp_path / "other"), "--into", f"topic:{forever}", *ACT)
    unproven = deliver(lab1, *other)
    assert (unproven.status, "--accept-incomplete" in unproven.stderr) == (4, True)
    another = deliver(lab1, *other, "--accept-incomplete")
    assert (another.status, "another state was delivered" in another.stderr) == (4, True)
    same(lab1, log, forever)
    for words, why in (
        (("--into", "kafka"), "topic:NAME"),
        (("--into", f"topic:{forever}", "--replace"), "is for a table"),
        (("--into", "sql:postgresql://u:s3cret@h/d#t"), "holds a password"),
    ):
        wrong = deliver(lab1, folder, *words)
        assert (wrong.status, why in wrong.stderr) == (2, True), wrong.stderr
        assert "s3cret" not in wrong.stderr + wrong.stdout


def test_somebody_else_writes_between_two_attempts(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str]
) -> None:
    _, folder = state
    new = topic(lab1, 2, config=COMPACT)
    into = (folder, "--into", f"topic:{new}", *ACT)
    assert deliver(lab1, *into, kill_at="deliver-committed-2").status == -signal.SIGKILL
    writer = Producer(lab1.client_properties())
    writer.produce(new, b"x", b"x", partition=0)
    writer.flush(20)
    refused = deliver(lab1, *into)
    assert refused.status != 0
    assert "somebody else writes" in refused.stderr


def test_a_folder_that_was_changed(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], tmp_path: Path
) -> None:
    """A file that is not what the manifest lists is never delivered."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(state[1], copy)
    file = next(copy.rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    new = topic(lab1, 2, config=COMPACT)
    refused = deliver(lab1, str(copy), "--into", f"topic:{new}", *ACT)
    assert refused.status == 4
    assert "has changed since" in refused.stderr
    assert high_watermark(lab1, new, 0) == 0
