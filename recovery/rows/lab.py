"""The rows of `lab up`, `down`, `status` and `job`: what of a local Kafka runs, and on it.

The rows of `lab break` are the ground truths of eoctl.lab.breaks.
"""

from typing import Literal

from recovery.rows.row import Row


class LabBrokerRow(Row):
    """One broker of a lab.

    context: the name by which other commands reach the lab. address: the listener that the
    context uses. state: `ready` answers and sees itself in the cluster, `starting` does not yet,
    `frozen` was stopped by SIGSTOP. pid: null where no process runs.
    """

    lab: str
    context: str
    broker: int
    state: Literal["ready", "starting", "frozen", "stopped"]
    address: str
    pid: int | None
    kafka_version: str
    secure: bool
    cluster_id: str
    folder: str
    log: str


class LabDownRow(Row):
    """A lab that was taken down. data: what became of its records."""

    lab: str
    context: str
    brokers: int
    data: Literal["kept", "deleted"]
    folder: str


class LabJobRow(Row):
    """A run of the practice job.

    written, dropped: outputs of this run. total, expected: outputs that are there now, and those
    of a run that was never interrupted; equal: they are the same, in order.
    """

    lab: str
    input: str
    output: str
    written: int
    dropped: int
    total: int
    expected: int
    equal: bool
    app_file: str
    changelog: str
    store: str
