"""Write the coordinators' memory, `__transaction_state`, from the records that a bundle holds.

Offsets without a record of an id in the bundle get a tombstone of an id of the twin's own where
the snapshot missed nothing: a history is complete only if no offset is missing. A log that the
snapshot could not read has its last offset missing: it proves nothing on the twin either.
"""

from collections.abc import Iterable, Iterator

from eoctl.lab.twin.encoding import NewBatch, Pair, state_record
from eoctl.lab.twin.files import NewLog
from eoctl.lab.twin.seen import Seen
from recovery.errors import UsageError
from recovery.facts import TopicPartition, TransactionFacts, grouped
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateLog

TRANSACTION_STATE = "__transaction_state"
FILLER = "(not in the bundle)"
FILLED = 200_000
"""Offsets of one partition that get a tombstone, the newest ones."""
_PER_BATCH = 1000
UNREAD = "not in the bundle"


def state_logs(seen: Seen, topic_id: str) -> Iterator[NewLog]:
    """Yield each partition of the topic."""
    logs = {log.partition: log for log in seen.bundle.history.logs}
    size = seen.size(TRANSACTION_STATE)
    known = {r.transactional_id for log in logs.values() for r in log.records}
    described = grouped(
        (coordinator_partition(t.transactional_id, size), t)
        for t in seen.bundle.transactions.rows
        if t.transactional_id not in known and not t.ghost
    )
    for partition in range(size):
        log = logs.get(partition, StateLog(partition, (), 0, UNREAD))
        yield _log(seen, log, described.get(partition, []), topic_id)


def _log(seen: Seen, log: StateLog, described: Iterable[TransactionFacts], topic_id: str) -> NewLog:
    where = TopicPartition(TRANSACTION_STATE, log.partition)
    facts = seen.partitions.get(where)
    start = (facts and facts.log_start_offset) or 0
    ends = [log.end or 0, (facts and facts.high_watermark) or 0]
    end = ended = max([start, *ends, *(r.offset + 1 for r in log.records)])
    pairs = {
        r.offset: (state_record(r.transactional_id, value), r.leader_epoch, r.timestamp)
        for r in log.records
        if (value := _value(seen, log.partition, r.value)) is not None or r.value is None
    }
    epoch = (facts and facts.leader_epoch) or 0
    whole_from = start if log.error else max(start, log.whole_from)
    if log.error:  # the last offset stays without a record
        end = max([start, end - 1, *(offset + 1 for offset in pairs)])
    end = _add_described(seen, described, pairs, whole_from, end)
    first_epoch = min((e for _, e, _ in pairs.values() if e >= 0), default=epoch)
    batches: list[NewBatch] = []
    if not pairs:  # nothing here is asked for, and the log ends where it ended
        holes = [_hole(seen, ended - 1, epoch)] if ended > start else []
        return NewLog(where, topic_id, start, ended, holes)
    at, epoch = end if log.error else max(whole_from, end - FILLED), first_epoch
    for offset in sorted(pairs):
        batches += _fillers(seen, at, offset, epoch)
        pair, leader_epoch, timestamp = pairs[offset]
        epoch = max(epoch, leader_epoch)
        time = _moved(seen, log.partition, timestamp)
        batches.append(NewBatch(offset, offset, [pair], time, epoch))
        at = max(at, offset + 1)
    batches += _fillers(seen, at, end, epoch)
    if log.error:
        batches.append(_hole(seen, end, epoch))
        end += 1
    return NewLog(where, topic_id, start, end, batches)


def _add_described(
    seen: Seen,
    described: Iterable[TransactionFacts],
    pairs: dict[int, tuple[Pair, int, int]],
    whole_from: int,
    end: int,
) -> int:
    """Add a record of each id that has none, at free offsets before the end, or after it.

    Return the end.
    """
    free = iter(
        [n for n in range(end - 1, max(whole_from, end - FILLED) - 1, -1) if n not in pairs]
    )
    for t in described:
        if t.producer_epoch is None or t.error is not None:
            continue
        at = next(free, end)
        end = max(end, at + 1)
        now = seen.bundle.diagnosis.collected_at
        value = _value(seen, None, _of_facts(t, now), ahead=_ahead(seen, t.coordinator))
        pairs[at] = (state_record(t.transactional_id, value), -1, now)
    return end


def _of_facts(t: TransactionFacts, now: int) -> TransactionValue:
    """Return an id's state as its coordinator described it."""
    return TransactionValue(
        t.producer_id,
        t.producer_epoch or 0,
        t.timeout_ms or 60_000,
        next((s for s in TransactionState if s.value == t.state), TransactionState.UNKNOWN),
        t.partitions or (),
        now if t.start_timestamp is None else t.start_timestamp,
        -1 if t.start_timestamp is None else t.start_timestamp,
    )


def _value(
    seen: Seen, partition: int | None, value: object, ahead: int | None = None
) -> TransactionValue | None:
    """Return a state with times of the twin; None: there is none, or none that can be read."""
    if not isinstance(value, TransactionValue):
        return None
    if value.state is TransactionState.UNKNOWN:
        raise UsageError("the bundle names a state of ids that this version of eoctl does not know")
    back = _ahead_of(seen, partition) if partition is not None else ahead or 0
    return value._replace(
        last_update_ms=seen.moved(value.last_update_ms - back),
        start_ms=-1 if value.start_ms < 0 else seen.moved(value.start_ms - back),
    )


def _ahead(seen: Seen, broker: int | None) -> int:
    """Return how far a coordinator's clock was ahead; the twin's clocks agree."""
    return 0 if broker is None else seen.bundle.transactions.ahead(broker) or 0


def _ahead_of(seen: Seen, partition: int) -> int:
    facts = seen.partitions.get(TopicPartition(TRANSACTION_STATE, partition))
    return _ahead(seen, facts.leader if facts else None)


def _moved(seen: Seen, partition: int, timestamp: int) -> int:
    return seen.moved(timestamp - _ahead_of(seen, partition))


def _hole(seen: Seen, offset: int, epoch: int) -> NewBatch:
    """Return a batch whose records are gone, as compaction leaves it at the end of a log."""
    return NewBatch(offset, offset, [], seen.moved(None), epoch)


def _fillers(seen: Seen, first: int, end: int, epoch: int) -> Iterator[NewBatch]:
    """Yield tombstones for [first, end)."""
    pair = state_record(FILLER, None)
    for at in range(first, end, _PER_BATCH):
        last = min(at + _PER_BATCH, end) - 1
        yield NewBatch(at, last, [pair] * (last - at + 1), seen.moved(None), epoch)
