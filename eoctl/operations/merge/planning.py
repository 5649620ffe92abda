"""`merge verify` checks a merge log against its inputs; `merge plan` says what a replay does.

A merge log's partition p records the order in which inputs were merged into the output's partition
p. The rules are in `recovery.merge_*`; this module reads from the cluster. `replay` is in
`eoctl.operations.merge.replay_change`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from eoctl.host.clock import now_ms
from eoctl.kafka.ask.log_ends import read_ends
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import committed
from eoctl.operations.merge.read import read_log
from eoctl.stores.offsets.opening import open_store
from recovery import plurals
from recovery.answers import Answer, error_rows
from recovery.errors import IncompleteError, RefusedError, UsageError, topic_problem
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.counting import Counts
from recovery.merge.log import Columns, MergeFormat, Tail, merge_format, merge_plan
from recovery.merge.log_rows import MergePlanRow
from recovery.merge.reading import beyond, entries_of, no_input, refuse_unreadable
from recovery.merge.replay import Base, ReplayPosition, merge_plan_row
from recovery.restart.observed import Counted, Log, LogEnd, Observed
from recovery.restart.output_rules import final_end, written_by_one
from recovery.restart.producers import ProducerRuns
from recovery.restart.stored import StoredOutput, StoredPartition
from recovery.shared.app_file import App, named
from recovery.shared.log_position import LogPosition, not_proven, refuse_diverged
from recovery.values import Value, replace

if TYPE_CHECKING:
    from confluent_kafka import Message

PAUSE_SECONDS = 0.3  # between two reads of an end


class Merge(Value):
    """A merge log, the inputs that it orders, and its output.

    partitions: of the log, () = all. bases: where a replay starts, by partition, as (merge offset,
    output offset). app: its store gives missing bases.
    """

    topic: str
    format: str
    inputs: tuple[str, ...]
    output: str | None
    isolation: str = "read_committed"
    partitions: tuple[int, ...] = ()
    bases: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    app: App | None = None

    def __post_init__(self) -> None:
        names = [self.topic, *self.inputs, *([self.output] if self.output else [])]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise UsageError(
                f"{twice} is named twice: merge log, inputs and output are different topics"
            )
        merge_format(self.format)

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic, *self.inputs, *([self.output] if self.output else []))

    @property
    def group(self) -> str:
        """Return the group in which positions of replays are committed."""
        return f"eoctl-merge-{self.topic}"

    def transactional_id(self, partition: int) -> str:
        return f"eoctl-merge-{self.topic}-{partition}"


def of_app(app: App, where: str) -> Merge:
    """Return the merge log of an application file. Raises UsageError."""
    if app.merge is None:
        raise UsageError("there is no table [app.merge]", where=where)
    if app.mapping:
        raise UsageError(
            "a merge log's partition feeds the output's partition of the same number",
            where=f"{where}, [app.mapping]",
            remedy="leave it out",
        )
    if len(app.outputs) > 1:
        raise UsageError("the merged stream goes to one output", where=f"{where}, [app] outputs")
    output = app.outputs[0] if app.outputs else None
    return Merge(app.merge.topic, app.merge.format, app.inputs, output, app.isolation, app=app)


def chosen(
    merge: Merge, partitions: tuple[int, ...], given: Mapping[int, tuple[int, int]]
) -> Merge:
    """Return a request for these partitions, with the requested starts."""
    return replace(merge, partitions=partitions, bases=given)


class MergeLook(Value):
    """Offsets of all partitions, as their leaders gave them. missing: what was not seen.

    ends: two reads of merge log and output, some time apart, if requested.
    """

    facts: Mapping[TopicPartition, PartitionFacts]
    missing: tuple[Missing, ...]
    ends: Mapping[TopicPartition, Log]

    def of(self, partition: TopicPartition) -> PartitionFacts:
        """Return a partition's facts. Raises IncompleteError if its offsets are unknown."""
        facts = self.facts.get(partition)
        if facts is None or facts.error is not None:
            why = next((m.detail for m in self.missing if m.topic_partition == partition), None)
            if facts is None and why is None:
                raise UsageError("there is no such partition", where=named(partition))
            raise IncompleteError(why or "its offsets could not be read", where=named(partition))
        return facts

    def bounds(self, partition: TopicPartition, isolation: str) -> tuple[int, int]:
        """Return the first and the end offset for this isolation. Raises IncompleteError."""
        facts = self.of(partition)
        end = facts.last_stable_offset
        if isolation == "read_uncommitted":
            end = facts.high_watermark
        assert facts.log_start_offset is not None
        assert end is not None
        return facts.log_start_offset, end

    def final(self, partition: TopicPartition) -> int:
        """Return the log end, once no in-flight record can still appear. Raises RefusedError if it
        is not final, IncompleteError."""
        self.of(partition)
        if partition not in self.ends:
            raise IncompleteError("its end could not be read", where=named(partition))
        return final_end(self.ends[partition])[0]


async def look(cluster: Cluster, merge: Merge, *, twice: bool) -> MergeLook:
    """Read all topics' offsets. twice: also whether the ends of log and output are final.

    Raises UsageError for a topic that does not exist.
    """
    metadata = await cluster.metadata(merge.topics)
    for t in metadata.topics.values():
        if t.error in ("UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION"):
            raise UsageError(topic_problem(t.error), where=t.name)
        if t.error is not None:
            raise IncompleteError(f"{topic_problem(t.error)} ({t.error})", where=t.name)
    topics = list(metadata.topics.values())
    partitions = [p for t in topics for p in t.partitions]
    facts, ends, missing = await read_ends(cluster, topics, partitions)
    growing = {merge.topic, merge.output}
    logs: dict[TopicPartition, Log] = {}
    if twice:
        before = {f.topic_partition: (f, ends) for f in facts}
        await asyncio.sleep(PAUSE_SECONDS)
        mine = [p for p in partitions if p.topic in growing]
        again, later, more = await read_ends(cluster, topics, mine)
        missing += more
        for f in again:
            topic_partition = f.topic_partition
            reads = [
                _end(g, e) for g, e in (before[topic_partition], (f, later)) if g.error is None
            ]
            if f.log_start_offset is not None and len(reads) == 2:
                logs[topic_partition] = Log(
                    *topic_partition, f.topic_id, f.leader_epoch, f.log_start_offset, tuple(reads)
                )
        facts = [f for f in facts if f.topic not in growing] + again
    return MergeLook({f.topic_partition: f for f in facts}, tuple(missing), logs)


def _end(f: PartitionFacts, ends: Mapping[TopicPartition, int]) -> LogEnd:
    assert f.high_watermark is not None
    assert f.last_stable_offset is not None
    return LogEnd(ends.get(f.topic_partition), f.high_watermark, f.last_stable_offset)


def partitions_of(merge: Merge, logs: MergeLook) -> list[int]:
    """Return the requested partitions of the merge log. Raises UsageError for a missing one."""
    there = sorted(p for topic, p in logs.facts if topic == merge.topic)
    numbers = {*merge.partitions, *merge.bases} if merge.partitions else {*there, *merge.bases}
    for partition in sorted(numbers):
        if partition not in there:
            raise UsageError("there is no such partition", where=f"{merge.topic}:{partition}")
    return sorted(merge.partitions) if merge.partitions else there


async def visible(
    cluster: Cluster,
    logs: MergeLook,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    writers: Mapping[TopicPartition, ProducerRuns] | None = None,
) -> dict[TopicPartition, Counts]:
    """Read all visible records of each range. writers: collects who wrote them.

    Raises RefusedError, IncompleteError.
    """
    cuts = []
    for partition, (start, end) in ranges.items():
        facts = logs.of(partition)
        low, stable = facts.log_start_offset, facts.last_stable_offset
        assert low is not None
        assert stable is not None
        if start > end:
            raise RefusedError(f"{start} is above its end {end}", where=named(partition))
        if start < low:
            raise RefusedError(
                f"[{start}, {low}) is gone: it starts at {low}, and cannot be counted from {start}",
                where=named(partition),
                remedy="name a commit whose offsets still exist: --from-merge-offset, "
                "--output-offset",
            )
        if start < end:
            runs = None if writers is None else writers.get(partition)
            cuts.append(Cuts(*partition, (start, end), low, stable, runs))
    counted, missing = await count(cluster, cuts)
    by_partition = {partition: Counts() for partition in ranges}
    for c in cuts:
        if c.topic_partition not in counted:
            why = next(m.detail for m in missing if m.topic_partition == c.topic_partition)
            raise IncompleteError(f"it could not be counted: {why}", where=named(c.topic_partition))
        counts = by_partition[c.topic_partition] = counted[c.topic_partition][0]
        if counts.missing or counts.open:
            missing_words = plurals.counted(counts.missing, "offset")
            raise RefusedError(
                f"[{c.offsets[0]}, {c.offsets[1]}) lacks {missing_words} and holds "
                f"{plurals.counted(counts.open, 'open record')}: how many records there were "
                "cannot be known",
                where=named(c.topic_partition),
            )
    return by_partition


async def bases(
    cluster: Cluster,
    request: Merge,
    partitions: Sequence[int],
    logs: MergeLook,
    *,
    certain: bool = True,
) -> dict[int, Base]:
    """Return each partition's commit to start the replay at.

    As requested, else from the application's store, else where an earlier replay began, else the
    very beginning (certain: only if the output is empty). Raises RefusedError, IncompleteError.
    """
    assert request.output is not None
    by_partition = {
        p: Base(merge, TopicPartition(request.output, p), output)
        for p, (merge, output) in request.bases.items()
    }
    left = [p for p in partitions if p not in by_partition]
    if left and request.app is not None and request.app.store is not None:
        async with open_store(request.app.store, cluster=cluster, app=request.app) as store:
            contents = await store.read()
        for p in left:
            known = _stored(request, p, [e.position for e in contents.entries], store.name)
            if known is not None:
                by_partition[p] = known
        left = [p for p in left if p not in by_partition]
    commits = await _reached(cluster, request, left)
    for p in left:
        at = commits.get(p)
        if at is not None and at.base is not None:
            if at.base.output != (request.output, p):
                raise RefusedError(
                    f"an earlier replay of it wrote to {named(at.base.output)}",
                    where=f"{request.topic}:{p}",
                    remedy="say where this one begins: --from-merge-offset, --output-offset",
                )
            by_partition[p] = at.base
            continue
        by_partition[p] = base = Base(0, TopicPartition(request.output, p), 0)
        if certain:
            _, end = logs.bounds(base.output, "read_committed")
            counts = await visible(cluster, logs, {base.output: (0, end)})
            if counts[base.output].data:
                raise RefusedError(
                    f"it holds {plurals.counted(counts[base.output].data, 'record')}, and nothing "
                    "says of which entries",
                    where=named(base.output),
                    remedy="name a commit: --from-merge-offset, --output-offset",
                )
    return by_partition


def _stored(
    request: Merge, partition: int, stored: Sequence[StoredPartition], where: str
) -> Base | None:
    """Return the commit that the store holds for a partition, None if it holds none."""
    assert request.app is not None
    assert request.output is not None
    output = TopicPartition(request.output, partition)
    merges, outputs = set(), set()
    for at in stored:
        if at.input.topic in request.inputs and output in request.app.outputs_of(
            at.input.topic_partition
        ):
            merges.add(at.merge)
            outputs |= {o.offset for o in at.output if o.topic_partition == output}
    if not merges:
        return None
    merge, offset = merges.pop(), outputs.pop() if outputs else None
    if merges or outputs or merge is None or offset is None:
        raise RefusedError(
            f"its entries for {named(output)} hold no merge offset and output offset in common",
            where=where,
            remedy="say where the replay begins: --from-merge-offset, --output-offset",
        )
    return Base(merge, output, offset)


async def _reached(
    cluster: Cluster, merge: Merge, partitions: Sequence[int]
) -> dict[int, ReplayPosition]:
    """Return what earlier replays committed. Raises CorruptError for somebody else's commit."""
    return _understood(await _commits(cluster, merge, partitions))


async def _commits(
    cluster: Cluster, merge: Merge, partitions: Sequence[int]
) -> dict[int, CommittedPosition]:
    if not partitions:
        return {}
    topic_partitions = [TopicPartition(merge.topic, p) for p in partitions]
    return {
        p: at for (_, p), at in (await committed(cluster, merge.group, topic_partitions)).items()
    }


def _understood(commits: Mapping[int, CommittedPosition]) -> dict[int, ReplayPosition]:
    return {p: ReplayPosition.committed(at.offset, at.metadata) for p, at in commits.items()}


class Reached(Value):
    """Earlier replays' progress in a partition, counted; `at`: what the last committed, or None.

    entries, outputs: visible records from the base on, up to tip and end. position: where to
    continue. leader_epoch: of the record before; None: not known. unproven: why the position may
    belong to an earlier log, None if it is proven to belong to this one.
    """

    at: ReplayPosition | None
    tip: int
    end: int
    entries: int
    outputs: int
    position: ReplayPosition
    leader_epoch: int | None = None
    unproven: str | None = None


async def reached(
    cluster: Cluster, request: Merge, given: Mapping[int, Base], logs: MergeLook
) -> dict[int, Reached]:
    """Count how far earlier replays got; `logs` were read twice.

    Every output from a base on belongs to an entry from the base on, so an earlier replay's commit
    must account for all outputs.

    Raises RefusedError if it does not, or if an end is not final; IncompleteError.
    """
    raw = await _commits(cluster, request, list(given))
    commits = {p: at for p, at in _understood(raw).items() if at.base == given[p]}
    in_logs = {TopicPartition(request.topic, p): raw[p].in_log for p in commits}
    unproven = await _refuse_other_logs(cluster, in_logs)
    begins = {
        TopicPartition(request.topic, p): b.merge_offset
        for p, b in given.items()
        if p not in commits
    }
    epochs = await positions.record_epochs(cluster, begins)
    epochs |= {partition: at.leader_epoch for partition, at in in_logs.items()}
    by_partition = {}
    for p, base in given.items():
        merge = TopicPartition(request.topic, p)
        tip, end = logs.final(merge), logs.final(base.output)
        at = commits.get(p)
        begin = base.merge_offset if at is None else at.merge_offset
        if begin > tip:
            raise RefusedError(f"it ends at {tip}, before {begin}", where=named(merge))
        if at is not None and not at.drop_left:
            await _refuse_forgotten(cluster, request, logs, base, at, (p, end))
        ranges = {merge: (base.merge_offset, begin), base.output: (base.output_offset, end)}
        runs = ProducerRuns(base.output_offset, end)
        counts = await visible(cluster, logs, ranges, {base.output: runs})
        if at is None:  # later on, every record is accounted for
            _written_by_one(request, logs, base, Counted(counts[base.output], runs.producers))
        left = (await visible(cluster, logs, {merge: (begin, tip)}))[merge].data
        outputs, entries = counts[base.output].data, counts[merge].data + left
        holds = f"it holds {plurals.counted(outputs, 'record')} from {base.output_offset} on"
        if at is not None and outputs != counts[merge].data + at.drop_left:
            raise RefusedError(
                f"{holds}, where the replay that came to {begin} of the merge log accounts for "
                f"{plurals.count(counts[merge].data + at.drop_left)}: somebody else wrote",
                where=named(base.output),
                remedy="find out who; begin at a commit after that",
            )
        if outputs > entries:
            raise RefusedError(
                f"{holds}, the merge log {plurals.counted(entries, 'entry', 'entries')} from "
                f"{base.merge_offset} on: outputs in an order that is recorded nowhere",
                where=named(base.output),
                remedy="check the log with `eoctl merge verify`",
            )
        position = at or ReplayPosition(base.merge_offset, outputs, base)
        beside = epochs.get(merge), unproven.get(merge)
        by_partition[p] = Reached(at, tip, end, entries, outputs, position, *beside)
    return by_partition


async def _refuse_other_logs(
    cluster: Cluster, in_logs: Mapping[TopicPartition, LogPosition]
) -> dict[TopicPartition, str]:
    """Refuse positions of a merge log that was cut off since; return why others are unproven.

    Raises RefusedError with the offset of the divergence, IncompleteError.
    """
    standings = await positions.standings(cluster, in_logs)
    for topic_partition, standing in standings.items():
        remedy = (
            f"replay into another output, from a commit below offset {standing.diverged_at} of the "
            f"log: --to, --from-merge-offset {topic_partition[1]}:M --output-offset "
            f"{topic_partition[1]}:0"
        )
        refuse_diverged(topic_partition, in_logs[topic_partition], standing, remedy)
    return {
        topic_partition: text
        for topic_partition, standing in standings.items()
        for text in not_proven([(topic_partition, in_logs[topic_partition], standing)])
    }


async def _refuse_forgotten(
    cluster: Cluster,
    merge: Merge,
    logs: MergeLook,
    base: Base,
    at: ReplayPosition,
    there: tuple[int, int],
) -> None:
    """Refuse if retention deleted records that a replay must count from its base.

    Raises RefusedError, which names the commit that the replay reached. there: partition, and the
    output's end before `at` was read.
    """
    p, end = there
    starts = [
        (TopicPartition(merge.topic, p), base.merge_offset),
        (base.output, base.output_offset),
    ]
    gone = [
        (partition, begin)
        for partition, begin in starts
        if begin < (logs.of(partition).log_start_offset or 0)
    ]
    if not gone or at.merge_offset < (
        logs.of(TopicPartition(merge.topic, p)).log_start_offset or 0
    ):
        return
    # Both are one commit only if no other replay committed between the two reads.
    again = (await look(cluster, merge, twice=True)).final(base.output)
    if again != end:
        raise RefusedError(
            f"its end is not final: it moved from {end} to {again} meanwhile",
            where=named(base.output),
            remedy="somebody still writes: stop it, then plan again",
        )
    partition, begin = gone[0]
    raise RefusedError(
        f"[{begin}, {logs.of(partition).log_start_offset}) is gone: whether somebody else wrote "
        "since "
        f"replays of it began at {base.merge_offset} cannot be counted",
        where=named(partition),
        remedy="if nobody did, go on with the last replay's commit: "
        f"--from-merge-offset {p}:{at.merge_offset} --output-offset {p}:{end}",
    )


def _written_by_one(merge: Merge, logs: MergeLook, base: Base, counted: Counted) -> None:
    """Refuse outputs from a base on that are not one deterministic application's, by the rules of
    restarts. Raises RefusedError."""
    topic, partition = base.output
    app = merge.app or App(
        name=merge.topic, strategy="merge-log", inputs=merge.inputs, outputs=(topic,)
    )
    observed = Observed(None, {}, logs.ends)
    output = StoredOutput(topic=topic, partition=partition, offset=base.output_offset)
    written_by_one(counted, output, logs.ends[base.output], app, observed)


async def thorough(
    cluster: Cluster, request: Merge, given: Mapping[int, Base], logs: MergeLook
) -> list[MergePlanRow]:
    """Return each partition's plan, after reading its log to the tip: all its records must exist.

    Raises RefusedError, IncompleteError.
    """
    rows = []
    for p, now in (await reached(cluster, request, given, logs)).items():
        base, merge = given[p], TopicPartition(request.topic, p)
        tail = await asyncio.to_thread(scan, cluster, request, merge, base.merge_offset, now.tip)
        for partition, source in sorted(tail.sources.items()):
            first_to_read(request, logs, merge, partition, source.first)
            end = logs.bounds(partition, request.isolation)[1]
            if source.last >= end:
                raise beyond(partition, source.last, end)
        plan = merge_plan(merge, base.merge_offset, now.tip, tail.sources, drop_first=now.outputs)
        rows.append(merge_plan_row(plan, base, now.end, now.at, request.transactional_id(p)))
    return rows


def scan(cluster: Cluster, request: Merge, merge: TopicPartition, start: int, end: int) -> Tail:
    """Read what the entries of [start, end) name. Raises RefusedError for a malformed record."""
    tail, form = Tail(), merge_format(request.format)
    for messages in read_log(cluster.settings, merge, start, end):
        tail.add_all(decoded(form, merge, messages)[1])
    return tail


def decoded(
    form: MergeFormat, merge: TopicPartition, messages: "list[Message]"
) -> tuple[list[int], Columns]:
    """Return offsets and entries of a log's records. Raises RefusedError for an invalid record."""
    offsets = [m.offset() for m in messages]
    keys, values = [m.key() for m in messages], [m.value() for m in messages]
    return offsets, entries_of(form, merge, offsets, keys, values)


def first_to_read(
    request: Merge,
    logs: MergeLook,
    merge: TopicPartition,
    topic_partition: TopicPartition,
    offset: int,
) -> None:
    """Refuse if an input cannot be read from this offset on. Raises RefusedError."""
    if topic_partition[0] not in request.inputs or topic_partition not in logs.facts:
        raise no_input(merge, topic_partition)
    refuse_unreadable(topic_partition, offset, logs.bounds(topic_partition, request.isolation))


async def plan(cluster: Cluster, merge: Merge) -> Answer:
    """Return what a replay would read and drop, in a row per partition of the log."""
    logs = await look(cluster, merge, twice=True)
    given = await bases(cluster, merge, partitions_of(merge, logs), logs)
    rows = await thorough(cluster, merge, given, logs)
    return Answer("merge-plan", cluster.cluster_id, now_ms(), rows, error_rows(logs.missing))
