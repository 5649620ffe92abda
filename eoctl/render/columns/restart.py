"""Show a restart plan: direction, distance, since when; then what is dropped, and why."""

from collections.abc import Iterator
from datetime import UTC, datetime

from eoctl.render.columns.table import DETAIL, FINDING, PID, Table, marked, partition_name
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column, render_table
from eoctl.render.words import hanging
from recovery.answers import Answer
from recovery.plurals import counted
from recovery.restart.decision import (
    RestartCheck,
    RestartInput,
    RestartOrigin,
    RestartOutput,
    RestartPlanRow,
    RestartSource,
)
from recovery.restart.verify_rows import RestartVerifyRow

TEXT_WIDTH = 80  # cells of sentences without a terminal
_MARKS = {"rewind": "<<", "skip": ">>"}


def _input_times(i: RestartInput) -> str | None:
    return _times(i.from_time, i.to_time) if i.direction != "none" else None


def _fed_by(o: RestartOutput) -> str:
    return ",".join(str(f.topic_partition) for f in o.fed_by)


def _source_of(o: RestartOrigin) -> str:
    return f"{o.source_topic}:{o.source_partition}"


INPUTS = Table(
    RestartInput,
    (
        marked(lambda i: _MARKS.get(i.direction)),
        Column("input", "INPUT", "partition", partition_name),
        Column("direction", "DIRECTION", "word", lambda i: i.direction.upper()),
        Column("records", "RECORDS", "number"),
        Column("from", "FROM", "number", lambda i: i.current_offset),
        Column("to", "TO", "number", lambda i: i.restart_offset),
        Column("times", "TIMES (UTC)", "word", _input_times),
    ),
)
ORIGINS = Table(
    RestartOrigin,
    (
        marked(lambda o: None),
        Column("input", "INPUT", "partition", partition_name),
        Column("source", "IN THE OTHER CLUSTER", "name", _source_of),
        Column("source_offset", "COMMITTED", "number"),
        Column("pairs", "IN BOTH", "number"),
        Column("read_again", "AGAIN", "number"),
        Column("left_out", "LEFT OUT", "number"),
        Column("not_mirrored", "NOT MIRRORED", "number"),
    ),
)
SOURCES = Table(
    RestartSource,
    (
        marked(lambda s: "<>" if s.current_offset != s.restart_offset else None),
        Column("partition", "SOURCE PARTITION", "name"),
        Column("from", "FROM", "name", lambda s: s.current_offset),
        Column("to", "TO", "name", lambda s: s.restart_offset),
    ),
)
OUTPUTS = Table(
    RestartOutput,
    (
        marked(lambda o: None),
        Column("output", "OUTPUT", "partition", partition_name),
        Column("drop_first", "DROP FIRST", "number"),
        Column("counted_in", "COUNTED IN", "word", lambda o: f"[{o.start}, {o.end_offset})"),
        Column("leader_epoch", "LEADER EPOCH", "number"),
        Column("fed_by", "FED BY", "name", _fed_by),
    ),
)


def lines(row: RestartPlanRow, *, width: int | None, wide: bool, headers: bool) -> Iterator[str]:
    """Yield the plan's lines: inputs, outputs, sum, guarantee, checks and assumptions.

    width: the terminal's, None without one.
    """
    tables = (
        (INPUTS, row.inputs),
        (ORIGINS, row.origins),
        (SOURCES, row.sources),
        (OUTPUTS, row.outputs),
    )
    for table, rows in tables:
        if rows or (table is INPUTS and not row.sources):
            cells = [table.cells(r) for r in rows]
            yield from render_table(cells, table.columns, width=width, wide=wide, headers=headers)
    for head, text in _rest(row):
        shown_text = visible(text, spaces=False)
        whole = head == "spark"  # JSON, meant to be copied
        yield from (
            [f" {head:<13}{shown_text}"]
            if whole
            else hanging(f" {head:<13}", shown_text, width or TEXT_WIDTH)
        )


def _rest(row: RestartPlanRow) -> Iterator[tuple[str, str]]:
    for o in row.outputs:
        if o.drop_first:
            yield "sum", sum_of(o)
    for s in row.state:
        yield "state", f"replay {s.topic_partition} up to {s.end_offset}"
    if row.starting_offsets is not None:
        yield "spark", f"startingOffsets {row.starting_offsets}"
    yield "guarantee", f"{row.guarantee}: {row.because}"
    for held, word in ((False, "!  failed"), (None, "   ASSUMED"), (True, "   checked")):
        for check in row.checks:
            if check.held is held:
                yield word, _check(check)


def sum_of(o: RestartOutput) -> str:
    """Return the output offset minus n."""
    between = o.end_offset - o.start
    others = between - o.drop_first
    of_these = (
        ""
        if not others
        else f" ({counted(others, 'offset in between is', 'offsets in between are')} no data)"
    )
    return (
        f"{o.topic_partition} ends at {o.end_offset}; {counted(o.drop_first, 'record')} "
        f"before that is {o.start}{of_these}"
    )


def _check(check: RestartCheck) -> str:
    return f"{check.name}: {check.detail}" + (f" ({check.where})" if check.where else "")


def _times(first: int | None, second: int | None) -> str | None:
    """Return `14:02:11 > 13:58:40`, with dates if these differ or one is unknown."""
    if first is None and second is None:
        return None
    at = [None if t is None else datetime.fromtimestamp(t / 1000, UTC) for t in (first, second)]
    days = {None if t is None else t.date() for t in at}
    form = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%dT%H:%M:%S"
    return " > ".join("?" if t is None else t.strftime(form) for t in at)


PLAN = Table(RestartPlanRow, names=("app",))  # shown by `lines`


def _verify_summary(answer: Answer) -> str:
    if answer.rows:
        return f"{counted(len(answer.rows), 'finding')}: do not start {answer.extra['app']}"
    if not answer.complete:
        return "INCOMPLETE: not everything could be seen"
    outputs = answer.extra["outputs"]
    looked = counted(outputs, "output") if isinstance(outputs, int) and outputs else "no output"
    return (
        f"{answer.extra['app']}: everything is as the plan left it ({looked} looked at); "
        f"{answer.extra['guarantee']}: {answer.extra['because']}"
    )


VERIFY = Table(
    RestartVerifyRow,
    (
        FINDING,
        Column("finding", "FINDING", "word"),
        Column("where", "WHERE", "name"),
        PID,
        DETAIL,
    ),
    names=("where",),
    summary=_verify_summary,
)
