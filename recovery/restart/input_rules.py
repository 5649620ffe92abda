"""The conditions on an input partition for a restart at an offset, for every strategy.

Nothing is ever clamped: an offset that does not exist is refused, with what is lost.
"""

from recovery.errors import RefusedError
from recovery.plurals import counted
from recovery.restart.decision import Check, Direction, InputDecision
from recovery.restart.observed import Count, Log, Observed, SameLog, TimeAt
from recovery.restart.stored import StoredOffset
from recovery.shared.app_file import Isolation, named


def identity(stored: StoredOffset, log: Log, observed: Observed) -> tuple[Check, ...]:
    """Check that the offset was stored in this very log, by cluster, topic id and leader epochs.

    Raises RefusedError, which names the offset where the logs diverge.
    """
    where = named(stored.topic_partition)
    if stored.cluster_id is not None and stored.cluster_id != observed.cluster_id:
        raise RefusedError(
            f"its offset {stored.offset} was stored for cluster {stored.cluster_id}, "
            f"this is {observed.cluster_id}",
            where=where,
            remedy="connect to that cluster",
        )
    if stored.topic_id is not None and log.topic_id is not None and stored.topic_id != log.topic_id:
        raise RefusedError(
            f"the topic was deleted and created again: its offset {stored.offset} was stored for "
            f"topic id {stored.topic_id}, it has {log.topic_id} now",
            where=where,
            remedy="nothing says how far this log was processed: begin again with [app.base]",
        )
    known = stored.topic_id is not None and log.topic_id is not None
    same = "the topic id is the stored one" if known else "no topic id is stored beside the offset"
    checks = [Check("topic-id", True if known else None, same, where)]
    epoch = stored.leader_epoch
    if epoch is None:
        text = "no leader epoch is stored beside the offset"
        return (*checks, Check("leader-epoch", None, text, where))
    if log.leader_epoch is not None and epoch > log.leader_epoch:
        raise RefusedError(
            f"its offset {stored.offset} was stored in leader epoch {epoch}, the leader is in "
            f"{log.leader_epoch}: this is another log",
            where=where,
            remedy="the topic was created again: begin again with [app.base] or --to-offset",
        )
    standing = observed.answer(SameLog(*stored.topic_partition, stored.offset, epoch))
    if standing.held is False:
        raise RefusedError(
            f"the logs diverged at {standing.divergence}: {standing.because}, the stored offset is "
            f"{stored.offset}; what was processed from there on is no longer in the log",
            where=where,
            remedy=f"look for an older position: both logs are equal below {standing.divergence}",
        )
    return (*checks, Check("leader-epoch", standing.held, standing.because, where))


def readable(offset: int, log: Log, isolation: Isolation) -> Check:
    """Check that the records from `offset` on exist, and that readers see as far as `offset`.

    Raises RefusedError. For compaction see `whole`.
    """
    where = named(log.topic_partition)
    top, name = _top(log, isolation)
    if offset > top:
        raise RefusedError(
            f"the restart offset {offset} is above the {name} {top}",
            where=where,
            remedy="open transactions below it must end first: see `eoctl why`"
            if offset <= log.high_watermark
            else "no such offset exists: records were lost, or it belongs to another log",
        )
    if offset < log.log_start_offset:
        raise RefusedError(
            f"the offsets [{offset}, {log.log_start_offset}) are gone: the log starts at "
            f"{log.log_start_offset}, the restart is at {offset}",
            where=where,
            remedy=f"what begins at {log.log_start_offset} leaves them out",
        )
    return Check("retained", True, "everything from the restart offset on still exists", where)


def _top(log: Log, isolation: Isolation) -> tuple[int, str]:
    if isolation == "read_uncommitted":
        return log.high_watermark, "high watermark"
    return log.last_stable_offset, "last stable offset"


def whole(
    start: int, end: int, log: Log, observed: Observed, *, why: str, always: bool = False
) -> Check:
    """Refuse if compaction removed records of [start, end) that were read before.

    always: count even where the policy is `delete`. Only the current policy is known: the log may
    have been compacted under an earlier one.
    """
    where = named(log.topic_partition)
    if log.cleanup_policy == "delete" and not always:
        text = "it was never compacted: cleanup.policy is delete now, an earlier one is not known"
        return Check("not-compacted", None, text, where)
    if start == end:
        return Check("not-compacted", None, "no record was looked at: none is read again", where)
    missing = observed.count(Count(*log.topic_partition, start, end)).counts.missing
    if missing:
        raise RefusedError(
            f"[{start}, {end}) lacks {counted(missing, 'offset')}, compacted away: {why}",
            where=where,
        )
    return Check("not-compacted", True, "compaction took nothing from what is read again", where)


def visible(want: Count, isolation: Isolation, observed: Observed) -> int:
    """Return how many data records of a range the application sees."""
    counts = observed.count(want).counts
    if isolation == "read_uncommitted":
        return counts.data + counts.aborted + counts.open
    return counts.data


def moved(
    current: int | None,
    restart: int,
    log: Log,
    isolation: Isolation,
    observed: Observed,
    checks: tuple[Check, ...] = (),
) -> InputDecision:
    """Return the move from `current` (None: the store has no offset) to `restart`, in records."""
    partition = log.topic_partition
    if current is None or current == restart:
        records = None if current is None else 0
        return InputDecision(*partition, current, restart, "none", records, checks=checks)
    direction: Direction = "rewind" if restart < current else "skip"
    low, high = sorted((current, restart))
    records = from_time = None
    # Records outside the log cannot be counted.
    if log.log_start_offset <= low and high <= log.high_watermark:
        records = visible(Count(*partition, low, high), isolation, observed)
    if log.log_start_offset <= current <= log.high_watermark:
        from_time = observed.answer(TimeAt(*partition, current))
    to_time = observed.answer(TimeAt(*partition, restart))
    return InputDecision(
        *partition, current, restart, direction, records, from_time, to_time, checks
    )
