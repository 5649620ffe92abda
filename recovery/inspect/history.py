"""The coordinators' decisions about a producer on a partition, from `__transaction_state`.

A decision is a Prepare* record that names the partition. This module finds the decisions of one
producer id and says whether the history is complete enough for "there is none" to mean anything.
`recovery.inspect.lost_markers` finds the decisions that lack their marker. docs/verdicts.md,
"Evidence", says what proves what; the principles applied here:

- A log that begins at offset 0 may have been created yesterday, and a log may have lost its end. No
  log can judge a producer id that appears in none (history-replaced).
- `__transaction_state` is compacted: a Prepare* record vanishes once its Complete* follows. For a
  batch, the log is complete from a record on that is older than any decision on the batch (by
  epoch, never by time), if no offset is missing after that record (else history-compacted).
- A producer id lives in the partition whose records name it, not where its id's hash points.
- A record that only this host's cache has counts as a decision, but its absence proves nothing:
  compaction may have removed records between two reads (`StateLog.standing`).

Times are those of the records (the broker's clock at append), not lastUpdate: for a Complete*
record, lastUpdate is taken before the markers are written (Kafka's TransactionCoordinator calls
prepareComplete right after the Prepare* record was appended).
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args, overload

from recovery.facts import TopicPartition, grouped
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.observation import CLOSED_STATES, StartBatch
from recovery.inspect.topic_sightings import Sightings
from recovery.values import Value, replace

OUTCOMES = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}
_ENDED = {*OUTCOMES, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One record of `__transaction_state`; value None = tombstone. timestamp: ms, as appended.

    leader_epoch: of the state partition at append (the coordinator epoch); -1 = unknown.
    """

    transactional_id: str
    partition: int
    offset: int
    timestamp: int
    value: TransactionValue | UnknownVersion | None
    leader_epoch: int = -1


@dataclass(frozen=True)
class StateLog:
    """One partition of `__transaction_state`, read to its end.

    records: in offset order, at least all records of every id that ever had the producer id.
    former: logs that this host once read under the same cluster and that the log no longer holds,
    as they were kept: those of deleted topics, and ends that were cut off.
    """

    partition: int
    records: tuple[StateRecord, ...]
    whole_from: int  # the first offset from which none is missing up to the end
    error: str | None = None  # why the log could not be read
    end: int | None = None  # the high watermark up to which it was read
    leader_epoch: int | None = None  # of the partition, from Metadata; None = unknown
    cached_until: int = 0  # records below this offset come from this host's cache, not this read
    stands_from: int = 0  # first offset of the read after which no later read missed a record
    former: tuple["StateLog", ...] = ()
    cut_epoch: int | None = None  # the cache holds records up to this epoch that the log lost
    cuts: Mapping[str, int] = field(default_factory=dict)  # by id: records below this are left out

    @property
    def standing(self) -> tuple[StateRecord, ...]:
        """Return the records after which no later record of their id is missing.

        Compaction removes an id's older records first: a record shows that no later one that its
        read would have seen was gone. Between two reads compaction may have removed both, unless no
        offset is missing in what the later read saw.
        """
        return tuple(r for r in self.records if r.offset >= self.stands_from)

    def naming(self, producer_id: int) -> Sequence[StateRecord]:
        """Return the records that name a producer id."""
        return self._by_producer.get(producer_id, ())

    def of_ids(self, transactional_ids: Iterable[str]) -> list[StateRecord]:
        """Return the records of some ids, one id after the other."""
        return [r for name in transactional_ids for r in self._by_id.get(name, ())]

    def cuts_of(self, transactional_ids: Iterable[str]) -> list[int]:
        """Return the offsets below which records of these ids may be missing."""
        return [self.cuts[name] for name in transactional_ids if name in self.cuts]

    @cached_property
    def _by_producer(self) -> dict[int, list[StateRecord]]:
        return grouped((pid, r) for r in self.records for pid in producer_ids_of(r))

    @cached_property
    def _by_id(self) -> dict[str, list[StateRecord]]:
        return grouped((r.transactional_id, r) for r in self.records)


Source = Literal["log", "cache", "forgotten"]


class Decision(Value):
    """A Prepare* record that names the partition.

    producer_epoch: under v2 one above that of the batches it decides. started: the transaction's
    start time, also in DescribeTransactions, which tells one transaction of an id from the next.
    completed_at: time of the id's next record (Complete*), None = none yet; the markers were
    written between timestamp and completed_at. source: read now (log), kept by this host's cache
    (cache), or only in that cache (forgotten). begun: the record that began the epoch of the
    decided batches was read too, and no decision in between is missing.
    """

    transactional_id: str
    outcome: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    state_partition: int
    offset: int
    timestamp: int
    client_version: int  # its tag 2; 0 = absent: transactions v1
    started: int
    completed_at: int | None
    leader_epoch: int = -1  # the epoch of the coordinator that decided; -1 = unknown
    source: Source = "log"
    begun: bool = False


MarkerOrigin = Literal["decided", "ours", "foreign", "decision-gone"]
"""Who decided a marker: a Prepare* record fits; this host's journal has it; nobody did, proven by a
complete history; or compaction or expiry may have removed the decision."""


class Marker(Value):
    """A control batch of the producer in the data log; timestamp: the leader's clock, ms.

    data: whether the producer wrote here since its previous marker (None = unknown); without data,
    a marker may repeat the previous decision. leader_epoch: of the data partition; -1 = unknown.
    data_epoch: of the producer's newest batch since then; None = none, or unknown. origin: whose
    the marker is (recovery.inspect.lost_markers); None = not judged.
    """

    offset: int
    outcome: str
    producer_epoch: int
    coordinator_epoch: int
    timestamp: int
    data: bool | None = True
    leader_epoch: int = -1
    data_epoch: int | None = None
    origin: MarkerOrigin | None = None


class Markers(Sequence[Marker]):
    """Markers in the order of their offsets, in columns.

    A busy partition has tens of thousands of them in what is read of it, for each of its producers:
    as values they would take six times the memory.
    """

    __slots__ = ("_columns",)

    def __init__(self, markers: Iterable[Marker] = ()) -> None:
        # offset, outcome, both epochs, timestamp, data, leader epoch, data epoch, origin
        self._columns = tuple(array(kind) for kind in "qbhiqbihb")
        for m in markers:
            self.append(m)

    def append(self, m: Marker) -> None:
        """Add the next marker."""
        row = (
            m.offset,
            _OUTCOMES.index(m.outcome),
            m.producer_epoch,
            m.coordinator_epoch,
            m.timestamp,
            _SEEN.index(m.data),
            m.leader_epoch,
            -1 if m.data_epoch is None else m.data_epoch,
            _ORIGINS.index(m.origin),
        )
        for column, field_of_row in zip(self._columns, row, strict=True):
            column.append(field_of_row)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> Marker: ...

    @overload
    def __getitem__(self, at: slice) -> list[Marker]: ...

    def __getitem__(self, at: int | slice) -> Marker | list[Marker]:
        if isinstance(at, slice):
            return [self[n] for n in range(len(self))[at]]
        return _marker(*(column[at] for column in self._columns))

    def __iter__(self) -> Iterator[Marker]:
        return map(_marker, *self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it grows


_OUTCOMES = ("abort", "commit")
_SEEN = (False, True, None)
_ORIGINS: tuple[MarkerOrigin | None, ...] = (None, *get_args(MarkerOrigin))


def _marker(
    offset: int,
    outcome: int,
    epoch: int,
    coordinator: int,
    timestamp: int,
    data: int,
    leader: int,
    data_epoch: int,
    origin: int,
) -> Marker:
    return Marker(
        offset,
        _OUTCOMES[outcome],
        epoch,
        coordinator,
        timestamp,
        _SEEN[data],
        leader,
        None if data_epoch < 0 else data_epoch,
        _ORIGINS[origin],
    )


@dataclass(frozen=True, slots=True)
class History:
    """The past of one producer id on one partition.

    reason: why the history is incomplete: history-compacted, history-not-read, history-unreadable,
    history-replaced; None = it is complete.
    ended_by: offset of the first record with a later epoch, or with which the id gets another
    producer id, without a gap since the batch's epoch began; None = none, or unknown.
    named_since, named_before: offsets of the state partition; a decision from the first on means
    the present topic, one below the second an earlier topic of the same name (from topic ids seen).
    lost_end: a log that names the producer id, or did, lost an end that this host's cache holds, so
    its epochs may have been used again.
    markers: the producer's markers in the data log, complete from markers_from to the start batch
    (a compacted topic loses markers); markers_from None = the data log was not read.
    """

    producer_id: int
    transactional_ids: tuple[str, ...]
    decisions: tuple[Decision, ...]  # those that name the partition, oldest first
    latest: tuple[StateRecord, ...]  # the newest record of each id that had the producer id
    reason: str | None
    window: int  # the first offset of the id's partition without a gap after it
    detail: str | None = None  # a sentence on history-replaced
    log_error: str | None = None  # the error with which a log could not be read
    ended_by: int | None = None
    begun_by_end: bool = False  # a v2 transaction's end began the batch's epoch: a marker has it
    leader_epoch: int | None = None  # of the state partition that names the producer id
    moved: str | None = None  # an id whose records are outside its present home
    named_since: int | None = None
    named_before: int = 0
    lost_end: bool = False
    cached_until: int = 0  # records of that partition below this offset come from this host's cache
    markers: Sequence[Marker] = field(default_factory=Markers, hash=False)
    markers_from: int | None = None
    read_until: int | None = None  # end of the only log that names the producer id; None = unknown

    @property
    def whole(self) -> bool:
        """Return True if no decision on the start batch can be missing."""
        return self.reason is None

    @property
    def without_cache(self) -> "History":
        """Return the history without what only this host's cache knows."""
        known = tuple(d for d in self.decisions if d.source != "forgotten")
        return replace(self, decisions=known, named_since=None, named_before=0)


def read_history(
    start: StartBatch,
    where: TopicPartition,
    logs: Sequence[StateLog],
    partitions: int,
    *,
    known_ids: Iterable[str] = (),
    confirmed_ids: Collection[str] = (),
    sightings: Sightings | None = None,
    markers: Iterable[Marker] = (),
    markers_from: int | None = None,
) -> History:
    """Return the history of the start batch's producer id on the partition `where`.

    logs: of `__transaction_state`, with ends no older than the first sample: the one that names the
    producer id, or all of them. partitions: the number that topic has. known_ids: ids that
    coordinators list with the producer id; confirmed_ids: ids that their present coordinator
    described with it. sightings: which ids the topic had, and when.
    """
    pid = start.producer_id
    naming = [log for log in logs if log.naming(pid)]
    former = [kept for log in logs for kept in log.former]
    named_ids = {r.transactional_id for log in (*naming, *former) for r in log.naming(pid)}
    ids = tuple(sorted(named_ids | set(known_ids)))
    forgotten = sorted({r for kept in former for r in kept.of_ids(ids)}, key=lambda r: r.offset)
    records = [r for log in naming for r in log.of_ids(ids)]
    records.sort(key=lambda r: (r.partition, r.offset))
    window = max(
        (offset for log in naming for offset in (log.whole_from, *log.cuts_of(ids))), default=0
    )
    inside = [r for r in records if r.offset >= window]
    reason, detail = _not_whole(naming, logs, partitions, inside, start)
    homes = {log.partition for log in naming}
    kept = {log.partition: log.cached_until for log in naming}
    home = min(homes, default=None)
    sighting = None if sightings is None or home is None else sightings.of(home)
    begun = {r for log in (*naming, *former) for r in _since_begun(log, start, ids)}
    return History(
        producer_id=pid,
        transactional_ids=ids,
        decisions=(
            *_decisions(_not_in(forgotten, records), pid, where, None, begun),
            *_decisions(records, pid, where, kept, begun),
        ),
        latest=tuple({r.transactional_id: r for r in records}.values()),
        reason=reason,
        detail=detail,
        log_error=next((log.error for log in logs if log.error is not None), None),
        window=window,
        ended_by=_ended_by(inside, start) if reason is None else None,
        begun_by_end=any(_ends_the_one_before(r.value, start) for r in records),
        leader_epoch=min(
            (e for log in naming if (e := log.leader_epoch) is not None), default=None
        ),
        moved=_moved(records, partitions, pid, confirmed_ids),
        named_since=sighting.since if sighting else None,
        named_before=sighting.before if sighting else 0,
        lost_end=any(
            log.cut_epoch is not None
            for log in logs
            if log.naming(pid) or any(kept.naming(pid) for kept in log.former)
        ),
        cached_until=max(kept.values(), default=0),
        read_until=naming[0].end if len(naming) == 1 else None,
        markers=Markers(sorted(markers, key=lambda m: m.offset)),
        markers_from=markers_from,
    )


def producer_ids_of(record: StateRecord) -> set[int]:
    """Return the record's producer id, and the previous and next ones of its transactional id."""
    v = record.value
    if not isinstance(v, TransactionValue):
        return set()
    return {v.producer_id, v.previous_producer_id, v.next_producer_id}


def _not_whole(
    naming: Sequence[StateLog],
    logs: Sequence[StateLog],
    partitions: int,
    inside: Sequence[StateRecord],
    start: StartBatch,
) -> tuple[str | None, str | None]:
    read = {log.partition: log for log in naming or logs}
    if not naming and set(range(partitions)) - read.keys():
        return "history-not-read", None
    if any(log.error is not None for log in read.values()):
        return "history-not-read", None
    if any(isinstance(r.value, UnknownVersion) for log in read.values() for r in log.records):
        return "history-unreadable", None
    pid, epoch = start.producer_id, start.producer_epoch
    if not naming:
        return "history-replaced", (
            f"producer id {pid} is in no partition of __transaction_state: the topic was "
            "created again since that batch was written, or has forgotten the id"
        )
    if len(naming) > 1 or not _begins_before(inside, start):
        return "history-compacted", None
    cut = naming[0].cut_epoch
    if cut is not None:
        # The lost end held no records of a later leader.
        inside = [r for r in inside if r.leader_epoch > cut]
        if not _begins_before(inside, start):
            return "history-replaced", (
                f"__transaction_state-{naming[0].partition} does not hold what this host has read "
                "of it before: it lost its end, or was created again"
            )
    own = [r.value for r in inside if isinstance(r.value, TransactionValue)]
    if not any(
        (v.producer_id, v.producer_epoch) == (pid, epoch)
        or (v.next_producer_id == pid and epoch == max(v.next_producer_epoch, 0))
        for v in own
    ):
        return "history-replaced", (
            f"epoch {epoch} of producer id {pid} is nowhere in __transaction_state: the topic "
            "lost its end, or was recreated, since that batch was written"
        )
    return None, None


def _begins_before(records: Sequence[StateRecord], start: StartBatch) -> bool:
    """Return True if the records begin with one older than any decision on the start batch.

    Epochs of a producer id only grow. Such a record has an earlier epoch (or an earlier producer
    id), or begins this epoch: it is the Empty record that InitProducerId writes or, under v2, the
    end of the previous transaction, which raises the epoch.
    """
    mine = [r.value for r in records if isinstance(r.value, TransactionValue)]
    for number, value in enumerate(mine):
        if value.producer_id != start.producer_id:
            later = mine[number:]
            if start.producer_id in (value.next_producer_id, *(v.producer_id for v in later)):
                return True
        elif value.producer_epoch < start.producer_epoch or begins(value, start):
            return True
    return False


def _since_begun(log: StateLog, start: StartBatch, ids: Iterable[str]) -> list[StateRecord]:
    """Return the ids' records after the one that began the batch's epoch; none is missing."""
    own = [r for r in log.naming(start.producer_id) if r.offset >= log.stands_from]
    first = next((r.offset for r in own if begins(r.value, start)), None)
    return [r for r in log.of_ids(ids) if first is not None and r.offset > first]


def begins(value: TransactionValue | UnknownVersion | None, start: StartBatch) -> bool:
    """Return True if a record began the batch's epoch: an Empty, or a v2 transaction's end."""
    return _ends_the_one_before(value, start) or (
        isinstance(value, TransactionValue)
        and value.state is TransactionState.EMPTY
        and (value.producer_id, value.producer_epoch) == (start.producer_id, start.producer_epoch)
    )


def _ends_the_one_before(
    value: TransactionValue | UnknownVersion | None, start: StartBatch
) -> bool:
    """Return True if the record ends a v2 transaction, and so began the batch's epoch."""
    return (
        isinstance(value, TransactionValue)
        and value.client_transaction_version >= 2
        and value.state in _ENDED
        and (value.producer_id, value.producer_epoch) == (start.producer_id, start.producer_epoch)
    )


def _ended_by(records: Sequence[StateRecord], start: StartBatch) -> int | None:
    """Return the offset of the first record with a later epoch or with the next producer id."""
    borne = False
    for r in records:
        v = r.value
        if not isinstance(v, TransactionValue):
            continue
        if v.producer_id == start.producer_id:
            borne = True
            if v.producer_epoch > start.producer_epoch:
                return r.offset
        elif borne or v.previous_producer_id == start.producer_id:
            return r.offset
    return None


def _moved(
    records: Sequence[StateRecord], partitions: int, pid: int, confirmed_ids: Collection[str]
) -> str | None:
    """Return the id with this producer id whose records are not where its hash points now.

    Kafka's TransactionStateManager hashes by the number of partitions that a broker saw when it
    started. An id whose coordinator confirms the producer id is at home wherever its records are.
    """
    return next(
        (
            r.transactional_id
            for r in records
            if pid in producer_ids_of(r)
            and r.transactional_id not in confirmed_ids
            and r.partition != coordinator_partition(r.transactional_id, partitions)
        ),
        None,
    )


def _not_in(forgotten: Sequence[StateRecord], records: Sequence[StateRecord]) -> list[StateRecord]:
    """Return the records that only the cache holds."""
    there = {(r.partition, r.offset, r.value) for r in records} if forgotten else set()
    return [r for r in forgotten if (r.partition, r.offset, r.value) not in there]


def decided(record: StateRecord, value: TransactionValue) -> Decision:
    """Return a Prepare* record as a decision that is not known to be complete."""
    return Decision(
        transactional_id=record.transactional_id,
        outcome=OUTCOMES[value.state],
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        partitions=value.partitions,
        state_partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        client_version=value.client_transaction_version,
        started=value.start_ms,
        completed_at=None,
        leader_epoch=record.leader_epoch,
    )


def _decisions(
    records: Sequence[StateRecord],
    pid: int,
    where: TopicPartition,
    cached_until: Mapping[int, int] | None,
    begun: Collection[StateRecord],
) -> tuple[Decision, ...]:
    """Return the decisions of a producer id on `where`. cached_until: by partition, the offset
    below which records come from the cache; None: all are forgotten. begun: the records after the
    one that began the batch's epoch.
    """
    next_at: dict[str, int] = {}
    decisions = []
    for r in reversed(records):
        value = r.value
        if (
            isinstance(value, TransactionValue)
            and value.producer_id == pid
            and value.state in OUTCOMES
            and where in value.partitions
        ):
            source: Source = "forgotten"
            if cached_until is not None:
                source = "cache" if r.offset < cached_until[r.partition] else "log"
            completed_at = next_at.get(r.transactional_id)
            decisions.append(
                replace(
                    decided(r, value), completed_at=completed_at, source=source, begun=r in begun
                )
            )
        next_at[r.transactional_id] = r.timestamp
    return tuple(reversed(decisions))


def bearers_in_log(history: History) -> tuple[StateRecord, ...]:
    """Return the newest records of the ids that have the producer id by them.

    An id whose DESCRIBE is denied is missing from every listing without an error; its log shows it.
    """
    return tuple(
        r
        for r in history.latest
        if isinstance(r.value, TransactionValue) and r.value.producer_id == history.producer_id
    )


def still_open_in_log(history: History) -> tuple[StateRecord, ...]:
    """Return those of them by which a transaction of the id is not over, on any partition."""
    return tuple(
        r
        for r in bearers_in_log(history)
        if isinstance(r.value, TransactionValue) and r.value.state not in CLOSED_STATES
    )
