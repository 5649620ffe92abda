"""One partition of `__transaction_state` from its batches: the records that matter, and its gaps.

A busy cluster's log holds millions of records of which a verdict needs a handful. The bytes of a
producer id, then of the transactional ids that bore it, are searched for; only batches that hold
them are opened (all of them where the log is compressed).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.reader import CorruptError, UnknownVersion
from recovery.formats.records import Record, records
from recovery.formats.transaction_state import (
    TransactionValue,
    decode_key,
    decode_value,
)
from recovery.history import StateLog, StateRecord


@dataclass
class _Buffer:
    data: bytes
    headers: list[BatchHeader]
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [h.position for h in self.headers]

    def holding(self, needle: bytes) -> Iterator[int]:
        """Numbers of the batches that hold these bytes, or may: compressed ones."""
        # batches before the first start were in the buffer before this one
        at = self.data.find(needle, self.starts[0]) if self.starts else -1
        while at >= 0:
            number = bisect_right(self.starts, at) - 1
            header = self.headers[number]
            if at < header.position + header.size:
                yield number
                at = self.data.find(needle, header.position + header.size)
            else:
                return  # in the cut batch at the end
        for number, header in enumerate(self.headers):
            if header.codec != "none":
                yield number


def state_log(
    partition: int,
    buffers: Sequence[bytes],
    end: int,
    producer_ids: Collection[int],
    transactional_ids: Collection[str] = (),
) -> StateLog:
    """What `partition` says of these producer ids and transactional ids.

    buffers: its whole content as fetched, in order, from its log start to `end` (the high
    watermark), batches possibly repeated at the seams. Raises CorruptError.
    """
    parts: list[_Buffer] = []
    expected, whole_from = 0, 0
    since: tuple[_Buffer, BatchHeader] | None = None
    for data in buffers:
        headers = [h for h in batch_headers(data) if h.last_offset >= expected]
        part = _Buffer(data, headers)
        for header in headers:
            if header.base_offset > expected:
                whole_from, since = header.base_offset, None
            if header.records_count < header.last_offset - header.base_offset + 1:
                whole_from, since = header.last_offset + 1, None
            elif since is None:
                since = part, header
            expected = header.last_offset + 1
        parts.append(part)
    if expected < end:
        whole_from, since = end, None
    names = set(transactional_ids)
    for pid in producer_ids:
        needle = pid.to_bytes(8, "big", signed=True)
        for record in _decoded(partition, parts, needle):
            if isinstance(record.value, TransactionValue) and record.value.producer_id == pid:
                names.add(record.transactional_id)
    found: dict[int, StateRecord] = {}
    for name in names:
        for record in _decoded(partition, parts, name.encode("utf-8", "surrogatepass")):
            if record.transactional_id == name:
                found[record.offset] = record
    return StateLog(
        partition=partition,
        records=tuple(found[offset] for offset in sorted(found)),
        whole_from=whole_from,
        whole_since=_time(*since) if since else None,
    )


def _decoded(partition: int, parts: Sequence[_Buffer], needle: bytes) -> Iterator[StateRecord]:
    for part in parts:
        for number in sorted(set(part.holding(needle))):
            header = part.headers[number]
            for r in records(part.data, header):
                if (record := _state_record(partition, header, r)) is not None:
                    yield record


def _state_record(partition: int, header: BatchHeader, r: Record) -> StateRecord | None:
    if r.key is None:
        raise CorruptError("a record without a key", where=f"__transaction_state-{partition}")
    name = decode_key(r.key)
    if isinstance(name, UnknownVersion):
        return None
    time = header.max_timestamp if r.timestamp is None else r.timestamp
    return StateRecord(name, partition, r.offset, time, decode_value(r.value))


def _time(part: _Buffer, header: BatchHeader) -> int | None:
    first = next(records(part.data, header), None)
    return None if first is None else first.timestamp
