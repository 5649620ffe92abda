"""Raising an idle transactional id, so that nobody can write with its earlier epoch any more.

Comes before a marker whose epoch the id's owner could still write with, and is what a fence of an
idle id consists of.
"""

from collections.abc import Callable, Sequence
from typing import Any

from eoctl.kafka.ask import configs, coordinators
from eoctl.kafka.ask.standing import log_of
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write import markers as repairs
from eoctl.operations.change.steps import Effect
from eoctl.operations.remedy.plan import ensure_held_first
from recovery.change.plan import Step
from recovery.diagnose.evidence import brokers_away
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TransactionFacts
from recovery.inspect.observation import CLOSED_STATES
from recovery.inspect.rights import missing_right
from recovery.plurals import listed
from recovery.remedy.repairs import RaiseRequest, is_raised
from recovery.times import format_duration

ACTION = "raise-id"
MAX_TIMEOUT = "transaction.max.timeout.ms"


async def described(cluster: Cluster, name: str) -> TransactionFacts | None:
    """The id as its coordinator has it; None if no coordinator knows it. Raises IncompleteError."""
    rows, missing = await coordinators.find(cluster, [name])
    if rows:
        return rows[0]
    error = missing[0] if missing else None
    if error is not None and error.error == coordinators.NOT_FOUND:
        return None
    raise IncompleteError(error.detail if error else "it could not be described", where=name)


async def refuse_short_log(cluster: Cluster, name: str) -> None:
    """Raise RefusedError if the id's coordinator can write nothing: brokers of its log are away."""
    log = await log_of(cluster, name)
    if log is not None and log.takes_no_record:
        raise RefusedError(
            brokers_away(log)[0].text, where=name, remedy=f"start {listed(log.away, 'broker')}"
        )


async def end_version(cluster: Cluster, coordinator: int) -> int | None:
    """5 where the coordinator raises an idle id by EndTxn v5, which is compare-and-set."""
    try:
        connection = await cluster.connection(coordinator)
    except WireError as error:
        raise IncompleteError(error.detail, where=f"broker {coordinator}") from None
    return 5 if connection.supports(messages.EndTxnRequest, 5) else None


async def refuse_timeout(cluster: Cluster, row: TransactionFacts) -> None:
    """Raise RefusedError where InitProducerId would refuse the id's timeout; nothing was sent yet.

    A setting that may not be read is no reason: then the coordinator's own answer tells.
    """
    settings, _ = await configs.broker_configs(cluster, (MAX_TIMEOUT,))
    most = settings.get(str(row.coordinator), {}).get(MAX_TIMEOUT)
    if most is not None and row.timeout_ms is not None and row.timeout_ms > int(most):
        raise refused(repairs.INVALID_TIMEOUT, row.transactional_id, row.timeout_ms)


def subject(name: str) -> str:
    """The name under which a plan keeps what it observed of an id."""
    return f"id {name}"


def facts(row: TransactionFacts) -> dict[str, Any]:
    """Return what must not change before the id is raised."""
    return {
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "timeout_ms": row.timeout_ms,
    }


def step(
    request: RaiseRequest,
    row: TransactionFacts,
    *,
    owner_is_gone: bool,
    about: Sequence[dict[str, Any]] = (),
) -> Step:
    """The step that raises the id. about: what was judged, where the raise is the whole plan."""
    name = request.transactional_id
    sent = (
        f"EndTxn v{request.end_version} (abort), which changes nothing if either is stale"
        if request.end_version
        else "InitProducerId twice, the second expecting what the first answered"
    )
    harm = (
        f"the application of {name}, if it runs, is shut out and must be restarted; a transaction "
        "that it begins in this moment is aborted"
    )
    return Step(
        action=ACTION,
        target=name,
        parameters={
            "producer_id": request.producer_id,
            "producer_epoch": request.producer_epoch,
            "timeout_ms": request.timeout_ms,
            "above": request.above,
            "end_version": request.end_version,
            "coordinator": row.coordinator,
            "owner_is_gone": owner_is_gone,
        },
        does=f"raise {name}, which is idle with producer id {request.producer_id} epoch "
        f"{request.producer_epoch}: {sent}. Nobody can write with that epoch afterwards",
        stands_on=(subject(name),),
        about=list(about),
        harms=(harm,),
    )


async def send(cluster: Cluster, step: Step, ensure_held: Callable[[], None]) -> object:
    """Raise the id if it is still idle as it was planned. Raises RefusedError: nothing was sent."""
    p = step.parameters
    try:
        row = await described(cluster, step.target)
    except EoctlError as error:
        raise RefusedError(f"{error.what}; nothing was sent", where=step.target) from None
    if row is None or row.state not in CLOSED_STATES:
        now = "forgotten" if row is None else row.state
        raise RefusedError(f"it is {now} now; nothing was sent", where=step.target)
    request = RaiseRequest(
        step.target,
        p["producer_id"],
        p["producer_epoch"],
        p["timeout_ms"],
        p["above"],
        p["end_version"],
    )
    ensure_held_first(ensure_held, step.target)
    name = await repairs.raise_id(cluster, row.coordinator, request, cluster.silence(), ensure_held)
    if name == "NONE":
        return {"raise": name}
    if name in repairs.END_REFUSED or name == repairs.INVALID_TIMEOUT:
        now_row = await described(cluster, step.target)
        if now_row is not None and facts(now_row) == facts(row):
            raise refused(name, step.target, p["timeout_ms"])
    raise UnverifiedError(f"the coordinator answered {name}", where=step.target)


def refused(name: str, where: str, timeout_ms: int) -> RefusedError:
    """The refusal of a coordinator that changed nothing. name: its error; timeout_ms: of the id."""
    remedy = missing_right(name, where)
    if name == repairs.INVALID_TIMEOUT:
        remedy = (
            f"its timeout is {format_duration(timeout_ms / 1000)}, above the brokers' "
            f"{MAX_TIMEOUT}: start its application once with a shorter "
            "transaction.timeout.ms, which raises the id as well, then plan again; or raise "
            f"{MAX_TIMEOUT} to {timeout_ms} or more on the brokers"
        )
    return RefusedError(
        f"the coordinator refuses, nothing was changed: {name}", where=where, remedy=remedy
    )


async def ended(cluster: Cluster, step: Step) -> Effect:
    """Look whether the id's epoch is raised, by its coordinator."""
    p = step.parameters
    request = RaiseRequest(
        step.target, p["producer_id"], p["producer_epoch"], p["timeout_ms"], p["above"], None
    )
    row = await described(cluster, step.target)
    if row is None:
        return Effect(True, {"state": None, "producer_epoch": None}, "no coordinator knows it")
    saw = {"state": row.state, "producer_epoch": row.producer_epoch}
    detail = (
        f"{step.target} is {row.state}, producer id {row.producer_id} epoch {row.producer_epoch}"
    )
    same = (row.producer_id, row.producer_epoch) == (p["producer_id"], p["producer_epoch"])
    return Effect(
        is_raised(request, row), saw, detail, untouched=same and row.state in CLOSED_STATES
    )
