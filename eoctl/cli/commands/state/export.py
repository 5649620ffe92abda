"""`jobs export`: a rebuild as a folder that a scheduler submits by spark-submit."""

from pathlib import Path
from typing import Annotated

from eoctl.cli.commands.state.rebuild import At, Changelogs, FormatName, Rebuilding, ShortFormat, To
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, argument, option
from eoctl.cli.spark_options import Conf
from eoctl.operations.jobs.spark_launch import read_options
from eoctl.operations.state.export import export_rebuild
from eoctl.render.columns.jobs import EXPORT


def export(
    connection: Connection,
    output: ShortFormat,
    making: Rebuilding,
    folder: Annotated[Path, argument("DIR", "a new folder, for the job")],
    changelogs: Changelogs,
    format_: FormatName,
    at: At,
    to: To,
    master: Annotated[
        str | None, option("--master URL", "spark://HOST:7077, yarn, ... [of spark-defaults.conf]")
    ] = None,
    conf: Conf = [],  # noqa: B006 - as Typer declares a list
) -> int:
    """Export a rebuild for a scheduler: a folder with code, spec and the spark-submit line."""
    request = making.request(changelogs, format_, at, to)
    spark = read_options(master, None, conf, None)
    answer = export_rebuild(connection.one(), request, spark, folder, connection.seconds())
    emit(answer, EXPORT, output)
    return answer.exit_status
