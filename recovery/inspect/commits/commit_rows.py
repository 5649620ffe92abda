"""`offsets history`: a group's commits as rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.inspect.cluster_rows import HistoryRow
from recovery.inspect.commits.commit_history import CommitRecord
from recovery.row import Row, Timestamp
from recovery.values import replace


class OffsetsHistoryRow(HasPartition, Row):
    """A record of a group's offset of one partition, in the order of `__consumer_offsets`.

    outcome: of the transaction that holds it; null: outside of transactions. committed_by: `member`
    (the broker accepts it from nobody else while the group has members), `no-member` (the group
    had none: a tool such as kafka-consumer-groups, eoctl, or a client that assigns its partitions
    itself; the log does not say which), `transaction`; null: who was in the group at that time is
    no longer in the log.
    event: `reset` (moved while the group had no members, or by eoctl), `back` (to an earlier
    offset), `leap` (ten times further and faster than all moves before: a guess), `expired` (gone
    once offsets.retention.minutes had passed since the commit: a guess), `deleted` (earlier than
    that, or the retention is not known). proven false: a guess, other causes are possible.
    """

    group: str
    topic: str
    partition: int
    timestamp: Annotated[
        Timestamp, Meta(description="of the commit, or the deletion, by its coordinator's clock")
    ]
    committed_offset: Annotated[int | None, Meta(description="null: the offset was deleted")]
    leader_epoch: int | None
    metadata: str | None
    topic_id: Annotated[str | None, Meta(description="as committed; null before Kafka 4.3")]
    expire_timestamp: Annotated[
        Timestamp, Meta(description="as the client asked; null: offsets.retention.minutes")
    ]
    deleted: bool
    counts: Annotated[
        bool | None,
        Meta(
            description="it became the group's offset. false: aborted, or a later record counted "
            "already; null: its transaction is not decided"
        ),
    ]
    previous_offset: Annotated[
        int | None, Meta(description="what counted until then; null: nothing, or not known")
    ]
    previous_timestamp: Annotated[Timestamp, Meta(description="since when that counted")]
    moved: Annotated[int | None, Meta(description="committed_offset - previous_offset")]
    committed_by: Literal["member", "no-member", "transaction"] | None
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: Annotated[
        str | None, Meta(description="the id with that producer id; null: none is known now")
    ]
    outcome: Literal["committed", "aborted", "pending"] | None
    marker_offset: Annotated[
        int | None, Meta(description="of the transaction's marker in __consumer_offsets")
    ]
    marker_timestamp: Timestamp
    initialised_at: Annotated[
        Timestamp,
        Meta(
            description="of a commit with an event: when __transaction_state shows that its id was "
            "initialised since the commit before: an application started. null: not seen"
        ),
    ]
    event: Literal["reset", "back", "leap", "deleted", "expired"] | None
    proven: Annotated[bool | None, Meta(description="of the event; false: a guess")]
    journal_entry: Annotated[
        str | None, Meta(description="the entry of this host's journal that wrote this offset then")
    ]
    coordinator_partition: int
    record_offset: Annotated[int, Meta(description="its own offset in __consumer_offsets")]
    record_epoch: Annotated[
        int | None, Meta(description="leader epoch of __consumer_offsets at record_offset")
    ] = None
    earlier_missing: Annotated[
        bool,
        Meta(
            description="the partition's first record that is left: earlier ones may be compacted"
        ),
    ]


def history_row(
    commit: CommitRecord,
    group: str,
    home: int,
    *,
    ids: Mapping[int, str],
    states: Sequence[HistoryRow] = (),
    retention_ms: int | None = None,
    entry: str | None = None,
) -> OffsetsHistoryRow:
    """Return a commit as it is shown.

    home: the partition of `__consumer_offsets`. ids: by producer id. states: what
    `__transaction_state` has of the ids of commits with an event. retention_ms: of groups' offsets,
    as the brokers have it now; None: not known. entry: the journal's.
    """
    expired = commit.event == "deleted" and _is_expired(commit, retention_ms)
    event, proven = ("expired", False) if expired else (commit.event, commit.proven)
    name = ids.get(-1 if commit.producer_id is None else commit.producer_id)
    moved = None
    if commit.offset is not None and commit.before is not None:
        moved = commit.offset - commit.before
        if moved and entry is not None:
            event, proven = "reset", True
    return OffsetsHistoryRow.of(
        commit,
        group=group,
        committed_offset=commit.offset,
        metadata=commit.metadata or None,
        expire_timestamp=commit.expires,
        deleted=commit.offset is None,
        previous_offset=commit.before,
        previous_timestamp=commit.before_timestamp,
        moved=moved,
        transactional_id=name,
        initialised_at=_initialised(commit, [s for s in states if s.transactional_id == name]),
        marker_offset=commit.marker_at,
        event=event,
        proven=proven,
        journal_entry=entry,
        coordinator_partition=home,
        record_offset=commit.at,
    )


def _is_expired(commit: CommitRecord, retention_ms: int | None) -> bool:
    """Return True if the coordinator may have deleted the offset for its age (KIP-211)."""
    since = commit.before_timestamp
    return since is not None and retention_ms is not None and commit.since - since >= retention_ms


def _initialised(commit: CommitRecord, states: Sequence[HistoryRow]) -> int | None:
    """Return when InitProducerId last wrote an Empty record between the commit before and this."""
    times = [s.timestamp for s in states if s.state == "Empty" and s.timestamp is not None]
    since = commit.before_timestamp
    if commit.event is None or since is None:
        return None
    return max((t for t in times if since <= t <= commit.timestamp), default=None)


def producer_ids(commits: Iterable[CommitRecord]) -> list[int]:
    """Return the producer ids of commits in transactions."""
    return sorted({c.producer_id for c in commits if c.producer_id is not None})


def with_earlier(
    rows: Sequence[OffsetsHistoryRow], before: Sequence[OffsetsHistoryRow]
) -> list[OffsetsHistoryRow] | None:
    """Return rows with those of an earlier look that compaction may have taken since.

    None: the log may be another one, so nothing may be added. It is if the looks share no record,
    or differ on one. What was seen after the last record that is proven to be in both is left out:
    a leader that lacked it may have cut it off. A leader appends each offset once in its epoch, so
    two logs with a record of one epoch are equal up to it (KIP-101).
    """
    now, then = ({r.record_offset: r for r in found} for found in (rows, before))
    shared = now.keys() & then.keys()
    if not shared or not all(_is_still(then[n], now[n]) for n in shared):
        return None
    ends: dict[int | None, int] = {}
    for row in rows:
        ends[row.record_epoch] = max(row.record_offset, ends.get(row.record_epoch, -1))
    ends.pop(None, None)
    proven = max((n for n, row in then.items() if n <= ends.get(row.record_epoch, -1)), default=-1)
    kept = {n: row for n, row in then.items() if n <= proven and row.outcome != "pending"}
    both = {n: _knowing(now[n], then[n]) for n in shared}
    return [row for _, row in sorted((kept | now | both).items())]


def _is_still(then: OffsetsHistoryRow, now: OffsetsHistoryRow) -> bool:
    """Return True if a record is the one seen before, and what was decided on it is unchanged."""
    decided = then.outcome != "pending"
    changed = (then.outcome, then.marker_offset) != (now.outcome, now.marker_offset)
    return _record(then) == _record(now) and not (decided and changed)


def _record(row: OffsetsHistoryRow) -> tuple[object, ...]:
    where = row.coordinator_partition, row.record_epoch
    return row.group, row.topic_partition, row.committed_offset, row.timestamp, *where


def _knowing(now: OffsetsHistoryRow, then: OffsetsHistoryRow) -> OffsetsHistoryRow:
    """Return a row with what counted before it, if only the earlier look still knew that."""
    if now.previous_offset is not None or then.previous_offset is None or not now.counts:
        return now
    names = ("previous_offset", "previous_timestamp", "moved", "earlier_missing")
    found = {name: getattr(then, name) for name in names}
    if now.event is None:  # it follows from these
        found |= {name: getattr(then, name) for name in ("event", "proven", "initialised_at")}
    return replace(now, **found)
