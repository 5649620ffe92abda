"""The row of `why`: the story of one partition."""

from recovery.rows import Row, Timestamp
from recovery.rows_diagnosis import HistoryRow, TxnHangingRow


class HeldGroupRow(Row):
    """A group on the partition. held_up: it has read all that readers may see."""

    group: str
    type: str | None
    state: str | None
    committed_offset: int | None
    lag: int | None
    lag_hw: int | None
    pending: bool | None
    held_up: bool | None
    members: list[str]


class WaitingRow(Row):
    """Data records between LSO and high watermark. at_least: more were not read."""

    records: int
    mine: int
    aborted: int
    other_open: int
    freed: int
    oldest_timestamp: Timestamp
    at_least: bool


class OwnerRow(Row):
    """Who, as far as Kafka tells. said: in a sentence; clients: `client id at host`."""

    transactional_id: str | None
    coordinator: int | None
    clients: list[str]
    said: str


class WaitRow(Row):
    """What happens if one waits. ends_at: the coordinator's abort; deleted_at: retention."""

    said: str
    ends_at: Timestamp
    deleted_at: Timestamp


class WhyRow(Row):
    """Why readers of one partition stand, or that they do not stand because of the LSO."""

    topic: str
    topic_id: str | None
    partition: int
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
    error: str | None = None
