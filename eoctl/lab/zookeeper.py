"""Run the ZooKeeper server in pyspark's jars: for brokers before Kafka 3.9, and tests of locks."""

import socket
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from eoctl.host.java import Java
from eoctl.host.processes import Process, spawn
from eoctl.lab.jars import pyspark_jars
from eoctl.lab.record import HOST, Node
from recovery.errors import UnreachableError

READY_SECONDS = 30.0
_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-2",
    "log4j-core-",
    "netty-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "audience-annotations-",
)


def start(java: Java, folder: Path, port: int) -> Process:
    """Start a server on 127.0.0.1:port with its data, settings and log in `folder`."""
    folder.mkdir(exist_ok=True)
    settings = folder / "zoo.cfg"
    settings.write_text(
        f"dataDir={folder}/data\nclientPortAddress={HOST}\nclientPort={port}\n"
        "tickTime=500\nmaxSessionTimeout=60000\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,ruok\n"
    )
    jars = [str(jar) for jar in sorted(pyspark_jars().glob("*.jar")) if jar.name.startswith(_JARS)]
    flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    argv = [str(java.path), *flags, "-cp", ":".join(jars), main, str(settings)]
    return spawn(argv, folder / "console.log")


def wait(process: Process, folder: Path, port: int) -> None:
    """Wait until the server says `imok` to `ruok`. Raises UnreachableError with its log."""
    end = time.monotonic() + READY_SECONDS
    while process.alive and time.monotonic() < end:
        if _answers(port):
            return
        time.sleep(0.05)
    log = (folder / "console.log").read_text(errors="replace").strip().splitlines()
    raise UnreachableError(f"ZooKeeper did not start: {log[-1] if log else 'it said nothing'}")


def _answers(port: int) -> bool:
    try:
        with closing(socket.create_connection((HOST, port), timeout=1)) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False


def broker_settings(settings: Mapping[str, str], keeper: Node) -> dict[str, str]:
    """Return a broker's settings for Kafka before 3.9: no controller, metadata in ZooKeeper."""
    without = ("process.roles", "node.id", "controller.", "share.")
    kept = {key: value for key, value in settings.items() if not key.startswith(without)}
    return kept | {
        "broker.id": settings["node.id"],
        "listeners": settings["advertised.listeners"],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "zookeeper.connect": f"{HOST}:{keeper.ports['CLIENT']}",
    }
