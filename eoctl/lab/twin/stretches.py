"""Lay out a log from what is known of it: stretches of offsets, without overlap.

What was seen for certain is put first; what is put later gets only what is still free.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from recovery.values import Value, replace


class Known(Value):
    """Offsets [first, end) of one kind and producer. records: how many of them have a record.

    outcome, coordinator_epoch: of a marker, which is alone. timestamp: epoch ms, None = unknown.
    leader_epoch: under which it was appended, None = unknown. raw: the batch as the log stores it,
    if the bundle holds it.
    """

    first: int
    end: int
    records: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    outcome: str | None = None
    coordinator_epoch: int = 0
    timestamp: int | None = None
    leader_epoch: int | None = None
    raw: bytes | None = None


class Layout:
    """The known stretches of a partition's log within [start, end)."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._by_first: dict[int, Known] = {}
        self._firsts: list[int] = []

    def __iter__(self) -> Iterator[Known]:
        return iter([self._by_first[first] for first in self._firsts])

    def free(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [first, end) in which nothing is known yet."""
        at, stop = max(first, self.start), min(end, self.end)
        ranges = []
        near = max(0, bisect_right(self._firsts, at) - 1)
        for n in range(near, len(self._firsts)):
            known = self._by_first[self._firsts[n]]
            if known.first >= stop:
                break
            if known.end > at:
                if known.first > at:
                    ranges.append((at, known.first))
                at = known.end
        return [*ranges, (at, stop)] if at < stop else ranges

    def free_before(self, offset: int) -> int | None:
        """Return the last free offset below one and above the marker before it; None: none is."""
        at = min(offset, self.end)
        for n in range(bisect_left(self._firsts, at) - 1, -1, -1):
            known = self._by_first[self._firsts[n]]
            if known.end < at:
                break
            if known.outcome is not None:
                return None
            at = known.first
        return at - 1 if at > self.start else None

    def put(self, known: Known) -> None:
        """Add a stretch where it is free; a shortened one has a record at each offset it can.

        A raw batch that does not fit is left out; the log may start within one, as after
        DeleteRecords.
        """
        left = known.records
        ranges = self.free(known.first, known.end)
        if known.raw is not None and ranges != [(max(known.first, self.start), known.end)]:
            return  # a batch is there completely or not at all
        for first, end in ranges:
            records = min(left, end - first)
            left -= records
            at = bisect_right(self._firsts, first)
            self._firsts.insert(at, first)
            self._by_first[first] = replace(known, first=first, end=end, records=records)
