"""The columns of a transaction's records, and what is said about those that are not shown."""

import json
from collections.abc import Sequence

from eoctl.render.columns.table import Table, with_gaps
from eoctl.render.tables import Column, render_table
from recovery.answers import Answer
from recovery.inspect.cluster_rows import BesideRow, RecordRow
from recovery.plurals import counted
from recovery.values import replace


def _readable(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, default=str)


def _headers(row: RecordRow) -> str | None:
    pairs = [f"{h.name}={h.value_decoded or ''}" for h in row.headers or ()]
    return ", ".join(pairs) or None


_FOUND = {"not-in-range": "not found", "no-key": "no key"}
_SAME = {"same-value": "same value", "same-key": "same key, other value"}


def _beside(row: RecordRow) -> str | None:
    found: BesideRow | None = row.beside
    if found is None:
        return None
    if found.offset is None:
        return _FOUND[found.found]
    return f"{found.topic}:{found.partition} offset {found.offset}, {_SAME[found.found]}"


def _summary(answer: Answer) -> str:
    held, waiting = (
        sum(isinstance(r, RecordRow) and r.which == which for r in answer.rows)
        for which in ("held", "waiting")
    )
    text = f"{counted(held, 'record')} of the transaction, {waiting} of those that wait after it"
    return with_gaps(text, answer)


RECORDS = Table(
    RecordRow,
    (
        Column("which", "WHICH", "word"),
        Column("offset", "OFFSET", "number"),
        Column("timestamp", "TIME", "time", lambda row: row.timestamp),
        Column("producer_id", "PID", "number", wide_only=True),
        Column("key", "KEY", "name", lambda row: _readable(row.key_decoded)),
        Column("value", "VALUE", "text", lambda row: _readable(row.value_decoded)),
        Column("value_bytes", "BYTES", "number", wide_only=True),
        Column("headers", "HEADERS", "text", _headers),
        Column("beside", "IN THE OUTPUT", "text", _beside),
        Column("problem", "NOT DECODED", "text"),
    ),
    names=("topic", "partition", "offset"),
    summary=_summary,
)


def _columns(rows: Sequence[RecordRow]) -> list[Column]:
    """Return the columns, without those of which no row has anything."""
    empty = {
        name
        for name in ("value", "headers", "beside", "problem")
        if all(c.of(row) is None for c in RECORDS.columns if c.key == name for row in rows)
    }
    if any(row.value_bytes is not None and row.value is not None for row in rows):
        empty.discard("value")
    return [c for c in RECORDS.columns if c.key not in empty]


def records_table(answer: Answer) -> Table:
    """Return the table of an answer's records: with headers, say, only if it has some."""
    return replace(RECORDS, columns=_columns([r for r in answer.rows if isinstance(r, RecordRow)]))


def record_lines(rows: Sequence[RecordRow], width: int | None, *, ascii_only: bool) -> list[str]:
    """Return the records as the last lines of a page. width: the terminal's, None without one."""
    if not rows:
        return [" none could be read"]
    columns = _columns(rows)
    cells = [{c.key: c.of(row) for c in columns} for row in rows]
    room = None if width is None else width - 1
    return [f" {line}" for line in render_table(cells, columns, width=room, ascii_only=ascii_only)]


def notes_of(answer: Answer) -> list[str]:
    """Return the sentences about records that are not shown, and about an output's range."""
    extra = answer.extra
    if extra["read_to"] is None:
        return []
    notes = [*_deleted(answer), *_ended(answer), *_left_out(answer)]
    for r in extra["beside"] or ():
        where = f"{r['topic']}:{r['partition']}"
        since = "" if r["from_timestamp"] is None else f" ({r['from_timestamp']})"
        text = f"{where} was searched from offset {r['from']}{since} to {r['to']}"
        if not r["complete"]:
            text += f", not on to its last stable offset {r['last_stable_offset']}"
        notes.append(text)
    beside = [r.beside.found for r in answer.rows if isinstance(r, RecordRow) and r.beside]
    if "not-in-range" in beside:
        notes.append("what was not found there may be elsewhere in the output: --beside-from")
    if "no-key" in beside:
        notes.append("records without a key cannot be looked for")
    return notes


def _deleted(answer: Answer) -> list[str]:
    extra = answer.extra
    start, begin = extra["start_offset"], extra["log_start_offset"]
    if start >= begin:
        return []
    text = f"offsets {start} to {begin - 1} were deleted, by retention or DeleteRecords"
    rest = "" if extra["held_records"] else "; nothing of the transaction is left in the log"
    return [f"{text}: the log begins at {begin}{rest}"]


def _ended(answer: Answer) -> list[str]:
    ended = answer.extra["ended"]
    if ended is None:
        return []
    outcome, offset = ended["outcome"].upper(), ended["offset"]
    return [
        f"the transaction is over: its {outcome} marker is at offset {offset}; nothing waits for it"
    ]


def _left_out(answer: Answer) -> list[str]:
    """Say how many records there are, and which of them never show."""
    extra = answer.extra
    least = "" if extra["read_to"] >= extra["high_watermark"] or extra["ended"] else "at least "
    text = f"the transaction has {least}{counted(extra['held_records'], 'record')}"
    if not extra["ended"]:
        text += f"; {least}{counted(extra['waiting_records'], 'record waits', 'records wait')}"
        if extra["other_open_records"]:
            count = counted(extra["other_open_records"], "record")
            text += f"; {count} of other open transactions not shown"
        if extra["aborted_records"]:
            count = counted(extra["aborted_records"], "aborted record")
            text += f"; {count}, which readers never get, not shown"
    return [text]
