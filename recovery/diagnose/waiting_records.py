"""Count the records between a held LSO and the high watermark, by the transaction they are in."""

from collections import Counter
from collections.abc import Iterable

from recovery.formats.batches import NO_PRODUCER_ID, TIMESTAMP_TYPE, batch_headers
from recovery.formats.records import ControlType, marker
from recovery.values import Value


class Waiting(Value):
    """The data records in [LSO, high watermark), without control records.

    mine: records of the judged transaction. aborted: already aborted, so no reader waits for them.
    other_open: records of other transactions without a marker yet. freed: what readers get once the
    judged transaction is aborted, if nothing else holds them. oldest_timestamp: of the first
    record (ms, by the producer's or the broker's clock). complete: False if not everything was
    read; the numbers are then minimums. mine_bytes: size of the batches in `mine`, as the log
    stores them; None in a bundle made before this was counted.
    """

    records: int
    mine: int
    aborted: int
    other_open: int
    oldest_timestamp: int | None
    complete: bool
    mine_bytes: int | None = None

    @property
    def freed(self) -> int:
        return self.records - self.mine - self.aborted - self.other_open


def waiting(
    buffers: Iterable[bytes], start: int, end: int, producer_id: int | None, *, complete: bool
) -> Waiting:
    """Count [start, end) from fetched batches: only headers are read, except in markers.

    Batches that begin below `start` are left out: readers have them, and the LSO begins a batch.
    """
    plain = aborted = 0
    open_by: Counter[int] = Counter()
    bytes_by: Counter[int] = Counter()
    oldest: int | None = None
    expected = start
    for buffer in buffers:
        for h in batch_headers(buffer):
            if h.base_offset < expected or h.base_offset >= end:
                continue
            expected = h.last_offset + 1
            if h.is_control:
                end_marker = marker(buffer, h)
                if end_marker is not None and end_marker.type is not ControlType.OTHER:
                    ended = open_by.pop(h.producer_id, 0)
                    bytes_by.pop(h.producer_id, None)
                    if end_marker.type is ControlType.ABORT:
                        aborted += ended
                    else:
                        plain += ended
                continue
            if oldest is None and h.records_count:
                # LogAppendTime keeps the client's base timestamp and sets only the maximum
                append_time = h.attributes & TIMESTAMP_TYPE or h.has_delete_horizon
                time = h.max_timestamp if append_time else h.base_timestamp
                oldest = time if time >= 0 else None
            if h.is_transactional and h.producer_id != NO_PRODUCER_ID:
                open_by[h.producer_id] += h.records_count
                bytes_by[h.producer_id] += h.size
            else:
                plain += h.records_count
    mine = open_by.pop(producer_id, 0) if producer_id is not None else 0
    others = sum(open_by.values())
    return Waiting(
        records=plain + aborted + mine + others,
        mine=mine,
        aborted=aborted,
        other_open=others,
        oldest_timestamp=oldest,
        complete=complete,
        mine_bytes=bytes_by[producer_id] if producer_id is not None else 0,
    )
