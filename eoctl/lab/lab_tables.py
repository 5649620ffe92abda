"""What `lab` prints about its brokers, its job and its drills: rows, and their columns.

The rows of `lab break` are the ground truths of eoctl.lab.breaks.
"""

from typing import Literal

from eoctl.render.columns.table import TRANSACTIONAL_ID, Table, marked, plain
from eoctl.render.tables import Column
from eoctl.render.words import age
from recovery.answers import Answer
from recovery.plurals import counted
from recovery.row import Row, Timestamp

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


class LabMirrorRow(Row):
    """A MirrorMaker between two labs.

    context: of the lab that it reads; mirror_context: of the one that it writes into. state:
    `killed` also where it ended by itself: see its log.
    """

    context: str
    mirror_context: str
    state: Literal["running", "killed"]
    pid: int | None
    exactly_once: bool
    settings: str
    log: str


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


def _broker_summary(answer: Answer) -> str:
    rows = [row for row in answer.rows if isinstance(row, LabBrokerRow)]
    labs = len({row.lab for row in rows})
    ready = sum(row.state == "ready" for row in rows)
    return f"{counted(labs, 'lab')}, {ready} of {counted(len(rows), 'broker')} ready"


BROKERS = Table(
    LabBrokerRow,
    (
        marked(lambda row: None if row.state == "ready" else "!"),
        *plain("name", lab="LAB", context="CONTEXT"),
        Column("broker", "BROKER", "number"),
        Column("state", "STATE", "text"),
        Column("address", "ADDRESS", "name"),
        Column("pid", "PID", "number"),
        Column("kafka_version", "KAFKA", "text"),
        Column("log", "LOG", "name", wide_only=True),
    ),
    names=("lab", "broker"),
    summary=_broker_summary,
)

DOWN = Table(
    LabDownRow,
    (
        Column("lab", "LAB", "name"),
        Column("brokers", "BROKERS", "number"),
        Column("data", "DATA", "text"),
        Column("folder", "FOLDER", "name"),
    ),
    names=("lab",),
    summary=lambda answer: f"{counted(len(answer.rows), 'lab')} taken down",
)

MIRROR = Table(
    LabMirrorRow,
    (
        *plain("name", context="CONTEXT", mirror_context="MIRROR"),
        Column("state", "STATE", "word"),
        Column("pid", "PID", "number"),
        Column("exactly_once", "EXACTLY ONCE", "text", lambda r: "yes" if r.exactly_once else "no"),
        Column("log", "LOG", "name", wide_only=True),
    ),
    names=("context",),
)

JOB = Table(
    LabJobRow,
    (
        marked(lambda row: None if row.equal else "!"),
        *plain("name", input="INPUT", output="OUTPUT"),
        *plain("number", written="WRITTEN", dropped="DROPPED", total="OUTPUTS"),
        Column("expected", "EXPECTED", "number"),
        Column("equal", "EQUAL", "text", lambda row: "yes" if row.equal else "NO"),
        Column("app_file", "APP FILE", "name", wide_only=True),
        Column("store", "STATE STORE", "name", wide_only=True),
    ),
    names=("output",),
)


def _grade_summary(answer: Answer) -> str:
    rows = [row for row in answer.rows if isinstance(row, DrillGradeRow)]
    results = ", ".join(
        f"{number} {result}"
        for result in ("right", "left", "wrong", "harmful")
        if (number := sum(row.result == result for row in rows))
    )
    e = answer.extra
    return f"{e['drill']}: {e['points']} of {e['most']} points after {age(e['seconds'])}; {results}"


_SIGNS = {"harmful": "!!", "wrong": "!", "left": "!"}

DRILLS = Table(
    DrillRow,
    (
        Column("started_at", "", "text", lambda row: None if row.started_at is None else ">"),
        Column("drill", "DRILL", "name"),
        Column("title", "TITLE", "text"),
        Column("page", "RUNBOOK", "name"),
        Column("needs", "NEEDS", "text", lambda row: " ".join(row.needs) or None),
    ),
    names=("drill",),
    summary=lambda answer: f"{counted(len(answer.rows), 'drill')}",
)

ANSWER = Table(
    DrillAnswerRow,
    (
        TRANSACTIONAL_ID,
        *plain("text", answer="ANSWER", words="WORDS"),
    ),
    names=("transactional_id",),
)

GRADE = Table(
    DrillGradeRow,
    (
        marked(lambda row: _SIGNS.get(row.result)),
        Column("subject", "SUBJECT", "name"),
        TRANSACTIONAL_ID,
        *plain("text", wanted="WANTED", outcome="OUTCOME", result="RESULT"),
        *plain("number", points="POINTS", records_lost="LOST", records_doubled="DOUBLED"),
        Column("because", "BECAUSE", "text"),
    ),
    names=("subject",),
    summary=_grade_summary,
)
