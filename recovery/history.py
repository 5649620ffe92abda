"""What the coordinators decided about a producer on a partition, from `__transaction_state`.

A decision is a Prepare* record that names the partition. This module finds the decisions of one
producer id and says whether the history is whole enough for "there is none" to mean anything.
Which decisions lack their marker: `recovery.lost_markers`. `__transaction_state` is compacted: a
Prepare* record vanishes under the Complete* that follows it, so absence alone proves nothing.

Times are those of the records (the broker's clock at append), not lastUpdate: for a Complete*
record that one is taken before the markers are written (Kafka's TransactionCoordinator calls
prepareComplete right after the Prepare* record was appended).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recovery.facts import TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.observation import CLOSED_STATES, StartBatch

_OUTCOMES = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One record of `__transaction_state`; value None = tombstone. timestamp: ms, as appended."""

    transactional_id: str
    partition: int
    offset: int
    timestamp: int
    value: TransactionValue | UnknownVersion | None


@dataclass(frozen=True, slots=True)
class StateLog:
    """One partition of `__transaction_state` as read, to its end.

    records: in offset order, at least all of every id that ever bore the producer id.
    whole_from: the first offset after which not one offset is missing up to the end; 0 = nothing
    was ever compacted away. whole_since: the record time at whole_from (ms); None = no record.
    error: why it could not be read.
    """

    partition: int
    records: tuple[StateRecord, ...]
    whole_from: int
    whole_since: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A Prepare* record that names the partition.

    client_version: its tag 2 (0 = absent: transactions v1). On v2 the epoch is one above that of
    the batches it decides. started: the transaction's start time, as DescribeTransactions gives it
    too: it tells one transaction of an id from the next. completed_at: time of the id's next record
    (Complete*), None = none yet: its markers were written between timestamp and completed_at.
    """

    transactional_id: str
    outcome: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    state_partition: int
    offset: int
    timestamp: int
    client_version: int
    started: int
    completed_at: int | None


@dataclass(frozen=True, slots=True)
class Marker:
    """A control batch of the producer in the data log; timestamp: the leader's clock, ms."""

    offset: int
    outcome: str
    producer_epoch: int
    coordinator_epoch: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class History:
    """What the past says of one producer id on one partition.

    decisions: those that name the partition, oldest first. latest: the newest record of each id
    that bore the producer id. reason: why it is not whole (history-compacted, history-not-read,
    history-unreadable), else None. window: first offset of the id's partition without a gap
    after it. prehistory_until: decisions that were compacted away ended by this time (ms); None
    = there are none for this epoch.
    markers: the producer's in the data log from markers_from on, up to which no offset before the
    start batch is missing (a compacted topic loses markers); None = the data log was not read.
    """

    producer_id: int
    transactional_ids: tuple[str, ...]
    decisions: tuple[Decision, ...]
    latest: tuple[StateRecord, ...]
    reason: str | None
    window: int
    prehistory_until: int | None
    markers: tuple[Marker, ...] = ()
    markers_from: int | None = None

    @property
    def whole(self) -> bool:
        """No decision on the start batch can have been lost to compaction."""
        return self.reason is None


def read_history(
    start: StartBatch,
    where: TopicPartition,
    logs: Sequence[StateLog],
    partitions: int,
    *,
    known_ids: Iterable[str] = (),
    markers: Iterable[Marker] = (),
    markers_from: int | None = None,
    skew: int,
) -> History:
    """The history of the start batch's producer id on the partition `where`.

    logs: of `__transaction_state`, read to an end that is not older than the first sample.
    partitions: how many that topic has. known_ids: ids that coordinators list with the producer
    id. A producer id belongs to one id for ever, so only that id's partition must be whole; all of
    them while the id is not known. skew: ms.
    """
    pid = start.producer_id
    found = {
        r.transactional_id
        for log in logs
        for r in log.records
        if isinstance(r.value, TransactionValue) and r.value.producer_id == pid
    }
    ids = tuple(sorted(found | set(known_ids)))
    homes = {coordinator_partition(name, partitions) for name in ids}
    needed = homes or set(range(partitions))
    read = {log.partition: log for log in logs if log.partition in needed}
    records = sorted(
        (r for log in read.values() for r in log.records if r.transactional_id in ids),
        key=lambda r: (r.partition, r.offset),
    )
    reasons = [
        _not_whole(read.get(number), start, records, skew, known=bool(homes))
        for number in sorted(needed)
    ]
    window = max((log.whole_from for log in read.values()), default=0)
    inside = [r for r in records if r.offset >= window]
    beginning = window == 0 or _begins_before(inside, start)
    return History(
        producer_id=pid,
        transactional_ids=ids,
        decisions=_decisions(records, pid, where),
        latest=tuple({r.transactional_id: r for r in records}.values()),
        reason=next((r for r in reasons if r), None),
        window=window,
        prehistory_until=None if beginning else max((r.timestamp for r in inside[:1]), default=0),
        markers=tuple(sorted(markers, key=lambda m: m.offset)),
        markers_from=markers_from,
    )


def _not_whole(
    log: StateLog | None, start: StartBatch, records: Sequence[StateRecord], skew: int, known: bool
) -> str | None:
    if log is None or log.error is not None:
        return "history-not-read"
    if any(isinstance(r.value, UnknownVersion) for r in log.records):
        return "history-unreadable"
    if log.whole_from == 0:
        return None
    inside = [r for r in records if r.partition == log.partition and r.offset >= log.whole_from]
    if known and _begins_before(inside, start):
        return None
    after = start.written_after
    if after is not None and log.whole_since is not None and log.whole_since + skew < after:
        return None
    return "history-compacted"


def _begins_before(records: Sequence[StateRecord], start: StartBatch) -> bool:
    """A record of the id older than any decision on the start batch, proven without a clock.

    Epochs of a producer id only grow. On v2 all decisions on epoch e carry e + 1 or more; on v1 an
    epoch begins with the Empty record that InitProducerId writes.
    """
    mine = [r.value for r in records if isinstance(r.value, TransactionValue)]
    for number, value in enumerate(mine):
        if value.producer_id != start.producer_id:
            if any(later.producer_id == start.producer_id for later in mine[number:]):
                return True
        elif value.producer_epoch < start.producer_epoch or (
            value.producer_epoch == start.producer_epoch
            and (value.state is TransactionState.EMPTY or value.client_transaction_version >= 2)
        ):
            return True
    return False


def _decisions(
    records: Sequence[StateRecord], pid: int, where: TopicPartition
) -> tuple[Decision, ...]:
    next_at: dict[str, int] = {}
    found = []
    for r in reversed(records):
        value = r.value
        if (
            isinstance(value, TransactionValue)
            and value.producer_id == pid
            and value.state in _OUTCOMES
            and where in value.partitions
        ):
            found.append(
                Decision(
                    transactional_id=r.transactional_id,
                    outcome=_OUTCOMES[value.state],
                    producer_id=pid,
                    producer_epoch=value.producer_epoch,
                    partitions=value.partitions,
                    state_partition=r.partition,
                    offset=r.offset,
                    timestamp=r.timestamp,
                    client_version=value.client_transaction_version,
                    started=value.start_ms,
                    completed_at=next_at.get(r.transactional_id),
                )
            )
        next_at[r.transactional_id] = r.timestamp
    return tuple(reversed(found))


def still_open_in_log(history: History) -> tuple[StateRecord, ...]:
    """Newest records that say a transaction of the producer id is not over, on any partition.

    An id whose DESCRIBE is denied is missing from every listing without an error; its log tells.
    """
    return tuple(
        r
        for r in history.latest
        if isinstance(r.value, TransactionValue)
        and r.value.producer_id == history.producer_id
        and r.value.state not in CLOSED_STATES
    )
