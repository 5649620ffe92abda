"""A real ZooKeeper server for tests, from pyspark's jars."""

import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from eoctl.host.java import find_java
from eoctl.host.processes import Process, end
from eoctl.lab import zookeeper


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


class Server:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.process: Process = zookeeper.start(find_java(), folder, self.port)
        zookeeper.wait(self.process, folder, self.port)
        client = self.client()  # a first session, which a slow disk makes wait
        client.stop()
        client.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> Any:
        client = KazooClient(self.address, timeout=10)
        client.start(timeout=20)
        return client

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """A client, closed afterwards."""
        client = self.client()
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server of its own, gone afterwards, even if it was frozen."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.process.send(signal.SIGCONT)
        end([server.process], 5)


def request_type(data: bytes) -> int | None:
    """Of a request's frame: i32 length, i32 xid, i32 type (ZooDefs.OpCode). A connect request has
    neither xid nor type."""
    return struct.unpack_from(">i", data, 8)[0] if len(data) >= 12 else None


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)
