"""Some batches of `__transaction_state`: which of them matter, found without decoding them all.

Coordinators write one record in each batch, so that keys and values of all of them are found at
once (numpy); only what is asked for is decoded. Without numpy, each batch is searched for the bytes
that such a record must hold.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
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
from recovery.inspect.history import StateRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MARGIN = 64  # bytes after a batch within which a malformed one may be looked at
KEY_HEAD = 4  # version, length of the id
VALUE_HEAD = 10  # version, producer id
_FEW_NEEDLES = 50  # beyond, a search for each takes longer than a look at each place
TAGGED = (8, 12, 16)
"""Bytes before a value's end at which tag 0 or 1 holds another producer id than the value's own.

After it at most the two short tags 2 and 3 follow, of 4 bytes each. Where both tags 0 and 1 exist,
tag 0 still holds the value's own (Kafka's TransactionMetadata).
"""


@dataclass(frozen=True)
class LogPart:
    """Some of a log as fetched. scan: the headers of its complete batches, up to which data counts.

    Without numpy the scan only gives their places; what is found is the same.
    """

    data: Buffer
    scan: HeaderPlaces | HeaderScan

    def header(self, row: int) -> BatchHeader:
        """The header of a row of the scan; -1: the last one."""
        return header_at(self.data, int(self.scan.positions[row]))

    def after(self, offset: int) -> "LogPart | None":
        """Return the batches that end after an offset; None if there are none."""
        rows = len(self.scan)
        first = next((n for n in range(rows) if self.header(n).last_offset > offset), rows)
        if first == rows:
            return None
        begin = self.header(first).position
        if not begin and self.scan.end == len(self.data):
            return self
        return part_of(memoryview(self.data)[begin : self.scan.end])

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
        for distance in TAGGED:
            at = lone.end - distance
            inside = np.flatnonzero(at >= 0)
            meant[inside] |= np.isin(number_at(self.data, at[inside], 8), ids)
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

    def decoded(self, partition: int, rows: Iterable[int]) -> Iterator[StateRecord]:
        """Yield the records of these rows. Raises CorruptError."""
        for row in rows:
            header = self.header(row)
            for r in records(self.data, header):
                name = UnknownVersion(-1) if r.key is None else decode_key(r.key)
                if isinstance(name, UnknownVersion):
                    # it may hold a decision: better no history than one with a hole
                    where = f"__transaction_state-{partition} offset {r.offset}"
                    raise CorruptError("a record with a key of an unknown version", where=where)
                time = header.max_timestamp if r.timestamp is None else r.timestamp
                value = decode_value(r.value)
                yield StateRecord(name, partition, r.offset, time, value, header.leader_epoch)


def part_of(data: Buffer) -> LogPart:
    """Return a buffer with its headers scanned. Raises CorruptError."""
    return LogPart(data, header_places(data))


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

    number = partial(number_at, data)
    length, at = varints(raw, scan.positions[rows] + HEADER_SIZE)
    end = at + length
    _, at = varints(raw, at + 1)
    _, at = varints(raw, at)
    key_length, key = varints(raw, at)
    sound = (end == ends[rows]) & (key_length >= KEY_HEAD) & (key_length < end - key)
    rows, end, key, key_length = rows[sound], end[sound], key[sound], key_length[sound]
    value_length, value = varints(raw, key + key_length)
    id_length = number(key + 2, 2)
    sound = (number(key, 2) == 0) & (id_length == key_length - KEY_HEAD) & (id_length > 0)
    tombstone = value_length == -1
    sound &= tombstone | ((value_length >= VALUE_HEAD) & (value_length < end - value))
    version = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero(sound & ~tombstone)
    version[whole] = number(value[whole], 2)
    sound &= tombstone | (version == 0) | (version == 1)
    producer_id = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero(sound & ~tombstone)
    producer_id[whole] = number(value[whole] + 2, 8)
    return Lone(
        rows[sound], key[sound] + KEY_HEAD, id_length[sound], producer_id[sound], end[sound] - 1
    )


def number_at(data: Buffer, at: "NDArray[np.int64]", size: int) -> "NDArray[np.int64]":
    """Big-endian numbers of `size` bytes at these places."""
    import numpy as np

    if not len(at):
        return np.zeros(0, np.int64)
    raw = np.frombuffer(data, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(raw, size)[at]
    numbers: NDArray[np.int64] = windows.view(f">i{size}")[:, 0].astype(np.int64)
    return numbers


@dataclass(slots=True)
class Wholeness:
    """What is known of a partition's log up to `end`.

    Between two reads compaction may have taken records that nobody saw: a gap that a read meets is
    one in what it saw, and no later read missed anything of what came before it.
    """

    end: int = 0  # the offset after the last batch
    whole_from: int = 0  # the first offset after which none is missing; 0 if none ever was
    stands_from: int = 0  # where the read that saw all to whole_from began

    def add(self, part: LogPart, begun: int | None) -> None:
        """Go on with new batches. begun: where their read began; None = any may have begun one."""
        if not len(part.scan):
            return
        gap = _last_gap(part, self.end)
        if gap is not None:
            before, whole_from = gap
            self.whole_from = whole_from
            self.stands_from = before if begun is None else begun
        self.end = part.header(-1).last_offset + 1

    def ended(self, end: int, begun: int) -> None:
        """End a read that began at `begun` at the high watermark `end`."""
        if self.end < end and self.whole_from < end:
            self.whole_from, self.stands_from = end, begun


def _last_gap(part: LogPart, expected: int) -> tuple[int, int] | None:
    """The last missing offsets: where the batch before them ends, and the first offset after."""
    scan = part.scan
    if not isinstance(scan, HeaderScan):
        gap = None
        for header in map(part.header, range(len(scan))):
            if header.records_count < header.last_offset - header.base_offset + 1:
                gap = expected, header.last_offset + 1
            elif header.base_offset > expected:
                gap = expected, header.base_offset
            expected = header.last_offset + 1
        return gap
    import numpy as np

    base, last, count = scan.column("base_offset"), scan.last_offset, scan.column("records_count")
    before = np.concatenate(([expected], last[:-1] + 1))
    thinned = count < last - base + 1
    rows = np.flatnonzero(thinned | (base > before))
    if not len(rows):
        return None
    row = rows[-1]
    return int(before[row]), int(last[row] + 1 if thinned[row] else base[row])
