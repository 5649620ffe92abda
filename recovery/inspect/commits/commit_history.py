"""Every commit of a group that its partition of `__consumer_offsets` still holds, in its order.

What compaction leaves: of each key the newest record, older ones first removed. So whoever reads a
record of a key, and finds it there again afterwards, has read all later ones of that key. Below the
last missing offset a key may lack all records before its first one; above it none is missing.
Sources: Kafka's LogCleaner (it reads from the log start, up to the last stable offset at most),
OffsetMetadataManager (a commit in a transaction counts from its COMMIT marker on, unless a later
record of its key counts already), and GroupCoordinator's validateOffsetCommit: outside of a
transaction a commit without a member is accepted only while the group has none.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from recovery.facts import HasPartition, TopicPartition, known
from recovery.formats.batches import BatchHeader
from recovery.formats.consumer_offsets import (
    GroupKey,
    GroupValue,
    MemberKey,
    OffsetKey,
    OffsetValue,
    decode_group,
)
from recovery.formats.reader import Buffer
from recovery.formats.records import ControlType, Record
from recovery.inspect.commits.group_log import GroupLog, members_after, present_in
from recovery.inspect.commits.newest import newest_of
from recovery.inspect.log_part import LogPart, Wholeness, part_of
from recovery.values import Value, replace

Outcome = Literal["committed", "aborted", "pending"]
CommittedBy = Literal["member", "no-member", "transaction"]
Event = Literal["reset", "back", "leap", "deleted"]

AT_ONCE = 10
"""Commits that a partition may have beyond twice those kept, before some are forgotten."""
LEAP_STEPS, LEAP_FACTOR = 10, 10
"""A leap: so many times further, and faster, than each of at least so many moves before it."""


class CommitRecord(HasPartition, Value):
    """A record of the group's offset of one partition. Times in epoch ms.

    offset None: a tombstone, the offset was deleted. timestamp: by the coordinator's clock. outcome
    None: outside of transactions. counts: whether it became the group's offset; False: aborted, or
    a later record counted already; None: pending. before: what counted until then, and since when;
    None: nothing, or not known. committed_by None: the log no longer says who was in the group.
    by_proven: of a `no-member`. proven: of an event.
    """

    topic: str
    partition: int
    at: int  # its offset in `__consumer_offsets`
    timestamp: int
    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    topic_id: str | None = None
    expires: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    outcome: Outcome | None = None
    marker_at: int | None = None
    marker_timestamp: int | None = None
    counts: bool | None = None
    before: int | None = None
    before_timestamp: int | None = None
    committed_by: CommittedBy | None = None
    by_proven: bool = True
    event: Event | None = None
    proven: bool | None = None
    earlier_missing: bool = False  # its first one: compaction may have removed earlier ones
    record_epoch: int | None = None  # leader epoch under which `at` was appended; None: not kept

    @property
    def since(self) -> int:
        """Return when it became the group's offset, if it did."""
        return self.timestamp if self.marker_timestamp is None else self.marker_timestamp


@dataclass(slots=True)
class _Moves:
    """The moves ahead of one partition so far: their number, the longest, the fastest per ms."""

    number: int = 0
    longest: int = 0
    fastest: float = 0.0

    def leaps(self, distance: int, ms: int) -> bool:
        """Add a move ahead; return True if it is a leap."""
        speed = distance / max(ms, 1)
        leaps = (
            self.number >= LEAP_STEPS
            and distance > LEAP_FACTOR * self.longest
            and speed > LEAP_FACTOR * self.fastest
        )
        self.number += 1
        self.longest, self.fastest = max(self.longest, distance), max(self.fastest, speed)
        return leaps


class CommitHistory(GroupLog):
    """The commits of one group on some partitions. selects: which ones.

    newest: so many records of each partition are kept, and all with an event; None: all. since:
    earlier ones are left out. as_of: also find what stood at this time (`stood`). Epoch ms.
    """

    def __init__(
        self,
        group: str,
        selects: Callable[[TopicPartition], bool] = lambda _: True,
        *,
        newest: int | None = None,
        since: int | None = None,
        as_of: int | None = None,
    ) -> None:
        super().__init__({group})
        self.group = group
        self._selects = selects
        self._newest, self._since, self._as_of = newest, since, as_of
        self._wholeness = Wholeness()
        self._whole_time: tuple[int, int] | None = None  # (first whole offset, its batch's time)
        self.first: dict[TopicPartition, int] = {}  # offset of each partition's first record
        self._rows: dict[TopicPartition, dict[int, CommitRecord]] = {}
        self._full: dict[TopicPartition, int] = {}  # commits from which some are forgotten
        self.left_out = 0  # because of `newest`, once `commits` was called
        self._open: dict[int, list[CommitRecord]] = {}  # by producer id
        self._counted: dict[TopicPartition, CommitRecord] = {}
        self._moves: dict[TopicPartition, _Moves] = {}
        self._members: set[str] | None = None
        self._members_seen = self._emptied = self.had_members = False
        self.stood: dict[TopicPartition, CommitRecord] = {}
        self._late: set[TopicPartition] = set()
        self.disordered: set[TopicPartition] = set()  # whose times run backwards around `as_of`
        self.deleted_since: set[TopicPartition] = set()  # whose offset was deleted after `as_of`

    def add(self, buffer: Buffer) -> None:
        """Take in the next batches. Raises CorruptError."""
        self.add_part(part_of(buffer))

    def add_part(self, part: LogPart) -> None:
        self._wholeness.add(part, None)
        whole_from = self._wholeness.whole_from
        if self._whole_time is None or self._whole_time[0] != whole_from:
            headers = map(part.header, range(len(part.scan)))
            first = next((h for h in headers if h.base_offset >= whole_from), None)
            self._whole_time = None if first is None else (whole_from, first.max_timestamp)
        super().add(part.data)

    def ended(self, end: int) -> None:
        """End the read at the high watermark."""
        self._wholeness.ended(end, 0)

    @property
    def whole_from(self) -> int:
        """Return the offset from which no record is missing; 0: none ever was."""
        return self._wholeness.whole_from

    @property
    def complete_since(self) -> int | None:
        """Return the time, epoch ms, since when every commit is here; None: since no known time.

        Only what `whole_from` = 0 does not cover is older.
        """
        time = self._whole_time
        return time[1] if time is not None and time[0] == self.whole_from else None

    def commits(self) -> list[CommitRecord]:
        """Return what is kept, in the order of the log."""
        for where in tuple(self._rows):
            self._forget(where)
        rows = [row for mine in self._rows.values() for row in mine.values()]
        first = set(self.first.values()) if self.whole_from else set()
        return [
            replace(row, earlier_missing=row.at in first) if row.at in first else row
            for row in sorted(rows, key=lambda row: row.at)
        ]

    def partitions(self) -> list[TopicPartition]:
        """Return those that the group has a record of."""
        return sorted(self.first)

    def _commit(
        self, key: OffsetKey, value: OffsetValue | None, record: Record, header: BatchHeader
    ) -> None:
        where = key.topic_partition
        if not self._selects(where):
            return
        self.first.setdefault(where, record.offset)
        written = header.max_timestamp if record.timestamp is None else record.timestamp
        epoch = known(header.leader_epoch)
        commit = CommitRecord(*where, record.offset, written, None, record_epoch=epoch)
        if value is not None:
            commit = replace(
                commit,
                timestamp=value.commit_timestamp,
                offset=value.offset,
                leader_epoch=known(value.leader_epoch),
                metadata=value.metadata,
                topic_id=None if value.topic_id is None else _as_text(value.topic_id),
                expires=known(value.expire_timestamp),
            )
        if header.is_transactional:
            commit = replace(
                commit,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                outcome="pending",
                committed_by="transaction",
            )
            self._open.setdefault(header.producer_id, []).append(commit)
            self._keep(commit)
            return
        if value is not None:
            by, proven = self._by()
            commit = replace(commit, committed_by=by, by_proven=proven)
        self._count(commit)

    def _by(self) -> tuple[CommittedBy | None, bool]:
        """Return who may commit outside of a transaction now, and whether that is proven."""
        if self._members:
            return "member", True
        if self._members is None:
            known_empty = self.whole_from == 0 and not self._members_seen
            return ("no-member", True) if known_empty else (None, True)
        return "no-member", self._emptied or self.whole_from == 0

    def _state(self, key: GroupKey | MemberKey, value: bytes | None) -> None:
        present = present_in(key, value)
        self._members = members_after(self._members, key, present)
        self._members_seen = True
        # one member's leaving does not say that no other is there
        self._emptied = isinstance(key, GroupKey)
        state = decode_group(value) if isinstance(key, GroupKey) else None
        self.had_members |= isinstance(key, MemberKey) or (
            isinstance(state, GroupValue) and bool(state.protocol_type)
        )

    def _end(self, header: BatchHeader, outcome: ControlType) -> None:
        mine = self._open.pop(header.producer_id, [])
        last = {commit.topic_partition: commit.at for commit in mine}
        committed = outcome is ControlType.COMMIT
        for commit in mine:
            ended = replace(
                commit,
                outcome="committed" if committed else "aborted",
                marker_at=header.base_offset,
                marker_timestamp=header.max_timestamp,
            )
            if committed and last[commit.topic_partition] == commit.at:
                self._count(ended)
            else:
                self._keep(replace(ended, counts=False))

    def _count(self, commit: CommitRecord) -> None:
        where = commit.topic_partition
        before = self._counted.get(where)
        if before is not None and before.at > commit.at:
            self._keep(replace(commit, counts=False))
            return
        commit = replace(commit, counts=True)
        if before is not None and before.offset is not None:
            commit = replace(commit, before=before.offset, before_timestamp=before.since)
            event, proven = self._event(commit, before, before.offset)
            commit = replace(commit, event=event, proven=proven)
        self._counted[where] = commit
        self._note_stood(commit)
        self._keep(commit)

    def _event(
        self, commit: CommitRecord, before: CommitRecord, offset: int
    ) -> tuple[Event | None, bool | None]:
        """Return what must be called out about a commit, and whether it is proven.

        Who commits without members again and again, and goes ahead, is no tool: Flink does so.
        """
        if commit.offset is None:
            return "deleted", True
        distance = commit.offset - offset
        without_members = commit.committed_by == "no-member" and self.had_members
        again = distance > 0 and before.committed_by == "no-member"
        if distance and without_members and not again:
            return "reset", commit.by_proven
        if distance < 0:
            return "back", True
        if distance:
            moves = self._moves.setdefault(commit.topic_partition, _Moves())
            if moves.leaps(distance, commit.since - before.since):
                return "leap", False
        return None, None

    def _note_stood(self, commit: CommitRecord) -> None:
        """Note what counts at `as_of`."""
        where = commit.topic_partition
        if self._as_of is None:
            return
        if commit.since > self._as_of:
            self._late.add(where)
            if commit.offset is None:
                self.deleted_since.add(where)
        else:
            self.stood[where] = commit
            if where in self._late:
                self.disordered.add(where)

    def _keep(self, commit: CommitRecord) -> None:
        rows = self._rows.setdefault(commit.topic_partition, {})
        pending = commit.outcome == "pending"
        if self._since is not None and commit.timestamp < self._since and not pending:
            rows.pop(commit.at, None)
            return
        rows[commit.at] = commit
        if len(rows) > self._full.get(commit.topic_partition, AT_ONCE):
            self._forget(commit.topic_partition)

    def _forget(self, where: TopicPartition) -> None:
        """Keep only the newest of a partition's commits; again once there are twice as many."""
        rows = self._rows[where]
        kept = newest_of(tuple(rows.values()), self._newest)
        self.left_out += len(rows) - len(kept)
        self._rows[where] = {row.at: row for row in kept}
        self._full[where] = 2 * len(kept) + AT_ONCE


def _as_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka prints it."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
