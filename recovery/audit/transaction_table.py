"""Collect a data partition's view of each transaction: its data, and the marker that ended it.

The facts come from batch headers, and the outcome from control batches. The judgement needs the
coordinators' decisions and all partitions: see `recovery.audit.transactions`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recovery.audit.transaction_facts import Data, Ending, Mark
from recovery.formats.batches import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    HeaderScan,
    header_at,
)
from recovery.formats.reader import Buffer
from recovery.formats.records import ControlType, marker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A marker as brokers write it: the bytes after the batch header that are attributes, deltas and
# the lengths of key (4) and value (6) as varints.
_USUAL = ((1, 0), (2, 0), (3, 0), (4, 8), (9, 12))
_KIND, _COORDINATOR, _SIZE = 7, 12, 16


class PartitionTransactions:
    """The transactions of one partition, from buffers that are added in offset order."""

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self.repeated_markers = 0  # markers without data, such as a coordinator's second try
        self._open: dict[int, list[Data]] = {}
        self._ended: dict[int, list[Ending]] = {}

    def add(self, buffer: Buffer, scan: HeaderScan, end: int) -> None:
        """Add the next complete batches of [next_offset, end). A bad marker raises CorruptError."""
        import numpy as np

        base, last = scan.column("base_offset"), scan.last_offset
        inside = (last >= self.next_offset) & (base < end)
        if not inside.any():
            return
        self.next_offset = int(last[inside][-1]) + 1
        rows = np.flatnonzero(inside & scan.has(TRANSACTIONAL))
        if not len(rows):
            return
        pid = scan.column("producer_id")[rows]
        order = np.argsort(pid, kind="stable")  # each id's batches by offset
        rows, pid = rows[order], pid[order]
        control = scan.has(CONTROL)[rows]
        epoch = scan.column("producer_epoch")[rows]
        # adjacent data batches of one transaction are joined
        joined = ~control[1:] & ~control[:-1] & (pid[1:] == pid[:-1]) & (epoch[1:] == epoch[:-1])
        first = np.flatnonzero(np.concatenate(([True], ~joined)))
        behind = np.append(first[1:], len(rows))
        times = scan.column("max_timestamp")
        marks = iter(_marks(buffer, scan, rows[first][control[first]]))
        for begin, until in zip(first.tolist(), behind.tolist(), strict=True):
            row, who = int(rows[begin]), int(pid[begin])
            if control[begin]:
                if (mark := next(marks)) is not None:
                    self._end(who, mark)
                continue
            final = int(last[rows[until - 1]])
            stretches = self._open.setdefault(who, [])
            if stretches and stretches[-1].epoch == epoch[begin]:
                stretches[-1] = stretches[-1]._replace(last=final)
            else:
                stretches.append(Data(int(epoch[begin]), int(base[row]), final, int(times[row])))

    def endings(self) -> Iterator[tuple[int, Ending]]:
        """Yield (producer id, data and its marker), each id's by offset, open data last."""
        for pid in self._ended.keys() | self._open.keys():
            for ending in self._ended.get(pid, ()):
                yield pid, ending
            for data in self._open.get(pid, ()):
                yield pid, Ending(data, None)

    def _end(self, pid: int, mark: Mark) -> None:
        ended = self._ended.setdefault(pid, [])
        data = self._open.pop(pid, [])
        ended += [Ending(one, mark) for one in data]
        if not data:
            self.repeated_markers += 1
            ended.append(Ending(None, mark))


def _marks(buffer: Buffer, scan: HeaderScan, rows: "NDArray[np.intp]") -> list[Mark | None]:
    """Return the marker in each of these control batches; None if it ends no transaction."""
    import numpy as np

    if not len(rows):
        return []
    data = np.frombuffer(buffer, np.uint8)
    at = scan.positions[rows] + HEADER_SIZE
    usual = (scan.column("records_count")[rows] == 1) & (
        (scan.fields["attributes"][rows] & CODEC_MASK) == 0
    )
    usual &= scan.column("length")[rows] + 12 >= HEADER_SIZE + _SIZE
    for position, value in _USUAL:
        usual &= data[np.where(usual, at + position, 0)] == value
    kind = _number(data, np.where(usual, at + _KIND, 0), ">i2")
    coordinator = _number(data, np.where(usual, at + _COORDINATOR, 0), ">i4")
    columns = zip(
        rows.tolist(),
        usual.tolist(),
        kind.tolist(),
        coordinator.tolist(),
        scan.column("base_offset")[rows].tolist(),
        scan.column("producer_epoch")[rows].tolist(),
        scan.column("max_timestamp")[rows].tolist(),
        strict=True,
    )
    marks: list[Mark | None] = []
    for row, quick, what, coordinator_epoch, offset, epoch, time in columns:
        if quick and what in (0, 1):
            outcome = "commit" if what else "abort"
            marks.append(Mark(offset, outcome, epoch, coordinator_epoch, time))
            continue
        end_marker = marker(buffer, header_at(buffer, int(scan.positions[row])))
        if (
            end_marker is None
            or end_marker.type is ControlType.OTHER
            or end_marker.coordinator_epoch is None
        ):
            marks.append(None)
        else:
            marks.append(
                Mark(offset, end_marker.type.value, epoch, end_marker.coordinator_epoch, time)
            )
    return marks


def _number(data: "NDArray[np.uint8]", at: "NDArray[Any]", kind: str) -> "NDArray[np.int64]":
    import numpy as np

    width = np.dtype(kind).itemsize
    positions = at[:, None] + np.arange(width)
    return np.ascontiguousarray(data[positions]).view(kind)[:, 0].astype(np.int64)
