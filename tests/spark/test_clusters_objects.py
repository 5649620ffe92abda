"""A rebuild by two standalone workers that share no folder, into object storage: moto's server,
which is a fake, behind a proxy that fails. Long: it starts JVMs of its own."""

import os
import random
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import fill
from tests.kafka.test_state_objects import BUCKET, COMPACT, SECRET, Objects, env
from tests.object_store import Fault, Faulty, make_bucket, s3_server
from tests.object_store import environment as store_environment
from tests.spark.starting import standalone_cluster
from tests.spark.test_clusters import executors

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@dataclass
class World:
    """A cluster whose executors, and whose jobs, reach the storage by a proxy."""

    master: str
    port: int
    proxy: Faulty
    faults: Callable[[str], Fault]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    chance = random.Random(4)
    with s3_server() as port:
        make_bucket(port, BUCKET)

        def fault(line: str) -> Fault:
            return chance.choice(["503", "cut", "lost"] + [None] * 57)

        with (
            closing(Faulty(port, fault)) as proxy,
            standalone_cluster(
                tmp_path_factory.mktemp("standalone"), store_environment(proxy.port)
            ) as url,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv("PYSPARK_PYTHON", sys.executable)
            yield World(url, port, proxy, fault)


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
