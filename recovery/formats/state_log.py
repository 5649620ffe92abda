"""One partition of `__transaction_state` from its batches: the records that matter, and its gaps.

A busy cluster's log holds millions of records of which a verdict needs a handful. The bytes of a
producer id, then of the transactional ids that bore it, are searched for; only batches that hold
them are opened (all of them where the log is compressed).
"""

from collections.abc import Collection, Iterator, Sequence

from recovery.formats.batches import HeaderScan, batches_holding, header_at, scan_headers
from recovery.formats.reader import CorruptError, UnknownVersion
from recovery.formats.records import records
from recovery.formats.transaction_state import TransactionValue, decode_key, decode_value
from recovery.history import StateLog, StateRecord

Part = tuple[bytes, HeaderScan]


def state_log(
    partition: int,
    buffers: Sequence[bytes],
    end: int,
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None = (),
) -> StateLog:
    """What `partition` says of these producer ids and transactional ids (None = of all).

    buffers: its whole content as fetched, in order, from its log start to `end` (the high
    watermark), batches possibly repeated at the seams. Raises CorruptError.
    """
    parts = [(data, scan_headers(data)) for data in buffers]
    whole_from = _whole_from(parts, end)
    names = set(transactional_ids or ())
    found: dict[int, StateRecord] = {}
    if transactional_ids is None:
        found = {record.offset: record for record in _decoded(partition, parts, None)}
        producer_ids = ()
    for pid in producer_ids:
        for record in _decoded(partition, parts, pid.to_bytes(8, "big", signed=True)):
            value = record.value
            # a value of a later version may be this producer's: its id is listed, and said so
            if isinstance(value, UnknownVersion) or (
                isinstance(value, TransactionValue) and value.producer_id == pid
            ):
                names.add(record.transactional_id)
    for name in names - {""}:  # no id at all, and found everywhere
        for record in _decoded(partition, parts, name.encode("utf-8", "surrogatepass")):
            if record.transactional_id == name:
                found[record.offset] = record
    return StateLog(
        partition=partition,
        records=tuple(found[offset] for offset in sorted(found)),
        whole_from=whole_from,
        whole_since=_time_at(parts, whole_from),
    )


def _whole_from(parts: Sequence[Part], end: int) -> int:
    """The first offset after which none is missing up to `end`; 0 if none ever was."""
    expected, whole_from = 0, 0
    for _, scan in parts:
        base, last, count = (
            scan.column("base_offset"),
            scan.last_offset,
            scan.column("records_count"),
        )
        new = last >= expected
        base, last, count = base[new], last[new], count[new]
        if not len(base):
            continue
        if base[0] > expected:
            whole_from = int(base[0])
        after_gap = base[1:][base[1:] > last[:-1] + 1]
        thinned = last[count < last - base + 1] + 1
        whole_from = max([whole_from, *after_gap[-1:].tolist(), *thinned[-1:].tolist()])
        expected = int(last[-1]) + 1
    return max(whole_from, end) if expected < end else whole_from


def _time_at(parts: Sequence[Part], offset: int) -> int | None:
    """The time of the first record at or after an offset."""
    for data, scan in parts:
        rows = (scan.column("base_offset") >= offset).nonzero()[0]
        for row in rows.tolist():
            first = next(records(data, header_at(data, int(scan.positions[row]))), None)
            if first is not None:
                return first.timestamp
    return None


def _decoded(partition: int, parts: Sequence[Part], needle: bytes | None) -> Iterator[StateRecord]:
    for data, scan in parts:
        rows = range(len(scan)) if needle is None else batches_holding(data, scan, needle)
        for row in rows:
            header = header_at(data, int(scan.positions[row]))
            for r in records(data, header):
                name = UnknownVersion(-1) if r.key is None else decode_key(r.key)
                if isinstance(name, UnknownVersion):
                    # it may hold a decision: better no history than one with a hole
                    where = f"__transaction_state-{partition} offset {r.offset}"
                    raise CorruptError("a record with a key of an unknown version", where=where)
                time = header.max_timestamp if r.timestamp is None else r.timestamp
                yield StateRecord(name, partition, r.offset, time, decode_value(r.value))
