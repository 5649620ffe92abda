"""Find the decision that a marker in a source's log is of, where an error writes a wrong marker.

`lost_markers.with_origins` only shows whose a marker may be: an equal epoch and outcome are enough.
Here the decision must be the only possible one. Under v2 each transaction has its own epoch. Under
v1 an epoch has many, so both the marker and the one before the data must be written in the time of
one decision alone; that also shows that the decisions are about this log, not an earlier topic's.
What passes for such a marker is one that was written by hand in the very time of a decision of its
outcome, whose own marker was lost.
"""

import math
from collections.abc import Sequence

from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import Decision, Marker, StateLog
from recovery.inspect.lost_markers import covers, decisions_on, past_of
from recovery.inspect.observation import StartBatch


def decision_of(
    end: Marker,
    before: Marker | None,
    newest: int,
    logs: Sequence[StateLog],
    producer_id: int,
    where: TopicPartition,
    skew: int,
) -> Decision | None:
    """Return the one decision that can be on the data which a marker ended; None: it is not sure.

    end: with the epoch of all its data. before: the producer's last marker before that data, None
    if not seen. newest: time of the newest data, which can only refuse, as clients set it. logs:
    all of `__transaction_state`, read after the markers. skew: of brokers' clocks, ms.
    """
    naming = [log for log in logs if log.naming(producer_id)]
    past = past_of(naming, producer_id)
    if past is None or end.data_epoch is None:
        return None
    [log] = naming
    named = sorted(decisions_on(naming, producer_id, where), key=lambda d: d.offset)
    since = max([log.stands_from, *log.cuts_of({d.transactional_id for d in named})])
    decision = _only(end, named, skew)
    # without data a marker repeats another, or was written by hand
    closed = _only(before, named, skew) if before is not None and before.data else None
    if decision is None or len({d.transactional_id for d in named}) > 1:
        return None
    if closed is not None and closed.offset >= since:
        later = [d for d in named if d.offset > closed.offset]
    elif decision.client_version >= 2 and past.first <= end.data_epoch:
        start = StartBatch(producer_id, end.data_epoch)
        later = [d for d in named if covers(d, start)]
    else:
        return None
    if decision.client_version < 2:
        # data of the next transaction may lie before a marker that was written by hand
        begun = _next_begun(log, decision, where)
        if newest > decision.timestamp + skew or begun <= end.timestamp + skew:
            return None
    until = [d for d in later if d.offset <= decision.offset]
    return decision if until and all(d.outcome == end.outcome for d in until) else None


def _next_begun(log: StateLog, after: Decision, where: TopicPartition) -> float:
    """Return when the id began its next transaction on a partition; infinite = it did not."""
    for r in log.of_ids([after.transactional_id]):
        v = r.value
        if (
            r.offset > after.offset
            and isinstance(v, TransactionValue)
            and v.state is TransactionState.ONGOING
            and where in v.partitions
        ):
            return r.timestamp
    return math.inf


def _only(m: Marker, named: Sequence[Decision], skew: int) -> Decision | None:
    """Return the decision that alone fits a marker: by its epoch under v2, else by its time."""
    fitting = [
        d
        for d in named
        if d.client_version >= 2
        and d.producer_epoch == m.producer_epoch
        and m.data_epoch in (None, m.producer_epoch - 1)
        # ids and epochs begin again where __transaction_state was lost
        and m.timestamp >= d.timestamp - skew
    ]
    # without its epoch, a marker of v1 in the epoch that a decision of v2 began looks like its own
    if not fitting or m.data_epoch is None:
        fitting += [d for d in named if d not in fitting and _in_time(d, m, skew)]
    if len(fitting) != 1:
        return None
    [d] = fitting
    fits = (d.outcome, d.producer_epoch) == (m.outcome, m.producer_epoch) and (
        m.data_epoch is None or covers(d, StartBatch(d.producer_id, m.data_epoch))
    )
    return d if fits else None


def _in_time(d: Decision, m: Marker, skew: int) -> bool:
    until = m.timestamp if d.completed_at is None else d.completed_at + skew
    return d.timestamp - skew <= m.timestamp <= until
