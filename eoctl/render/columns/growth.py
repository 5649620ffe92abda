"""The columns of what grows: producers and transactional ids, counted."""

from eoctl.render.columns.table import Table, marked, plain, with_gaps
from eoctl.render.tables import Column
from eoctl.render.watch_words import internal_topic_line, prefix_name
from recovery.answers import Answer
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
from recovery.plurals import count, counted
from recovery.times import format_duration

NO_OWNER, UNKNOWN_OWNER = "(no transactional id)", "(owner not known)"


def _counted_name(row: ProducersSummaryRow) -> str | None:
    """Return the broker, topic, partition or prefix that the row counts."""
    if row.by == "broker":
        return None if row.broker is None else str(row.broker)
    if row.by == "topic":
        return row.topic
    if row.by == "partition":
        return f"{row.topic}:{row.partition}"
    if row.prefix is not None:
        return prefix_name(row.prefix)
    return NO_OWNER if row.owner_known else UNKNOWN_OWNER


def _producers_summary(answer: Answer) -> str:
    extra = answer.extra
    text = (
        f"{counted(extra['producer_ids'], 'producer id')}, "
        f"{counted(extra['producer_states'], 'producer state')} on "
        f"{counted(extra['scanned'], 'partition')}"
    )
    hidden = [f"{count(n)} more by {by}" for by, n in extra["left_out"].items() if n]
    return with_gaps(text + _looks(answer) + _left_out(hidden), answer)


def _txn_summary(answer: Answer) -> str:
    extra = answer.extra
    text = (
        f"{counted(extra['transactional_ids'], 'transactional id')} with "
        f"{counted(extra['prefixes'], 'prefix', 'prefixes')}, {count(extra['open'])} open; "
        f"{extra['coordinators_seen']} of "
        f"{counted(extra['coordinators'], 'coordinator partition')} answered"
    )
    hidden = [f"{counted(n, 'prefix', 'prefixes')} more"] if (n := extra["left_out"]) else []
    return with_gaps(text + _looks(answer) + _left_out(hidden), answer)


def _looks(answer: Answer) -> str:
    seconds = answer.extra["pause_seconds"]
    return "" if seconds is None else f"; looked twice, {format_duration(round(seconds, 1))} apart"


def _left_out(hidden: list[str]) -> str:
    return f"; {', '.join(hidden)}: --top 0 shows all" if hidden else ""


PRODUCERS_SUMMARY = Table(
    ProducersSummaryRow,
    (
        marked(lambda row: "?" if row.partitions_unseen or row.owner_known is False else None),
        Column("by", "BY", "word"),
        Column("name", "NAME", "name", _counted_name),
        *plain("number", producer_states="STATES", producer_ids="PIDS", partitions="PARTITIONS"),
        Column("open", "OPEN", "number"),
        *plain("number", new_states="NEW", new_per_hour="NEW/H"),
        Column("broker", "LEADER", "number", wide_only=True),
        Column("partitions_unseen", "UNSEEN", "number", wide_only=True),
    ),
    names=("by", "broker", "topic", "partition", "prefix"),
    summary=_producers_summary,
)


def _states(row: TxnSummaryRow) -> str:
    return ", ".join(f"{count(n)} {state}" for state, n in row.states.items())


TXN_SUMMARY = Table(
    TxnSummaryRow,
    (
        Column("prefix", "PREFIX", "name", lambda row: prefix_name(row.prefix)),
        *plain("number", transactional_ids="IDS", open="OPEN", idle="IDLE"),
        Column("oldest_idle", "OLDEST IDLE", "age", lambda row: row.oldest_idle_seconds),
        *plain("number", new_ids="NEW", new_per_hour="NEW/H"),
        Column("states", "STATES", "text", _states),
        Column("oldest_idle_id", "OLDEST IDLE ID", "name", wide_only=True),
        Column("idle_unknown", "NO TIME", "number", wide_only=True),
    ),
    names=("prefix",),
    in_order=True,  # the most ids first
    summary=_txn_summary,
    below=lambda answer: map(internal_topic_line, answer.extra["internal_topics"]),
)
