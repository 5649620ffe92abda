"""Count exactly what became of every offset of a range, from batch headers.

`AbortedTransactions` decides which batches a read_committed reader skips; `ExactCount` adds up
Fetch responses until data + aborted + control + open + missing = end - start.
Source: Kafka's class CompletedFetch (KafkaConsumer); KIP-98.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recovery.formats.batches import (
    CONTROL,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    HeaderScan,
    header_at,
    scan_headers,
    verify_crcs,
)
from recovery.formats.reader import Buffer
from recovery.formats.records import ControlType, marker, records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Aborted = tuple[int, int]
"""(producer id, first offset): one aborted transaction of a Fetch response."""


class AbortedTransactions:
    """The batches of one Fetch response that belong to aborted transactions.

    A producer id joins the aborted set at its first offset and leaves it at its ABORT marker;
    epochs play no part. Create one for each response: the list covers only that response.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborted: set[int] = set()

    def is_aborted(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Return True if a read_committed reader skips this data batch; False for control batches.

        Call it for every batch of the response, in order. Raises CorruptError for an unreadable
        marker.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return False
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            self._aborted.add(self._ahead.pop()[0])
        if header.producer_id not in self._aborted:
            return False
        if header.is_control:
            end_marker = marker(buffer, header)
            if end_marker is not None and end_marker.type is ControlType.ABORT:
                self._aborted.discard(header.producer_id)
            return False
        return header.is_transactional


def aborted_batches(
    buffer: Buffer, scan: HeaderScan, aborted: Sequence[Aborted]
) -> "NDArray[np.bool_]":
    """Apply `AbortedTransactions` to a scan: bool[n], True for a batch that readers skip."""
    import numpy as np

    skipped = np.zeros(len(scan), dtype=np.bool_)
    if aborted:
        tracker = AbortedTransactions(aborted)
        # Batches of other producers neither change these ids' state nor are changed by it.
        listed = np.isin(scan.fields["producer_id"], [producer_id for producer_id, _ in aborted])
        for i in np.flatnonzero(listed).tolist():
            skipped[i] = tracker.is_aborted(buffer, header_at(buffer, int(scan.positions[i])))
    return skipped


class Counts(NamedTuple):
    """The offsets of a range, counted by what they are; the counts add up to the range.

    data: records that a read_committed reader gets. aborted: records of aborted transactions.
    control: markers. open: data records at or above the last stable offset, whatever their
    transaction. missing: offsets without a record (compacted, deleted, never used).
    """

    data: int = 0
    aborted: int = 0
    control: int = 0
    open: int = 0
    missing: int = 0


class ExactCount:
    """Counts the offsets in [start, end) from consecutive Fetch responses.

    Fetch from `next_offset` and `add` the response until `done`: below last_stable_offset with
    isolation level 1, above it with 0, whose responses have no list. last_stable_offset is fixed
    when counting begins, so that the answer describes one moment.
    """

    def __init__(self, start: int, end: int, last_stable_offset: int) -> None:
        if not 0 <= start <= end:
            raise ValueError(f"not a range of offsets: [{start}, {end})")
        self.next_offset = start
        self.end = end
        self.last_stable_offset = last_stable_offset
        self.counts = Counts()

    @property
    def done(self) -> bool:
        return self.next_offset >= self.end

    def skip_to(self, log_start: int) -> None:
        """Count as missing what is below `log_start`, since none of it is left in the log."""
        until = min(log_start, self.end)
        if until > self.next_offset:
            self._add(Counts(missing=until - self.next_offset), until)

    def add(
        self,
        fetch_offset: int,
        buffer: Buffer,
        aborted: Sequence[Aborted] | None,
        *,
        check_crc: bool = True,
    ) -> None:
        """Count the complete batches of one response; `next_offset` moves past the last of them.

        fetch_offset: the requested one, not above `next_offset`, or else offsets in between would
        count as missing. aborted: the response's list; None (isolation level 0) only if no
        transactional record is below the last stable offset. The first batch may begin before the
        requested offset, and the last may be cut. Raises CorruptError and OldMessageFormatError;
        then nothing of the response is counted.
        """
        import numpy as np

        if fetch_offset > self.next_offset:
            raise ValueError(f"fetched from {fetch_offset}, but {self.next_offset} comes next")
        scan = scan_headers(buffer)
        if not len(scan) or self.done:
            return
        if check_crc:
            verify_crcs(buffer, scan)
        base, behind = scan.column("base_offset"), scan.last_offset + 1
        count = scan.column("records_count")

        # The part of each batch in the range that was not counted before, below and above the LSO.
        low = np.clip(base, self.next_offset, self.end)
        high = np.clip(behind, self.next_offset, self.end)
        stable = np.clip(self.last_stable_offset, low, high)
        below, above = stable - low, high - stable
        # Removed records make a batch sparse. Its header's count suffices if the batch is
        # completely on one side; otherwise only the records show on which side they are.
        sparse = count != behind - base
        whole = sparse & (high - low == behind - base) & ((below == 0) | (above == 0))
        below[whole] = np.where(below[whole] > 0, count[whole], 0)
        above[whole] = count[whole] - below[whole]
        for i in np.flatnonzero(sparse & ~whole & (high > low)).tolist():
            header = header_at(buffer, int(scan.positions[i]))
            offsets = [record.offset for record in records(buffer, header)]
            below[i] = sum(low[i] <= offset < stable[i] for offset in offsets)
            above[i] = sum(stable[i] <= offset < high[i] for offset in offsets)

        control = scan.has(CONTROL)
        skipped = aborted_batches(buffer, scan, aborted or ())
        if aborted is None and (below * (scan.has(TRANSACTIONAL) & ~control)).any():
            raise ValueError("transactional records below the last stable offset, but no list")
        until = min(int(behind[-1]), self.end)
        if until <= self.next_offset:
            return
        counts = Counts(
            data=int(below[~control & ~skipped].sum()),
            aborted=int(below[skipped].sum()),
            control=int((below + above)[control].sum()),
            open=int(above[~control].sum()),
        )
        self._add(counts._replace(missing=until - self.next_offset - sum(counts)), until)

    def _add(self, counts: Counts, until: int) -> None:
        self.counts = Counts(*map(sum, zip(self.counts, counts, strict=True)))
        self.next_offset = until
