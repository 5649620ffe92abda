"""Find who owns the transactional producers of an application's outputs, and which cannot write."""

from collections.abc import Iterable, Mapping

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.fences import Fence, fences
from eoctl.operations.inspect.lists import look_at_owners
from recovery.facts import TransactionFacts
from recovery.inspect.incarnation import holds
from recovery.inspect.observation import CLOSED_STATES
from recovery.remedy.fences import incarnation
from recovery.restart.observed import Log, Observed
from recovery.restart.producers import ended_a_transaction
from recovery.values import replace


async def with_owners(cluster: Cluster, observed: Observed, logs: Iterable[Log]) -> Observed:
    """Return what was observed, with the owners of the outputs' producers and those fenced.

    logs: all that could be seen. Raises IncompleteError for a journal that cannot be read.
    """
    written: dict[int, int] = {}  # producer id -> epoch of its last transactional record
    known: dict[int, int] = {}  # producer id -> the highest epoch of a record or a marker
    for counted in observed.counted.values():
        for run in counted.producers.runs if counted.producers else ():
            if run.transactional and counted.producers is not None:
                epoch = counted.producers.last[run.producer_id][0]
                written[run.producer_id] = max(epoch, written.get(run.producer_id, -1))
    producer_ids = set(written)
    for p in (p for log in logs for p in log.producers or ()):
        known[p.producer_id] = max(p.producer_epoch, known.get(p.producer_id, -1))
        if ended_a_transaction(p):
            producer_ids.add(p.producer_id)
    if not producer_ids:
        return observed
    transactions = await look_at_owners(cluster, sorted(producer_ids))
    owners = {
        t.producer_id: t.transactional_id
        for t in transactions.rows
        if t.producer_id in producer_ids
    }
    made = [f for f in fences(cluster.cluster_id) if f.used.producer_id in producer_ids]
    now = await _present(cluster, made)
    fenced = {
        f.used.producer_id
        for f in made
        if f.transactional_id in now
        and holds(
            f.used,
            f.at,
            incarnation(now[f.transactional_id]),
            is_idle=now[f.transactional_id].state in CLOSED_STATES,
            written=written.get(f.used.producer_id),
            known=known.get(f.used.producer_id),
        )
    }
    return replace(observed, fenced=frozenset(fenced), owners=owners)


async def _present(cluster: Cluster, made: Iterable[Fence]) -> Mapping[str, TransactionFacts]:
    """Return each fenced id as its coordinator describes it."""
    names = sorted({f.transactional_id for f in made})
    rows, _ = await coordinators.find(cluster, names) if names else ([], [])
    return {t.transactional_id: t for t in rows if t.error is None and t.producer_epoch is not None}
