"""How the brokers of the lab and its small job are shown."""

from eoctl.render.columns.table import Table, marked, plain
from eoctl.render.tables import Column
from eoctl.render.words import counted
from recovery.rows.answers import Answer
from recovery.rows.lab import LabBrokerRow, LabDownRow, LabJobRow


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
