"""Build the answer of `audit end-to-end`: rows, counts by partition, and what is not proven."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoctl.kafka.ask.configs import topic_configs
from eoctl.kafka.ask.groups import find_groups, list_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.committed import with_offsets
from eoctl.operations.audit.ranges import Resolved
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import (
    AuditEndToEndRow,
    EndToEndInput,
    EndToEndOutput,
    EndToEndReader,
    RecordPlace,
)
from recovery.audit.end_to_end import Found, Judged
from recovery.errors import IncompleteError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.formats.columns import ABORTED, OPEN
from recovery.plurals import counted
from recovery.shared.log_position import LogPosition, not_proven, refuse_diverged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass
class Tally:
    """How far a partition was read, and how many records it had.

    position: the next offset; epoch: of the record before it. records: those that a read_committed
    reader gets; without_id: of these. first_aborted: offset. holes: offsets before the position
    that have no record, as compaction took it.
    """

    position: int
    epoch: int = -1
    records: int = 0
    without_id: int = 0
    aborted: int = 0
    open: int = 0
    holes: int = 0
    first_aborted: int | None = None

    def count(self, offsets: "NDArray[np.int64]", outcome: "NDArray[np.int8]") -> None:
        """Count records of these outcomes."""
        aborted, open_ = outcome == ABORTED, outcome == OPEN
        if self.first_aborted is None and aborted.any():
            self.first_aborted = int(offsets[aborted][0])
        self.aborted += int(aborted.sum())
        self.open += int(open_.sum())
        self.records += int((~aborted & ~open_).sum())


@dataclass
class EndToEnd:
    """What was read and judged. tallies, ends: by range, the inputs' first. cut_known: by input;
    False: the cut comes after the last input that has an output. inputs_known: see `Cut`. doubts:
    cuts that are not proven. continued: a killed run was, which began then."""

    inputs: Sequence[Resolved]
    outputs: Sequence[Resolved]
    tallies: Sequence[Tally]
    judged: Judged
    ends: Sequence[int]
    missing: Sequence[Missing]
    began: int
    cut_known: Sequence[bool]
    inputs_known: bool
    doubts: Sequence[Missing]
    continued: bool
    readers: list[EndToEndReader] = field(default_factory=list)
    readers_known: bool = True

    def unproven(self) -> Iterator[Missing]:
        """Yield what the logs do not show."""
        yield from self.doubts
        yield from self._unproven_outputs()
        for number, (r, t) in enumerate(zip(self.inputs, self.tallies, strict=False)):
            place = r.topic_partition
            if n := int(self.judged.unproven[number]):
                text = f"{counted(n, 'input has', 'inputs have')} no output, or one that "
                text += "was deleted, compacted or not read: the output is not all there"
                yield unproven(place, text)
            if t.without_id:
                text = f"{counted(t.without_id, 'input has', 'inputs have')} no such id and cannot"
                yield unproven(place, f"{text} be followed")
            followed = t.records - t.without_id
            if followed and not self.cut_known[number] and self.ends[number] <= r.start:
                text = f"none of its {counted(followed, 'record')} has an output: nothing shows "
                text += "that outputs have this id; or say up to where they must: --group or --end"
                yield unproven(place, text)

    def _unproven_outputs(self) -> Iterator[Missing]:
        first = len(self.inputs)
        for r, t in zip(self.outputs, self.tallies[first:], strict=True):
            if t.without_id:
                text = f"{counted(t.without_id, 'output has', 'outputs have')} no such id, so none "
                text += "is proven to be missing: name an id that all outputs have with --by"
                yield unproven(r.topic_partition, text)
            if t.holes:
                text = f"compaction took {counted(t.holes, 'record')} of it, so none is proven "
                text += "to be missing: run it before the topic is compacted"
                yield unproven(r.topic_partition, text)
        doubtful = int(self.judged.repeated.sum() + self.judged.from_aborted.sum())
        if doubtful and not self.inputs_known:
            text = f"{counted(doubtful, 'output is', 'outputs are')} repeated or of an aborted "
            text += "input, unless an input that was not read has the id: read all partitions from "
            text += "offset 0, or use --by source"
            yield Missing("topic", "UNPROVEN", text, topic=self.inputs[0].topic)


def unproven(place: TopicPartition, text: str) -> Missing:
    """Return what the logs of a partition do not show."""
    return Missing("partition", "UNPROVEN", text, None, *place)


def end_to_end_answer(
    cluster_id: str | None, topics: tuple[str, str], by: str, result: EndToEnd
) -> Answer:
    """Return the answer."""
    judged = result.judged
    return Answer(
        schema="audit-end-to-end",
        cluster_id=cluster_id,
        collected_at=result.began,
        rows=[_row(found) for found in judged.found],
        errors=error_rows([*result.missing, *result.unproven()]),
        extra={
            "input": topics[0],
            "output": topics[1],
            "by": by,
            "findings": judged.findings,
            "continued": result.continued,
            "inputs": [one.json_values() for one in _inputs(result)],
            "outputs": [one.json_values() for one in _outputs(result)],
            "readers": [one.json_values() for one in result.readers],
            "readers_known": result.readers_known,
        },
        judging=True,
        finding=judged.findings > 0,
    )


def _row(found: Found) -> AuditEndToEndRow:
    return AuditEndToEndRow(
        finding=found.kind,
        records=found.records,
        proven=found.proven,
        inputs=[RecordPlace.of(place) for place in found.inputs],
        outputs=[RecordPlace.of(place) for place in found.outputs],
    )


def _inputs(result: EndToEnd) -> Iterator[EndToEndInput]:
    judged = result.judged
    for n, (r, t) in enumerate(zip(result.inputs, result.tallies, strict=False)):
        yield EndToEndInput(
            topic=r.topic,
            partition=r.partition,
            start=r.start,
            cut=min(max(result.ends[n], r.start), r.end),
            end=r.end,
            records=t.records,
            without_id=t.without_id,
            aborted=t.aborted,
            no_output=int(judged.lost[n]),
            unproven=int(judged.unproven[n]),
            pending=int(judged.pending[n]),
            behind=int(judged.behind[n]),
        )


def _outputs(result: EndToEnd) -> Iterator[EndToEndOutput]:
    judged, first = result.judged, len(result.inputs)
    for n, r in enumerate(result.outputs, first):
        t = result.tallies[n]
        yield EndToEndOutput(
            topic=r.topic,
            partition=r.partition,
            start=r.start,
            end=r.end,
            records=t.records,
            without_id=t.without_id,
            aborted=t.aborted,
            open=t.open,
            repeated=int(judged.repeated[n]),
            aborted_input=int(judged.from_aborted[n]),
            without_input=int(judged.unknown[n]),
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


async def compacted_topics(cluster: Cluster, topics: Collection[str]) -> set[str]:
    """Return the topics from which compaction may take records; hidden settings prove nothing."""
    configs, _ = await topic_configs(cluster, list(topics), ("cleanup.policy",))
    policies = {name: configs.get(name, {}).get("cleanup.policy") for name in topics}
    return {name for name, policy in policies.items() if policy is None or "compact" in policy}


async def readers(cluster: Cluster, result: EndToEnd) -> tuple[list[EndToEndReader], bool]:
    """Return the groups that have come past aborted outputs, and whether all groups were seen.

    Kafka does not know with which isolation level a consumer reads.
    """
    first = {
        r.topic_partition: t.first_aborted
        for r, t in zip(result.outputs, result.tallies[len(result.inputs) :], strict=True)
        if t.first_aborted is not None
    }
    if not first:
        return [], True
    groups, missing = await list_groups(cluster)
    groups, more = await with_offsets(cluster, groups, sorted(first))
    found = [
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
    ]
    return found, not (missing or more)
