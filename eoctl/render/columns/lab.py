"""The columns of the lab's brokers, of its small job and of its drills."""

from eoctl.render.columns.table import TRANSACTIONAL_ID, Table, marked, plain
from eoctl.render.tables import Column
from eoctl.render.words import age
from recovery.plurals import counted
from recovery.rows.answers import Answer
from recovery.rows.lab import (
    DrillAnswerRow,
    DrillGradeRow,
    DrillRow,
    LabBrokerRow,
    LabDownRow,
    LabJobRow,
)


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
