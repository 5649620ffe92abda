"""A read_committed reader's view of a chunk: batches, and the records inside them."""

from collections.abc import Iterator

from eoctl.kafka.read.chunks import Chunk
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.counting import AbortedTransactions
from recovery.formats.records import ControlType, Record, marker, records


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
