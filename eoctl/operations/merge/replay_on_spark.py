"""`merge replay --engine spark`: the same change, carried out by a Spark job instead of threads.

Plan, lock, journal and verification are the local engine's; only the step itself differs: the
offsets are read here, and the job gets what they mean as numbers.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.write.exactly_once import committed
from eoctl.operations.jobs.spark_launch import Show, Spark
from eoctl.operations.jobs.spark_step import Launch, launched
from eoctl.operations.merge.planning import Merge, MergeLook, Reached, look, reached
from eoctl.operations.merge.replay_change import Replaying, Running, asked_again
from eoctl.settings.context import Context, state_dir
from eoctl.stores.storage_address import storage_at
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, UsageError
from recovery.facts import TopicPartition
from recovery.merge.merge_request import MergePart, ReplayRequest, log_of
from recovery.merge.replay import Base
from recovery.plurals import counted
from recovery.shared.app_file import named
from recovery.times import rfc3339

SPARK_ENTRIES = 50_000_000  # below, the local engine ends before Spark would pay for its session
RANGE_OFFSETS = 5_000_000


def check_engine(engine: str, *, follow: bool) -> None:
    """Raise UsageError for options that the chosen engine does not support."""
    if engine == "spark" and follow:
        raise UsageError(
            "a Spark job ends at the tip, and cannot follow",
            where="--engine spark, --follow",
            remedy="replay on Spark first, then follow with the local engine",
        )


def choose_engine(
    engine: str, plan: Plan, spark_there: bool, *, follow: bool = False
) -> tuple[str, str]:
    """Choose local or spark, and say why. engine: checked already; if spark, it is installed."""
    if engine != "auto":
        return engine, "as asked"
    if follow:
        return "local", "Spark cannot follow"
    offsets = sum(p["to"] - p["from"] for p in plan.details["partitions"])
    if offsets < SPARK_ENTRIES:
        return (
            "local",
            f"{counted(offsets, 'offset')} of the log: replayed faster here than by a Spark job",
        )
    if not spark_there:
        return "local", "Spark is not available"
    return "spark", f"{offsets:,} offsets of the log are worth a Spark job"


def on_spark(
    spark: Spark, context: Context, show: Show, staging: Path | None = None
) -> Callable[[Cluster, Running, int | None], Replaying]:
    """Return what makes the operation of a replay. staging: a folder that executors share with this
    machine; None: in the state folder."""

    def made(cluster: Cluster, running: Running, max_rate: int | None) -> Replaying:
        return _OnSpark(cluster, running, max_rate, (spark, context, show, staging))

    return made


class _OnSpark(Replaying):
    """See Replaying. A single step: a job for all partitions."""

    def __init__(
        self,
        cluster: Cluster,
        running: Running,
        max_rate: int | None,
        given: tuple[Spark, Context, Show, Path | None],
    ) -> None:
        super().__init__(cluster, running, max_rate)
        self._spark, self._context, self._show, self._staging = given

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Replay to the tip as of the start."""
        self._cluster.refuse_read_only()
        merge = asked_again(step)
        request = await self._request(merge)
        self._tips = {part.partition: part.tip for part in request.parts}
        result = await launched(
            Launch(
                "merge_replay",
                request.model_dump(mode="json"),
                summary=f"replay of {request.merge} to {request.output}",
                cluster_id=request.cluster_id,
                output=request.output,
            ),
            self._context,
            self._spark,
            self._show,
            self._running.cancel,
            ensure_held,
        )
        return {
            "sent": {
                named(TopicPartition(request.merge, int(p))): n for p, n in result["sent"].items()
            }
        }

    async def _request(self, merge: Merge) -> ReplayRequest:
        logs = await look(self._cluster, merge, twice=True)
        if logs.missing:
            raise IncompleteError(logs.missing[0].detail, where=logs.missing[0].topic)
        output = merge.output or ""
        given = {n: Base(at, TopicPartition(output, n), o) for n, (at, o) in merge.bases.items()}
        topic_partitions = [TopicPartition(merge.topic, n) for n in given]
        before = await committed(self._cluster, merge.group, topic_partitions)
        now_there = await reached(self._cluster, merge, given, logs)
        parts = []
        for n, now in now_there.items():
            raw = before.get(TopicPartition(merge.topic, n))
            parts.append(
                MergePart(
                    partition=n,
                    base=given[n],
                    position=now.position.merge_offset,
                    drop_left=now.position.drop_left,
                    tip=now.tip,
                    committed=None if raw is None else (raw.offset, raw.metadata),
                    leader_epoch=now.leader_epoch,
                )
            )
        staging = storage_at(self._staging or state_dir() / "merge-staging").address
        return ReplayRequest(
            merge=merge.topic,
            format=merge.format,
            inputs=merge.inputs,
            output=output,
            isolation=merge.isolation,
            group=merge.group,
            staging=f"{staging}/{self._cluster.cluster_id}-{quote(merge.group, safe='')}",
            cluster_id=self._cluster.cluster_id,
            created_at=rfc3339(now_ms()) or "",
            topic_ids={topic: f.topic_id for (topic, _), f in logs.facts.items()},
            logs=_logs(merge, logs, now_there),
            parts=tuple(parts),
            max_rate=self._max_rate,
            range_offsets=RANGE_OFFSETS,
        )


def _logs(merge: Merge, look_: MergeLook, now: Mapping[int, Reached]) -> Any:
    """Return partitions of the log up to their tips, and inputs whose offsets are known."""
    logs = []
    for topic_partition, facts in sorted(look_.facts.items()):
        if facts.error is not None or facts.high_watermark is None:
            continue
        if topic_partition[0] == merge.topic and topic_partition[1] in now:
            low, _ = look_.bounds(topic_partition, "read_committed")
            logs.append(log_of(facts, low, now[topic_partition[1]].tip))
        elif topic_partition[0] in merge.inputs:
            logs.append(log_of(facts, *look_.bounds(topic_partition, merge.isolation)))
    return tuple(logs)
