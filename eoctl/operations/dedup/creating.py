"""Create a clean copy's topic like its input: partitions, replicas, settings.

A separate change before the copy is planned: the copy's plan is bound to the topic's id.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eoctl.kafka.ask import configs
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.write import topics
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import Effect, on_cluster
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.dedup.dedup_request import DedupRequest
from recovery.errors import IncompleteError
from recovery.plurals import counted

KIND = "dedup-create"
KEPT_SETTINGS = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
"""Settings of the input that its copy should have, or it loses or refuses records otherwise."""
_ABSENT = "UNKNOWN_TOPIC_OR_PARTITION"


async def as_input(
    cluster: Cluster, source: TopicMetadata
) -> tuple[int, int | None, dict[str, str | None]]:
    """Return what the copy's topic needs: partitions, replicas of each, settings."""
    settings, _ = await configs.topic_configs(cluster, [source.name], KEPT_SETTINGS)
    replicas = max((len(p.replicas) for p in source.partitions), default=None)
    return len(source.partitions), replicas, settings.get(source.name) or {}


async def plan(cluster: Cluster, context: Context, request: DedupRequest) -> Plan | None:
    """Return the plan that creates the output; None: it exists. Raises IncompleteError."""
    described = (await cluster.metadata([request.source, request.output])).topics
    source, output = described.get(request.source), described.get(request.output)
    if source is None or source.error or output is None or output.error != _ABSENT:
        return None  # the copy will say what is wrong with them
    partitions, replicas, settings = await as_input(cluster, source)
    if any(settings.get(key) is None for key in KEPT_SETTINGS):
        raise IncompleteError(
            "its settings are hidden: the copy's topic cannot get the same ones",
            where=request.source,
            remedy="grant DESCRIBE_CONFIGS on it, or create the topic yourself",
        )
    does = (
        f"{request.output} with {counted(partitions, 'partition')} of "
        f"{counted(replicas or 0, 'replica')}, and the settings of {request.source}"
    )
    return new_plan(
        context,
        cluster.cluster_id,
        kind=KIND,
        action="create",
        scope=f"topic {request.output}",
        summary=does,
        observed=_observed(source, output),
        steps=(
            Step(
                action="create",
                target=request.output,
                parameters={
                    "source": request.source,
                    "partitions": partitions,
                    "replicas": replicas,
                    "settings": settings,
                },
                does=does + ": " + ", ".join(f"{k}={v}" for k, v in sorted(settings.items())),
                stands_on=(request.source, request.output),
            ),
        ),
        hits=request.output,
    )


def _observed(source: TopicMetadata | None, output: TopicMetadata | None) -> dict[str, Any]:
    known = {} if source is None else {source.name: {"topic_id": source.topic_id}}
    return known if output is None else known | {output.name: {"topic_id": output.topic_id}}


class Creating:
    """See `eoctl.operations.change.steps.Operation`."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan) -> None:
        self._cluster = cluster

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        return _observed(*await self._topics(steps[0]))

    async def _topics(self, step: Step) -> tuple[TopicMetadata | None, TopicMetadata | None]:
        names = [step.parameters["source"], step.target]
        described = (await self._cluster.metadata(names)).topics
        return described.get(names[0]), described.get(names[1])

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        p = step.parameters
        await topics.create(
            self._cluster, step.target, p["partitions"], p["replicas"], p["settings"]
        )
        return {"created": step.target}

    async def verify(self, step: Step) -> Effect:
        _, output = await self._topics(step)
        if output is None or output.error == _ABSENT:
            return Effect(False, None, "the topic does not exist", untouched=True)
        if output.error is not None:
            return Effect(None, None, f"the topic cannot be seen ({output.error})")
        led = sum(p.leader is not None for p in output.partitions)
        done = led == len(output.partitions) == step.parameters["partitions"]
        return Effect(
            done, {"topic_id": output.topic_id}, f"{counted(led, 'partition')} with a leader"
        )


opened = on_cluster(Creating)
