"""A number over the last minutes, per name and of all names, in bounded rings.

A drawing begins at 0, drawings shown together share one ceiling, printed beside them, and missing
samples leave a gap: nothing is drawn that was not seen.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

BUCKETS = 60
STEPS_MS = (5_000, 10_000, 30_000)
"""Of one bucket: 5 minutes are remembered, and as the history grows 10, then 30."""
BUCKET_MS = STEPS_MS[-1]
MOST = 2_000  # partitions that are remembered: those held within the half hour
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"

Samples = tuple[int | None, ...]
"""The peak of each bucket, the oldest first; None where no sample was taken."""


class Trend:
    """Add values at a time; ask for a line of `width` cells that ends now.

    most: names that are remembered. of_all: makes one value of all names' values.
    """

    def __init__(self, *, most: int = MOST, of_all: Callable[[Iterable[int]], int] = sum) -> None:
        self._most = most
        self._of_all = of_all
        self._rings: dict[str, deque[tuple[int, int]]] = {}
        self._total: deque[tuple[int, int]] = deque(maxlen=BUCKETS)
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
        for ring in (self._total, *self._rings.values()) if joined > 1 else ():
            for between in range(bucket - min(joined, BUCKETS) + 1, bucket):
                ring.append((between, ring[-1][1]))
        _put(self._total, bucket, self._of_all((0, *values.values())))
        for name in self._rings.keys() | values.keys():
            ring = self._rings.setdefault(name, deque(maxlen=BUCKETS))
            _put(ring, bucket, values.get(name, 0))
        for name in [n for n, r in self._rings.items() if not self._lives(r)]:
            del self._rings[name]
        if len(self._rings) > self._most:
            smallest = sorted(self._rings, key=lambda n: self._rings[n][-1][1])
            for name in smallest[: len(self._rings) - self._most]:
                del self._rings[name]

    def _widen(self, bucket_ms: int) -> None:
        """Remember for longer, in wider buckets."""
        old, self.bucket_ms = self.bucket_ms, bucket_ms
        self._newest = self._newest * old // bucket_ms
        for ring in (self._total, *self._rings.values()):
            samples = list(ring)
            ring.clear()
            for bucket, value in samples:
                _put(ring, bucket * old // bucket_ms, value)

    def _lives(self, ring: Iterable[tuple[int, int]]) -> bool:
        return any(value and bucket > self._newest - BUCKETS for bucket, value in ring)

    @property
    def seconds(self) -> int:
        """Return how far back a drawing goes."""
        return BUCKETS * self.bucket_ms // 1000

    @property
    def until(self) -> int:
        """Return the end of the newest bucket, epoch ms."""
        return (self._newest + 1) * self.bucket_ms

    @property
    def names(self) -> list[str]:
        """Return the names with a value above 0 within the remembered time."""
        return list(self._rings)

    def samples(self, name: str | None) -> Samples:
        """Return the peaks of a name, or of all (None); empty if nothing is known."""
        ring = self._total if name is None else self._rings.get(name)
        if ring is None:
            return ()
        peaks: list[int | None] = [None] * BUCKETS
        for bucket, value in ring:
            if (age := self._newest - bucket) < BUCKETS:
                peaks[BUCKETS - 1 - age] = value
        return tuple(peaks)

    def line(self, name: str | None, width: int, ceiling: int, *, ascii_only: bool = False) -> str:
        """Return the sparkline of a partition, or of all (None); blank without samples."""
        samples = self.samples(name)
        return bars(samples, width, 1, ceiling, ascii_only=ascii_only)[0] if samples else ""

    @property
    def total(self) -> int:
        """Return the highest value of all names together."""
        return max((v for b, v in self._total if b > self._newest - BUCKETS), default=0)

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


def bars(
    samples: Samples, width: int, height: int, ceiling: int, *, ascii_only: bool = False
) -> Sequence[str]:
    """Draw samples in `height` lines of `width` cells (at most one per bucket), the top first."""
    width = min(width, BUCKETS)
    peaks: list[int | None] = [None] * width
    for bucket, value in enumerate(samples):
        if value is not None:
            cell = cell_of(bucket, width)
            peaks[cell] = max(peaks[cell] or 0, value)
    signs = _ASCII if ascii_only else _LEVELS
    levels = [_level(peak, ceiling, height * len(signs)) for peak in peaks]
    return [
        "".join(_cell(level, row * len(signs), signs) for level in levels)
        for row in range(height - 1, -1, -1)
    ]


def _level(value: int | None, ceiling: int, levels: int) -> int:
    """Return a value's height, from 1; 0 if nothing was seen."""
    if value is None:
        return 0
    if value == 0 or ceiling == 0:
        return 1
    # any value above 0 is drawn above the floor
    return 2 + min(levels - 2, value * (levels - 1) // (ceiling + 1))


def _cell(level: int, below: int, signs: str) -> str:
    part = level - below
    return " " if part <= 0 else signs[min(part, len(signs)) - 1]
