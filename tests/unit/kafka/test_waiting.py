"""Name servers and addresses that do not answer cost no more than the deadline."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from eoctl.host.waiting import STAGGER_SECONDS, dial, in_thread
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.security import Security
from eoctl.kafka.connection.wire import Connection


def test_a_slow_name_server_holds_up_neither_the_answer_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*_: object, flags: int = 0, **__: object) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:  # no server is asked
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        time.sleep(3)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    before = time.monotonic()
    with pytest.raises(WireError) as caught:
        asyncio.run(Connection.open("b-1.example", 9092, Security(), Deadline(0.3)))
    assert time.monotonic() - before < 1.5
    assert caught.value.error == "TIMED_OUT"


def test_an_address_is_looked_up_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading, "Thread", fail)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(dial("127.0.0.1", server.getsockname()[1])).close()


def test_what_a_thread_raises_arrives() -> None:
    def fail() -> None:
        raise ValueError("from below")

    with pytest.raises(ValueError, match="from below"):
        asyncio.run(in_thread(fail))


@pytest.mark.parametrize("first", ["silent", "refusing"])
def test_a_dead_first_address_costs_a_moment(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost often is ::1 first, and a dual-stack name an IPv6 address that leads nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as alive, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # not listening: refuses
        if first == "silent":
            dead.listen(0)
            # its queue is full from now on: further connections get no answer
            fillers = [socket.socket() for _ in range(3)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(dead.getsockname())
        else:
            fillers = []
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", held.getsockname())
            for held in (dead, alive)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        before = time.monotonic()
        opened = asyncio.run(dial("two-addresses.example", 1))
        seconds = time.monotonic() - before
        assert opened.getpeername() == alive.getsockname()
        if first == "silent":
            assert STAGGER_SECONDS <= seconds < STAGGER_SECONDS + 0.5
        else:
            assert seconds < STAGGER_SECONDS
        for held in [opened, *fillers]:
            held.close()


def test_a_plain_host_name_loads_no_tables_of_idna() -> None:
    """They are 1.5 ms of each start; a name beyond ASCII needs them."""
    program = """
import asyncio, socket, sys
from eoctl.host.waiting import dial
server = socket.create_server(("127.0.0.1", 0))
asyncio.run(dial("localhost", server.getsockname()[1])).close()
print("stringprep" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
