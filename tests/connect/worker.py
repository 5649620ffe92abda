"""Real workers of Kafka Connect for the tests: distributed, exactly-once sources, killed for real.

`CountingSource.java` is their source; the sinks are Kafka's own file connector. `rest` is a client
of the tests' own, so that what eoctl says is held against something else.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, read_lock
from tests import java

SOURCE = Path(__file__).with_name("CountingSource.java")
LOCK = Path(__file__).with_name(f"connect-{KAFKA}.lock")
WAIT_SECONDS = 180.0


def class_path() -> str:
    """The source's classes, and the jars of Kafka, Connect and its file connectors."""
    jars = [*read_lock(KAFKA), *read_lock(KAFKA, "mirror"), *java.locked_jars(LOCK)]
    return java.class_path(jars, SOURCE)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Worker:
    """One worker of a group. settings: more of the worker's properties."""

    scheme = "http"
    flags: tuple[str, ...] = ()
    """More of its JVM's."""
    headers: Mapping[str, str] = MappingProxyType({})
    """What `rest` sends beside its own."""
    context: ssl.SSLContext | None = None
    """What `rest` trusts and shows."""

    def __init__(
        self, lab: Lab, folder: Path, group: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.group, self.folder = group, folder
        self.port = free_port()
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self.offsets_topic = f"{group}-offsets"
        self._told = {
            "bootstrap.servers": lab.bootstrap_servers,
            "group.id": group,
            "listeners": self.url,
            "rest.advertised.host.name": "127.0.0.1",
            "exactly.once.source.support": "enabled",
            "config.storage.topic": f"{group}-configs",
            "offset.storage.topic": self.offsets_topic,
            "status.storage.topic": f"{group}-status",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "300",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "session.timeout.ms": "10000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "worker.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._told.items()))
        logging = resources.files("eoctl.lab") / "log4j2.properties"
        flags = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += [
            *self.flags,
            f"-Dlog4j2.configurationFile={logging}",
            f"-Deoctl.log={self.folder}/worker.log",
        ]
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        with (self.folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [str(find_java().path), *flags, "-cp", class_path(), program, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self.until(lambda: self.rest("GET", "/connectors")[0] == 200, "it does not answer")
        return self

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """(status, JSON or text); 0: no answer."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", **self.headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, None

    def counting(self, name: str, topic: str, **settings: str) -> None:
        """Create a `CountingSource`. settings: of the connector, with `_` for `.`."""
        self.create(
            name,
            {
                "connector.class": "CountingSource",
                "tasks.max": "1",
                "topic": topic,
                "table": "orders",
                "records": "1000000",
                "batch": "10",
                "pause.ms": "50",
                **{key.replace("_", "."): value for key, value in settings.items()},
            },
        )

    def create(self, name: str, config: Mapping[str, str]) -> None:
        def created() -> bool:  # 409 while the workers rebalance
            return self.rest("PUT", f"/connectors/{name}/config", config)[0] in (200, 201)

        self.until(created, f"{name} was not created")
        self.until(lambda: self.state(name) == ("RUNNING", ["RUNNING"]), f"{name} does not run")

    def state(self, name: str) -> tuple[str, list[str]]:
        """The connector's state and its tasks'."""
        status, told = self.rest("GET", f"/connectors/{name}/status")
        if status != 200:
            return "?", []
        return told["connector"]["state"], [task["state"] for task in told["tasks"]]

    def workers(self, name: str) -> list[tuple[str, str]]:
        """(state, worker) of the connector's tasks; none while this worker does not know it."""
        status, told = self.rest("GET", f"/connectors/{name}/status")
        return [(t["state"], t["worker_id"]) for t in told["tasks"]] if status == 200 else []

    def stop(self, name: str) -> None:
        """Stop a connector, as `PUT /stop` does, and wait for it."""
        self.until(
            lambda: self.rest("PUT", f"/connectors/{name}/stop")[0] in (202, 204), "not stopped"
        )
        self.until(lambda: self.state(name) == ("STOPPED", []), f"{name} does not stop")

    def resume(self, name: str) -> None:
        self.until(
            lambda: self.rest("PUT", f"/connectors/{name}/resume")[0] in (202, 204), "no resume"
        )
        self.until(lambda: self.state(name) == ("RUNNING", ["RUNNING"]), f"{name} does not run")

    def offsets(self, name: str) -> dict[str, Any]:
        """Source partition as sorted JSON to source offset, as the worker says."""
        status, told = self.rest("GET", f"/connectors/{name}/offsets")
        assert status == 200, told
        return {json.dumps(o["partition"], sort_keys=True): o["offset"] for o in told["offsets"]}

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait for something while it runs."""
        end = time.monotonic() + WAIT_SECONDS
        while not met():
            assert self._process is not None
            assert self._process.poll() is None, f"it ended: see {self.folder}"
            assert time.monotonic() < end, f"{what}: see {self.folder}/worker.log"
            time.sleep(0.2)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait(20)

    def _put(self, path: str) -> None:
        """Ask until it is taken: workers that rebalance answer 409."""
        self.until(lambda: self.rest("PUT", path)[0] in (202, 204), f"{path} was not taken")

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
