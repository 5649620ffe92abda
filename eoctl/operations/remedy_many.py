"""One plan of many remedies: what `txn hanging --plan` writes and `txn apply` carries out."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from eoctl.config import Context
from eoctl.kafka.cluster import Cluster
from eoctl.operations import remedy_fence, remedy_marker
from eoctl.operations.remedy_plan import Wish, made
from recovery.diagnosis import Diagnosis
from recovery.errors import RefusedError
from recovery.plan import Plan, Step
from recovery.repairs import remedy_allowed

MANY_VERDICTS = ("orphan", "marker-lost", "overdue")
"""What one plan of many carries remedies for; `long` and `two-phase` must be asked for by name."""


async def plan_many(
    cluster: Cluster,
    context: Context,
    found: Diagnosis,
    verdicts: Collection[str],
    *,
    sample_interval: float,
) -> Plan | None:
    """One plan of all remedies of a diagnosis that may be carried out; each step for itself.

    None where nothing may be. An id that is open on several partitions is fenced once.
    """
    steps: dict[str, Step] = {}
    observed: dict[str, Any] = {}
    for judged in found.judged:
        verdict = judged.verdict
        action = verdict.remedy.action
        if verdict.name not in verdicts or action not in ("abort", "resolve", "fence"):
            continue
        wish = Wish(action, outcome=verdict.proven_outcome if action == "resolve" else None)
        if action == "fence":
            name = verdict.remedy.transactional_id
            if name is None or f"id {name}" in observed:
                continue
            try:
                one = await remedy_fence.plan(
                    cluster,
                    context,
                    Wish(
                        "fence",
                        transactional_id=name,
                        producer_id=verdict.remedy.producer_id,
                        producer_epoch=verdict.remedy.producer_epoch,
                    ),
                    found.settings,
                    sample_interval,
                )
            except RefusedError:
                continue  # one of its partitions forbids it; the table says which
            steps[name] = one.steps[0]
            observed |= one.observed
        elif remedy_allowed(verdict, action) is None:
            step, facts = remedy_marker.marker_step(judged, wish, found.transaction_version)
            steps[step.stands_on[0]] = step
            observed |= facts
    if not steps:
        return None
    kinds = Counter(
        "fence" if s.action == "fence" else s.parameters["outcome"] for s in steps.values()
    )
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return made(
        cluster,
        context,
        kind="txn-many",
        action="apply",
        scope="transactions",
        summary=f"{len(steps)} transactions: {words}",
        steps=tuple(steps.values()),
        observed=observed,
        settings=found.settings,
        sample_interval=sample_interval,
        independent=True,
    )
