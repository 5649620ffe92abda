"""`exporter`: a Prometheus endpoint."""

import asyncio
from typing import Annotated

from eoctl.cli.limits import Limits
from eoctl.cli.options import AllContexts, Connection, option
from eoctl.cli.progress import note
from eoctl.operations.watch import check_answer, exporting
from eoctl.operations.watch.endpoint import is_loopback, parse_address, served
from eoctl.settings.context import config_for
from recovery.errors import UsageError
from recovery.sizes import byte_rate
from recovery.times import duration
from recovery.watch import series


def exporter(
    connection: Connection,
    limits: Limits,
    listen: Annotated[
        str, option("--listen HOST:PORT", "port 0: one that is free")
    ] = "127.0.0.1:9465",
    interval: Annotated[str, option("--interval D", "between two looks at a cluster")] = "30s",
    group: Annotated[list[str] | None, option("--group G", "the lag of these groups only")] = None,
    max_groups: Annotated[
        int, option("--max-groups N", "that have series", min=0)
    ] = series.Limits().groups,
    max_partitions: Annotated[
        int, option("--max-partitions N", "of groups, with series", min=0)
    ] = series.Limits().partitions,
    max_findings: Annotated[
        int, option("--max-findings N", "that have a series each", min=0)
    ] = series.Limits().findings,
    max_count: Annotated[
        int, option("--max-count N", "offsets read per look; 0: no count", min=0)
    ] = series.Limits().records,
    lag_seconds: Annotated[
        bool, option("--lag-seconds", "age of the first record that each group could read now")
    ] = False,
    doctor: Annotated[
        bool, option("--doctor", "the rules of `eoctl doctor` too, once an hour")
    ] = False,
    max_rate: Annotated[
        str, option("--max-rate BYTES/S", "read no faster from each broker")
    ] = "10MiB",
    all_contexts: AllContexts = False,
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
        thresholds=check_answer.thresholds(config_for(connection.connect).check),
        limits=series.Limits(max_groups, max_partitions, max_findings, max_count, lag_seconds),
        groups=group or (),
        interval=seconds,
        seconds=connection.seconds() or 30.0,
        pause=limits.interval,
        max_rate=byte_rate(max_rate, where="--max-rate"),
        doctor=doctor,
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
