"""Answer questions that need records: the k-th visible one, times, the tip of a changelog.

Each question is asked of many partitions at once and reads no more of a log than it must. What
could not be read is reported with the answers, and with the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import fetch
from eoctl.kafka.read.chunks import Chunk, Ended, Range, data_batches, visible_records
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED
from recovery.facts import TopicPartition
from recovery.formats.records import Record, records
from recovery.restart.observed import ChangelogTip, MergeTail, Question, TimeAt, Walk

LEAST_WALK = 1000  # offsets read at a time
LEAST_TAIL = 64
TIME_BYTES = 16 << 10
TIME_CHUNKS = 4

W = TypeVar("W", bound="Question[Any]")
A = TypeVar("A")


@dataclass(slots=True)
class SearchAnswers(Generic[W, A]):
    """answers, and why others could not be given."""

    answers: dict[W, A] = field(default_factory=dict)
    unseen: dict[W, str] = field(default_factory=dict)


def in_turn(wants: Iterable[W]) -> list[dict[TopicPartition, W]]:
    """Return the questions in rounds that ask each partition once."""
    rounds: list[dict[TopicPartition, W]] = []
    for want in wants:
        partition = want.topic_partition
        for one in rounds:
            if partition not in one:
                one[partition] = want
                break
        else:
            rounds.append({partition: want})
    return rounds


def _why(ended: Ended) -> str:
    return f"it could not be read at {ended.position}: {ended.detail or ended.error}"


async def walk(
    cluster: Cluster, wants: Sequence[Walk], tops: Mapping[TopicPartition, tuple[int, int]]
) -> SearchAnswers[Walk, int | None]:
    """Return the offset after the k-th visible record. tops: last stable offset, high watermark."""
    answers: SearchAnswers[Walk, int | None] = SearchAnswers()
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        mine = [w for w in wants if w.uncommitted == (isolation == READ_UNCOMMITTED)]
        for one in in_turn(mine):
            await _walk(
                cluster,
                one,
                {p: tops[p][isolation == READ_UNCOMMITTED] for p in one},
                isolation,
                answers,
            )
    return answers


@dataclass(slots=True)
class _Step:
    """One step of a walk: `left` records remain to be passed, the next read is `window`."""

    position: int
    left: int
    window: int


async def _walk(
    cluster: Cluster,
    wants: Mapping[TopicPartition, Walk],
    tops: Mapping[TopicPartition, int],
    isolation: int,
    answers: SearchAnswers[Walk, int | None],
) -> None:
    steps = {p: _Step(w.start, w.records, max(w.records, LEAST_WALK)) for p, w in wants.items()}
    while True:
        ranges = []
        for partition, step in list(steps.items()):
            if step.position >= tops[partition]:
                answers.answers[wants[partition]] = None
                del steps[partition]
            else:
                # k records need at least k offsets: little is read in vain
                end = min(tops[partition], step.position + max(step.left, step.window))
                ranges.append(Range(*partition, step.position, end))
                step.window *= 2
        if not steps:
            return
        async for item in fetch.read(cluster, ranges, isolation=isolation):
            partition = item.topic_partition
            if partition not in steps:
                continue
            step, want = steps[partition], wants[partition]
            if isinstance(item, Chunk):
                offset = _pass(item, step, tops[partition])
                if offset is not None:
                    answers.answers[want] = offset
                    del steps[partition]
            elif item.error is not None:
                answers.unseen[want] = _why(item)
                del steps[partition]
            else:
                # a range with nothing left has no chunk
                end = next(r.end for r in ranges if r.topic_partition == partition)
                step.position = max(step.position, end)


def _pass(chunk: Chunk, step: _Step, top: int) -> int | None:
    """Pass a chunk's records; return the offset after the last one wanted, None before it."""
    for header, visible in data_batches(chunk):
        if not visible or header.last_offset < step.position or header.base_offset >= top:
            continue
        whole = header.base_offset >= step.position and header.last_offset < top
        if whole and header.records_count < step.left:
            step.left -= header.records_count
            continue
        for record in records(chunk.records, header):
            if step.position <= record.offset < top:
                step.left -= 1
                if not step.left:
                    return record.offset + 1
    step.position = max(step.position, chunk.next_offset)
    return None


async def times(
    cluster: Cluster, wants: Sequence[TimeAt], ends: Mapping[TopicPartition, int]
) -> SearchAnswers[TimeAt, int | None]:
    """Return the timestamp of the first data record from an offset on. ends: high watermarks."""
    answers: SearchAnswers[TimeAt, int | None] = SearchAnswers()
    for one in in_turn(wants):
        ranges = [Range(*p, w.offset, ends[p]) for p, w in one.items() if w.offset < ends[p]]
        chunks, ended = await fetch.read_all(
            cluster, ranges, partition_bytes=TIME_BYTES, most_chunks=TIME_CHUNKS
        )
        for partition, want in one.items():
            at_end = partition not in ended
            if not at_end and ended[partition].error not in (None, fetch.ENOUGH, fetch.ABOVE):
                answers.unseen[want] = _why(ended[partition])
                continue
            data = (
                r
                for c in chunks.get(partition, ())
                for r in visible_records(c, want.offset, ends[partition])
            )
            first = next(data, None)
            answers.answers[want] = None if first is None else first.timestamp
    return answers


async def last_records(
    cluster: Cluster, wants: Sequence[ChangelogTip], starts: Mapping[TopicPartition, int]
) -> SearchAnswers[ChangelogTip, Record | None]:
    """Return the last visible record below an end, None without one. starts: log starts."""
    answers: SearchAnswers[ChangelogTip, Record | None] = SearchAnswers()
    for one in in_turn(wants):
        size, left = LEAST_TAIL, dict(one)
        while left:
            ranges = [Range(*p, max(starts[p], w.end - size), w.end) for p, w in left.items()]
            chunks, ended = await fetch.read_all(cluster, ranges, isolation=READ_COMMITTED)
            for r in ranges:
                want = left[r.topic_partition]
                if r.topic_partition in ended and ended[r.topic_partition].error is not None:
                    answers.unseen[left.pop(r.topic_partition)] = _why(ended[r.topic_partition])
                    continue
                last: Record | None = None
                for chunk in chunks[r.topic_partition]:
                    for record in visible_records(chunk, r.start, r.end):
                        last = record
                if last is not None or r.start <= starts[r.topic_partition]:
                    answers.answers[want] = last
                    del left[r.topic_partition]
            size *= 8
    return answers


async def tails(
    cluster: Cluster, wants: Sequence[MergeTail], each: Callable[[MergeTail, Record], None]
) -> SearchAnswers[MergeTail, None]:
    """Call `each` with every visible record of every stretch, in offset order."""
    answers: SearchAnswers[MergeTail, None] = SearchAnswers()
    for one in in_turn(wants):
        ranges = [Range(*p, w.start, w.end) for p, w in one.items()]
        async for item in fetch.read(cluster, ranges, isolation=READ_COMMITTED):
            want = one[item.topic_partition]
            if isinstance(item, Chunk):
                for record in visible_records(item, want.start, want.end):
                    each(want, record)
            elif item.error is None:
                answers.answers[want] = None
            else:
                answers.unseen[want] = _why(item)
    return answers
