"""A real Kafka on this machine: `up` starts it, `Lab.down` ends exactly what `up` started.

A lab is a folder: `lab.json` says what was started (ports, processes), `broker-N/` holds each
broker's settings, data and logs. Many processes may read a lab; one at a time starts or ends it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from eoctl.host.processes import Process, end, uninterrupted
from eoctl.lab import brokers, ready, secure, users, zookeeper
from eoctl.lab.brokers import Runtime
from eoctl.lab.handle import BrokerStatus, Lab, LabStatus, labs_folder, only_one, start_broker
from eoctl.lab.jars import FetchProgress, nothing
from eoctl.lab.record import (
    CONTROLLER,
    PLAINTEXT,
    LabRecord,
    LabSpec,
    Node,
    check_name,
    new_uuid,
    read_record,
)
from recovery.errors import RefusedError, UsageError
from recovery.values import replace

__all__ = ["BrokerStatus", "Lab", "LabSpec", "LabStatus", "lab_names", "load", "up"]


def lab_names() -> list[str]:
    """Return the names of existing labs, running or not."""
    return sorted(path.parent.name for path in labs_folder().glob("*/lab.json"))


def load(name: str = "default") -> Lab:
    """Return a lab that `up` made. Raises UsageError if there is none."""
    check_name(name)
    folder = labs_folder() / name
    if read_record(folder) is None:
        known = lab_names()
        raise UsageError(
            f"there is no lab {name!r}",
            remedy=f"labs here: {', '.join(known)}" if known else "start one with `eoctl lab up`",
        )
    return Lab(folder)


def up(
    spec: LabSpec,
    *,
    ivy_settings: Path | None = None,
    progress: FetchProgress = nothing,
    furnish: Callable[[Lab], None] | None = None,
) -> Lab:
    """Start a lab, or its missing brokers, and wait until every broker sees all brokers.

    furnish: writes into a new lab's folders before its brokers first start. A running lab of that
    name is returned if it fits the request and is not to be furnished. Raises UsageError (a bad
    spec, a port that is taken, no Java), RefusedError (another lab of that name), BusyError,
    UnreachableError (a broker crashed or is not ready in time: with the reason and its log). On
    failure, ends what it started.
    """
    spec.check()
    folder = labs_folder() / spec.name
    with only_one(folder):
        lab, record = Lab(folder), read_record(folder)
        if record is not None and record.state == "starting":  # left by an `up` that was killed
            _throw_away(folder)
            record = None
        if record is not None and (furnish is not None or not _fits(record.spec, spec)):
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
                if furnish is not None:
                    furnish(lab)
                _start_missing(lab, runtime, progress)
                if spec.secure:
                    users.grant(lab.client_properties(listener="MTLS"))
                done = {"state": "up", "cluster_id": brokers.read_cluster_id(lab.data_folder(1))}
                lab.record.model_copy(update=done).save(folder)
            except BaseException:
                _throw_away(folder)
                raise
        lab.write_context()
    return lab


def _fits(there: LabSpec, request: LabSpec) -> bool:
    """Return True if the lab made for `there` fits `request`: no port means any port."""
    port = there.port if request.port is None else request.port
    return there == replace(request, port=port)


def _make(lab: Lab, spec: LabSpec, runtime: Runtime) -> None:
    """Make ports, folders, settings and formatted storage: everything but the processes."""
    names = list(secure.LISTENERS) if spec.secure else [PLAINTEXT]
    width = len(names) * spec.brokers
    ports = brokers.choose_ports(width, spec.brokers + 1, spec.port)
    nodes = tuple(
        Node(
            id=number + 1,
            ports=dict(zip(names, ports[number * len(names) :], strict=False))
            | {CONTROLLER: ports[width + number]},
            directory_id=new_uuid(),
        )
        for number in range(spec.brokers)
    )
    keeper = (
        Node(id=0, ports={"CLIENT": ports[-1]}, directory_id="") if spec.uses_zookeeper else None
    )
    record = LabRecord(
        spec=spec, state="starting", cluster_id=new_uuid(), nodes=nodes, zookeeper=keeper
    )
    lab.folder.mkdir(mode=0o700, parents=True)
    record.save(lab.folder)
    extra: dict[str, str] = {}
    if spec.secure:
        secure.make(lab.folder)
        secure.write_client_files(lab.folder, record)
        extra = secure.broker_settings(lab.folder)
    for node in nodes:
        lab.broker_folder(node.id).mkdir()
        settings = brokers.settings(node, nodes, lab.data_folder(node.id)) | extra
        if keeper is not None:
            settings = zookeeper.broker_settings(settings, keeper)
        settings_file = lab.broker_folder(node.id) / "server.properties"
        brokers.write_settings(settings_file, {**settings, **spec.settings})
    if spec.uses_zookeeper:
        return
    signed = secure.scram_users(lab.folder) if spec.secure else []
    brokers.format_storage(runtime, record, lab.folder, signed)


def _throw_away(folder: Path) -> None:
    """End what a half-made lab runs and delete it."""
    if record := read_record(folder):
        end(record.processes, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _start_missing(lab: Lab, runtime: Runtime, progress: FetchProgress) -> None:
    """Start each stopped broker and wait until all are ready; on failure, end those started."""
    missing = [n.id for n in lab.record.nodes if not (n.process and n.process.alive)]
    started: list[Process] = []
    try:
        keeper = lab.record.zookeeper
        if keeper and not (keeper.process and keeper.process.alive):
            started.append(_start_zookeeper(lab, runtime, keeper))
        for broker_id in missing:
            started.append(start_broker(lab, runtime, broker_id))
        ready.wait(lab.record, lab.folder, progress)
    except BaseException:
        end(started, 0)
        raise


def _start_zookeeper(lab: Lab, runtime: Runtime, keeper: Node) -> Process:
    folder, port = lab.folder / "zookeeper", keeper.ports["CLIENT"]
    with uninterrupted():
        process = zookeeper.start(runtime.java, folder, port)
        started = keeper.model_copy(update={"process": process})
        lab.record.model_copy(update={"zookeeper": started}).save(lab.folder)
    zookeeper.wait(process, folder, port)
    return process
