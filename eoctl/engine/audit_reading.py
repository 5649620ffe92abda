"""Read what an audit judges: ranges of partitions, for the local engine and for Spark's tasks.

A partition that cannot be read completely is reported, and the others are judged.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.columns import read_columns
from eoctl.kafka.read.fetch import Chunk, Range
from eoctl.kafka.read.pump import Pump, Reading
from recovery.audit.audit_request import PartitionSequences, Resolved, SequencesFound
from recovery.audit.sequences import SequenceAudit
from recovery.audit.transaction_facts import PartitionTransactions
from recovery.errors import EoctlError
from recovery.facts import Missing, TopicPartition
from recovery.formats.batches import HeaderScan, scan_headers, verify_crcs
from recovery.formats.columns import COMMITTED, NONE, ColumnBatch
from recovery.formats.reader import Buffer
from recovery.shared.app_file import named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Failed = dict[TopicPartition, Missing]
LASTING = frozenset(
    {"CORRUPT_MESSAGE", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "TOPIC_AUTHORIZATION_FAILED"}
)
"""What another try of the same partition would meet again."""
AddHeaders = Callable[[TopicPartition, Buffer, HeaderScan], None]
"""Called with a response's whole batches and their headers, each partition's in offset order."""


class AuditOptions(Reading):
    """The options of an audit's reading. most: rows of the answer."""

    most: int = 1000


async def read_sequences(
    cluster: Cluster, ranges: Sequence[Resolved], reading: Reading, most: int
) -> SequencesFound:
    """Judge each batch of the ranges by its producer's previous one. most: findings per range."""
    audits = {
        r.topic_partition: SequenceAudit(
            r.start, from_beginning=r.start == r.log_start_offset == 0, most=most
        )
        for r in ranges
    }
    ends = {r.topic_partition: r.end for r in ranges}

    def add(key: TopicPartition, _: Buffer, scan: HeaderScan) -> None:
        audits[key].add(scan, ends[key])

    failed = await read_chunks(cluster, ranges, add, reading)
    partitions = [
        PartitionSequences(
            topic=topic,
            partition=partition,
            examined=audit.examined,
            findings=tuple(audit.findings),
        )
        for (topic, partition), audit in audits.items()
        if (topic, partition) not in failed
    ]
    return SequencesFound(failed=tuple(failed.values()), partitions=tuple(partitions))


async def read_transactions(
    cluster: Cluster, ranges: Sequence[Resolved], reading: Reading
) -> tuple[dict[TopicPartition, PartitionTransactions], tuple[Missing, ...]]:
    """Return what the readable partitions hold of transactions, and which were unreadable."""
    by_partition = {r.topic_partition: PartitionTransactions(r.start) for r in ranges}
    ends = {r.topic_partition: r.end for r in ranges}

    def add(key: TopicPartition, records: Buffer, scan: HeaderScan) -> None:
        by_partition[key].add(records, scan, ends[key])

    failed = await read_chunks(cluster, ranges, add, reading)
    whole = {key: one for key, one in by_partition.items() if key not in failed}
    return whole, tuple(failed.values())


async def read_chunks(
    cluster: Cluster, ranges: Sequence[Resolved], add: AddHeaders, reading: Reading
) -> Failed:
    """Add every response of all ranges at read_uncommitted; return the unreadable partitions.

    add: see Pump.run.
    """

    def added(chunk: Chunk) -> None:
        scan = scan_headers(chunk.records)
        if reading.check_crc:
            verify_crcs(chunk.records, scan)
        add(chunk.topic_partition, chunk.records, scan)

    pump = Pump(cluster, reading, sum(r.end - r.start for r in ranges))
    await pump.run([Range(r.topic, r.partition, r.start, r.end) for r in ranges], added)
    return pump.failed


def columns(
    cluster: Cluster,
    r: Resolved,
    end: int,
    reading: Reading,
    on_progress: Callable[[int, int], None],
    *,
    control: bool = False,
) -> AsyncGenerator[ColumnBatch, None]:
    """Yield the records of a partition from the range's start to `end`; outcomes as at its LSO.

    on_progress, control: see `read_columns`; use with aclosing.
    """
    return read_columns(
        cluster,
        Range(r.topic, r.partition, r.start, end),
        last_stable_offset=r.last_stable_offset,
        control=control,
        check_crc=reading.check_crc,
        max_rate=reading.max_rate,
        progress=on_progress,
    )


async def visible(
    cluster: Cluster, r: Resolved, reading: Reading, on_progress: Callable[[int, int], None]
) -> AsyncGenerator[ColumnBatch, None]:
    """Yield the records of a range that a read_committed reader gets; see `columns`."""
    parts = columns(cluster, r, r.end, reading, on_progress)
    async with aclosing(parts):
        async for part in parts:
            yield part.select(seen_by_readers(part))


def seen_by_readers(part: ColumnBatch) -> "NDArray[np.bool_]":
    """Return bool[n]: which records a read_committed reader gets."""
    outcome = part.outcome
    is_visible: NDArray[np.bool_] = (outcome == NONE) | (outcome == COMMITTED)
    return is_visible


def not_read(key: TopicPartition, error: EoctlError) -> Missing:
    """Return a partition that cannot be judged, and why."""
    text = error.sentence
    if named(key) not in text:
        text = f"{named(key)}: {text}"
    return _missing(key, "NOT_READ", text)


def _missing(key: TopicPartition, error: str, detail: str) -> Missing:
    return Missing("partition", error, detail, None, *key)
