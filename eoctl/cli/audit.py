"""`audit sequences|transactions|duplicates`."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from eoctl.cli.audit_views import DUPLICATES, SEQUENCES, TRANSACTIONS
from eoctl.cli.dedup import Source
from eoctl.cli.emit import emit
from eoctl.cli.offsets import MaxRate, NoCrc
from eoctl.cli.options import Connection, Format
from eoctl.cli.progress import Progress
from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import Reading
from eoctl.operations.session import now_ms, with_cluster
from eoctl.render.words import size
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.offset_bounds import Bound, parse_bound
from recovery.selectors import Selector, parse_selector, regex_selector
from recovery.sizes import byte_rate
from recovery.times import duration


@dataclass(frozen=True)
class Ranges:
    """Which records are read, and how."""

    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:P]...", help="orders, orders:3, 'orders-*'"),
    ] = None
    regex: Annotated[
        list[str] | None,
        typer.Option("--regex", metavar="RE", help="topics whose whole name matches"),
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="FROM", help="offset, instant or earliest [earliest]"),
    ] = None
    end: Annotated[
        str | None, typer.Option("--end", metavar="TO", help="not included; also lso and hw")
    ] = None
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="rows shown; all are counted")
    ] = 1000
    max_rate: MaxRate = None
    no_crc: NoCrc = False

    def selectors(self) -> Sequence[Selector]:
        """Raises UsageError where nothing is named: an audit reads all that it is told to."""
        found = [*map(parse_selector, self.topics or ()), *map(regex_selector, self.regex or ())]
        if not found:
            raise UsageError("no topic is named", remedy="name topics, or '*' for all of them")
        return found

    def bounds(self, end: str) -> tuple[Bound, Bound]:
        """The range; end: where it ends unless told otherwise."""
        now = now_ms()
        return (
            parse_bound(self.start or "earliest", now, where="--start"),
            parse_bound(self.end or end, now, where="--end"),
        )

    def reading(self, progress: Callable[[int, int, int], None] | None) -> Reading:
        rate = None if self.max_rate is None else byte_rate(self.max_rate, where="--max-rate")
        return Reading(not self.no_crc, rate, progress, self.most)


@contextmanager
def audit_progress() -> Iterator[Callable[[int, int, int], None] | None]:
    """Bytes and offsets on one changing line of a terminal, a few times a second."""
    if not sys.stderr.isatty():
        yield None
        return
    due = 0.0
    with Progress() as line:

        def told(bytes_read: int, done: int, total: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + 0.25
                line(f"reading: {size(bytes_read)}, offsets", done, total)

        yield told


def sequences(connection: Connection, output: Format, ranges: Ranges) -> int:
    """Gaps, repeats and epochs going back, per producer id, from batch headers."""
    from eoctl.operations.audit_sequences import audit_sequences

    selectors, bounds = ranges.selectors(), ranges.bounds("hw")

    with audit_progress() as progress:
        reading = ranges.reading(progress)

        async def look(cluster: Cluster) -> Answer:
            return await audit_sequences(cluster, selectors, *bounds, reading)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, SEQUENCES, output)
    return answer.exit_status


def transactions(
    connection: Connection,
    output: Format,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:P]]...", help="judge these partitions only"),
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="rows shown; all are counted")
    ] = 1000,
    skew: Annotated[
        str, typer.Option("--clock-skew", metavar="D", help="of the brokers' clocks")
    ] = "5s",
    max_rate: MaxRate = None,
    no_crc: NoCrc = False,
) -> int:
    """Decisions of coordinators against the markers in every partition that they name."""
    from eoctl.operations.audit_transactions import audit_transactions

    selectors = [parse_selector(t) for t in topics or ()]
    rate = None if max_rate is None else byte_rate(max_rate, where="--max-rate")
    apart = round(duration(skew, where="--clock-skew") * 1000)
    with audit_progress() as progress:
        reading = Reading(not no_crc, rate, progress, most)

        async def look(cluster: Cluster) -> Answer:
            return await audit_transactions(cluster, selectors, reading, apart)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, TRANSACTIONS, output)
    return answer.exit_status


def duplicates(
    connection: Connection,
    output: Format,
    ranges: Ranges,
    source: Source,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="source|key|value|header:NAME|json:PATH",
            help="what makes two records the same",
        ),
    ],
) -> int:
    """Records that stand more than once: where, how often, how far apart."""
    from eoctl.operations.audit_duplicates import audit_duplicates
    from recovery.combine.record_ids import parse_record_id

    wanted = parse_record_id(by, source.headers(), where="--by")
    selectors, bounds = ranges.selectors(), ranges.bounds("lso")
    with audit_progress() as progress:
        reading = ranges.reading(progress)

        async def look(cluster: Cluster) -> Answer:
            return await audit_duplicates(cluster, selectors, *bounds, wanted, reading)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, DUPLICATES, output)
    return answer.exit_status
