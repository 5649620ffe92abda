"""The row of `why`: the story of one partition."""

from typing import Literal

from msgspec import field

from recovery.diagnose.diagnosis_rows import ContestRow, TxnHangingRow, partition_or_id
from recovery.facts import HasPartition
from recovery.inspect.cluster_rows import ConnectRow, HistoryRow, MarkerRow, RecordRow, StripRow
from recovery.row import Row, Timestamp


class HeldGroupRow(Row):
    """A group on the partition. held_up: it has read all that readers may see.

    beyond: its committed offset is above the transaction's first record: unless that offset was
    set by hand, it reads uncommitted records, and may have used some that an abort drops.
    members_seen: false: `members` is empty since they were not seen. Of a share group: lag and
    lag_hw are Kafka's own; isolation is its share.isolation.level, null where that is hidden.
    """

    group: str
    type: str | None
    state: str | None
    committed_offset: int | None
    lag: int | None
    lag_hw: int | None
    pending: bool | None
    held_up: bool | None
    members: list[str]
    beyond: bool | None = None
    members_seen: bool = True
    isolation: str | None = None


class WaitingRow(Row):
    """Data records between LSO and high watermark. at_least: more were not read.

    mine_bytes: size in the log of the judged transaction's batches.
    """

    records: int
    mine: int
    aborted: int
    other_open: int
    freed: int
    oldest_timestamp: Timestamp
    at_least: bool
    mine_bytes: int | None = None


class OwnerRow(Row):
    """The owner, as far as Kafka shows. said: in a sentence; clients: `client id at host`."""

    transactional_id: str | None
    coordinator: int | None
    clients: list[str]
    said: str
    connect: ConnectRow | None = None


class WaitRow(Row):
    """The result of waiting, and a sentence that says it (said).

    ending: how the transaction ends (recovery.diagnose.prospect.Ending). ends_at: when its
    coordinator aborts it, by the coordinator's clock; ends_in_seconds: how far off that is,
    negative once it is due. deleted_at: when retention deletes the oldest record that waits.
    """

    said: str
    ends_at: Timestamp
    deleted_at: Timestamp
    ending: str | None = None
    ends_in_seconds: float | None = None


class WhyRow(Row):
    """The reason why readers of one partition wait, or that the LSO does not hold them.

    again: the command line that watches it.
    strip: the log around the LSO, up to 100 offsets on each side; null where it was not read.
    records: with --records, of this transaction and of the first that wait; else null.

    topic and partition: null where the story is of a transactional id that holds no partition.
    also_holds: the other partitions on which the same producer id has something open, as far as
    its coordinator or the partitions looked at show. That need not be the same transaction.

    markers: those that no coordinator decided, in the strip and of the judged producer id.
    contest: the owner's id is initialised again and again, as far as its history was read.
    """

    topic: str | None
    topic_id: str | None
    partition: int | None
    leader: int | None
    stuck: bool | None
    headline: str
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    held: int | None
    waiting: WaitingRow | None
    held_by: TxnHangingRow | None
    others: list[TxnHangingRow]
    owner: OwnerRow | None
    history: list[HistoryRow]
    groups: list[HeldGroupRow] | None
    groups_said: str
    if_you_wait: WaitRow | None
    samples: int
    brokers_up: int
    brokers_known: int
    transactional_id: str | None = None
    error: str | None = None
    again: str | None = None
    also_holds: list[str] = field(default_factory=list)
    strip: list[StripRow] | None = None
    markers: list[MarkerRow] = field(default_factory=list)
    records: list[RecordRow] | None = None
    contest: ContestRow | None = None

    @property
    def where(self) -> str:
        """Return what it is about: `orders:3`, or `id NAME` of one that holds no partition."""
        return partition_or_id(self.topic, self.partition, self.transactional_id)


GroupVerdictName = Literal[
    "held",
    "out-of-range",
    "not-running",
    "not-moving",
    "catching-up",
    "up-to-date",
    "nothing-committed",
    "not-known",
]


class GroupPartitionRow(HasPartition, Row):
    """Where a group is on one partition.

    lag: offsets from committed_offset to the LSO, markers included; of a share group Kafka's own.
    records: those of them that a read_committed reader gets, null where they were not counted;
    at_least: more were not counted. oldest_timestamp: of the first of these records, by the
    producer's clock. held: offsets beyond the LSO that this group has to wait for; 0 for readers
    of uncommitted records. verdict: on the transaction at the LSO. pending_offset: of the newest
    commit that is not decided. committed_at: its newest commit; since: since when at least it has
    committed this same offset; both by the coordinator's clock. These three are null where
    `__consumer_offsets` was not read. moved: between two looks, null with one.
    problem: its offset is not in the log, `below-log-start` or `above-end`.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_start_offset: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    records: int | None = None
    at_least: bool = False
    oldest_timestamp: Timestamp = None
    held: int | None = None
    verdict: str | None = None
    pending: bool | None = None
    pending_offset: int | None = None
    committed_at: Timestamp = None
    since: Timestamp = None
    moved: bool | None = None
    problem: Literal["below-log-start", "above-end"] | None = None
    error: str | None = None

    @property
    def waits(self) -> bool:
        """Return True if records wait that the group may read now; uncounted offsets may be."""
        return (self.lag or 0) > 0 if self.records is None else self.records > 0


Action = Literal["start", "look-at-members", "why", "watch", "choose-start", "see-more"]


class GroupStepRow(Row):
    """What to do next. action: start its process, look at its members, free what holds it (`why`),
    watch it, choose where it starts again, or grant what was not seen."""

    action: Action
    partition: str | None = None
    argv: list[str] | None = None
    command: str | None = None


class GroupStoryRow(Row):
    """Why a group does not move, or that it does.

    verdict: `not-running`: records wait, and it has no members; `not-moving`: it has; `held`: all
    that waits is in transactions that do not end as they should. about: the partitions for which
    that is so. members: `client id at host`, null where they were not seen. empty_since: since
    when a classic group has had none; last_members: who was in it before. Both as far as its log
    tells. never_had_members: what commits for it assigns its partitions itself, as Flink and
    Spark do. own_partition: of `__consumer_offsets`, own_verdict: on the transaction in which its
    newest commit waits there. looks_seconds: between two looks, null with one. since_unseen: why
    its commits' times are not known.
    """

    group: str
    type: str | None
    state: str | None
    isolation: str | None
    verdict: GroupVerdictName
    about: list[str]
    members: list[str] | None
    never_had_members: bool
    empty_since: Timestamp
    last_members: list[str]
    own_partition: str | None
    own_verdict: str | None
    looks_seconds: float | None
    since_unseen: str | None
    partitions: list[GroupPartitionRow]
    next: list[GroupStepRow]
