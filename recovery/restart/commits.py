"""Judge how a group's offset was committed, read from `__consumer_offsets`, and whether outputs
were in the same transaction.

OffsetFetch returns an offset but not who committed it: a commit in a transaction (KIP-98, KIP-447)
and a later plain commit look alike. Sources: Kafka's OffsetMetadataManager (a commit in a
transaction counts from its COMMIT marker on, and loses to a commit whose record came later);
LogCleaner, which keeps a transaction's marker as long as one of its batches.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from recovery.facts import TopicPartition, known
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.consumer_offsets import (
    CONSUMER_OFFSETS,
    GroupKey,
    GroupValue,
    MemberKey,
    OffsetKey,
    OffsetValue,
    decode_group,
)
from recovery.formats.reader import Buffer, UnknownVersion
from recovery.formats.records import ControlType, Record, marker
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.commits.group_log import GroupLog
from recovery.inspect.history import StateRecord
from recovery.values import Value, replace


class GroupCommit(Value):
    """The record that makes a group's offset of one partition count."""

    partition: int  # of __consumer_offsets
    at: int  # the record's offset there
    offset: int  # what was committed, as written
    timestamp: int  # ms, the coordinator's clock
    producer_id: int | None = None  # None: committed outside of a transaction
    producer_epoch: int | None = None  # of the batch
    marker_at: int | None = None  # offset of the COMMIT marker
    marker_epoch: int | None = None  # one above the batch's under transactions v2
    last: bool = False  # this producer has no later COMMIT marker in that partition
    expires: int | None = None  # ms; None: by offsets.retention.minutes (all current clients)

    @property
    def in_transaction(self) -> bool:
        """Return True if the batch is transactional and its COMMIT marker follows."""
        return self.marker_at is not None

    @property
    def is_v2(self) -> bool:
        """Return True if each transaction has its own epoch (KIP-890)."""
        epoch = self.producer_epoch
        return epoch is not None and self.marker_epoch == epoch + 1


class LastCommits(GroupLog):
    """Finds the commit that counts for each partition of some groups, and the groups' last state.

    `add` the batches of the groups' partition of `__consumer_offsets` in order, up to its end, from
    the log start or a later offset that suffices.
    """

    def __init__(self, groups: Collection[str], partition: int) -> None:
        super().__init__(groups)
        self._partition = partition
        self._counts: dict[OffsetKey, GroupCommit | None] = {}
        # producer id → its commits without a marker yet
        self._open: dict[int, dict[OffsetKey, GroupCommit]] = {}
        self._last_marker: dict[int, int] = {}
        self._since: dict[OffsetKey, int] = {}
        self._states: dict[str, GroupValue | None] = {}
        self._clients: dict[str, tuple[tuple[str, str], ...]] = {}

    @property
    def commits(self) -> Mapping[OffsetKey, GroupCommit]:
        """Return the commits that count, by group and input partition; others are left out."""
        newest = set(self._last_marker.values())
        return {
            key: replace(commit, last=commit.marker_at in newest)
            for key, commit in self._counts.items()
            if commit is not None
        }

    @property
    def deleted(self) -> frozenset[OffsetKey]:
        """Return the partitions whose last record that counts is a tombstone."""
        return frozenset(key for key, commit in self._counts.items() if commit is None)

    def state(self, group: str) -> GroupValue | None:
        """Return a classic group's last state; None: none was read, or its version is unknown."""
        return self._states.get(group)

    @property
    def since(self) -> Mapping[OffsetKey, int]:
        """Return since when each offset that counts has been committed, by an unbroken run of
        records with this offset: ms, the coordinator's clock. Compaction takes the first of them
        away, so it may be longer."""
        return {key: self._since[key] for key, commit in self._counts.items() if commit is not None}

    def last_clients(self, group: str) -> tuple[tuple[str, str], ...]:
        """Return the (client id, host) of a classic group's last members that the log tells."""
        return self._clients.get(group, ())

    def _state(self, key: GroupKey | MemberKey, value: bytes | None) -> None:
        if isinstance(key, MemberKey):
            return
        state = decode_group(value)
        self._states[key.group] = state if isinstance(state, GroupValue) else None
        if isinstance(state, UnknownVersion):
            self.unreadable.add(key.group)
        elif state is not None and state.clients:
            self._clients[key.group] = state.clients

    def _commit(
        self, key: OffsetKey, value: OffsetValue | None, record: Record, header: BatchHeader
    ) -> None:
        if value is None:
            self._counts[key] = None
            for mine in self._open.values():  # the coordinator drops them too
                mine.pop(key, None)
            return
        commit = GroupCommit(
            self._partition,
            record.offset,
            value.offset,
            value.commit_timestamp,
            expires=known(value.expire_timestamp),
        )
        if header.is_transactional:
            pid = header.producer_id
            commit = replace(commit, producer_id=pid, producer_epoch=header.producer_epoch)
            self._open.setdefault(pid, {})[key] = commit
        else:
            self._count(key, commit)

    def _count(self, key: OffsetKey, commit: GroupCommit) -> None:
        before = self._counts.get(key)
        if before is None or before.offset != commit.offset:
            self._since[key] = commit.timestamp
        self._counts[key] = commit

    def _end(self, header: BatchHeader, outcome: ControlType) -> None:
        mine = self._open.pop(header.producer_id, {})
        if outcome is not ControlType.COMMIT:
            return
        self._last_marker[header.producer_id] = header.base_offset
        for key, commit in mine.items():
            before = self._counts.get(key)
            if before is None or before.at < commit.at:
                epoch = header.producer_epoch
                self._count(key, replace(commit, marker_at=header.base_offset, marker_epoch=epoch))


class OutputEvidence(StrEnum):
    """What shows whether an output was written in the transaction of the commit."""

    DECISION = "decision"  # the coordinator's decision names both
    MARKERS = "markers"  # v2: the same producer id and epoch, with its COMMIT marker
    LATER = "later"  # a later transaction of that producer wrote there, without the offsets
    NOTHING = "nothing"  # none of these: compacted, forgotten, or nothing was written


def decided(
    commit: GroupCommit, output: TopicPartition, history: Iterable[StateRecord]
) -> OutputEvidence:
    """Return the evidence in `__transaction_state`. history: the records of the commit's owner.

    Under v2 the epoch identifies the transaction. Under v1 only the order does: the newest decision
    that names the group's partition is this commit's only if its marker is the newest one there.
    """
    mine = [
        (r.value.producer_epoch, r.partition, r.offset, r.value)
        for r in history
        if isinstance(r.value, TransactionValue)
        and r.value.state is TransactionState.PREPARE_COMMIT
        and r.value.producer_id == commit.producer_id
    ]
    if not commit.is_v2 and len({partition for _, partition, _, _ in mine}) > 1:
        return (
            OutputEvidence.NOTHING
        )  # partitions were added to that topic: which decision came first is unknown
    decisions = [value for *_, value in sorted(mine, key=lambda found: found[:3])]
    group = TopicPartition(CONSUMER_OFFSETS, commit.partition)
    ours = _ours(commit, decisions, group)
    if ours is None:
        return (
            OutputEvidence.LATER
            if _left_later(commit, output, decisions, group)
            else OutputEvidence.NOTHING
        )
    later = decisions[ours + 1 :]
    if any(output in d.partitions and group not in d.partitions for d in later):
        return OutputEvidence.LATER
    return (
        OutputEvidence.DECISION if output in decisions[ours].partitions else OutputEvidence.NOTHING
    )


def _ours(
    commit: GroupCommit, decisions: Sequence[TransactionValue], group: TopicPartition
) -> int | None:
    """Return the index of the decision on the commit's transaction; None: not identified."""
    naming = [
        number
        for number, d in enumerate(decisions)
        if group in d.partitions
        and d.producer_epoch == commit.marker_epoch
        and (d.client_transaction_version >= 2) == commit.is_v2
    ]
    if commit.is_v2:
        return naming[0] if len(naming) == 1 else None
    return naming[-1] if naming and commit.last else None


def _left_later(
    commit: GroupCommit,
    output: TopicPartition,
    decisions: Sequence[TransactionValue],
    group: TopicPartition,
) -> bool:
    """Return True if a decision that remains belongs to a later transaction than the commit's.

    Such a decision names this output but not the group's partition. Compaction removes the older
    decision first, so the commit's own is gone then.
    """
    epoch = commit.marker_epoch
    if epoch is None or (not commit.is_v2 and any(group in d.partitions for d in decisions)):
        return False
    return any(
        output in d.partitions
        and group not in d.partitions
        and (d.producer_epoch > epoch or (d.producer_epoch == epoch and not commit.is_v2))
        for d in decisions
    )


def written_with(commit: GroupCommit, tail: Iterable[Buffer]) -> OutputEvidence:
    """Return the evidence in an output's own batches under v2, where each transaction has an epoch.

    tail: the output's last batches, in order. Raises CorruptError.
    """
    epoch = commit.producer_epoch if commit.is_v2 else None
    if epoch is None:
        return OutputEvidence.NOTHING
    shown, newest = OutputEvidence.NOTHING, -1
    for buffer in tail:
        for header in batch_headers(buffer):
            if header.producer_id != commit.producer_id or not header.is_transactional:
                continue
            if not header.is_control:
                newest = header.producer_epoch
                continue
            end_marker = marker(buffer, header)
            if end_marker is None or end_marker.type is not ControlType.COMMIT:
                continue
            if newest == epoch and header.producer_epoch == commit.marker_epoch:
                shown = OutputEvidence.MARKERS
            elif commit.last and newest > epoch:
                shown = OutputEvidence.LATER  # it ended here but not in the group's partition
            newest = -1
    return shown
