"""`audit sequences|transactions|duplicates`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from eoctl.cli.audit_views import DUPLICATES, SEQUENCES, TRANSACTIONS
from eoctl.cli.dedup import By, Source
from eoctl.cli.emit import View, emit
from eoctl.cli.offsets import MaxRate, NoCrc, range_bounds
from eoctl.cli.options import Connection, Format
from eoctl.cli.progress import reading_progress
from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import Reading
from eoctl.operations.session import with_cluster
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.offset_bounds import Bound
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

    def selectors(self) -> Sequence[Selector]:
        """Raises UsageError where nothing is named: an audit reads all that it is told to."""
        found = [*map(parse_selector, self.topics or ()), *map(regex_selector, self.regex or ())]
        if not found:
            raise UsageError("no topic is named", remedy="name topics, or '*' for all of them")
        return found

    def bounds(self, end: str) -> tuple[Bound, Bound]:
        """The range; end: where it ends unless told otherwise."""
        return range_bounds(self.start, self.end, end)


@dataclass(frozen=True)
class Reads:
    """How logs are read, and how much of the answer is shown."""

    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="rows shown; all are counted")
    ] = 1000
    max_rate: MaxRate = None
    no_crc: NoCrc = False

    def answered(
        self,
        connection: Connection,
        output: Format,
        view: View,
        look: Callable[[Cluster, Reading], Awaitable[Answer]],
    ) -> int:
        """Ask the cluster and write the answer; its exit status."""
        rate = None if self.max_rate is None else byte_rate(self.max_rate, where="--max-rate")
        with reading_progress("reading") as progress:
            reading = Reading(not self.no_crc, rate, progress, self.most)
            answer = with_cluster(
                connection.one(), connection.seconds(None), lambda cluster: look(cluster, reading)
            )
        emit(answer, view, output)
        return answer.exit_status


def sequences(connection: Connection, output: Format, ranges: Ranges, reads: Reads) -> int:
    """Gaps, repeats and epochs going back, per producer id, from batch headers."""
    from eoctl.operations.audit_sequences import audit_sequences

    selectors, bounds = ranges.selectors(), ranges.bounds("hw")
    return reads.answered(
        connection,
        output,
        SEQUENCES,
        lambda cluster, reading: audit_sequences(cluster, selectors, *bounds, reading),
    )


def transactions(
    connection: Connection,
    output: Format,
    reads: Reads,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:P]]...", help="judge these partitions only"),
    ] = None,
    skew: Annotated[
        str, typer.Option("--clock-skew", metavar="D", help="of the brokers' clocks")
    ] = "5s",
) -> int:
    """Decisions of coordinators against the markers in every partition that they name."""
    from eoctl.operations.audit_transactions import audit_transactions

    selectors = [parse_selector(t) for t in topics or ()]
    apart = round(duration(skew, where="--clock-skew") * 1000)
    return reads.answered(
        connection,
        output,
        TRANSACTIONS,
        lambda cluster, reading: audit_transactions(cluster, selectors, reading, apart),
    )


def duplicates(
    connection: Connection, output: Format, ranges: Ranges, reads: Reads, source: Source, by: By
) -> int:
    """Records that stand more than once: where, how often, how far apart."""
    from eoctl.operations.audit_duplicates import audit_duplicates
    from recovery.combine.record_ids import parse_record_id

    wanted = parse_record_id(by, source.headers(), where="--by")
    selectors, bounds = ranges.selectors(), ranges.bounds("lso")
    return reads.answered(
        connection,
        output,
        DUPLICATES,
        lambda cluster, reading: audit_duplicates(cluster, selectors, *bounds, wanted, reading),
    )
