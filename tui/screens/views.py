"""The screens, as data: number, name, columns, and the command that prints the same.

A new screen is one View here and one builder in frame.py; keys, tabs, help and `:` follow.
"""

from dataclasses import dataclass
from typing import Literal

from tui.widgets.tables import Column

TREND = (6, 10, 30)


@dataclass(frozen=True, slots=True)
class View:
    """One screen. number: its key, 0 = reached through another. names: what `:` takes.

    kind: a table, a table with more about the cursor's row beside or below it, or a page.
    argv: the equal command behind `eoctl` and its connection options. short: the title where tabs
    have little room.
    """

    number: int
    name: str
    title: str
    names: tuple[str, ...]
    kind: Literal["table", "evidence", "page"]
    argv: tuple[str, ...]
    says: str
    columns: tuple[Column, ...] = ()
    short: str = ""


OVERVIEW = View(
    1,
    "overview",
    "Overview",
    ("overview", "status"),
    "table",
    ("status",),
    "what is wrong, the worst first",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("what", "WHAT", "text", (13, 14, 18), "W"),
        Column("where", "WHERE", "partition", (17, 20, 36), "P", 2),
        Column("held", "HELD", "number", (6, 8, 12), "H"),
        Column("trend", "TREND", "spark", (0, 10, 30)),
        Column("age", "AGE", "number", (6, 6, 7), "A"),
        Column("says", "SAYS", "text", (18, 20, 40), "", 3),
    ),
    short="Over",
)
PARTITIONS = View(
    2,
    "partitions",
    "Partitions",
    ("partitions", "lso"),
    "evidence",
    ("lso", "--all"),
    "what readers see and what holds it",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("partition", "TOPIC:PARTITION", "partition", (15, 20, 40), "P", 3),
        Column("last_stable_offset", "LSO", "number", (6, 10, 14), "L"),
        Column("high_watermark", "HW", "number", (6, 10, 14), "W"),
        Column("held", "HELD", "number", (6, 8, 10), "H"),
        Column("trend", "TREND", "spark", TREND),
        Column("age", "AGE", "number", (6, 7, 7), "A"),
        Column("held_by", "HELD BY", "name", (10, 16, 30), "B", 5),
        Column("leader", "LEADER", "number", (0, 0, 6), "R"),
    ),
    short="Parts",
)
TRANSACTIONS = View(
    3,
    "transactions",
    "Transactions",
    ("transactions", "txn", "txns", "hanging"),
    "evidence",
    ("txn", "hanging", "--all"),
    "every transactional id, and a verdict on what is open",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("id", "TRANSACTIONAL ID", "name", (14, 18, 40), "I", 3),
        Column("verdict", "VERDICT", "text", (11, 12, 17), "V"),
        Column("state", "STATE", "text", (14, 14, 17), "S"),
        Column("age", "AGE", "number", (6, 7, 7), "A"),
        Column("timeout", "TIMEOUT", "number", (7, 7, 7), "T"),
        Column("partitions", "PARTS", "number", (5, 5, 5), "P"),
        Column("pid", "PID", "number", (0, 7, 10), "D"),
        Column("epoch", "EPOCH", "number", (0, 5, 5), "E"),
        Column("coordinator", "COORD", "number", (0, 0, 5), "O"),
    ),
    short="Txns",
)
PRODUCERS = View(
    4,
    "producers",
    "Producers",
    ("producers", "pids"),
    "table",
    ("producers", "--resolve"),
    "producer ids, epochs and sequences, partition by partition",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("partition", "TOPIC:PARTITION", "partition", (16, 20, 40), "P", 2),
        Column("pid", "PID", "number", (7, 8, 12), "D"),
        Column("epoch", "EPOCH", "number", (5, 5, 5), "E"),
        Column("sequence", "SEQ", "number", (5, 8, 10), "Q"),
        Column("start", "TXN START", "number", (9, 10, 14), "T"),
        Column("age", "WROTE", "number", (6, 7, 7), "A"),
        Column("id", "TRANSACTIONAL ID", "name", (12, 16, 36), "I", 3),
        Column("stale", "", "text", (0, 6, 6), "Z"),
    ),
    short="Prod",
)
GROUPS = View(
    5,
    "groups",
    "Groups",
    ("groups", "offsets"),
    "table",
    ("offsets", "show"),
    "where groups stand between LSO and high watermark",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("group", "GROUP", "name", (12, 18, 34), "R", 2),
        Column("partition", "TOPIC:PARTITION", "partition", (15, 20, 36), "P", 2),
        Column("committed", "COMMITTED", "number", (9, 10, 14), "O"),
        Column("lso", "LSO", "number", (0, 0, 14), "L"),
        Column("lag", "LAG", "number", (6, 7, 10), "N"),
        Column("lag_hw", "LAG-HW", "number", (6, 7, 10), "H"),
        Column("pending", "PENDING", "text", (7, 7, 7), "X"),
        Column("state", "STATE", "text", (7, 8, 12), "S"),
    ),
)
WHY = View(
    6,
    "why",
    "Why",
    ("why",),
    "page",
    ("why",),
    "the story of one partition, and its one safe remedy",
)
TIMELINE = View(
    0,
    "timeline",
    "Timeline",
    ("timeline", "history"),
    "page",
    ("txn", "history"),
    "states and epochs of one transactional id over time",
)

PLANS = View(
    7,
    "plans",
    "Plans",
    ("plans", "journal"),
    "evidence",
    ("journal", "list"),
    "changes that are planned or were made: carry out, verify, undo, resume",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("id", "PLAN OR ENTRY", "name", (16, 22, 26), "I", 1),
        Column("state", "STATE", "text", (10, 10, 11), "S"),
        Column("action", "ACTION", "text", (7, 9, 12), "A"),
        Column("context", "CONTEXT", "name", (0, 10, 16), "X", 1),
        Column("scope", "WHERE", "name", (12, 16, 26), "W", 2),
        Column("steps", "STEPS", "number", (5, 5, 5), "E"),
        Column("age", "AGE", "number", (6, 7, 7), "O"),
        Column("who", "WHO", "name", (0, 0, 16), "B"),
        Column("summary", "WHAT", "text", (0, 20, 40), "", 3),
    ),
)
JOBS = View(
    8,
    "jobs",
    "Jobs",
    ("jobs",),
    "evidence",
    ("jobs", "list"),
    "recovery jobs launched from here, running and past",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("id", "JOB", "name", (14, 20, 20), "I", 1),
        Column("state", "STATE", "text", (9, 9, 10), "S"),
        Column("job", "KIND", "text", (8, 8, 10), "D"),
        Column("stages", "STAGES", "text", (12, 14, 22), "T"),
        Column("records", "RECORDS", "number", (8, 10, 12), "R"),
        Column("rate", "REC/S", "number", (6, 8, 10), "P"),
        Column("eta", "LEFT", "number", (0, 6, 6), "L"),
        Column("age", "AGE", "number", (6, 6, 6), "A"),
        Column("what", "WHAT", "text", (0, 14, 40), "", 3),
    ),
)
RECOVER = View(
    9,
    "recover",
    "Recover",
    ("recover",),
    "evidence",
    ("--help",),
    "restart, merge, rebuild, audit: forms that start the equal command",
    (
        Column("mark", "", "mark", (2, 2, 2)),
        Column("name", "RECOVERY", "text", (25, 25, 25), "N"),
        Column("state", "STATE", "text", (8, 8, 8), "S"),
        Column("says", "WHAT IT DOES, OR RUNS", "text", (30, 40, 60), "", 3),
    ),
)
CHANGE = View(
    0,
    "change",
    "Change",
    ("change", "entry"),
    "page",
    ("journal", "show"),
    "one plan or journal entry: its steps, and what became of them",
)
JOB = View(
    0,
    "job",
    "Job",
    ("job",),
    "page",
    ("jobs", "show"),
    "one job: stages, records a second, cut, digest, the end of its log",
)

MERGE = View(
    0,
    "merge",
    "Merge log",
    ("merge",),
    "page",
    ("merge", "plan"),
    "a merge log: tip, newest entries, how far a replay came",
)

VIEWS = (
    OVERVIEW,
    PARTITIONS,
    TRANSACTIONS,
    PRODUCERS,
    GROUPS,
    WHY,
    PLANS,
    JOBS,
    RECOVER,
    TIMELINE,
    CHANGE,
    JOB,
    MERGE,
)
BY_NAME = {name: view for view in VIEWS for name in view.names}
NUMBERED = tuple(view for view in VIEWS if view.number)
