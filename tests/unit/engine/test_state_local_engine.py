"""The local engine's workers: what goes wrong in them is one sentence, and none outlives it."""

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl.engine.local import LocalEngine
from eoctl.engine.rebuild_task import Making, RangeTask
from eoctl.kafka.connection.access import Access
from recovery.errors import IncompleteError, UnreachableError, UsageError


def task(folder: Path, port: int, form: str = "plain") -> RangeTask:
    access = Access({"bootstrap.servers": f"127.0.0.1:{port}", "request.timeout.ms": "60000"})
    return RangeTask(access, "t", 0, 0, 9, Making(form, {}, str(folder)))


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_errors_come_back_whole(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with LocalEngine(1) as engine, pytest.raises(UnreachableError, match=str(port)):
        list(engine([task(tmp_path, port)]))
    with LocalEngine(1) as engine, pytest.raises(UsageError, match="no format") as error:
        list(engine([task(tmp_path, port, "nothing")]))
    assert error.value.where == "--format"
    assert multiprocessing.active_children() == []


def test_a_killed_worker_is_named(tmp_path: Path, silent: int) -> None:
    def kill() -> None:
        deadline = time.monotonic() + 30
        while not multiprocessing.active_children() and time.monotonic() < deadline:
            time.sleep(0.05)
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with LocalEngine(1) as engine, pytest.raises(IncompleteError, match="SIGKILL"):
        list(engine([task(tmp_path, silent)]))
    killer.join()


def test_no_task_outlasts_the_time_given(tmp_path: Path, silent: int) -> None:
    began = time.monotonic()
    with (
        LocalEngine(2, bound=began + 1) as engine,
        pytest.raises(IncompleteError, match="--timeout"),
    ):
        list(engine([task(tmp_path, silent)]))
    assert multiprocessing.active_children() == []
