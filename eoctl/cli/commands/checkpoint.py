"""`txn commit --checkpoint`: the transactions that a Flink checkpoint promises."""

from typing import Annotated

import typer

from eoctl.cli.options import Connection, Output
from eoctl.cli.runner import show_live
from eoctl.operations.remedy.checkpoint import committables
from eoctl.render.columns.checkpoint import COMMITTABLES
from eoctl.stores import flink_checkpoint


def commit(
    connection: Connection,
    output: Output,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="a Flink checkpoint or savepoint: its folder, on this host",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="where its sink writes, for what coordinators have forgotten",
        ),
    ] = None,
) -> int:
    """What became of each transaction that a Flink checkpoint promises: committed, open, lost.

    Reads only. Of an open one: how long until its coordinator aborts it, and how many records are
    lost then; of a lost one: how many, and where they lie. Exit status 1 while one is open or
    lost, 3 while one is unknown.
    """
    folder = flink_checkpoint.read(checkpoint)
    return show_live(
        connection, output, COMMITTABLES, lambda c: committables(c, folder, topic or ())
    )
