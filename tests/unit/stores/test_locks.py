"""File locks: one holder per cluster and scope, named in the refusal, gone with its process."""

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.stores.locks.lock import lock_name, lock_words, take_file_lock
from eoctl.stores.locks.scope_lock import locked
from recovery.errors import RefusedError

WHO = {"user": "alice", "host": "ops-1", "pid": 77}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    return tmp_path


def take(scope: str = "orders:3", wait: float = 0.0, cluster: str = "c") -> Any:
    return asyncio.run(take_file_lock(cluster, scope, {**WHO, "since": 0}, wait))


def child(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = multiprocessing.get_context("forkserver").Process(target=function, args=arguments)
    process.start()
    return process


def test_the_second_is_refused_and_told_who_holds_it(state: Path) -> None:
    lock = take()
    lock.ensure_held()
    with pytest.raises(RefusedError) as caught:
        take()
    assert "orders:3: locked by alice on ops-1 (pid 77) since 1970-01-01T00:00:00.000Z" in (
        caught.value.sentence
    )
    assert caught.value.exit_status == 4
    for other in (take("orders:4"), take(cluster="d")):
        other.release()
    lock.release()
    take().release()


def test_a_holder_that_is_about_to_end_is_waited_for() -> None:
    first = take()

    async def both() -> None:
        waiting = asyncio.create_task(take_file_lock("c", "orders:3", WHO, 10))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        first.release()
        (await waiting).release()

    asyncio.run(both())


def test_a_lock_file_that_was_removed_is_no_lock(state: Path) -> None:
    lock = take()
    [file] = (state / "locks").iterdir()
    file.unlink()
    with pytest.raises(RefusedError, match="taken away"):
        lock.ensure_held()
    second = take()  # a new file: the first holder must not go on
    with pytest.raises(RefusedError, match="taken away"):
        lock.ensure_held()
    second.ensure_held()
    lock.release()
    second.ensure_held()
    second.release()


def _take_and_wait(state: str, ready: str) -> None:
    os.environ["EOCTL_STATE_DIR"] = state
    take()
    Path(ready).touch()
    time.sleep(60)


def test_a_killed_holder_holds_nothing(state: Path) -> None:
    process = child(_take_and_wait, str(state), str(state / "ready"))
    end = time.monotonic() + 30
    while not (state / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    with pytest.raises(RefusedError):
        take()
    assert process.pid is not None
    os.kill(process.pid, 9)
    process.join(30)
    take().release()


def _count_alone(state: str, rounds: int) -> None:
    """Adds to a number under the lock, in a way that loses additions without one."""
    os.environ["EOCTL_STATE_DIR"] = state
    number = Path(state) / "number"
    for _ in range(rounds):
        lock = take(wait=60)
        value = int(number.read_text())
        time.sleep(0.002)
        lock.ensure_held()
        number.write_text(str(value + 1))
        lock.release()


def test_racing_processes_hold_it_one_at_a_time(state: Path) -> None:
    (state / "number").write_text("0")
    processes = [child(_count_alone, str(state), 10) for _ in range(3)]
    for process in processes:
        process.join(100)
        assert process.exitcode == 0
    assert (state / "number").read_text() == "30"


def test_a_lock_is_let_go_when_the_work_raises() -> None:
    async def work() -> None:
        async with locked(None, "c", "orders:3", WHO) as ensure_held:
            ensure_held()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(work())
    take().release()


def test_a_holder_that_wrote_nonsense_is_still_a_holder(state: Path) -> None:
    lock = take()
    [file] = (state / "locks").iterdir()
    for content in (b"", b"\xff", b"[]", b"{}", json.dumps({"user": None}).encode()):
        file.write_bytes(content)
        with pytest.raises(RefusedError, match="somebody who did not say"):
            take()
    lock.release()


def test_a_folder_that_cannot_be_made_is_told(state: Path) -> None:
    (state / "locks").write_text("")
    with pytest.raises(RefusedError, match="cannot be locked: File exists"):
        take()


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_are_files_and_differ(cluster: str, scope: str) -> None:
    name = lock_name(cluster, scope)
    assert len(name) <= 100
    assert name.isascii()
    assert not set(name) & set("/.\0 ")
    assert lock_name(cluster + "x", scope) != name
    assert lock_name(cluster, scope + "x") != name
    if cluster:
        assert lock_name(cluster[:-1], cluster[-1] + scope) != name


def test_where_the_lock_is_is_told_without_passwords() -> None:
    assert lock_words(None) == "this host only"
    assert lock_words("zk1:2181,zk2:2181/eoctl") == "ZooKeeper zk1:2181,zk2:2181/eoctl"
    assert lock_words("ops:hun@ter2@zk1:2181") == "ZooKeeper ops@zk1:2181"
