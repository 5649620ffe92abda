"""Build the answer of `audit end-to-end`: rows, counts by partition, and what is not proven."""

from collections.abc import Iterator

from eoctl.kafka.ask.groups import find_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.committed import with_offsets
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import (
    AuditEndToEndRow,
    EndToEndInput,
    EndToEndOutput,
    RecordPlace,
)
from recovery.audit.end_to_end import Found
from recovery.audit.end_to_end_request import EndToEndFound, not_seen, unproven
from recovery.errors import IncompleteError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.shared.log_position import LogPosition, not_proven, refuse_diverged
from recovery.times import rfc3339


def end_to_end_answer(
    cluster_id: str | None,
    topics: tuple[str, str],
    by: str,
    found: EndToEndFound,
    map_of: int | None = None,
) -> Answer:
    """Return the answer. map_of: when the map that knows the input looked, epoch ms."""
    return Answer(
        schema="audit-end-to-end",
        cluster_id=cluster_id,
        collected_at=found.scope.began,
        rows=[_row(one) for one in found.verdicts.found],
        errors=error_rows(not_seen(found)),
        extra={
            "input": topics[0],
            "output": topics[1],
            "by": by,
            "findings": found.verdicts.findings,
            "map_of": None if map_of is None else rfc3339(map_of),
            "continued": found.continued,
            "inputs": [one.json_values() for one in _inputs(found, by)],
            "outputs": [one.json_values() for one in _outputs(found)],
            "readers": [one.json_values() for one in found.readers],
            "readers_known": found.readers_known,
        },
        judging=True,
        finding=found.verdicts.findings > 0,
    )


def _row(found: Found) -> AuditEndToEndRow:
    return AuditEndToEndRow(
        finding=found.kind,
        records=found.records,
        proven=found.proven,
        inputs=[RecordPlace.of(place) for place in found.inputs],
        outputs=[RecordPlace.of(place) for place in found.outputs],
    )


def _inputs(found: EndToEndFound, by: str) -> Iterator[EndToEndInput]:
    counts = found.verdicts.counts
    for n, (r, t) in enumerate(zip(found.scope.inputs, found.tallies, strict=False)):
        yield EndToEndInput(
            topic=r.topic,
            partition=r.partition,
            log_start_offset=None if by == "map" else r.log_start_offset,
            start=r.start,
            cut=min(max(found.ends[n], r.start), r.end),
            end=r.end,
            records=t.records,
            without_id=t.without_id,
            aborted=t.aborted,
            no_output=counts.lost[n],
            unproven=counts.unproven[n],
            pending=counts.pending[n],
            behind=counts.behind[n],
        )


def _outputs(found: EndToEndFound) -> Iterator[EndToEndOutput]:
    counts = found.verdicts.counts
    for n, r in enumerate(found.scope.outputs, len(found.scope.inputs)):
        t = found.tallies[n]
        yield EndToEndOutput(
            topic=r.topic,
            partition=r.partition,
            start=r.start,
            end=r.end,
            records=t.records,
            without_id=t.without_id,
            aborted=t.aborted,
            open=t.open,
            repeated=counts.repeated[n],
            aborted_input=counts.from_aborted[n],
            without_input=counts.unknown[n],
        )


async def group_commits(
    cluster: Cluster, group: str, topic: str
) -> tuple[dict[TopicPartition, int], list[Missing]]:
    """Return what a group has committed of a topic, and which of it another log may have had.

    Raises IncompleteError, UsageError, and RefusedError for a commit of another log.
    """
    metadata = await cluster.metadata([topic])
    partitions = [p.topic_partition for p in metadata.topics[topic].partitions]
    groups, missing = await find_groups(cluster, [group])
    groups, more = await with_offsets(cluster, groups, partitions)
    if unseen := [*missing, *more]:
        text = f"{unseen[0].error}: {unseen[0].detail}"
        raise IncompleteError(text, where=f"group {group}")
    offsets = [
        o for g in groups for o in g.offsets if o.committed_offset is not None and not o.is_share
    ]
    commits = {o.topic_partition: o.committed_offset or 0 for o in offsets}
    if not commits:
        raise UsageError(f"it has committed nothing of {topic}", where=f"group {group}")
    at = {
        o.topic_partition: LogPosition(o.committed_offset or 0, o.leader_epoch, "commit")
        for o in offsets
    }
    remedy = "its log was cut off since the commit: say up to where with --end"
    doubts: list[Missing] = []
    for partition, standing in (await positions.standings(cluster, at)).items():
        refuse_diverged(partition, at[partition], standing, remedy)
        for text in not_proven([(partition, at[partition], standing)]):
            doubts.append(unproven(partition, f"{text}; say up to where with --end"))
    return commits, doubts
