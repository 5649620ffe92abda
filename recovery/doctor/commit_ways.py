"""How groups commit offsets, in transactions or outside: from records of `__consumer_offsets`."""

from collections.abc import Iterable, Iterator

from recovery.doctor.setting_names import HOUR
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.consumer_offsets import (
    GroupKey,
    MemberKey,
    OffsetKey,
    decode_key,
)
from recovery.formats.reader import Buffer
from recovery.formats.records import Record, records
from recovery.inspect.commits.group_log import members_after, present_in
from recovery.values import Value

COMMITS_MS = HOUR


class GroupRecord(Value):
    """A record of `__consumer_offsets`: a commit, or who is in a group.

    timestamp: epoch ms. transactional: of a commit. present: whether the group has members after
    it, of a MemberKey this one; None: of a commit, or not readable.
    """

    key: OffsetKey | GroupKey | MemberKey
    partition: int
    offset: int
    timestamp: int
    transactional: bool
    present: bool | None


class CommitWays(Value):
    """How a group committed the offsets of one partition. Commits of a group without members, and
    deleted offsets, are left out.

    turns: how often commits outside of transactions came between two inside. last_plain: epoch ms
    of the newest outside; last_plain_at: its partition and offset in `__consumer_offsets`.
    """

    transactional: int
    plain: int
    turns: int
    last_plain: int | None
    last_plain_at: tuple[int, int] | None


def group_records(buffer: Buffer, partition: int) -> Iterator[GroupRecord]:
    """Yield the records that `commit_ways` judges. Raises CorruptError."""
    for header in batch_headers(buffer):
        if not header.is_control:
            for record in records(buffer, header):
                if (found := _group_record(record, header, partition)) is not None:
                    yield found


def _group_record(record: Record, header: BatchHeader, partition: int) -> GroupRecord | None:
    key = None if record.key is None else decode_key(record.key)
    present = None
    if isinstance(key, GroupKey | MemberKey):
        present = present_in(key, record.value)
    elif not isinstance(key, OffsetKey) or record.value is None:
        return None
    time = header.max_timestamp if record.timestamp is None else record.timestamp
    return GroupRecord(key, partition, record.offset, time, header.is_transactional, present)


def commit_ways(found: Iterable[GroupRecord]) -> dict[OffsetKey, CommitWays]:
    """Return how groups committed. found: in offset order within a partition."""
    members: dict[str, set[str] | None] = {}
    commits: dict[OffsetKey, _Commits] = {}
    for record in found:
        key = record.key
        if not isinstance(key, OffsetKey):
            members[key.group] = members_after(members.get(key.group), key, record.present)
        elif record.transactional or members.get(key.group) != set():
            commits.setdefault(key, _Commits()).add(record)
    return {key: mine.ways() for key, mine in commits.items()}


class _Commits:
    """The commits of one group and partition, counted in their order."""

    def __init__(self) -> None:
        self._transactional = self._turns = self._plain = 0
        self._between = False
        self._last: GroupRecord | None = None

    def add(self, commit: GroupRecord) -> None:
        if commit.transactional:
            self._turns += self._between
            self._between = False
            self._transactional += 1
        else:
            self._between = self._transactional > 0
            self._plain += 1
            self._last = commit

    def ways(self) -> CommitWays:
        last = self._last
        return CommitWays(
            self._transactional,
            self._plain,
            self._turns,
            None if last is None else last.timestamp,
            None if last is None else (last.partition, last.offset),
        )
