"""`exporter`: a Prometheus endpoint."""

import asyncio
from typing import Annotated

import typer

from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection
from eoctl.cli.progress import note
from eoctl.operations.watch import check, exporting
from eoctl.operations.watch.endpoint import is_loopback, parse_address, served
from eoctl.settings.context import load_config
from recovery.errors import UsageError
from recovery.sizes import byte_rate
from recovery.times import duration
from recovery.watch import series


def exporter(
    connection: Connection,
    limits: Limits,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="port 0: one that is free")
    ] = "127.0.0.1:9465",
    interval: Annotated[
        str, typer.Option("--interval", metavar="D", help="between two looks at a cluster")
    ] = "30s",
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="G", help="the lag of these groups only"),
    ] = None,
    max_groups: Annotated[
        int, typer.Option("--max-groups", metavar="N", min=0, help="that have series")
    ] = series.Limits.groups,
    max_partitions: Annotated[
        int, typer.Option("--max-partitions", metavar="N", min=0, help="of groups, with series")
    ] = series.Limits.partitions,
    max_findings: Annotated[
        int, typer.Option("--max-findings", metavar="N", min=0, help="that have a series each")
    ] = series.Limits.findings,
    max_count: Annotated[
        int,
        typer.Option("--max-count", metavar="N", min=0, help="offsets read per look; 0: no count"),
    ] = series.Limits.records,
    max_rate: Annotated[
        str,
        typer.Option("--max-rate", metavar="BYTES/S", help="read no faster from each broker"),
    ] = "10MiB",
    all_contexts: Annotated[bool, typer.Option("--all-contexts")] = False,
) -> int:
    """Serve what `check` finds and the lags of groups to Prometheus, until it is stopped.

    A scrape gets the last look, with its age, and never waits. --timeout bounds each look.
    """
    address = parse_address(listen)
    seconds = duration(interval, where="--interval")
    if not 1 <= seconds <= 3600:
        raise UsageError("between 1s and 1h", where="--interval")
    if connection.bundle() is not None:
        connection.one()  # refuses it
    contexts = connection.several(all_contexts)
    for context in contexts:
        context.settings()  # a wrong one is said at once, one that goes wrong later is a metric
    request = exporting.Request(
        thresholds=check.thresholds(load_config().check),
        limits=series.Limits(max_groups, max_partitions, max_findings, max_count),
        groups=group or (),
        interval=seconds,
        seconds=connection.seconds() or 30.0,
        sample_interval=limits.interval,
        max_rate=byte_rate(max_rate, where="--max-rate"),
    )
    board = exporting.Board(
        [context.title for context in contexts], counts_records=request.reading is not None
    )

    async def run() -> None:
        with served(address, board.samples) as url:
            note(f"eoctl: metrics at {url}, of a look every {interval}")
            if not is_loopback(address[0]):
                note("eoctl: warning: all who reach that address can read names and lags")
            if max_count and request.reading is None:
                note("eoctl: no records are counted: that needs pip install 'eoctl[data]'")
            async with asyncio.TaskGroup() as tasks:
                for context in contexts:
                    settings = limits.settings(context)
                    tasks.create_task(exporting.watch(context, settings, request, board, _say))

    asyncio.run(run())
    return 0


def _say(sentence: str) -> None:
    note(f"eoctl: {sentence}")
