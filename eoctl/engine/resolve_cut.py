"""Resolve a cut (`lso`, `hw`, an instant or a cut file) into offsets for all changelogs."""

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import cut_offsets, positions
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.stores.storage_address import is_address, read_text
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared import cut as model
from recovery.shared.cut import Cut, CutPartition, CutTopic
from recovery.shared.offset_bounds import Bound, parse_bound
from recovery.times import instant, rfc3339

At = Cut | Bound


def parse_at(text: str) -> At:
    """Parse --at. Raises UsageError."""
    if text.endswith(".json") or is_address(text) or Path(text).is_file():
        return model.load(read_text(text), text)
    bound = parse_bound(text, now_ms(), where="--at")
    if bound.kind in ("offset", "earliest"):
        raise UsageError(
            "an offset is not one cut for all partitions",
            where="--at",
            remedy="lso, hw, an instant like '2h ago', or a cut file",
        )
    return bound


async def resolve(cluster: Cluster, topics: Sequence[str], at: At, wait_seconds: float) -> Cut:
    """Return the cut in offsets. Raises IncompleteError if it cannot be read (yet), RefusedError
    for a cut file of other logs."""
    if isinstance(at, Cut):
        return await _from_file(cluster, topics, at)
    if at.kind == "hw":
        facts = await cut_offsets.settled(cluster, topics, wait_seconds)
        ends = {_partition_of(f): _not_none(f.high_watermark) for f in facts}
    elif at.kind == "lso":
        facts = await cut_offsets.offsets(cluster, topics)
        ends = {_partition_of(f): _not_none(f.last_stable_offset) for f in facts}
    else:
        facts, ends = await _at_instant(cluster, topics, at.value)
    # partitions were asked at different moments: what one end counts may have been written after
    # another end was read, but below these high watermarks
    high_watermarks = {
        _partition_of(f): _not_none(f.high_watermark)
        for f in await cut_offsets.offsets(cluster, topics)
    }
    epochs = await positions.record_epochs(cluster, ends)
    topics_of_cut = []
    for name in topics:
        mine = [f for f in facts if f.topic == name]
        topics_of_cut.append(
            CutTopic(
                topic=name,
                topic_id=mine[0].topic_id,
                partitions=tuple(
                    [
                        (
                            await _partition(
                                cluster,
                                f,
                                ends[_partition_of(f)],
                                high_watermarks[_partition_of(f)],
                                at,
                            )
                        ).model_copy(update={"record_epoch": epochs[_partition_of(f)]})
                        for f in mine
                    ]
                ),
            )
        )
    return Cut(
        cluster_id=cluster.cluster_id,
        created_at=rfc3339(now_ms()) or "",
        at=at.kind if at.kind != "time" else rfc3339(at.value) or "",
        instant=at.value if at.kind == "time" else None,
        topics=tuple(topics_of_cut),
    )


def _partition_of(facts: PartitionFacts) -> TopicPartition:
    return facts.topic_partition


def _not_none(offset: int | None) -> int:
    assert offset is not None
    return offset


async def _at_instant(
    cluster: Cluster, topics: Sequence[str], instant: int
) -> tuple[list[PartitionFacts], dict[TopicPartition, int]]:
    metadata = await cluster.metadata(list(topics))
    facts = await cut_offsets.offsets(cluster, topics)
    partitions = [p for name in topics for p in metadata.topics[name].partitions]
    at = await cut_offsets.offsets_at(cluster, partitions, instant)
    ends = {}
    for f in facts:
        first = at[_partition_of(f)]
        end = _not_none(f.high_watermark) if first is None else first
        if end > _not_none(f.last_stable_offset):
            raise IncompleteError(
                f"a transaction is open below that instant, from {f.last_stable_offset} on",
                where=f"{f.topic}-{f.partition}",
                remedy="cut at lso, or when it has ended",
            )
        ends[_partition_of(f)] = max(end, _not_none(f.log_start_offset))
    return facts, ends


async def _partition(
    cluster: Cluster, f: PartitionFacts, end: int, high: int, at: Bound
) -> CutPartition:
    start = _not_none(f.log_start_offset)
    before = after = None
    if at.kind == "time":
        low, top = max(start, end - 1), min(end + 1, high)
        stream = read_columns(cluster, Range(f.topic, f.partition, low, top), control=True)
        async with aclosing(stream):
            async for records in stream:
                for offset, time in zip(
                    records.offset.tolist(), records.timestamp.tolist(), strict=True
                ):
                    before, after = (time, after) if offset < end else (before, time)
    return CutPartition(
        partition=f.partition,
        start=min(start, end),
        end=end,
        last_stable_offset=_not_none(f.last_stable_offset),
        high_watermark=high,
        leader_epoch=f.leader_epoch,
        timestamp_before=before,
        timestamp_after=after,
    )


async def _from_file(cluster: Cluster, topics: Sequence[str], cut: Cut) -> Cut:
    if cut.cluster_id != cluster.cluster_id:
        raise RefusedError(
            f"the cut is of cluster {cut.cluster_id}, this is {cluster.cluster_id}", where="--at"
        )
    instant(cut.created_at, now_ms(), where="--at")  # needed once everything has been read
    known = {t.topic: t for t in cut.topics}
    for name in topics:
        if name not in known:
            raise UsageError(f"the cut has no {name}", where="--at")
    chosen = cut.model_copy(
        update={
            "topics": tuple(known[name] for name in topics),
            "transactions": (),
            "split": (),
            "open": (),
            "consistent": None,
        }
    )
    now = await cut_offsets.facts(cluster, chosen)
    changes = model.differences(
        chosen, [(_partition_of(f), f.topic_id, f.log_start_offset, f.leader_epoch) for f in now]
    )
    if changes:
        raise RefusedError(f"the logs are no longer those of the cut: {'; '.join(changes)}")
    ends = {partition: p.position for partition, p in chosen.by_partition().items()}
    await positions.refuse_other_logs(cluster, ends, "make a new cut: --at lso")
    return chosen
