"""The columns of contexts, their settings and what their credentials allow."""

from collections.abc import Sequence
from typing import cast

from eoctl.render.columns.table import DETAIL, Table, marked, plain
from eoctl.render.tables import Column
from eoctl.settings.context_rows import ContextRow, ContextSettingRow, ContextTestRow
from recovery.answers import Answer
from recovery.plurals import counted

_SEES = {True: "yes", False: "NO", None: "unknown"}
_STANDS = {True: "ok", False: "LOOK", None: "unknown"}
_MARKS = {True: None, False: "!", None: "?"}


def _may(row: ContextRow) -> str | None:
    words = (
        ("READ-ONLY", row.read_only),
        ("PROTECTED", row.protected),
        ("NO-RECORDS", not row.show_records),
    )
    return " ".join(word for word, on in words if on) or None


CONTEXTS = Table(
    ContextRow,
    (
        Column("current", "", "mark", lambda row: "*" if row.current else None),
        *plain("name", name="CONTEXT", bootstrap_servers="BOOTSTRAP SERVERS"),
        Column("marks", "MAY", "text", _may),
        Column("source", "FROM", "text"),
    ),
    names=("name",),
    summary=lambda answer: counted(len(answer.rows), "context"),
)
SETTINGS = Table(
    ContextSettingRow,
    (Column("key", "PROPERTY", "name"), Column("value", "VALUE", "name")),
    names=("key",),
    summary=lambda answer: f"context {answer.extra['context']}",
)


def _check(row: ContextTestRow) -> str:
    return f"eoctl {row.check}" if row.kind == "command" else row.check


def _stands(row: ContextTestRow) -> str:
    return (_STANDS if row.kind == "machine" else _SEES)[row.sees]


def _test_summary(answer: Answer) -> str:
    rows = cast("Sequence[ContextTestRow]", answer.rows)
    rights = [row for row in rows if row.kind == "right"]
    commands = [row.sees for row in rows if row.kind == "command"]
    return (
        f"{answer.extra['seen']} of {counted(len(rights), 'right')} seen; "
        f"{commands.count(True)} of {len(commands)} groups of commands allowed, "
        f"{commands.count(None)} unknown"
    )


TESTS = Table(
    ContextTestRow,
    (
        marked(lambda row: _MARKS[row.sees]),
        Column("check", "CHECK", "name", _check),
        Column("sees", "ALLOWED", "text", _stands),
        Column("cannot_say", "SO CANNOT SAY", "text", lambda r: ", ".join(r.cannot_say) or None),
        DETAIL,
    ),
    names=("check",),
    summary=_test_summary,
)
