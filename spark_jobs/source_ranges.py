"""Decide which offsets a batch of the Data Source reads, and how tasks share them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import cut_offsets
from eoctl.stores.storage_address import read_text
from recovery.errors import IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.facts import HasPartition, PartitionFacts, TopicPartition
from recovery.shared import cut as cut_files
from recovery.shared.cut import Cut
from recovery.shared.cut import ranges as parts
from recovery.shared.offset_bounds import MAX_OFFSET, range_problem
from recovery.shared.stream_offset import Position
from recovery.values import replace
from spark_jobs import source_options
from spark_jobs.source_options import RANGE_OFFSETS, Edge, Wanted, flag, number

LOAD_SECONDS = 60.0
PATIENCE_SECONDS = 20.0  # a dead leader is replaced after 9 to 12 s
PAUSE_SECONDS = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class Span(HasPartition, InputPartition):
    """One task's range: offsets [start, end) of a partition; transactional records at or above
    last_stable_offset are open."""

    topic: str
    partition: int
    start: int
    end: int
    last_stable_offset: int
    topic_id: str | None = None
    """None: of a broker without ids."""
    leader_epoch: int | None = None
    """Of the leader that gave `end`; None: of a broker without leader epochs."""
    record_epoch: int | None = None
    """Of the record before `log_end`; None: not known."""
    log_end: int | None = None
    """The end of the range that this one is a part of."""


async def patient(ask: Callable[[], Awaitable[T]]) -> T:
    """Return what the cluster answers; ask again while a partition may be between two leaders.

    Raises what the last call of `ask` raises.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await ask()
        except (IncompleteError, UnreachableError):
            if time.monotonic() > until:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


def spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    """Return the ranges that options mean, in offsets, as the cluster is now.

    Raises UsageError, IncompleteError for what cannot be seen, RefusedError for a cut of topics
    that were recreated since under the same names.
    """
    return shared_out([s for s in asyncio.run(_spans(access, given)) if s.start < s.end], given)


def shared_out(whole: list[Span], given: Mapping[str, str]) -> list[Span]:
    """Return the tasks' spans, made from spans of complete partitions. Raises UsageError."""
    key = "range_offsets" if "range_offsets" in given else "maxrecordsperpartition"
    most, least = number(given, key) or RANGE_OFFSETS, number(given, "minpartitions") or 1
    if len(whole) < least:
        most = min(most, max(1, sum(s.end - s.start for s in whole) // least))
    if flag(given, "headers_only"):  # else a batch that crosses an edge would be in two parts
        most = MAX_OFFSET
    return [
        replace(s, start=start, end=end)
        for s in whole
        for start, end in parts(s.start, s.end, most)
    ]


async def _spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    cut = wanted = None
    if "cut" in given:
        if "failondataloss" in given:
            raise UsageError(
                "a cut is read completely or not at all", where="option failOnDataLoss"
            )
        cut = cut_files.load(read_text(given["cut"]), given["cut"])
    else:
        wanted = source_options.wanted(given)
    async with Cluster(access.settings(), Deadline(LOAD_SECONDS), read_only=True) as cluster:
        if cut is not None:
            return await _of_cut(cluster, cut)
        assert wanted is not None
        facts = await partitions(cluster, wanted)
        starts = await _bounds(cluster, facts, wanted.start)
        ends = await _bounds(cluster, facts, wanted.end)
        return [_span(f, starts[i], ends[i], wanted) for i, f in enumerate(facts)]


async def first_positions(
    cluster: Cluster, wanted: Wanted
) -> tuple[list[PartitionFacts], dict[TopicPartition, Position]]:
    """Return where a new stream begins in each partition, and the partitions.

    Raises as `spans` does. The end of `wanted` is ignored: a stream has none.
    """
    facts = await partitions(cluster, wanted)
    starts = await _bounds(cluster, facts, wanted.start)
    endless = replace(wanted, stable=False)
    positions = {}
    for f, start in zip(facts, starts, strict=True):
        assert f.high_watermark is not None
        begin = _span(f, start, f.high_watermark, endless).start
        positions[f.topic_partition] = Position(begin, f.leader_epoch)
    return facts, positions


async def partitions(
    cluster: Cluster, wanted: Wanted, *, lossy: bool = False
) -> list[PartitionFacts]:
    """Return the partitions that are read, as they are now.

    lossy: leave out those that do not exist. Raises IncompleteError for what cannot be seen,
    UsageError for an assigned partition that does not exist.
    """
    topics = list(wanted.topics) or sorted({topic for topic, _ in wanted.assigned})
    if (pattern := wanted.pattern) is not None:
        metadata = await cluster.metadata(None)
        topics = sorted(
            t.name for t in metadata.topics.values() if not t.internal and pattern.search(t.name)
        )
    facts = await (existing if lossy else cut_offsets.offsets)(cluster, topics) if topics else []
    if not wanted.assigned:
        return facts
    absent = wanted.assigned - {f.topic_partition for f in facts}
    for topic, partition in () if lossy else sorted(absent):
        raise UsageError(f"no partition {topic}-{partition}", where="option assign")
    return [f for f in facts if f.topic_partition in wanted.assigned]


async def existing(cluster: Cluster, topics: Sequence[str]) -> list[PartitionFacts]:
    """Return the existing partitions of those topics. Raises IncompleteError for a gap."""
    metadata = await cluster.metadata(topics)
    there = [t for t in topics if metadata.topics[t].error != "UNKNOWN_TOPIC_OR_PARTITION"]
    return await cut_offsets.offsets(cluster, there) if there else []


async def _bounds(cluster: Cluster, facts: list[PartitionFacts], edge: Edge) -> list[int]:
    """Return the start or the end of every partition's range. Raises UsageError if one has none."""
    edge.check({f.topic_partition for f in facts})
    at: dict[TopicPartition, int | None] = {}
    bounds = {f.topic_partition: edge.bound(f.topic_partition) for f in facts}
    instants = {bound.value for bound in bounds.values() if bound.kind == "time"}
    if instants:
        metadata = await cluster.metadata(sorted({f.topic for f in facts}))
        every = [p for t in metadata.topics.values() for p in t.partitions]
        for instant in sorted(instants):
            mine = [
                p
                for p in every
                if (bound := bounds.get(p.topic_partition)) is not None
                and (bound.kind, bound.value) == ("time", instant)
            ]
            at |= await cut_offsets.offsets_at(cluster, mine, instant)
    return [edge.resolve(f, at.get(f.topic_partition)) for f in facts]


def _span(facts: PartitionFacts, start: int, end: int, wanted: Wanted) -> Span:
    assert facts.last_stable_offset is not None
    assert facts.log_start_offset is not None
    where = f"{facts.topic}-{facts.partition}"
    if (problem := range_problem(start, end, facts)) is not None:
        raise IncompleteError(problem[1], where=where)
    if wanted.stable and end > facts.last_stable_offset:
        raise IncompleteError(
            f"{end} is above the last stable offset {facts.last_stable_offset}, where "
            "read_committed ends while a transaction is open",
            where=where,
            remedy="write latest (-1 in JSON), or wait until the transaction is over",
        )
    if start < min(facts.log_start_offset, end):
        if wanted.fail_on_data_loss:
            raise IncompleteError(
                f"{start} is below the log start {facts.log_start_offset}: what was between them "
                "is deleted",
                where=where,
                remedy="start at earliest (-2 in JSON); failOnDataLoss=false reads what is left",
            )
        start = min(facts.log_start_offset, end)
    stable, log = facts.last_stable_offset, (facts.topic_id, facts.leader_epoch)
    return Span(facts.topic, facts.partition, start, end, stable, *log)


async def _of_cut(cluster: Cluster, cut: Cut) -> list[Span]:
    metadata = await cluster.metadata([t.topic for t in cut.topics])
    for t in cut.topics:
        if metadata.topics[t.topic].topic_id != t.topic_id:
            raise RefusedError(
                "the cut is of another topic of that name, or of another cluster", where=t.topic
            )
    return [
        Span(
            *(t.topic, p.partition, p.start, p.end, p.last_stable_offset, t.topic_id),
            *(p.leader_epoch, p.record_epoch, p.end),
        )
        for t in cut.topics
        for p in t.partitions
    ]
