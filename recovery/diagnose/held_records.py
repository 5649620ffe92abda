"""Find one open transaction's batches in its partition's log, and those of the records that wait.

The log is read from the transaction's first offset on, at read_uncommitted, and no further than is
needed for the first records of each kind.
"""

from typing import NamedTuple

from recovery.formats.batches import NO_PRODUCER_ID, BatchHeader, batch_headers
from recovery.formats.records import ControlType, marker


class Batch(NamedTuple):
    """A data batch in the bytes of a Fetch response."""

    buffer: bytes
    header: BatchHeader


class EndMarker(NamedTuple):
    """The marker that ended the transaction. outcome: commit or abort."""

    offset: int
    outcome: str


class HeldRecords:
    """Sorts the data batches in [low, end) by what became of them.

    low: the transaction's first offset, or the log start if that is later. end: the high watermark.
    most: records of each kind that are needed.
    """

    def __init__(self, producer_id: int, low: int, end: int, most: int) -> None:
        self._producer_id = producer_id
        self.low, self._end, self._most = low, end, most
        self._after: list[Batch] = []
        self._fate: list[str] = []  # of each batch in _after: waits, aborted or open
        self._open: dict[int, list[int]] = {}  # producer id -> indexes of its undecided batches
        self.own: list[Batch] = []
        self.ended: EndMarker | None = None
        self.first_read: int | None = None  # base offset of the first batch
        self.next_offset = low

    def add(self, buffer: bytes) -> None:
        """Take the next bytes. Raises CorruptError."""
        for header in batch_headers(buffer):
            if header.last_offset < self.next_offset or header.base_offset >= self._end:
                continue
            self.next_offset = header.last_offset + 1
            if self.first_read is None:
                self.first_read = header.base_offset
            if header.is_control:
                self._control(buffer, header)
            elif header.records_count:
                self._data(Batch(buffer, header))

    def _control(self, buffer: bytes, header: BatchHeader) -> None:
        end_marker = marker(buffer, header)
        if end_marker is None or end_marker.type is ControlType.OTHER:
            return
        if header.producer_id == self._producer_id and self.ended is None:
            self.ended = EndMarker(header.base_offset, end_marker.type.value)
        fate = "aborted" if end_marker.type is ControlType.ABORT else "waits"
        for index in self._open.pop(header.producer_id, ()):
            self._fate[index] = fate

    def _data(self, batch: Batch) -> None:
        header = batch.header
        transactional = header.is_transactional and header.producer_id != NO_PRODUCER_ID
        if transactional and header.producer_id == self._producer_id and self.ended is None:
            self.own.append(batch)
            return
        if transactional:
            self._open.setdefault(header.producer_id, []).append(len(self._after))
        self._after.append(batch)
        self._fate.append("open" if transactional else "waits")

    @property
    def waiting(self) -> list[Batch]:
        """Return the batches that readers get once the transaction has ended; none if it has."""
        return [] if self.ended is not None else self._of("waits")

    @property
    def enough(self) -> bool:
        """Return True if later batches change nothing of the first records of each kind."""
        if self.ended is not None:
            return True
        if self.records(self.own) < self._most:
            return False
        ahead = 0
        for batch, fate in zip(self._after, self._fate, strict=True):
            if fate == "open":
                return False
            ahead += self.records([batch]) if fate == "waits" else 0
            if ahead >= self._most:
                return True
        return False

    def of_others(self, fate: str) -> int:
        """Return the records of other transactions that are aborted, or open as far as was read."""
        return self.records(self._of(fate))

    def records(self, batches: list[Batch]) -> int:
        """Count the records, without those of a first batch that are below `low`.

        Above the LSO compaction removes nothing, so each offset of a batch is a record.
        """
        return sum(
            min(
                b.header.records_count,
                b.header.last_offset - max(b.header.base_offset, self.low) + 1,
            )
            for b in batches
        )

    def _of(self, fate: str) -> list[Batch]:
        return [b for b, its in zip(self._after, self._fate, strict=True) if its == fate]
