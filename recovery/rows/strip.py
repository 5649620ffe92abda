"""The rows of the dashboard's partition strip: what stands in the log around the LSO."""

from typing import Literal

from recovery.rows.row import Row, Timestamp

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
