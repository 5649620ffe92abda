"""`txn commit --checkpoint`: show what became of the transactions in a Flink checkpoint."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.producer_records import Transaction, written
from eoctl.operations.inspect import history_answer
from eoctl.stores.flink_checkpoint import CheckpointFolder
from recovery.answers import Answer, error_rows
from recovery.facts import Missing, PartitionFacts, TopicPartition, TransactionFacts
from recovery.formats.flink_checkpoint import Committable, FlinkCheckpoint
from recovery.inspect.history import StateRecord
from recovery.inspect.two_phase import deadline
from recovery.remedy.checkpoint_rows import CommittableRow, WrittenRow
from recovery.remedy.salvage import Written
from recovery.remedy.transaction_fates import (
    UNFINISHED,
    Judgement,
    Recorded,
    family,
    judge,
    later_commits,
    recorded,
    rest,
)
from recovery.values import Value

_REST = Judgement("open", "not-in-checkpoint", "not in the checkpoint: Flink's restore aborts it")


class Fate(Value):
    """One transaction of the checkpoint's sinks, judged.

    committable: None = not in the checkpoint. row: its id as its coordinator describes it now.
    """

    committable: Committable | None
    judgement: Judgement
    row: TransactionFacts | None
    past: Recorded
    written: Mapping[TopicPartition, Written]


class Seen(Value):
    """One complete snapshot. later: checkpoints that Kafka proves to be newer; counted: all
    relevant partitions were read. ahead: how far each coordinator's clock is ahead, in ms."""

    fates: tuple[Fate, ...]
    later: tuple[int, ...]
    missing: tuple[Missing, ...]
    counted: bool
    ahead: Mapping[int, int]
    at: int


async def look(cluster: Cluster, content: FlinkCheckpoint, topics: Sequence[str] = ()) -> Seen:
    """Read every transaction of the checkpoint, and the sinks' other open ones.

    topics: those its sinks write to, for transactions that the coordinators have forgotten.
    """
    names = [c.transactional_id for c in content.committables]
    listed = await coordinators.transactions(cluster)
    missing = list(listed.missing)
    mine, errors = await coordinators.find(cluster, names)
    missing += [m for m in errors if m.error != coordinators.NOT_FOUND]
    others, errors = await coordinators.described(
        cluster, [t for t in family(listed.rows, content) if t.state in UNFINISHED]
    )
    missing += [m for m in errors if m.error != coordinators.NOT_FOUND]
    at = now_ms()
    measured = await clocks.measured(cluster, [*mine, *others], now_ms)
    logs = await history_answer.read_state_logs(cluster, names, ())
    unseen = [*logs.missing, *history_answer.unread(logs)]
    missing += unseen
    records = [r for log in logs.logs for r in log.records]
    past = {c: recorded(records, c) for c in content.committables}
    rows = {t.transactional_id: t for t in mine if t.error is None}
    loose = rest(others, content)
    amounts, unread = await _amounts(cluster, past, rows, loose, records, topics)
    missing += unread
    whole = {m.topic_partition for m in unread}
    fates = [
        Fate(
            c,
            judge(
                c,
                rows.get(c.transactional_id),
                past[c],
                [w.outcome for w in amounts.get(_pair(c), {}).values()],
                history_read=not unseen and not listed.missing,
                logs_read=not unread,
            ),
            rows.get(c.transactional_id),
            past[c],
            amounts.get(_pair(c), {}),
        )
        for c in content.committables
    ]
    fates += [
        Fate(None, _REST, t, Recorded(), amounts.get((t.producer_id, t.producer_epoch or 0), {}))
        for t in loose
    ]
    return Seen(
        tuple(fates),
        later_commits(listed.rows, content),
        tuple(missing),
        not whole,
        {c.broker: c.ahead for c in measured},
        at,
    )


def _pair(c: Committable) -> Transaction:
    return c.producer_id, c.producer_epoch


def _is_open(row: TransactionFacts | None, c: Committable) -> bool:
    return (
        row is not None
        and row.state in UNFINISHED
        and (row.producer_id, row.producer_epoch) == _pair(c)
    )


async def _amounts(
    cluster: Cluster,
    past: Mapping[Committable, Recorded],
    rows: Mapping[str, TransactionFacts],
    loose: Sequence[TransactionFacts],
    records: Iterable[StateRecord],
    topics: Sequence[str],
) -> tuple[Mapping[Transaction, Mapping[TopicPartition, Written]], list[Missing]]:
    """Count what each wrote: an open one from its start, an ended one over complete logs, unless
    its commit is recorded: then the amount does not matter."""
    begun: dict[TopicPartition, set[int]] = {}  # partition -> producer ids of open ones
    whole: set[TopicPartition] = set()
    wanted: set[Transaction] = {(t.producer_id, t.producer_epoch or 0) for t in loose}
    named: set[str] = set(topics)
    for t in loose:
        for partition in t.partitions or ():
            begun.setdefault(partition, set()).add(t.producer_id)
    for c, was in past.items():
        row = rows.get(c.transactional_id)
        if row is not None and _is_open(row, c):
            for partition in row.partitions or ():
                begun.setdefault(partition, set()).add(c.producer_id)
        elif was.outcome == "commit":
            continue
        elif was.partitions:
            whole |= set(was.partitions)
        else:
            named |= _topics_of(records)
        wanted.add(_pair(c))
    metadata = await cluster.metadata(sorted(named | {t for t, _ in [*begun, *whole]}))
    parts: list[PartitionMetadata] = [
        p
        for topic in metadata.topics.values()
        for p in topic.partitions
        if topic.name in named or p.topic_partition in begun.keys() | whole
    ]
    missing = [
        Missing("topic", t.error, "it could not be described", topic=t.name)
        for t in metadata.topics.values()
        if t.error is not None
    ]
    offsets, more = await collect.partition_offsets(cluster, metadata.topics.values(), parts)
    producers, other = await collect.producers(
        cluster, [p for p in parts if p.topic_partition in begun]
    )
    missing += [*more, *other]
    ranges = []
    for facts in offsets:
        partition = facts.topic_partition
        all_of_it = partition in whole or facts.topic in named
        start = None if all_of_it else _begin(begun[partition], producers.get(partition, ()))
        ranges += _range(facts, start)
    found, unread = await written(cluster, ranges, wanted)
    return found, [*missing, *unread]


def _topics_of(records: Iterable[StateRecord]) -> set[str]:
    """Return the topics that any record of the same ids names."""
    return {topic for r in records for topic, _ in getattr(r.value, "partitions", ())}


def _begin(producer_ids: Collection[int], here: Iterable[object]) -> int | None:
    """Return the first offset of their open transactions; None = unknown: use the log's start."""
    starts = [
        start
        for p in here
        if getattr(p, "producer_id", None) in producer_ids
        and (start := getattr(p, "current_txn_start_offset", None)) is not None
    ]
    return min(starts, default=None)


def _range(facts: PartitionFacts, start: int | None) -> list[Range]:
    low, high = facts.log_start_offset, facts.high_watermark
    if low is None or high is None:
        return []  # reported as missing
    return [Range(facts.topic, facts.partition, low if start is None else max(low, start), high)]


async def committables(
    cluster: Cluster, folder: CheckpointFolder, topics: Sequence[str] = ()
) -> Answer:
    """Return a row per transaction of the checkpoint, and per other open one of its sinks.

    Exit status 1 while one is open or lost, 3 while one is unknown.
    """
    return answer(cluster.cluster_id, folder, await look(cluster, folder.content, topics))


def answer(cluster_id: str | None, folder: CheckpointFolder, seen: Seen) -> Answer:
    """Return the answer from one snapshot."""
    content = folder.content
    rows = [_row(fate, seen) for fate in seen.fates]
    missing = list(seen.missing)
    missing += [
        Missing("transaction", "UNKNOWN", r.detail, id=r.transactional_id)
        for r in rows
        if r.fate == "unknown"
    ]
    return Answer(
        "txn-commit",
        cluster_id,
        seen.at,
        rows,
        error_rows(missing),
        extra={
            "checkpoint": folder.path,
            "checkpoint_id": content.checkpoint_id,
            "savepoint": folder.is_savepoint,
            "newer_in_folder": list(folder.newer),
            "newer_in_kafka": list(seen.later),
            "skipped": [f"{s.operator}: {s.items} of another connector" for s in content.skipped],
        },
        judging=True,
        finding=any(r.fate in ("open", "lost", "not-in-checkpoint") for r in rows),
    )


def _row(fate: Fate, seen: Seen) -> CommittableRow:
    c, row, said = fate.committable, fate.row, fate.judgement
    name, pid, epoch = (
        c[:3]
        if c is not None
        else (row.transactional_id, row.producer_id, row.producer_epoch)
        if row is not None
        else ("", -1, None)
    )
    ends_at = deadline(row) if said.fate == "open" and row is not None else None
    left = None
    if ends_at is not None and row is not None:
        left = (ends_at - seen.at - seen.ahead.get(row.coordinator, 0)) / 1000
    counted = said.fate in ("open", "lost") and seen.counted
    return CommittableRow(
        transactional_id=name,
        checkpoint_id=c.checkpoint_id if c is not None else None,
        producer_id=pid,
        producer_epoch=epoch,
        fate="not-in-checkpoint" if c is None else said.fate,
        rule=said.rule,
        detail=said.detail,
        state=row.state if row is not None else None,
        records=sum(w.records for w in fate.written.values()) if counted else None,
        written=[
            WrittenRow(
                topic=t, partition=p, records=w.records, first_offset=w.first, last_offset=w.last
            )
            for (t, p), w in sorted(fate.written.items())
        ],
        ends_at=ends_at,
        ends_in_seconds=left,
        decided_at=fate.past.at,
    )
