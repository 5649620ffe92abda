"""The columns of checked rules and of a bundle's parts."""

from eoctl.render.columns.table import DETAIL, Table, marked, with_gaps
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.plurals import counted
from recovery.times import rfc3339
from recovery.watch.check_rows import BundlePartRow, CheckRow

_STATES = {True: "ok", False: "FINDING", None: "cannot tell"}
_MARKS = {True: None, False: "!!", None: "?"}


def amount(value: float | None) -> str | None:
    """Return the number without a fraction."""
    return None if value is None else f"{value:.0f}"


def _summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, CheckRow)]
    bad = sum(r.ok is False for r in rows)
    text = counted(bad, "finding") if bad else "no finding"
    return with_gaps(f"{text} by {counted(len(rows), 'rule')}", answer)


CHECK = Table(
    CheckRow,
    (
        marked(lambda row: _MARKS[row.ok]),
        Column("rule", "RULE", "text"),
        Column("observed", "OBSERVED", "number", lambda row: amount(row.observed)),
        Column("threshold", "THRESHOLD", "number", lambda row: amount(row.threshold)),
        Column("unit", "UNIT", "text"),
        Column("ok", "STATE", "text", lambda row: _STATES[row.ok]),
        DETAIL,
    ),
    names=("rule",),
    summary=_summary,
)


def _bundle_summary(answer: Answer) -> str:
    where = answer.extra["context"] or answer.extra["bootstrap_servers"]
    text = f"{answer.extra['file']}: {where}, seen {rfc3339(answer.collected_at)}"
    return with_gaps(f"{text}, sha256 {answer.extra['sha256']}", answer)


BUNDLE = Table(
    BundlePartRow,
    (
        marked(lambda row: "?" if row.not_seen else None),
        Column("part", "PART", "text"),
        Column("count", "COUNT", "number"),
        Column("not_seen", "NOT SEEN", "number", lambda row: row.not_seen or None),
        DETAIL,
    ),
    names=("part",),
    summary=_bundle_summary,
)
