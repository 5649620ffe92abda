"""Offsets held over the last half hour, per partition and in all, in bounded rings.

A sparkline begins at 0, all share one ceiling that is printed beside them, and where no sample was
taken there is a gap: nothing is drawn that was not seen.
"""

from collections import deque
from collections.abc import Iterable, Mapping

BUCKET_MS = 30_000
BUCKETS = 60  # half an hour
MOST = 2_000  # partitions that are remembered: those held within the half hour
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"


class Trend:
    """Add a look at a time; ask for a line of `width` cells that ends now."""

    def __init__(self) -> None:
        self._rings: dict[str, deque[tuple[int, int]]] = {}
        self._total: deque[tuple[int, int]] = deque(maxlen=BUCKETS)
        self._newest = 0

    def add(self, at_ms: int, held: Mapping[str, int]) -> None:
        """Add what each held partition holds, by name; one that is not named holds nothing."""
        bucket = at_ms // BUCKET_MS
        if bucket < self._newest:
            return
        self._newest = bucket
        _put(self._total, bucket, sum(held.values()))
        for name in self._rings.keys() | held.keys():
            ring = self._rings.setdefault(name, deque(maxlen=BUCKETS))
            _put(ring, bucket, held.get(name, 0))
        for name in [n for n, r in self._rings.items() if not self._lives(r)]:
            del self._rings[name]
        if len(self._rings) > MOST:
            smallest = sorted(self._rings, key=lambda n: self._rings[n][-1][1])
            for name in smallest[: len(self._rings) - MOST]:
                del self._rings[name]

    def _lives(self, ring: Iterable[tuple[int, int]]) -> bool:
        return any(value and bucket > self._newest - BUCKETS for bucket, value in ring)

    def line(self, name: str | None, width: int, ceiling: int, *, ascii_only: bool = False) -> str:
        """The sparkline of a partition, or of all (None); blank where there is nothing to draw."""
        ring = self._total if name is None else self._rings.get(name)
        if ring is None:
            return ""
        per_cell = BUCKETS / width
        peaks: list[int | None] = [None] * width
        for bucket, value in ring:
            age = self._newest - bucket
            if age < BUCKETS:
                cell = width - 1 - int(age / per_cell)
                peaks[cell] = max(peaks[cell] or 0, value)
        levels = _ASCII if ascii_only else _LEVELS
        return "".join(_level(peak, ceiling, levels) for peak in peaks)

    @property
    def total(self) -> int:
        """The highest sum of the half hour."""
        return max((v for b, v in self._total if b > self._newest - BUCKETS), default=0)

    @property
    def ceiling(self) -> int:
        """The highest of any partition in the half hour."""
        return max(
            (v for r in self._rings.values() for b, v in r if b > self._newest - BUCKETS), default=0
        )

    def __len__(self) -> int:
        return len(self._rings)


def _put(ring: deque[tuple[int, int]], bucket: int, value: int) -> None:
    """The peak of each bucket."""
    if ring and ring[-1][0] == bucket:
        ring[-1] = (bucket, max(ring[-1][1], value))
    else:
        ring.append((bucket, value))


def _level(value: int | None, ceiling: int, levels: str) -> str:
    if value is None:
        return " "
    if value == 0 or ceiling == 0:
        return levels[0]
    # whatever is above 0 is drawn above the floor
    return levels[1 + min(len(levels) - 2, value * (len(levels) - 1) // (ceiling + 1))]
