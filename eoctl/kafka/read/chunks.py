"""What a reader of record batches takes and gives: ranges, chunks, what is visible in them, and how
each range ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from recovery.facts import HasPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.counting import AbortedTransactions
from recovery.formats.records import ControlType, Record, marker, records
from recovery.values import Value

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ENOUGH = "ENOUGH"  # as many chunks as requested
ABOVE = "ABOVE_END"  # the range extends beyond what this isolation level shows


class Range(HasPartition, Value):
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class Chunk(HasPartition, Value):
    """One partition's part of a response.

    records: complete batches and perhaps a cut one at the end; the first may begin before
    `fetch_offset`, the last may extend beyond the range. next_offset: after the last complete
    batch. aborted: (producer id, first offset) as listed with this response; None at
    read_uncommitted. broker: the sender. by_follower: the broker did not lead the partition; its
    high watermark and last stable offset lag the leader's.
    """

    topic: str
    partition: int
    fetch_offset: int
    next_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    broker: int = -1
    by_follower: bool = False


@dataclass(slots=True)
class Givers:
    """The brokers that a range was read from: what they gave, or that nothing more exists.

    by_followers: bytes that no leader gave.
    """

    brokers: set[int] = field(default_factory=set)
    by_followers: int = 0

    def add(self, item: "Chunk | Ended") -> None:
        if item.broker >= 0:
            self.brokers.add(item.broker)
        if isinstance(item, Chunk) and item.by_follower:
            self.by_followers += len(item.records)


class Ended(HasPartition, Value):
    """The end of a range's answers: read up to `position`.

    error None: the range was read to its end; an offset that no chunk has is without a record.
    ABOVE_END: it extends beyond the LSO (read_committed) or the high watermark. LOG_TRUNCATED: the
    new leader does not have what was read. Otherwise Kafka's error name or why a broker was silent.
    broker: the one with no more records up to its limit, all being compacted; -1: none.
    """

    topic: str
    partition: int
    position: int
    error: str | None = None
    detail: str = ""
    broker: int = -1


def data_batches(chunk: Chunk) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield the data batches of a chunk, each with whether it is visible.

    At read_uncommitted, which lists no aborted transactions, all are visible. Raises CorruptError.
    """
    aborted = AbortedTransactions(chunk.aborted or ())
    for header in batch_headers(chunk.records):
        hidden = aborted.is_aborted(chunk.records, header)
        if not header.is_control:
            yield header, not hidden


def commit_markers(chunk: Chunk) -> Iterator[int]:
    """Yield the offsets of a chunk's COMMIT markers. Raises CorruptError."""
    for header in batch_headers(chunk.records):
        if header.is_control and header.is_transactional:
            end_marker = marker(chunk.records, header)
            if end_marker is not None and end_marker.type is ControlType.COMMIT:
                yield header.base_offset


def visible_records(chunk: Chunk, start: int, end: int) -> Iterator[Record]:
    """Yield the visible records of a chunk with offsets in [start, end). Raises CorruptError."""
    for header, is_visible in data_batches(chunk):
        if is_visible and header.last_offset >= start and header.base_offset < end:
            for record in records(chunk.records, header):
                if start <= record.offset < end:
                    yield record
