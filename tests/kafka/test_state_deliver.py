"""`state deliver` into topics of a real broker: what a plain consumer gets is what a dict holds."""

import asyncio
import json
import random
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.cluster import Lab
from eoctl.operations.state.delivery import DeliveryRequest, source
from eoctl.operations.state.into_topic import IntoTopic
from eoctl.stores.state.finished_rows import StateRows
from tests.kafka import dedup_world
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import dict_state, digest, fill
from tests.share import kills, only_here
from tests.started import started
from tests.unit.state.test_state_compare import state as folder_of

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
ACT = ("--execute", "--yes")
BARE = "--without-headers"  # some of what fill() writes has them
Row = tuple[bytes | None, bytes | None, int]


def consumed(lab: Lab, topic: str, partition: int) -> list[Row]:
    """Every record that a read_committed consumer gets, in order."""
    return [(r.key, r.value, r.timestamp) for r in dedup_world.consumed(lab, topic, partition)]


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
    env = environment(EOCTL_TEST_KILL_AT=kill_at)
    return eoctl("state", "deliver", *words, BARE, lab=lab, env=env)


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
    for number in range(25_000):  # more than one transaction of a delivery
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
    lab1: Lab,
    topic: MakeTopic,
    state: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
    assert same(lab1, log, new) > 25_000
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
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for at, status in (((), 0), (("--at", "hw"), 1)):
        compared = eoctl("state", "compare", str(tmp_path / "again"), "live", *at, lab=lab1)
        assert compared.status == status, compared.stdout + compared.stderr
    assert list(own.iterdir()) == []
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
)


@pytest.mark.parametrize("kill_at", only_here(KILLS, "deliver-committed-2", "step-2-started"))
def test_killed_at_a_step_the_same_command_ends_it(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], kill_at: str
) -> None:
    log, folder = state
    new = topic(lab1, 2, config=COMPACT)
    into = (folder, "--into", f"topic:{new}", *ACT)
    killed = deliver(lab1, *into, kill_at=kill_at)
    assert killed.status == -signal.SIGKILL, killed.stderr
    if kill_at == "step-2-started":  # the journal's way
        rows = eoctl("journal", "list", "--unfinished", "-o", "json").rows
        [entry] = [row["id"] for row in rows if row["scope"] == f"deliver topic {new}"]
        ended = eoctl("journal", "resume", entry, *ACT)
    else:
        ended = deliver(lab1, *into)
        assert "going on with journal entry" in ended.stderr
    assert ended.status == 0, ended.stderr
    same(lab1, log, new)


@pytest.mark.long
@pytest.mark.parametrize(
    "kill_at", only_here(("begun", "deliver-committed-2"), "deliver-committed-2")
)
def test_a_number_that_a_killed_run_left_pending_is_not_waited_for(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], kill_at: str
) -> None:
    """Killed between the number and the commit: open for ten minutes if nobody ends it."""
    log, folder = state
    new = topic(lab1, 2, config=COMPACT)
    into = (folder, "--into", f"topic:{new}", *ACT)
    assert deliver(lab1, *into, kill_at=kill_at).status == -signal.SIGKILL
    group = f"{new}-eoctl-deliver"
    record = None if kill_at == "begun" else (new, 0)  # the first transaction has no row
    left = dedup_world.left_pending(lab1, f"{group}-0", group, (new, 0), record)
    ended = deliver(lab1, *into)
    assert ended.status == 0, ended.stderr
    same(lab1, log, new)
    assert left  # lived until here: what it left open was not ended by its own end


@pytest.mark.long
def test_killed_at_any_moment(lab1: Lab, topic: MakeTopic, state: tuple[str, str]) -> None:
    """A transaction that was cut short is aborted, and its rows come again, once."""
    log, folder = state
    chance, killed = random.Random(3), 0
    for _ in range(4 * kills(15)):  # one may have ended before its kill
        if killed == kills(15):
            break
        new = topic(lab1, 2, config=COMPACT)
        words = ("state", "deliver", folder, "--into", f"topic:{new}", BARE, *ACT)
        command = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, *words]
        with started(
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
    century = {"retention.ms": "3153600000000"}
    three, used, short = topic(lab1, 3), topic(lab1, 2, config=century), topic(lab1, 2)
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_rebuild_that_goes_on_into_a_topic(
    lab1: Lab, topic: MakeTopic, state: tuple[str, str], tmp_path: Path
) -> None:
    """One envelope holds both; without --execute the plan says the command that delivers."""
    log, new = topic(lab1, 2, config=COMPACT), topic(lab1, 2, config=COMPACT)
    fill(lab1, log, seed=4, records=800, keys=90, partitions=2)
    words = ("state", "rebuild", log, "--format", "plain", "--at", "lso", "-o", "json")

    def rebuilt(folder: str, *more: str) -> Ran:
        return eoctl(*words, "--output", str(tmp_path / folder), *more, lab=lab1)

    shown = rebuilt("a", "--into", f"topic:{new}", BARE)
    assert shown.status == 0, shown.stderr
    assert high_watermark(lab1, new, 0) == 0
    command = shlex.split(shown.json["delivery"]["command"])
    assert command[:1] == ["eoctl"]
    done = eoctl(*command[1:], "--yes", "-o", "json")
    assert done.status == 0, done.stderr
    same(lab1, log, new)
    other = topic(lab1, 2, config=COMPACT)
    both = rebuilt("b", "--into", f"topic:{other}", BARE, *ACT)
    assert both.status == 0, both.stderr
    assert [s["status"] for s in both.json["delivery"]["steps"]] == ["done", "done"]
    assert len(both.rows) == 2
    same(lab1, log, other)
    refused = rebuilt("c", "--into", f"topic:{topic(lab1, 3)}", BARE, *ACT)
    assert (refused.status, refused.json["delivery"]) == (4, None)
    assert "3 partitions" in refused.stderr
    assert refused.json["digest"] == both.json["digest"]  # the state is there all the same
    for more, why in (
        (("--execute",), "name where the state goes"),
        (("--into", "topic:"), "topic:NAME"),
        (("--engine", "local", "--master", "local[2]"), "takes no --master"),
    ):
        wrong = rebuilt("d", *more)
        assert (wrong.status, why in wrong.stderr) == (2, True), wrong.stderr
        assert not (tmp_path / "d").exists()


def test_no_transaction_is_open_while_the_next_rows_are_read(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk must not let a transaction time out: every attempt would fence itself there."""
    new = topic(lab1, 1, config=COMPACT)
    rows = [(b"key-%d" % n, b"v", 1_700_000_000_000 + n) for n in range(30)]
    folder = folder_of(tmp_path / "state", {0: {key: (at, value) for key, value, at in rows}})
    in_order, seen = StateRows.in_order, []

    def slowly(self: StateRows, *words: Any, **more: Any) -> Iterator[pa.Table]:
        sent = 0
        for table in in_order(self, *words, **{**more, "at_once": 10}):
            end = time.monotonic() + 8  # the markers come a little after the commit
            while (there := consumed(lab1, new, 0)) != rows[:sent] and time.monotonic() < end:
                time.sleep(0.1)
            seen.append(there == rows[:sent])
            sent += len(table)
            yield table

    async def delivered() -> None:
        settings = client_settings(lab1.client_properties())
        request = DeliveryRequest(folder=str(folder), into=f"topic:{new}")
        async with Cluster(settings, Deadline(60)) as cluster:
            into = IntoTopic(cluster, settings, request, source(request))
            [step] = await into.steps()
            monkeypatch.setattr(StateRows, "in_order", slowly)
            await into.perform(step, lambda: None)

    asyncio.run(delivered())
    assert seen == [True, True, True]
    assert consumed(lab1, new, 0) == rows


def test_without_the_right_to_write(secure_lab: Lab, tmp_path: Path) -> None:
    """It says which one, and nothing is there."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
    )

    properties = secure_lab.client_properties()
    log, new = (f"{kind}-{tmp_path.name}" for kind in ("log", "new"))
    admin = AdminClient(properties)
    made = admin.create_topics([NewTopic(name, 1, 1, config=COMPACT) for name in (log, new)])
    for future in made.values():
        future.result(30)
    fill(secure_lab, log, seed=1, records=200, keys=30, partitions=1)
    denied = AclBinding(
        ResourceType.TOPIC,
        new,
        ResourcePatternType.LITERAL,
        "User:operator",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )

    named = AclBindingFilter(
        ResourceType.TOPIC,
        new,
        ResourcePatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def ran(user: str, *words: str) -> Ran:
        told = secure_lab.client_properties(user)
        config = tmp_path / f"{user}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        done = eoctl("--command-config", str(config), "state", *words)
        assert told["sasl.password"] not in done.stderr + done.stdout
        return done

    folder = str(tmp_path / "state")
    at = ("--format", "plain", "--at", "lso", "--output", folder)
    assert ran("operator", "rebuild", log, *at).status == 0
    into = ("deliver", folder, "--into", f"topic:{new}", BARE, *ACT)
    refused = ran("viewer", *into)
    assert refused.status == 4, refused.stderr
    assert f"WRITE on topic {new}" in refused.stderr
    admin.create_acls([denied])[denied].result(20)
    refused = ran("operator", *into)
    assert refused.status == 4, refused.stderr
    assert f"WRITE on topic {new}" in refused.stderr
    assert high_watermark(secure_lab, new, 0) == 0
    for future in admin.delete_acls([named]).values():
        future.result(20)
    done = ran("operator", *into)
    assert done.status == 0, done.stderr
    same(secure_lab, log, new, 1)


@pytest.mark.long
def test_states_that_a_topic_cannot_carry(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Attached offsets that only a deleted entry has, versions that a null ended, no timestamp."""

    def refused(name: str, records: Sequence[tuple[bytes, bytes | None, int]], *form: str) -> str:
        log, new = topic(lab1, 1, config=COMPACT), topic(lab1, 1, config=COMPACT)
        writer = Producer(lab1.client_properties())
        for key, value, timestamp in records:
            writer.produce(log, value, key, partition=0, timestamp=timestamp)
        writer.flush(20)
        folder = str(tmp_path / name)
        at = ("--at", "lso", "--output", folder, "--into", f"topic:{new}", *ACT)
        ran = eoctl("state", "rebuild", log, "--format", *form, *at, "-o", "json", lab=lab1)
        assert ran.stdout, ran.stderr
        assert ran.json["complete"], ran.stderr
        assert ran.status in (0, 4), ran.stderr
        assert (ran.status == 4) == (high_watermark(lab1, new, 0) == 0)
        return ran.stderr

    def coast(key: bytes, upstream: int) -> tuple[bytes, bytes, int]:
        value = struct.pack(">qqi", upstream, upstream, 1) + b"s"
        return struct.pack(">i", len(key)) + key, value, now

    now = now_ms()
    kept = [coast(b"a", 1), coast(b"b", 2), coast(b"a", 3)]
    refused("coast", kept, "coast")
    gone = [*kept, (kept[0][0], None, now)]
    assert "of a deleted entry" in refused("coast-gone", gone, "coast")
    versions: list[tuple[bytes, bytes | None, int]] = [(b"k", b"v", now), (b"k", None, now + 1)]
    versioned = ("streams-versioned", "--retention", "1h")
    assert "a null value ended" in refused("versioned", versions, *versioned)


def test_headers_are_not_dropped_without_a_word(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """A state does not hold them: they are counted, and a delivery without them is asked for."""
    log, new = topic(lab1, 1, config=COMPACT), topic(lab1, 1, config=COMPACT)
    writer = Producer(lab1.client_properties())
    for key, headers in ((b"a", [("h", b"1")]), (b"b", []), (b"a", [("h", b"2"), ("i", None)])):
        writer.produce(log, b"v", key, partition=0, headers=headers)
    writer.flush(20)
    folder = str(tmp_path / "state")
    made = eoctl(
        *("state", "rebuild", log, "--format", "plain", "--at", "lso", "--output", folder),
        *("-o", "json"),
        lab=lab1,
    )
    assert made.status == 0, made.stderr
    manifest = json.loads(Path(folder, "manifest.json").read_text())
    assert [p["counts"]["with_headers"] for p in manifest["partitions"]] == [2]
    assert "headers" not in manifest["digest_covers"]
    words = ("state", "deliver", folder, "--into", f"topic:{new}", *ACT)
    refused = eoctl(*words, lab=lab1)
    assert refused.status == 4
    assert f"2 records of {log} had headers, which a state does not hold" in refused.stderr
    assert high_watermark(lab1, new, 0) == 0
    done = eoctl(*words, "--without-headers", lab=lab1)
    assert done.status == 0, done.stderr
    assert "WITHOUT THE HEADERS of 2 records" in done.text
    assert high_watermark(lab1, new, 0) > 0
