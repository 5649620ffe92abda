"""The columns of merge logs and their findings."""

from eoctl.render.columns.table import DETAIL, FINDING, Table, partition_name, plain
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.merge.log_rows import MergeFindingRow, MergePlanRow
from recovery.plurals import counted

_LOG = Column("partition", "LOG:PARTITION", "partition", partition_name)


def _input(row: MergeFindingRow) -> str | None:
    return None if row.input_topic is None else f"{row.input_topic}:{row.input_partition}"


def _verify_summary(answer: Answer) -> str:
    entries = answer.extra["entries"]
    text = f"{counted(entries, 'entry', 'entries')}, {counted(len(answer.rows), 'finding')}"
    if not answer.complete:
        text += f"; INCOMPLETE, {counted(len(answer.errors), 'thing')} could not be verified"
    return text


VERIFY = Table(
    MergeFindingRow,
    (
        FINDING,
        _LOG,
        Column("merge_offset", "AT", "number"),
        Column("finding", "FINDING", "word"),
        Column("input", "INPUT", "partition", _input),
        *plain("number", offset="OFFSET", records="RECORDS"),
        DETAIL,
    ),
    names=("topic", "partition", "merge_offset"),
    summary=_verify_summary,
)


def _inputs(row: MergePlanRow) -> str:
    return ", ".join(f"{i.topic_partition} [{i.start}, {i.end})" for i in row.inputs)


def _plan_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, MergePlanRow)]
    entries, dropped = sum(r.entries for r in rows), sum(r.drop_first for r in rows)
    there = f"{counted(dropped, 'output is', 'outputs are')} there already"
    return f"{counted(entries, 'entry', 'entries')}, {there}"


PLAN = Table(
    MergePlanRow,
    (
        _LOG,
        Column("from", "FROM", "number", lambda row: row.start),
        Column("to", "TO", "number", lambda row: row.tip),
        Column("entries", "ENTRIES", "number"),
        Column("output", "OUTPUT", "partition", lambda row: partition_name(row.output)),
        Column("output_from", "OUT-FROM", "number", lambda row: row.output.start),
        Column("output_end", "OUT-END", "number", lambda row: row.output.end),
        *plain("number", drop_first="DROP", position="REACHED"),
        Column("inputs", "INPUTS", "text", _inputs),
    ),
    names=("topic", "partition"),
    summary=_plan_summary,
)
