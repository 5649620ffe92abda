"""`offsets count`, `offsets show`, `offsets history`."""

from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, Output, Topics, argument, option
from eoctl.cli.progress import reading_progress
from eoctl.cli.runner import show_live
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose import commit_history
from eoctl.operations.inspect import offset_answers
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.commits import COMMITS
from eoctl.render.columns.inspect import COUNT, offsets_table
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.selectors import parse_selector, regex_selector
from recovery.shared.offset_bounds import Bound, parse_bound
from recovery.sizes import byte_rate
from recovery.times import duration, instant

MaxRate = Annotated[
    str | None, option("--max-rate BYTES/S", "read no faster from each broker: 20MiB")
]
NoCrc = Annotated[bool, option("--no-crc", "do not check the batches' checksums")]


def offsets_count(
    connection: Connection,
    output: Format,
    words: Annotated[
        list[str] | None,
        argument(
            "TOPIC[:P]... [FROM TO]",
            "FROM and TO: an offset, earliest, lso, hw, or an instant like '2h ago'",
        ),
    ] = None,
    start: Annotated[str | None, option("--start FROM", "instead of FROM [earliest]")] = None,
    end: Annotated[str | None, option("--end TO", "instead of TO, not included [lso]")] = None,
    regex: Annotated[
        list[str] | None, option("--regex RE", "topics whose full name matches")
    ] = None,
    max_rate: MaxRate = None,
    no_crc: NoCrc = False,
) -> int:
    """Count exactly what lies between two offsets: data, aborted, control, open records, holes."""
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
            lambda c: offset_answers.count_offsets(
                c,
                selectors,
                *bounds,
                offset_answers.Reading(not no_crc, rate, progress, nearest=True),
            ),
        )
    emit(answer, COUNT, output)
    return answer.exit_status


def range_bounds(
    start: str | None, end: str | None, until: str, where: tuple[str, str] = ("--start", "--end")
) -> tuple[Bound, Bound]:
    """Return the range: from earliest, to `until`, unless options say otherwise. Raises UsageError.

    where: how people name both ends.
    """
    now = now_ms()
    return (
        parse_bound(start or "earliest", now, where=where[0]),
        parse_bound(end or until, now, where=where[1]),
    )


def offsets_show(
    connection: Connection,
    output: Output,
    topics: Topics,
    group: Annotated[list[str] | None, option("--group G", "only this group")] = None,
    store: Annotated[
        list[str] | None,
        option(
            "--store STORE",
            "positions in another place: APP.toml, group:G, file:PATH, topic:T#KEY, "
            "zookeeper:HOSTS/PATH, sql:URL#TABLE, spark:DIR",
        ),
    ] = None,
    counting: Annotated[
        bool, option("--count", "read the logs: records that wait for each group, exactly")
    ] = False,
    lag_seconds: Annotated[
        bool,
        option("--lag-seconds", "age of the first record that could be read now; until retention"),
    ] = False,
    max_rate: MaxRate = None,
    no_crc: NoCrc = False,
) -> int:
    """Show offsets of groups and other stores against LSO and high watermark; pending commits."""
    if group and store:
        raise UsageError("name groups or stores", where="--group, --store", remedy="or group:G")
    selectors = topics.selectors()
    rate = None if max_rate is None else byte_rate(max_rate, where="--max-rate")
    if not counting and (rate is not None or no_crc):
        raise UsageError("nothing is read without --count", where="--max-rate, --no-crc")
    view = offsets_table(counted=counting, in_time=lag_seconds)
    with reading_progress("counting", counting) as progress:
        reading = (
            offset_answers.Reading(not no_crc, rate, progress, nearest=True) if counting else None
        )

        async def look(cluster: Cluster) -> Answer:
            if store:
                from eoctl.operations.restart.offset_stores import show_stores

                return await show_stores(
                    cluster, store, selectors, counting=reading, in_time=lag_seconds
                )
            return await offset_answers.show_offsets(
                cluster, group or (), selectors, counting=reading, in_time=lag_seconds
            )

        if output.interval is not None or not counting:
            return show_live(connection, output, view, look)
        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, view, output)
    return answer.exit_status


def offsets_history(
    connection: Connection,
    output: Output,
    group: Annotated[str, argument("GROUP")],
    topics: Topics,
    since: Annotated[str | None, option("--since TIME", "an instant, or how long ago: 2d")] = None,
    until: Annotated[str | None, option("--until TIME", "before this instant")] = None,
    newest: Annotated[
        int | None,
        option(
            "--newest N",
            "of each partition, and all that stand out [1000; with --since or --until: all]",
            min=1,
        ),
    ] = None,
) -> int:
    """Show every commit of a group that __consumer_offsets still holds, and what stands out.

    Resets, steps back, leaps and deletions are marked. Reads the group's own partition of it.
    """
    now = now_ms()
    window = (_ago(since, now), None if until is None else instant(until, now, where="--until"))
    if newest is None and window == (None, None):
        newest = commit_history.NEWEST
    selectors = topics.selectors()

    async def look(cluster: Cluster) -> Answer:
        return await commit_history.commit_history(cluster, group, selectors, window, newest)

    if output.interval is not None:
        return show_live(connection, output, COMMITS, look)
    answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, COMMITS, output)
    return answer.exit_status


def _ago(text: str | None, now: int) -> int | None:
    """Return the instant of `--since`: a duration counts back from now. Raises UsageError."""
    if text is None:
        return None
    try:
        return now - round(duration(text) * 1000)
    except UsageError:
        return instant(text, now, where="--since")
