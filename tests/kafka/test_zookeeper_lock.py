"""Locks in a real ZooKeeper: expired sessions, frozen servers, connections cut after create."""

import asyncio
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from eoctl.stores.locks.scope_lock import locked
from eoctl.stores.locks.zookeeper_lock import ZooKeeperLock, _try, take_zookeeper_lock
from eoctl.stores.locks.zookeeper_session import Session
from recovery.errors import RefusedError, UnreachableError, UsageError
from tests.kafka.conftest import Printed
from tests.relay import Relay
from tests.share import only_here
from tests.unit.cells import ACT, SET, Cells
from tests.zookeeper import Server, free_port, request_type, serving, wait_for

WHO = {"user": "alice", "host": "ops-1", "pid": 77, "since": 0}
CREATE = 1  # ZooDefs.OpCode.create


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("zookeeper") / "server") as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    with server.admin() as client:
        yield client


@pytest.fixture
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def take(connect: str, scope: str, wait: float = 10.0, **holder: Any) -> ZooKeeperLock:
    return take_zookeeper_lock(connect, "c", scope, {**WHO, **holder}, wait)


def nodes(admin: Any, folder: str = "/locks") -> list[str]:
    return [name for name in admin.get_children(folder) if not name.startswith("zookeeper")]


def test_the_second_is_refused_and_told_who_holds_it(server: Server, scope: str) -> None:
    first = take(server.address, scope)
    first.ensure_held()
    with pytest.raises(RefusedError, match=r"locked by alice on ops-1 \(pid 77\)"):
        take(server.address, scope, wait=2)
    take(server.address, scope + "-other").release()
    first.release()
    second = take(server.address, scope, wait=2)
    assert second.token > first.token
    second.release()


def test_an_expired_session_holds_nothing_and_says_so(server: Server, scope: str) -> None:
    lock = take(server.address, scope)
    session = lock._session.client.client_id
    # ZooKeeper's own way to end a session: another client takes it over and closes it
    thief = KazooClient(server.address, client_id=session)
    thief.start(timeout=20)
    thief.stop()
    thief.close()
    second = take(server.address, scope)
    with pytest.raises(RefusedError, match="may be lost"):
        lock.ensure_held()
    wait_for(lambda: bool(lock._session.client.connected))  # it comes back, with a new session
    with pytest.raises(RefusedError, match="may be lost"):
        lock.ensure_held()
    second.ensure_held()
    lock.release()
    second.ensure_held()
    second.release()


def test_a_node_that_was_deleted_is_no_lock(server: Server, admin: Any, scope: str) -> None:
    lock = take(server.address, scope)
    admin.delete(lock._path)
    with pytest.raises(RefusedError, match="its node is gone"):
        lock.ensure_held()
    admin.create(lock._path, b"another's", makepath=True)
    with pytest.raises(RefusedError, match="its node is gone"):
        lock.ensure_held()
    lock.release()
    assert admin.exists(lock._path)  # not ours to delete


def test_another_node_in_its_place_is_not_ours(server: Server, admin: Any, scope: str) -> None:
    lock = take(server.address, scope)
    value, _ = admin.get(lock._path)
    admin.delete(lock._path)
    admin.create(lock._path, value)
    with pytest.raises(RefusedError, match="its node is gone"):
        lock.ensure_held()
    lock.release()


def test_ours_of_a_session_that_was_lost_is_not_ours_yet(
    server: Server, admin: Any, scope: str
) -> None:
    ours = {**WHO, "lock": "f00d"}
    session = Session(server.address)
    session.start(10)
    path = f"/{scope}"
    admin.create(path, json.dumps(ours).encode(), ephemeral=True)
    assert _try(session, path, ours, scope) is None
    admin.delete(path)
    assert isinstance(_try(session, path, ours, scope), ZooKeeperLock)
    session.stop()


@pytest.mark.trust
def test_a_frozen_server_stops_the_writing(tmp_path: Path, scope: str) -> None:
    with serving(tmp_path / "server") as server:
        lock = take(server.address, scope)
        server.process.send(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(RefusedError, match="no answer within 2s"):
            lock.ensure_held()
        assert time.monotonic() - started < 4
        server.process.send(signal.SIGCONT)
        time.sleep(0.5)
        with pytest.raises(RefusedError, match="no answer"):  # lost once, lost for good
            lock.ensure_held()
        lock.release()

        lock = take(server.address, scope)
        server.process.send(signal.SIGSTOP)
        wait_for(lambda: lock._session.interruptions > 0)  # SUSPENDED
        started = time.monotonic()
        with pytest.raises(RefusedError, match="the connection was suspended"):
            lock.ensure_held()
        assert time.monotonic() - started < 0.5
        server.process.send(signal.SIGCONT)
        wait_for(lambda: bool(lock._session.client.connected))
        with pytest.raises(RefusedError, match="the connection was suspended"):
            lock.ensure_held()
        server.process.send(signal.SIGSTOP)
        started = time.monotonic()
        lock.release()
        assert time.monotonic() - started < 5
        with pytest.raises(UnreachableError, match="did not answer within 1s"):
            take(server.address, scope, wait=1)


def test_nobody_at_the_address() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:\d+: ZooKeeper did not answer"):
        take(f"127.0.0.1:{free_port()}", "x", wait=0.5)


def creating(data: bytes) -> bool:
    return request_type(data) == CREATE and b"alice" in data


def test_cut_right_after_create_leaves_one_node_and_it_is_ours(
    server: Server, admin: Any, scope: str
) -> None:
    folder = f"/{scope}/locks"

    def arrived() -> bool:
        return bool(admin.exists(folder)) and len(nodes(admin, folder)) == 1

    relay = Relay(server.port, creating, arrived)
    lock = take(f"{relay.address}/{scope}", scope)
    assert relay.cuts == 1
    lock.ensure_held()
    [node] = nodes(admin, folder)
    stat = admin.exists(f"{folder}/{node}")
    assert stat.czxid == lock.token
    assert stat.owner_session_id == lock._session.session_id
    assert stat.version == 0
    with pytest.raises(RefusedError):
        take(f"{server.address}/{scope}", scope, wait=2)
    lock.release()
    wait_for(lambda: nodes(admin, folder) == [])
    relay.close()


def _hold_until_killed(connect: str, scope: str, ready: str) -> None:
    take(connect, scope, pid=os.getpid())
    Path(ready).touch()
    time.sleep(60)


def _child(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = multiprocessing.get_context("forkserver").Process(target=function, args=arguments)
    process.start()
    return process


@pytest.mark.trust
def test_a_killed_holder_is_waited_for_until_its_session_ends(
    server: Server, scope: str, tmp_path: Path
) -> None:
    process = _child(_hold_until_killed, server.address, scope, str(tmp_path / "ready"))
    wait_for((tmp_path / "ready").exists)
    with pytest.raises(RefusedError, match=rf"pid {process.pid}\)"):
        take(server.address, scope, wait=2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    take(server.address, scope).release()


def _count_alone(connect: str, scope: str, number: str, rounds: int) -> None:
    for _ in range(rounds):
        lock = take(connect, scope, wait=60)
        value = int(Path(number).read_text())
        time.sleep(0.01)
        lock.ensure_held()
        Path(number).write_text(str(value + 1))
        lock.release()


def test_racing_processes_hold_it_one_at_a_time(server: Server, scope: str, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    processes = [_child(_count_alone, server.address, scope, str(number), 5) for _ in range(3)]
    for process in processes:
        process.join(100)
        assert process.exitcode == 0
    assert number.read_text() == "15"


def test_digest_authentication(
    server: Server, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admin: Any
) -> None:
    monkeypatch.setenv("ZK_PASSWORD", "p@ss:word")
    (tmp_path / "password").write_text("p@ss:word\n")
    address = f"{server.address}/{scope}"
    lock = take(f"ops:env:ZK_PASSWORD@{address}", scope)
    with pytest.raises(NoAuthError):
        admin.delete(lock._path)
    with pytest.raises(NoAuthError):
        admin.create(f"/{scope}/locks/other", b"")
    with pytest.raises(RefusedError, match="locked by alice"):
        take(f"ops:file:{tmp_path}/password@{address}", scope, wait=2)
    with pytest.raises(RefusedError, match="does not let these credentials make the lock") as bad:
        take(f"ops:wrong-secret@{address}", scope + "2", wait=2)
    assert "wrong-secret" not in bad.value.sentence
    with pytest.raises(RefusedError, match="does not let these credentials"):
        take(address, scope + "2", wait=2)
    lock.release()
    take(f"ops:p@ss:word@{address}", scope).release()


@pytest.mark.parametrize(
    "connect", ["", "/eoctl", "ops@zk:2181", "ops:@zk:2181", ":x@zk:2181", "zk:port", "zk:99999"]
)
def test_what_is_no_address_is_told(connect: str) -> None:
    with pytest.raises(UsageError, match="is not a ZooKeeper address"):
        take(connect, "x", wait=0.1)


def test_the_way_changes_take_it(server: Server, scope: str, printed: Printed, admin: Any) -> None:
    async def work() -> None:
        async with locked(server.address, "c", scope, WHO) as ensure_held:
            ensure_held()
            [held] = [
                json.loads(admin.get(f"/locks/{node}")[0])
                for node in nodes(admin)
                if scope.replace("_", "-")[:20] in node.replace("_", "-")
            ]
            assert held["user"] == "alice"
            assert held["since"] > 1_000_000_000_000
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        asyncio.run(work())
    take(server.address, scope, wait=1).release()
    assert printed() == ""  # kazoo's own words never reach the terminal


@pytest.mark.parametrize("how", only_here(["frozen", "deleted"], "deleted", beyond="trust"))
def test_no_step_is_sent_once_the_lock_is_unsure(tmp_path: Path, how: str) -> None:
    cells = Cells(tmp_path)
    with serving(tmp_path / "server") as server:
        cells.config.write_text(
            f"[contexts.cells]\nbootstrap_servers = 'here:1'\nlock_zookeeper = '{server.address}'\n"
        )
        started = cells.start(*SET, *ACT, CELL_TROUBLE="pause:a")
        wait_for((tmp_path / "cells.waiting").exists)
        if how == "frozen":
            server.process.send(signal.SIGSTOP)
        else:
            with server.admin() as admin:
                [node] = admin.get_children("/locks")
                assert json.loads(admin.get(f"/locks/{node}")[0])["pid"] == started.pid
                admin.delete(f"/locks/{node}")
        (tmp_path / "cells.go").touch()
        ran = started.end()
        assert ran.returncode == 4, ran.stderr
        assert "the lock may be lost" in ran.stderr
        assert cells.writes == ["a=5"]
        server.process.send(signal.SIGCONT)
        assert [entry["state"] for entry in cells.entries()] == ["unfinished"]
        again = cells.run(*SET, *ACT)
        assert again.returncode == 0, again.stderr
        assert cells.writes == ["a=5", "b=7"]
