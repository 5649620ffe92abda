"""The rows of `audit sequences`, `audit transactions` and `audit duplicates`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.rows.row import FROM, TO, Row, Timestamp


class AuditSequencesRow(Row):
    """A batch that does not continue its producer's sequence in its partition.

    gap: records between the producer's batch before and this one are missing, and no offsets are
    missing that would explain it by compaction. repeat: records are there twice. epoch-back: a
    batch of an epoch below one that the producer id had before.
    """

    topic: str
    partition: int
    finding: Literal["gap", "repeat", "epoch-back"]
    producer_id: int
    producer_epoch: int
    offset: Annotated[int, Meta(description="of the batch's first record")]
    after_offset: Annotated[
        int | None,
        Meta(
            description="last offset of the producer's batch before it; null: it is the first here"
        ),
    ]
    expected: Annotated[
        int, Meta(description="first sequence that was to come; epoch-back: least epoch")
    ]
    found: Annotated[int, Meta(description="first sequence, or epoch, that came")]
    records: Annotated[int, Meta(description="missing (gap), there twice (repeat), in the batch")]


class SequencesExamined(Row):
    """One partition's reading by `audit sequences`, and all that it found there."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO, Meta(description="not included")]
    batches: int
    records: int
    unnumbered: Annotated[
        int, Meta(description="records of producers without idempotence: not judged")
    ]
    producers: int
    gaps: int
    repeats: int
    epochs_back: int
    explained: Annotated[int, Meta(description="gaps that missing offsets explain: compaction")]


class NamedMarker(HasPartition, Row):
    """A transaction's marker in a partition."""

    topic: str
    partition: int
    first_offset: Annotated[int | None, Meta(description="of the transaction's data; null: none")]
    last_offset: int | None
    marker: Annotated[str | None, Meta(description="commit or abort; null: none followed the data")]
    marker_offset: int | None


class AuditTransactionsRow(Row):
    """A transaction that did not end as it should.

    torn: partitions ended it differently, or other than the coordinator decided. marker-missing: a
    partition has data of it and no marker, though the coordinator called it complete. wrong-marker:
    the marker below which its data lies is that of a later transaction.
    """

    finding: Literal["torn", "marker-missing", "wrong-marker"]
    transactional_id: str | None
    producer_id: int
    producer_epoch: Annotated[int, Meta(description="of the data")]
    decided: Annotated[
        str | None,
        Meta(description="commit or abort; null where the coordinator's record is compacted away"),
    ]
    decided_at: Timestamp
    partitions: list[NamedMarker]


class TransactionsCovered(Row):
    """The reach of `audit transactions` for a transactional id.

    covered: transactions whose Prepare* record is still there, judged in every partition that they
    name and that was read. unproven: those of which only the end is known.
    """

    transactional_id: str
    covered: int
    covered_from: Annotated[
        Timestamp, Meta(description="time of the first decision that is covered")
    ]
    covered_to: Timestamp
    pending: Annotated[int, Meta(description="decided, markers still being written")]
    unproven: int
    unproven_from: Timestamp
    unproven_to: Timestamp
    whole: Annotated[
        bool, Meta(description="no transaction of the id can have been compacted away")
    ]


class RecordPlace(Row):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int
    timestamp: Timestamp


class AuditDuplicatesRow(Row):
    """An id that more than one record has."""

    id: Annotated[str | None, Meta(description="base64; null where it is longer than 1 KiB")]
    text: Annotated[str, Meta(description="readable form")]
    copies: int
    same_value: Annotated[bool, Meta(description="key and value of all copies are equal")]
    partitions: Annotated[int, Meta(description="how many partitions hold copies")]
    places: Annotated[
        list[RecordPlace], Meta(description="the first copies, by topic, partition, offset")
    ]
    nearest_offsets: Annotated[
        int | None,
        Meta(
            description="least distance of two copies in one partition; null: all in different ones"
        ),
    ]
    farthest_offsets: int | None
    span_seconds: Annotated[
        float | None, Meta(description="between the oldest and the newest timestamp")
    ]
