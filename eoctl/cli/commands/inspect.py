"""`lso`, `txn list`, `txn describe`, `producers`."""

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from eoctl.cli.emit import View
from eoctl.cli.options import Connection, Output, Topics
from eoctl.cli.runner import show, show_all
from eoctl.operations.inspect import lists as operations
from eoctl.render.tables import Column
from eoctl.render.words import Age, count, counted, spoken_age
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.row import LsoRow, ProducerRow, TxnDescribeRow, TxnListRow
from recovery.times import duration


def age_cell(seconds: float | None, clock: str | None) -> Age | None:
    """An age for a table: `~` before it where only a producer's clock tells it."""
    return None if seconds is None else Age(seconds, producer_clock=clock == "producer")


def _lso_cells(row: LsoRow) -> Mapping[str, object]:
    blocking = row.blocking
    if blocking is None:
        held_by = None if row.blocking_known else "not known"
        age = None
    else:
        held_by = blocking.transactional_id or f"pid {blocking.producer_id}"
        age = age_cell(blocking.age_seconds, blocking.age_clock)
    return {
        "mark": "?" if row.error or not row.blocking_known else "!" if row.held else None,
        "partition": f"{row.topic}:{row.partition}",
        "leader": row.leader,
        "log_start_offset": row.log_start_offset,
        "last_stable_offset": row.last_stable_offset,
        "high_watermark": row.high_watermark,
        "held": row.held,
        "age": age,
        "producer_id": blocking.producer_id if blocking else None,
        "producer_epoch": blocking.producer_epoch if blocking else None,
        "held_by": row.error or held_by,
    }


def _lso_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, LsoRow) and r.held]
    scanned = answer.extra["scanned"]
    assert isinstance(scanned, int)
    text = f"{count(len(rows))} of {counted(scanned, 'partition')} held back"
    ages = [
        (b.age_seconds, b.age_clock == "producer")
        for r in rows
        if (b := r.blocking) is not None and b.age_seconds is not None
    ]
    if ages:
        seconds, by_producer = max(ages)
        text += f"; oldest {spoken_age(seconds, producer_clock=by_producer)}"
    return with_gaps(text, answer)


def with_gaps(text: str, answer: Answer) -> str:
    """The closing sentence, which says so when something could not be seen."""
    if answer.complete:
        return text
    return f"{text}; INCOMPLETE, {counted(len(answer.errors), 'thing')} could not be seen"


LSO = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition", min_width=20),
        Column("leader", "LEADER", "number", wide_only=True),
        Column("log_start_offset", "START", "number", wide_only=True),
        Column("last_stable_offset", "LSO", "number", min_width=10),
        Column("high_watermark", "HW", "number", min_width=10),
        Column("held", "HELD", "number", min_width=8),
        Column("age", "AGE", "age", min_width=4),
        Column("producer_id", "PID", "number", wide_only=True),
        Column("producer_epoch", "EPOCH", "number", wide_only=True),
        Column("held_by", "HELD BY", "name"),
    ),
    cells=_lso_cells,
    name_keys=("topic", "partition"),
    fields=tuple(LsoRow.model_fields),
    summary=_lso_summary,
)


def lso(
    connection: Connection,
    output: Output,
    topics: Topics,
    all_: Annotated[bool, typer.Option("--all", help="healthy partitions too")] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="healthy internal partitions too")
    ] = False,
    all_contexts: Annotated[bool, typer.Option("--all-contexts")] = False,
) -> int:
    """Log start, LSO, high watermark, records held, and what blocks.

    Without TOPIC only partitions that are held back are shown; --all shows every one.
    """
    scope = operations.Scope(topics.selectors(), internal)
    return show_all(
        connection,
        output,
        LSO,
        lambda cluster, _: operations.lso(cluster, scope, show_all=all_),
        all_contexts=all_contexts,
    )


def _txn_cells(row: TxnListRow) -> Mapping[str, object]:
    late = (
        row.age_seconds is not None
        and row.timeout_ms is not None
        and row.age_seconds * 1000 > row.timeout_ms
    )
    return {
        "mark": "?" if row.error else "!" if late else None,
        "transactional_id": row.transactional_id,
        "coordinator": row.coordinator,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "state": row.state,
        "age": age_cell(row.age_seconds, "coordinator"),
        "timeout": None if row.timeout_ms is None else Age(row.timeout_ms / 1000),
        "partitions": row.partitions,
    }


def _txn_summary(answer: Answer) -> str:
    text = f"{counted(len(answer.rows), 'transactional id')}, {answer.extra['open']} open"
    seen, all_of = answer.extra["coordinators_seen"], answer.extra["coordinators"]
    return with_gaps(f"{text}; {seen} of {all_of} coordinator partitions answered", answer)


TXN_LIST = View(
    columns=(
        Column("mark", "", "mark"),
        Column("transactional_id", "TRANSACTIONAL ID", "name", min_width=17),
        Column("coordinator", "COORD", "number"),
        Column("producer_id", "PID", "number", min_width=7),
        Column("producer_epoch", "EPOCH", "number"),
        Column("state", "STATE", "text", min_width=7),
        Column("age", "AGE", "age", min_width=4),
        Column("timeout", "TIMEOUT", "age"),
        Column("partitions", "PARTS", "number"),
    ),
    cells=_txn_cells,
    name_keys=("transactional_id",),
    fields=tuple(TxnListRow.model_fields),
    summary=_txn_summary,
)


def txn_list(
    connection: Connection,
    output: Output,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Ongoing, Empty, ...")
    ] = None,
    pid: Annotated[list[int] | None, typer.Option("--pid", "--producer-id", metavar="N")] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            "--transactional-id-pattern",
            metavar="RE",
            help="ids whose whole name matches",
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            "--duration-filter",
            metavar="D",
            help="open for longer, by the coordinator's clock",
        ),
    ] = None,
) -> int:
    """Every coordinator's transactions: state, age, timeout, partitions."""
    wanted = operations.TxnFilter(
        states=tuple(operations.transaction_state(s) for s in state or ()),
        producer_ids=tuple(pid or ()),
        pattern=None if pattern is None else _pattern(pattern),
        longer_than=None
        if longer_than is None
        else duration(_kafka_habit(longer_than), where="--longer-than"),
    )
    return show(connection, output, TXN_LIST, lambda c: operations.txn_list(c, wanted))


def _kafka_habit(text: str) -> str:
    """Kafka's own --duration-filter takes milliseconds without a unit."""
    return f"{text}ms" if text.isdigit() else text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}", where="--pattern") from None


def _describe_cells(row: TxnDescribeRow) -> Mapping[str, object]:
    return {
        "transactional_id": row.transactional_id,
        "coordinator": row.coordinator,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "state": row.state,
        "age": age_cell(row.age_seconds, "coordinator"),
        "timeout": None if row.timeout_ms is None else Age(row.timeout_ms / 1000),
        "partitions": ",".join(f"{p.topic}:{p.partition}" for p in row.partitions) or None,
    }


TXN_DESCRIBE = View(
    columns=(
        Column("transactional_id", "TRANSACTIONAL ID", "name"),
        Column("coordinator", "COORD", "number"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number"),
        Column("state", "STATE", "text"),
        Column("age", "AGE", "age"),
        Column("timeout", "TIMEOUT", "age"),
        Column("partitions", "PARTITIONS", "name"),
    ),
    cells=_describe_cells,
    name_keys=("transactional_id",),
    fields=tuple(TxnDescribeRow.model_fields),
    summary=lambda answer: with_gaps(counted(len(answer.rows), "transactional id"), answer),
)


def txn_describe(
    connection: Connection,
    output: Output,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...")] = None,
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID")
    ] = None,
) -> int:
    """Transactional ids: coordinator, PID, epoch, state, timeout, start, age, partitions."""
    named = [*(ids or ()), *(transactional_id or ())]
    if not named:
        raise UsageError("no transactional id is named", remedy="eoctl txn describe ID...")
    return show(connection, output, TXN_DESCRIBE, lambda c: operations.txn_describe(c, named))


def _producer_cells(row: ProducerRow) -> Mapping[str, object]:
    return {
        "mark": "?" if row.error else "!" if row.stale_epoch else None,
        "partition": f"{row.topic}:{row.partition}",
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "last_sequence": row.last_sequence,
        "last_timestamp": None
        if row.last_timestamp is None
        else row.model_dump(mode="json", include={"last_timestamp"})["last_timestamp"],
        "coordinator_epoch": row.coordinator_epoch,
        "current_txn_start_offset": row.current_txn_start_offset,
        "transactional_id": row.transactional_id,
        "stale": "zombie" if row.stale_epoch else None,
    }


def _producer_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, ProducerRow)]
    opened = sum(r.current_txn_start_offset is not None for r in rows)
    text = f"{counted(len(rows), 'producer state')}, {count(opened)} with an open transaction"
    stale = sum(bool(r.stale_epoch) for r in rows)
    return with_gaps(text + (f", {count(stale)} of an older epoch" if stale else ""), answer)


PRODUCERS = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number"),
        Column("last_sequence", "SEQ", "number"),
        Column("last_timestamp", "LAST WRITE", "number", wide_only=True),
        Column("coordinator_epoch", "CEPOCH", "number", wide_only=True),
        Column("current_txn_start_offset", "TXN START", "number"),
        Column("transactional_id", "TRANSACTIONAL ID", "name"),
        Column("stale", "STALE", "text", wide_only=True),
    ),
    cells=_producer_cells,
    name_keys=("topic", "partition", "producer_id"),
    fields=tuple(ProducerRow.model_fields),
    summary=_producer_summary,
)


def producers(
    connection: Connection,
    output: Output,
    topics: Topics,
    pid: Annotated[list[int] | None, typer.Option("--pid", "--producer-id", metavar="N")] = None,
    resolve: Annotated[
        bool,
        typer.Option("--resolve", help="with transactional ids and zombies, from coordinators"),
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", help="internal topics too")] = False,
    segment: Annotated[
        list[str] | None,
        typer.Option("--segment", metavar="DIR", help="a broker's own files: LOG_DIR/TOPIC-P"),
    ] = None,
    blocks: Annotated[
        bool,
        typer.Option("--blocks", help="PID blocks handed out, by --segment or --zookeeper"),
    ] = False,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", metavar="HOST:PORT", help="for --blocks")
    ] = None,
) -> int:
    """Producer ids, epochs, last sequences and open transactions, partition by partition."""
    if segment or blocks or zookeeper:
        from eoctl.cli.commands import segments

        if output.interval is not None or resolve or topics.selectors() or connection.from_:
            raise UsageError("files are read once, alone", where="--segment, --blocks")
        if not blocks and zookeeper is None:
            return segments.show_segments(output, segment or (), pid or ())
        if not blocks or pid:
            raise UsageError("tells of blocks only", where="--zookeeper", remedy="add --blocks")
        return segments.show_blocks(output, segment or (), zookeeper)
    scope = operations.Scope(topics.selectors(), internal)
    return show(
        connection,
        output,
        PRODUCERS,
        lambda c: operations.producers(c, scope, producer_ids=pid or (), resolve=resolve),
    )
