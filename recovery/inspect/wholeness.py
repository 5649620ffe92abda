"""From which offset on a log that was read in several reads misses nothing."""

from dataclasses import dataclass

from recovery.formats.batches import HeaderScan
from recovery.inspect.log_part import LogPart


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
