"""`state deliver --into streams-dir:`: a real Kafka Streams application starts on what it wrote.

The application's restore listener says what it read from its changelogs, and its interactive
queries what its stores hold: those are the oracles.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import struct
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rocksdict import AccessType, Options, Rdict

from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from tests.docs.pages import follows
from tests.kafka import dedup_world
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import fill
from tests.share import only_here, share
from tests.streams.app import PARTITIONS, App, Row, bounds, produce

pytestmark = pytest.mark.timeout(600)

PROGRAM = Path(__file__).parent.parent / "streams" / "StoresApp.java"
ACT = ("--execute", "--yes")
KINDS = ("--store", "totals=timestamped", "--store", "raw=plain", "--subtopology", "0")
SETTINGS = {
    "commit.interval.ms": "100",
    "internal.leave.group.on.close": "true",  # the next one waits for no session
    "topic.segment.ms": "600000",
    "topic.min.cleanable.dirty.ratio": "0.99",  # what the listener counted is still there
    "statestore.cache.max.bytes": "0",
}
VARIANTS = (
    (KAFKA, "exactly_once_v2"),
    (KAFKA, "at_least_once"),
    ("4.0.1", "exactly_once_v2"),
    ("3.9.1", "exactly_once_v2"),
    ("3.9.1", "at_least_once"),
)


def records(seed: int, count: int) -> list[tuple[bytes, bytes | None, int]]:
    """Binary keys, the empty one too; deletions, empty and long values; times in no order."""
    chance, begin = random.Random(seed), int(time.time() * 1000) - 3_600_000
    found: list[tuple[bytes, bytes | None, int]] = []
    for number in range(count):
        key = chance.randrange(count // 3).to_bytes(3, "big").lstrip(b"\0")
        value = chance.choice((None, b"", b"%d:%d" % (seed, number), b"v" * chance.randrange(400)))
        found.append((key, value, begin + chance.randrange(3_000_000)))
    return found


def last_values(lab: Lab, topics: dict[str, str]) -> set[Row]:
    """The rows that stores should hold, from a topic of each by a consumer and a dict."""
    rows = set()
    for store, topic in topics.items():
        for p in range(PARTITIONS):
            last: dict[bytes, tuple[bytes, int]] = {}
            for record in dedup_world.consumed(lab, topic, p):
                key = record.key or b""
                last.pop(key, None)
                if record.value is not None:
                    last[key] = (record.value, record.timestamp)
            for key, (value, timestamp) in last.items():
                rows.add(Row(store, p, key, value, timestamp if store == "totals" else None))
    return rows


class World:
    """An application with two stores, its input, and how many records its changelogs have."""

    def __init__(self, lab: Lab, folder: Path, source: str) -> None:
        self.lab, self.folder, self.source = lab, folder, source
        self.name = f"app-{source}"
        self.sent = 0

    def app(self, version: str = KAFKA, **settings: str) -> App:
        """The application, which has not started."""
        given = SETTINGS | settings
        return App(
            self.lab, self.folder, self.name, self.source, given, program=PROGRAM, version=version
        )

    @property
    def directory(self) -> Path:
        return self.folder / "state" / self.name

    @property
    def changelogs(self) -> tuple[str, str]:
        return f"{self.name}-totals-changelog", f"{self.name}-raw-changelog"

    def feed(self, app: App, count: int) -> None:
        """More input, processed and committed by the application, which runs."""
        processed = app.ask("state")["processed"]
        produce(self.lab, self.source, records(self.sent, count))
        self.sent += count
        app.processed(processed + count)
        app.until(lambda: app._committed() == self._ends(), "not committed")

    def _ends(self) -> dict[int, int]:
        return {p: high for (_, p), (_, _, high) in bounds(self.lab, [self.source]).items()}

    def lose(self) -> None:
        """Remove the state directory of the application, not the one of all applications."""
        shutil.rmtree(self.directory)

    def rebuild(self, output: Path) -> None:
        made = eoctl(
            *("state", "rebuild", *self.changelogs, "--format", "streams-kv", "--at", "lso"),
            *("--output", str(output)),
            lab=self.lab,
        )
        assert made.status == 0, made.stderr

    def deliver(self, state: Path, *words: str, kill_at: str | None = None) -> Ran:
        into = ("--into", f"streams-dir:{self.directory}", "--without-headers", *KINDS)
        env = environment(EOCTL_TEST_KILL_AT=kill_at)
        return eoctl("state", "deliver", str(state), *into, *words, lab=self.lab, env=env)

    def counted(self) -> dict[tuple[str, int], int]:
        """How many records a read_committed consumer gets of each changelog partition."""
        return {
            (topic, p): len(dedup_world.consumed(self.lab, topic, p))
            for topic in self.changelogs
            for p in range(PARTITIONS)
        }


def ends_of(state: Path) -> dict[tuple[str, int], int]:
    """The ends of a state's cut."""
    content = json.loads((state / "manifest.json").read_text())
    return {(p["topic"], p["partition"]): p["end"] for p in content["partitions"]}


def restored(app: App) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset and the number of records that the restore listener was told of."""
    found = {}
    for topic_partition, start, _, count in app.ask("state")["restored"]:
        topic, _, partition = topic_partition.rpartition("-")
        assert (topic, int(partition)) not in found, "restored twice"
        found[topic, int(partition)] = (start, count)
    return found


@pytest.fixture(scope="module")
def world(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], World]:
    def make() -> World:
        name = f"in-{uuid.uuid4().hex[:8]}"
        create(lab1, name, {})
        return World(lab1, tmp_path_factory.mktemp("streams-dir"), name)

    return make


def create(lab: Lab, name: str, config: dict[str, str]) -> None:
    admin = AdminClient(lab.client_properties())
    new = NewTopic(name, PARTITIONS, 1, config=config)
    admin.create_topics([new], operation_timeout=10)[name].result(20)


@follows("docs/state.md", "Into a Kafka Streams application")
def test_the_page(it: Reading, world: Callable[[], World]) -> None:
    life = world()
    app = life.app()
    app.start()
    try:
        life.feed(app, 3_000)
        app.stop()
        life.lose()
        it.lab = life.lab
        it.names |= {
            "sales-totals-changelog": life.changelogs[0],
            "sales-raw-changelog": life.changelogs[1],
            "/var/lib/kafka-streams/sales": str(life.directory),
            "DIR": "rebuilt",
        }
        it.run("state rebuild", 0)
        it.asked("state deliver")
        app.start()
        ends = ends_of(Path("rebuilt"))
        assert restored(app) == {partition: (end, 0) for partition, end in ends.items()}
    finally:
        app.stop()


@pytest.mark.long
@pytest.mark.parametrize(("version", "guarantee"), VARIANTS)
def test_an_application_that_lost_its_directory_starts_without_a_restore(
    world: Callable[[], World], tmp_path: Path, version: str, guarantee: str
) -> None:
    """Nothing is restored that the cut covers, and what is behind it exactly."""
    life = world()
    inputs = {"totals": life.source, "raw": life.source}
    app = life.app(version, **{"processing.guarantee": guarantee})
    app.start()
    try:
        life.feed(app, share(50_000, 3_000))
        running = life.deliver(_state(life, tmp_path), *ACT)
        assert (running.status, "is running in it" in running.stderr) == (4, True), running.stderr
        app.stop()
        life.lose()
        planned = life.deliver(tmp_path / "state", "-o", "json")
        assert planned.status == 0, planned.stderr
        assert not life.directory.exists()
        assert "start the application before" in planned.rows[0]["summary"]
        done = life.deliver(tmp_path / "state", *ACT)
        assert done.status == 0, done.stderr
        again = life.deliver(tmp_path / "state", *ACT)
        assert (again.status, "there already" in again.stderr) == (0, True), again.stderr
        ends, before = ends_of(tmp_path / "state"), life.counted()
        app.start()
        assert restored(app) == {partition: (end, 0) for partition, end in ends.items()}
        assert set(app.rows()) == last_values(life.lab, inputs)
        assert len(app.rows()) > 1_000
        # more records behind the cut, then the same state again
        life.feed(app, 1_000)
        used = life.deliver(tmp_path / "state", *ACT)
        assert used.status == 4, used.stderr
        app.halt()
        life.lose()
        done = life.deliver(tmp_path / "state", *ACT)
        assert done.status == 0, done.stderr
        behind = {
            partition: count - before[partition] for partition, count in life.counted().items()
        }
        assert sum(behind.values()) == 2_000
        app.start()
        assert restored(app) == {
            partition: (ends[partition], behind[partition]) for partition in ends
        }
        assert set(app.rows()) == last_values(life.lab, inputs)
    finally:
        app.stop()


def test_what_is_behind_the_cut_is_restored_and_nothing_else(
    world: Callable[[], World], tmp_path: Path
) -> None:
    """Changelogs with aborted transactions; one of them goes on, the other one does not."""
    life = world()
    for seed, topic in enumerate(life.changelogs):
        create(life.lab, topic, {"cleanup.policy": "compact"})
        fill(life.lab, topic, seed=seed, records=2_000, keys=300, partitions=PARTITIONS)
    life.rebuild(tmp_path / "state")
    ends, before = ends_of(tmp_path / "state"), life.counted()
    life.directory.parent.mkdir()
    done = life.deliver(tmp_path / "state", *ACT)
    assert done.status == 0, done.stderr
    fill(life.lab, life.changelogs[0], seed=7, records=900, keys=400, partitions=PARTITIONS)
    behind = {partition: count - before[partition] for partition, count in life.counted().items()}
    assert sorted(map(bool, behind.values())) == [False, False, True, True]
    app = life.app()
    app.start()
    try:
        assert restored(app) == {
            partition: (ends[partition], behind[partition]) for partition in ends
        }
        topics = dict(zip(("totals", "raw"), life.changelogs, strict=True))
        assert set(app.rows()) == last_values(life.lab, topics)
        running = life.deliver(tmp_path / "state", *ACT)
        assert (running.status, "is running in it" in running.stderr) == (4, True), running.stderr
    finally:
        app.stop()


@pytest.mark.long
@pytest.mark.parametrize(("version", "guarantee"), VARIANTS)
def test_a_task_one_of_whose_stores_is_empty(
    world: Callable[[], World], tmp_path: Path, version: str, guarantee: str
) -> None:
    """Streams 4.3 with exactly-once takes its task for damaged and restores it: never wrong."""
    life = world()
    for topic in life.changelogs:
        create(life.lab, topic, {"cleanup.policy": "compact"})
    written(life.lab, life.changelogs[0], 1)
    life.rebuild(tmp_path / "state")
    life.directory.parent.mkdir()
    assert life.deliver(tmp_path / "state", *ACT).status == 0
    app = life.app(version, **{"processing.guarantee": guarantee})
    app.start()
    try:
        anew = (version, guarantee) == (KAFKA, "exactly_once_v2")
        partition = life.changelogs[0], 0
        assert restored(app)[partition] == ((0, 900) if anew else (900, 0))
        topics = dict(zip(("totals", "raw"), life.changelogs, strict=True))
        assert set(app.rows()) == last_values(life.lab, topics)
    finally:
        app.stop()


def _state(life: World, folder: Path) -> Path:
    life.rebuild(folder / "state")
    return folder / "state"


def written(lab: Lab, topic: str, seed: int, count: int = 900) -> None:
    """Records of a changelog, without an application; the last partition gets none."""
    writer = Producer(lab.client_properties())
    for key, value, timestamp in records(seed, count):
        writer.produce(topic, value, key, partition=0, timestamp=timestamp)
    assert writer.flush(30) == 0


@pytest.fixture
def changelogs(world: Callable[[], World], tmp_path: Path) -> World:
    """Changelogs that no application has written; their state is in tmp_path / "state"."""
    life = world()
    for seed, topic in enumerate(life.changelogs):
        create(life.lab, topic, {"cleanup.policy": "compact"})
        written(life.lab, topic, seed)
    life.rebuild(tmp_path / "state")
    life.directory.parent.mkdir()
    return life


def task_files(life: World) -> dict[str, set[tuple[bytes, bytes]]]:
    """What lies in task 0_0, read by rocksdict alone: the rows of each store."""
    found = {}
    for store, family in (("totals", "keyValueWithTimestamp"), ("raw", "default")):
        folder = life.folder / f"copy-{uuid.uuid4().hex}"
        shutil.copytree(life.directory / "0_0" / "rocksdb" / store, folder)
        raw = Options(raw_mode=True)
        families = {family: raw} if family != "default" else {}
        assert Rdict.list_cf(str(folder)) == sorted({"default", family})
        opened = Rdict(str(folder), raw, families, AccessType.read_only(False))
        found[store] = set(opened.get_column_family(family).items())
        opened.close()
    return found


def task_rows(life: World) -> dict[str, set[tuple[bytes, bytes]]]:
    """What should lie there, by a consumer and a dict."""
    found = {}
    for store, topic in zip(("totals", "raw"), life.changelogs, strict=True):
        last = {}
        for record in dedup_world.consumed(life.lab, topic, 0):
            head = struct.pack(">q", record.timestamp) if store == "totals" else b""
            last[record.key] = None if record.value is None else head + record.value
        found[store] = {(k or b"", v) for k, v in last.items() if v is not None}
    return found


KILLS = ("begun", "deliver-store-0-totals", "deliver-made-0", "step-1-performed", "verified")


@pytest.mark.long
@pytest.mark.parametrize("kill_at", only_here(KILLS, "deliver-made-0"))
def test_killed_it_is_there_as_a_whole_or_not_at_all(
    changelogs: World, tmp_path: Path, kill_at: str
) -> None:
    life = changelogs
    killed = life.deliver(tmp_path / "state", *ACT, kill_at=kill_at)
    assert killed.status == -signal.SIGKILL, killed.stderr
    there = {path.name for path in life.directory.glob("[0-9]*")}
    assert there == ({"0_0"} if kill_at in ("step-1-performed", "verified") else set())
    ended = life.deliver(tmp_path / "state", *ACT)
    assert ended.status == 0, ended.stderr
    assert {p.name for p in life.directory.iterdir()} == {".lock", "0_0"}  # 0_1 has no record
    assert {p.name for p in (life.directory / "0_0").iterdir()} == {".checkpoint", "rocksdb"}
    totals, raw = life.changelogs
    checkpoint = (life.directory / "0_0" / ".checkpoint").read_text()
    assert checkpoint.splitlines() == ["0", "2", f"{totals} 0 899", f"{raw} 0 899"]
    assert task_files(life) == task_rows(life)


def test_refused(changelogs: World, tmp_path: Path) -> None:
    """Each in a sentence, and nothing is written."""
    life, state = changelogs, tmp_path / "state"
    into = ("state", "deliver", str(state), "--into", f"streams-dir:{life.directory}")
    for words, why in (
        ((), "--store"),
        (KINDS[:4], "--subtopology"),
        ((*KINDS, "--store", "other=plain"), "no changelog of other"),
        ((*KINDS[:2], "--store", "raw=window"), "versioned stores cannot be"),
        ((*KINDS, "--accept-incomplete"), "restores none of it"),
        ((*KINDS, "--replace"), "is for a table"),
    ):
        refused = eoctl(*into, *words, lab=life.lab)
        assert (refused.status, why in refused.stderr) == (2, True), refused.stderr
    elsewhere = eoctl(*into[:-1], "streams-dir:s3://bucket/x", *KINDS, lab=life.lab)
    assert elsewhere.status == 2, elsewhere.stderr
    other = eoctl(*into[:-1], f"streams-dir:{tmp_path}/other", *KINDS, lab=life.lab)
    assert (other.status, "application.id" in other.stderr) == (4, True), other.stderr

    def refused_for(why: str) -> None:
        ran = life.deliver(state, *ACT)
        assert (ran.status, why in ran.stderr) == (4, True), ran.stderr
        assert not list(life.directory.glob("[0-9]*"))

    life.directory.mkdir()
    with (life.directory / ".lock").open("w") as lock:
        pid = os.fork()  # a lock of this process would not keep it out itself
        if not pid:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            signal.pause()
        try:
            end = time.monotonic() + 10
            while not _locked(lock.fileno()):
                assert time.monotonic() < end
                time.sleep(0.01)
            refused_for("is running in it")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if os.geteuid() == 0:
        os.chown(life.directory, 4711, -1)
        refused_for("belongs to the user with id 4711")
        os.chown(life.directory, 0, -1)
    (life.directory / "0_0" / "rocksdb").mkdir(parents=True)
    used = life.deliver(state, *ACT)
    assert (used.status, "writes over nothing" in used.stderr) == (4, True), used.stderr
    shutil.rmtree(life.directory / "0_0")
    # the application would not see what was deleted and compacted away since the cut
    admin = AdminClient(life.lab.client_properties())
    resource = ConfigResource(ResourceType.TOPIC, life.changelogs[0])
    for kept in ("1", "86400000"):
        entry = ConfigEntry(
            "delete.retention.ms", kept, incremental_operation=AlterConfigOpType.SET
        )
        resource.incremental_configs = [entry]
        admin.incremental_alter_configs([resource])[resource].result(20)
        if kept == "1":
            refused_for("tombstones may go")
    # the changelog was made anew
    admin.delete_topics([life.changelogs[0]])[life.changelogs[0]].result(20)
    time.sleep(1)
    create(life.lab, life.changelogs[0], {"cleanup.policy": "compact"})
    written(life.lab, life.changelogs[0], 0)
    refused_for("others now")


def _locked(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    return False


def test_other_formats_are_refused(world: Callable[[], World], tmp_path: Path) -> None:
    life = world()
    topic = life.changelogs[0]
    create(life.lab, topic, {"cleanup.policy": "compact"})
    written(life.lab, topic, 0)
    made = eoctl(
        *("state", "rebuild", topic, "--format", "plain", "--at", "lso"),
        *("--output", str(tmp_path / "state"), "--into", f"streams-dir:{life.directory}"),
        *(*KINDS[:2], *KINDS[4:], *ACT),
        lab=life.lab,
    )
    assert made.status == 4, made.stderr
    assert "window, session or versioned" in made.stderr
    assert not life.directory.exists()
