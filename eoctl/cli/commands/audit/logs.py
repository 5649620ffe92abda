"""`audit sequences|transactions|duplicates`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.cli.commands.dedup import By, RecordSource
from eoctl.cli.commands.offsets import MaxRate, NoCrc, range_bounds
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.cli.progress import reading_progress
from eoctl.cli.spark_options import JobProgress, SparkOptions
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.pump import ChunkProgress
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.audit import DUPLICATES, SEQUENCES, TRANSACTIONS
from eoctl.render.columns.table import Table
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.selectors import Selector, parse_selector, regex_selector
from recovery.shared.offset_bounds import Bound
from recovery.sizes import byte_rate
from recovery.times import duration

if TYPE_CHECKING:
    from eoctl.operations.audit.engine import Audit
    from eoctl.settings.context import Context


@dataclass(frozen=True)
class Ranges:
    """The options that say which records an audit reads, and how."""

    topics: Annotated[
        list[str] | None, argument("TOPIC[:P]...", "orders, orders:3, 'orders-*'")
    ] = None
    regex: Annotated[list[str] | None, option("--regex RE", "topics whose full name matches")] = (
        None
    )
    start: Annotated[
        str | None, option("--start FROM", "offset, instant or earliest [earliest]")
    ] = None
    end: Annotated[str | None, option("--end TO", "not included; also lso and hw")] = None

    def selectors(self) -> Sequence[Selector]:
        """Raise UsageError if nothing is named: an audit reads all of what it is given."""
        selectors = [
            *map(parse_selector, self.topics or ()),
            *map(regex_selector, self.regex or ()),
        ]
        if not selectors:
            raise UsageError("no topic is named", remedy="name topics, or '*' for all of them")
        return selectors

    def bounds(self, end: str) -> tuple[Bound, Bound]:
        """Return the range; end: where it ends unless an option says otherwise."""
        return range_bounds(self.start, self.end, end)


@dataclass(frozen=True)
class Reads:
    """The options that say how logs are read, and how much of the answer is shown."""

    most: Annotated[int, option("--limit N", "rows shown; all are counted", min=1)] = 1000
    max_rate: MaxRate = None
    no_crc: NoCrc = False

    def answered(
        self,
        connection: Connection,
        output: Format,
        view: Table,
        look: Callable[[Cluster, AuditOptions], Awaitable[Answer]],
        context: "Context | None" = None,
    ) -> int:
        """Ask the cluster and write the answer; its exit status. context: None = connection's."""
        asked = connection.one() if context is None else context
        with reading_progress("reading") as progress:
            reading = self._reading(progress)
            answer = with_cluster(
                asked, connection.seconds(None), lambda cluster: look(cluster, reading)
            )
        emit(answer, view, output)
        return answer.exit_status

    def audited(
        self,
        connection: Connection,
        output: Format,
        on: SparkOptions,
        view: Table,
        audit: "Audit[Any]",
    ) -> int:
        """Write the answer of an audit by one of the engines; its exit status."""
        answer = self.judged(connection, on, audit)
        emit(answer, view, output)
        return answer.exit_status

    def judged(self, connection: Connection, on: SparkOptions, audit: "Audit[Any]") -> Answer:
        """Return the answer of an audit by one of the engines."""
        from eoctl.operations.audit.engine import AuditEngine, audited

        engine, spark = on.engine()
        with reading_progress("reading") as progress, JobProgress() as show:
            return audited(
                connection.one(),
                connection.seconds(None),
                audit,
                self._reading(progress),
                AuditEngine(engine, spark, show),
            )

    def _reading(self, progress: ChunkProgress | None) -> AuditOptions:
        rate = None if self.max_rate is None else byte_rate(self.max_rate, where="--max-rate")
        return AuditOptions(not self.no_crc, rate, progress, self.most)


def sequences(
    connection: Connection, output: Format, on: SparkOptions, ranges: Ranges, reads: Reads
) -> int:
    """Find gaps, repeats and epochs going back, per producer id, from batch headers."""
    from eoctl.operations.audit.sequences import SequencesAudit

    audit = SequencesAudit(ranges.selectors(), *ranges.bounds("hw"))
    return reads.audited(connection, output, on, SEQUENCES, audit)


def transactions(
    connection: Connection,
    output: Format,
    on: SparkOptions,
    reads: Reads,
    topics: Annotated[
        list[str] | None, argument("[TOPIC[:P]]...", "judge these partitions only")
    ] = None,
    skew: Annotated[str, option("--clock-skew D", "of the brokers' clocks")] = "5s",
) -> int:
    """Compare coordinators' decisions with the markers in every partition that they name."""
    from eoctl.operations.audit.transactions import TransactionsAudit

    selectors = [parse_selector(t) for t in topics or ()]
    apart = round(duration(skew, where="--clock-skew") * 1000)
    audit = TransactionsAudit(selectors, apart)
    return reads.audited(connection, output, on, TRANSACTIONS, audit)


def duplicates(
    connection: Connection,
    output: Format,
    on: SparkOptions,
    ranges: Ranges,
    reads: Reads,
    source: RecordSource,
    by: By,
) -> int:
    """Find duplicate records: where they are, how often, how far apart."""
    from eoctl.operations.audit.duplicates import DuplicatesAudit
    from recovery.shared.record_ids import parse_record_id

    record_id = parse_record_id(by, source.headers(), where="--by")
    audit = DuplicatesAudit(ranges.selectors(), *ranges.bounds("lso"), record_id)
    return reads.audited(connection, output, on, DUPLICATES, audit)
