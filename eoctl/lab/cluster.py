"""A real Kafka on this machine: `up` starts it, `Lab.down` ends exactly what `up` started.

A lab is a folder: `lab.json` says what was started (ports, processes), `broker-N/` holds each
broker's settings, data and logs. Many may look at a lab; one at a time takes it up or down.
"""

import dataclasses
import fcntl
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eoctl.config import ContextFile, state_dir
from eoctl.lab import brokers, ready, secure, users
from eoctl.lab.brokers import Runtime
from eoctl.lab.jars import Progress
from eoctl.lab.processes import Process, end, wait_ended
from eoctl.lab.record import (
    CONTROLLER,
    PLAINTEXT,
    LabSpec,
    Node,
    Record,
    check_name,
    new_uuid,
    read_record,
)
from recovery.errors import BusyError, IncompleteError, RefusedError, UsageError

STOP_SECONDS = 30.0  # for a broker that keeps its data
ARCHIVE_SECONDS = 15.0  # for one that writes the class archive at its end


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of a lab. state: `ready` sees all brokers, `starting` does not yet."""

    broker: int
    state: Literal["ready", "starting", "frozen", "stopped"]
    address: str
    pid: int | None
    log: Path


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab as it is now."""

    spec: LabSpec
    bootstrap_servers: str
    folder: Path
    brokers: tuple[BrokerStatus, ...]


def nothing(what: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


def lab_names() -> list[str]:
    """The labs that there are, running or not."""
    return sorted(path.parent.name for path in _labs().glob("*/lab.json"))


def load(name: str = "default") -> "Lab":
    """A lab that `up` made. Raises UsageError when there is none."""
    check_name(name)
    folder = _labs() / name
    if read_record(folder) is None:
        known = lab_names()
        raise UsageError(
            f"there is no lab {name!r}",
            remedy=f"labs here: {', '.join(known)}" if known else "start one with `eoctl lab up`",
        )
    return Lab(folder)


def up(spec: LabSpec, *, ivy_settings: Path | None = None, progress: Progress = nothing) -> "Lab":
    """Start a lab, or what of it does not run, and wait until every broker sees all brokers.

    A lab of that name that runs already is returned if it is the one asked for. Raises
    UsageError (a bad spec, a port that is taken, no Java), RefusedError (another lab of that
    name), BusyError, UnreachableError (a broker crashed or does not get ready: why, and its log).
    Whatever ends it early, what it started ends too.
    """
    spec.check()
    folder = _labs() / spec.name
    with _only_one(folder):
        lab, record = Lab(folder), read_record(folder)
        if record is not None and record.state == "starting":  # left by an `up` that was killed
            _throw_away(folder)
            record = None
        if record is not None and not _fits(record.spec, spec):
            raise RefusedError(
                f"there is a lab {spec.name!r} already, but with {record.spec.text}",
                remedy=f"first `eoctl lab down --name {spec.name}`, or choose another --name",
            )
        runtime = brokers.find_runtime(spec.kafka_version, ivy_settings, progress)
        if record is not None:
            _start_missing(lab, runtime, progress)
        else:
            try:
                _make(lab, spec, runtime)
                _start_missing(lab, runtime, progress)
                if spec.secure:
                    users.grant(lab.client_properties(listener="MTLS"))
                lab.record.model_copy(update={"state": "up"}).save(folder)
            except BaseException:
                _throw_away(folder)
                raise
        lab.write_context()
    return lab


def _fits(there: LabSpec, asked: LabSpec) -> bool:
    """Whether the lab made for `there` is what `asked` asks for: no port means any port."""
    port = there.port if asked.port is None else asked.port
    return there == dataclasses.replace(asked, port=port)


def _make(lab: "Lab", spec: LabSpec, runtime: Runtime) -> None:
    """Ports, folders, settings, formatted storage: all but the processes."""
    names = list(secure.LISTENERS) if spec.secure else [PLAINTEXT]
    ports = brokers.choose_ports(spec.brokers * len(names), spec.port)
    controllers = brokers.choose_ports(spec.brokers, None)
    nodes = tuple(
        Node(
            id=number + 1,
            ports=dict(zip(names, ports[number * len(names) :], strict=False))
            | {CONTROLLER: controllers[number]},
            directory_id=new_uuid(),
        )
        for number in range(spec.brokers)
    )
    record = Record(spec=spec, state="starting", cluster_id=new_uuid(), nodes=nodes)
    lab.folder.mkdir(mode=0o700, parents=True)
    record.save(lab.folder)
    extra: dict[str, str] = {}
    if spec.secure:
        secure.make(lab.folder)
        secure.write_client_files(lab.folder, record)
        extra = secure.broker_settings(lab.folder)
    for node in nodes:
        lab.broker_folder(node.id).mkdir()
        told = brokers.settings(node, nodes, lab.data_folder(node.id)) | extra
        settings_file = lab.broker_folder(node.id) / "server.properties"
        brokers.write_settings(settings_file, {**told, **spec.settings})
    signed = secure.scram_users(lab.folder) if spec.secure else []
    brokers.format_storage(runtime, record, lab.folder, signed)


def _throw_away(folder: Path) -> None:
    """End what a half-made lab runs and delete it."""
    if record := read_record(folder):
        end(record.processes, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _start_missing(lab: "Lab", runtime: Runtime, progress: Progress) -> None:
    """Start each broker that does not run, wait until all are ready; all or none of them."""
    missing = [n.id for n in lab.record.nodes if not (n.process and n.process.alive)]
    started: list[Process] = []
    try:
        for broker_id in missing:
            started.append(_start(lab, runtime, broker_id))
        ready.wait(lab.record, lab.folder, progress)
    except BaseException:
        end(started, 0)
        raise


def _start(lab: "Lab", runtime: Runtime, broker_id: int) -> Process:
    """Start one broker and write down which process it is."""
    record = lab.record
    node = record.node(broker_id)
    leave_archive = broker_id == 1 and not runtime.class_archive.exists()
    process = brokers.start(runtime, lab.folder, broker_id, leave_archive=leave_archive)
    record.with_node(node.model_copy(update={"process": process})).save(lab.folder)
    return process


class Lab:
    """A lab that was taken up: what it is, where it is, and the handles to hurt it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @property
    def record(self) -> Record:
        """lab.json as it is now. Raises UsageError when the lab was taken down."""
        record = read_record(self.folder)
        if record is None:
            raise UsageError(f"there is no lab {self.name!r} any more")
        return record

    @property
    def broker_ids(self) -> list[int]:
        return [node.id for node in self.record.nodes]

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, at the listener that `client_properties()` is for."""
        record = self.record
        return record.bootstrap_servers(_default_listener(record))

    def client_properties(
        self, user: str = users.ADMIN, listener: str | None = None, mechanism: str | None = None
    ) -> dict[str, str]:
        """What a client needs to connect, spelled as librdkafka does.

        user, listener and mechanism are a secure lab's (`users.USERS`, `secure.LISTENERS`).
        Raises UsageError for one that it does not have.
        """
        record = self.record
        if not record.spec.secure:
            return {"bootstrap.servers": self.bootstrap_servers}
        return secure.client_properties(self.folder, record, user, listener, mechanism)

    def broker_folder(self, broker_id: int) -> Path:
        """Settings, `broker.log`, `console.log` and data of one broker."""
        return brokers.broker_folder(self.folder, broker_id)

    def data_folder(self, broker_id: int) -> Path:
        """The broker's log.dirs: a folder per partition."""
        return brokers.data_folder(self.folder, broker_id)

    def broker_log(self, broker_id: int) -> Path:
        """What the broker logs."""
        return brokers.broker_log(self.folder, broker_id)

    def status(self) -> LabStatus:
        """What of the lab runs now."""
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
        """SIGKILL: as a power cut would."""
        process = self._process(broker_id)
        process.send(signal.SIGKILL)
        wait_ended([process], 10)

    def terminate(self, broker_id: int) -> None:
        """SIGTERM, a controlled shutdown: leadership moves away first. Raises IncompleteError."""
        process = self._process(broker_id)
        process.send(signal.SIGTERM)
        if wait_ended([process], STOP_SECONDS):
            raise IncompleteError(
                f"broker {broker_id} did not stop within {STOP_SECONDS:.0f} s",
                where=str(self.broker_log(broker_id)),
            )
        self._keep_class_archive()

    def freeze(self, broker_id: int) -> None:
        """SIGSTOP: it accepts connections (the kernel does) and never answers."""
        self._process(broker_id).send(signal.SIGSTOP)

    def thaw(self, broker_id: int) -> None:
        """SIGCONT after `freeze`."""
        self._process(broker_id).send(signal.SIGCONT)

    def start(self, broker_id: int) -> None:
        """Start a broker that ended, with its data; wait until it sees itself in the cluster."""
        process = self.record.node(broker_id).process
        if process and process.alive:
            return
        _start(self, self.runtime(), broker_id)
        ready.wait(self.record, self.folder, nothing, only=broker_id)

    def down(self, *, keep_data: bool = False) -> None:
        """End what `up` started, wait for it, delete the data unless they are to be kept.

        A kept lab starts again by `up`. Raises BusyError, IncompleteError.
        """
        with _only_one(self.folder):
            processes = self.record.processes
            if keep_data:
                end(processes, STOP_SECONDS)
            else:  # nobody needs a clean end, unless it leaves the class archive
                end(processes, 0 if self.runtime().class_archive.exists() else ARCHIVE_SECONDS)
            self._keep_class_archive()
            self._context_path().unlink(missing_ok=True)
            if not keep_data:
                shutil.rmtree(self.folder)

    def runtime(self) -> Runtime:
        """The Java and the jars that this lab runs on."""
        return brokers.find_runtime(self.record.spec.kafka_version, None, nothing)

    def classpath(self) -> str:
        return self.runtime().classpath

    def run_tool(
        self, main_class: str, *args: str, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's own tools, such as org.apache.kafka.tools.TransactionsCommand."""
        argv = self.runtime().tool_argv(main_class, *args)
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def write_context(self) -> None:
        """Make the lab a context, `lab` or `lab-NAME`, for eoctl's other commands."""
        entry = ContextFile(bootstrap_servers=self.bootstrap_servers)
        if self.record.spec.secure:
            entry = ContextFile(command_config=str(secure.client_file(self.folder, "operator")))
        path = self._context_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry.model_dump_json(indent=1), encoding="utf-8")

    def _context_path(self) -> Path:
        name = "lab" if self.name == "default" else f"lab-{self.name}"
        return state_dir().absolute() / "contexts" / f"{name}.json"

    def _process(self, broker_id: int) -> Process:
        process = self.record.node(broker_id).process
        if process is None or not process.alive:
            raise UsageError(f"broker {broker_id} of lab {self.name!r} does not run")
        return process

    def _keep_class_archive(self) -> None:
        fresh = self.folder / "classes.jsa"
        if fresh.exists():
            self.runtime().keep_class_archive(fresh)


def _default_listener(record: Record) -> str:
    return secure.DEFAULT_LISTENER if record.spec.secure else PLAINTEXT


def _labs() -> Path:
    return state_dir().absolute() / "lab"


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
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
