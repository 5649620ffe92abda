"""Rows of the judging commands: `txn hanging`, `status`, `txn history`."""

from typing import Any, Literal

from recovery.rows import AgeClock, Row, Timestamp


class EvidenceRow(Row):
    """One reason for a verdict: a stable code, a sentence, its numbers."""

    code: str
    text: str
    data: dict[str, Any]


class RemedyRow(Row):
    """The one safe way out. argv and command null: nothing that eoctl could do."""

    action: Literal[
        "abort", "fence", "wait", "resolve", "restore-leader", "restart-coordinator", "none"
    ]
    does: str
    caveats: list[str]
    refused: list[list[str]]
    argv: list[str] | None
    command: str | None


class TxnHangingRow(Row):
    """One open transaction on one partition, judged."""

    topic: str
    topic_id: str | None
    partition: int
    leader: int | None
    producer_id: int | None
    producer_epoch: int | None
    start_batch_epoch: int | None
    coordinator_epoch: int | None
    transactional_id: str | None
    start_offset: int | None
    last_timestamp: Timestamp
    age_seconds: float | None
    age_clock: AgeClock | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    state: str | None
    samples: int
    verdict: str
    rule: str
    mixed: bool
    offsets_pending: bool
    proven_outcome: str | None
    groups: list[str]
    evidence: list[EvidenceRow]
    remedy: RemedyRow
    error: str | None = None


class StatusRow(Row):
    """All open transactions of one verdict. worst: the partition to look at first."""

    verdict: str
    transactions: int
    partitions: int
    oldest_seconds: float | None
    age_clock: AgeClock | None
    groups: int | None
    worst: str | None
    next: str | None


class HistoryRow(Row):
    """One record of `__transaction_state`, oldest first.

    epoch_bump: why the epoch is above that of the record before: `end` (transactions v2 raise it
    at every end), `fence` (a producer was initialised again), null where it is not above.
    """

    transactional_id: str
    offset: int
    coordinator_partition: int
    timestamp: Timestamp
    state: str | None
    producer_id: int | None
    producer_epoch: int | None
    epoch_bump: Literal["end", "fence", "timeout"] | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    client_transaction_version: int | None
    previous_producer_id: int | None
    next_producer_id: int | None
    partitions: list[str]
    tombstone: bool
