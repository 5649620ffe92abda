"""Rows of the judging commands: `txn hanging`, `status`."""

from typing import Any, Literal

from recovery.inspect.cluster_rows import AgeClock
from recovery.row import Row, Timestamp


def partition_or_id(topic: str | None, partition: int | None, transactional_id: str | None) -> str:
    """Name a partition, or, without one, a transactional id: no topic's name has a blank."""
    return f"id {transactional_id}" if topic is None else f"{topic}:{partition}"


class EvidenceRow(Row):
    """One reason for a verdict: a stable code, a sentence, its numbers."""

    code: str
    text: str
    data: dict[str, Any]


Action = Literal[
    "abort",
    "fence",
    "commit",
    "wait",
    "resolve",
    "restore-leader",
    "restart-coordinator",
    "write-prepared-marker",
    "none",
]


class RemedyRow(Row):
    """The one safe way out. argv and command null: nothing that eoctl could do."""

    action: Action
    does: str
    caveats: list[str]
    refused: list[list[str]]
    argv: list[str] | None
    command: str | None


class WayRow(Row):
    """A command that is accepted now: it shows its plan, or a page, and changes nothing.

    knows: what only a person can know: owner-gone, committed, aborted; null: nothing more needed.
    """

    action: Literal["abort", "resolve", "fence", "why"]
    knows: str | None
    outcome: str | None
    argv: list[str]
    command: str | None


class OtherwiseRow(Row):
    """What is left for whoever knows no more: a stable code, and what it is about.

    data: partitions, broker, moves, transactional_id, rule (whose page says what to grant or ask),
    refused (why no outcome may be written, although no look can show one).
    """

    code: str
    data: dict[str, Any]


class EndsRow(Row):
    """What can be done: now, by whoever knows more, and otherwise. next null: nothing to run now.

    way: which of the verdict's cases this is, as `explain VERDICT` lists them.
    """

    way: str | None
    next: WayRow | None
    if_you_know: list[WayRow]
    otherwise: OtherwiseRow


class TxnHangingRow(Row):
    """One open transaction on one partition, judged, or a transactional id that holds none.

    gate: why a fence of its owner needs --owner-is-gone. ends: what can be done; null in rows of
    earlier versions. ends_at: when its coordinator aborts it,
    by the coordinator's clock; ends_in_seconds: how far off that is, negative once it is due.

    topic and partition: null where the id is not at rest and holds no partition.
    """

    topic: str | None
    topic_id: str | None
    partition: int | None
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
    gate: str | None = None
    ends_at: Timestamp = None
    ends_in_seconds: float | None = None
    error: str | None = None
    ends: EndsRow | None = None

    @property
    def where(self) -> str:
        """Return what it is about: `orders:3`, or `id NAME` of one that holds no partition."""
        return partition_or_id(self.topic, self.partition, self.transactional_id)


class StatusRow(Row):
    """All open transactions of one verdict, and ids that hold no partition.

    worst: the partition to look at first; where none is held the transactional id. contested-id is
    such a row too: transactions is the number of ids, whatever they hold.
    """

    verdict: str
    transactions: int
    partitions: int
    oldest_seconds: float | None
    age_clock: AgeClock | None
    groups: int | None
    worst: str | None
    next: str | None


class ContestRow(Row):
    """A transactional id that is initialised again and again: `contested-id`.

    initialisations: how many came before the producer before had finished, of which `aborted` ended
    an open transaction; since, until: the first and the last of them. interval_seconds: the median
    between two. timeouts_ms: what the new producers asked for, in order, repeats left out. causes:
    those that the records do not exclude. producer_id, producer_epoch, state: who holds the id now.
    clients: `client id at host` of the members of the groups that the id is named after; null: no
    group was asked for, or not all could be seen.
    """

    transactional_id: str
    initialisations: int
    aborted: int
    since: Timestamp
    until: Timestamp
    interval_seconds: float
    timeouts_ms: list[int]
    causes: list[str]
    producer_id: int
    producer_epoch: int
    state: str
    clients: list[str] | None = None
