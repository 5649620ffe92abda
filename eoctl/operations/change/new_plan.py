"""Make a plan: fill in what all plans share."""

from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.settings.context import Context
from eoctl.stores.locks.lock import lock_words
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.errors import IncompleteError


def known_id(cluster_id: str | None, where: str) -> str:
    """Return a cluster's id, to which every plan is bound. Raises IncompleteError without one."""
    if not cluster_id:
        raise IncompleteError("the brokers do not return their cluster id", where=where)
    return cluster_id


def new_plan(
    context: Context,
    cluster_id: str | None,
    *,
    kind: str,
    action: str,
    scope: str,
    summary: str,
    observed: Mapping[str, Any],
    steps: Sequence[Step],
    valid_ms: int = VALID_MS,
    independent: bool = False,
    all_or_none: bool = False,
    details: Any = None,
    hits: str | None = None,
) -> Plan:
    """Make a plan for a context's cluster, from now on valid for `valid_ms`.

    The other parameters are as in Plan. Raises IncompleteError without a cluster id.
    """
    now = now_ms()
    return Plan(
        kind=kind,
        action=action,
        created_at=now,
        expires_at=now + valid_ms,
        context=context.title,
        argv=context.argv,
        cluster_id=known_id(cluster_id, context.title),
        scope=scope,
        summary=summary,
        lock=lock_words(context.lock_zookeeper),
        observed=dict(observed),
        steps=tuple(steps),
        independent=independent,
        all_or_none=all_or_none,
        details=details,
        hits=hits,
    )
