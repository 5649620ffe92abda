"""A rebuild by two standalone workers that share no folder, into object storage: moto's server,
which is a fake, behind a proxy that fails. Long: it starts JVMs of its own."""

import json
import os
import random
import signal
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from tests.docs.pages import follows
from tests.kafka.command import environment, eoctl, eoctl_running
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.relay import relayed
from tests.kafka.state_oracle import begin_small, fill
from tests.kafka.test_nearest import FETCH, FOLLOWER, LEADER, led
from tests.kafka.test_state_objects import BUCKET, COMPACT, SECRET, Objects, env
from tests.object_store import Fault, Faulty, make_bucket, s3_server
from tests.object_store import environment as store_environment
from tests.spark.starting import HOSTS, of_cluster, standalone_cluster, worker
from tests.spark.test_clusters import executors, processes, workers
from tests.started import started

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Frozen:
    """Lets a rebuild come as far as `at` tasks, and then nothing more, until it is let go.

    put: the names of what was put into the storage, in that order.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self.put: list[str] = []
        self.there = threading.Event()
        self.go = threading.Event()

    def begin(self, at: int) -> None:
        self.put.clear()
        self.there.clear()
        self.go.clear()
        self.at = at

    def __call__(self, line: str) -> None:
        """Hold a request up, and with it all others: the proxy asks for one at a time."""
        method, target, _ = line.split()
        if method != "PUT":
            return
        name = urllib.parse.unquote(target).partition("?")[0]
        tasks = {one for one in self.put if "/tasks/" in one}
        if "/tasks/" in name and len(tasks | {name}) > (self.at or 10**9):
            self.there.set()
            self.go.wait(60)
            self.at = None
        self.put.append(name)


@dataclass
class World:
    """A cluster whose executors, and whose jobs, reach the storage by a proxy."""

    master: str
    port: int
    proxy: Faulty
    frozen: Frozen
    start_worker: Callable[[str], None]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    chance, frozen = random.Random(4), Frozen()
    folder = tmp_path_factory.mktemp("standalone")
    with s3_server() as port:
        make_bucket(port, BUCKET)

        def fault(line: str) -> Fault:
            frozen(line)
            return chance.choice(["503", "cut", "lost"] + [None] * 57)

        with closing(Faulty(port, fault)) as proxy, ExitStack() as more:
            there = store_environment(proxy.port)
            url = more.enter_context(standalone_cluster(folder, there))

            def start_worker(host: str) -> None:
                log = more.enter_context((folder / f"more-{uuid.uuid4().hex}.log").open("wb"))
                words, env = worker(folder, host, url), of_cluster(there)
                more.enter_context(started(words, env=env, stdout=log, stderr=log, cwd=folder))

            patch = more.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("PYSPARK_PYTHON", sys.executable)
            yield World(url, port, proxy, frozen, start_worker)


def words(world: World, topic: str, objects: Objects, *more: str) -> list[str]:
    return [
        *("state", "rebuild", topic, "--format", "plain", "--at", "lso"),
        *("--output", objects.address, "--range-offsets", "3000", "--engine", "spark"),
        *("--master", world.master, "--conf", "spark.executor.memory=512m", *more),
    ]


def test_two_workers_without_a_shared_folder(lab1: Lab, topic: MakeTopic, world: World) -> None:
    objects = Objects(world.port, f"of spark/{uuid.uuid4().hex}")
    log = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, log, seed=4, records=10_000, keys=900, partitions=2)
    there = env(world.proxy.port)
    ran = eoctl(*words(world, log, objects), lab=lab1, env=there, timeout=400)
    assert ran.status == 0, ran.stderr
    assert SECRET not in ran.stderr + ran.stdout
    assert objects.manifest["engine"] == "spark"
    objects.check(lab1, log)
    assert {fault for fault, _ in world.proxy.faults} == {"503", "cut", "lost"}


@follows("docs/spark.md", "Executors in several racks")
def test_executors_read_from_the_replica_in_their_rack(
    it: Reading, lab3: Lab, topic: MakeTopic, world: World, tmp_path: Path
) -> None:
    """The executors alone are in a rack: the driver's environment has no such variable.

    Nothing is cleaned, for each replica's copy is compacted by itself (see test_nearest).
    """
    log = topic(lab3, config=COMPACT | {"segment.ms": "3153600000000"})
    led(lab3, log)
    fill(lab3, log, seed=6, records=10_000, keys=900, partitions=1)
    objects = Objects(world.port, f"racks-{uuid.uuid4().hex}")
    it.names |= {
        "app-store-changelog": log,
        "s3://states/app": objects.address,
        "spark://m:7077": world.master,
        "eu-1a": f"rack-{FOLLOWER}",
    }
    it.env |= store_environment(world.proxy.port)
    with relayed(lab3) as relay:
        it.env["EOCTL_CONFIG"] = relay.config(tmp_path)
        memory = ("--conf", "spark.executor.memory=512m")
        it.run("state rebuild", 0, None, "--context", "relayed", *memory)
        assert relay.answered[FOLLOWER, FETCH] > 100_000
        assert relay.answered[LEADER, FETCH] < 1000
    objects.check(lab3, log)


def test_a_killed_executor_changes_nothing(
    lab1: Lab, topic: MakeTopic, world: World, tmp_path: Path
) -> None:
    objects = Objects(world.port, f"of spark/{uuid.uuid4().hex}")
    log = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, log, seed=5, records=10_000, keys=900, partitions=2)
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.3) and not killed:
            if any(name.startswith("tasks/") for name in objects.names()):
                for pid in executors(world.master)[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        ran = eoctl(
            *words(world, log, objects, "--max-rate", "100KiB"),
            lab=lab1,
            env=env(world.proxy.port),
            timeout=400,
        )
    finally:
        ended.set()
        thread.join()
    assert ran.status == 0, ran.stderr
    assert killed
    objects.check(lab1, log)


RANGES = 8  # of two partitions, and as many merges: 16 tasks
MEMORY = 100_000  # of so many bytes of runs, each partition has as many buckets as ranges


@pytest.mark.parametrize("done", [2, 6, 10, 14])
@pytest.mark.parametrize("victim", ["driver", "worker", "executor", "python"])
def test_a_kill_at_each_quarter(
    lab1: Lab,
    topic: MakeTopic,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
    done: int,
) -> None:
    """The same digest, by the job itself or by a second one, and no task that was done again."""
    objects = Objects(world.port, f"of spark/{uuid.uuid4().hex}")
    log = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, log, seed=done, records=12_000, keys=2_000, partitions=2)
    expected = _ends(lab1, log)
    each = -(-max(expected.values()) // (RANGES // 2))
    assert all(-(-end // each) == RANGES // 2 for end in expected.values())
    there = {**env(world.proxy.port), "EOCTL_STATE_DIR": str(tmp_path / "state")}
    asked = words(world, log, objects, "--range-offsets", str(each))
    for name, value in store_environment(world.proxy.port).items():
        monkeypatch.setenv(name, value)
    begin_small(lab1, log, objects.address, each, MEMORY)
    world.frozen.begin(done)
    with eoctl_running(lab1, *asked, env=there) as process:
        assert world.frozen.there.wait(200), process.poll()
        time.sleep(0.5)  # what was let through has arrived
        kept = {name for name in objects.names() if name.startswith("tasks/")}
        assert len(kept) >= done - 2  # those whose answer was a fault are tried again
        rows = [json.loads(objects.read(name)) for name in kept]
        files = {f["path"] for row in rows for f in row["files"]}
        ranges = sum(1 for row in rows if row["bucket"] is None)
        assert ranges >= min(done, RANGES) - 2
        before = len(world.frozen.put)
        _kill(victim, world.master, tmp_path / "state")
        world.frozen.go.set()
        _, stderr = process.communicate(timeout=300)
    if victim == "worker":
        world.start_worker(HOSTS[1])
    assert (process.returncode == 0) is (victim != "driver"), stderr
    if victim == "driver":
        assert "manifest.json" not in objects.names()
        ran = eoctl(*asked, lab=lab1, env=there, timeout=300)
        assert ran.status == 0, ran.stderr
    objects.check(lab1, log)
    assert objects.ends == expected
    assert files <= set(objects.files)
    assert len(objects.files) == RANGES
    runs = {name for name in world.frozen.put[before:] if name.endswith(".run")}
    assert len(runs) <= 2 * (RANGES - ranges)  # those at work are tried once more, no others


def _ends(lab: Lab, topic: str) -> dict[int, int]:
    """The LSO of each partition, where nothing is open."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**lab.client_properties(), "group.id": "ends"})
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in (0, 1)
    }
    consumer.close()
    return ends


def _kill(victim: str, master: str, state: Path) -> None:
    """SIGKILL to a process of the rebuild; of a driver also to its JVM."""
    if victim == "driver":
        ran = eoctl("jobs", "list", "-o", "json", env=environment(EOCTL_STATE_DIR=str(state)))
        (job,) = ran.rows
        pids = session_members(job["pid"])
    elif victim == "worker":
        pids = [pid for pid in workers(master) if HOSTS[1] in processes()[pid][1]]
    else:
        pids = executors(master)[:1]
        if victim == "python":
            parents = processes()
            daemons = {pid for pid, (parent, _) in parents.items() if parent in pids}
            pids = [pid for pid, (parent, _) in parents.items() if parent in daemons]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
