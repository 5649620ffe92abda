"""`dedup --engine spark`: the local plan and change, done by Spark jobs instead of this process.

Lock, journal, verification and commits are the local engine's: either engine resumes where the
other was killed. One job finds what would be copied, for the plan; another one copies, one task per
partition.
"""

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from eoctl.engine import dedup_memory
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.dedup.copying import DedupOperation, DedupRun, part_of, plan
from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.operations.jobs.spark_step import Launch, launched
from eoctl.settings.context import Context
from eoctl.stores.storage_address import storage_at
from recovery.change.plan import Plan, Step
from recovery.dedup.dedup_request import DedupInput, DedupPart, DedupRequest
from recovery.dedup.repeats import Tally
from recovery.errors import EoctlError
from recovery.plurals import counted

JOB = "dedup"
SPARK_OFFSETS = 5_000_000  # 20 to 50 us each to look and copy on one core; two sessions take 20 s


def choose_engine(engine: str, parts: Sequence[DedupPart], spark_there: bool) -> tuple[str, str]:
    """Choose local or spark, and say why. engine: checked already; if spark, it is installed."""
    if engine != "auto":
        return engine, "as asked"
    offsets = sum(part.end - part.start for part in parts)
    if offsets < SPARK_OFFSETS:
        return (
            "local",
            f"{counted(offsets, 'offset is', 'offsets are')} copied faster here than by Spark jobs",
        )
    if len(parts) == 1:
        return "local", "one partition is one task: Spark does not make it faster"
    if not spark_there:
        return "local", "Spark is not available"
    return "spark", f"{offsets:,} offsets of {len(parts)} partitions are worth Spark jobs"


def parts_of(plan: Plan) -> list[DedupPart]:
    """Return the parts that a plan copies."""
    return [part_of(step) for step in plan.steps]


class OnSpark:
    """The other engine. memory: a folder that keeps the ids seen, and that executors share, or its
    address.

    None: this host's folder, if the executors run here; else the input is read again.
    """

    def __init__(
        self, spark: Spark, context: Context, show: Show, memory: Path | None = None
    ) -> None:
        here = spark.remote is None and spark.where.startswith("local")
        self._spark, self._context, self._show = spark, context, show
        given = dedup_memory.own_folder() if memory is None and here else memory
        self._memory = None if given is None else storage_at(given)
        self._shared = memory is not None

    def plan(self, run: DedupRun, seconds: float | None) -> Plan:
        """Return the plan that the local engine would make, or raise its refusal."""
        request = run.request
        job = self._job(request, run.topics, run.parts, run.cluster_id, copies=False)
        result = launch(
            job.name,
            job.request,
            self._context.access,
            self._spark,
            summary=job.summary,
            show=self._show,
            context=self._context.title,
            cluster_id=job.cluster_id,
            output=job.output,
            seconds=seconds,
        )
        tallies = [Tally(**result["tallies"][str(part.partition)]) for part in run.parts]
        return plan(run, tallies, self._context)

    @asynccontextmanager
    async def opened(
        self, plan: Plan, context: Context, seconds: float | None
    ) -> AsyncIterator[DedupOperation]:
        """Yield the operation that carries out a plan, on an open cluster."""
        async with context.open(seconds) as cluster:
            yield _Operation(cluster, context, plan, self)

    async def copied(
        self, plan: Plan, parts: Sequence[DedupPart], ensure_held: Callable[[], None]
    ) -> Mapping[str, Any]:
        """Return the tally of each partition, by its number as text: see `spark_jobs.dedup`."""
        request = DedupRequest.of(plan.details["wish"])
        job = self._job(request, plan.observed["topics"], parts, plan.cluster_id, copies=True)
        cancel = threading.Event()
        result = await launched(job, self._context, self._spark, self._show, cancel, ensure_held)
        tallies: Mapping[str, Any] = result["copied"]
        return tallies

    def _job(
        self,
        request: DedupRequest,
        topics: Mapping[str, Any],
        parts: Sequence[DedupPart],
        cluster_id: str,
        *,
        copies: bool,
    ) -> Launch:
        dedup_input = DedupInput(
            request=request.plain,
            topics=dict(topics),
            parts=tuple(parts),
            memory=None if self._memory is None else self._memory.address,
            shared=self._shared,
            copies=copies,
        )
        does = f"copy of {request.source} to" if copies else f"look at {request.source} for"
        summary = f"{does} {request.output}"
        return Launch(JOB, dedup_input.model_dump(mode="json"), summary, cluster_id, request.output)


class _Operation(DedupOperation):
    """A `Together` (see `steps`): one job for all partitions that remain."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan, engine: OnSpark) -> None:
        super().__init__(cluster, context, plan, None)
        self._plan, self._engine = plan, engine
        self._left: list[DedupPart] = []
        self._copied: Mapping[str, Any] | None = None
        self._failed: EoctlError | None = None

    def left(self, steps: Sequence[Step]) -> None:
        self._left = [part_of(step) for step in steps]

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Return what the job copied of this step's partition, for the journal."""
        if self._failed is not None:
            raise self._failed
        if self._copied is None:
            try:
                self._copied = await self._engine.copied(self._plan, self._left, ensure_held)
            except EoctlError as error:
                self._failed = error
                raise
        await self._decided(part_of(step))
        return self._copied[str(step.parameters["partition"])]
