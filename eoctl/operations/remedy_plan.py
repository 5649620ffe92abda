"""What an operator asks of a transaction, and the plan that every remedy is made into."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eoctl.config import Context
from eoctl.kafka.cluster import Cluster
from eoctl.operations.session import now_ms
from eoctl.stores.locks import lock_words
from recovery.errors import IncompleteError
from recovery.observation import Settings
from recovery.plan import VALID_MS, Plan, Step
from recovery.remedies import Action

CHANGED_NOTHING = frozenset(
    {
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "NOT_COORDINATOR",
        "NOT_LEADER_OR_FOLLOWER",
        "TRANSACTION_COORDINATOR_FENCED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asks for. outcome, and the two acceptances: of resolve and fence."""

    action: Action
    partition: str | None = None  # orders:3
    producer_id: int | None = None
    start_offset: int | None = None
    transactional_id: str | None = None
    producer_epoch: int | None = None
    outcome: str | None = None
    owner_is_gone: bool = False
    accept_unknown_outcome: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, or why there is nothing to do: `done` says how the transaction ended."""

    plan: Plan | None
    done: str | None = None


def is_wish(plan: Plan, wish: Wish) -> bool:
    """Does a plan do what is asked for now? An unfinished one of another transaction does not."""
    [step] = plan.steps
    p = step.parameters
    if wish.action == "fence":
        return step.target == wish.transactional_id and (
            (wish.producer_id in (None, p["producer_id"]))
            and wish.producer_epoch in (None, p["producer_epoch"])
        )
    return (p["producer_id"], p["start_offset"], p["outcome"]) == (
        wish.producer_id,
        wish.start_offset,
        wish.outcome or "abort",
    )


def made(
    cluster: Cluster,
    context: Context,
    *,
    kind: str,
    action: str,
    scope: str,
    summary: str,
    steps: tuple[Step, ...],
    observed: Mapping[str, Any],
    settings: Settings,
    sample_interval: float,
    independent: bool = False,
) -> Plan:
    now = now_ms()
    if cluster.cluster_id is None:
        raise IncompleteError("the brokers do not tell their cluster id", where=context.title)
    return Plan(
        kind=kind,
        action=action,
        created_at=now,
        expires_at=now + VALID_MS,
        context=context.title,
        argv=context.argv,
        cluster_id=cluster.cluster_id,
        scope=scope,
        summary=summary,
        lock=lock_words(context.lock_zookeeper),
        observed=dict(observed),
        steps=steps,
        independent=independent,
        details={
            "sample_interval_ms": round(sample_interval * 1000),
            "long_after_ms": settings.long_after,
            "stuck_after_ms": settings.stuck_after,
            "clock_skew_ms": settings.clock_skew,
        },
    )
