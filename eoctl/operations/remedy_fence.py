"""Fence: the coordinator ends an id's transaction and shuts its owner out, compare-and-set."""

from collections.abc import Callable
from typing import Any

from eoctl.config import Context
from eoctl.kafka import collect, coordinators, repairs
from eoctl.kafka.cluster import Cluster
from eoctl.operations.diagnose import diagnose
from eoctl.operations.inspect import Scope
from eoctl.operations.remedy_plan import CHANGED_NOTHING, Wish, is_wish, made
from eoctl.operations.steps import Seen
from eoctl.stores.journal import Journal
from recovery.case import is_two_phase
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TransactionFacts
from recovery.observation import Settings
from recovery.plan import Plan, Step
from recovery.repairs import EndRequest, InitRequest, fence_requests, remedy_allowed
from recovery.selectors import parse_selector


async def plan(
    cluster: Cluster, context: Context, wish: Wish, settings: Settings, interval: float
) -> Plan:
    """The plan of a fence. Raises RefusedError and IncompleteError."""
    assert wish.transactional_id is not None
    row = await described(cluster, wish.transactional_id)
    if wish.producer_id not in (None, row.producer_id) or wish.producer_epoch not in (
        None,
        row.producer_epoch,
    ):
        raise RefusedError(
            f"it is producer id {row.producer_id} epoch {row.producer_epoch} now, not "
            f"{wish.producer_id} epoch {wish.producer_epoch}: that transaction is over",
            where=wish.transactional_id,
            remedy="look again: eoctl txn hanging",
        )
    if row.state != "Ongoing":
        raise RefusedError(
            f"it is {row.state}: nothing is open that a fence could end",
            where=wish.transactional_id,
        )
    await allowed(cluster, row, wish, settings, interval)
    end, init = fence_requests(row, cluster.transaction_version)
    subject = f"id {row.transactional_id}"
    step = Step(
        action="fence",
        target=row.transactional_id,
        parameters={
            "end_version": end.version,
            "initialise": init is not None,
            "producer_id": row.producer_id,
            "producer_epoch": row.producer_epoch,
            "timeout_ms": row.timeout_ms,
            "coordinator": row.coordinator,
            "start_timestamp": row.start_timestamp,
            "partitions": [f"{t}:{p}" for t, p in row.partitions or ()],
            "owner_is_gone": wish.owner_is_gone,
        },
        does=f"EndTxn v{end.version} (abort) with producer id {row.producer_id} epoch "
        f"{row.producer_epoch}, which changes nothing if either is stale"
        + (
            ""
            if init is None
            else "; then InitProducerId, which shuts its owner out: what the owner begins "
            "between the two is aborted as well"
        ),
        stands_on=(subject,),
    )
    return made(
        cluster,
        context,
        kind="txn-fence",
        action="fence",
        scope=f"id {row.transactional_id}",
        summary=f"{row.transactional_id}: its open transaction on "
        f"{len(row.partitions or ())} partitions is aborted, its owner shut out; "
        "an owner that still lives is killed by it",
        steps=(step,),
        observed={subject: facts(row)},
        settings=settings,
        sample_interval=interval,
    )


async def done_before(cluster: Cluster, wish: Wish) -> str | None:
    """How an earlier run ended it, when the id is still exactly as that run left it; else None."""
    assert wish.transactional_id is not None
    row = await described(cluster, wish.transactional_id)
    change = ("txn-fence", cluster.cluster_id, f"id {wish.transactional_id}")
    done = [
        entry
        for entry in Journal().find().entries
        if entry.state == "done"
        and (p := entry.begun.data["plan"])
        and (p["kind"], p["cluster_id"], p["scope"]) == change
    ]
    if not done or not is_wish(done[-1].plan, wish):
        return None
    if done[-1].steps("step-done")[1].data["saw"] != _stand(row):
        return None
    return f"done already: it is {row.state}, as journal entry {done[-1].id} left it"


def _stand(row: TransactionFacts) -> dict[str, Any]:
    return {"state": row.state, "producer_epoch": row.producer_epoch}


def facts(row: TransactionFacts) -> dict[str, Any]:
    """What must be the same when the fence is sent."""
    return {
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "start_timestamp": row.start_timestamp,
        "timeout_ms": row.timeout_ms,
        "partitions": [f"{t}:{p}" for t, p in row.partitions or ()],
    }


async def described(cluster: Cluster, name: str) -> TransactionFacts:
    """The id as its coordinator has it. Raises RefusedError for an unknown one."""
    rows, missing = await coordinators.find(cluster, [name])
    if rows:
        return rows[0]
    error = missing[0] if missing else None
    if error is not None and error.error == coordinators.NOT_FOUND:
        raise RefusedError("no coordinator knows this transactional id", where=name)
    raise IncompleteError(error.detail if error else "it could not be described", where=name)


async def allowed(
    cluster: Cluster, row: TransactionFacts, wish: Wish, settings: Settings, interval: float
) -> None:
    """Every partition of the transaction must allow it. Raises RefusedError, IncompleteError."""
    if is_two_phase(row, settings) and not wish.owner_is_gone:
        raise RefusedError(
            "another system commits or aborts it (two-phase): a fence aborts what that system may "
            "still commit",
            where=row.transactional_id,
            remedy="only with --owner-is-gone",
        )
    if not row.partitions:
        return
    selectors = tuple(parse_selector(f"{t}:{p}") for t, p in row.partitions)
    found = await diagnose(cluster, Scope(selectors), settings, sample_interval=interval)
    if found.missing:
        raise IncompleteError(found.missing[0].detail, where=row.transactional_id)
    for judged in found.judged:
        if judged.about.producer_id != row.producer_id:
            continue
        sentence = remedy_allowed(judged.verdict, "fence", owner_is_gone=wish.owner_is_gone)
        if sentence is not None:
            raise RefusedError(sentence, where=row.transactional_id)


async def send(cluster: Cluster, step: Step, ensure_held: Callable[[], None]) -> object:
    """End the transaction; under transactions v1 a second request shuts the owner out."""
    p = step.parameters
    end = EndRequest(p["end_version"], step.target, p["producer_id"], p["producer_epoch"])
    name = await repairs.end_transaction(cluster, p["coordinator"], end)
    if name in CHANGED_NOTHING or name in repairs.RETRIABLE:
        raise RefusedError(
            f"the coordinator refused, nothing was changed: {name}", where=step.target
        )
    if not p["initialise"]:
        return {"end": name}
    ensure_held()
    init = InitRequest(step.target, p["producer_id"], p["producer_epoch"], p["timeout_ms"])
    second = await repairs.initialise_producer(cluster, p["coordinator"], init, cluster.silence())
    return {"end": name, "initialise": second}


async def ended(cluster: Cluster, step: Step) -> Seen:
    """Is it over? The coordinator says so, and each partition's leader."""
    p = step.parameters
    row = await described(cluster, step.target)
    same = (
        row.state == "Ongoing"
        and row.producer_id == p["producer_id"]
        and row.start_timestamp == p["start_timestamp"]
    )
    saw = _stand(row)
    if same or row.state.startswith("Prepare"):
        return Seen(False, saw, f"{step.target} is still {row.state}", untouched=same)
    for name in p["partitions"]:
        topic, _, partition = name.rpartition(":")
        metadata = await cluster.metadata([topic])
        found = [m for m in metadata.topics[topic].partitions if m.partition == int(partition)]
        rows, _ = await collect.producers(cluster, found)
        here = rows.get((topic, int(partition)))
        if here is None:
            return Seen(None, saw, f"{name} could not be read")
        if any(
            r.producer_id == p["producer_id"]
            and r.current_txn_start_offset is not None
            and r.producer_epoch <= p["producer_epoch"]
            for r in here
        ):
            return Seen(False, saw, f"its transaction is still open on {name}")
    return Seen(True, saw, f"{step.target} is {row.state}, epoch {row.producer_epoch}")
