"""Write `__consumer_offsets`: the groups' commits, decided and pending, where there is room.

A bundle holds what groups committed and not at which offset of this topic; only the order counts:
what is decided comes before what waits.
"""

from collections import deque
from collections.abc import Iterator, Mapping

from eoctl.lab.twin.data_log import data_log, lay_out
from eoctl.lab.twin.encoding import Pair, commit_record
from eoctl.lab.twin.files import NewLog
from eoctl.lab.twin.seen import Seen
from eoctl.lab.twin.state_logs import FILLER
from eoctl.lab.twin.stretches import Known, Layout
from recovery.facts import GroupOffsetFacts, PartitionFacts, TopicPartition, grouped
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS, OffsetKey
from recovery.values import replace

_FILLER = OffsetKey(FILLER, FILLER, 0)


def group_logs(seen: Seen, topic_id: str) -> Iterator[NewLog]:
    """Yield each partition of the topic."""
    commits = grouped(
        (seen.home_of(g.group), o)
        for g in seen.bundle.groups
        for o in g.offsets
        if not o.is_share and o.error is None
    )
    for partition in range(seen.size(CONSUMER_OFFSETS)):
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        here = commits.get(partition, [])
        p = seen.partitions.get(where, PartitionFacts(CONSUMER_OFFSETS, partition))
        yield _log(seen, _with_room(p, here), here, topic_id)


def _with_room(p: PartitionFacts, commits: list[GroupOffsetFacts]) -> PartitionFacts:
    """Return the partition, longer if its end is unknown."""
    if p.high_watermark is not None:
        return p
    return replace(p, high_watermark=(p.log_start_offset or 0) + len(commits))


def _log(seen: Seen, p: PartitionFacts, commits: list[GroupOffsetFacts], topic_id: str) -> NewLog:
    decided = [o for o in commits if o.committed_offset is not None]
    layout = lay_out(seen, p, filled=len(decided))
    now = seen.moved(None)
    records: dict[int, Pair] = {}
    fates = _fates(layout)
    room = _room(layout, fates, len(decided))
    for o, at in zip(reversed(decided), room, strict=False):
        commit = (o.committed_offset, o.leader_epoch, now, o.metadata)
        records[at] = commit_record(_key(o), *commit)
    waiting = grouped((o.pending_producer_id, o) for o in commits if o.pending)
    for k in layout:
        if k.transactional and k.outcome is None and k.first not in fates:
            records |= _pending(seen, k, waiting, p.topic_partition, now)
    filler = commit_record(_FILLER, None, None, now)
    log = data_log(seen, p, topic_id, layout, lambda offset, k: records.get(offset, filler))
    written = set(records.values())
    left = [o for o in commits if o.pending and _waits(o, now) not in written]
    return replace(log, left_out=max(0, len(decided) - len(room)) + len(left))


def _key(o: GroupOffsetFacts) -> OffsetKey:
    return OffsetKey(o.group, o.topic, o.partition)


def _waits(o: GroupOffsetFacts, now: int) -> Pair:
    return commit_record(_key(o), o.pending_offset, None, now)


def _fates(layout: Layout) -> dict[int, str]:
    """Return the outcome of each stretch of a transaction, by its first offset; none while open."""
    fates: dict[int, str] = {}
    ends: dict[int, str] = {}
    for k in reversed(list(layout)):
        if k.outcome is not None:
            ends[k.producer_id] = k.outcome
        elif k.transactional and k.producer_id in ends:
            fates[k.first] = ends[k.producer_id]
    return fates


def _room(layout: Layout, fates: Mapping[int, str], most: int) -> list[int]:
    """Return offsets for decided commits: the last below the first transaction still open."""
    room: deque[int] = deque(maxlen=most)
    for k in layout:
        if k.transactional and k.outcome is None and k.first not in fates:
            break
        if k.outcome is None and k.raw is None and fates.get(k.first) != "abort":
            room.extend(range(max(k.first, k.first + k.records - most), k.first + k.records))
    return list(reversed(room))


def _pending(
    seen: Seen,
    k: Known,
    waiting: Mapping[int | None, list[GroupOffsetFacts]],
    where: TopicPartition,
    now: int,
) -> dict[int, Pair]:
    """Return the records of an open stretch; the last one repeats where more were written."""
    mine = [_waits(o, now) for o in waiting.get(k.producer_id, ())]
    groups = [
        group
        for t in seen.open.get(where, ())
        if t.start is not None and t.start.producer_id == k.producer_id
        for group in t.start.groups
    ]
    mine = mine or [commit_record(OffsetKey(g, FILLER, 0), None, None, now) for g in groups]
    return {k.first + n: mine[min(n, len(mine) - 1)] for n in range(k.records) if mine}
