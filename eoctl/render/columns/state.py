"""The columns of rebuilt states, their entries and their differences."""

import json

from eoctl.render.columns.table import PARTITION, RANGE, Table, marked, partition_name, plain
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.plurals import count, counted
from recovery.state.state_rows import StateCompareRow, StateRebuildRow, StateShowRow, StateValue
from recovery.times import format_duration, rfc3339


def _side(value: StateValue | None) -> str | None:
    if value is None:
        return None
    shown = value.value_text if value.value_text is not None else value.value
    return "null" if shown is None else shown


def _key(row: StateCompareRow) -> str | None:
    return row.key_text if row.key_text is not None else row.key


def _compare_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, StateCompareRow) and r.key is None]
    of = f"; B is {spark_store(answer)}" if "spark" in answer.extra else ""
    if answer.extra["equal"]:
        return f"equal: {counted(sum(r.rows_a or 0 for r in rows), 'entry', 'entries')}{of}"
    only_a, only_b, different = (
        sum(getattr(r, name) or 0 for r in rows) for name in ("only_a", "only_b", "different")
    )
    text = f"{count(only_a)} only in A, {count(only_b)} only in B, {count(different)} different"
    if answer.extra["same_cut"] is False:
        text += "; they are of different cuts"
    return f"{text}; {counted(answer.extra['shown'], 'entry', 'entries')} shown{of}"


def spark_store(answer: Answer) -> str:
    """Return the store of a checkpoint that an answer is about."""
    store = answer.extra["spark"]
    return (
        f"operator {store['operator']} ({store['operator_name']}), store {store['store']}, "
        f"after batch {store['batch']}"
    )


COMPARE = Table(
    StateCompareRow,
    (
        marked(lambda row: "!" if row.difference else None),
        Column(
            "partition", "TOPIC:PARTITION", "partition", lambda row: partition_name(row) or "all"
        ),
        Column("difference", "DIFFERENCE", "text", lambda row: row.difference or "equal"),
        *plain("number", rows_a="ENTRIES-A", rows_b="ENTRIES-B", only_a="ONLY-A", only_b="ONLY-B"),
        Column("different", "DIFFERENT", "number"),
        Column("key", "KEY", "name", _key),
        Column("a", "A", "name", lambda row: _side(row.a)),
        Column("b", "B", "name", lambda row: _side(row.b)),
    ),
    names=("topic", "partition"),
    summary=_compare_summary,
)


def _shown_key(row: StateShowRow) -> str | None:
    return row.key if row.key_decoded is None else _text(row.key_decoded)


def _shown_value(row: StateShowRow) -> str | None:
    return row.value if row.value_decoded is None else _text(row.value_decoded)


def _text(value: object) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _more(row: StateShowRow) -> str | None:
    return ", ".join(f"{k}={v}" for k, v in row.extra.items()) or None


def _show_summary(answer: Answer) -> str:
    entries = counted(len(answer.rows), "entry", "entries")
    if "spark" in answer.extra:
        return f"{entries}, {spark_store(answer)}"
    return f"{entries}, a {answer.extra['format']} state at {answer.extra['at']}"


SHOW = Table(
    StateShowRow,
    (
        marked(lambda row: None),
        PARTITION,
        Column("offset", "OFFSET", "number"),
        Column("timestamp", "TIMESTAMP", "number", lambda row: rfc3339(row.timestamp)),
        Column("key", "KEY", "name", _shown_key),
        Column("value", "VALUE", "name", _shown_value),
        Column("extra", "MORE", "text", _more),
    ),
    names=("topic", "partition"),
    summary=_show_summary,
)


def _rebuild_summary(answer: Answer) -> str:
    extra = answer.extra
    digest, seconds = extra["digest"], extra["seconds"]
    done = (
        f"{counted(digest['rows'], 'entry', 'entries')} at {extra['at']}, digest "
        f"{digest['sha256_sum']}, in {format_duration(seconds)} by the {extra['engine']} engine "
        f"({extra['engine_why']}): {extra['manifest']}"
    )
    lines = [done]
    split, opened = extra["split"], extra["open"]
    if split:
        lines.append(f"NOT CONSISTENT: the cut divides {counted(len(split), 'transaction')}")
    elif extra["consistent"] is None:
        lines.append(
            "the changelog does not say which records of different partitions belong together, so "
            "consistency across partitions is unproven"
        )
    if opened:
        lines.append(f"{counted(len(opened), 'transaction')} open above the cut")
    notes = extra["notes"]
    lines += notes
    if not answer.complete:
        lines.append(f"NOT PROVABLY COMPLETE: {counted(len(answer.errors), 'reason')} above")
    return "; ".join(lines)


REBUILD = Table(
    StateRebuildRow,
    (
        marked(lambda row: "?" if row.incomplete else None),
        PARTITION,
        *RANGE,
        *plain("number", rows="ENTRIES", data_records="DATA"),
        Column("aborted_records", "ABORTED", "number", spare="zero"),
        Column("control_records", "CONTROL", "number", wide_only=True),
        Column("missing_offsets", "MISSING", "number", wide_only=True),
        Column("tombstones", "TOMBSTONES", "number", spare="zero"),
        Column("invalid", "INVALID", "number", spare="zero"),
        Column("expired", "EXPIRED", "number", spare="zero"),
        Column("sha256_sum", "DIGEST", "text", wide_only=True),
    ),
    names=("topic", "partition"),
    summary=_rebuild_summary,
)
