"""The rows of `producers --summary` and `txn list --summary`."""

from typing import Annotated, Literal

from msgspec import Meta

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
        Meta(description="of transactional ids; null in a row by prefix: no coordinator lists one"),
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
