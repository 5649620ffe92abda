"""Carry out an audit: resolve what to read, have an engine read it, build the answer.

The engines differ in where partitions are read and judged: in this process, or by tasks of a Spark
job. What they find is the same value, and the answer is built from it.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.ranges import AuditOptions, resolve
from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores import private
from recovery.answers import Answer
from recovery.audit.audit_request import AuditRequest, AuditResult, Resolved
from recovery.audit.transaction_facts import Coverage
from recovery.errors import IncompleteError
from recovery.facts import Missing, TopicPartition
from recovery.inspect.lost_markers import OwnMarker
from recovery.plurals import counted
from recovery.selectors import Selector
from recovery.shared.offset_bounds import Bound
from recovery.values import Value, replace

NAMED = 5  # topics named in a job's summary; if there are more, their number

F = TypeVar("F", bound=AuditResult)


class AuditedRanges(Value):
    """The ranges that an audit reads. missing: what cannot be read. covered: what coordinators
    decided, if that matters. later: what they had decided once the ends were chosen, where it
    differs. own: the markers in this host's journal."""

    cluster_id: str | None
    ranges: Sequence[Resolved]
    missing: Sequence[Missing]
    covered: Sequence[Coverage] = ()
    later: Sequence[Coverage] = ()
    own: Sequence[OwnMarker] = ()

    @property
    def offsets(self) -> int:
        return sum(r.end - r.start for r in self.ranges)

    def unseen(self, result: AuditResult) -> list[Missing]:
        """Return everything missing, with unreadable ranges in the ranges' order."""
        order = {r.topic_partition: number for number, r in enumerate(self.ranges)}
        failed = sorted(
            result.failed, key=lambda m: order[TopicPartition(m.topic or "", m.partition or 0)]
        )
        return [*self.missing, *failed]


class Audit(ABC, Generic[F]):
    """One audit. job: the Spark job's name; spark_offsets: below these, the local engine ends
    before Spark would pay for its session."""

    job: ClassVar[str]
    spark_offsets: ClassVar[int]

    answer_type: type[F]  # the result of reading

    @abstractmethod
    async def look(self, cluster: Cluster) -> AuditedRanges:
        """Return the ranges to read."""

    @abstractmethod
    async def read(self, cluster: Cluster, audited: AuditedRanges, reading: AuditOptions) -> F:
        """Read and judge the ranges in this process."""

    @abstractmethod
    def request(self, audited: AuditedRanges, reading: AuditOptions) -> AuditRequest:
        """Return the request of a Spark job."""

    def asked(self, audited: AuditedRanges, reading: AuditOptions) -> dict[str, Any]:
        """Return what each request reads, and how."""
        return {
            "ranges": tuple(audited.ranges),
            "most": reading.most,
            "check_crc": reading.check_crc,
            "max_rate": reading.max_rate,
            "missing": tuple(audited.missing),
        }

    @abstractmethod
    def answer(self, audited: AuditedRanges, result: F) -> Answer:
        """Return the command's answer."""

    def access(self, context: Context) -> Access:
        """Return what a Spark job needs to reach the cluster of `context`, and any other."""
        return context.access

    def alone(self) -> AbstractContextManager[None]:
        """Return what keeps other runs away while the audit runs. Raises BusyError if one runs."""
        return nullcontext()

    def take(self, audited: AuditedRanges, folder: Path, *, last: bool) -> None:
        """Take what a running job has put into the folder of its answer, several times a second.

        last: the job has ended.
        """


@dataclass(frozen=True)
class RangesAudit(Audit[F]):
    """An audit of the offsets [start, end) of the named partitions."""

    selectors: Sequence[Selector]
    start: Bound
    end: Bound

    async def look(self, cluster: Cluster) -> AuditedRanges:
        ranges, missing = await resolve(cluster, self.selectors, self.start, self.end)
        return AuditedRanges(cluster.cluster_id, ranges, missing)


class AuditEngine(Value):
    """asked: auto, local or spark. spark: the one to use, None without Spark."""

    asked: str = "local"
    spark: Spark | None = None
    show: Show = lambda report: None

    def choose(self, offsets: int, enough: int, max_rate: float | None) -> tuple[str, str]:
        """Return local or spark, and why."""
        if self.asked != "auto":
            return self.asked, "as asked"
        if offsets < enough:
            return "local", f"only {counted(offsets, 'offset')} to read"
        if self.spark is None:
            return "local", "Spark is not available"
        if max_rate is not None:
            return "local", "one process reads as fast as --max-rate allows"
        return "spark", f"{offsets:,} offsets are worth starting Spark"


def audited(
    context: Context,
    seconds: float | None,
    audit: Audit[F],
    reading: AuditOptions,
    engine: AuditEngine,
) -> Answer:
    """Return the answer, which names the chosen engine and the reason.

    Raises what `with_cluster` and `launch` raise.
    """
    bound = None if seconds is None else time.monotonic() + seconds

    async def looked(cluster: Cluster) -> tuple[AuditedRanges, tuple[str, str], F | None]:
        ranges = await audit.look(cluster)
        chosen = engine.choose(ranges.offsets, audit.spark_offsets, reading.max_rate)
        here = chosen[0] == "local"
        return ranges, chosen, await audit.read(cluster, ranges, reading) if here else None

    with audit.alone():
        ranges, (name, why), result = with_cluster(context, seconds, looked)
        if result is None:
            left = None if bound is None else bound - time.monotonic()
            result = _on_spark(context, left, audit, audit.request(ranges, reading), engine, ranges)
        answer = audit.answer(ranges, result)
    return replace(answer, extra={**answer.extra, "engine": name, "engine_why": why})


async def here(cluster: Cluster, audit: Audit[F], reading: AuditOptions) -> Answer:
    """Return the answer of the local engine."""
    ranges = await audit.look(cluster)
    return audit.answer(ranges, await audit.read(cluster, ranges, reading))


def _on_spark(
    context: Context,
    seconds: float | None,
    audit: Audit[F],
    request: AuditRequest,
    engine: AuditEngine,
    ranges: AuditedRanges,
) -> F:
    assert engine.spark is not None
    if seconds is not None and seconds <= 0:
        raise IncompleteError("the time was up before it began", remedy="more with --timeout")
    topics = sorted({r.topic for r in request.ranges})
    about = ", ".join(topics) if 0 < len(topics) <= NAMED else counted(len(topics), "topic")
    # findings hold keys of records: the job's folder must not keep them
    with private.temporary("audit") as folder:
        answer = folder / "found.json"
        with_answer = request.model_copy(update={"answer": str(answer)})
        try:
            launch(
                audit.job,
                with_answer.model_dump(mode="json"),
                audit.access(context),
                engine.spark,
                summary=f"{audit.job.replace('_', ' ')} of {about}",
                show=engine.show,
                context=context.title,
                cluster_id=ranges.cluster_id,
                seconds=seconds,
                beat=lambda: audit.take(ranges, folder, last=False),
            )
        except BaseException:
            with suppress(Exception):  # why the job ended is what to say
                audit.take(ranges, folder, last=True)
            raise
        audit.take(ranges, folder, last=True)
        return audit.answer_type.model_validate(json.loads(answer.read_bytes()))
