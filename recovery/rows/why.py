"""The row of `why`: the story of one partition."""

from msgspec import field

from recovery.rows.diagnosis import ContestRow, HistoryRow, TxnHangingRow, partition_or_id
from recovery.rows.row import ConnectRow, Row, Timestamp
from recovery.rows.strip import StripRow


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

    topic and partition: null where the story is of a transactional id that holds no partition.
    also_holds: the other partitions on which the same producer id has something open, as far as
    its coordinator or the partitions looked at show. That need not be the same transaction.
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
    contest: ContestRow | None = None

    @property
    def where(self) -> str:
        """Return what it is about: `orders:3`, or `id NAME` of one that holds no partition."""
        return partition_or_id(self.topic, self.partition, self.transactional_id)
