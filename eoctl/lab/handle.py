"""The handle of a running lab: inspect it, connect to it, damage it, end it."""

import fcntl
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from eoctl.host.processes import Process, end, uninterrupted, wait_ended
from eoctl.lab import brokers, ready, secure, users
from eoctl.lab.brokers import Runtime
from eoctl.lab.owner_processes import owners
from eoctl.lab.record import PLAINTEXT, LabRecord, LabSpec, Node, read_record
from eoctl.settings.context import ContextFile
from eoctl.settings.folders import state_dir
from recovery.errors import BusyError, IncompleteError, UsageError
from recovery.values import Value

STOP_SECONDS = 30.0  # for a broker whose data is kept
ARCHIVE_SECONDS = 15.0  # for a broker that writes the class archive at its end


class BrokerStatus(Value):
    """One broker of a lab. state: `ready` sees all brokers, `starting` does not yet."""

    broker: int
    state: Literal["ready", "starting", "frozen", "stopped"]
    address: str
    pid: int | None
    log: Path


class LabStatus(Value):
    """A lab as it is now."""

    spec: LabSpec
    bootstrap_servers: str
    folder: Path
    brokers: tuple[BrokerStatus, ...]


class Lab:
    """A started lab: what it is, where it is, and the methods to damage it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @property
    def record(self) -> LabRecord:
        """Return lab.json as it is now. Raises UsageError if the lab was taken down."""
        record = read_record(self.folder)
        if record is None:
            raise UsageError(f"there is no lab {self.name!r} any more")
        return record

    @property
    def broker_ids(self) -> list[int]:
        return [node.id for node in self.record.nodes]

    @property
    def bootstrap_servers(self) -> str:
        """Return all brokers' addresses, at the listener that `client_properties()` uses."""
        record = self.record
        return record.bootstrap_servers(_default_listener(record))

    def client_properties(
        self, user: str = users.ADMIN, listener: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return the properties that a client needs to connect, in librdkafka's names.

        user, listener and mechanism are a secure lab's (`users.USERS`, `secure.LISTENERS`). Raises
        UsageError for unknown ones.
        """
        record = self.record
        if not record.spec.secure:
            return {"bootstrap.servers": self.bootstrap_servers}
        return secure.client_properties(self.folder, record, user, listener, mechanism)

    def broker_folder(self, broker_id: int) -> Path:
        """Return the folder with a broker's settings, `broker.log`, `console.log` and data."""
        return brokers.broker_folder(self.folder, broker_id)

    def data_folder(self, broker_id: int) -> Path:
        """Return the broker's log.dirs: a folder per partition."""
        return brokers.data_folder(self.folder, broker_id)

    def broker_log(self, broker_id: int) -> Path:
        """Return the broker's log."""
        return brokers.broker_log(self.folder, broker_id)

    def status(self) -> LabStatus:
        """Return which processes of the lab run now."""
        record = self.record
        answering = ready.answering(record)

        def look(node: Node) -> BrokerStatus:
            state = node.process.state if node.process else "ended"
            return BrokerStatus(
                node.id,
                "stopped"
                if state == "ended"
                else "frozen"
                if state == "frozen"
                else "ready"
                if node.id in answering
                else "starting",
                record.address(node, _default_listener(record)),
                node.process.pid if node.process and state != "ended" else None,
                self.broker_log(node.id),
            )

        return LabStatus(
            record.spec, self.bootstrap_servers, self.folder, tuple(map(look, record.nodes))
        )

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL, as a power failure would end it."""
        process = self._process(broker_id)
        process.send(signal.SIGKILL)
        wait_ended([process], 10)

    def terminate(self, broker_id: int) -> None:
        """Send SIGTERM, for a controlled shutdown: leaders move first. Raises IncompleteError."""
        process = self._process(broker_id)
        process.send(signal.SIGTERM)
        if wait_ended([process], STOP_SECONDS):
            raise IncompleteError(
                f"broker {broker_id} did not stop within {STOP_SECONDS:.0f} s",
                where=str(self.broker_log(broker_id)),
            )
        self._keep_class_archive()

    def freeze(self, broker_id: int) -> None:
        """Send SIGSTOP: the broker accepts connections (the kernel does) and never answers."""
        self._process(broker_id).send(signal.SIGSTOP)

    def thaw(self, broker_id: int) -> None:
        """Send SIGCONT after `freeze`."""
        self._process(broker_id).send(signal.SIGCONT)

    def start(self, broker_id: int) -> None:
        """Start a stopped broker, with its data; wait until it sees itself in the cluster."""
        process = self.record.node(broker_id).process
        if process and process.alive:
            return
        start_broker(self, self.runtime(), broker_id)
        ready.wait(self.record, self.folder, only=broker_id)

    def set_clock(self, broker_id: int, ahead_ms: int) -> None:
        """Restart a broker with its clock ahead by so much; 0 = correct. Raises RefusedError.

        Its log keeps the true time, and so do the times of the markers that it writes as the leader
        of their partition: Kafka asks the system for those.
        """
        node = self.record.node(broker_id).model_copy(update={"clock_ahead_ms": ahead_ms})
        self.terminate(broker_id)
        self.record.with_node(node).save(self.folder)
        self.start(broker_id)

    def down(self, *, keep_data: bool = False) -> None:
        """End what `up` started, wait, delete the data unless asked to keep it.

        `up` starts a kept lab again. Raises BusyError, IncompleteError.
        """
        with only_one(self.folder):
            record = self.record
            grace = STOP_SECONDS
            if not keep_data:  # a clean end matters only for the class archive
                grace = ARCHIVE_SECONDS if record.archive and not record.archive.exists() else 0
            end(owners(self.folder), 0)  # of `lab break`, with their transactions; MirrorMaker
            end(record.broker_processes, grace)
            end(record.processes, STOP_SECONDS)
            self._keep_class_archive()
            self._context_path().unlink(missing_ok=True)
            if not keep_data:
                shutil.rmtree(self.folder)

    def runtime(self) -> Runtime:
        """Return the Java and the jars that this lab runs on."""
        return brokers.find_runtime(self.record.spec.kafka_version)

    def classpath(self) -> str:
        return self.runtime().classpath

    def write_context(self) -> None:
        """Make the lab a context, `lab` or `lab-NAME`, for eoctl's other commands."""
        entry = ContextFile(bootstrap_servers=self.bootstrap_servers)
        if self.record.spec.secure:
            entry = ContextFile(command_config=str(secure.client_file(self.folder, "operator")))
        path = self._context_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=1))

    @property
    def context_name(self) -> str:
        """Return the name of the context for this lab."""
        return "lab" if self.name == "default" else f"lab-{self.name}"

    def _context_path(self) -> Path:
        return state_dir().absolute() / "contexts" / f"{self.context_name}.json"

    def _process(self, broker_id: int) -> Process:
        process = self.record.node(broker_id).process
        if process is None or not process.alive:
            raise UsageError(f"broker {broker_id} of lab {self.name!r} does not run")
        return process

    def _keep_class_archive(self) -> None:
        fresh, target = self.folder / "classes.jsa", self.record.archive
        if target and fresh.exists():
            brokers.keep_class_archive(fresh, target)


def start_broker(lab: Lab, runtime: Runtime, broker_id: int) -> Process:
    """Start one broker and record which process it is."""
    record = lab.record
    node = record.node(broker_id)
    archive = runtime.class_archive
    leaves = broker_id == 1 and not archive.exists() and not node.clock_ahead_ms
    if leaves:
        record = record.model_copy(update={"archive": archive})
    with uninterrupted():
        process = brokers.start(
            runtime,
            lab.folder,
            broker_id,
            leave_archive=leaves,
            clock_ahead_ms=node.clock_ahead_ms,
        )
        record.with_node(node.model_copy(update={"process": process})).save(lab.folder)
    return process


def _default_listener(record: LabRecord) -> str:
    return secure.DEFAULT_LISTENER if record.spec.secure else PLAINTEXT


def labs_folder() -> Path:
    return state_dir().absolute() / "lab"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a lab's lock; the system drops it with the process. Raises BusyError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another eoctl takes lab {folder.name!r} up or down right now",
                remedy="wait for it, or choose another --name",
            ) from None
        yield
