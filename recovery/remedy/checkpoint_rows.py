"""Rows of `txn commit` and `txn salvage`: what a Flink checkpoint promises, and what was lost."""

from typing import Literal

from recovery.facts import HasPartition
from recovery.row import Row, Timestamp


class WrittenRow(HasPartition, Row):
    """A transaction's data records in one partition, and their offsets."""

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


class SalvageRow(Row):
    """The records of a lost transaction in one partition.

    status: `lost` (to be copied by --execute), `salvaged` (copied by this run or an earlier one),
    `refused`: detail says why. topic, partition: null if no log holds any of it any more.
    records: from first_offset to last_offset, with other producers' records between. aborted_at:
    when its marker was written, by the broker's clock. to_topic: where they are copied to, in the
    same partition number; to_first_offset, to_last_offset: where the copies are; null = not copied,
    or the coordinator has forgotten who copied them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    status: Literal["lost", "salvaged", "refused"]
    topic: str | None
    partition: int | None
    records: int
    first_offset: int | None
    last_offset: int | None
    aborted_at: Timestamp
    to_topic: str | None
    to_first_offset: int | None
    to_last_offset: int | None
    detail: str
