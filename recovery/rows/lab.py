"""The rows of `lab up`, `down`, `status`, `job` and `drill`: what of a local Kafka runs, and on it.

The rows of `lab break` are the ground truths of eoctl.lab.breaks.
"""

from typing import Literal

from recovery.rows.row import Row, Timestamp

OwnerAnswer = Literal["alive", "dead", "unknown"]
Result = Literal["right", "wrong", "harmful", "left"]


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


class DrillRow(Row):
    """A drill. page: of docs/runbooks, which solves it.

    needs: the options of `lab up` without which it is refused. started_at, story: of the drill
    that runs in this lab, else null.
    """

    drill: str
    title: str
    page: str
    needs: tuple[str, ...]
    started_at: Timestamp
    story: str | None


class DrillAnswerRow(Row):
    """What the owner of a transactional id answers. answer: of its application; words: of it all.

    `unknown` also where no application of the drill bears the id.
    """

    transactional_id: str
    answer: OwnerAnswer
    words: str


class DrillGradeRow(Row):
    """One thing of a drill and what became of it, by the brokers' logs and the journal.

    subject: a partition, a broker or a topic. transactional_id: null where it has none. wanted,
    outcome: what should and what did become of it. points: of at most 10; harm takes 30.
    records_lost, records_doubled: records that readers should get and do not, and those that they
    get though nobody committed them, or twice.
    """

    subject: str
    transactional_id: str | None
    wanted: str
    outcome: str
    result: Result
    points: int
    records_lost: int
    records_doubled: int
    because: str
