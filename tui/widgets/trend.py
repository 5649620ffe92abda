"""A number over the last minutes, per name, in bounded rings.

A drawing begins at 0, drawings shown together share one ceiling, printed beside them, and missing
samples leave a gap: nothing is drawn that was not seen.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise

BUCKETS = 60
STEPS_MS = (5_000, 10_000, 30_000)
"""Of one bucket: 5 minutes are remembered, and as the history grows 10, then 30."""
MOST = 2_000  # partitions that are remembered: those held within the half hour
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"

Samples = tuple[int | None, ...]
"""The peak of each bucket, the oldest first; None where no sample was taken."""


class Trend:
    """Add values at a time; ask for a line of `width` cells that ends now."""

    def __init__(self) -> None:
        self._rings: dict[str, deque[tuple[int, int]]] = {}
        self._first = self._last = -1
        self._newest = 0
        self.bucket_ms = STEPS_MS[0]

    def add(self, at_ms: int, values: Mapping[str, int], *, joins_ms: int = 0) -> None:
        """Add each name's value (what a partition holds, say); a missing name has 0.

        joins_ms: the previous values hold for the time since, if that is not longer ago.
        """
        if self._first < 0:
            self._first = at_ms
        for narrow, wide in pairwise(STEPS_MS):
            if narrow == self.bucket_ms and at_ms // narrow - self._first // narrow >= BUCKETS:
                self._widen(wide)
        bucket = at_ms // self.bucket_ms
        if bucket < self._newest:
            return
        joined = bucket - self._newest if 0 <= at_ms - self._last <= joins_ms else 0
        self._newest, self._last = bucket, at_ms
        for ring in self._rings.values() if joined > 1 else ():
            for between in range(bucket - min(joined, BUCKETS) + 1, bucket):
                ring.append((between, ring[-1][1]))
        for name in self._rings.keys() | values.keys():
            ring = self._rings.setdefault(name, deque(maxlen=BUCKETS))
            _put(ring, bucket, values.get(name, 0))
        for name in [n for n, r in self._rings.items() if not self._lives(r)]:
            del self._rings[name]
        if len(self._rings) > MOST:
            smallest = sorted(self._rings, key=lambda n: self._rings[n][-1][1])
            for name in smallest[: len(self._rings) - MOST]:
                del self._rings[name]

    def _widen(self, bucket_ms: int) -> None:
        """Remember for longer, in wider buckets."""
        old, self.bucket_ms = self.bucket_ms, bucket_ms
        self._newest = self._newest * old // bucket_ms
        for ring in self._rings.values():
            samples = list(ring)
            ring.clear()
            for bucket, value in samples:
                _put(ring, bucket * old // bucket_ms, value)

    def _lives(self, ring: Iterable[tuple[int, int]]) -> bool:
        return any(value and bucket > self._newest - BUCKETS for bucket, value in ring)

    def samples(self, name: str) -> Samples:
        """Return the peaks of a name; empty if nothing is known."""
        ring = self._rings.get(name)
        if ring is None:
            return ()
        peaks: list[int | None] = [None] * BUCKETS
        for bucket, value in ring:
            if (age := self._newest - bucket) < BUCKETS:
                peaks[BUCKETS - 1 - age] = value
        return tuple(peaks)

    def line(self, name: str, width: int, ceiling: int, *, ascii_only: bool = False) -> str:
        """Return the sparkline of a name, at most a cell a bucket; blank without samples."""
        samples = self.samples(name)
        width = min(width, BUCKETS) if samples else 0
        peaks: list[int | None] = [None] * width
        for bucket, value in enumerate(samples):
            if value is not None:
                cell = cell_of(bucket, width)
                peaks[cell] = max(peaks[cell] or 0, value)
        signs = _ASCII if ascii_only else _LEVELS
        return "".join(_sign(peak, ceiling, signs) for peak in peaks)

    @property
    def ceiling(self) -> int:
        """Return the highest value of any name."""
        return max(
            (v for r in self._rings.values() for b, v in r if b > self._newest - BUCKETS), default=0
        )

    def __len__(self) -> int:
        return len(self._rings)


def _put(ring: deque[tuple[int, int]], bucket: int, value: int) -> None:
    """Keep the peak of each bucket."""
    if ring and ring[-1][0] == bucket:
        ring[-1] = (bucket, max(ring[-1][1], value))
    else:
        ring.append((bucket, value))


def cell_of(bucket: int, width: int) -> int:
    """Return the cell in which a bucket is drawn; both are counted from the oldest."""
    return width - 1 - int((BUCKETS - 1 - bucket) * width / BUCKETS)


def _sign(value: int | None, ceiling: int, signs: str) -> str:
    if value is None:
        return " "
    if value == 0 or ceiling == 0:
        return signs[0]
    # any value above 0 is drawn above the floor
    return signs[1 + min(len(signs) - 2, value * (len(signs) - 1) // (ceiling + 1))]
