"""`state compare` and `state show`: what is in finished states."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from eoctl.cli.emit import View, emit
from eoctl.cli.options import Connection, Format
from eoctl.operations.state import compare as state_compare
from eoctl.operations.state import show as state_show
from eoctl.render.tables import Column
from eoctl.render.words import count, counted
from recovery.rows.answers import Answer
from recovery.rows.state import StateCompareRow, StateShowRow, StateValue
from recovery.times import rfc3339


def _side(value: StateValue | None) -> str | None:
    if value is None:
        return None
    shown = value.value_text if value.value_text is not None else value.value
    return "null" if shown is None else shown


def _compare_cells(row: StateCompareRow) -> Mapping[str, object]:
    return {
        "mark": "!" if row.difference else None,
        "partition": "all" if row.topic is None else f"{row.topic}:{row.partition}",
        "difference": row.difference or "equal",
        "rows_a": row.rows_a,
        "rows_b": row.rows_b,
        "only_a": row.only_a,
        "only_b": row.only_b,
        "different": row.different,
        "key": row.key_text if row.key_text is not None else row.key,
        "a": _side(row.a),
        "b": _side(row.b),
    }


def _compare_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, StateCompareRow) and r.key is None]
    if answer.extra["equal"]:
        return f"equal: {counted(sum(r.rows_a or 0 for r in rows), 'entry', 'entries')}"
    only_a, only_b, different = (
        sum(getattr(r, name) or 0 for r in rows) for name in ("only_a", "only_b", "different")
    )
    text = f"{count(only_a)} only in A, {count(only_b)} only in B, {count(different)} different"
    if answer.extra["same_cut"] is False:
        text += "; they are of different cuts"
    return f"{text}; {counted(answer.extra['shown'], 'entry', 'entries')} shown"  # type: ignore[arg-type]


COMPARE = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("difference", "DIFFERENCE", "text"),
        Column("rows_a", "ENTRIES-A", "number"),
        Column("rows_b", "ENTRIES-B", "number"),
        Column("only_a", "ONLY-A", "number"),
        Column("only_b", "ONLY-B", "number"),
        Column("different", "DIFFERENT", "number"),
        Column("key", "KEY", "name"),
        Column("a", "A", "name"),
        Column("b", "B", "name"),
    ),
    cells=_compare_cells,
    name_keys=("topic", "partition"),
    fields=tuple(StateCompareRow.model_fields),
    summary=_compare_summary,
)


def compare(
    connection: Connection,
    output: Format,
    a: Annotated[Path, typer.Argument(metavar="A", help="a state's folder, or its manifest")],
    b: Annotated[
        str,
        typer.Argument(metavar="B", help="another one, a dump (.jsonl), or `live`: the changelog"),
    ],
    at: Annotated[
        str | None, typer.Option("--at", metavar="CUT", help="of `live` [the cut of A]")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="differing entries shown")
    ] = 20,
    ignore_timestamps: Annotated[
        bool, typer.Option("--ignore-timestamps", help="only values count; reads all rows")
    ] = False,
) -> int:
    """Entries only in one of two states, and entries that differ; exit 1 if there are any."""
    asked = state_compare.Comparison(a, b, at, limit, not ignore_timestamps)
    answer = state_compare.compare(connection.one, asked, connection.seconds(None))
    emit(answer, COMPARE, output)
    return answer.exit_status


def _show_cells(row: StateShowRow) -> Mapping[str, object]:
    return {
        "mark": None,
        "partition": f"{row.topic}:{row.partition}",
        "offset": row.offset,
        "timestamp": rfc3339(row.timestamp),
        "key": row.key if row.key_decoded is None else str(row.key_decoded),
        "value": row.value if row.value_decoded is None else str(row.value_decoded),
        "extra": ", ".join(f"{k}={v}" for k, v in row.extra.items()) or None,
    }


def _show_summary(answer: Answer) -> str:
    found = counted(len(answer.rows), "entry", "entries")
    return f"{found}, a {answer.extra['format']} state at {answer.extra['at']}"


SHOW = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("offset", "OFFSET", "number"),
        Column("timestamp", "TIMESTAMP", "number"),
        Column("key", "KEY", "name"),
        Column("value", "VALUE", "name"),
        Column("extra", "MORE", "text"),
    ),
    cells=_show_cells,
    name_keys=("topic", "partition"),
    fields=tuple(StateShowRow.model_fields),
    summary=_show_summary,
)

_SERDES = "string|short|int|long|float|double|json|hex|base64|avro:FILE|protobuf:FILE:MESSAGE"


def show(
    output: Format,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a state's folder")],
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="as --key-serde writes it; none: all")
    ] = None,
    key_serde: Annotated[str, typer.Option("--key-serde", metavar=_SERDES)] = "string",
    value_serde: Annotated[
        str,
        typer.Option("--value-serde", metavar="SERDE", help="the same; confluent-avro:FILE too"),
    ] = "string",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="entries shown")] = 100,
) -> int:
    """A key's entries, decoded; exit 1 when the state has none."""
    answer = state_show.show(state_show.Shown(folder, key, key_serde, value_serde, limit))
    emit(answer, SHOW, output)
    return answer.exit_status
