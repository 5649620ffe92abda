"""Rows of `txn commit`: what a Flink checkpoint promises, and what else its sinks have open."""

from typing import Literal

from recovery.rows.row import Row, Timestamp


class WrittenRow(Row):
    """What a transaction wrote to one partition: its data records and their offsets."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int


class CommittableRow(Row):
    """One transaction of a sink. checkpoint_id: in which it was prepared; null = in none.

    fate: `committed`, `open` (prepared, to be committed), `lost` (aborted although the checkpoint
    promises it), `unknown`; `not-in-checkpoint`: open, and Flink's restore aborts it. rule: the
    stable code of what proves that. records: all of them, over `written`; null = not counted
    (committed ones are not), or not all could be read. ends_at: when its coordinator aborts it, by
    the coordinator's clock; ends_in_seconds: how far off that is, negative once it is due.
    decided_at: when its end was recorded.
    """

    transactional_id: str
    checkpoint_id: int | None
    producer_id: int
    producer_epoch: int | None
    fate: Literal["committed", "open", "lost", "unknown", "not-in-checkpoint"]
    rule: str
    detail: str
    state: str | None
    records: int | None
    written: list[WrittenRow]
    ends_at: Timestamp
    ends_in_seconds: float | None
    decided_at: Timestamp
