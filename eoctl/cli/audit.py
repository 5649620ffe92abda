"""`audit sequences|transactions|duplicates`."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from eoctl.cli.dedup import Source
from eoctl.cli.emit import View, emit
from eoctl.cli.offsets import MaxRate, NoCrc
from eoctl.cli.options import Connection, Format
from eoctl.cli.progress import Progress
from eoctl.kafka.cluster import Cluster
from eoctl.operations.audit_ranges import Reading
from eoctl.operations.session import now_ms, with_cluster
from eoctl.render.tables import Column
from eoctl.render.words import count, counted, size
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.offset_bounds import Bound, parse_bound
from recovery.rows_audit import (
    AuditDuplicatesRow,
    AuditSequencesRow,
    AuditTransactionsRow,
    NamedMarker,
)
from recovery.selectors import Selector, parse_selector, regex_selector
from recovery.sizes import byte_rate
from recovery.times import duration, rfc3339


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
def _progress() -> Iterator[Callable[[int, int, int], None] | None]:
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


def _incomplete(answer: Answer) -> str:
    if answer.complete:
        return ""
    return f"; INCOMPLETE, {counted(len(answer.errors), 'thing')} could not be seen"


def _sequence_cells(row: AuditSequencesRow) -> Mapping[str, object]:
    return {
        "mark": "!",
        "partition": f"{row.topic}:{row.partition}",
        "finding": row.finding,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "after_offset": row.after_offset,
        "offset": row.offset,
        "expected": row.expected,
        "found": row.found,
        "records": row.records,
    }


def _sequence_summary(answer: Answer) -> str:
    examined = answer.extra["examined"]
    assert isinstance(examined, list)
    found = _number(answer, "findings")
    records = sum(e["records"] - e["unnumbered"] for e in examined)
    text = f"{counted(found, 'finding')} in {counted(records, 'numbered record')}"
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} shown"
    if unnumbered := sum(e["unnumbered"] for e in examined):
        text += f"; {count(unnumbered)} without sequences, not judged"
    if explained := sum(e["explained"] for e in examined):
        text += f"; {counted(explained, 'gap')} explained by compaction"
    return text + _incomplete(answer)


SEQUENCES = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("finding", "FINDING", "text"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number"),
        Column("after_offset", "AFTER", "number"),
        Column("offset", "OFFSET", "number"),
        Column("expected", "EXPECTED", "number"),
        Column("found", "FOUND", "number"),
        Column("records", "RECORDS", "number"),
    ),
    cells=_sequence_cells,
    name_keys=("topic", "partition"),
    fields=tuple(AuditSequencesRow.model_fields),
    summary=_sequence_summary,
)


def sequences(connection: Connection, output: Format, ranges: Ranges) -> int:
    """Gaps, repeats and epochs going back, per producer id, from batch headers."""
    from eoctl.operations.audit_sequences import audit_sequences

    selectors, bounds = ranges.selectors(), ranges.bounds("hw")

    with _progress() as progress:
        reading = ranges.reading(progress)

        async def look(cluster: Cluster) -> Answer:
            return await audit_sequences(cluster, selectors, *bounds, reading)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, SEQUENCES, output)
    return answer.exit_status


def _held(part: NamedMarker) -> str:
    where = f"{part.topic}:{part.partition}"
    ended = "no marker" if part.marker is None else f"{part.marker} at {part.marker_offset}"
    return f"{where} {part.first_offset}-{part.last_offset} {ended}"


def _transaction_cells(row: AuditTransactionsRow) -> Mapping[str, object]:
    return {
        "mark": "!",
        "finding": row.finding,
        "transactional_id": row.transactional_id,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "decided": row.decided,
        "decided_at": rfc3339(row.decided_at),
        "partitions": "; ".join(map(_held, row.partitions)),
    }


def _transaction_summary(answer: Answer) -> str:
    names = ("findings", "transactions", "partitions")
    found, judged, read = (_number(answer, name) for name in names)
    covered = answer.extra["covered"]
    assert isinstance(covered, list)
    text = (
        f"{counted(found, 'finding')} in {counted(judged, 'transaction')} "
        f"of {counted(len(covered), 'id')}, {counted(read, 'partition')} read"
    )
    if unproven := sum(not c["whole"] for c in covered):
        text += f"; {counted(unproven, 'id')} not whole: compaction took what it decided earlier"
    return text + _incomplete(answer)


TRANSACTIONS = View(
    columns=(
        Column("mark", "", "mark"),
        Column("finding", "FINDING", "text"),
        Column("transactional_id", "TRANSACTIONAL-ID", "text"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number"),
        Column("decided", "DECIDED", "text"),
        Column("decided_at", "AT", "text"),
        Column("partitions", "PARTITIONS", "text"),
    ),
    cells=_transaction_cells,
    name_keys=("transactional_id",),
    fields=tuple(AuditTransactionsRow.model_fields),
    summary=_transaction_summary,
)


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
    with _progress() as progress:
        reading = Reading(not no_crc, rate, progress, most)

        async def look(cluster: Cluster) -> Answer:
            return await audit_transactions(cluster, selectors, reading, apart)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, TRANSACTIONS, output)
    return answer.exit_status


def _duplicate_cells(row: AuditDuplicatesRow) -> Mapping[str, object]:
    places = [f"{p.topic}:{p.partition}@{p.offset}" for p in row.places]
    if row.copies > len(places):
        places.append(f"and {count(row.copies - len(places))} more")
    return {
        "mark": "!",
        "id": row.text,
        "copies": row.copies,
        "same_value": "same" if row.same_value else "different",
        "nearest_offsets": row.nearest_offsets,
        "farthest_offsets": row.farthest_offsets,
        "span_seconds": row.span_seconds,
        "places": ", ".join(places),
    }


def _duplicate_summary(answer: Answer) -> str:
    names = ("findings", "repeats", "records", "without_id", "partitions")
    found, repeats, records, without, partitions = (_number(answer, name) for name in names)
    text = (
        f"{counted(found, 'id')} with {counted(repeats, 'repeat')} in {counted(records, 'record')} "
        f"of {counted(partitions, 'partition')}, by {answer.extra['by']}"
    )
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} shown"
    if without:
        text += f"; {count(without)} have no such id"
    return text + _incomplete(answer)


def _number(answer: Answer, name: str) -> int:
    found = answer.extra[name]
    assert isinstance(found, int)
    return found


DUPLICATES = View(
    columns=(
        Column("mark", "", "mark"),
        Column("id", "ID", "text"),
        Column("copies", "COPIES", "number"),
        Column("same_value", "VALUE", "text"),
        Column("nearest_offsets", "NEAREST", "number"),
        Column("farthest_offsets", "FARTHEST", "number"),
        Column("span_seconds", "SECONDS", "number"),
        Column("places", "PLACES", "text"),
    ),
    cells=_duplicate_cells,
    name_keys=("id",),
    fields=tuple(AuditDuplicatesRow.model_fields),
    summary=_duplicate_summary,
)


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
    from recovery.combine.record_ids import SourceHeaders, parse_record_id

    if source.numbers not in ("text", "int"):
        raise UsageError("is text or int", where="--numbers")
    headers = SourceHeaders(
        source.partition_header, source.offset_header, source.index_header, source.topic_header
    )
    wanted = parse_record_id(by, headers, where="--by")
    selectors, bounds = ranges.selectors(), ranges.bounds("lso")
    with _progress() as progress:
        reading = ranges.reading(progress)

        async def look(cluster: Cluster) -> Answer:
            return await audit_duplicates(cluster, selectors, *bounds, wanted, reading)

        answer = with_cluster(connection.one(), connection.seconds(None), look)
    emit(answer, DUPLICATES, output)
    return answer.exit_status
