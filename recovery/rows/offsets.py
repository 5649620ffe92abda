"""The rows of `offsets count` and `offsets show`."""

from typing import Annotated

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.rows.row import FROM, TO, Row


class OffsetsCountRow(Row):
    """The fate of the offsets [from, to) of a partition: the five counts add up to to - from.

    All five are null where they could not be counted; nothing is guessed.
    """

    topic: str
    partition: int
    start: Annotated[int | None, FROM]
    end: Annotated[int | None, TO, Meta(description="not included")]
    data_records: Annotated[
        int | None, Meta(description="records that a read_committed reader gets")
    ]
    aborted_records: Annotated[int | None, Meta(description="records of aborted transactions")]
    control_records: Annotated[int | None, Meta(description="transaction markers")]
    open_records: Annotated[
        int | None,
        Meta(
            description="data records at or above the last stable offset, whatever their "
            "transaction"
        ),
    ]
    missing_offsets: Annotated[
        int | None, Meta(description="offsets without a record: compacted, deleted, never used")
    ]
    error: str | None = None


class OffsetsShowRow(HasPartition, Row):
    """A committed offset of a group, or of another store, which `group` then names, on a
    partition, against what its readers can see.

    lag = last_stable_offset - committed_offset, lag_hw = high_watermark - committed_offset, both in
    offsets, markers and holes included; below 0 where the group read further (read_uncommitted).
    Of a share group both are the lag that Kafka itself reports (KIP-1226), null where it does not:
    records above its start offset may be acknowledged already.
    """

    group: str
    topic: str
    partition: int
    committed_offset: Annotated[
        int | None, Meta(description="the last stable one; null: the first commit is still pending")
    ]
    leader_epoch: int | None
    metadata: str | None
    pending: Annotated[
        bool | None,
        Meta(
            description="a transaction holds a newer commit that is not decided; null: too old "
            "a broker"
        ),
    ]
    pending_offset: Annotated[
        int | None,
        Meta(
            description="the value of that commit, the newest of several; null where "
            "__consumer_offsets was not read, or the commit deletes the offset"
        ),
    ] = None
    pending_producer_id: Annotated[
        int | None, Meta(description="of that transaction; null where __consumer_offsets is hidden")
    ] = None
    last_stable_offset: int | None
    high_watermark: int | None
    lag: int | None
    lag_hw: int | None
    data_records: Annotated[
        int | None,
        Meta(
            description="records that wait for a read_committed reader up to the last stable "
            "offset; null unless counted"
        ),
    ] = None
    error: str | None = None
