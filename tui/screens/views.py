"""The screens, as data: number, name, and the command that prints the screen's content.

To add a screen, add one View here and a module with its columns and rows, which frame.py calls;
keys, tabs, help and `:` follow.
"""

from typing import Literal

from eoctl.render.tables import Column
from recovery.values import Value
from tui.widgets.tables import MARK

LETTERS = "ABDEHILNOPQRSTVWXZ"  # columns' letters, on any screen


class View(Value):
    """One screen. number: its key, None if it is reached through another one. names: after `:`.

    kind: a table, with the story of the cursor's row beside or below it, or a page. argv: the equal
    command after `eoctl` and its connection options. own: the columns of a table that no
    command prints. short: the title if tabs have little room. on_host: it shows or takes what only
    this host has (plans, jobs, files), so it does not exist in a browser.
    """

    number: int | None
    name: str
    title: str
    names: tuple[str, ...]
    kind: Literal["table", "page"]
    argv: tuple[str, ...]
    says: str
    own: tuple[Column, ...] = ()
    short: str = ""
    lists: str = ""
    on_host: bool = False

    @property
    def list_title(self) -> str:
        """Return the title of the list's panel."""
        return self.lists or self.title

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns. Loads the rows' models, so call it after the first paint."""
        if self.own or self.kind == "page":
            return self.own
        from tui.screens import (
            doctor,
            groups,
            partitions,
            plan_and_job_lists,
            producers,
            transactions,
        )

        return {
            "partitions": partitions.COLUMNS,
            "transactions": transactions.COLUMNS,
            "producers": producers.COLUMNS,
            "counts": producers.COUNTS,
            "prefixes": producers.PREFIXES,
            "groups": groups.COLUMNS,
            "plans": plan_and_job_lists.PLAN_COLUMNS,
            "jobs": plan_and_job_lists.JOB_COLUMNS,
            "doctor": doctor.COLUMNS,
        }[self.name]


class Location(Value):
    """A location: a screen, and its subject (a partition, a transactional id)."""

    view: View
    about: str = ""


OVERVIEW = View(
    1,
    "overview",
    "Overview",
    ("overview", "status"),
    "table",
    ("status",),
    "what is wrong, the worst first",
    (
        MARK,
        Column("what", "WHAT", "word", usual=14, letter="W"),
        Column("where", "WHERE", "partition", usual=20, worth=1, letter="P", grow=2),
        Column("held", "HELD", "number", usual=8, worth=1, letter="H"),
        Column("trend", "TREND", "spark", usual=8, worth=-2),
        Column("age", "AGE", "number", usual=6, worth=1, letter="A"),
        Column("ends", "ENDS IN", "number", usual=7, letter="E"),
        Column("deleted", "DELETED IN", "number", usual=10, letter="D", worth=-1),
        Column("says", "SAYS", "text", usual=20, worth=-1, grow=3),
    ),
    short="Over",
    lists="Findings",
)
PARTITIONS = View(
    2,
    "partitions",
    "Partitions",
    ("partitions", "lso"),
    "table",
    ("lso", "--all"),
    "what readers see and what holds it",
    short="Parts",
)
TRANSACTIONS = View(
    3,
    "transactions",
    "Transactions",
    ("transactions", "txn", "txns", "hanging"),
    "table",
    ("txn", "hanging", "--all"),
    "every transactional id, and a verdict on what is open",
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
    short="Prod",
)
COUNTS = View(
    None,
    "counts",
    "Producers, counted",
    ("counts",),
    "table",
    ("producers", "--summary", "--resolve"),
    "producers by broker, topic, partition and prefix, and how fast they grow",
)
PREFIXES = View(
    None,
    "prefixes",
    "Transactional ids, counted",
    ("prefixes",),
    "table",
    ("txn", "list", "--summary"),
    "ids by prefix, how fast they grow, and how full the internal topics are",
)
GROUPS = View(
    5,
    "groups",
    "Groups",
    ("groups", "offsets"),
    "table",
    ("offsets", "show"),
    "what groups have committed, against LSO and high watermark",
)
GROUP = View(
    None,
    "group",
    "Group",
    ("group", "commits"),
    "page",
    ("offsets", "history"),
    "a group's commits over time, a lane per partition",
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
    None,
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
    "table",
    ("journal", "list"),
    "changes that are planned or were made: carry out, verify, undo, resume",
    on_host=True,
)
JOBS = View(
    8,
    "jobs",
    "Jobs",
    ("jobs",),
    "table",
    ("jobs", "list"),
    "recovery jobs launched from here, running and past",
    on_host=True,
)
RECOVER = View(
    9,
    "recover",
    "Recover",
    ("recover",),
    "table",
    ("--help",),
    "restart, merge, rebuild, audit: forms that start the equal command",
    (
        MARK,
        Column("name", "RECOVERY", "text", usual=25, letter="N"),
        Column("state", "STATE", "text", usual=8, letter="S"),
        Column("says", "WHAT IT DOES, OR RUNS", "text", usual=21, worth=1, grow=3),
    ),
    on_host=True,
)
DOCTOR = View(
    0,
    "doctor",
    "Doctor",
    ("doctor",),
    "table",
    ("doctor",),
    "what will hurt exactly-once here; asked only when opened, and by r",
)
FINDING = View(
    None,
    "finding",
    "Finding",
    ("finding",),
    "page",
    ("doctor",),
    "one finding of doctor: what was seen, harm, remedy, sources",
)
CHANGE = View(
    None,
    "change",
    "Change",
    ("change", "entry"),
    "page",
    ("journal", "show"),
    "one plan or journal entry: its steps, and what became of them",
    on_host=True,
)
JOB = View(
    None,
    "job",
    "Job",
    ("job",),
    "page",
    ("jobs", "show"),
    "one job: stages, records a second, cut, digest, the end of its log",
    on_host=True,
)

MERGE = View(
    None,
    "merge",
    "Merge log",
    ("merge",),
    "page",
    ("merge", "plan"),
    "a merge log: tip, newest entries, how far a replay came",
    on_host=True,
)
CHECKPOINT = View(
    None,
    "checkpoint",
    "Checkpoint",
    ("checkpoint",),
    "page",
    ("txn", "commit"),
    "a Flink checkpoint's transactions: committed, open until when, lost",
    on_host=True,
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
    DOCTOR,
    TIMELINE,
    CHANGE,
    JOB,
    MERGE,
    CHECKPOINT,
    FINDING,
    COUNTS,
    PREFIXES,
    GROUP,
)
BY_NAME = {name: view for view in VIEWS for name in view.names}
NUMBERED = tuple(view for view in VIEWS if view.number is not None)


def numbered(*, web: bool) -> tuple[View, ...]:
    """Return the screens that have a tab."""
    return tuple(view for view in NUMBERED if not (web and view.on_host))
