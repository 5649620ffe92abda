"""Make one plan of many remedies: `txn hanging --plan` writes it and `txn apply` carries it out."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.fence_many import plan_each
from eoctl.operations.remedy.living import with_evidence
from eoctl.operations.remedy.remedy_plan import RemedyRequest, amounts, judged_with
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.plurals import counted
from recovery.quoting import some
from recovery.values import Value

MANY_VERDICTS = ("orphan", "marker-lost", "overdue")
"""What one plan of many carries remedies for; `long` and `two-phase` must be asked for by name."""
QUIET = ("open", "prepare")  # no findings: silently left out of a plan, unless requested


class Many(Value):
    """plan: None if nothing may be carried out. left_out: every transaction without a step.

    Each with transactional_id, partition, producer_id, verdict, rule and reason.
    """

    plan: Plan | None
    left_out: tuple[Mapping[str, Any], ...]


async def plan_many(
    cluster: Cluster,
    context: Context,
    diagnosis: Diagnosis,
    verdicts: Collection[str],
    *,
    pause: float,
    named: bool = False,
) -> Many:
    """Plan all remedies of a diagnosis that may be carried out, each step independent.

    An id that is open on several partitions is fenced once. named: the verdicts were marked by
    hand: then transactions within their limits are listed too, with the reason.
    """
    steps: dict[str, Step] = {}
    observed: dict[str, Any] = {}
    left_out: list[Mapping[str, Any]] = []
    fences = await plan_each(
        cluster, context, fences_named(diagnosis, verdicts), diagnosis.settings, pause, diagnosis
    )
    for judged in diagnosis.judged:
        verdict = judged.verdict
        if verdict.name in QUIET and not named and verdict.name not in verdicts:
            continue
        try:
            if verdict.name not in verdicts:
                raise RefusedError(f"{verdict.name} was not requested (--verdict {verdict.name})")
            if verdict.remedy.action == "fence" and verdict.remedy.transactional_id is not None:
                one = fences[verdict.remedy.transactional_id]
                if isinstance(one, EoctlError):
                    raise one
                steps[verdict.remedy.transactional_id] = one.steps[0]
                observed |= one.observed
                continue
            step, facts = await _marker(cluster, judged)
        except (RefusedError, IncompleteError) as error:
            left_out.append(_left_out(judged, error))
            continue
        steps[step.stands_on[0]] = step
        observed |= facts
    for bare in diagnosis.ids:
        v = bare.verdict
        if v.name in QUIET and not named and v.name not in verdicts:
            continue
        left_out.append(
            {
                "transactional_id": bare.name,
                "partition": None,
                "producer_id": v.about.producer_id,
                "verdict": v.name,
                "rule": v.rule,
                "reason": f"it holds no partition and needs a plan of its own: {v.remedy.does}",
            }
        )
    if not steps:
        return Many(None, tuple(left_out))
    plan = new_plan(
        context,
        cluster.cluster_id,
        kind="txn-many",
        action="apply",
        scope="transactions",
        summary=_summary(steps.values(), left_out),
        steps=tuple(steps.values()),
        observed=observed,
        details=judged_with(diagnosis.settings, pause, left_out),
        hits=f"{len(steps)}-{_worst(steps.values())}",
        independent=True,
    )
    plan = await with_evidence(cluster, plan, pause)
    return Many(plan, tuple(left_out))


def fences_named(diagnosis: Diagnosis, verdicts: Collection[str]) -> list[RemedyRequest]:
    """Return the fences that the verdicts name, each id once."""
    return list(
        {
            r.transactional_id: RemedyRequest(
                "fence",
                transactional_id=r.transactional_id,
                producer_id=r.producer_id,
                producer_epoch=r.producer_epoch,
            )
            for v in (j.verdict for j in diagnosis.judged)
            if v.name in verdicts and (r := v.remedy).action == "fence" and r.transactional_id
        }.values()
    )


async def _marker(cluster: Cluster, judged: Judged) -> tuple[Step, dict[str, Any]]:
    """Return the one marker of this transaction. Raises RefusedError, IncompleteError."""
    verdict = judged.verdict
    action = verdict.remedy.action
    if action not in ("abort", "resolve"):
        raise RefusedError(f"its remedy is {action}: {verdict.remedy.does}")
    request = RemedyRequest(action, outcome=verdict.proven_outcome if action == "resolve" else None)
    remedy_marker.refuse(judged, request)
    steps, facts = await remedy_marker.marker_steps(cluster, judged, request)
    if len(steps) > 1:
        name = next(s.target for s in steps if s.action == remedy_raise.ACTION)
        raise RefusedError(
            f"{name} is idle with its producer id: an application that runs would have to be "
            f"restarted, so do it one at a time (txn {action} {judged.about.name})"
        )
    return steps[0], facts


def _left_out(judged: Judged, error: EoctlError) -> Mapping[str, Any]:
    owner = judged.verdict.owner
    return {
        "transactional_id": owner.transactional_id if owner else None,
        "partition": judged.about.name,
        "producer_id": judged.about.producer_id,
        "verdict": judged.verdict.name,
        "rule": judged.verdict.rule,
        "reason": error.what,
    }


def _worst(steps: Collection[Step]) -> str:
    """Return the step that drops most records; of equal ones the first."""

    def dropped(step: Step) -> int:
        return sum(about["dropped"] or 0 for about in step.about)

    return max(steps, key=dropped).target


def _summary(steps: Collection[Step], left_out: Collection[object]) -> str:
    kinds = Counter("fence" if s.action == "fence" else s.parameters["outcome"] for s in steps)
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    names = some([step.target for step in steps])
    text = f"{counted(len(steps), 'transaction')} ({names}): {words}; {_amounts(steps)}"
    if len(steps) > 1:
        text += f"; the worst is {_worst(steps)}"
    return text + (f"; {len(left_out)} left out" if left_out else "")


def _amounts(steps: Collection[Step]) -> str:
    """Return what all steps drop and free; "at least" if one could not be counted."""
    rows = [row for step in steps for row in step.about]
    known = [row for row in rows if row["dropped"] is not None]
    return amounts(
        {
            "dropped": sum(row["dropped"] for row in known) if known else None,
            "freed": sum(row["freed"] for row in known),
            "counted_whole": len(known) == len(rows) and all(r["counted_whole"] for r in known),
        }
    )
