"""The columns of partitions, transactional ids, producers, groups and offsets."""

from collections.abc import Iterator

from eoctl.render.columns.table import (
    PARTITION,
    RANGE,
    TRANSACTIONAL_ID,
    Table,
    age_of,
    marked,
    plain,
    with_gaps,
)
from eoctl.render.tables import Column
from eoctl.render.words import Age, spoken_age
from recovery.answers import Answer
from recovery.inspect.cluster_rows import (
    LsoRow,
    OffsetsCountRow,
    OffsetsShowRow,
    ProducerBlockRow,
    ProducerRow,
    TxnDescribeRow,
    TxnListRow,
)
from recovery.plurals import count, counted
from recovery.times import rfc3339
from recovery.values import replace


def _lso_mark(row: LsoRow) -> str | None:
    return "?" if row.error or not row.blocking_known else "!" if row.held else None


def _held_by(row: LsoRow) -> str | None:
    if row.error:
        return row.error
    if row.blocking is None:
        return None if row.blocking_known else "not known"
    return row.blocking.transactional_id or f"pid {row.blocking.producer_id}"


def _blocking_id(row: LsoRow) -> int | None:
    return row.blocking.producer_id if row.blocking else None


def _blocking_epoch(row: LsoRow) -> int | None:
    return row.blocking.producer_epoch if row.blocking else None


def _lso_age(row: LsoRow) -> Age | None:
    return age_of(row.blocking) if row.blocking else None


def _lso_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, LsoRow) and r.held]
    scanned = answer.extra["scanned"]
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


LSO = Table(
    LsoRow,
    (
        marked(_lso_mark),
        replace(PARTITION, min_width=20),
        Column("leader", "LEADER", "number", wide_only=True),
        Column("log_start_offset", "START", "number", wide_only=True),
        Column("last_stable_offset", "LSO", "number", min_width=10),
        Column("high_watermark", "HW", "number", min_width=10),
        Column("held", "HELD", "number", min_width=8),
        Column("age", "AGE", "age", _lso_age, min_width=4),
        Column("producer_id", "PID", "number", _blocking_id, wide_only=True),
        Column("producer_epoch", "EPOCH", "number", _blocking_epoch, wide_only=True),
        Column("held_by", "HELD BY", "name", _held_by),
    ),
    names=("topic", "partition"),
    summary=_lso_summary,
)


def _txn_mark(row: TxnListRow) -> str | None:
    late = (
        row.age_seconds is not None
        and row.timeout_ms is not None
        and row.age_seconds * 1000 > row.timeout_ms
    )
    return "?" if row.error else "!" if late else None


def _timeout(row: TxnListRow | TxnDescribeRow) -> Age | None:
    return None if row.timeout_ms is None else Age(row.timeout_ms / 1000)


def _txn_summary(answer: Answer) -> str:
    text = f"{counted(len(answer.rows), 'transactional id')}, {answer.extra['open']} open"
    answered, all_of = answer.extra["coordinators_seen"], answer.extra["coordinators"]
    return with_gaps(
        f"{text}; {answered} of {counted(all_of, 'coordinator partition')} answered", answer
    )


TXN_LIST = Table(
    TxnListRow,
    (
        marked(_txn_mark),
        Column("transactional_id", "TRANSACTIONAL ID", "name", min_width=17),
        Column("coordinator", "COORD", "number"),
        Column("producer_id", "PID", "number", min_width=7),
        Column("producer_epoch", "EPOCH", "number"),
        Column("state", "STATE", "text", min_width=7),
        Column("age", "AGE", "age", lambda row: row.age_seconds, min_width=4),
        Column("timeout", "TIMEOUT", "age", _timeout),
        Column("partitions", "PARTS", "number"),
    ),
    names=("transactional_id",),
    summary=_txn_summary,
)


def _partitions(row: TxnDescribeRow) -> str | None:
    return ",".join(str(p.topic_partition) for p in row.partitions) or None


def _connect(row: TxnDescribeRow) -> str | None:
    return None if row.connect is None else row.connect.said


TXN_DESCRIBE = Table(
    TxnDescribeRow,
    (
        TRANSACTIONAL_ID,
        *plain("number", coordinator="COORD", producer_id="PID", producer_epoch="EPOCH"),
        Column("state", "STATE", "text"),
        Column("age", "AGE", "age", lambda row: row.age_seconds),
        Column("timeout", "TIMEOUT", "age", _timeout),
        Column("partitions", "PARTITIONS", "name", _partitions),
        Column("connect", "CONNECT", "name", _connect, wide_only=True),
    ),
    names=("transactional_id",),
    summary=lambda answer: with_gaps(counted(len(answer.rows), "transactional id"), answer),
)


def _producer_mark(row: ProducerRow) -> str | None:
    return "?" if row.error else "!" if row.wrote_after_fence else None


def _stale(row: ProducerRow) -> str | None:
    if row.stale_epoch:
        return "zombie"
    return "older" if row.older_epoch else None


def _last_write(row: ProducerRow) -> str | None:
    return rfc3339(row.last_timestamp)


def _producer_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, ProducerRow)]
    opened = sum(r.current_txn_start_offset is not None for r in rows)
    text = f"{counted(len(rows), 'producer state')}, {count(opened)} with an open transaction"
    older = sum(bool(r.older_epoch) for r in rows)
    text += f", {count(older)} older" if older else ""
    zombies = sum(bool(r.stale_epoch) for r in rows)
    text += f" ({counted(zombies, 'zombie')})" if zombies else ""
    return with_gaps(text, answer)


def _producer_note(answer: Answer) -> Iterator[str]:
    if any(_stale(r) == "older" for r in answer.rows if isinstance(r, ProducerRow)):
        yield "an older epoch does not prove a dead process: `eoctl explain older`"


PRODUCERS = Table(
    ProducerRow,
    (
        marked(_producer_mark),
        PARTITION,
        *plain("number", producer_id="PID", producer_epoch="EPOCH", last_sequence="SEQ"),
        Column("last_timestamp", "LAST WRITE", "number", _last_write, wide_only=True),
        Column("coordinator_epoch", "CEPOCH", "number", wide_only=True),
        Column("current_txn_start_offset", "TXN START", "number"),
        TRANSACTIONAL_ID,
        Column(
            "stale",
            "STALE",
            "text",
            _stale,
            wide_only=True,
        ),
    ),
    names=("topic", "partition", "producer_id"),
    summary=_producer_summary,
    below=_producer_note,
)
BLOCKS = Table(
    ProducerBlockRow,
    (
        Column("first", "FIRST PID", "number", lambda row: row.first_producer_id),
        Column("last", "LAST PID", "number", lambda row: row.last_producer_id),
        Column("broker", "BROKER", "number"),
        Column("broker_epoch", "BROKER EPOCH", "number", wide_only=True),
        Column("offset", "OFFSET", "number", wide_only=True),
        Column("source", "SOURCE", "name"),
    ),
    names=("first_producer_id", "last_producer_id"),
    summary=lambda answer: with_gaps(
        f"{counted(len(answer.rows), 'block')} of producer ids handed out", answer
    ),
)


def _count_summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, OffsetsCountRow) and r.error is None]
    offsets = sum((r.end or 0) - (r.start or 0) for r in rows)
    data = sum(r.data_records or 0 for r in rows)
    text = f"{counted(data, 'data record')} on {counted(offsets, 'offset')}"
    opened = sum(r.open_records or 0 for r in rows)
    if opened:
        text += f"; {count(opened)} open: not decided yet, not counted as data"
    return with_gaps(text, answer)


COUNT = Table(
    OffsetsCountRow,
    (
        marked(lambda row: "?" if row.error else None),
        PARTITION,
        *RANGE,
        *plain("number", data_records="DATA", aborted_records="ABORTED", control_records="CONTROL"),
        *plain("number", open_records="OPEN", missing_offsets="MISSING"),
        Column("error", "ERROR", "text"),
    ),
    names=("topic", "partition"),
    summary=_count_summary,
)


def _group_mark(row: OffsetsShowRow) -> str | None:
    waits_behind_lso = row.lag is not None and row.lag <= 0 and (row.lag_hw or 0) > 0
    return "?" if row.error else "!" if row.pending or waits_behind_lso else None


def _pending(row: OffsetsShowRow) -> str | None:
    """Return `50 by pid 4007`, or what of that is known."""
    if row.error or not row.pending:
        return row.error
    offset, pid = row.pending_offset, row.pending_producer_id
    if pid is None:
        return "yes"
    return f"pid {pid}" if offset is None else f"{offset} by pid {pid}"


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
    text = f"{counted(len(groups), 'group')}, {counted(len(rows), 'committed offset')}"
    pending = sum(bool(r.pending) for r in rows)
    return with_gaps(f"{text}, {count(pending)} with a pending commit", answer)


def _margin(row: OffsetsShowRow) -> float | None:
    return row.retention_margin_seconds


def _metadata(row: OffsetsShowRow) -> str | None:
    """Return the metadata of the offset, without the NUL that librdkafka appends."""
    return (row.metadata or "").removesuffix("\0") or None


OFFSETS = Table(
    OffsetsShowRow,
    (
        marked(_group_mark),
        Column("group", "GROUP", "name"),
        PARTITION,
        Column("committed_offset", "COMMITTED", "number"),
        Column("leader_epoch", "EPOCH", "number", wide_only=True),
        Column("last_stable_offset", "LSO", "number"),
        Column("high_watermark", "HW", "number", wide_only=True),
        *plain("number", lag="LAG", lag_hw="LAG-HW"),
        Column("data_records", "RECORDS", "number", wide_only=True),
        Column("lag_seconds", "LAG TIME", "age", wide_only=True),
        Column("retention_margin", "MARGIN", "age", _margin, wide_only=True),
        Column("retention", "DELETES BY", "word", wide_only=True),
        Column("pending", "PENDING", "text", _pending),
        Column("metadata", "METADATA", "name", _metadata, wide_only=True),
    ),
    names=("group", "topic", "partition"),
    summary=_show_summary,
)
_COUNTED = frozenset({"data_records"})
_IN_TIME = frozenset({"lag_seconds", "retention_margin"})  # `retention` is read with them


def offsets_table(*, counted: bool, in_time: bool) -> Table:
    """Return the table of `offsets show`, with the columns that were asked for."""
    asked = (_COUNTED if counted else frozenset()) | (_IN_TIME if in_time else frozenset())
    columns = [replace(c, wide_only=c.wide_only and c.key not in asked) for c in OFFSETS.columns]
    return replace(OFFSETS, columns=columns)
