"""`restart apply` with store and lock in a real ZooKeeper: two hosts, cut lines, frozen servers."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene
from tests.relay import Relay
from tests.zookeeper import Server, request_type, serving, wait_for

SYNC, MULTI = 9, 14  # ZooDefs.OpCode


@dataclass
class Crashed:
    """A copy job whose position is 5 in ZooKeeper, and 12 records are there; lock and store are
    reached through a relay. trap: what it does with each request; True cuts that connection."""

    scene: Scene
    server: Server
    admin: Any
    folder: Path
    trap: Callable[[bytes], bool] = lambda data: False
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        self.relay = Relay(self.server.port, lambda data: self.trap(data))
        self.admin.create(self.node, b"5", makepath=True)
        self.scene.describe(
            store=f'kind = "zookeeper"\nconnect = "{self.relay.address}"\n'
            f'path = "/consumers/{self.scene.group}/offsets"'
        )
        config = self.folder / "config.toml"
        config.write_text(
            f"[contexts.here]\nbootstrap_servers = '{self.scene.lab.bootstrap_servers}'\n"
            f"lock_zookeeper = '{self.relay.address}'\n"
        )

    @property
    def node(self) -> str:
        return f"/consumers/{self.scene.group}/offsets/{self.scene.input}/0"

    @property
    def holds(self) -> tuple[bytes, int]:
        """The node's data, and how often it was written."""
        data, stat = self.admin.get(self.node)
        return data, stat.version

    def env(self, host: str) -> Mapping[str, str]:
        state = self.folder / host
        config = str(self.folder / "config.toml")
        return environment(EOCTL_CONFIG=config, EOCTL_CONTEXT="here", EOCTL_STATE_DIR=str(state))

    def run(self, *words: str, host: str = "one") -> Ran:
        return eoctl("restart", *words, env=self.env(host))

    def plan(self) -> None:
        app = str(self.scene.folder / "app.toml")
        ran = self.run("plan", app, "--out", self.scene.plan_file, "--pause", "0.2s")
        assert ran.status == 0, ran.stderr

    def apply(self, host: str = "one") -> Ran:
        return self.run("apply", self.scene.plan_file, "--execute", "--yes", host=host)

    def undo(self) -> Ran:
        return self.run("undo", self.scene.plan_file, "--execute", "--yes")


@pytest.fixture
def crashed(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Iterator[Crashed]:
    with serving(tmp_path / "zookeeper") as server, server.admin() as admin:
        made = Crashed(Scene.make(lab1, topic, tmp_path), server, admin, tmp_path)
        try:
            made.plan()
            yield made
        finally:
            server.process.send(signal.SIGCONT)  # or the client could not say goodbye
            made.relay.close()


def locking(data: bytes) -> bool:
    """ZooKeeper is asked whether the lock is still ours: right before a write."""
    return request_type(data) == SYNC and b"/locks/" in data


def writing(data: bytes) -> bool:
    return request_type(data) == MULTI


def test_two_hosts_at_once_write_once_and_undo_puts_it_back(crashed: Crashed) -> None:
    ran: dict[str, Ran] = {}

    def apply(host: str) -> None:
        ran[host] = crashed.apply(host)

    threads = [threading.Thread(target=apply, args=(host,)) for host in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = {host: one.status for host, one in ran.items()}
    assert sorted(statuses.values()) in ([0, 4], [0, 0]), [r.stderr for r in ran.values()]
    assert crashed.holds == (b"12", 1)
    winner = next(host for host, status in statuses.items() if status == 0)
    words = ("undo", crashed.scene.plan_file, "--execute", "--yes")
    undone = crashed.run(*words, host=winner)
    assert undone.status == 0, undone.stderr
    assert crashed.holds == (b"5", 2)


@pytest.mark.trust
def test_a_server_that_freezes_while_the_lock_is_asked_for(crashed: Crashed) -> None:
    """Nothing is written, then or when it wakes up."""
    frozen: list[int] = []

    def trap(data: bytes) -> bool:
        if locking(data) and not frozen:
            frozen.append(1)
            crashed.server.process.send(signal.SIGSTOP)
        return False

    crashed.trap = trap
    ran = crashed.apply()
    crashed.server.process.send(signal.SIGCONT)
    assert frozen
    assert (ran.status, "the lock may be lost" in ran.stderr) == (4, True), ran.stderr
    assert ran.seconds < 40
    wait_for(lambda: bool(crashed.admin.connected))
    assert crashed.holds == (b"5", 0)
    wait_for(lambda: not crashed.admin.get_children("/locks"))
    assert crashed.apply().status == 0
    assert crashed.holds == (b"12", 1)


def test_a_lock_that_was_suspended_is_lost_though_the_line_is_back(crashed: Crashed) -> None:
    crashed.trap = locking
    ran = crashed.apply()
    assert crashed.relay.cuts == 1
    assert (ran.status, "the lock may be lost" in ran.stderr) == (4, True), ran.stderr
    assert crashed.holds == (b"5", 0)


def test_a_line_that_is_cut_right_after_the_write_was_sent(crashed: Crashed) -> None:
    """One write; its answer is lost and it is recognised."""
    crashed.trap = writing
    ran = crashed.apply()
    assert crashed.relay.cuts == 1
    assert ran.status == 0, ran.stderr
    assert crashed.holds == (b"12", 1)
    crashed.trap = lambda data: False
    assert crashed.undo().status == 0
    assert crashed.holds == (b"5", 2)


@pytest.mark.long
def test_a_server_that_freezes_when_the_write_arrives(crashed: Crashed) -> None:
    """Not known, exit 6; the same command ends it, with one write in all."""
    frozen: list[int] = []

    def trap(data: bytes) -> bool:
        if writing(data) and not frozen:
            frozen.append(1)
            crashed.server.process.send(signal.SIGSTOP)
        return False

    crashed.trap = trap
    ran = crashed.apply()
    assert frozen
    assert ran.status == 6, ran.stderr
    assert ran.seconds < 60
    crashed.server.process.send(signal.SIGCONT)
    wait_for(lambda: bool(crashed.admin.connected))
    wait_for(lambda: not crashed.admin.get_children("/locks"))
    again = crashed.apply()
    assert again.status == 0, again.stderr
    assert crashed.holds == (b"12", 1)
    assert crashed.undo().status == 0
    assert crashed.holds == (b"5", 2)
