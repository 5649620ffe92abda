"""Which offsets an audit reads, resolved once, and reading the headers of all of them at once."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoctl.kafka import fetch
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.fetch import Chunk, Range
from eoctl.kafka.read_columns import read_columns
from eoctl.operations import offsets
from recovery.app_file import named
from recovery.errors import EoctlError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.batches import HeaderScan, scan_headers, verify_crcs
from recovery.formats.columns import COMMITTED, NONE, ColumnBatch
from recovery.formats.reader import Buffer
from recovery.offset_bounds import Bound, range_problem
from recovery.selectors import Selector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Reading(offsets.Reading):
    """How logs are read. most: rows of the answer."""

    most: int = 1000


@dataclass(frozen=True, slots=True)
class Resolved:
    """Offsets [start, end) of a partition, and its facts when they were resolved."""

    topic: str
    partition: int
    start: int
    end: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


async def resolve(
    cluster: Cluster, selectors: Sequence[Selector], start: Bound, end: Bound
) -> tuple[list[Resolved], list[Missing]]:
    """The ranges of the partitions named, and what cannot be read: named in vain, out of range."""
    facts, ranges, missing = await offsets.bounded(cluster, selectors, start, end)
    found: list[Resolved] = []
    for f in facts:
        if (place := (f.topic, f.partition)) in ranges:
            one = _resolved(f, *ranges[place])
            if isinstance(one, Resolved):
                found.append(one)
            else:
                missing.append(one)
    return found, missing


def _resolved(facts: PartitionFacts, low: int, high: int) -> Resolved | Missing:
    problem = range_problem(low, high, facts)
    if problem is None and facts.log_start_offset is not None and low < facts.log_start_offset:
        text = f"{low} is below the log start {facts.log_start_offset}"
        problem = "OFFSET_OUT_OF_RANGE", text
    if problem is not None:
        return Missing("partition", *problem, None, facts.topic, facts.partition)
    return as_resolved(facts, low, high)


def as_resolved(facts: PartitionFacts, start: int, end: int) -> Resolved:
    """[start, end) of a partition whose offsets are all known."""
    assert facts.log_start_offset is not None
    assert facts.last_stable_offset is not None
    assert facts.high_watermark is not None
    return Resolved(
        facts.topic,
        facts.partition,
        start,
        end,
        facts.log_start_offset,
        facts.last_stable_offset,
        facts.high_watermark,
    )


Failed = dict[TopicPartition, Missing]
AddHeaders = Callable[[TopicPartition, Buffer, HeaderScan], None]
"""Called with a response's whole batches and their headers, each partition's in offset order."""


async def read_chunks(
    cluster: Cluster, ranges: Sequence[Resolved], add: AddHeaders, reading: Reading
) -> Failed:
    """Every response of all ranges at read_uncommitted, and which partitions could not be read.

    add is called in a thread of its own, one at a time; what it raises fails the partition.
    """

    def added(chunk: Chunk) -> None:
        scan = scan_headers(chunk.records)
        if reading.check_crc:
            verify_crcs(chunk.records, scan)
        add((chunk.topic, chunk.partition), chunk.records, scan)

    failed: Failed = {}
    ends = {r.key: r.end for r in ranges}
    positions = {r.key: r.start for r in ranges}
    total, size = sum(r.end - r.start for r in ranges), 0
    loop = asyncio.get_running_loop()
    wanted = [Range(r.topic, r.partition, r.start, r.end) for r in ranges]
    with ThreadPoolExecutor(1, "eoctl-audit") as thread:  # the connection is read meanwhile
        async for item in fetch.read(cluster, wanted, max_rate=reading.max_rate):
            key = item.topic, item.partition
            if isinstance(item, Chunk):
                if key in failed:
                    continue
                try:
                    await loop.run_in_executor(thread, added, item)
                except EoctlError as error:
                    failed[key] = _missing(key, "CORRUPT_MESSAGE", error.sentence)
                positions[key] = min(item.next_offset, ends[key])
                size += len(item.records)
                if reading.progress is not None:
                    left = sum(ends[k] - p for k, p in positions.items())
                    reading.progress(size, total - left, total)
            elif item.error is not None:
                failed.setdefault(key, _missing(key, item.error, item.detail))
    return failed


def columns(
    cluster: Cluster, r: Resolved, end: int, reading: Reading, told: Callable[[int, int], None]
) -> AsyncGenerator[ColumnBatch, None]:
    """The records of a partition from the range's start to `end`; outcomes as at its LSO.

    told: see `read_columns`; use with aclosing.
    """
    return read_columns(
        cluster,
        r.topic,
        r.partition,
        r.start,
        end,
        last_stable_offset=r.last_stable_offset,
        check_crc=reading.check_crc,
        max_rate=reading.max_rate,
        progress=told,
    )


def seen_by_readers(part: ColumnBatch) -> "NDArray[np.bool_]":
    """bool[n]: which records a read_committed reader gets."""
    outcome = part.outcome
    seen: NDArray[np.bool_] = (outcome == NONE) | (outcome == COMMITTED)
    return seen


def not_read(key: TopicPartition, error: EoctlError) -> Missing:
    """A partition that cannot be judged, and why."""
    text = error.sentence
    if named(key) not in text:
        text = f"{named(key)}: {text}"
    return _missing(key, "NOT_READ", text)


def _missing(key: TopicPartition, error: str, detail: str) -> Missing:
    return Missing("partition", error, detail, None, *key)
