"""What `restart verify` and `restart checkpoint` find: a row each."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.row import Row


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


class CheckpointFileRow(Row):
    """A file of a Structured Streaming checkpoint that is not as Spark left it, or that a repaired
    copy gets."""

    file: Annotated[
        str, Meta(description="relative to the checkpoint; of state the folder of a partition")
    ]
    finding: Annotated[str | None, Meta(description="null: nothing is wrong with it")]
    blocks: Annotated[bool, Meta(description="the query does not go on as it would have")]
    spark: Annotated[str | None, Meta(description="what Spark 4.3.0 does with it")]
    settles: Annotated[str | None, Meta(description="what would prove what it held")]
    repair: Literal["none", "written", "left-out"]
    effect: Annotated[Literal["proven", "no-effect"] | None, Meta(description="of what is written")]
    because: Annotated[str | None, Meta(description="what proves it, and what of it is guessed")]
