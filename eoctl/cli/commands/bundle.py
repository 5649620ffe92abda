"""`bundle create`, `bundle open`: an incident in one file."""

from pathlib import Path
from typing import Annotated

import typer

from eoctl.cli.emit import emit
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format
from eoctl.cli.progress import ChangingLine
from eoctl.operations.dashboard import bundle as operation
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.watch import BUNDLE
from recovery.errors import UsageError

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
        collection = with_cluster(
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
    answer = operation.create(collection, file)
    emit(answer, BUNDLE, output)
    return answer.exit_status


def open_(output: Format, file: File) -> int:
    """Verify the checksum of FILE and say what is in it."""
    answer = operation.opened(file)
    emit(answer, BUNDLE, output)
    return answer.exit_status
