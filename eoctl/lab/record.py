"""A lab on disk: the specification, its nodes, `lab.json`."""

import base64
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from eoctl.host.processes import Process
from eoctl.lab.jars import KAFKA, read_lock
from recovery.errors import RefusedError, UsageError
from recovery.plurals import counted
from recovery.values import Value

HOST = "127.0.0.1"
CONTROLLER = "CONTROLLER"  # names of listeners
PLAINTEXT = "PLAINTEXT"

# The lab's own wiring: with another value it could not find its brokers again.
OWN_SETTINGS = frozenset(
    [
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "zookeeper.connect",
    ]
)


class LabSpec(Value):
    """The requested lab.

    port: the first client listener's, the others follow; None = any free ports.
    transaction_version: level of the feature transaction.version (KIP-890); None = Kafka's own.
    settings: broker settings that override the lab's.
    """

    name: str = "default"
    brokers: int = 1
    port: int | None = None
    secure: bool = False
    transaction_version: int | None = None
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    kafka_version: str = KAFKA

    def check(self) -> None:
        """Raise UsageError for an impossible lab."""
        check_name(self.name)
        if not 1 <= self.brokers <= 3:
            raise UsageError(f"a lab has 1, 2 or 3 brokers, not {self.brokers}")
        if self.port is not None and not 1 <= self.port <= 65500:
            raise UsageError(f"{self.port} is no port", remedy="choose one from 1024 to 65500")
        if self.transaction_version not in (None, 0, 1, 2):
            raise UsageError(f"transaction.version is 0, 1 or 2, not {self.transaction_version}")
        read_lock(self.kafka_version)
        if self.uses_zookeeper and (self.secure or self.transaction_version is not None):
            option = "--secure" if self.secure else "--transaction-version"
            raise UsageError(f"a lab of Kafka {self.kafka_version} has no {option}")
        if own := sorted(OWN_SETTINGS & self.settings.keys()):
            raise UsageError(f"the lab itself sets {own[0]}", where="--set")
        for key, value in self.settings.items():
            if not re.fullmatch(r"[\w.:-]+", key) or "\n" in value or "\r" in value:
                raise UsageError(f"{key!r} is no broker setting", where="--set")

    @property
    def uses_zookeeper(self) -> bool:
        """Return True for Kafka before 3.9, whose labs keep metadata in ZooKeeper, not in KRaft.

        A quorum that is formatted with its voters came with 3.9 (KIP-853).
        """
        major, minor = self.kafka_version.split(".")[:2]
        return (int(major), int(minor)) < (3, 9)

    @property
    def text(self) -> str:
        """Return the specification in words, for sentences."""
        words = [f"Kafka {self.kafka_version}"]
        words.append(counted(self.brokers, "broker"))
        if self.port is not None:
            words.append(f"port {self.port}")
        if self.secure:
            words.append("secure")
        if self.transaction_version is not None:
            words.append(f"transaction.version {self.transaction_version}")
        words += [f"{key}={value}" for key, value in sorted(self.settings.items())]
        return ", ".join(words)


def check_name(name: str) -> None:
    """Check a lab's name, which becomes a folder's. Raises UsageError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(
            f"{name!r} is no name for a lab", remedy="use letters, digits, dots, - and _"
        )


class Node(BaseModel):
    """One broker (and controller), or the ZooKeeper.

    ports: by listener name. process: None before its start. clock_ahead_ms: of its clock, from its
    next start on.
    """

    model_config = ConfigDict(frozen=True)

    id: int
    ports: dict[str, int]
    directory_id: str
    process: Process | None = None
    clock_ahead_ms: int = 0


class LabRecord(BaseModel):
    """The content of lab.json.

    state: an interrupted `up` leaves `starting`; its data is worthless. archive: the destination of
    a class archive that broker 1 may leave at its end.
    """

    model_config = ConfigDict(frozen=True)

    spec: LabSpec
    state: Literal["starting", "up"]
    cluster_id: str
    nodes: tuple[Node, ...]
    archive: Path | None = None
    zookeeper: Node | None = None  # Kafka before 3.9 only

    @property
    def broker_processes(self) -> list[Process]:
        return [node.process for node in self.nodes if node.process]

    @property
    def processes(self) -> list[Process]:
        """Return all processes that were started."""
        keeper = self.zookeeper.process if self.zookeeper else None
        return [*self.broker_processes, *([keeper] if keeper else [])]

    def node(self, broker_id: int) -> Node:
        """Return a node. Raises UsageError for an id the lab does not have."""
        for node in self.nodes:
            if node.id == broker_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise UsageError(f"lab {self.spec.name!r} has no broker {broker_id}, only {ids}")

    def address(self, node: Node, listener: str) -> str:
        return f"{HOST}:{node.ports[listener]}"

    def bootstrap_servers(self, listener: str) -> str:
        """Return all brokers' addresses at one of their listeners."""
        return ",".join(self.address(node, listener) for node in self.nodes)

    def with_node(self, node: Node) -> "LabRecord":
        """Return a copy with one node replaced."""
        nodes = tuple(node if old.id == node.id else old for old in self.nodes)
        return self.model_copy(update={"nodes": nodes})

    def save(self, folder: Path) -> None:
        """Write lab.json in one step."""
        fresh = folder / "lab.json.new"
        fresh.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        fresh.replace(folder / "lab.json")


def read_record(folder: Path) -> LabRecord | None:
    """Return a lab's lab.json; None if there is none. Raises RefusedError if it is broken."""
    path = folder / "lab.json"
    try:
        return LabRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise RefusedError(
            "not a lab's description, so it is not known what runs",
            where=str(path),
            remedy=f"end its brokers by hand and delete {folder}",
        ) from None


def new_uuid() -> str:
    """Return a Kafka Uuid: 16 bytes in base64url. It must not begin like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
