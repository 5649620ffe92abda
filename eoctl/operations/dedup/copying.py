"""`dedup`: copy a topic without its repeats, exactly once.

Partition p of the input is read in order up to its last stable offset; records that are no repeats
go to partition p of the output, in a transaction that also commits how far the input was read.
After a kill the next run continues from there. `recovery.dedup.repeats` decides;
`eoctl.engine.dedup_task` reads and writes, here or in a Spark job
(`eoctl.operations.dedup.dedup_on_spark`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from eoctl.engine import dedup_memory, dedup_task
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer, committed, last_committed
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.new_plan import known_id, new_plan
from eoctl.operations.change.steps import Effect, die_here_in_tests
from eoctl.operations.dedup.creating import as_input
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores.storage import Storage
from eoctl.stores.storage_address import storage_at
from recovery.change.plan import Plan, Step
from recovery.dedup.dedup_request import DedupJob, DedupPart, DedupRequest, scattered_error
from recovery.dedup.repeats import Tally
from recovery.errors import (
    NO_SUCH_TOPIC,
    IncompleteError,
    RefusedError,
    UnverifiedError,
    UsageError,
    no_topic,
    topic_problem,
)
from recovery.facts import PartitionFacts, TopicPartition
from recovery.inspect.rights import Need, needs_of_copy
from recovery.plurals import count, counted
from recovery.shared.source_numbers import Scattered
from recovery.values import Value, replace

KIND = "dedup"
GOES_ON = True
DIGEST = "rule"  # the parameter of a step that holds the job's digest

DedupProgress = Callable[[str, int, int], None]
"""Called with (what, offsets read, offsets in all)."""


class DedupRun(Value):
    """The input of one run. topics: by name, the topic's id and number of partitions.

    unproven: a sentence for each position that may belong to an earlier log.
    """

    request: DedupRequest
    cluster_id: str
    topics: Mapping[str, Any]
    parts: tuple[DedupPart, ...]
    unproven: tuple[str, ...] = ()


async def find(cluster: Cluster, request: DedupRequest) -> DedupRun | None:
    """Return the run that a dedup would read, None if there is nothing new.

    Raises RefusedError if a part of it is gone, the position was lost, or --follow is due.
    """
    topics = await _topics(cluster, request)
    job = DedupJob.of(request, topics)
    inputs = await dedup_task.partitions(cluster, request.source)
    outputs = await dedup_task.partitions(cluster, request.output)
    partitions = [TopicPartition(request.source, p.partition) for p in inputs]
    positions, pending = await last_committed(cluster, request.group, partitions)
    unproven = await dedup_task.refuse_other_log(cluster, positions)
    parts, finished = [], []
    for facts, output in zip(inputs, outputs, strict=True):
        position = positions.get(facts.topic_partition)
        if position is None and not pending:  # else the copy reads it, once the commit is decided
            await dedup_task.refuse_written(cluster, output)
        part = _part(facts, position, job)
        # a partition without records gets a position too, to notice deletions before the next run
        if position is None or part.start < part.end:
            parts.append(part)
        elif part.end < dedup_task.stable(facts):
            finished.append(str(facts.topic_partition))
    if not parts:
        if finished and not request.follow:
            raise RefusedError(
                f"this job is done; records came since on {', '.join(finished[:5])}",
                where=request.group,
                remedy="--follow copies them",
            )
        return None
    cluster_id = known_id(cluster.cluster_id, request.source)
    return DedupRun(request, cluster_id, topics, tuple(parts), tuple(unproven))


def plan(run: DedupRun, tallies: Sequence[Tally], context: Context) -> Plan:
    """Return what would be copied. tallies: of each part, as found by either engine."""
    request = run.request
    total = sum(tallies, Tally())
    job = DedupJob.of(request, run.topics)
    return new_plan(
        context,
        run.cluster_id,
        kind=KIND,
        action="dedup",
        scope=scope(request),
        summary=f"{request.source} -> {request.output}: {_words(total)}"
        + "".join(f"; {text}" for text in run.unproven),
        observed={"topics": run.topics},
        steps=tuple(_step(job, *both) for both in zip(run.parts, tallies, strict=True)),
        independent=True,
        details={"wish": request.plain, "tally": asdict(total), "beyond": request.beyond},
    )


def scope(request: DedupRequest) -> str:
    """Return the lock's scope: two dedups with one output would exclude each other's records."""
    return f"dedup {request.output}"


def is_for(plan: Plan, request: DedupRequest) -> bool:
    """Return True if the plan was made for this request. The reading rate does not matter."""
    return DedupRequest.of(plan.details["wish"]).settings == request.settings


def at_rate(plan: Plan, request: DedupRequest) -> Plan:
    """Return this plan, read at the rate that is requested now."""
    wish_at_rate = replace(DedupRequest.of(plan.details["wish"]), max_rate=request.max_rate)
    return plan.model_copy(update={"details": {**plan.details, "wish": wish_at_rate.plain}})


def part_of(step: Step) -> DedupPart:
    """Return the part that a plan's step copies."""
    return DedupPart.model_validate({k: v for k, v in step.parameters.items() if k != DIGEST})


def _words(tally: Tally) -> str:
    text = f"{count(tally.copied)} of {counted(tally.records, 'record')} copied, "
    text += f"{counted(tally.duplicates, 'repeat')} left out"
    if tally.without_id:
        text += f", {count(tally.without_id)} copied without an id"
    if tally.differs:
        text += f", {count(tally.differs)} copied with a number that repeats and other content"
    if tally.unchecked:
        text += f", {count(tally.unchecked)} of the repeats recognised by their number alone"
    return text


def _step(job: DedupJob, part: DedupPart, tally: Tally) -> Step:
    request = job.request
    empty = part.start == part.end
    return Step(
        action="copy",
        target=f"{request.output}:{part.partition}",
        parameters=part.model_dump() | {DIGEST: job.digest},  # the rule is approved, too
        does=f"from {request.source}:{part.partition} [{part.start}, {part.end}) "
        + ("nothing is there yet: only the position" if empty else _words(tally)),
        stands_on=("topics",),
    )


async def _topics(cluster: Cluster, request: DedupRequest) -> dict[str, Any]:
    """Return both topics' ids and partition counts. Raises RefusedError if they do not fit."""
    if request.source == request.output:
        raise UsageError("a topic cannot be its own clean copy", where=request.output)
    topics = (await cluster.metadata([request.source, request.output])).topics
    source = _there(topics.get(request.source), request.source)
    output = topics.get(request.output)
    if output is not None and output.error == "UNKNOWN_TOPIC_OR_PARTITION":
        partitions, replicas, settings = await as_input(cluster, source)
        servers = cluster.settings.bootstrap_servers
        raise no_topic(request.output, partitions, servers, replicas, settings)
    output = _there(output, request.output)
    if len(source.partitions) != len(output.partitions):
        raise RefusedError(
            f"it has {counted(len(output.partitions), 'partition')}, {request.source} has "
            f"{len(source.partitions)}: partition p is copied to partition p",
            where=request.output,
        )
    return {t.name: [t.topic_id, len(t.partitions)] for t in (source, output)}


def _there(topic: TopicMetadata | None, name: str) -> TopicMetadata:
    if topic is None or topic.error == "UNKNOWN_TOPIC_OR_PARTITION":
        raise RefusedError(NO_SUCH_TOPIC, where=name)
    if topic.error is not None:
        raise IncompleteError(f"{topic_problem(topic.error)} ({topic.error})", where=name)
    return topic


def _part(facts: PartitionFacts, position: CommittedPosition | None, job: DedupJob) -> DedupPart:
    """Return the part to read now. Raises RefusedError if some of it was deleted."""
    assert facts.log_start_offset is not None
    stable = dedup_task.stable(facts)
    if position is None:
        first = facts.log_start_offset
        return DedupPart(partition=facts.partition, begin=first, start=first, end=stable)
    begin, end, ids_known = job.beside(position.metadata, str(facts.topic_partition))
    end = max(end, stable) if job.request.follow else end
    start = position.offset
    dedup_task.refuse_lost(facts, start, end)
    return DedupPart(partition=facts.partition, begin=begin, start=start, end=end, seen=ids_known)


@asynccontextmanager
async def opened(
    plan: Plan, context: Context, seconds: float | None
) -> AsyncIterator["DedupOperation"]:
    """Yield the operation that carries out a dedup's plan in this process, on an open cluster."""
    async with Here(context).opened(plan, context, seconds) as operation:
        yield operation


class Here:
    """The local engine: one partition after the other, in this process.

    memory: the folder that keeps the ids seen, or its address; None: this host's.
    """

    def __init__(self, context: Context, memory: Path | None = None) -> None:
        self._context, self._memory = context, storage_at(memory or dedup_memory.own_folder())

    def plan(self, run: DedupRun, seconds: float | None, progress: DedupProgress) -> Plan:
        """Return what would be copied, found by reading all of it within `seconds`.

        Raises RefusedError, with the reason, if the copy would be wrong.
        """
        tallies = with_cluster(self._context, seconds, lambda c: self._look(c, run, progress))
        return plan(run, tallies, self._context)

    async def _look(self, cluster: Cluster, run: DedupRun, progress: DedupProgress) -> list[Tally]:
        request, job = run.request, DedupJob.of(run.request, run.topics)
        scattered = Scattered() if request.by.kind == "source" else None
        tallies = []
        for part in run.parts:
            on_progress = partial(progress, f"{request.source}:{part.partition} offsets")
            tally = await dedup_task.look(cluster, job, part, self._memory, scattered, on_progress)
            if scattered is not None and scattered.found:
                raise scattered_error(request, scattered.found)
            tallies.append(tally)
        return tallies

    @asynccontextmanager
    async def opened(
        self, plan: Plan, context: Context, seconds: float | None
    ) -> AsyncIterator["DedupOperation"]:
        """Yield the operation that carries out a plan, on an open cluster."""
        async with context.open(seconds) as cluster:
            yield DedupOperation(cluster, context, plan, self._memory)


class DedupOperation:
    """Observes, performs and verifies the copies of one plan. memory: keeps the ids seen."""

    def __init__(
        self, cluster: Cluster, context: Context, plan: Plan, memory: Storage | None
    ) -> None:
        self._cluster, self._context = cluster, context
        self._request = DedupRequest.of(plan.details["wish"])
        self._job = DedupJob.of(self._request, plan.observed["topics"])
        self._memory = memory

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Return the topics, as they are now."""
        self._cluster.forgive()
        return {"topics": await _topics(self._cluster, self._request)}

    def needs(self, step: Step) -> frozenset[Need]:
        r = self._request
        return needs_of_copy([r.source], [r.output], r.group)

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Copy from the committed position to the step's end; return what was copied."""
        part, job = part_of(step), self._job
        settings = self._context.settings()
        writer = Writer(
            settings,
            job.transactional_id(part.partition),
            job.request.group,
            timeout_ms=dedup_task.TRANSACTION_MS,
        )
        await asyncio.to_thread(writer.open)  # first: it fences, then the position is final
        has_committed = False

        def on_point(point: str) -> None:
            nonlocal has_committed
            has_committed = has_committed or point == "committed"
            die_here_in_tests(f"dedup-{point}")

        try:
            left = await dedup_task.left(self._cluster, job, part)
            if left is None:
                return asdict(Tally())
            done = await dedup_task.copy(
                self._cluster,
                job,
                left,
                writer,
                self._memory,
                ensure_held=ensure_held,
                on_point=on_point,
            )
            await self._decided(part)
            return asdict(done)
        except RefusedError as error:
            if not has_committed:
                raise
            raise UnverifiedError.of(error) from None
        finally:
            await asyncio.to_thread(writer.close)

    async def _decided(self, part: DedupPart) -> None:
        """Wait for a part's committed position: a commit is answered before it is visible."""
        partition = TopicPartition(self._request.source, part.partition)
        await committed(self._cluster, self._request.group, [partition])

    async def verify(self, step: Step) -> Effect:
        """Check whether everything up to the step's end is copied."""
        self._cluster.forgive()
        partition = TopicPartition(self._request.source, int(step.parameters["partition"]))
        now, pending = await last_committed(self._cluster, self._request.group, [partition])
        standing, name = now.get(partition), str(partition)
        if standing is None:
            return Effect(False, None, f"nothing of {name} is copied", final=not pending)
        self._job.beside(standing.metadata, name)
        await dedup_task.refuse_other_log(self._cluster, {partition: standing})
        done = standing.offset >= step.parameters["end"]
        detail = f"{name} is copied up to offset {standing.offset}"
        return Effect(done, standing.offset, detail, final=not pending)
