"""The columns of a group's commits, and the sentences on those that stand out."""

from collections import Counter
from collections.abc import Iterator

from eoctl.render.columns.table import PARTITION, Table, marked, plain, with_gaps
from eoctl.render.tables import Column
from eoctl.render.words import spoken_age
from recovery.answers import Answer
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow
from recovery.plurals import counted
from recovery.times import rfc3339

MOST = 20  # sentences below the table


def _mark(row: OffsetsHistoryRow) -> str | None:
    return "!" if row.event is not None or row.outcome == "pending" else None


def by(row: OffsetsHistoryRow) -> str | None:
    if row.journal_entry is not None:
        return "eoctl"
    if row.producer_id is not None:
        return row.transactional_id or f"pid {row.producer_id}"
    return None if row.committed_by is None else row.committed_by.replace("-", " ")


def moved(row: OffsetsHistoryRow) -> str | None:
    return None if row.moved is None else f"{row.moved:+d}"


def outcome(row: OffsetsHistoryRow) -> str | None:
    """Return what became of it, if it is in a transaction or does not count."""
    overtaken = row.counts is False and row.outcome != "aborted"
    return "overtaken" if overtaken else row.outcome


def event(row: OffsetsHistoryRow) -> str | None:
    return None if row.event is None else row.event + ("" if row.proven else "?")


def _metadata(row: OffsetsHistoryRow) -> str | None:
    """Return the metadata without the NUL that librdkafka appends."""
    return (row.metadata or "").removesuffix("\0") or None


def sentence(row: OffsetsHistoryRow) -> str:
    """Return what happened at such a commit, on which evidence, and what would settle a guess."""
    where = f"{rfc3339(row.timestamp)} {row.topic}:{row.partition}"
    text = _TEXTS[row.event or ""].format(
        now=row.committed_offset,
        before=row.previous_offset,
        age=spoken_age(_age(row)),
        who=by(row),
    )
    if row.event == "reset" and row.journal_entry is not None:
        return (
            f"{where} moved from {row.previous_offset} to {row.committed_offset} by eoctl: "
            f"journal entry {row.journal_entry}"
        )
    if row.event == "reset" and not row.proven:
        text += "; a guess: records of its members may have been compacted"
    if row.event == "back":
        whose = {
            "member": ", by a member of the group",
            "no-member": ", by a client that assigns its partitions itself, or a tool",
            "transaction": f", by {by(row)}",
        }
        text += whose.get(row.committed_by or "", ", by whom is not known")
    if row.initialised_at is not None:
        text += (
            f"; that id was initialised at {rfc3339(row.initialised_at)}: an application started"
        )
    return f"{where} {text}"


def _age(row: OffsetsHistoryRow) -> float:
    if row.timestamp is None or row.previous_timestamp is None:
        return 0.0
    return max(row.timestamp - row.previous_timestamp, 0) / 1000


_TEXTS = {
    "reset": "moved from {before} to {now} while the group had no members: a tool such as "
    "kafka-consumer-groups, or a client that assigns partitions itself; Kafka records no client, "
    "a broker's request log does",
    "back": "went back from {before} to {now}: what is between is read again",
    "leap": "leapt from {before} to {now}, {age} after the commit before: a guess, since all moves "
    "before were a tenth of that; records may have been skipped",
    "expired": "lost its offset {before}, {age} after its commit: a guess, since "
    "offsets.retention.minutes had passed by then, but a tool could have deleted it too",
    "deleted": "lost its offset {before}, {age} after its commit: the offset, the group or the "
    "topic was deleted; for expiry it was too early, or the retention is not known",
}


def _below(answer: Answer) -> Iterator[str]:
    rows = [r for r in answer.rows if isinstance(r, OffsetsHistoryRow) and r.event is not None]
    if len(rows) > MOST:
        yield f"the newest {MOST} of {len(rows)} that stand out:"
    for row in rows[-MOST:]:
        yield f" {sentence(row)}"


def _summary(answer: Answer) -> str:
    rows = [r for r in answer.rows if isinstance(r, OffsetsHistoryRow)]
    partitions = {r.topic_partition for r in rows}
    text = f"{counted(len(rows), 'record')} of {counted(len(partitions), 'partition')}"
    events = Counter(event(r) for r in rows if r.event is not None)
    text += "".join(f", {number} {event}" for event, number in sorted(events.items()))
    if kept := answer.extra.get("kept"):
        text += f"; {kept} of them from an earlier look, not in this one"
    if left_out := answer.extra["left_out"]:
        text += f"; {counted(left_out, 'older record')} left out: --newest, --since"
    return with_gaps(text + _completeness(answer), answer)


def _completeness(answer: Answer) -> str:
    if answer.extra["whole"]:
        return "; complete: this part of the log was never compacted"
    since = answer.extra["complete_since"]
    if since is None:
        return "; older ones were compacted: each partition's newest is left"
    return f"; complete since {since}: before, each partition's newest is left"


COMMITS = Table(
    OffsetsHistoryRow,
    (
        marked(_mark),
        Column("timestamp", "TIME", "number", lambda row: rfc3339(row.timestamp)),
        PARTITION,
        Column(
            "committed_offset",
            "COMMITTED",
            "number",
            lambda row: "(deleted)" if row.deleted else row.committed_offset,
        ),
        Column("moved", "MOVED", "number", moved),
        Column("by", "BY", "name", by),
        Column("outcome", "OUTCOME", "word", outcome),
        Column("event", "EVENT", "word", event),
        Column("leader_epoch", "EPOCH", "number", wide_only=True),
        Column("producer_id", "PID", "number", wide_only=True),
        *(
            Column(c.key, c.title, c.kind, wide_only=True)
            for c in plain("number", record_offset="OFFSET", marker_offset="MARKER")
        ),
        Column("metadata", "METADATA", "name", _metadata, wide_only=True),
    ),
    names=("topic", "partition", "record_offset"),
    in_order=True,
    summary=_summary,
    below=_below,
)
