"""The forms of the Recover screen, as data: which command each starts, and its fields.

A form starts exactly the command that it shows. If the command changes something, the form shows
the command's plan first and carries it out only after the plan's word was typed.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence

from recovery.values import Value


class Field(Value):
    """One line of a form. option: `--group`, or "" for an argument. says: an example or choices.

    several: each word is an argument. value: the initial text.
    """

    label: str
    option: str
    says: str
    required: bool = False
    several: bool = False
    value: Callable[[], str] = str


class Form(Value):
    """A command and its fields. plans: the command has a plan that --execute carries out.

    page: the word after `:` of the screen that the form opens instead; then it starts nothing.
    """

    name: str
    title: str
    words: tuple[str, ...]
    says: str
    fields: tuple[Field, ...]
    plans: bool = False
    page: str = ""


def plan_file() -> str:
    """Return a new file name in the folder of plans, where the Plans screen finds it."""
    from eoctl.operations.change.changes import plans_folder

    plans_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    return str(plans_folder() / f"restart-{now:%Y%m%dT%H%M%SZ}.json")


def command_of(form: Form, values: Mapping[str, str], connection: Sequence[str]) -> list[str]:
    """Return the command line that the form starts; values: by the fields' labels."""
    options: list[str] = []
    arguments: list[str] = []
    for field in form.fields:
        text = values.get(field.label, "").strip()
        if not text:
            continue
        words = text.split() if field.several else [text]
        if field.option:
            for word in words:
                options += [field.option, word]
        else:
            arguments += words
    dashed = any(word.startswith("-") for word in arguments)
    return ["eoctl", *connection, *form.words, *options, *(["--"] if dashed else []), *arguments]


RESTART_OUT = Field("plan file", "--out", "where Plans finds it", required=True, value=plan_file)
TOPICS = Field("topics", "", "orders, orders:3, 'orders-*'", required=True, several=True)
RATE = Field("max rate", "--max-rate", "bytes a second and broker: 20MB")
START = Field("from", "--start", "offset, instant or earliest")
END = Field("to", "--end", "offset, instant, lso or hw; not included")

MERGE = (
    Field("app file", "", "APP.toml with [app.merge], or leave it out and say:"),
    Field("merge log", "--merge-log", "TOPIC"),
    Field("format", "--format", "coast or json"),
    Field("inputs", "--input", "each input topic", several=True),
    Field("output", "--output-topic", "the merged stream's topic"),
    Field("from entry", "--from-merge-offset", "a commit: [P:]OFFSET of the next entry"),
    Field("from output", "--output-offset", "and the output's next offset with it"),
    RATE,
)

FORMS: tuple[Form, ...] = (
    Form(
        "restart-app",
        "Restart: application file",
        ("restart", "plan"),
        "where an application may start again, exactly once; the plan goes to Plans",
        (Field("app file", "", "APP.toml, see docs/restart.md", required=True), RESTART_OUT, RATE),
    ),
    Form(
        "restart-group",
        "Restart: a group's move",
        ("restart", "plan"),
        "move a group's offsets: give exactly one target; the plan goes to Plans",
        (
            Field("group", "--group", "orders-enricher", required=True),
            Field("topics", "--topic", "orders, orders:0,1", required=True, several=True),
            Field("to offset", "--to-offset", "one target of these: an offset"),
            Field("shift by", "--shift-by", "-100 goes back"),
            Field("to time", "--to-datetime", "2026-01-31T14:00:00Z"),
            Field("back by", "--by-duration", "90m"),
            RESTART_OUT,
        ),
    ),
    Form(
        "merge-log",
        "Merge log: look",
        ("merge", "plan"),
        "tip, newest entries, how far a replay came; of an application file",
        (),
        page="merge",
    ),
    Form(
        "merge-verify",
        "Merge log: verify",
        ("merge", "verify"),
        "every entry against its input, holes, the tip against the output",
        MERGE,
    ),
    Form(
        "merge-replay",
        "Merge log: replay",
        ("merge", "replay"),
        "emit the merged stream again in the log's order; shows its plan first",
        MERGE,
        plans=True,
    ),
    Form(
        "state-rebuild",
        "State: rebuild",
        ("state", "rebuild"),
        "a store's state from its changelogs, up to one cut, with the proof of what it is",
        (
            Field("changelogs", "", "app-store-changelog", required=True, several=True),
            Field("format", "--format", "streams-kv, streams-window, samza, plain, ...", True),
            Field("cut", "--at", "lso, hw, an instant, or a cut file", required=True),
            Field("folder", "--output", "a new folder", required=True),
            Field("engine", "--engine", "auto, local or spark: with Spark it shows on Jobs"),
            Field("retention", "--retention", "of the store; else from the topic's settings"),
            RATE,
        ),
    ),
    Form(
        "state-compare",
        "State: compare",
        ("state", "compare"),
        "two states, or one and its changelog",
        (
            Field("state", "", "a state's folder", required=True),
            Field("with", "", "another one, a dump (.jsonl), or live", required=True),
            Field("cut", "--at", "of live: lso, hw, an instant, or a cut file"),
        ),
    ),
    Form(
        "audit-transactions",
        "Audit: transactions",
        ("audit", "transactions"),
        "torn ones, and lost markers",
        (Field("topics", "", "orders, orders:3; none: all", several=True), RATE),
    ),
    Form(
        "audit-duplicates",
        "Audit: duplicates",
        ("audit", "duplicates"),
        "duplicate records",
        (
            TOPICS,
            Field("by", "--by", "source, key, value, header:NAME or json:PATH"),
            START,
            END,
            RATE,
        ),
    ),
    Form(
        "audit-sequences",
        "Audit: sequences",
        ("audit", "sequences"),
        "gaps, repeats and epochs going back, per producer id",
        (TOPICS, START, END, RATE),
    ),
    Form(
        "dedup",
        "Dedup: a clean copy",
        ("dedup",),
        "copy a topic without its repeats, exactly once; shows its plan first",
        (
            Field("input", "", "the topic with repeats", required=True),
            Field("output", "", "empty, with as many partitions", required=True),
            Field("by", "--by", "source, key, value, header:NAME or json:PATH"),
            Field("horizon", "--horizon", "7d, or 1000000 offsets"),
            RATE,
        ),
        plans=True,
    ),
)
BY_NAME = {form.name: form for form in FORMS}
