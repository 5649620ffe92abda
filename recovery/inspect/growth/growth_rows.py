"""The rows of `producers --summary` and `txn list --summary`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.inspect.cluster_rows import AgeClock, Blocking
from recovery.row import Row

NewPerHour = Annotated[
    float | None,
    Meta(description="at the rate of the interval between the two looks; null without two looks"),
]


class ProducersSummaryRow(Row):
    """How many producers the leaders keep in memory, of one broker, topic, partition or prefix.

    by: which of these the row counts; the other names are null, except those of a partition.
    broker: the leader; its followers keep the same producers. producer_states: a producer id counts
    once on each partition that it wrote to, as Kafka keeps it; producer_ids: once. open: states
    with an open transaction.
    """

    by: Literal["broker", "topic", "partition", "prefix"]
    broker: int | None
    topic: str | None
    partition: int | None
    prefix: Annotated[
        str | None,
        Meta(
            description="of transactional ids; null in a row by prefix: no coordinator that was "
            "seen lists one"
        ),
    ]
    owner_known: Annotated[
        bool | None,
        Meta(
            description="of a row by prefix; false: not all coordinators were seen, so these "
            "producers may have a transactional id"
        ),
    ]
    partitions: Annotated[int, Meta(description="that were described and have such a producer")]
    partitions_unseen: Annotated[
        int, Meta(description="whose producers were not described: the counts leave them out")
    ]
    producer_ids: int
    producer_states: int
    open: int
    new_states: Annotated[
        int | None,
        Meta(description="that the first look did not have; null without two complete looks"),
    ] = None
    new_per_hour: NewPerHour = None


class TxnSummaryRow(Row):
    """The transactional ids that share a prefix: without the numbers and UUIDs at their ends.

    states: how many are in each of Kafka's states. open: those with an open transaction. idle: the
    others; oldest_idle_seconds: since the last transaction began of the one that was idle longest,
    by its coordinator's clock.
    """

    prefix: str
    transactional_ids: int
    open: int
    idle: int
    oldest_idle_seconds: Annotated[
        float | None,
        Meta(description="null: none is idle, or no coordinator gave when one of them began"),
    ]
    oldest_idle_id: str | None
    idle_unknown: Annotated[
        int, Meta(description="idle ids without a known time: `Empty` ones began no transaction")
    ]
    states: dict[str, int]
    new_ids: Annotated[
        int | None,
        Meta(description="that the first look did not have; null without two complete looks"),
    ] = None
    new_per_hour: NewPerHour = None


class InternalPartitionRow(Row):
    """A partition of an internal topic. offsets: from log start to high watermark; compaction took
    records out of these, so there are at most so many. bytes: of the leader's log.

    held: offsets above the last stable one, which the log cleaner cannot pass while the transaction
    in `blocking` is open.
    """

    partition: int
    leader: int | None
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    offsets: int | None
    bytes: int | None
    held: int | None
    blocking: Blocking | None


class InternalTopicRow(Row):
    """How full an internal topic is. offsets, bytes: of all partitions; null: of one it is unknown.

    largest_partition, largest_bytes: of the partitions whose size is known the one with the most.
    held: partitions in which an open transaction stops the log cleaner; null: of one it is unknown.
    """

    topic: str
    partitions: int
    offsets: int | None
    bytes: int | None
    largest_partition: int | None
    largest_bytes: int | None
    held: int | None
    logs: list[InternalPartitionRow]


class GrowthRow(Row):
    """Something that grows and should not, on a partition; a healthy cluster has none.

    cleaner-held: a finding's transaction has been open for `limit` seconds or more, so the log
    cleaner has not compacted above last_stable_offset since. age_clock: whose clock says so; a
    producer may write any timestamp. internal-topic: the log of an internal
    topic has `limit` bytes or more. prefix: of the transactional id, or of most ids.
    """

    kind: Literal["cleaner-held", "internal-topic"]
    topic: str
    partition: int
    limit: int
    last_stable_offset: int | None = None
    held: int | None = None
    age_seconds: float | None = None
    age_clock: AgeClock | None = None
    producer_id: int | None = None
    bytes: int | None = None
    prefix: str | None = None
    transactional_ids: Annotated[int | None, Meta(description="with this prefix")] = None
