"""Rebuild a state: tasks for an engine, their rows, a second check of the log, the manifest.

Engines differ only in where tasks run. A task keeps its row in the storage itself, so that a second
run of the same request does only what is missing; nothing counts as a result before the manifest,
which is written last.
"""

import asyncio
import json
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from eoctl.engine.rebuild_task import BucketTask, Making, RangeTask, Task
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import cut_offsets, positions
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.files import StateFile
from eoctl.stores.state.folder import TaskRow
from eoctl.stores.state.runs import Run, damaged, plan_merge
from eoctl.stores.storage import Storage
from recovery.audit.range_counts import merged
from recovery.errors import RefusedError, UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.cut import Cut, CutJudgement, differences, judge, ranges
from recovery.shared.digest import Digest
from recovery.state.changelogs.changelog import ChangelogFormat
from recovery.state.manifest import (
    Manifest,
    ManifestDigest,
    ManifestFile,
    ManifestPartition,
    compacted_from_above,
    completeness,
    of_several_replicas,
    whole,
)
from recovery.state.task_sizes import buckets, most_offsets
from recovery.times import instant, rfc3339
from recovery.values import Value, replace

RebuildEngine = Callable[[Sequence[Task]], Iterable[TaskRow]]
"""Runs tasks somewhere and gives their rows, in any order, each as soon as it is there."""


class RebuildJob(Value):
    """A rebuild with every option resolved; it converts to JSON, and contains no secret.

    configs: the changelogs' settings, None where they may not be seen. retention: of each changelog
    in ms, if the format has one; it is added to the options. started_ms: when the first run of this
    request began. base: the folder of an earlier state to continue. fresh: the cut was made for
    this run at the log's end, and everything below it is read. log_bytes: of each partition's log
    at its leader, by topic and number, where they may be seen. range_offsets: the most that a task
    reads of each partition, likewise; decided by the first run, unless how.range_offsets is given.
    """

    cut: Cut
    how: Making
    started_ms: int
    configs: Mapping[str, Mapping[str, str | None] | None]
    retention: Mapping[str, int] = msgspec.field(default_factory=dict)
    retention_from: str | None = None
    epoch_per_transaction: bool = True
    notes: tuple[str, ...] = ()
    base: str | None = None
    fresh: bool = False
    log_bytes: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    range_offsets: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)

    def how_of(self, topic: str) -> Making:
        """Return how one changelog's state is made: its retention is among the options."""
        if topic not in self.retention:
            return self.how
        options = {**self.how.options, "retention_ms": self.retention[topic]}
        return replace(self.how, options=options)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "RebuildJob":
        """Return the request in a text. Raises UsageError for what another version wrote."""
        fields = json.loads(text)
        if "how" not in fields:
            raise UsageError(
                "another version of eoctl left a rebuild unfinished there",
                remedy="--clean throws it away",
            )
        fields["cut"] = Cut.model_validate(fields["cut"])
        fields["how"] = Making(**fields["how"])
        fields["notes"] = tuple(fields["notes"])
        return cls(**fields)


def rebuild(
    request: RebuildJob,
    access: Access,
    engine: RebuildEngine,
    name: str,
    slots: Callable[[], int | None] = lambda: None,
) -> Manifest:
    """Make the state and publish it. name: the engine's, for the manifest. slots: returns how many
    of its tasks run at once, None if nobody knows.

    Raises RefusedError if the logs changed below the cut, or another rebuild is at work in the
    folder, and whatever tasks raise.
    """
    storage = request.how.storage
    with storage.held():
        begun = RebuildJob.from_json(state_folder.check_begun(storage, request.to_json()))
        request = replace(request, range_offsets=begun.range_offsets)
        state_folder.sweep(storage)
        if request.how.range_offsets is None and not request.range_offsets:
            request = _with_ranges(request, slots())
            storage.put(state_folder.REQUEST, request.to_json().encode("ascii"))
        return _rebuild(request, access, engine, name)


def _rebuild(request: RebuildJob, access: Access, engine: RebuildEngine, name: str) -> Manifest:
    began = time.monotonic()
    form = request.how.form()
    storage = request.how.storage
    base = state_folder.read(request.base) if request.base else None
    earlier = base.by_partition() if base else {}
    by_partition = _by_partition(_run(_range_tasks(request, access, form, earlier), engine))
    combined = _by_partition(_run(_bucket_tasks(request, by_partition, form), engine))
    for at, merged_rows in combined.items():
        _check_merged(storage, by_partition[at], merged_rows)
    judged, logs = asyncio.run(_look_again(request, access, by_partition, earlier))
    partitions = []
    notes = list(request.notes)
    for topic_partition in request.cut.by_partition():
        lost = _compacted(
            request, topic_partition, by_partition[topic_partition], logs[topic_partition]
        )
        counts = lost is not None and lost[1]
        if lost is not None and not counts:
            notes.append(f"{topic_partition[0]}-{topic_partition[1]}: {lost[0]}")
        partition = _partition(
            request,
            topic_partition,
            by_partition[topic_partition],
            combined.get(topic_partition, []),
            logs[topic_partition].log_start_offset or 0,
            base,
        )
        if lost is not None and counts:
            partition = partition.model_copy(
                update={"incomplete": (*partition.incomplete, lost[0])}
            )
        partitions.append(partition)
    cut = request.cut.model_copy(update=judged._asdict())
    every = [row for values in (by_partition, combined) for some in values.values() for row in some]
    incomplete = tuple(
        f"{p.topic}-{p.partition}: {why}" for p in partitions for why in p.incomplete
    )
    topics = [t.topic for t in cut.topics]
    manifest = Manifest(
        cluster_id=cut.cluster_id,
        format=request.how.format,
        options=dict(request.how.options),
        retention_ms=dict(request.retention),
        retention_from=request.retention_from,
        engine=name,
        started_at=rfc3339(request.started_ms) or "",
        finished_at=rfc3339(now_ms()) or "",
        seconds=round(time.monotonic() - began, 3),
        cut=cut,
        complete=not incomplete,
        incomplete=incomplete,
        consistent=judged.consistent,
        notes=tuple(notes),
        digest=whole(partitions),
        changelogs={t: whole(p for p in partitions if p.topic == t) for t in topics},
        partitions=tuple(partitions),
        topic_configs={t: dict(c) for t, c in request.configs.items() if c is not None},
        versions={**every[0].versions, "platform": platform.machine()} if every else {},
        incremental_from=request.base,
        run="" if storage.exclusive else uuid.uuid4().hex,
        peak_bytes=max((row.peak_bytes for row in every), default=0),
    )
    state_folder.publish(storage, manifest)
    return manifest


def _run(tasks: Mapping[str, Task], engine: RebuildEngine) -> list[TaskRow]:
    """Return the rows of all tasks."""
    rows = {row.key(): row for row in (engine(list(tasks.values())) if tasks else ())}
    if unknown := sorted(rows.keys() - tasks.keys()):
        raise RefusedError(f"the engine returned rows that were not requested: {unknown[0]}")
    lost = sorted(tasks.keys() - rows.keys())
    if lost:
        raise RefusedError(f"the engine ended without a row of {', '.join(lost)}")
    return [rows[key] for key in tasks]


def _with_ranges(request: RebuildJob, slots: int | None) -> RebuildJob:
    """Return the request with the size of its ranges: a later run of it has other slots."""
    offsets, sizes = dict[TopicPartition, int](), dict[TopicPartition, int]()
    for at, p in request.cut.by_partition().items():
        offsets[at] = p.end - p.start
        size = request.log_bytes.get(at.topic, {}).get(str(at.partition))
        tiered = (request.configs.get(at.topic) or {}).get("remote.storage.enable") == "true"
        if size is not None and not tiered:  # else it is only of what the leader still holds
            sizes[at] = size * offsets[at] // max(1, p.high_watermark - p.start)
    ranges_of: dict[str, dict[str, int]] = {}
    for at, most in most_offsets(offsets, sizes, slots).items():
        ranges_of.setdefault(at.topic, {})[str(at.partition)] = most
    return replace(request, range_offsets=ranges_of)


def _range_tasks(
    request: RebuildJob,
    access: Access,
    form: ChangelogFormat,
    earlier: Mapping[TopicPartition, ManifestPartition],
) -> dict[str, Task]:
    """Return the tasks that read ranges: the first of each partition, then the second of each.

    So concurrent tasks do not all read from the leader of one partition.
    """
    tasks: list[tuple[int, RangeTask]] = []
    for topic_partition, p in request.cut.by_partition().items():
        most = max(1, p.end - p.start)
        if form.in_ranges:
            given = request.how.range_offsets
            topic, partition = topic_partition
            most = given or request.range_offsets[topic][str(partition)]
        known = earlier.get(topic_partition)
        parts = ranges(known.end if known else p.start, p.end, most)
        for number, (start, end) in enumerate(parts):
            base = known if number == 0 else None
            task = RangeTask(
                access=access,
                topic=topic_partition.topic,
                partition=topic_partition.partition,
                start=start,
                end=end,
                how=request.how_of(topic_partition.topic),
                in_parts=len(parts) > 1,
                base_folder=request.base or "",
                base=tuple(StateFile(**f.model_dump()) for f in base.files) if base else (),
                base_seen=base.seen if base else {},
            )
            tasks.append((number, task))
    return {task.key(): task for _, task in sorted(tasks, key=lambda numbered: numbered[0])}


def _by_partition(rows: Iterable[TaskRow]) -> dict[TopicPartition, list[TaskRow]]:
    """Return the rows of each partition, in ascending order of range or bucket."""
    by_partition: dict[TopicPartition, list[TaskRow]] = {}
    for row in sorted(rows, key=lambda r: (r.start or 0, r.bucket or 0)):
        by_partition.setdefault(row.topic_partition, []).append(row)
    return by_partition


def _bucket_tasks(
    request: RebuildJob,
    by_partition: Mapping[TopicPartition, list[TaskRow]],
    form: ChangelogFormat,
) -> dict[str, Task]:
    """Return the bucket tasks of each partition read in ranges."""
    by_key: dict[str, Task] = {}
    for (topic, partition), rows in by_partition.items():
        if len(rows) == 1:
            continue
        runs, seen = list(_runs(form, rows)), _summary_of(form, rows)
        plan = plan_merge(request.how.storage, f"{topic}-{partition}", runs)
        into = buckets(
            [run.file.size for run in runs],
            len(rows),
            request.how.memory_bytes,
            by_request=not request.how.storage.exclusive,
        )
        for bucket in range(into):
            task = BucketTask(
                topic=topic,
                partition=partition,
                plan=plan,
                bucket=bucket,
                buckets=into,
                seen=seen,
                how=request.how_of(topic),
            )
            by_key[task.key()] = task
    return by_key


def _check_merged(storage: Storage, rows: Sequence[TaskRow], combined: Sequence[TaskRow]) -> None:
    """Raise RefusedError unless the buckets have read each row of each run once."""
    runs = [run for row in rows for run in row.runs]
    if any(len(row.merged) != len(runs) for row in combined):
        raise RefusedError("the engine returned a row of other runs", where=storage.address)
    for number, run in enumerate(runs):
        if sum(row.merged[number] for row in combined) != run.rows:
            raise damaged(storage, run.path)


def _runs(form: ChangelogFormat, rows: Sequence[TaskRow]) -> Iterator[Run]:
    """Yield the runs of ranges, in ascending order."""
    before: Mapping[str, Any] = {}
    for row in rows:
        yield from (Run(run, before) for run in row.runs)
        before = form.merge(before, row.seen)


def _summary_of(form: ChangelogFormat, rows: Sequence[TaskRow]) -> Mapping[str, Any]:
    summary = rows[0].seen
    for row in rows[1:]:
        summary = form.merge(summary, row.seen)
    return summary


async def _look_again(
    request: RebuildJob,
    access: Access,
    by_partition: Mapping[TopicPartition, list[TaskRow]],
    earlier: Mapping[TopicPartition, ManifestPartition],
) -> tuple[CutJudgement, dict[TopicPartition, PartitionFacts]]:
    """Return what the cut divides, and the logs as they are after reading.

    Raises RefusedError when a log changed below the cut.
    """
    async with Cluster(access.settings(), Deadline(None), read_only=True) as cluster:
        now = await cut_offsets.facts(cluster, request.cut)
        changes = differences(
            request.cut,
            [(f.topic_partition, f.topic_id, f.log_start_offset, f.leader_epoch) for f in now],
        )
        ends = {
            topic_partition: p.position for topic_partition, p in request.cut.by_partition().items()
        }
        standings = await positions.standings(cluster, ends)
        changes += [
            f"{topic}-{partition}: it was cut off at {standing.divergence} and written again"
            for (topic, partition), standing in standings.items()
            if standing.held is False
        ]
        if changes:
            raise RefusedError(
                f"the log changed while it was read: {'; '.join(changes)}",
                remedy="run it again with a new cut",
            )
        below = {
            topic_partition: _producers(
                rows, earlier[topic_partition].producers if topic_partition in earlier else {}
            )
            for topic_partition, rows in by_partition.items()
        }
        behind = await cut_offsets.behind(cluster, request.cut, request.how.max_rate)
    several = len(by_partition) > 1
    outside = any(
        row.counts.get("non_transactional") for rows in by_partition.values() for row in rows
    )
    judged = judge(
        below,
        behind,
        epoch_per_transaction=request.epoch_per_transaction,
        atomic=not (several and outside),
    )
    return judged, {f.topic_partition: f for f in now}


def _compacted(
    request: RebuildJob,
    topic_partition: TopicPartition,
    rows: Sequence[TaskRow],
    log: PartitionFacts,
) -> tuple[str, bool] | None:
    """Return what `compacted_from_above` does."""
    p = request.cut.by_partition()[topic_partition]
    # the cleaner ignores what is above the last stable offset: LogCleanerManager.cleanableOffsets
    stable = log.last_stable_offset
    above = max(0, (p.high_watermark if stable is None else stable) - p.end)
    missing = _added(row.counts for row in rows).get("missing")
    read = sum(row.end - row.start for row in rows if row.start is not None and row.end is not None)
    present = max(1, read - (missing or 0))
    # if the cut was made for this run, only later appends can have closed its segment
    closing = above if request.fresh else present + above
    size = sum(row.bytes_read for row in rows) * closing // present
    read_ms = max(row.last_read_ms or request.started_ms for row in rows)
    cut = request.cut
    made_ms = instant(cut.created_at, request.started_ms, where="the cut")
    # a cut made now at yesterday's instant is as old as that: later records existed
    age_ms = read_ms - (made_ms if cut.instant is None else min(made_ms, cut.instant))
    return compacted_from_above(
        request.configs.get(topic_partition[0]),
        above,
        missing,
        size,
        age_ms,
        at_instant=cut.instant is not None,
    )


def _producers(
    rows: Sequence[TaskRow], earlier: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    producers = dict(earlier)
    for row in rows:
        producers = merged(producers, {k: dict(v) for k, v in row.producers.items()})
    return producers


def _partition(
    request: RebuildJob,
    topic_partition: TopicPartition,
    rows: Sequence[TaskRow],
    combined: Sequence[TaskRow],
    log_start: int,
    base: Manifest | None,
) -> ManifestPartition:
    ends = combined or rows
    form = request.how_of(topic_partition[0]).form()
    p = request.cut.by_partition()[topic_partition]
    known, began_ms = None, request.started_ms
    if base is not None:
        known = base.by_partition().get(topic_partition)
    if base is not None and known is not None:
        began_ms = instant(base.started_at, began_ms)
    read_ms = max(row.last_read_ms or request.started_ms for row in rows)
    summary = _summary_of(form, rows)
    why, proof = completeness(
        form, request.configs.get(topic_partition[0]), log_start, summary, (began_ms, read_ms)
    )
    mixed = None
    if any(row.bytes_by_followers for row in rows):  # two leaders were refused before
        mixed = of_several_replicas(
            request.configs.get(topic_partition[0]),
            {broker for row in rows for broker in row.brokers},
            _added(row.counts for row in rows).get("missing"),
        )
    if mixed is not None:
        why, proof = (*why, mixed), None
    digest = Digest.sum(Digest.of(row.digest_rows, row.digest) for row in ends)
    counts = _added([*([known.counts] if known else []), *(row.counts for row in rows)])
    if combined and form.ignores:  # a range does not know the records before it
        counts["ignored"] = None
    return ManifestPartition(
        topic=topic_partition[0],
        partition=topic_partition[1],
        start=p.start,
        end=p.end,
        counts=counts,
        producers=_producers(rows, known.producers if known else {}),
        expired=sum(row.expired for row in ends),
        digest=ManifestDigest.of(digest),
        files=tuple(ManifestFile(**f.as_dict()) for row in ends for f in row.files),
        seen=dict(summary),
        bytes_read=sum(row.bytes_read for row in rows),
        seconds=round(sum(row.seconds for row in (*rows, *combined)), 3),
        incomplete=why,
        proof=proof,
    )


def _added(counts: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Add the counts of ranges; what one did not know, or never counted, stays unknown."""
    given = list(counts)
    total: dict[str, int | None] = {}
    for name in dict.fromkeys(name for one in given for name in one):
        values = [one.get(name) for one in given]
        known = [value for value in values if value is not None]
        total[name] = sum(known) if len(known) == len(values) else None
    return total
