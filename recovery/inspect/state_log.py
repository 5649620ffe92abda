"""One partition of `__transaction_state` from its batches: the records that matter, and its gaps.

A busy cluster's log holds millions of records of which a verdict needs a handful: all of the
transactional ids that bore some producer ids. Coordinators write one record in each batch, so that
keys and values of all of them are found at once (numpy); only what is meant is decoded. Without
numpy, each batch is searched for the bytes that a record which is meant must hold.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from recovery.formats.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    HeaderPlaces,
    HeaderScan,
    header_at,
    header_places,
)
from recovery.formats.columns_walk import varints
from recovery.formats.reader import Buffer, CorruptError, UnknownVersion
from recovery.formats.records import records
from recovery.formats.transaction_state import decode_key, decode_value
from recovery.inspect.history import StateLog, StateRecord, producer_ids_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MARGIN = 64  # bytes behind a batch within which a malformed one may be looked at
_KEY_HEAD = 4  # version, length of the id
_VALUE_HEAD = 10  # version, producer id
_FEW_NEEDLES = 50  # beyond, a search for each takes longer than a look at each place
_TAGGED = (8, 12, 16)
"""Bytes before a value's end at which tag 0 or 1 holds another producer id than the value's own.

Behind it at most the two short tags 2 and 3 follow, of 4 bytes each. Where both tags 0 and 1 stand,
tag 0 still holds the value's own (Kafka's TransactionMetadata).
"""


@dataclass(frozen=True)
class LogPart:
    """Some of a log as fetched. scan: the headers of its whole batches, up to which data counts.

    Without numpy the scan only tells where they are; whatever is found is the same. reads: of what
    a cache kept, the rows with which each later read began, ascending; None = it was read just now.
    """

    data: memoryview
    scan: HeaderPlaces | HeaderScan
    reads: Sequence[int] | None = None

    def header(self, row: int) -> BatchHeader:
        """The header of a row of the scan; -1: the last one."""
        return header_at(self.data, int(self.scan.positions[row]))

    def end(self, rows: int) -> int:
        """The offset behind the first `rows` batches."""
        return self.header(rows - 1).last_offset + 1

    @cached_property
    def lone(self) -> "Lone":
        """The batches of one plain record of a known version. Needs numpy."""
        assert isinstance(self.scan, HeaderScan)
        return _lone(self.data, self.scan)

    @cached_property
    def others(self) -> Collection[int]:
        """Rows of all other batches, to be opened: of all batches without numpy."""
        rows = range(len(self.scan))
        if isinstance(self.scan, HeaderPlaces):
            return rows
        return frozenset(rows).difference(self.lone.rows.tolist())

    def of_producers(self, producer_ids: Collection[int]) -> list[int]:
        """Rows that may name these producer ids, those in tags 0 and 1 included."""
        needles = [pid.to_bytes(8, "big", signed=True) for pid in producer_ids]
        if isinstance(self.scan, HeaderPlaces):
            return self._with_others([], needles)
        import numpy as np

        ids = np.array(sorted(producer_ids), np.int64)
        lone = self.lone
        meant = np.isin(lone.producer_id, ids)
        for distance in _TAGGED:
            at = lone.end - distance
            inside = np.flatnonzero(at >= 0)
            meant[inside] |= np.isin(_number(self.data, at[inside], 8), ids)
        return self._with_others(lone.rows[meant].tolist(), needles)

    def of_ids(self, names: Collection[bytes]) -> list[int]:
        """Rows that may be of these transactional ids."""
        if isinstance(self.scan, HeaderPlaces):
            return self._with_others([], names)
        import numpy as np

        lone, data = self.lone, self.data
        lengths = np.array(sorted({len(name) for name in names}), np.int64)
        fit = np.flatnonzero(np.isin(lone.id_length, lengths))
        starts, ends = lone.id_start[fit], lone.id_start[fit] + lone.id_length[fit]
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        chosen = [i for i, (start, end) in enumerate(pairs) if bytes(data[start:end]) in names]
        return self._with_others(lone.rows[fit[chosen]].tolist(), names)

    def _with_others(self, rows: list[int], needles: Collection[bytes]) -> list[int]:
        """These, and of all other batches those that are compressed or hold one of the needles."""
        holds = _search(needles)
        for row in self.others:
            header = self.header(row)
            batch = bytes(self.data[header.position : header.position + header.size])
            if header.attributes & CODEC_MASK or holds(batch):
                rows.append(row)
        return sorted(rows)


def _search(needles: Collection[bytes]) -> Callable[[bytes], bool]:
    """A test whether one of the needles is within some bytes; its time is bounded for many."""
    if len(needles) <= _FEW_NEEDLES:
        return lambda batch: any(needle in batch for needle in needles)
    known = frozenset(needles)
    lengths = sorted({len(needle) for needle in known})
    return lambda batch: any(
        batch[at : at + length] in known
        for length in lengths
        for at in range(len(batch) - length + 1)
    )


@dataclass(frozen=True, slots=True)
class Former:
    """An earlier reading of a partition that the present log no longer holds.

    same_topic: the present topic lost it; else it is of an earlier topic of the same name.
    """

    partition: int
    part: LogPart
    same_topic: bool


@dataclass(frozen=True, slots=True)
class Lone:
    """Batches of one record. rows: of the scan; id_start: bytes; producer_id: -1 in tombstones.

    end: where the value ends, one byte before the batch does (Kafka writes no headers here).
    """

    rows: "NDArray[np.int64]"
    id_start: "NDArray[np.int64]"
    id_length: "NDArray[np.int64]"
    producer_id: "NDArray[np.int64]"
    end: "NDArray[np.int64]"


def _lone(data: Buffer, scan: HeaderScan) -> Lone:
    """Kafka's DefaultRecord: length, attributes, two deltas, key and value, each with a length.

    Whatever does not fit exactly is left out, and so told by the decoder that opens it.
    """
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    ends = scan.positions + LOG_OVERHEAD + scan.column("length")
    plain = (scan.fields["attributes"] & CODEC_MASK) == 0
    rows = np.flatnonzero(
        plain & (scan.column("records_count") == 1) & (ends <= len(raw) - _MARGIN)
    )

    number = partial(_number, data)
    length, at = varints(raw, scan.positions[rows] + HEADER_SIZE)
    end = at + length
    _, at = varints(raw, at + 1)
    _, at = varints(raw, at)
    key_length, key = varints(raw, at)
    sound = (end == ends[rows]) & (key_length >= _KEY_HEAD) & (key_length < end - key)
    rows, end, key, key_length = rows[sound], end[sound], key[sound], key_length[sound]
    value_length, value = varints(raw, key + key_length)
    id_length = number(key + 2, 2)
    sound = (number(key, 2) == 0) & (id_length == key_length - _KEY_HEAD) & (id_length > 0)
    tombstone = value_length == -1
    sound &= tombstone | ((value_length >= _VALUE_HEAD) & (value_length < end - value))
    version = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero(sound & ~tombstone)
    version[whole] = number(value[whole], 2)
    sound &= tombstone | (version == 0) | (version == 1)
    producer_id = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero(sound & ~tombstone)
    producer_id[whole] = number(value[whole] + 2, 8)
    return Lone(
        rows[sound], key[sound] + _KEY_HEAD, id_length[sound], producer_id[sound], end[sound] - 1
    )


def _number(data: Buffer, at: "NDArray[np.int64]", size: int) -> "NDArray[np.int64]":
    """Big-endian numbers of `size` bytes at these places."""
    import numpy as np

    if not len(at):
        return np.zeros(0, np.int64)
    raw = np.frombuffer(data, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(raw, size)[at]
    numbers: NDArray[np.int64] = windows.view(f">i{size}")[:, 0].astype(np.int64)
    return numbers


def parts_of(buffers: Iterable[bytes]) -> list[LogPart]:
    """Buffers with their headers scanned. Raises CorruptError."""
    return [LogPart(memoryview(data), header_places(data)) for data in buffers]


def state_log(
    partition: int,
    parts: Sequence[LogPart],
    end: int,
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None = (),
) -> StateLog:
    """Return what `partition` says of these producer ids and transactional ids (None = of all).

    parts: its whole content as fetched, in order, from its log start to `end` (the high
    watermark), batches possibly repeated at the seams. Raises CorruptError.
    """
    whole_from = _whole_from(parts, end)
    records: dict[int, StateRecord] = {}
    if transactional_ids is None:
        for part in parts:
            records |= {r.offset: r for r in _decoded(partition, part, range(len(part.scan)))}
    else:
        ids, named = set(transactional_ids), frozenset(producer_ids)
        for part in parts if producer_ids else ():
            for record in _decoded(partition, part, part.of_producers(producer_ids)):
                value = record.value
                # a value of a later version may be this producer's: its id is listed, and said so
                if isinstance(value, UnknownVersion) or not named.isdisjoint(
                    producer_ids_of(record)
                ):
                    ids.add(record.transactional_id)
        ids -= {""}  # no id at all
        encoded = {name.encode("utf-8", "surrogatepass") for name in ids}
        for part in parts if ids else ():
            for record in _decoded(partition, part, part.of_ids(encoded)):
                if record.transactional_id in ids:
                    records[record.offset] = record
    return StateLog(
        partition=partition,
        records=tuple(records[offset] for offset in sorted(records)),
        whole_from=whole_from,
        end=end,
        stands_from=_stands_from(parts, whole_from),
    )


def _stands_from(parts: Sequence[LogPart], whole_from: int) -> int:
    """The first offset of the read that saw all to `whole_from`: later reads missed nothing more.

    Each read begins where the one before ended, whatever compaction has left there.
    """
    reads = parts[0].reads if parts else None
    if reads is None:
        return 0
    kept, *new = parts
    begun = [*reads, len(kept.scan)] if new else reads
    later = bisect_left(begun, whole_from, key=kept.end)
    return kept.end(begun[later - 1]) if later else 0


def _whole_from(parts: Sequence[LogPart], end: int) -> int:
    """The first offset after which none is missing up to `end`; 0 if none ever was."""
    expected, whole_from = 0, 0
    for part in parts:
        scan = part.scan
        if isinstance(scan, HeaderPlaces):
            for header in map(part.header, range(len(scan))):
                if header.last_offset < expected:
                    continue
                if header.base_offset > expected:
                    whole_from = max(whole_from, header.base_offset)
                if header.records_count < header.last_offset - header.base_offset + 1:
                    whole_from = header.last_offset + 1
                expected = header.last_offset + 1
            continue
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


def _decoded(partition: int, part: LogPart, rows: Iterable[int]) -> Iterator[StateRecord]:
    for row in rows:
        header = part.header(row)
        for r in records(part.data, header):
            name = UnknownVersion(-1) if r.key is None else decode_key(r.key)
            if isinstance(name, UnknownVersion):
                # it may hold a decision: better no history than one with a hole
                where = f"__transaction_state-{partition} offset {r.offset}"
                raise CorruptError("a record with a key of an unknown version", where=where)
            time = header.max_timestamp if r.timestamp is None else r.timestamp
            yield StateRecord(
                name, partition, r.offset, time, decode_value(r.value), header.leader_epoch
            )
