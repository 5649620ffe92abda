"""Write the log of a partition from what a bundle saw of it.

The strip, the producers' markers and the start batches are known by offset; what is between them
is filled: where the snapshot read without a gap with records that are empty, elsewhere with none.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from eoctl.lab.twin.encoding import BASE_OFFSET, NewBatch, Pair, RawBatch, end_marker
from eoctl.lab.twin.files import Aborted, Batch, NewLog
from eoctl.lab.twin.seen import MOST_FILLED, Seen
from eoctl.lab.twin.stretches import Known, Layout
from recovery.errors import UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.batches import MAX_SEQUENCE, batch_headers
from recovery.formats.records import marker
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.history import Marker
from recovery.values import replace

MOST_RECORDS = 2 * MOST_FILLED
"""Of all logs of a twin: some 7 bytes each, if they are empty."""
_PER_BATCH = 5000

Content = Callable[[int, Known], Pair]
"""The record at an offset of a stretch."""


def empty(offset: int, stretch: Known) -> Pair:
    """Return a record without key and value."""
    return None, None


def lay_out(seen: Seen, p: PartitionFacts, filled: int = 0) -> Layout:
    """Return the log of a partition: all that is known, then what is filled.

    filled: how many offsets below the first open transaction, or below the end, get a record.
    """
    start, end = p.log_start_offset or 0, p.high_watermark or 0
    layout, where = Layout(start, end), p.topic_partition
    for batch in _raw(seen.records.get(where, b"")):
        layout.put(batch)
    for row in seen.strips.get(where, ()):
        if stretch := _from_strip(row):
            layout.put(stretch)
    opened = seen.open.get(where, [])
    for t in opened:
        for m in t.history.markers if t.history else ():
            _put_marker(layout, t.history.producer_id if t.history else -1, m)
    for t in opened:
        at = t.about.start_offset
        if t.start is not None and t.start.survivor is not None:
            at = t.start.survivor
        if t.start is not None and at is not None and not t.start.deleted:
            s = t.start
            epoch = (s.producer_id, s.producer_epoch)
            layout.put(Known(at, at + 1, 1, *epoch, transactional=True, timestamp=s.timestamp))
    _fill(seen, where, layout, filled)
    check_size(sum(k.records for k in layout))
    return layout


def check_size(records: int) -> None:
    """Raise UsageError if a twin would hold more records than it may."""
    if records > MOST_RECORDS:
        raise UsageError(
            f"the bundle's partitions hold {records} records, and a twin at most {MOST_RECORDS}",
            remedy="look at the bundle itself: `eoctl bundle open`",
        )


def _raw(data: bytes) -> Iterator[Known]:
    """Yield the batches that the bundle holds."""
    for h in batch_headers(data):
        end = marker(data, h) if h.is_control else None
        yield Known(
            h.base_offset,
            h.last_offset + 1,
            h.records_count,
            h.producer_id,
            h.producer_epoch,
            transactional=h.is_transactional,
            outcome=None if end is None else end.type.value,
            coordinator_epoch=(end and end.coordinator_epoch) or 0,
            timestamp=h.max_timestamp,
            leader_epoch=h.leader_epoch,
            raw=data[h.position : h.position + h.size],
        )


def _from_strip(row: StripRow) -> Known | None:
    if row.kind == "unread":
        return None
    if row.kind == "missing" or (row.kind == "control" and row.outcome is None):
        return Known(row.first_offset, row.end_offset)
    return Known(
        row.first_offset,
        row.end_offset,
        row.records,
        -1 if row.producer_id is None else row.producer_id,
        -1 if row.producer_epoch is None else row.producer_epoch,
        transactional=row.kind != "plain",
        outcome=row.outcome if row.kind == "control" else None,
        coordinator_epoch=row.coordinator_epoch or 0,
        timestamp=row.timestamp if row.kind == "control" else row.last_timestamp,
    )


def _put_marker(layout: Layout, producer_id: int, m: Marker) -> None:
    """Put a marker, and before it a record of what it ended if its producer wrote anything."""
    known = Known(
        m.offset,
        m.offset + 1,
        1,
        producer_id,
        m.producer_epoch,
        transactional=True,
        outcome=m.outcome,
        coordinator_epoch=m.coordinator_epoch,
        timestamp=m.timestamp,
        leader_epoch=m.leader_epoch if m.leader_epoch >= 0 else None,
    )
    layout.put(known)
    if not m.data:
        return
    at = layout.free_before(m.offset)
    if at is not None:
        epoch = m.producer_epoch if m.data_epoch is None else m.data_epoch
        data = replace(known, first=at, end=at + 1, producer_epoch=epoch, outcome=None)
        layout.put(data)


def _fill(seen: Seen, where: TopicPartition, layout: Layout, filled: int) -> None:
    """Fill what is free: with records from where the snapshot read on, with nothing below that."""
    opened = seen.open.get(where, [])
    first = min((t.about.start_offset or 0 for t in opened), default=layout.end)
    read_from = [h.markers_from for t in opened if (h := t.history) and h.markers_from is not None]
    for gap_end in set(read_from) - {layout.start}:
        layout.put(Known(gap_end - 1, gap_end))
    floor = max(layout.start, first - max(filled, seen.filled if opened else 0))
    breaks = [offset + 1 for offset, _ in seen.epochs.get(where, ())]
    for begin, end in layout.free(layout.start, layout.end):
        cuts = sorted({begin, end, *(c for c in (floor, *breaks) if begin < c < end)})
        for a, b in pairwise(cuts):
            records = b - a if a >= floor else 0
            layout.put(Known(a, b, records))


def data_log(
    seen: Seen,
    p: PartitionFacts,
    topic_id: str,
    layout: Layout,
    content: Content = empty,
    *,
    append_time: bool = False,
) -> NewLog:
    """Return a partition's log. append_time: its topic has LogAppendTime."""
    where = p.topic_partition
    producers = [
        replace(row, last_timestamp=seen.moved(row.last_timestamp))
        for row in seen.producers.get(where, ())
    ]
    last = {r.producer_id: r.last_sequence for r in producers if r.last_sequence is not None}
    stretches = _numbered(_with_epochs(seen, p, layout), last)
    return NewLog(
        where,
        topic_id,
        layout.start,
        layout.end,
        [b for s, sequence in stretches for b in _batches(seen, s, sequence, content, append_time)],
        producers,
        list(_aborted(layout)),
    )


def _with_epochs(seen: Seen, p: PartitionFacts, layout: Layout) -> list[Known]:
    """Return the stretches with a leader epoch each: never lower than the one before.

    What the log itself shows counts; a commit that contradicts it may be of an earlier log.
    """
    shown = [k for k in layout if k.leader_epoch is not None]
    firsts = [k.first for k in shown]

    def agrees(offset: int, epoch: int) -> bool:
        n = bisect_right(firsts, offset)
        below, above = shown[max(0, n - 1) : n], shown[n : n + 1]
        return all(offset >= k.end and epoch >= (k.leader_epoch or 0) for k in below) and all(
            epoch <= (k.leader_epoch or 0) for k in above
        )

    points = [point for point in seen.epochs.get(p.topic_partition, ()) if agrees(*point)]
    points += [(k.first, k.leader_epoch or 0) for k in shown]
    points.sort()
    most = p.leader_epoch or 0
    epoch = min(most, points[0][1]) if points else most
    result, n = [], 0
    for k in layout:
        while n < len(points) and points[n][0] < k.end:
            epoch = max(epoch, min(most, points[n][1]))
            n += 1
        result.append(replace(k, leader_epoch=epoch))
    return result


def _numbered(stretches: Sequence[Known], last: dict[int, int]) -> list[tuple[Known, int]]:
    """Return each stretch with its first sequence, counted back from its producer's last one."""
    result = []
    for k in reversed(stretches):
        sequence = -1
        if k.producer_id in last and k.outcome is None:
            sequence = max(0, last[k.producer_id] - (k.end - k.first) + 1)
            last[k.producer_id] = max(0, sequence - 1)
        result.append((k, sequence))
    return result[::-1]


def _batches(
    seen: Seen, k: Known, sequence: int, content: Content, append_time: bool
) -> Iterator[Batch]:
    """Yield a stretch's batches, each small enough to be read at once.

    A stretch without records is a hole but for its last offset: a log ends at a batch, and a
    position's leader epoch is that of the batch before it.
    """
    if k.raw is not None:
        time, epoch = seen.moved(k.timestamp), k.leader_epoch or 0
        base = BASE_OFFSET.unpack_from(k.raw)[0]  # below `first` where the log starts within it
        yield RawBatch(base, k.end - 1, time, epoch, k.raw, seen.shift)
        return
    begin = k.first if k.records else k.end - 1
    for first in range(begin, k.end, _PER_BATCH):
        end = min(first + _PER_BATCH, k.end)
        count = max(0, min(end - first, k.first + k.records - first))
        pairs = [content(first + n, k) for n in range(count)]
        if k.outcome is not None:
            pairs = [end_marker(k.outcome, k.coordinator_epoch)]
        yield NewBatch(
            first,
            end - 1,
            pairs,
            seen.moved(k.timestamp),
            k.leader_epoch or 0,
            k.producer_id,
            k.producer_epoch,
            -1 if sequence < 0 else (sequence + first - k.first) & MAX_SEQUENCE,
            transactional=k.transactional,
            control=k.outcome is not None,
            append_time=append_time,
        )


def _aborted(layout: Layout) -> Iterator[Aborted]:
    """Yield the aborted transactions, as a broker's index names them."""
    opened: dict[int, int] = {}
    for k in layout:
        if k.outcome is None and k.transactional:
            opened.setdefault(k.producer_id, k.first)
        elif k.outcome is not None:
            first = opened.pop(k.producer_id, None)
            if k.outcome == "abort" and first is not None:
                stable = min(opened.values(), default=k.first + 1)
                yield Aborted(k.producer_id, first, k.first, stable)
