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
from recovery.audit.end_to_end_request import EndToEndFound
from recovery.errors import IncompleteError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.plurals import counted
from recovery.shared.log_position import LogPosition, not_proven, refuse_diverged
from recovery.times import rfc3339


def unproven_parts(found: EndToEndFound) -> Iterator[Missing]:
    """Yield what the logs do not show."""
    yield from found.scope.doubts
    yield from _unproven_outputs(found)
    for number, (r, t) in enumerate(zip(found.scope.inputs, found.tallies, strict=False)):
        place = r.topic_partition
        if n := found.verdicts.counts.unproven[number]:
            text = f"{counted(n, 'input has', 'inputs have')} no output, or one that "
            text += "was deleted, compacted or not read: the output is not all there; run it "
            text += "sooner after the records are written, or with an earlier --start"
            yield unproven(place, text)
        if t.holes:
            text = f"compaction took {counted(t.holes, 'record')} of it: if these inputs had an "
            text += "output is unknown; run it before the topic is compacted, or give a --start"
            yield unproven(place, text)
        if t.without_id:
            text = f"{counted(t.without_id, 'input has', 'inputs have')} no such id and cannot"
            yield unproven(place, f"{text} be followed")
        followed = t.records - t.without_id
        if followed and found.scope.cuts[number] is None and found.ends[number] <= r.start:
            text = f"none of its {counted(followed, 'record')} has an output: nothing shows "
            text += "that outputs have this id; or say up to where they must: --group or --end"
            yield unproven(place, text)


def _unproven_outputs(found: EndToEndFound) -> Iterator[Missing]:
    inputs = found.scope.inputs
    for r, t in zip(found.scope.outputs, found.tallies[len(inputs) :], strict=True):
        if t.without_id:
            text = f"{counted(t.without_id, 'output has', 'outputs have')} no such id, so none "
            text += "is proven to be missing: name an id that all outputs have with --by"
            yield unproven(r.topic_partition, text)
        if t.holes:
            text = f"compaction took {counted(t.holes, 'record')} of it, so none is proven "
            text += "to be missing: run it before the topic is compacted"
            yield unproven(r.topic_partition, text)
    if doubtful := sum(found.verdicts.counts.doubtful):
        text = f"{counted(doubtful, 'output is', 'outputs are')} repeated or of an aborted input, "
        text += f"unless {found.unless}"
        yield Missing("topic", "UNPROVEN", text, topic=inputs[0].topic)


def unproven(place: TopicPartition, text: str) -> Missing:
    """Return what the logs of a partition do not show."""
    return Missing("partition", "UNPROVEN", text, None, *place)


def end_to_end_answer(
    cluster_id: str | None,
    topics: tuple[str, str],
    by: str,
    found: EndToEndFound,
    map_of: int | None = None,
) -> Answer:
    """Return the answer. map_of: when the map that knows the input looked, epoch ms."""
    missing = [*found.scope.missing, *found.failed, *unproven_parts(found)]
    return Answer(
        schema="audit-end-to-end",
        cluster_id=cluster_id,
        collected_at=found.scope.began,
        rows=[_row(one) for one in found.verdicts.found],
        errors=error_rows(missing),
        extra={
            "input": topics[0],
            "output": topics[1],
            "by": by,
            "findings": found.verdicts.findings,
            "map_of": None if map_of is None else rfc3339(map_of),
            "continued": found.continued,
            "inputs": [one.json_values() for one in _inputs(found)],
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


def _inputs(found: EndToEndFound) -> Iterator[EndToEndInput]:
    counts = found.verdicts.counts
    for n, (r, t) in enumerate(zip(found.scope.inputs, found.tallies, strict=False)):
        yield EndToEndInput(
            topic=r.topic,
            partition=r.partition,
            log_start_offset=r.log_start_offset,
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
