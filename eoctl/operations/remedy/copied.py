"""Resolve a byte copy of another cluster's transaction as that cluster decided it."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.copied import InSource, compared_with_source
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from eoctl.operations.restart.origin import opened_origin
from eoctl.stores.bundle_files import is_bundle
from recovery.change.plan import Step
from recovery.diagnose.copied import why_proven, why_unproven
from recovery.errors import IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.inspect.observation import OpenTransaction
from recovery.plurals import counted
from recovery.values import Value

PARAMETER = "copied_from"
"""Of a marker's step: context and topic of the source."""


class Proof(Value):
    """Where the source is, and what it proves."""

    context: str
    in_source: InSource

    @property
    def subject(self) -> str:
        """Return the name under which a plan keeps what it observed of the source."""
        return f"{self.in_source.partition} in {self.context}"

    @property
    def parameter(self) -> dict[str, str]:
        """Return what a step needs to compare the two logs again."""
        return {"context": self.context, "topic": self.in_source.partition.topic}

    def facts(self) -> dict[str, Any]:
        """Return what must not change before the marker is written."""
        copied = self.in_source.copied
        decision = copied.decision
        return {
            "cluster_id": self.in_source.cluster_id,
            "topic_id": self.in_source.topic_id,
            "mirror_topic_id": self.in_source.mirror_topic_id,
            "outcome": copied.outcome,
            "batches": copied.compared,
            "missing": copied.missing,
            "marker_offset": None if copied.marker is None else copied.marker.offset,
            "transactional_id": None if decision is None else decision.transactional_id,
            "decision_offset": None if decision is None else decision.offset,
        }

    def evidence(self, about: OpenTransaction) -> dict[str, Any]:
        """Return it as evidence of a step."""
        text = why_proven(about, self.in_source.copied)
        return {"code": "copied-from", "text": text, "data": self.facts()}

    def harms(self) -> tuple[str, ...]:
        """Return what the marker may do, and what it does not make good."""
        found, copied = self.in_source, self.in_source.copied
        ahead = "the source's log goes on after the mirror's end, and " if found.ahead else ""
        stopped = (
            f"{ahead}a link that still runs would get this marker's offset for its next batch: the "
            "two logs would differ from there on. It must be stopped, or the topic promoted"
        )
        harms = [stopped]
        if None in (found.topic_id, found.mirror_topic_id):
            harms.append("without topic ids a topic that is recreated meanwhile may not show")
        if copied.outcome == "commit":
            harms.append("its other partitions in the mirror are not looked at: each is resolved")
        if copied.outcome == "commit" and copied.missing:
            records = counted(
                copied.missing, "record of this transaction is", "records of this transaction are"
            )
            harms.append(f"{records} in the source alone: a part is delivered without the rest")
        return tuple(harms)


async def proof(
    mirror: Cluster, request: RemedyRequest, about: OpenTransaction, skew: int
) -> Proof:
    """Return what proves the requested outcome. skew: of the source's clocks, ms.

    Raises RefusedError if the source proves the other one, IncompleteError if it proves none.
    """
    assert request.source is not None
    topic = request.source_topic or about.topic
    found = await _compared(mirror, request.source, topic, about, skew)
    outcome = _proven(found).in_source.copied.outcome
    if outcome != request.outcome:
        raise RefusedError(
            f"the source decided {outcome}, not {request.outcome}",
            where=found.subject,
            remedy=f"--outcome {outcome}",
        )
    return found


async def observed(mirror: Cluster, step: Step, skew: int) -> dict[str, Any]:
    """Return what the source proves now, by the step's subject; {}: the step stands on none.

    Raises IncompleteError if it proves no outcome any more.
    """
    source = step.parameters.get(PARAMETER)
    if source is None:
        return {}
    p = step.parameters
    about = OpenTransaction(p["topic"], p["partition"], p["producer_id"], p["start_offset"])
    now = _proven(await _compared(mirror, source["context"], source["topic"], about, skew))
    return {now.subject: now.facts()}


def _proven(found: Proof) -> Proof:
    if found.in_source.copied.outcome is None:
        why, remedy = why_unproven(found.in_source.copied)
        raise IncompleteError(why, where=found.subject, remedy=remedy)
    return found


async def _compared(
    mirror: Cluster, context: str, topic: str, about: OpenTransaction, skew: int
) -> Proof:
    if is_bundle(Path(context)):
        raise UsageError(
            "a bundle has no log to compare",
            where="--from-cluster",
            remedy="`eoctl audit mirror-transactions --from` says what was decided by it",
        )
    async with AsyncExitStack() as stack:
        try:
            source = await stack.enter_async_context(opened_origin(context, mirror.deadline))
        except UnreachableError as error:
            raise UnreachableError(
                f"the cluster that the records were copied from does not answer: {error.what}",
                where=context,
                remedy=error.remedy,
            ) from None
        if source.cluster_id == mirror.cluster_id:
            raise UsageError(
                f"is the cluster that the marker is for ({mirror.cluster_id})",
                where="--from-cluster",
                remedy="name the cluster that the records were copied from",
            )
        return Proof(context, await compared_with_source(source, mirror, about, topic, skew))
