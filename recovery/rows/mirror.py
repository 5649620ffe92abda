"""The rows of `audit mirror`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.rows.row import Row, Timestamp

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
