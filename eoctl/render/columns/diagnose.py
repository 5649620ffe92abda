"""The columns of verdicts, the status of a cluster and the history of an id."""

from eoctl.render.columns.table import (
    EPOCH,
    TRANSACTIONAL_ID,
    Table,
    age_cell,
    age_of,
    marked,
    partition_name,
    plain,
    with_gaps,
)
from eoctl.render.tables import Column
from eoctl.render.watch_words import growth_line
from eoctl.render.words import spoken_age
from recovery.answers import Answer
from recovery.diagnose.diagnosis import mark
from recovery.diagnose.diagnosis_rows import StatusRow, TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.inspect.cluster_rows import HistoryRow
from recovery.plurals import count, counted
from recovery.quoting import some
from recovery.times import format_duration, rfc3339


def verdict(row: TxnHangingRow) -> str:
    """Return the verdict's name as tables show it."""
    return "marker-lost mixed" if row.mixed else row.verdict


def _hanging_summary(answer: Answer) -> str:
    verdicts = answer.extra["verdicts"]
    quiet = sum(verdicts.get(name, 0) for name in ("open", "prepare"))
    rows = [r for r in answer.rows if isinstance(r, TxnHangingRow)]
    by_verdict = ", ".join(f"{count(n)} {name}" for name, n in verdicts.items() if n) or "none open"
    text = f"{counted(sum(verdicts.values()), 'open transaction')} judged: {by_verdict}"
    without = sum(r.topic is None for r in rows)
    if without:
        text += f"; {counted(without, 'of them holds', 'of them hold')} no partition"
    if quiet and not any(r.verdict in ("open", "prepare") for r in rows):
        text += " (open and prepare are hidden: --all)"
    if answer.extra["pause_seconds"] is not None:
        text += f"; looked twice, {format_duration(answer.extra['pause_seconds'])} apart"
    return with_gaps(text, answer)


HANGING = Table(
    TxnHangingRow,
    (
        marked(lambda row: mark(row.verdict)),
        Column("verdict", "VERDICT", "text", verdict, min_width=11),
        Column("partition", "TOPIC:PARTITION", "partition", partition_name, min_width=16),
        Column("age", "AGE", "age", age_of, min_width=4),
        Column("producer_id", "PID", "number", min_width=6),
        EPOCH,
        Column("start_offset", "START OFFSET", "number"),
        Column("owner", "OWNER", "name", lambda row: row.transactional_id or "none", min_width=6),
        Column("state", "STATE", "text", wide_only=True),
        Column("rule", "RULE", "text", wide_only=True),
        Column("remedy", "REMEDY", "text", lambda row: row.remedy.action),
        Column("command", "COMMAND", "command", lambda row: row.remedy.command, wide_only=True),
    ),
    names=("topic", "partition", "producer_id"),
    summary=_hanging_summary,
)


def _oldest(row: StatusRow) -> object:
    return age_cell(row.oldest_seconds, row.age_clock)


def _status_heading(answer: Answer) -> str:
    extra = answer.extra
    words = [
        str(extra["context"]),
        f"brokers {extra['brokers_up']}/{extra['brokers_known']}",
        _time_of_day(answer.collected_at),
    ]
    words += [
        w for w, on in (("READ-ONLY", extra["read_only"]), ("PROTECTED", extra["protected"])) if on
    ]
    return "  ".join(words)


def _time_of_day(epoch_ms: int) -> str:
    """Return the time of day, UTC."""
    seconds = epoch_ms // 1000 % 86_400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"


def _status_summary(answer: Answer) -> str:
    extra = answer.extra
    verdicts = extra["verdicts"]
    quiet = sum(verdicts.get(name, 0) for name in ("open", "prepare"))
    held, scanned, opened = (extra[key] for key in ("held_back", "scanned", "open_transactions"))
    if not answer.rows:
        text = (
            f"nothing held back; {counted(opened, 'open transaction')}, all within limits"
            if not held
            else f"{counted(held, 'partition')} held by {counted(quiet, 'open transaction')}, "
            "all within limits"
        )
        return with_gaps(text, answer)
    text = f"{count(held)} of {counted(scanned, 'partition')} held back"
    oldest = [
        (r.oldest_seconds, r.age_clock == "producer")
        for r in answer.rows
        if isinstance(r, StatusRow) and r.oldest_seconds is not None
    ]
    if oldest:
        seconds, by_producer = max(oldest)
        text += f"; oldest {spoken_age(seconds, producer_clock=by_producer)}"
    if quiet:
        text += f"; {counted(quiet, 'other transaction')} within limits"
    return with_gaps(text, answer)


STATUS = Table(
    StatusRow,
    (
        marked(lambda row: mark(row.verdict)),
        Column("verdict", "VERDICT", "text", min_width=11),
        *plain("number", transactions="TXNS", partitions="PARTITIONS"),
        Column("oldest", "OLDEST", "age", _oldest, min_width=6),
        Column("groups", "GROUPS", "number"),
        Column("worst", "WORST", "partition", min_width=14),
        Column("next", "NEXT", "text"),
    ),
    names=("verdict",),
    summary=_status_summary,
    below=lambda answer: map(growth_line, answer.extra.get("growth") or ()),
    heading=_status_heading,
)


def _older(answer: Answer) -> str:
    """Say which records are missing before the first one of an id."""
    left_out = answer.extra.get("left_out")
    if left_out:
        return f"; earlier ones of {some(left_out)} are left out: --newest N shows more"
    return "" if answer.extra["whole"] else "; older ones were compacted away, or not kept"


HISTORY = Table(
    HistoryRow,
    (
        Column("timestamp", "TIME", "number", lambda row: rfc3339(row.timestamp)),
        TRANSACTIONAL_ID,
        Column("state", "STATE", "text", lambda row: "(forgotten)" if row.tombstone else row.state),
        *plain("number", producer_id="PID", producer_epoch="EPOCH"),
        Column("epoch_bump", "BUMP", "text"),
        Column("partitions", "PARTITIONS", "name", lambda row: ",".join(row.partitions) or None),
        Column("coordinator_partition", "LOG", "number", wide_only=True),
        Column("offset", "OFFSET", "number", wide_only=True),
    ),
    names=("transactional_id", "offset"),
    summary=lambda answer: with_gaps(
        f"{counted(len(answer.rows), 'record')} of "
        f"{counted(answer.extra['transactional_ids'], 'transactional id')}" + _older(answer),
        answer,
    ),
)
WHY = Table(WhyRow, names=("topic", "partition"))  # its lines: eoctl.render.why
