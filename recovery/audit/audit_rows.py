"""The rows of the audits, and how far each of them read."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.row import FROM, TO, Row, Timestamp


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


MirrorFinding = Literal[
    "lost",
    "repeat",
    "changed",
    "only-in-mirror",
    "aborted",
    "open",
    "moved",
    "offset-sync",
    "checkpoint",
]


class AuditMirrorRow(Row):
    """A record, or an offset of MirrorMaker's, that is not the same in source and mirror.

    lost: the mirror lacks it, though it has later ones. repeat: the mirror has it again. aborted,
    open: no read_committed reader of the source got it. moved: the mirror has it before or after
    its place in the source; with those that follow it, `records` in all. offset-sync: the offsets
    name different records. checkpoint: a group that goes on there skips `records`.
    """

    partition: int
    finding: MirrorFinding
    source_offset: Annotated[int | None, Meta(description="in the source; null: it is not there")]
    mirror_offset: Annotated[int | None, Meta(description="in the mirror; null: it is not there")]
    first_copy: Annotated[int | None, Meta(description="of a repeat: the mirror's first")]
    records: Annotated[int | None, Meta(description="null: of a checkpoint before the ranges read")]
    key: Annotated[str | None, Meta(description="base64; null: no key, a long one, or not kept")]
    text: Annotated[str | None, Meta(description="readable form of the key")]
    timestamp: Timestamp
    differs: Annotated[
        list[str], Meta(description="of a changed record: timestamp, key, value, headers")
    ]
    group: Annotated[str | None, Meta(description="of a checkpoint")]


class MirrorRange(Row):
    """A range of keys in which source and mirror do not hold the same records."""

    keys: Annotated[str, Meta(description="first and last CRC-32 of the key, or `no key`")]
    source_records: int
    mirror_records: int
    source_digest: str
    mirror_digest: str


class MirrorExamined(Row):
    """One partition's reading by `audit mirror`, and all that it found there.

    The records compared are those that both logs can hold: neither what comes after the mirror's
    end (`behind`) nor what one log deleted as too old (`source_before`, `mirror_before`). Where
    logs have timestamps of their own, --start also leaves such records out of one of them.
    """

    partition: int
    source_start: int
    source_end: Annotated[int, Meta(description="the source's last stable offset, not included")]
    mirror_start: int
    mirror_end: Annotated[int, Meta(description="the mirror's last stable offset, not included")]
    source_records: Annotated[int, Meta(description="compared")]
    mirror_records: Annotated[int, Meta(description="compared")]
    source_digest: Annotated[str, Meta(description="of the records compared, without order")]
    mirror_digest: str
    same: Annotated[int, Meta(description="records that have their copy")]
    mirrored_to: Annotated[int | None, Meta(description="the source's first offset after them")]
    behind: Annotated[
        int, Meta(description="records of the source that the mirror has not reached yet")
    ]
    source_before: Annotated[
        int, Meta(description="before the mirror's first, which retention may have taken")
    ]
    mirror_before: Annotated[
        int, Meta(description="before the source's first, which retention may have taken")
    ]
    lost: int
    repeats: int
    changed: int
    only_in_mirror: int
    aborted: int
    open: int
    moved: Annotated[int | None, Meta(description="records out of order; null: not known")]
    unproven: Annotated[
        int,
        Meta(description="differences that compaction, or records before the ranges, may explain"),
    ]
    syncs: Annotated[int, Meta(description="offset syncs that were compared")]
    syncs_wrong: int
    ranges: Annotated[list[MirrorRange], Meta(description="key ranges that differ")]


class MirrorCheckpoint(Row):
    """The offset at which MirrorMaker lets a group go on in the mirror."""

    group: str
    partition: int
    source_offset: Annotated[int, Meta(description="the group's, in the source")]
    mirror_offset: Annotated[int, Meta(description="what it is translated to")]
    skipped: Annotated[
        int | None,
        Meta(
            description="records of the mirror that the group never read; null: before the "
            "ranges read"
        ),
    ]
    read_again: Annotated[int | None, Meta(description="null: as skipped")]
    beyond_end: Annotated[bool, Meta(description="the mirror is shorter")]


class MirrorKeptRow(Row):
    """One partition of a mirror map: which part of both logs it knows."""

    partition: int
    source_start: int
    source_end: Annotated[int, Meta(description="the map knows the source up to here")]
    mirror_start: int
    mirror_end: int
    pairs: Annotated[int, Meta(description="records that have their copy")]
    new_pairs: Annotated[int, Meta(description="of these, since the last run")]
    steps: Annotated[int, Meta(description="runs of pairs that are kept")]
    waiting: Annotated[int, Meta(description="records of the source that have no copy")]
    unread: Annotated[
        int, Meta(description="offsets of the source that are too far ahead of the mirror")
    ]
    unseen: Annotated[
        int, Meta(description="offsets of the mirror that were deleted before a run saw them")
    ]


class AuditEndToEndRow(Row):
    """An input that did not give one output.

    no-output: inputs before the cut that have none; with `proven` false it may only be deleted.
    repeated: more outputs than inputs have the id. aborted-input: outputs of an input that was
    aborted. With `proven` false an input that was not read may have the id of these.
    """

    finding: Literal["no-output", "repeated", "aborted-input"]
    records: Annotated[
        int, Meta(description="inputs without an output, outputs too many, or of aborted inputs")
    ]
    proven: Annotated[bool, Meta(description="false: it may be deleted, or its input not read")]
    inputs: Annotated[list[RecordPlace], Meta(description="the first that have the id")]
    outputs: Annotated[list[RecordPlace], Meta(description="the first that have the id")]


class EndToEndInput(Row):
    """One input partition's reading by `audit end-to-end`."""

    topic: str
    partition: int
    log_start_offset: Annotated[
        int | None,
        Meta(description="older inputs are deleted: if they had an output is unknown; null: a map"),
    ]
    start: Annotated[int, FROM]
    cut: Annotated[int, Meta(description="inputs from here on may still wait for their output")]
    end: Annotated[int, TO, Meta(description="the last stable offset, not included")]
    records: int
    without_id: Annotated[int, Meta(description="of these; they cannot be followed")]
    aborted: int
    no_output: int
    unproven: Annotated[int, Meta(description="no output, or one that is deleted")]
    pending: Annotated[int, Meta(description="the output is in a transaction that is still open")]
    behind: Annotated[int, Meta(description="no output yet, at or after the cut")]


class EndToEndOutput(Row):
    """One output partition's reading by `audit end-to-end`."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO, Meta(description="the high watermark, not included")]
    records: int
    without_id: int
    aborted: Annotated[int, Meta(description="read_uncommitted readers get them, too")]
    open: Annotated[int, Meta(description="in open transactions, or after one")]
    repeated: int
    aborted_input: Annotated[int, Meta(description="their input was aborted")]
    without_input: Annotated[int, Meta(description="no input that was read has their id")]


class EndToEndReader(Row):
    """A group that has come past aborted outputs; with read_uncommitted it got them."""

    group: str
    topic: str
    partition: int
    committed_offset: int
    aborted_offset: Annotated[int, Meta(description="of the first aborted output")]


class MirrorCutPart(HasPartition, Row):
    """What a transaction wrote in a partition of the source, and what the mirror has of it."""

    topic: str
    partition: int
    mirror_topic: str
    first_offset: Annotated[int, Meta(description="in the source")]
    last_offset: int
    missing_from: Annotated[
        int | None, Meta(description="first that the mirror lacks; null: it has the part")
    ]


class MirrorAbsentPart(HasPartition, Row):
    """A partition that a transaction named, and of which the mirror has nothing of it."""

    topic: str
    partition: int
    mirror_topic: str
    from_offset: Annotated[int, Meta(description="in the source its records come at or after it")]


class MirrorOpenRow(HasPartition, Row):
    """A transaction that is open in the mirror and that no coordinator there owns."""

    topic: Annotated[str, Meta(description="of the source")]
    partition: int
    mirror_topic: str
    producer_id: int
    start_offset: Annotated[int, Meta(description="in the mirror")]
    outcome: Annotated[str, Meta(description="commit or abort, as the source decided")]
    proven: Annotated[bool, Meta(description="by the same batches in the source's log")]
    transactional_id: Annotated[str, Meta(description="that decided it, in the source")]
    same_batches: Annotated[
        int | None, Meta(description="of its producer in both logs; null: nothing was compared")
    ]
    missing_records: Annotated[
        int | None, Meta(description="that the source has before its marker, and the mirror lacks")
    ]
    marker_offset: Annotated[int | None, Meta(description="of the source's marker")]
    command: Annotated[
        str | None,
        Meta(description="that ends it, without --link-is-stopped, which is yours to say"),
    ]


class MirrorTransactionRow(Row):
    """A transaction that the source committed, and of which the mirror has only a part."""

    transactional_id: Annotated[str | None, Meta(description="null where its decision is gone")]
    producer_id: int
    producer_epoch: Annotated[int, Meta(description="of the data")]
    decided_at: Timestamp
    partitions: list[MirrorCutPart]
    absent: Annotated[
        list[MirrorAbsentPart],
        Meta(description="by a bundle's decisions, which do not say what was written"),
    ]
