"""Some batches of `__transaction_state`: find those that matter without decoding all of them.

Coordinators write one record per batch, so numpy finds the keys and values of all batches at once;
only the requested ones are decoded. Without numpy, each batch is searched for the bytes that such a
record must contain.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from recovery.formats.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    HeaderPositions,
    HeaderScan,
    header_at,
    header_positions,
)
from recovery.formats.columns_walk import varints
from recovery.formats.reader import Buffer, CorruptError, UnknownVersion
from recovery.formats.records import records
from recovery.formats.transaction_state import (
    STATE_IDS,
    TransactionState,
    decode_key,
    decode_value,
)
from recovery.inspect.history import StateRecord
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MARGIN = 64  # bytes after a batch into which reading a malformed one may run
KEY_HEAD = 4  # version, length of the id
VALUE_HEAD = 10  # version, producer id
_FEW_NEEDLES = 50  # for more needles, checking every position is faster
TAGGED = (8, 12, 16)
"""Bytes before a value's end at which tag 0 or 1 holds another producer id than the value's own.

After it at most the two short tags 2 and 3 follow, of 4 bytes each. Where both tags 0 and 1 exist,
tag 0 still holds the value's own (Kafka's TransactionMetadata).
"""


class LogPart(Value, dict=True):
    """A part of a log as fetched. scan: headers of its complete batches; data counts up to there.

    Without numpy the scan only gives positions; the results are equal.
    """

    data: Buffer
    scan: HeaderPositions | HeaderScan

    def header(self, row: int) -> BatchHeader:
        """Return the header of a row of the scan; -1: the last one."""
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
        """Return the batches with one plain record of a known version. Needs numpy."""
        assert isinstance(self.scan, HeaderScan)
        return _lone(self.data, self.scan)

    @cached_property
    def others(self) -> Collection[int]:
        """Return the rows of all other batches, which must be opened; without numpy, all rows."""
        rows = range(len(self.scan))
        if isinstance(self.scan, HeaderPositions):
            return rows
        return frozenset(rows).difference(self.lone.rows.tolist())

    def of_producers(self, producer_ids: Collection[int]) -> list[int]:
        """Return the rows that may name these producer ids, also in tags 0 and 1."""
        needles = [pid.to_bytes(8, "big", signed=True) for pid in producer_ids]
        if isinstance(self.scan, HeaderPositions):
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
        """Return the rows that may belong to these transactional ids."""
        if isinstance(self.scan, HeaderPositions):
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
        """Add to rows the other batches that are compressed or contain a needle, then sort."""
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
                    # It may hold a decision: better no history than one with a gap.
                    where = f"__transaction_state-{partition} offset {r.offset}"
                    raise CorruptError("a record with a key of an unknown version", where=where)
                time = header.max_timestamp if r.timestamp is None else r.timestamp
                value = decode_value(r.value)
                yield StateRecord(name, partition, r.offset, time, value, header.leader_epoch)


def part_of(data: Buffer) -> LogPart:
    """Return a buffer with its headers scanned. Raises CorruptError."""
    return LogPart(data, header_positions(data))


def _search(needles: Collection[bytes]) -> Callable[[bytes], bool]:
    """Return a test whether bytes contain one of the needles; many needles do not slow it down."""
    if len(needles) <= _FEW_NEEDLES:
        return lambda batch: any(needle in batch for needle in needles)
    known = frozenset(needles)
    lengths = sorted({len(needle) for needle in known})
    return lambda batch: any(
        batch[at : at + length] in known
        for length in lengths
        for at in range(len(batch) - length + 1)
    )


class Lone(Value):
    """Batches of one record. rows: of the scan; id_start: in bytes; producer_id: -1 in tombstones.

    value, end: of the value, which ends one byte before the end of the batch (Kafka writes no
    headers here).
    """

    rows: "NDArray[np.int64]"
    id_start: "NDArray[np.int64]"
    id_length: "NDArray[np.int64]"
    producer_id: "NDArray[np.int64]"
    value: "NDArray[np.int64]"
    end: "NDArray[np.int64]"


def _lone(data: Buffer, scan: HeaderScan) -> Lone:
    """Find the fields of Kafka's DefaultRecord: length, attributes, two deltas, key and value.

    A batch that does not fit exactly is left out, so that the decoder opens it and reports it.
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
        rows[sound],
        key[sound] + KEY_HEAD,
        id_length[sound],
        producer_id[sound],
        value[sound],
        end[sound] - 1,
    )


class Head(NamedTuple):
    """What the beginning of a lone batch's value says. begin, end: bytes of its id; at: ms."""

    state: TransactionState
    epoch: int
    begin: int
    end: int
    at: int


_EPOCH, _STATE, _HEAD = 10, 16, 17  # positions in a value: of both, and the end of these fields


def heads(part: LogPart, states: Collection[TransactionState]) -> dict[int, Head]:
    """Return by row the heads of lone batches in one of these states; none without numpy."""
    if not isinstance(part.scan, HeaderScan):
        return {}
    import numpy as np

    lone, numbers = part.lone, {STATE_IDS.index(state): state for state in states}
    fit = np.flatnonzero(lone.end - lone.value >= _HEAD)  # not a tombstone
    fit = fit[np.isin(number_at(part.data, lone.value[fit] + _STATE, 1), list(numbers))]
    value, start = lone.value[fit], lone.id_start[fit]
    columns = (
        lone.rows[fit],
        number_at(part.data, value + _STATE, 1),
        number_at(part.data, value + _EPOCH, 2),
        start,
        start + lone.id_length[fit],
        part.scan.column("max_timestamp")[lone.rows[fit]],
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {row: Head(numbers[state], *rest) for row, state, *rest in rows}


def number_at(data: Buffer, at: "NDArray[np.int64]", size: int) -> "NDArray[np.int64]":
    """Return the big-endian numbers of `size` bytes at these positions."""
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

    Between two reads compaction may have removed records that no read saw: a gap that a read meets
    is in what it saw itself, and no later read missed anything before that gap.
    """

    end: int = 0  # the offset after the last batch
    whole_from: int = 0  # the first offset from which none is missing; 0 if none ever was
    stands_from: int = 0  # where the read that found the last gap began

    def add(self, part: LogPart, begun: int | None) -> None:
        """Add new batches. begun: where their read began; None = any of them may have begun one."""
        if not len(part.scan):
            return
        gap = _last_gap(part, self.end)
        if gap is not None:
            before, whole_from = gap
            self.whole_from = whole_from
            self.stands_from = before if begun is None else begun
        self.end = part.header(-1).last_offset + 1

    def ended(self, end: int, begun: int) -> None:
        """End a read that began at `begun`, at the high watermark `end`."""
        if self.end < end and self.whole_from < end:
            self.whole_from, self.stands_from = end, begun


def _last_gap(part: LogPart, expected: int) -> tuple[int, int] | None:
    """Return the last gap: the end of the batch before it, and the first offset after it."""
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
