"""Keep the last record of each identity, from records in any number of parts, in bounded memory.

Arrow's hash table numbers the identities, numpy keeps the highest offset of each number. What grows
beyond the bound is passed to `spill` as a run: a table with unique identities, tombstones kept.
Runs are sorted by their keys' hashes (`by_hash`), so that they can be merged.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from recovery.formats.arrays import binary_parts, int32_values, int64_values, one_chunk
from recovery.formats.columns import int64_array, rows_schema
from recovery.state.changelogs.changelog import ChangelogFormat

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_WEIGHT = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: neighbours go far apart
_SLICE = 1 << 18  # rows hashed at once
_MOST_CHUNKS = 64
_HASH_BITS = 62
HASHES = 1 << _HASH_BITS  # of a run's rows
_PIECE = 1 << 14  # rows distributed to parts at once
_PART_BYTES = 16 << 20
_MOST_PART_BITS = 6
_ROW_BYTES = 40  # besides the row itself: its entry in the hash table, number and order


class Latest:
    """Add records, then take the `table`. memory_bytes bounds what is held before `spill`.

    While a run is written, about twice as much is in use.
    """

    def __init__(
        self,
        form: ChangelogFormat,
        memory_bytes: int,
        spill: Callable[["pa.Table"], None],
    ) -> None:
        self._form = form
        self._most = memory_bytes
        self._spill = spill
        self._state: pa.Table | None = None
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: "pa.RecordBatch") -> None:
        """Add records with any offsets; each offset may be added only once."""
        if not len(rows):
            return
        self._pending.append(rows)
        self._bytes += _held(rows)
        if self._bytes + _held(self._state) > self._most:
            self._merge()
            if _held(self._state) > self._most // 2:
                self.spill()
            elif self._state is not None and self._state.column(0).num_chunks > _MOST_CHUNKS:
                self._state = self._state.combine_chunks()

    def spill(self) -> None:
        """Hand over the current rows, if any."""
        rows = self.table()
        self._state = None
        if len(rows):
            self._spill(rows)

    def table(self) -> "pa.Table":
        """Return the last record of each identity among those added and not spilt."""
        import pyarrow as pa

        self._merge()
        if self._state is None:
            return pa.Table.from_batches([], schema=rows_schema())  # empty_table() loads pandas
        return self._state

    def _merge(self) -> None:
        import pyarrow as pa

        if not self._pending:
            return
        pending, self._pending, self._bytes = self._pending, [], 0
        parts = [pa.Table.from_batches(pending)]
        del pending
        if self._state is not None:
            parts.append(self._state)
        self._state = None
        self._state = latest(self._form, parts)


def latest(form: ChangelogFormat, parts: Sequence["pa.Table"]) -> "pa.Table":
    """Return the record with the highest offset of each identity."""
    import numpy as np
    import pyarrow as pa

    batches = _batches(parts)
    if not batches:
        return pa.Table.from_batches([], schema=rows_schema())
    ids = pa.chunked_array([one_chunk(form.identity(batch)) for batch in batches])
    numbers = ids.dictionary_encode()
    if numbers.null_count:
        raise ValueError("a record without identity")
    number = np.concatenate([int32_values(chunk.indices) for chunk in numbers.chunks])
    offset = np.concatenate([int64_values(batch.column("offset")) for batch in batches])
    # Of equal subscripts numpy keeps the one written last, so write by rising offset.
    last = np.empty(int(number.max()) + 1, np.int64)
    if (offset[1:] > offset[:-1]).all():
        last[number] = np.arange(len(number))
    else:
        order = np.argsort(offset, kind="stable")
        last[number[order]] = order
    last.sort()
    return _chosen(batches, last)


def latest_of_runs(form: ChangelogFormat, parts: Sequence["pa.Table"]) -> "pa.Table":
    """Return the record with the highest offset of each identity, without the column `hash`.

    parts: have a column `hash` and are sorted by it. Sorting nearly sorted rows takes less time
    than numbering the identities.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    batches = _batches(parts)
    if not batches:
        return pa.Table.from_batches([], schema=rows_schema())
    hashes = np.concatenate([int64_values(batch.column("hash")) for batch in batches])
    plain = [batch.select(rows_schema().names) for batch in batches]
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    first = np.empty(len(order), np.bool_)  # of its hash
    first[0], first[1:] = True, hashes[1:] != hashes[:-1]
    again = np.flatnonzero(~first)
    if len(again):
        ids = one_chunk(pa.chunked_array([one_chunk(form.identity(batch)) for batch in plain]))
        here, before = (ids.take(int64_array(order[at])) for at in (again, again - 1))
        if here.null_count or not pc.all(pc.equal(here, before)).as_py():
            return latest(
                form, [pa.Table.from_batches(plain)]
            )  # two keys with one hash, or several identities of a key
        offset = np.concatenate([int64_values(batch.column("offset")) for batch in plain])[order]
        highest = np.maximum.reduceat(offset, np.flatnonzero(first))
        order = order[offset == highest[np.cumsum(first) - 1]]
    order.sort()
    return _chosen(plain, order)


def _batches(parts: Sequence["pa.Table"]) -> list["pa.RecordBatch"]:
    """Return the parts' batches without joining them: fresh memory costs more than the search."""
    return [batch for part in parts for batch in part.to_batches() if len(batch)]


def _chosen(batches: Sequence["pa.RecordBatch"], rows: "NDArray[np.int64]") -> "pa.Table":
    """Return the rows with these rising numbers, counted through all batches."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([len(batch) for batch in batches])
    kept = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return pa.Table.from_batches(
        [
            batch if len(here) == len(batch) else batch.take(int64_array(here - (end - len(batch))))
            for batch, here, end in zip(batches, kept, ends.tolist(), strict=True)
            if len(here)
        ]
    )


def _held(rows: "pa.Table | pa.RecordBatch | None") -> int:
    return 0 if rows is None else rows.nbytes + _ROW_BYTES * len(rows)


def key_hash(keys: "pa.Array") -> "NDArray[np.uint64]":
    """Hash each key as uint64[n], equally wherever it is computed.

    The hash is a polynomial of the key's bytes, then Murmur's last mixing. Null counts as empty.
    """
    import numpy as np

    data, edges = binary_parts(keys)
    hashes = np.empty(len(keys), np.uint64)
    for low in range(0, len(keys), _SLICE):
        edge = edges[low : low + _SLICE + 1]
        part = data[edge[0] : edge[-1]]
        length = np.diff(edge)
        within = np.arange(len(part), dtype=np.int64) - np.repeat(edge[:-1] - edge[0], length)
        powers = _powers(int(length.max(initial=0)))
        terms = np.concatenate(
            (np.zeros(1, np.uint64), np.cumsum((part + np.uint64(1)) * powers[within]))
        )
        at = edge - edge[0]
        hashes[low : low + _SLICE] = terms[at[1:]] - terms[at[:-1]]  # mod 2^64
    hashes ^= hashes >> np.uint64(33)
    hashes *= np.uint64(0xFF51AFD7ED558CCD)
    hashes ^= hashes >> np.uint64(33)
    hashes *= np.uint64(0xC4CEB9FE1A85EC53)
    hashes ^= hashes >> np.uint64(33)
    return hashes


def _powers(n: int) -> "NDArray[np.uint64]":
    import numpy as np

    powers: NDArray[np.uint64] = np.cumprod(np.full(n, _WEIGHT, np.uint64), dtype=np.uint64)
    return powers


def by_hash(rows: "pa.Table", most_bytes: int) -> Iterator["pa.Table"]:
    """Yield the rows by rising hash of their keys, in tables of about `most_bytes`.

    The tables have an additional column `hash`: int64, at least 0 and below HASHES.
    """
    import numpy as np
    import pyarrow as pa

    if not len(rows):
        return
    # Rows taken from all over a large table miss the processor's caches with each column. So they
    # are first distributed, piece by piece of the table, to parts that fit in the caches.
    bits = min(_MOST_PART_BITS, (rows.nbytes // _PART_BYTES).bit_length())
    at_once = max(1, len(rows) * most_bytes // max(1, rows.nbytes))
    schema = rows.schema.append(pa.field("hash", pa.int64()))
    edges = np.arange((1 << bits) + 1)
    pieces = []
    for piece in rows.to_batches(max_chunksize=_PIECE):
        hashes = (key_hash(piece.column("key")) >> np.uint64(2)).view(np.int64)
        part = (hashes >> (_HASH_BITS - bits)).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        columns = [*piece.take(int64_array(order)).columns, int64_array(hashes[order])]
        ends = np.searchsorted(part[order], edges).tolist()
        pieces.append((pa.RecordBatch.from_arrays(columns, schema=schema), ends))
    for number in range(1 << bits):
        slices = [
            piece.slice(ends[number], ends[number + 1] - ends[number])
            for piece, ends in pieces
            if ends[number] < ends[number + 1]
        ]
        if not slices:
            continue
        near = pa.Table.from_batches(slices).combine_chunks()
        order = np.argsort(int64_values(one_chunk(near.column("hash"))))
        for low in range(0, len(near), at_once):
            yield near.take(int64_array(order[low : low + at_once]))
