"""The rows of `restart plan` and `restart verify`."""

from typing import Annotated, Literal

from msgspec import Meta, field

from recovery.facts import HasPartition
from recovery.rows.row import FROM, Row, Timestamp


class RestartInput(Row):
    """An input partition. Offsets are positions: the next record to read."""

    topic: str
    partition: int
    current_offset: Annotated[int | None, Meta(description="null: the store has none")]
    restart_offset: int
    direction: Literal["rewind", "skip", "none"]
    records: Annotated[
        int | None, Meta(description="data records in between; null: cannot be counted")
    ]
    from_time: Timestamp
    to_time: Timestamp


class FedBy(HasPartition, Row):
    topic: str
    partition: int


class RestartSource(Row):
    """A source partition of Kafka Connect and its source offsets, as JSON text. null: none."""

    partition: str
    current_offset: str | None
    restart_offset: str | None


class RestartOutput(HasPartition, Row):
    """An output partition: its first drop_first outputs after the restart are in [from,
    end_offset) already. Valid with exactly these numbers."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end_offset: int
    leader_epoch: int | None
    drop_first: int
    fed_by: list[FedBy]


class RestartState(HasPartition, Row):
    """The state that belongs to the restart: a changelog's partition up to end_offset."""

    topic: str
    partition: int
    end_offset: int


class RestartCheck(Row):
    """held: null = could not be checked, is assumed. where: partitions it is about."""

    name: str
    held: bool | None
    detail: str
    where: str | None = None


class RestartPlanRow(Row):
    """One plan: where each input partition restarts, and how many outputs are to be dropped."""

    app: Annotated[str, Meta(description="the application's name, or the group of an ad-hoc plan")]
    strategy: str
    inputs: list[RestartInput]
    outputs: list[RestartOutput]
    state: list[RestartState]
    guarantee: Literal["exactly-once", "at-least-once", "at-most-once"]
    because: str
    checks: list[RestartCheck]
    starting_offsets: Annotated[
        str | None, Meta(description="spark-checkpoint: the value of Spark's startingOffsets")
    ] = None
    sources: Annotated[
        list[RestartSource], Meta(description="connect: of a source connector, which has no inputs")
    ] = field(default_factory=list)


class RestartVerifyRow(Row):
    """One thing that is not as an applied plan left it. where: the partition."""

    finding: Literal[
        "overwritten",
        "mirror-overwritten",
        "pending",
        "written-beyond",
        "another-topic",
        "another-epoch",
        "lost",
    ]
    where: str
    producer_id: int | None
    detail: str
