"""Judge every transactional id that is active and holds no partition.

A healthy cluster gets few requests: one listing, one description of the open transactions, and the
coordinators' clocks. Only ids in Prepare*, or past a limit, need more requests. The rules are
`recovery.diagnose.id_verdicts`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, coordinators
from eoctl.kafka.ask.standing import standing, with_least_in_sync
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read import producer_markers
from eoctl.kafka.read.state_logs import noted_state_logs
from eoctl.operations.diagnose.owner_traces import look_for_life
from eoctl.operations.diagnose.pause import refuse_pause
from eoctl.stores.history_cache import state_cache
from recovery.diagnose.case import named_after
from recovery.diagnose.diagnosis import JudgedId
from recovery.diagnose.id_verdicts import LOOK_AGAIN, judge_id
from recovery.facts import Missing, TransactionFacts, Transactions
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.id_facts import IdFacts, NamedPartition, refusing
from recovery.inspect.inspection import OPEN_STATES
from recovery.inspect.observation import CLOSED_STATES, OpenTransaction, Settings
from recovery.inspect.rights import and_grant
from recovery.values import Value, replace

PREPARING = ("PrepareAbort", "PrepareCommit", "PrepareEpochFence")


class JudgedIds(Value):
    """The ids, all open transactions, what could not be seen, and the pause between two checks."""

    ids: tuple[JudgedId, ...]
    transactions: Transactions
    missing: tuple[Missing, ...]
    pause: float | None = None


class Past(Value):
    """Ids past a limit by their coordinators' own clocks; None = the clocks cannot be asked.

    over_timeout: past their own timeout; over_long, over_stuck: `Settings.long_after`,
    `Settings.stuck_after` since the start of their transaction. unseen: ids about which nothing is
    known because their own coordinator did not answer.
    """

    over_timeout: frozenset[str] | None
    over_long: frozenset[str] | None
    over_stuck: frozenset[str] | None
    unseen: frozenset[str] = frozenset()

    def of(self, ids: Collection[str]) -> "Past":
        """Return what is known about all these ids together: nothing if one was not seen."""
        return self if self.unseen.isdisjoint(ids) else Past(None, None, None)


async def judge_ids(
    cluster: Cluster,
    judged_already: Collection[str],
    settings: Settings,
    *,
    pause: float,
    only: str | None = None,
    on_first_look: Callable[[Sequence[JudgedId]], None] | None = None,
) -> JudgedIds:
    """Judge the ids in Ongoing or Prepare* that are not among `judged_already`, or one of them.

    on_first_look: called before the pause if a second snapshot is needed. Raises IncompleteError if
    a needed second snapshot does not fit into the deadline.
    """
    listed = await coordinators.transactions(cluster, states=sorted(OPEN_STATES))
    listed = await with_least_in_sync(cluster, listed)
    open_rows = [
        t
        for t in listed.rows
        if t.transactional_id not in judged_already and only in (None, t.transactional_id)
    ]
    began = time.monotonic()
    rows, more = await _described(cluster, open_rows)
    missing = (*listed.missing, *more)
    if not rows:
        return JudgedIds((), listed, missing)
    first = await _look(cluster, rows, listed, settings)
    records, more = await _records(
        cluster, [look for look in first if look.decided_long_ago is not False], settings
    )
    missing += tuple(more)
    first = await _asked_further(cluster, first, records, settings)
    judged = _judge(first, {}, records, settings, missing)
    again = [j.first.row for j in judged if j.verdict.rule in LOOK_AGAIN]
    if not again:
        return await _confirmed(cluster, judged, listed, missing, None)
    refuse_pause(cluster.deadline, max(0.0, began + pause - time.monotonic()), pause)
    if on_first_look is not None:
        on_first_look(judged)
    unread = [look for look in first if look.row in again and look.decided_long_ago is False]
    more_records, more = await _records(cluster, unread, settings)
    records |= more_records
    missing += tuple(more)
    await asyncio.sleep(max(0.0, began + pause - time.monotonic()))
    rows, more = await _described(cluster, again)
    missing += tuple(more)
    still = {t.transactional_id for t in rows}
    over = {t.transactional_id for t in again} - still
    second = await _look(cluster, rows, listed, settings)
    second = await _asked_further(cluster, second, records, settings)
    kept = [look for look in first if look.row.transactional_id not in over]
    newest = {look.row.transactional_id: look for look in second}
    return await _confirmed(
        cluster, _judge(kept, newest, records, settings, missing), listed, missing, pause
    )


async def _confirmed(
    cluster: Cluster,
    judged: Sequence[JudgedId],
    listed: Transactions,
    missing: Sequence[Missing],
    pause: float | None,
) -> JudgedIds:
    """Return the verdicts without transactions that moved on before more could be asked.

    A finding, or an unknown, counts only if the transaction is described alike a second time.
    """
    doubtful = [j for j in judged if j.verdict.name not in ("open", "prepare")]
    over: set[str] = set()
    if doubtful:
        rows, _ = await _described(cluster, [j.verdict.about for j in doubtful])
        now = {t.transactional_id: t for t in rows}
        over = {j.name for j in doubtful if _moved_on(j.verdict.about, now.get(j.name))}
    return JudgedIds(
        tuple(j for j in judged if j.name not in over),
        listed,
        tuple(dict.fromkeys(m for m in missing if m.scope != "transaction" or m.id not in over)),
        pause,
    )


def _moved_on(before: TransactionFacts, now: TransactionFacts | None) -> bool:
    """Return True if the id has ended, or is described in another state or transaction."""
    if now is None:
        return True
    if now.error is not None:
        return False
    known = before.start_timestamp is not None
    return (before.state, before.producer_id) != (now.state, now.producer_id) or (
        known
        and (before.producer_epoch, before.start_timestamp)
        != (now.producer_epoch, now.start_timestamp)
    )


def _judge(
    first: Sequence[IdFacts],
    second: dict[str, IdFacts],
    records: dict[str, StateRecord],
    settings: Settings,
    missing: Sequence[Missing],
) -> list[JudgedId]:
    errors = {m.partition: m.error for m in missing if m.topic == coordinators.TRANSACTION_STATE}

    def seen(look: IdFacts) -> IdFacts:
        error = errors.get(look.state_partition, errors.get(None))
        return look if error is None else replace(look, log_error=error)

    judged = []
    for look in map(seen, first):
        name = look.row.transactional_id
        later, record = second.get(name), records.get(name)
        newest = None if later is None else seen(later)
        if newest is not None and not newest.same_transaction(look):
            # another transaction of the id: an interval ago it was not decided yet
            look = replace(newest, named=None, decided_long_ago=False if newest.preparing else None)
            newest, record = None, None
        if _completed(look, record):
            continue
        verdict = judge_id(look, newest, record, settings)
        judged.append(JudgedId(look, newest, record, verdict))
    return judged


def _completed(look: IdFacts, record: StateRecord | None) -> bool:
    """Return True if the log, read after the snapshot, shows that the transaction has ended."""
    value, row = record.value if record else None, look.row
    if not isinstance(value, TransactionValue) or value.producer_id != row.producer_id:
        return False
    if value.producer_epoch < (row.producer_epoch or 0):
        return False
    next_one = look.preparing and (
        value.state is TransactionState.ONGOING or value.start_ms > (row.start_timestamp or 0)
    )
    return value.state in CLOSED_STATES or next_one


async def _described(
    cluster: Cluster, rows: Sequence[TransactionFacts]
) -> tuple[list[TransactionFacts], list[Missing]]:
    """Describe these ids if they are still open: one that ended meanwhile is no gap."""
    rows_now, missing = await coordinators.described(cluster, rows)
    ended = {
        t.transactional_id
        for t in rows_now
        if t.error == coordinators.NOT_FOUND or (t.error is None and t.state not in OPEN_STATES)
    }
    return (
        [t for t in rows_now if t.transactional_id not in ended],
        [m for m in missing if m.scope != "transaction" or m.id not in ended],
    )


async def _look(
    cluster: Cluster, rows: Sequence[TransactionFacts], listed: Transactions, settings: Settings
) -> list[IdFacts]:
    """Ask coordinators and their clocks about each id, and no partition yet."""
    at = now_ms()
    past = await past_limits(cluster, rows, settings)

    def said(ids: frozenset[str] | None, t: TransactionFacts) -> bool | None:
        unseen = ids is None or t.transactional_id in past.unseen
        return None if unseen or ids is None else t.transactional_id in ids

    looks = []
    for t in rows:
        prepared = t.state in PREPARING
        # started no longer ago than that, so not decided longer ago either
        young = prepared and said(past.over_stuck, t) is False
        log = listed.log_of(t.transactional_id)
        looks.append(
            IdFacts(
                row=t,
                collected_at=at,
                state_partition=-1 if log is None else log.partition,
                in_sync=None if log is None else log.in_sync,
                min_in_sync=None if log is None else log.least,
                away=() if log is None else log.away,
                over_timeout=said(past.over_timeout, t),
                over_long=said(past.over_long, t),
                decided_long_ago=False if young else None,
            )
        )
    return looks


def _further(look: IdFacts, settings: Settings) -> bool:
    """Return True if the id needs more requests: it is in Prepare*, or past a limit."""
    row = look.row
    if look.preparing:
        return True
    if look.over_timeout is not None and look.over_long is not None:
        return look.over_timeout or look.over_long
    if row.start_timestamp is None:
        return True
    least = min(settings.long_after, row.timeout_ms or settings.long_after)
    return look.collected_at - row.start_timestamp > least - settings.clock_skew


async def _asked_further(
    cluster: Cluster,
    looks: Sequence[IdFacts],
    records: dict[str, StateRecord],
    settings: Settings,
) -> list[IdFacts]:
    """Ask for what some verdicts need: the partitions, the state log, the time of decision."""
    rows = [look.row for look in looks if _further(look, settings)]
    if not rows:
        return list(looks)
    recorded = {
        name: r.value.partitions
        for name, r in records.items()
        if isinstance(r.value, TransactionValue)
    }
    facts = await standing(cluster, rows, looks[0].collected_at, recorded)
    decided = await _since_when(cluster, looks, records, settings)
    facts = [replace(a, decided_long_ago=decided[a.row.transactional_id]) for a in facts]
    by_id = {a.row.transactional_id: a for a in await foreign_markers(cluster, facts)}
    owners = await look_for_life(cluster, [t for t in rows if t.state == "Ongoing"])
    measured = await clocks.measured(cluster, rows, now_ms)
    ahead = {c.broker: c.ahead for c in measured}
    result = []
    for look in looks:
        name = look.row.transactional_id
        here = by_id.get(name)
        if here is None:
            result.append(look)
            continue
        result.append(
            replace(
                here,
                over_timeout=look.over_timeout,
                over_long=look.over_long,
                ahead=ahead.get(look.row.coordinator),
                groups=tuple(g for g in owners.groups if named_after(name, g.group)),
                groups_seen=not owners.groups_missing,
                groups_missing=owners.groups_missing,
            )
        )
    return result


async def foreign_markers(cluster: Cluster, looks: Sequence[IdFacts]) -> list[IdFacts]:
    """Return the facts, with the marker that ended each transaction whose own would be refused."""
    ended = {
        OpenTransaction(f.topic, f.partition, look.row.producer_id, f.high_watermark - 1): f
        for look in looks
        for r in refusing(look, None)
        if r.partition.open_from is None and (f := r.partition.facts).high_watermark
    }
    if not ended:
        return list(looks)
    by_partition = {f.topic_partition: f for f in ended.values()}
    read = await producer_markers.markers(cluster, list(ended), by_partition)
    last = {(w.producer_id, w.topic_partition): m.found[-1] for w, m in read.items() if m.found}

    def shown(look: IdFacts, p: NamedPartition) -> NamedPartition:
        m = last.get((look.row.producer_id, p.topic_partition))
        return p if m is None else replace(p, ended_by=(m.outcome, m.offset))

    return [replace(look, named=tuple(shown(look, p) for p in look.named or ())) for look in looks]


async def _since_when(
    cluster: Cluster,
    looks: Sequence[IdFacts],
    records: dict[str, StateRecord],
    settings: Settings,
) -> dict[str, bool | None]:
    """Return for each id if it is in Prepare* longer than stuck_after; ask about all at once."""
    open_ = [k for k in looks if k.preparing and k.decided_long_ago is None]
    since = await asyncio.gather(
        *(
            _decided_long_ago(cluster, look, records.get(look.row.transactional_id), settings)
            for look in open_
        )
    )
    known = {look.row.transactional_id: look.decided_long_ago for look in looks}
    return known | {k.row.transactional_id: t for k, t in zip(open_, since, strict=True)}


async def _decided_long_ago(
    cluster: Cluster, look: IdFacts, record: StateRecord | None, settings: Settings
) -> bool | None:
    """Return True if the id has been in Prepare* longer than stuck_after, None if unknown.

    Its coordinator stamped the Prepare* record, like the start, by its own clock. So that clock is
    asked whether the transaction runs longer than stuck_after plus the time between both.
    """
    value = record.value if record else None
    row = look.row
    if (
        record is None
        or not isinstance(value, TransactionValue)
        or value.state != row.state
        or value.producer_epoch != row.producer_epoch
        or row.start_timestamp is None
    ):
        return None
    limit = settings.stuck_after + max(0, record.timestamp - row.start_timestamp)
    past = await coordinators.runs_longer(cluster, row, limit)
    if past is not None:
        return past
    over = look.collected_at - record.timestamp - settings.stuck_after
    return None if abs(over) <= settings.clock_skew else over > 0


async def _records(
    cluster: Cluster, looks: Sequence[IdFacts], settings: Settings
) -> tuple[dict[str, StateRecord], list[Missing]]:
    """Return the newest record, in its coordinator's log, of each id that needs more requests."""
    names = {look.row.transactional_id for look in looks if _further(look, settings)}
    if not names:
        return {}, []
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return {}, [partitions]
    homes = {coordinator_partition(name, len(partitions)) for name in names}
    needed = [p for p in partitions if p.partition in homes]
    cache = state_cache(cluster.cluster_id, partitions[0].topic_id if partitions else None)
    logs = await noted_state_logs(cluster, needed, (), names, cache, newest=1)
    newest = {r.transactional_id: r for log in logs for r in log.records}
    missing = [
        Missing(
            "partition",
            log.error,
            and_grant(
                "the history of its transactional ids could not be read",
                log.error,
                "READ on that topic",
            ),
            topic=coordinators.TRANSACTION_STATE,
            partition=log.partition,
        )
        for log in logs
        if log.error is not None
    ]
    return {name: r for name, r in newest.items() if name in names}, missing


async def past_limits(
    cluster: Cluster,
    rows: Sequence[TransactionFacts],
    settings: Settings,
    producer_ids: Collection[int] = (),
) -> Past:
    """Return which ids are past their timeout, long_after, stuck_after by the coordinators' clocks.

    rows: described. producer_ids: ask only for these; none = for all.
    """
    tells = {b: await _tells_how_long(cluster, b) for b in {t.coordinator for t in rows}}
    if rows and not any(tells.values()):
        return Past(None, None, None)
    ongoing = [t for t in rows if t.state == "Ongoing"]
    preparing = [t for t in rows if t.state in PREPARING]
    limits = sorted({t.timeout_ms for t in ongoing if t.timeout_ms is not None})
    answers = await asyncio.gather(
        _past(cluster, ongoing, ["Ongoing"], settings.long_after, producer_ids),
        _past(cluster, preparing, PREPARING, settings.stuck_after, producer_ids),
        *(
            _past(
                cluster,
                [t for t in ongoing if t.timeout_ms == limit],
                ["Ongoing"],
                limit,
                producer_ids,
            )
            for limit in limits
        ),
    )
    silent = frozenset(t.transactional_id for t in rows if not tells[t.coordinator])
    unseen = silent.union(*(missing for _, missing in answers))
    if unseen and unseen.issuperset(t.transactional_id for t in (*ongoing, *preparing)):
        return Past(None, None, None)
    (over_long, _), (over_stuck, _), *timeouts = answers
    over_timeout = frozenset[str]().union(*(ids for ids, _ in timeouts))
    return Past(over_timeout, over_long, over_stuck, unseen)


async def _tells_how_long(cluster: Cluster, broker: int) -> bool:
    """Return True if a coordinator can list transactions open for longer than a limit."""
    try:
        connection = await cluster.connection(broker)
    except WireError:
        return False
    return connection.supports(messages.ListTransactionsRequest, 1)


async def _past(
    cluster: Cluster,
    rows: Sequence[TransactionFacts],
    states: Sequence[str],
    limit: int,
    producer_ids: Collection[int],
) -> tuple[frozenset[str], frozenset[str]]:
    """Return which of these ids are past a limit, and which could not be asked about."""
    if not rows:
        return frozenset(), frozenset()
    late = await coordinators.transactions(
        cluster,
        states=states,
        producer_ids=sorted(producer_ids),
        running_longer_than_ms=limit,
    )
    names = frozenset(t.transactional_id for t in rows)
    unseen = frozenset[str]()
    if late.missing:
        unseen = frozenset(
            t.transactional_id
            for t in rows
            if (log := late.log_of(t.transactional_id)) is None
            or not log.seen
            or log.leader != t.coordinator
        )
    return frozenset(t.transactional_id for t in late.rows) & names, unseen
