"""The columns of a Flink checkpoint's transactions, and of the records salvaged from them."""

from collections import Counter

from eoctl.render.columns.table import EPOCH, Table, marked, with_gaps
from eoctl.render.tables import Column
from eoctl.render.words import Age
from recovery.answers import Answer
from recovery.plurals import count, counted
from recovery.remedy.checkpoint_rows import CommittableRow, SalvageRow
from recovery.times import format_duration

_MARKS = {"open": "!", "lost": "!!", "unknown": "?"}
_ORDER = ("lost", "unknown", "open", "not-in-checkpoint", "committed")


def _left(row: CommittableRow) -> Age | None:
    return None if row.ends_in_seconds is None else Age(max(0.0, row.ends_in_seconds))


def what(row: CommittableRow) -> str:
    """Say what the fate means; for an open transaction its deadline and the loss after it."""
    records = None if row.records is None else counted(row.records, "record")
    if row.fate == "lost":
        ranges = ", ".join(
            f"{w.topic_partition} ({count(w.records)} from {w.first_offset} to {w.last_offset})"
            for w in row.written
        )
        least = "records not all counted" if records is None else records
        where = (
            f"they are in the log, aborted, in {ranges}"
            if ranges
            else "they are no longer in any log"
        )
        return f"{row.detail}; {least} lost: {where}"
    if row.fate == "open":
        lost = (
            "its records are"
            if row.records is None
            else counted(row.records, "record is", "records are")
        )
        return f"{_deadline(row)} {lost} lost"
    if row.fate == "not-in-checkpoint":
        return f"{row.detail} ({records or 'records not counted'})"
    return row.detail


def _deadline(row: CommittableRow) -> str:
    left = row.ends_in_seconds
    if left is None:
        return "when its coordinator aborts it,"
    if left <= 0:
        return "its deadline has passed: at any moment"
    return f"{format_duration(int(left))} left, then"


def _summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, CommittableRow)]
    fates: Counter[str] = Counter(r.fate for r in rows)
    name = "savepoint" if answer.extra["savepoint"] else "checkpoint"
    promised = sum(n for fate, n in fates.items() if fate != "not-in-checkpoint")
    text = f"{name} {answer.extra['checkpoint_id']}: {counted(promised, 'transaction')}"
    if rows:
        text += ": " + ", ".join(f"{count(fates[f])} {f}" for f in _ORDER if fates[f])
    due = [r for r in rows if r.fate == "open" and r.ends_in_seconds is not None]
    if due:
        first = min(due, key=lambda r: r.ends_in_seconds or 0.0)
        lost = sum(r.records or 0 for r in due)
        text += f"; {_deadline(first)} the loss of {counted(lost, 'record')} begins"
    for where in ("folder", "kafka"):
        if newer := answer.extra[f"newer_in_{where}"]:
            source = "lies beside it" if where == "folder" else "was committed in Kafka"
            text += f"; a NEWER checkpoint, {newer[-1]}, {source}"
    for skipped in answer.extra["skipped"]:
        text += f"; skipped: {skipped}"
    return with_gaps(text, answer)


COMMITTABLES = Table(
    CommittableRow,
    (
        marked(lambda row: _MARKS.get(row.fate)),
        Column("fate", "FATE", "text", min_width=9),
        Column("transactional_id", "TRANSACTIONAL ID", "name", min_width=12),
        Column("producer_id", "PID", "number", wide_only=True),
        EPOCH,
        Column("checkpoint_id", "CHECKPOINT", "number", wide_only=True),
        Column("state", "STATE", "text", wide_only=True),
        Column("records", "RECORDS", "number", min_width=7),
        Column("ends_in", "LEFT", "age", _left, min_width=4),
        Column("what", "WHAT", "text", what),
    ),
    names=("transactional_id",),
    summary=_summary,
)


def _range(first: int | None, last: int | None) -> str | None:
    return None if first is None else f"{first} to {last}"


def _salvaged(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, SalvageRow)]
    parts = [
        f"{counted(sum(r.records for r in rows if r.status == status), 'record')} {status}"
        for status in ("lost", "refused", "salvaged")
        if any(r.status == status for r in rows)
    ]
    text = "; ".join(parts) or "nothing is lost"
    if others := answer.extra["not_lost"]:
        named = ", ".join(f"{count(number)} {fate}" for fate, number in others.items())
        text += f"; transactions that are not lost: {named}"
    if any(r.status == "lost" for r in rows):
        text += "; --execute copies what is lost"
    return with_gaps(text, answer)


SALVAGE = Table(
    SalvageRow,
    (
        marked(lambda row: {"lost": "!!", "refused": "?"}.get(row.status)),
        Column("status", "STATUS", "text", min_width=8),
        Column("transactional_id", "TRANSACTIONAL ID", "name", min_width=12),
        Column("producer_id", "PID", "number", wide_only=True),
        EPOCH,
        Column(
            "partition",
            "TOPIC:PARTITION",
            "partition",
            lambda r: None if r.topic is None else f"{r.topic}:{r.partition}",
        ),
        Column("records", "RECORDS", "number", min_width=7),
        Column("from", "FROM OFFSETS", "text", lambda r: _range(r.first_offset, r.last_offset)),
        Column("to_topic", "COPIED TO", "name"),
        Column("to", "AT OFFSETS", "text", lambda r: _range(r.to_first_offset, r.to_last_offset)),
        Column("detail", "DETAIL", "text", lambda r: r.detail),
    ),
    names=("transactional_id",),
    summary=_salvaged,
)
