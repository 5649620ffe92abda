"""A real ZooKeeper server for tests, from pyspark's jars."""

import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from eoctl.lab import zookeeper
from eoctl.lab.java import find_java
from eoctl.lab.processes import Process


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


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)
