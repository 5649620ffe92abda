"""`state deliver --into topic:` on Spark: the local plan and change, the sending done by a job.

Lock, journal and verification are the local engine's; what the tasks have read back is not read
again unless the topic has moved since.
"""

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from eoctl.engine.delivered import DeliveredState
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.jobs.spark_launch import Show, Spark
from eoctl.operations.jobs.spark_step import Launch, launched
from eoctl.operations.state.delivery import DeliveryRequest, named, sources
from eoctl.operations.state.into_topic import IntoTopic
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.errors import EoctlError, UsageError
from recovery.state.manifest import ManifestDigest
from recovery.state.state_jobs import DeliverRequest
from recovery.values import Value


class DeliverOnSpark(Value):
    """The other engine."""

    spark: Spark
    show: Show

    @asynccontextmanager
    async def opened(
        self, plan: Plan, context: Context, seconds: float | None
    ) -> AsyncIterator[IntoTopic]:
        """Yield the operation that carries out a delivery's plan."""
        request = DeliveryRequest(**plan.steps[0].parameters["wish"])
        [state] = sources(request)
        async with context.open(seconds) as cluster:
            yield _Operation(cluster, context, request, state, self)


def refuse_other_places(into: str) -> None:
    """Raise UsageError for a place that tasks do not write."""
    if not into.startswith("topic:"):
        raise UsageError(
            "tasks write into topics alone",
            where=f"--into {into.partition(':')[0]}:",
            remedy="leave out the options of Spark",
        )


class _Operation(IntoTopic):
    """A `Together` (see `steps`): one job for all partitions that remain."""

    def __init__(
        self,
        cluster: Cluster,
        context: Context,
        request: DeliveryRequest,
        state: DeliveredState,
        engine: DeliverOnSpark,
    ) -> None:
        super().__init__(cluster, cluster.settings, request, state)
        self._context, self._engine = context, engine
        self._left: Sequence[Step] = ()
        self._delivered: Mapping[str, Any] | None = None
        self._failed: EoctlError | None = None

    def left(self, steps: Sequence[Step]) -> None:
        self._left = steps

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Return what the job sent of this step's partition, for the journal."""
        if self._failed is not None:
            raise self._failed
        if self._delivered is None:
            try:
                self._delivered = await self._job(ensure_held)
            except EoctlError as error:
                self._failed = error
                raise
        p = int(step.parameters["partition"])
        done = self._delivered[str(p)]
        self.there.read[p, done["start"], done["end"]] = ManifestDigest(**done["digest"]).digest()
        return {"sent": done["sent"], "rows": done["rows"]}

    async def _job(self, ensure_held: Callable[[], None]) -> Mapping[str, Any]:
        request = DeliverRequest(
            state=named(self._request.folder, self._source.sha256),
            changelog=self._source.changelog,
            cluster_id=self._cluster.cluster_id,
            topic=self._topic,
            topic_id=self._left[0].parameters["topic_id"],
            partitions=tuple(int(step.parameters["partition"]) for step in self._left),
        )
        job = Launch(
            "deliver",
            request.model_dump(mode="json"),
            f"delivery of {self._source.changelog} into {self.name}",
            self._cluster.cluster_id,
            self._topic,
        )
        engine = self._engine
        result = await launched(
            job, self._context, engine.spark, engine.show, threading.Event(), ensure_held
        )
        delivered: Mapping[str, Any] = result["delivered"]
        return delivered
