"""Carry out the remedies: abort an orphan, fence an owned transaction, resolve a lost marker.

Each is planned on a full diagnosis, judged again right before it acts, and verified by
DescribeProducers and the LSO, never by the broker's answer. `acting` does the rest.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.steps import Effect, on_cluster
from eoctl.operations.diagnose.judging import diagnose, look_again
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import checkpoint_commit, copied
from eoctl.operations.remedy import commit as remedy_commit
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.living import refuse_new_writes, with_evidence
from eoctl.operations.remedy.remedy_plan import Planned, RemedyRequest, is_for
from eoctl.operations.remedy.shutting_out import ShutOut, described
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.diagnose.diagnosis import Judged
from recovery.errors import RefusedError, UnverifiedError
from recovery.inspect.observation import Settings
from recovery.inspect.rights import WRITES_MARKERS, Need
from recovery.remedy.repairs import MARKER_ACTION
from recovery.selectors import parse_selector

__all__ = ["Planned", "RemedyOperation", "RemedyRequest", "is_for", "opened", "plan"]


_COMMITS = (remedy_commit.ACTION, checkpoint_commit.ACTION)


async def plan(
    cluster: Cluster, context: Context, request: RemedyRequest, settings: Settings, *, pause: float
) -> Planned:
    """Return the plan of one remedy. Raises RefusedError, which names the right remedy, and
    IncompleteError if the transaction cannot be judged."""
    if request.action == "fence":
        if (done := await remedy_fence.done_before(cluster, request)) is not None:
            return Planned(None, done)
        fence_plan = await remedy_fence.plan(cluster, context, request, settings, pause)
        return Planned(await with_evidence(cluster, fence_plan, pause))
    of_marker = remedy_commit.plan if request.owner_is_gone else remedy_marker.plan
    planned = await of_marker(cluster, context, request, settings, pause)
    if planned.plan is None:
        return planned
    return Planned(await with_evidence(cluster, planned.plan, pause))


class RemedyOperation:
    """Observes, performs and verifies the steps of one plan of remedies."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan) -> None:
        self._cluster = cluster
        limits = plan.details
        self._settings = Settings(
            long_after=limits["long_after_ms"],
            stuck_after=limits["stuck_after_ms"],
            clock_skew=limits["clock_skew_ms"],
            two_phase_patterns=context.two_phase_patterns,
        )
        self._interval = limits["sample_interval_ms"] / 1000
        self._plan = plan
        self._judged: dict[str, Judged] | None = None
        self._raised: dict[str, ShutOut] = {}  # target of a step -> how far this process raised it

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Check all partitions of the plan twice, then once more before each step."""
        self._cluster.forgive()
        now: dict[str, object] = {}
        for step in steps:
            if step.action == "fence":
                now |= await self._observe_fence(step)
            elif step.action == remedy_commit.ACTION:
                now |= await remedy_commit.observe(
                    self._cluster, step, self._settings, self._interval
                )
            elif step.action == remedy_raise.ACTION:
                idle = await described(self._cluster, step.target)
                if idle is not None:
                    now[remedy_raise.subject(step.target)] = remedy_raise.facts(idle)
        now |= await checkpoint_commit.observe(
            self._cluster, self._plan, steps, self._settings, self._interval
        )
        markers = [step for step in steps if step.action == MARKER_ACTION]
        if markers:
            now |= await self._observe_partitions(markers)
        for step in markers:
            now |= await copied.observed(self._cluster, step, self._settings.clock_skew)
        if not self._plan.changed(now, steps):
            await refuse_new_writes(self._cluster, steps)
        return now

    def needs(self, step: Step) -> frozenset[Need]:
        return frozenset({WRITES_MARKERS} if step.action == MARKER_ACTION else ())

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

    async def _observe_fence(self, step: Step) -> dict[str, object]:
        row = await remedy_fence.described(self._cluster, step.target)
        subject = remedy_raise.subject(step.target)
        if row.state != "Ongoing":
            return {subject: remedy_raise.facts(row)}
        request = RemedyRequest(
            "fence",
            transactional_id=step.target,
            owner_is_gone=bool(step.parameters["owner_is_gone"]),
            is_stopped=bool(step.parameters.get("is_stopped")),
        )
        # compare its producer's position with the plan: that check is the first of two
        judgement = await remedy_fence.judged_for(
            self._cluster, row, request, self._settings, interval=0.0
        )
        return {subject: remedy_fence.facts(row, judgement, request)}

    async def _observe_partitions(self, steps: Sequence[Step]) -> dict[str, object]:
        fresh = self._judged is None
        if self._judged is None:
            targets = {s.target for s in self._plan.steps if s.action == MARKER_ACTION}
            diagnosis = await diagnose(
                self._cluster,
                Scope(tuple(parse_selector(t) for t in sorted(targets))),
                self._settings,
                pause=self._interval,
            )
            self._judged = {remedy_marker.subject(j.about): j for j in diagnosis.judged}
        subjects = [s.stands_on[0] for s in steps]
        known = [self._judged[name] for name in subjects if name in self._judged]
        if not fresh and known:
            again = await look_again(self._cluster, known, self._settings)
            known = [j for j in again if j is not None]
        return {remedy_marker.subject(j.about): remedy_marker.facts(j) for j in known}

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Send the step. RefusedError: the broker said that it changed nothing."""
        try:
            if step.action in ("fence", *_COMMITS):
                return self._note(step, await remedy_fence.send(self._cluster, step, ensure_held))
            if step.action == remedy_raise.ACTION:
                return self._note(step, await remedy_raise.send(self._cluster, step, ensure_held))
            return await remedy_marker.write(self._cluster, step, ensure_held)
        except WireError as error:
            if error.error == "UNSUPPORTED_VERSION":
                raise RefusedError(error.detail, where=step.target) from None
            raise UnverifiedError(
                f"no answer: {error.detail}", where=step.target, remedy="run the same command again"
            ) from None

    def _note(self, step: Step, raised: ShutOut | None) -> object:
        """Keep how far the id was raised, for `verify`; return it for the journal."""
        if raised is None:
            return {"end": "NONE"}
        self._raised[step.target] = raised
        other = None if raised.other is None else raised.other.plain
        return {"raised": raised.at.plain, "other": other, "error": raised.error}

    async def verify(self, step: Step) -> Effect:
        """Check with the step's leader or coordinator whether its transaction is over."""
        self._cluster.forgive()
        raised = self._raised.get(step.target)
        if step.action == "fence":
            return await remedy_fence.ended(self._cluster, step, raised)
        if step.action in _COMMITS:
            return await remedy_commit.ended(self._cluster, step, raised)
        if step.action == remedy_raise.ACTION:
            return await remedy_raise.ended(self._cluster, step, raised)
        return await remedy_marker.ended(self._cluster, step)


opened = on_cluster(RemedyOperation)
"""The operation that carries a remedy's plan out, on an open cluster."""
