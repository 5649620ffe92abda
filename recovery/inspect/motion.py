"""What moved on between two looks at a partition, and what is still there."""

from recovery.inspect.observation import OpenTransaction, Sample


def is_over(about: OpenTransaction, before: Sample, after: Sample) -> bool:
    """Return True if the later look proves that an open transaction has ended.

    Its leader, at no lower leader epoch, shows an LSO above the start and no such transaction. A
    marker that is not on all replicas yet leaves the LSO where it was. Where nobody could tell
    which transaction it is: the LSO moved, or nothing is held any more.
    """
    p, q = before.partition, after.partition
    if q.error is not None or q.last_stable_offset is None or after.producers is None:
        return False
    if None not in (p.topic_id, q.topic_id) and p.topic_id != q.topic_id:
        return False  # a log of its own
    if (q.leader_epoch or 0) < (p.leader_epoch or 0):
        return False
    pid, start = about.producer_id, about.start_offset
    opened = {
        (r.producer_id, r.current_txn_start_offset)
        for r in after.producers
        if r.current_txn_start_offset is not None
    }
    if start is not None:
        return q.last_stable_offset > start and (pid, start) not in opened
    if q.held == 0:
        return True
    if pid is not None:
        return pid not in {producer for producer, _ in opened}
    return p.last_stable_offset is not None and q.last_stable_offset > p.last_stable_offset


def continues(about: OpenTransaction, before: OpenTransaction, held_from: int | None) -> bool:
    """Return True if `about`, of a later look, is what an earlier look saw as `before`.

    held_from: the LSO of the earlier look, where that could not tell which transaction it is: what
    began later was not meant. None: that look saw nothing of the partition.
    """
    if about.topic_partition != before.topic_partition:
        return False
    if before.start_offset is not None:
        return (about.producer_id, about.start_offset) == (before.producer_id, before.start_offset)
    if before.producer_id is not None and about.producer_id is not None:
        return about.producer_id == before.producer_id
    return held_from is None or about.start_offset is None or about.start_offset <= held_from
