"""What changed between two snapshots of a partition, and what is still there."""

from recovery.inspect.observation import OpenTransaction, Sample


def is_over(about: OpenTransaction, before: Sample, after: Sample) -> bool:
    """Return True if the later snapshot shows that an open transaction has ended.

    The leader, at no lower leader epoch, shows no such transaction, and an LSO above the start: a
    marker that is not yet on all replicas leaves the LSO where it was. Where the same leader shows
    an older transaction that holds the LSO, the missing row is all there is; a marker that its
    followers lack is seen once the older one has ended. If the transaction was never identified:
    the LSO moved, or nothing is held any more.
    """
    p, q = before.partition, after.partition
    if q.error is not None or q.last_stable_offset is None or after.producers is None:
        return False
    if None not in (p.topic_id, q.topic_id) and p.topic_id != q.topic_id:
        return False  # another log
    if (q.leader_epoch or 0) < (p.leader_epoch or 0):
        return False
    pid, start = about.producer_id, about.start_offset
    opened = {
        (r.producer_id, r.current_txn_start_offset)
        for r in after.producers
        if r.current_txn_start_offset is not None
    }
    if start is not None:
        lso = q.last_stable_offset
        in_log = start < (q.high_watermark or 0) and q.leader_epoch == p.leader_epoch
        older = in_log and lso < start and any(begin <= lso for _, begin in opened)
        return (lso > start or older) and (pid, start) not in opened
    if q.held == 0:
        return True
    if pid is not None:
        return pid not in {producer for producer, _ in opened}
    return p.last_stable_offset is not None and q.last_stable_offset > p.last_stable_offset


def continues(about: OpenTransaction, before: OpenTransaction, held_from: int | None) -> bool:
    """Return True if `about`, from a later snapshot, is what an earlier one saw as `before`.

    held_from: the LSO of the earlier snapshot if that did not identify the transaction: what began
    later is another one. None: that snapshot saw nothing of the partition.
    """
    if about.topic_partition != before.topic_partition:
        return False
    if before.start_offset is not None:
        return (about.producer_id, about.start_offset) == (before.producer_id, before.start_offset)
    if before.producer_id is not None and about.producer_id is not None:
        return about.producer_id == before.producer_id
    return held_from is None or about.start_offset is None or about.start_offset <= held_from
