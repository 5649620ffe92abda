"""The rows of a partition's log: its stretches around the LSO, and single records at stake."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.rows.row import FROM, TO, Row, Timestamp

StripKind = Literal[
    "plain", "committed", "aborted", "open", "undecided", "control", "missing", "unread"
]


class StripRow(Row):
    """A stretch [first_offset, end_offset) of one partition's log that is of one kind and producer.

    plain: written outside any transaction. committed, aborted: of transactions that were decided;
    at or above the LSO such records wait anyway. open: no marker follows up to the high
    watermark. undecided: the same, but the log was not read that far. control: a marker, outcome
    says which. missing: no record there (compacted, deleted, never used). unread: more than is
    read for a strip. batches, records: how many; what compaction took out of the middle of a batch
    is no record, though its offset lies in the stretch.

    Of a marker also its coordinator_epoch, its timestamp by the leader's clock, and its origin:
    decided by its coordinator, ours (in this host's journal), foreign (nobody decided it, proven by
    the id's history), decision-gone (its decision is no longer in the log); null: not judged.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    kind: StripKind
    outcome: Literal["commit", "abort"] | None = None
    producer_id: int | None = None
    batches: int = 0
    records: int = 0
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None
    timestamp: Timestamp = None
    origin: Literal["decided", "ours", "foreign", "decision-gone"] | None = None


class MarkerRow(Row):
    """A marker that no coordinator decided. origin: ours (in this host's journal), or foreign: the
    producer id's history is complete over it and no decision fits it. timestamp: by the leader's
    clock.
    """

    topic: str
    partition: int
    offset: int
    timestamp: Timestamp
    outcome: Literal["commit", "abort"]
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    origin: Literal["ours", "foreign"]


RecordFormat = Literal["text", "json", "avro", "protobuf", "hex"]
FoundBeside = Literal["same-value", "same-key", "not-in-range", "no-key"]


class HeaderRow(Row):
    """A record's header. value: in base64; value_decoded: its text, or `0x` and hexadecimal."""

    name: str
    value: str | None
    value_decoded: str | None


class BesideRow(Row):
    """Whether a committed record of the output has a held record's key.

    found: same-value if its bytes are equal too; not-in-range: none in the offsets that were read,
    which the envelope names; no-key: the record has none, so this cannot be answered. offset: of
    the first such record.
    """

    found: FoundBeside
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class BesideRangeRow(Row):
    """The offsets of an output's partition that were searched for keys.

    from_timestamp: the time that `from` was looked up for. complete: read up to the last stable
    offset.
    """

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO, Meta(description="not included")]
    last_stable_offset: int
    from_timestamp: Timestamp
    complete: bool


class RecordRow(HasPartition, Row):
    """A record of the transaction in question (held), or one that waits for it to end (waiting).

    key, value: in base64. key_decoded, value_decoded: readable, in the format that key_format and
    value_format name; `0x` and digits for hex. value_bytes: the value's length. With --keys-only
    there is no value but its length; headers: null unless requested. problem: why something is
    shown as hex. beside: of held records, with --beside.
    """

    topic: str
    partition: int
    which: Literal["held", "waiting"]
    offset: int
    timestamp: Timestamp
    producer_id: int | None
    key: str | None
    key_decoded: object
    key_format: RecordFormat | None
    value: str | None
    value_decoded: object
    value_format: RecordFormat | None
    value_bytes: int | None
    headers: list[HeaderRow] | None = None
    problem: str | None = None
    beside: BesideRow | None = None
