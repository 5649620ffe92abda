"""The rows of `audit mirror`."""

from typing import Literal

from pydantic import Field

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
    open: no read_committed reader of the source got it. moved: the mirror has it before or behind
    where the source has it; with those that follow it, `records` in all. offset-sync: the offsets
    name different records. checkpoint: a group that goes on there skips `records`.
    """

    partition: int
    finding: MirrorFinding
    source_offset: int | None = Field(description="in the source; null: it is not there")
    mirror_offset: int | None = Field(description="in the mirror; null: it is not there")
    first_copy: int | None = Field(description="of a repeat: the mirror's first")
    records: int | None = Field(description="null: of a checkpoint before the ranges read")
    key: str | None = Field(description="base64; null: no key, a long one, or not kept")
    text: str | None = Field(description="readable form of the key")
    timestamp: Timestamp
    differs: list[str] = Field(description="of a changed record: timestamp, key, value, headers")
    group: str | None = Field(description="of a checkpoint")


class MirrorRange(Row):
    """A range of keys in which source and mirror do not hold the same records."""

    keys: str = Field(description="first and last CRC-32 of the key, or `no key`")
    source_records: int
    mirror_records: int
    source_digest: str
    mirror_digest: str


class MirrorExamined(Row):
    """One partition's reading by `audit mirror`, and all that it found there.

    The records compared are those that both logs can hold: neither what is behind the mirror's end
    (`behind`) nor what one log deleted as too old (`source_before`, `mirror_before`). Where logs
    have timestamps of their own, --start also leaves such records out of one of them.
    """

    partition: int
    source_start: int
    source_end: int = Field(description="the source's last stable offset, not included")
    mirror_start: int
    mirror_end: int = Field(description="the mirror's last stable offset, not included")
    source_records: int = Field(description="compared")
    mirror_records: int = Field(description="compared")
    source_digest: str = Field(description="of the records compared, without order")
    mirror_digest: str
    same: int = Field(description="records that have their copy")
    mirrored_to: int | None = Field(description="the source's first offset behind them")
    behind: int = Field(description="records of the source that the mirror has not reached yet")
    source_before: int = Field(
        description="before the mirror's first, which retention may have taken"
    )
    mirror_before: int = Field(
        description="before the source's first, which retention may have taken"
    )
    lost: int
    repeats: int
    changed: int
    only_in_mirror: int
    aborted: int
    open: int
    moved: int | None = Field(description="records out of order; null: it could not be told")
    unproven: int = Field(
        description="differences that compaction, or records before the ranges, may explain"
    )
    syncs: int = Field(description="offset syncs that were compared")
    syncs_wrong: int
    ranges: list[MirrorRange] = Field(description="key ranges that differ")


class MirrorCheckpoint(Row):
    """The offset at which MirrorMaker lets a group go on in the mirror."""

    group: str
    partition: int
    source_offset: int = Field(description="the group's, in the source")
    mirror_offset: int = Field(description="what it is translated to")
    skipped: int | None = Field(
        description="records of the mirror that the group never read; null: before the ranges read"
    )
    read_again: int | None = Field(description="null: as skipped")
    beyond_end: bool = Field(description="the mirror is shorter")
