"""Remember the ids of earlier records in sorted segments with Bloom filters, up to a horizon.

An id has 16 bytes (`recovery.shared.record_ids`). A segment keeps its ids sorted: 16 bytes each,
plus 10 bits of filter, so that a new id is usually recognized without a search. A match in the
filter alone decides nothing.
Source: B. H. Bloom, Space/time trade-offs in hash coding with allowable errors, 1970.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BITS_PER_ID = 10
_PROBES = 7  # 0.8 % of unknown ids pass
_LEAST_BITS = 1 << 10
_EVER = 2**62


class Bloom:
    """A Bloom filter of the added ids, uint64[n, 2]. expected: how many will be added."""

    def __init__(self, expected: int) -> None:
        import numpy as np

        bits = max(_LEAST_BITS, expected * _BITS_PER_ID)
        self._mask = np.uint64((1 << (bits - 1).bit_length()) - 1)
        self._bits = np.zeros((int(self._mask) + 1) // 8, np.uint8)

    def add(self, ids: "NDArray[np.uint64]") -> None:
        import numpy as np

        for bit in self._bits_of(ids):
            flags = np.uint8(1) << (bit & np.uint64(7)).astype(np.uint8)
            np.bitwise_or.at(self._bits, (bit >> np.uint64(3)).astype(np.int64), flags)

    def may_hold(self, ids: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
        """Return bool[n]: False = certainly never added."""
        import numpy as np

        held = np.ones(len(ids), np.bool_)
        for bit in self._bits_of(ids):
            at = (bit >> np.uint64(3)).astype(np.int64)
            held &= (self._bits[at] >> (bit & np.uint64(7)).astype(np.uint8)) & np.uint8(1) > 0
        return held

    def _bits_of(self, ids: "NDArray[np.uint64]") -> "Sequence[NDArray[np.uint64]]":
        """Return each id's bits by double hashing (Kirsch, Mitzenmacher 2006); ids are hashes."""
        import numpy as np

        first, step = ids[:, 0], ids[:, 1] | np.uint64(1)
        return [(first + np.uint64(i) * step) & self._mask for i in range(_PROBES)]


class _Segment(Value):
    """The sorted ids of consecutive records. offsets, clocks: where and when each was seen.

    last: its highest offset and clock.
    """

    ids: "NDArray[np.uint64]"
    offsets: "NDArray[np.int64]"
    clocks: "NDArray[np.int64]"
    bloom: Bloom
    last: tuple[int, int]

    def find(self, ids: "NDArray[np.uint64]") -> "NDArray[np.int64]":
        """Return int64[n]: the row of each id, -1 if it is not in this segment."""
        import numpy as np

        rows = np.full(len(ids), -1, np.int64)
        possible = np.flatnonzero(self.bloom.may_hold(ids))
        first = self.ids[:, 0]
        at = np.searchsorted(first, ids[possible, 0], "left")
        end = np.searchsorted(first, ids[possible, 0], "right")
        while (left := np.flatnonzero(at < end)).size:  # one round: equal first halves are rare
            possible, at, end = possible[left], at[left], end[left]
            hit = self.ids[at, 1] == ids[possible, 1]
            rows[possible[hit]] = at[hit]
            possible, at, end = possible[~hit], at[~hit] + 1, end[~hit]
        return rows


class SeenIds:
    """The ids of a partition's earlier records within the horizon.

    horizon_ms: by the clock, the highest timestamp read so far; horizon_offsets: by offsets. None:
    nothing is forgotten. Results do not depend on how the log is divided into batches.
    """

    def __init__(
        self,
        horizon_ms: int | None = None,
        horizon_offsets: int | None = None,
        segment_size: int = 1 << 18,
    ) -> None:
        self._horizon_ms, self._horizon_offsets = horizon_ms, horizon_offsets
        self._size = segment_size
        self._segments: list[_Segment] = []
        self._open: dict[bytes, tuple[int, int]] = {}
        self._clock = -1
        self.forgotten = 0

    def __len__(self) -> int:
        """Return how many ids are remembered."""
        return sum(len(s.ids) for s in self._segments) + len(self._open)

    def first_seen(
        self,
        ids: "NDArray[np.uint64]",
        offsets: "NDArray[np.int64]",
        timestamps: "NDArray[np.int64]",
    ) -> "NDArray[np.int64]":
        """Return int64[n], the offset where each id was seen, -1 if it is new; remember new ids.

        The records have ids, are in ascending order of offset, and follow those of earlier calls.
        """
        import numpy as np

        n = len(ids)
        clocks = np.maximum(np.maximum.accumulate(timestamps), self._clock)
        first_offsets = np.full(n, -1, np.int64)
        for segment in reversed(self._segments):  # the newest place of an id counts
            open_rows = np.flatnonzero(first_offsets < 0)
            rows = segment.find(ids[open_rows])
            open_rows, rows = open_rows[rows >= 0], rows[rows >= 0]
            near = self._near(
                offsets[open_rows] - segment.offsets[rows], clocks[open_rows] - segment.clocks[rows]
            )
            first_offsets[open_rows[near]] = segment.offsets[rows[near]]
        names, remembered = ids.tobytes(), self._open
        # an id whose segment entry is beyond the horizon may have been remembered again since
        for i in range(n):
            name = names[16 * i : 16 * i + 16]
            there = remembered.get(name)
            offset, clock = int(offsets[i]), int(clocks[i])
            if there is not None and self._near(offset - there[0], clock - there[1]):
                first_offsets[i] = there[0]
            elif first_offsets[i] < 0:
                remembered[name] = offset, clock
        if n:
            self._clock = int(clocks[-1])
            if len(remembered) >= self._size:
                self._close()
            self._forget(int(offsets[-1]))
        return first_offsets

    def _near(self, offsets: Any, clock: Any) -> Any:
        """Return True if a record is within the horizon. Takes numbers or arrays of them."""
        if self._horizon_offsets is not None:
            return offsets <= self._horizon_offsets
        return clock <= (_EVER if self._horizon_ms is None else self._horizon_ms)

    def _close(self) -> None:
        import numpy as np

        if not self._open:
            return
        ids = np.frombuffer(b"".join(self._open), np.uint64).reshape(-1, 2)
        seen = np.array(list(self._open.values()), np.int64)
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        self._add_segment(ids[order], seen[order, 0], seen[order, 1])
        self._open = {}

    def _add_segment(
        self, ids: "NDArray[np.uint64]", offsets: "NDArray[np.int64]", clocks: "NDArray[np.int64]"
    ) -> None:
        bloom = Bloom(len(ids))
        bloom.add(ids)
        last = int(offsets.max()), int(clocks.max())
        self._segments.append(_Segment(ids, offsets, clocks, bloom, last))

    def _forget(self, offset: int) -> None:
        """Drop segments that are completely beyond the horizon."""
        kept = [
            s for s in self._segments if self._near(offset - s.last[0], self._clock - s.last[1])
        ]
        self.forgotten += sum(len(s.ids) for s in self._segments) - sum(len(s.ids) for s in kept)
        self._segments = kept

    def dump(self) -> dict[str, Any]:
        """Return everything remembered as JSON values, which `load` restores."""
        self._close()
        return {
            "clock": self._clock,
            "forgotten": self.forgotten,
            "segments": [
                [
                    base64.b64encode(a.tobytes()).decode("ascii")
                    for a in (s.ids, s.offsets, s.clocks)
                ]
                for s in self._segments
            ],
        }

    def load(self, content: dict[str, Any]) -> None:
        """Restore the memory. Raises ValueError, TypeError or KeyError unless `dump` wrote it."""
        import numpy as np

        self._clock, self.forgotten = int(content["clock"]), int(content["forgotten"])
        self._segments, self._open = [], {}
        for parts in content["segments"]:
            raw, offsets, clocks = (base64.b64decode(part, validate=True) for part in parts)
            self._add_segment(
                np.frombuffer(raw, np.uint64).reshape(-1, 2),
                np.frombuffer(offsets, np.int64),
                np.frombuffer(clocks, np.int64),
            )
