"""The rows of `lab up`, `lab down` and `lab status`: what of a local Kafka runs.

The rows of `lab break` are the ground truths of eoctl.lab.breaks.
"""

from typing import Literal

from recovery.rows import Row


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
