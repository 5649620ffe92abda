"""`offsets count`, `offsets show`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from eoctl.cli.commands.inspect import with_gaps
from eoctl.cli.emit import View, emit, names
from eoctl.cli.options import Connection, Format, Output, Topics
from eoctl.cli.progress import reading_progress
from eoctl.cli.runner import show_live
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect import offsets as operations
from eoctl.operations.session.session import now_ms, with_cluster
from eoctl.render.tables import Column
from eoctl.render.words import count, counted
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.offsets import OffsetsCountRow, OffsetsShowRow
from recovery.selectors import parse_selector, regex_selector
from recovery.shared.offset_bounds import Bound, parse_bound
from recovery.sizes import byte_rate

MaxRate = Annotated[
    str | None,
    typer.Option("--max-rate", metavar="BYTES/S", help="read no faster from each broker: 20MiB"),
]
NoCrc = Annotated[bool, typer.Option("--no-crc", help="do not check the batches' checksums")]


def _count_cells(row: OffsetsCountRow) -> Mapping[str, object]:
    return {
        "mark": "?" if row.error else None,
        "partition": f"{row.topic}:{row.partition}",
        "from": row.start,
        "to": row.end,
        "data_records": row.data_records,
        "aborted_records": row.aborted_records,
        "control_records": row.control_records,
        "open_records": row.open_records,
        "missing_offsets": row.missing_offsets,
        "error": row.error,
    }


def _count_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, OffsetsCountRow) and r.error is None]
    offsets = sum((r.end or 0) - (r.start or 0) for r in rows)
    data = sum(r.data_records or 0 for r in rows)
    text = f"{counted(data, 'data record')} on {counted(offsets, 'offset')}"
    opened = sum(r.open_records or 0 for r in rows)
    if opened:
        text += f"; {count(opened)} open: not decided yet, not counted as data"
    return with_gaps(text, answer)


COUNT = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("from", "FROM", "number"),
        Column("to", "TO", "number"),
        Column("data_records", "DATA", "number"),
        Column("aborted_records", "ABORTED", "number"),
        Column("control_records", "CONTROL", "number"),
        Column("open_records", "OPEN", "number"),
        Column("missing_offsets", "MISSING", "number"),
        Column("error", "ERROR", "text"),
    ),
    cells=_count_cells,
    name_keys=("topic", "partition"),
    fields=names(OffsetsCountRow),
    summary=_count_summary,
)


def offsets_count(
    connection: Connection,
    output: Format,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:P]... [FROM TO]",
            help="FROM and TO: an offset, earliest, lso, hw, or an instant like '2h ago'",
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="FROM", help="instead of FROM [earliest]")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TO", help="instead of TO, not included [lso]")
    ] = None,
    regex: Annotated[
        list[str] | None,
        typer.Option("--regex", metavar="RE", help="topics whose whole name matches"),
    ] = None,
    max_rate: MaxRate = None,
    no_crc: NoCrc = False,
) -> int:
    """Exactly what lies between two offsets: data, aborted, control, open records, holes."""
    named = list(words or ())
    where = ("--start", "--end")
    if start is None and end is None and not regex and len(named) > 1:
        if len(named) != 3:
            raise UsageError(
                "give TOPIC:P FROM TO, or any number of topics with --start and --end",
                remedy="eoctl offsets count orders:3 earliest lso",
            )
        *named, start, end = named
        where = ("FROM", "TO")
    if not named and not regex:
        raise UsageError("no topic is named", remedy="eoctl offsets count orders --end lso")
    selectors = [*map(parse_selector, named), *map(regex_selector, regex or ())]
    bounds = range_bounds(start, end, "lso", where)
    rate = None if max_rate is None else byte_rate(max_rate, where="--max-rate")
    with reading_progress("counting") as progress:
        answer = with_cluster(
            connection.one(),
            connection.seconds(None),
            lambda c: operations.count_offsets(
                c, selectors, *bounds, operations.Reading(not no_crc, rate, progress)
            ),
        )
    emit(answer, COUNT, output)
    return answer.exit_status


def range_bounds(
    start: str | None, end: str | None, until: str, where: tuple[str, str] = ("--start", "--end")
) -> tuple[Bound, Bound]:
    """The range asked for, from earliest and to `until` where nothing is said. Raises UsageError.

    where: how people name both ends.
    """
    now = now_ms()
    return (
        parse_bound(start or "earliest", now, where=where[0]),
        parse_bound(end or until, now, where=where[1]),
    )


def _show_cells(row: OffsetsShowRow) -> Mapping[str, object]:
    waits_behind_lso = row.lag is not None and row.lag <= 0 and (row.lag_hw or 0) > 0
    pid = row.pending_producer_id
    pending = f"pid {pid}" if pid is not None else "yes" if row.pending else None
    return {
        "mark": "?" if row.error else "!" if row.pending or waits_behind_lso else None,
        "group": row.group,
        "partition": f"{row.topic}:{row.partition}",
        "committed_offset": row.committed_offset,
        "leader_epoch": row.leader_epoch,
        "last_stable_offset": row.last_stable_offset,
        "high_watermark": row.high_watermark,
        "lag": row.lag,
        "lag_hw": row.lag_hw,
        "data_records": row.data_records,
        "pending": row.error or pending,
        "metadata": row.metadata or None,
    }


def _show_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, OffsetsShowRow)]
    stores = answer.extra.get("stores")
    if stores is not None:
        assert isinstance(stores, list)
        absent = [str(s["store"]) for s in stores if not s["exists"]]
        gone = f"; there is no {', no '.join(absent)}" if absent else ""
        text = f"{counted(len(stores), 'store')}, {counted(len(rows), 'position')}{gone}"
        return with_gaps(text, answer)
    groups = answer.extra["groups"]
    assert isinstance(groups, list)
    text = f"{counted(len(groups), 'group')}, {counted(len(rows), 'committed offset')}"
    pending = sum(bool(r.pending) for r in rows)
    return with_gaps(f"{text}, {count(pending)} with a pending commit", answer)


def _show_view(*, counted_too: bool) -> View:
    return View(
        columns=(
            Column("mark", "", "mark"),
            Column("group", "GROUP", "name"),
            Column("partition", "TOPIC:PARTITION", "partition"),
            Column("committed_offset", "COMMITTED", "number"),
            Column("leader_epoch", "EPOCH", "number", wide_only=True),
            Column("last_stable_offset", "LSO", "number"),
            Column("high_watermark", "HW", "number", wide_only=True),
            Column("lag", "LAG", "number"),
            Column("lag_hw", "LAG-HW", "number"),
            Column("data_records", "RECORDS", "number", wide_only=not counted_too),
            Column("pending", "PENDING", "text"),
            Column("metadata", "METADATA", "name", wide_only=True),
        ),
        cells=_show_cells,
        name_keys=("group", "topic", "partition"),
        fields=tuple(OffsetsShowRow.model_fields),
        summary=_show_summary,
    )


def offsets_show(
    connection: Connection,
    output: Output,
    topics: Topics,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="G", help="only this group")
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="positions in another place: APP.toml, group:G, file:PATH, topic:T#KEY, "
            "zookeeper:HOSTS/PATH, sql:URL#TABLE, spark:DIR",
        ),
    ] = None,
    counting: Annotated[
        bool,
        typer.Option("--count", help="read the logs: records that wait for each group, exactly"),
    ] = False,
    max_rate: MaxRate = None,
    no_crc: NoCrc = False,
) -> int:
    """Show where groups and other stores stand against LSO and high watermark; pending commits."""
    if group and store:
        raise UsageError("name groups or stores", where="--group, --store", remedy="or group:G")
    selectors = topics.selectors()
    rate = None if max_rate is None else byte_rate(max_rate, where="--max-rate")
    if not counting and (rate is not None or no_crc):
        raise UsageError("nothing is read without --count", where="--max-rate, --no-crc")
    view = _show_view(counted_too=counting)
    with reading_progress("counting", counting) as progress:
        reading = operations.Reading(not no_crc, rate, progress) if counting else None

        async def look(cluster: Cluster) -> Answer:
            if store:
                from eoctl.operations.restart.offset_stores import show_stores

                return await show_stores(cluster, store, selectors, counting=reading)
            return await operations.show_offsets(cluster, group or (), selectors, counting=reading)

        if output.interval is not None or not counting:
            return show_live(connection, output, view, look)
        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, view, output)
    return answer.exit_status
