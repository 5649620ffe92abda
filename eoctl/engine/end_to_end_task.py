"""Read what `audit end-to-end` judges, for the local engine and for Spark's tasks.

A record becomes a row (`recovery.audit.end_to_end.FIELDS`): the digest of its id, its place, time
and outcome.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from eoctl.engine.audit_reading import columns
from eoctl.engine.id_buckets import rows_of
from eoctl.kafka.ask.collect import ids_of_leaders
from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.ask.groups import list_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.committed import with_offsets
from eoctl.kafka.read.pump import Reading
from recovery.audit.audit_request import Resolved
from recovery.audit.audit_rows import EndToEndReader
from recovery.audit.end_to_end import INPUT, INPUT_ABORTED, OUTPUT, OUTPUT_OPEN
from recovery.audit.end_to_end_request import EndToEndRequest, EndToEndScope, Tally
from recovery.errors import IncompleteError
from recovery.facts import TopicPartition
from recovery.formats.columns import ABORTED, OPEN, ColumnBatch
from recovery.shared.log_position import LogPosition
from recovery.shared.record_ids import digests, place_digests
from recovery.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Ids = Callable[[ColumnBatch], tuple["NDArray[np.uint64]", "NDArray[np.bool_]"]]
"""The ids of records, and which have one: as `recovery.shared.record_ids.digests`."""


def ids_of(request: EndToEndRequest, number: int) -> Ids:
    """Return the function that gives the ids of a range's records. number: of the range."""
    by, r = request.by, request.ranges[number]

    def placed(part: ColumnBatch) -> "tuple[NDArray[np.uint64], NDArray[np.bool_]]":
        import numpy as np

        return place_digests(by.source, r.topic_partition, part), np.ones(len(part), np.bool_)

    if number < len(request.scope.inputs) and by.kind == "source":
        return placed
    return partial(digests, by)


async def read_rows(
    cluster: Cluster,
    scope: EndToEndScope,
    number: int,
    end: int,
    tally: Tally,
    ids: Ids,
    reading: Reading,
    on_progress: Callable[[int, int], None],
) -> "AsyncGenerator[NDArray[Any], None]":
    """Yield the rows of a range from the tally's position to `end`, and count its records.

    number: of the range. Raises what `columns` and `ids` raise: then the tally holds what was
    yielded.
    """
    r, is_input = scope.ranges[number], number < len(scope.inputs)
    rest = replace(r, start=tally.position)
    parts = columns(cluster, rest, end, reading, on_progress, control=True)
    async with aclosing(parts):
        async for part in parts:
            rows = part.select((part.offset >= tally.position) & (part.offset < end))
            made = _rows(rows, tally, ids, is_input=is_input)
            made["range"] = number
            yield made
    tally.holes += end - tally.position
    tally.position = end


def _rows(with_markers: ColumnBatch, tally: Tally, ids: Ids, *, is_input: bool) -> "NDArray[Any]":
    import numpy as np

    part = with_markers.select(~with_markers.is_control)
    outcome = part.outcome
    kind = np.where(outcome == ABORTED, INPUT_ABORTED, INPUT)
    keep = outcome != OPEN
    if not is_input:
        kind = np.where(outcome == OPEN, OUTPUT_OPEN, OUTPUT)
        keep = outcome != ABORTED
    kept, kind = part.select(keep), kind[keep]
    found, has = ids(kept)  # raises: then nothing of the part is counted
    visible = kind == (INPUT if is_input else OUTPUT)
    tally.without_id += int((visible & ~has).sum())
    tally.count(part.offset, outcome)
    if len(with_markers):
        next_offset = int(with_markers.offset[-1]) + 1
        tally.holes += next_offset - tally.position - len(with_markers)
        tally.position, tally.epoch = next_offset, int(with_markers.leader_epoch[-1])
    tally.rows += int(has.sum())
    return rows_of(found[has], kept.offset[has], kept.timestamp[has], 0, kind[has])


async def refuse_changed(
    cluster: Cluster,
    topic_ids: Mapping[str, str | None],
    ranges: Sequence[Resolved],
    tallies: Sequence[Tally],
) -> None:
    """Raise IncompleteError if a log that was read to its end is another one now, or if a leader
    does not say.

    topic_ids: as they were before it. Where offsets have no record nothing is proven anyway.
    """
    read = {
        r.topic_partition: t
        for r, t in zip(ranges, tallies, strict=True)
        if r.start < t.position == r.end
    }
    await _refuse_other_topics(cluster, topic_ids, read)
    last = {
        partition: LogPosition(t.position, t.epoch)
        for partition, t in read.items()
        if t.epoch >= 0 and not t.holes
    }
    for partition, standing in (await positions.standings(cluster, last)).items():
        if standing.held is False:
            raise _changed(f"its log was cut off at {standing.divergence}", str(partition))


async def _refuse_other_topics(
    cluster: Cluster, topic_ids: Mapping[str, str | None], read: Collection[TopicPartition]
) -> None:
    metadata = await cluster.metadata(sorted(topic_ids))
    known = [p for t in metadata.topics.values() for p in t.partitions if p.topic_partition in read]
    ids = await ids_of_leaders(cluster, known)
    for topic in sorted({topic for topic, _ in read}):
        found = ids.get(topic, {None})
        if found - {None, topic_ids[topic]}:
            raise _changed("it was deleted and created again", topic)
        if found != {topic_ids[topic]}:
            raise _changed("a leader does not answer, or it was deleted", topic)


def _changed(what: str, where: str) -> IncompleteError:
    return IncompleteError(f"{what} while it was read", where=where, remedy="run it again")


async def compacted_topics(cluster: Cluster, topics: Collection[str]) -> set[str]:
    """Return the topics from which compaction may take records; hidden settings prove nothing."""
    configs, _ = await topic_configs(cluster, list(topics), ("cleanup.policy",))
    policies = {name: configs.get(name, {}).get("cleanup.policy") for name in topics}
    return {name for name, policy in policies.items() if policy is None or "compact" in policy}


async def readers(
    cluster: Cluster, scope: EndToEndScope, tallies: Sequence[Tally]
) -> tuple[tuple[EndToEndReader, ...], bool]:
    """Return the groups that have come past aborted outputs, and whether all groups were seen.

    Kafka does not know with which isolation level a consumer reads.
    """
    first = {
        r.topic_partition: t.first_aborted
        for r, t in zip(scope.outputs, tallies[len(scope.inputs) :], strict=True)
        if t.first_aborted is not None
    }
    if not first:
        return (), True
    groups, missing = await list_groups(cluster)
    groups, more = await with_offsets(cluster, groups, sorted(first))
    found = tuple(
        EndToEndReader(
            group=g.group,
            topic=o.topic,
            partition=o.partition,
            committed_offset=o.committed_offset,
            aborted_offset=first[o.topic_partition],
        )
        for g in groups
        for o in g.offsets
        if o.committed_offset is not None and o.committed_offset > first[o.topic_partition]
    )
    return found, not (missing or more)
