"""Raise an idle transactional id, so that an owner of its earlier epoch can no longer write.

The raise precedes a marker with whose epoch the id's owner could still write; a fence of an idle id
is just the raise.
"""

from collections.abc import Callable, Sequence
from typing import Any

from eoctl.kafka.ask import configs
from eoctl.kafka.ask.standing import log_of
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write import markers as repairs
from eoctl.operations.change.steps import Effect
from eoctl.operations.remedy import shutting_out
from eoctl.operations.remedy.remedy_plan import ensure_held_first
from eoctl.operations.remedy.shutting_out import Raising, ShutOut, described
from eoctl.render.verdicts.evidence_words import evidence_words
from recovery.change.plan import Step
from recovery.diagnose.evidence import brokers_away
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import SHUT_OUT, Incarnation, is_shut_out
from recovery.inspect.observation import CLOSED_STATES
from recovery.inspect.rights import missing_right
from recovery.plurals import listed
from recovery.remedy.fences import incarnation, taken_over
from recovery.remedy.life import writes
from recovery.remedy.repairs import RaiseRequest
from recovery.times import format_duration

ACTION = "raise-id"
UNTIL = f"each expecting the epoch before it, until the id is {SHUT_OUT} epochs higher"
"""How an owner is shut out, in a plan."""
MAX_TIMEOUT = "transaction.max.timeout.ms"


async def refuse_short_log(cluster: Cluster, name: str) -> None:
    """Raise RefusedError if the id's coordinator cannot write: brokers of its log are down."""
    log = await log_of(cluster, name)
    if log is not None and log.takes_no_record:
        raise RefusedError(
            evidence_words(brokers_away(log)[0]),
            where=name,
            remedy=f"start {listed(log.away, 'broker')}",
        )


async def end_version(cluster: Cluster, coordinator: int) -> int | None:
    """Return 5 if the coordinator raises an idle id by EndTxn v5, which is compare-and-set."""
    try:
        connection = await cluster.connection(coordinator)
    except WireError as error:
        raise IncompleteError(error.detail, where=f"broker {coordinator}") from None
    return 5 if connection.supports(messages.EndTxnRequest, 5) else None


async def refuse_timeout(cluster: Cluster, row: TransactionFacts) -> None:
    """Raise RefusedError if InitProducerId would refuse the id's timeout; nothing was sent yet.

    A setting that may not be read is no reason: then the coordinator's own answer decides.
    """
    settings, _ = await configs.broker_configs(cluster, (MAX_TIMEOUT,))
    most = settings.get(str(row.coordinator), {}).get(MAX_TIMEOUT)
    if most is not None and row.timeout_ms is not None and row.timeout_ms > int(most):
        raise refused(repairs.INVALID_TIMEOUT, row.transactional_id, row.timeout_ms)


def subject(name: str) -> str:
    """Return the name under which a plan keeps what it observed of an id."""
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
    """Return the step that raises the id. about: what was judged, if the raise is the only step."""
    name = request.transactional_id
    sent = f"InitProducerId, {UNTIL}"
    if request.end_version:
        by_end = f"EndTxn v{request.end_version} (abort), which changes nothing if either is stale"
        sent = f"{by_end}, then {sent}"
    harm = (
        f"the application of {name}, if it runs, is shut out and must be restarted; a transaction "
        "that it begins at this moment is aborted"
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
        f"{request.producer_epoch}: {sent}. An owner that lives can write no more afterwards",
        stands_on=(subject(name),),
        about=list(about),
        harms=(harm,),
    )


async def send(cluster: Cluster, step: Step, ensure_held: Callable[[], None]) -> ShutOut:
    """Raise the id if it is still idle as planned. Raises RefusedError: nothing was sent."""
    p = step.parameters
    try:
        row = await described(cluster, step.target)
    except EoctlError as error:
        raise RefusedError(f"{error.what}; nothing was sent", where=step.target) from None
    if row is None or row.state not in CLOSED_STATES:
        now = "forgotten" if row is None else row.state
        raise RefusedError(f"it is {now} now; nothing was sent", where=step.target)
    if row.producer_epoch is None:
        raise RefusedError("it could not be described; nothing was sent", where=step.target)
    ensure_held_first(ensure_held, step.target)
    # before a marker the plan says to restart its application, whichever that is
    insist = not p["owner_is_gone"] or writes(step)
    used, mine = _used(step), incarnation(row)
    planned = Incarnation(p["producer_id"], p["producer_epoch"])
    if not insist and mine != planned:
        taken = await shutting_out.taken_over(cluster, row, used, "abort", p["timeout_ms"])
        if taken is not None:
            return taken
    raising = Raising(
        cluster,
        step.target,
        p["timeout_ms"],
        end_version=p["end_version"] or 3,
        by_end=p["end_version"] is not None,
        insist=insist,
        ensure_held=ensure_held,
        first=True,
    )
    raised = await raising.until_shut_out(used, mine)
    if raised.proven or raised.other is not None:
        return raised
    if raised.error in repairs.END_REFUSED or raised.error == repairs.INVALID_TIMEOUT:
        now_row = await described(cluster, step.target)
        if now_row is not None and facts(now_row) == facts(row):
            raise refused(raised.error, step.target, p["timeout_ms"])
    raise UnverifiedError(f"the coordinator answered {raised.error}", where=step.target)


def _used(step: Step) -> Incarnation:
    """Return the last incarnation with which the id's owner may have written."""
    p = step.parameters
    return Incarnation(p["producer_id"], max(p["producer_epoch"], p["above"]))


def refused(name: str, where: str, timeout_ms: int) -> RefusedError:
    """Return a coordinator's refusal, which changed nothing. name: error; timeout_ms: the id's."""
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


async def ended(cluster: Cluster, step: Step, raised: ShutOut | None) -> Effect:
    """Check with the coordinator whether an owner of the id's earlier epoch is shut out.

    raised: by this process; None = by an earlier run, or not yet.
    """
    p = step.parameters
    row = await described(cluster, step.target)
    if row is None or row.producer_epoch is None:
        nothing = {"state": None, "producer_epoch": None}
        if row is None:
            return Effect(True, nothing, "no coordinator knows it")
        return Effect(None, nothing, "its coordinator does not say its epoch")
    detail = (
        f"{step.target} is {row.state}, producer id {row.producer_id} epoch {row.producer_epoch}"
    )
    if raised is not None and raised.other is not None:
        beyond = taken_over(step.target, raised.other, cut_short=raised.cut_short)
        return Effect(True, stand(row, raised), detail, beyond=beyond)
    same = (row.producer_id, row.producer_epoch) == (p["producer_id"], p["producer_epoch"])
    idle = row.state in CLOSED_STATES
    taken = raised is not None and goes_on(row, raised)
    return Effect(
        is_shut_out(_used(step), incarnation(row)) and not taken,
        stand(row, raised),
        detail,
        untouched=same and idle,
        resumable=idle and not same,
    )


def goes_on(row: TransactionFacts, raised: ShutOut) -> bool:
    """Return True if an owner continues with the epoch that the id was raised to."""
    return row.state not in CLOSED_STATES and incarnation(row) == raised.at


def stand(row: TransactionFacts, raised: ShutOut | None) -> dict[str, Any]:
    """Return what a journal keeps about an id; shut_out: proven by requests of this process."""
    saw: dict[str, Any] = {"state": row.state, "producer_epoch": row.producer_epoch}
    if raised is not None and raised.proven and not goes_on(row, raised):
        saw["shut_out"] = {"used": raised.used.plain, "at": raised.at.plain}
    return saw
