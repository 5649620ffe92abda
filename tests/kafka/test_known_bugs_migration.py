"""KAFKA-15552, tried on Kafka 3.6.0, which has it, and on 3.9.1: from ZooKeeper to KRaft."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eoctl.host.processes import Process, end
from eoctl.lab import brokers, zookeeper
from eoctl.lab.brokers import Runtime
from eoctl.lab.client import Client
from eoctl.lab.producer import Producer
from eoctl.lab.record import HOST
from tests.kafka.tools import run_storage_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BROKER, CONTROLLER = 1, 3000
MOVED = "Completed migration of metadata from ZooKeeper to KRaft"
SECONDS = 120.0


class Moving:
    """A broker with ZooKeeper, and the controller of KRaft that takes its place."""

    def __init__(self, folder: Path, kafka_version: str) -> None:
        self.folder = folder
        self.runtime: Runtime = brokers.find_runtime(kafka_version)
        self.keeper, self.port, self.quorum = brokers.choose_ports(3, 0, None)
        self.processes: list[Process] = []
        start = zookeeper.start(self.runtime.java, folder / "zookeeper", self.keeper)
        self.processes.append(start)
        zookeeper.wait(start, folder / "zookeeper", self.keeper)

    @property
    def shared(self) -> dict[str, str]:
        """The settings that both need to move."""
        return {
            "zookeeper.connect": f"{HOST}:{self.keeper}",
            "zookeeper.metadata.migration.enable": "true",
            "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self.quorum}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    def start_broker(self, more: dict[str, str]) -> Process:
        own = {
            "broker.id": str(BROKER),
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "zookeeper.connect": f"{HOST}:{self.keeper}",
            "inter.broker.protocol.version": self.runtime.kafka_version.rpartition(".")[0],
        }
        return self.start(BROKER, own | more)

    def start_controller(self, cluster_id: str) -> Process:
        own = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://{HOST}:{self.quorum}",
        }
        self.write(CONTROLLER, own | self.shared)
        settings = brokers.broker_folder(self.folder, CONTROLLER) / "server.properties"
        args = ["format", "--config", str(settings), "--cluster-id", cluster_id]
        done = run_storage_tool(self.runtime, args, self.log(CONTROLLER))
        assert done.returncode == 0, done.stderr
        return self.start(CONTROLLER, own | self.shared)

    def write(self, node: int, settings: dict[str, str]) -> None:
        home = brokers.broker_folder(self.folder, node)
        home.mkdir(exist_ok=True)
        settings |= {"log.dirs": str(brokers.data_folder(self.folder, node))}
        brokers.write_settings(home / "server.properties", settings)

    def start(self, node: int, settings: dict[str, str]) -> Process:
        self.write(node, settings)
        process = brokers.start(self.runtime, self.folder, node, leave_archive=False)
        self.processes.append(process)
        return process

    def log(self, node: int) -> Path:
        return brokers.broker_log(self.folder, node)

    def new_producer_id(self) -> int:
        """What the broker gives out next, once it answers."""

        async def ask() -> int:
            async with Client.to(f"{HOST}:{self.port}") as client:
                return (await Producer.init(client)).producer_id

        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return asyncio.run(ask())
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@contextmanager
def moving(folder: Path, kafka_version: str) -> Iterator[Moving]:
    folder.mkdir()
    cluster = Moving(folder, kafka_version)
    try:
        yield cluster
    finally:
        end(cluster.processes, 0)


def producer_ids(cluster: Moving) -> tuple[int, int]:
    """The first id before the move, and the first one after it."""
    broker = cluster.start_broker({})
    before = cluster.new_producer_id()
    cluster_id = brokers.read_cluster_id(brokers.data_folder(cluster.folder, BROKER))
    cluster.start_controller(cluster_id)
    end([broker], 30)
    cluster.start_broker(cluster.shared)
    deadline = time.monotonic() + SECONDS
    while MOVED not in cluster.log(CONTROLLER).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return before, cluster.new_producer_id()


def test_15552_a_move_to_kraft_gives_out_producer_ids_twice(tmp_path: Path) -> None:
    found = []
    for version in ("3.6.0", "3.9.1"):
        with moving(tmp_path / version, version) as cluster:
            found.append(producer_ids(cluster))
    assert found == [(0, 0), (0, 1000)]
