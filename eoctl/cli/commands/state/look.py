"""`state compare` and `state show`: what is in finished states."""

from pathlib import Path
from typing import Annotated

import typer

from eoctl.cli.emit import emit
from eoctl.cli.options import ADDRESSES, Connection, Format
from eoctl.operations.state import compare as state_compare
from eoctl.operations.state import show as state_show
from eoctl.render.columns.state import COMPARE, SHOW


def compare(
    connection: Connection,
    output: Format,
    a: Annotated[
        Path, typer.Argument(metavar="A", help="a state's folder, or its manifest"), ADDRESSES
    ],
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
    comparison = state_compare.Comparison(str(a), b, at, limit, not ignore_timestamps)
    answer = state_compare.compare(connection.one, comparison, connection.seconds(None))
    emit(answer, COMPARE, output)
    return answer.exit_status


_SERDES = "string|short|int|long|float|double|json|hex|base64|avro:FILE|protobuf:FILE:MESSAGE"


def show(
    output: Format,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a state's folder"), ADDRESSES],
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
    answer = state_show.show(
        state_show.ShowRequest(str(folder), key, key_serde, value_serde, limit)
    )
    emit(answer, SHOW, output)
    return answer.exit_status
