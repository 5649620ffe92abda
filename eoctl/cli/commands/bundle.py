"""`bundle create`, `bundle open`: an incident in one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from eoctl.cli.commands.inspect import with_gaps
from eoctl.cli.emit import View, emit
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format
from eoctl.cli.progress import ChangingLine
from eoctl.operations.dashboard import bundle as operation
from eoctl.operations.session.session import with_cluster
from eoctl.render.tables import Column
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.check import BundlePartRow
from recovery.times import rfc3339


def _cells(row: BundlePartRow) -> Mapping[str, object]:
    return {
        "mark": "?" if row.not_seen else None,
        "part": row.part,
        "count": row.count,
        "not_seen": row.not_seen or None,
        "detail": row.detail,
    }


def _summary(answer: Answer) -> str:
    where = answer.extra["context"] or answer.extra["bootstrap_servers"]
    text = f"{answer.extra['file']}: {where}, seen {rfc3339(answer.collected_at)}"
    return with_gaps(f"{text}, sha256 {answer.extra['sha256']}", answer)


PARTS = View(
    columns=(
        Column("mark", "", "mark"),
        Column("part", "PART", "text"),
        Column("count", "COUNT", "number"),
        Column("not_seen", "NOT SEEN", "number"),
        Column("detail", "DETAIL", "text"),
    ),
    cells=_cells,
    name_keys=("part",),
    fields=tuple(BundlePartRow.model_fields),
    summary=_summary,
)
CREATE_SECONDS = 600.0  # 10,000 partitions took 91 s
File = Annotated[Path, typer.Argument(metavar="FILE")]


def create(
    connection: Connection,
    output: Format,
    limits: Limits,
    file: File,
    history: Annotated[
        bool,
        typer.Option("--history", help="the history of every transactional id, not only held ones"),
    ] = False,
) -> int:
    """Write all that the read commands see into FILE, without secrets.

    Every read command takes `--from FILE` and then needs no cluster. Exit status 3: the file is
    written, and something could not be seen; or all was not seen within --timeout (10m), and no
    file is written.
    """
    if file.exists():
        raise UsageError("exists already", where=str(file), remedy="choose another name")
    context = connection.one()
    with ChangingLine() as line:
        seen = with_cluster(
            context,
            connection.seconds(CREATE_SECONDS),
            lambda cluster: operation.collect(
                cluster,
                context,
                limits.settings(context),
                sample_interval=limits.interval,
                history=history,
                on_part=line.write_over if line.on_terminal else None,
            ),
        )
    answer = operation.create(seen, file)
    emit(answer, PARTS, output)
    return answer.exit_status


def open_(output: Format, file: File) -> int:
    """Verify the checksum of FILE and say what is in it."""
    answer = operation.opened(file)
    emit(answer, PARTS, output)
    return answer.exit_status
