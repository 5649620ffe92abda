"""Read a cut's parts from the brokers: offsets, instants, and what follows an end."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_headers
from recovery.errors import IncompleteError, topic_problem
from recovery.facts import PartitionFacts, TopicPartition, known
from recovery.formats.batches import CONTROL, TRANSACTIONAL
from recovery.shared.cut import Behind, Cut
from recovery.times import format_duration
from recovery.values import replace

PAUSE_SECONDS = 0.5
LEADER_SECONDS = 20.0  # a dead leader is replaced after 9 to 12 s


async def offsets(cluster: Cluster, topics: Sequence[str]) -> list[PartitionFacts]:
    """Return log start, LSO and high watermark of every partition. Raises IncompleteError."""
    metadata = await cluster.metadata(list(topics))
    for name in topics:
        if (error := metadata.topics[name].error) is not None:
            raise IncompleteError(f"{topic_problem(error)} ({error})", where=name)
    partitions = [p for name in topics for p in metadata.topics[name].partitions]
    facts, missing = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    if missing:
        m = missing[0]
        where = m.topic if m.partition is None else f"{m.topic}-{m.partition}"
        raise IncompleteError(f"{m.detail} ({m.error})", where=where or "cluster")
    return facts


async def facts(cluster: Cluster, cut: Cut) -> list[PartitionFacts]:
    """Return a cut's partitions as they are now; deleted ones are not in the result.

    Waits for a new leader if the old one has died. Raises IncompleteError if none gives offsets:
    that says nothing about the log.
    """
    by_partition = cut.by_partition()
    bound = time.monotonic() + LEADER_SECONDS
    while True:
        metadata = await cluster.metadata([t.topic for t in cut.topics])
        partitions = [
            p
            for t in metadata.topics.values()
            for p in t.partitions
            if p.topic_partition in by_partition
        ]
        ends, _ = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
        unknown = next((f for f in ends if f.log_start_offset is None), None)
        if unknown is None:
            return ends
        if unknown.error == "TOPIC_AUTHORIZATION_FAILED" or time.monotonic() > bound:
            raise IncompleteError(
                f"its log start cannot be read ({unknown.error})",
                where=f"{unknown.topic}-{unknown.partition}",
                remedy="run the same command again when its leader answers",
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def settled(cluster: Cluster, topics: Sequence[str], seconds: float) -> list[PartitionFacts]:
    """Return offsets at a moment when no transaction was open in any partition: its LSO is the high
    watermark, with the markers below it. If there is no such moment, those whose LSO has passed the
    high watermark seen first. Raises IncompleteError after `seconds`."""
    bound = time.monotonic() + seconds
    first: dict[TopicPartition, int] = {}
    done: dict[TopicPartition, PartitionFacts] = {}
    while True:
        for f in await offsets(cluster, topics):
            partition = f.topic_partition
            assert f.high_watermark is not None
            assert f.last_stable_offset is not None
            first.setdefault(partition, f.high_watermark)
            if partition not in done and f.last_stable_offset >= f.high_watermark:
                done[partition] = f
            elif partition not in done and time.monotonic() > bound:
                raise IncompleteError(
                    f"a transaction is still open below the high watermark {f.high_watermark}, "
                    f"after {format_duration(seconds)}",
                    where=f"{f.topic}-{f.partition}",
                    remedy="wait longer, or cut at lso",
                )
        if len(done) == len(first):
            return [done[partition] for partition in first]
        await asyncio.sleep(PAUSE_SECONDS)


async def behind(
    cluster: Cluster, cut: Cut, max_rate: float | None
) -> dict[TopicPartition, dict[int, Behind]]:
    """Return what each producer wrote first after each partition's end of the cut.

    That is its first data and first marker, up to the high watermark that the cut saw.
    """
    by_partition: dict[TopicPartition, dict[int, Behind]] = {}
    for partition, p in cut.by_partition().items():
        if p.high_watermark <= p.end:
            continue
        first: dict[int, Behind] = {}
        stream = read_headers(
            cluster, Range(*partition, p.end, p.high_watermark), check_crc=False, max_rate=max_rate
        )
        async with aclosing(stream):
            async for batches in stream:
                scan = batches.scan
                rows = zip(
                    scan.column("base_offset").tolist(),
                    scan.column("producer_id").tolist(),
                    scan.column("producer_epoch").tolist(),
                    scan.has(CONTROL).tolist(),
                    scan.has(TRANSACTIONAL).tolist(),
                    strict=True,
                )
                for offset, producer, epoch, control, transactional in rows:
                    if not transactional or (offset < p.end and control):
                        continue
                    known = first.get(producer, Behind(None, None))
                    at = max(offset, p.end)
                    if control:
                        known = replace(
                            known, marker=known.marker or (offset, epoch), open_from=None
                        )
                    else:
                        begun = at if known.open_from is None else known.open_from
                        known = replace(known, data=known.data or (at, epoch), open_from=begun)
                    first[producer] = known
        by_partition[partition] = first
    return by_partition


async def offsets_at(
    cluster: Cluster, partitions: Iterable[PartitionMetadata], instant: int
) -> dict[TopicPartition, int | None]:
    """Return the offset of the first record not older than an instant (ListOffsets), or None."""
    from eoctl.kafka.connection.cluster import by_leader

    led, orphaned = by_leader(partitions)
    if orphaned:
        p = orphaned[0]
        raise IncompleteError("nobody leads it", where=f"{p.topic}-{p.partition}")
    offsets: dict[TopicPartition, int | None] = {}
    for broker, mine in led.items():
        question = collect.list_offsets(mine, instant, collect.READ_UNCOMMITTED)
        answer = await cluster.ask(broker, question, most=9)
        for t in answer.topics:
            for row in t.partitions:
                if row.error_code:
                    raise IncompleteError(
                        "the leader did not find the offset of an instant",
                        where=f"{t.name}-{row.partition_index}",
                    )
                offsets[TopicPartition(t.name, row.partition_index)] = known(row.offset)
    return offsets
