"""Count the records that a group has still to read, and find the oldest, within a few seconds."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from itertools import count as numbers
from typing import Any, TypeVar

from eoctl.host.extras import PACKAGES, installed
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import visible_records
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.read.fetch import ENOUGH, READ_COMMITTED, Ended, Range, read_all
from recovery.diagnose.group_verdict import Unread
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.reader import CorruptError
from recovery.values import Value

SECONDS = 6.0  # for all partitions; after that the numbers are minimums
FIRST_OFFSETS = 200_000  # of each partition; then twice as many, and so on
FIRST_BYTES = 64 << 10
FIRST_CHUNKS = 4  # in which the oldest record is looked for
T = TypeVar("T")


class _Gap(Value):
    """The offsets [start, end) of a partition, of which none was counted yet."""

    facts: PartitionFacts
    start: int
    end: int

    def cuts(self, size: int) -> Cuts:
        """Return the first `size` offsets as a range to count."""
        start = self.facts.log_start_offset or 0
        end = min(self.start + size, self.end)
        return Cuts(self.facts.topic, self.facts.partition, (self.start, end), start, self.end)


async def unread(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    partitions: Sequence[PartitionFacts],
    seconds: float = SECONDS,
) -> dict[TopicPartition, Unread]:
    """Return what is visible from each offset up to the LSO.

    A partition whose log was not read is left out.
    """
    until = time.monotonic() + seconds
    gaps = {
        p.topic_partition: _Gap(p, offsets[p.topic_partition], p.last_stable_offset)
        for p in partitions
        if p.error is None and p.topic_partition in offsets and p.last_stable_offset is not None
    }
    found = {key: Unread(0, False, None) for key, g in gaps.items() if g.start >= g.end}
    left = {key: g for key, g in gaps.items() if key not in found}
    oldest = await _before(until, _oldest(cluster, left)) or {}
    counted, whole = await _counted(cluster, left, until)
    for key in left:
        least = 1 if oldest.get(key) is not None else 0
        if key in counted or least:
            number = max(counted.get(key, 0), least)
            found[key] = Unread(number, key not in whole, oldest.get(key))
    return found


async def _before(until: float, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result, or None if it is late."""
    try:
        return await asyncio.wait_for(work, max(0.0, until - time.monotonic()))
    except TimeoutError:
        return None


async def _oldest(
    cluster: Cluster, gaps: Mapping[TopicPartition, _Gap]
) -> dict[TopicPartition, int | None]:
    """Return the timestamp of the first visible record; none where the first bytes hold none."""
    ranges = [
        Range(*key, max(g.start, g.facts.log_start_offset or 0), g.end) for key, g in gaps.items()
    ]
    found, _ = await first_timestamps(cluster, [r for r in ranges if r.start < r.end])
    return found


async def first_timestamps(
    cluster: Cluster, ranges: Sequence[Range]
) -> tuple[dict[TopicPartition, int | None], list[Missing]]:
    """Return the timestamp of the first record of each range that a read_committed reader gets, ms,
    and what could not be read.

    None: the range was read to its end and has no such record, only markers, aborted records and
    holes. A range whose first bytes show neither is left out. ranges: one per partition, within
    log start and LSO.
    """
    chunks, ended = await read_all(
        cluster,
        ranges,
        isolation=READ_COMMITTED,
        partition_bytes=FIRST_BYTES,
        most_chunks=FIRST_CHUNKS,
    )
    found: dict[TopicPartition, int | None] = {}
    missing: list[Missing] = []
    for r in ranges:
        key = r.topic_partition
        try:
            seen = (m.timestamp for c in chunks[key] for m in visible_records(c, r.start, r.end))
            first = next(seen, None)
        except CorruptError as error:
            missing.append(Missing("partition", "CORRUPT_MESSAGE", error.sentence, None, *key))
            continue
        if first is not None and first >= 0:  # -1: a record of before Kafka 0.10 has none
            found[key] = first
        elif first is None:
            end = ended.get(key, Ended(*key, r.start, "TIMED_OUT", "not read in time"))
            if end.error is None:
                found[key] = None
            elif end.error != ENOUGH:
                missing.append(Missing("partition", end.error, end.detail or end.error, None, *key))
    return found, missing


async def _counted(
    cluster: Cluster, gaps: Mapping[TopicPartition, _Gap], until: float
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Return the records counted on each partition, and the partitions that were counted to the
    end."""
    records: dict[TopicPartition, int] = {}
    whole: set[TopicPartition] = set()
    left = dict(gaps)
    if not all(map(installed, PACKAGES["data"])):
        return records, whole
    for attempt in numbers():
        cuts = {key: g.cuts(FIRST_OFFSETS << attempt) for key, g in left.items()}
        if not cuts:
            break
        answer = await _before(until, count(cluster, cuts.values()))
        if answer is None:
            break
        for key, [piece] in answer[0].items():
            records[key] = records.get(key, 0) + piece.data
        ends = {key: cuts[key].offsets[-1] for key in answer[0]}
        whole |= {key for key, end in ends.items() if end == left[key].end}
        left = {
            key: _Gap(left[key].facts, end, left[key].end)
            for key, end in ends.items()
            if key not in whole
        }
    return records, whole
