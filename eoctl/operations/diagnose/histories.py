"""Read open transactions' past: what `__transaction_state` and the data logs' markers say."""

from collections.abc import Collection, Sequence

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.read import producer_markers
from eoctl.kafka.read.state_logs import state_logs
from eoctl.operations.diagnose.looking import Look
from eoctl.operations.inspect.marker_origins import own_markers
from eoctl.stores.history_cache import StateCache, state_cache
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.chains import wanted_of
from recovery.inspect.history import History, Marker, Markers, StateLog, read_history
from recovery.inspect.lost_markers import OwnMarker, own_first, past_of, with_origins
from recovery.inspect.observation import CLOSED_STATES, OpenTransaction, StartBatch
from recovery.inspect.rights import and_grant
from recovery.inspect.topic_sightings import Sightings
from recovery.values import replace

ALONE = 3  # producer ids whose records are loaded again, together


async def histories(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    starts: dict[OpenTransaction, StartBatch],
    look: Look,
    facts: dict[TopicPartition, PartitionFacts],
    topics: Sequence[TopicMetadata],
) -> tuple[dict[OpenTransaction, History], list[Missing]]:
    """Read what `__transaction_state` and, for transactions v1, the data logs' markers say."""
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        unread_past = {w: _not_read(w, partitions) for w in transactions if w in starts}
        return unread_past, [partitions]
    starts = starts | {
        # if the batch is unreadable, the epoch that its coordinator decided bounds it
        w: StartBatch(w.producer_id, t.producer_epoch)
        for w in transactions
        if w.start_offset is None and w.producer_id is not None
        for t in look.transactions.owners(w.producer_id)
        if t.producer_epoch is not None
    }
    candidates = [w for w in transactions if w in starts and w.producer_id is not None]
    pids = wanted_of(candidates, starts)
    ids = {t.transactional_id for t in look.transactions.rows if t.producer_id in pids}
    cache = state_cache(cluster.cluster_id, partitions[0].topic_id if partitions else None)
    homes = {coordinator_partition(name, len(partitions)) for name in ids if partitions}
    logs = await state_logs(
        cluster, [p for p in partitions if p.partition in homes], pids, ids, cache
    )
    if any(not any(log.naming(pid) for log in logs) for pid in pids):
        # an id lives where its records are, which may differ from its hash's partition
        others = [p for p in partitions if p.partition not in homes]
        logs += await state_logs(cluster, others, pids, ids, cache)
    sighted = await _sight(cluster, topics, {w.topic_partition for w in candidates}, logs, cache)
    unread = [log for log in logs if log.error is not None]
    missing = [
        Missing(
            "partition",
            log.error or "",
            and_grant(
                "the history of its transactional ids could not be read",
                log.error or "",
                "READ on that topic",
            ),
            topic=coordinators.TRANSACTION_STATE,
            partition=log.partition,
        )
        for log in unread
    ]

    owned = {
        (t.producer_id, topic_partition)
        for t in look.transactions.rows
        if t.state not in CLOSED_STATES and not t.ghost
        for topic_partition in t.partitions or ()
    }
    unowned = [w for w in candidates if (w.producer_id, w.topic_partition) not in owned]

    def history(w: OpenTransaction, logs: Sequence[StateLog]) -> History:
        known = look.transactions.owners(w.producer_id or 0)
        return read_history(
            starts[w],
            w.topic_partition,
            logs,
            len(partitions),
            known_ids=[t.transactional_id for t in known],
            confirmed_ids=[t.transactional_id for t in known if t.error is None],
            sightings=sighted.get(w.topic),
        )

    histories = {w: history(w, logs) for w in candidates}
    # of many ids only a part was loaded; if a remedy is due, each decision counts
    short = [
        w
        for w in {*unowned, *_late(candidates, look)}
        if histories[w].reason == "history-compacted"
        and any(log.cuts_of(histories[w].transactional_ids) for log in logs)
    ]
    alone = sorted(wanted_of(short, starts).items())
    for few in (dict(alone[at : at + ALONE]) for at in range(0, len(alone), ALONE)):
        if len(few) == len(pids):
            break  # nothing was left out for others
        naming = {log.partition for log in logs if any(log.naming(pid) for pid in few)}
        again = await state_logs(
            cluster, [p for p in partitions if p.partition in naming], few, (), cache
        )
        again += [log for log in logs if log.partition not in naming]
        histories |= {w: history(w, again) for w in short if w.producer_id in few}
    # v1 shows it by order; markers of unowned transactions are shown, and must be explained
    uncertain = [
        w
        for w, h in histories.items()
        if any(d.client_version < 2 for d in h.decisions) or w in unowned
    ]
    if uncertain:
        read = await producer_markers.markers(cluster, uncertain, facts)
        own = own_markers(cluster.cluster_id)
        for w in uncertain:
            if (markers := read.get(w)) is not None:
                found, first = markers.found, markers.first
                if w in unowned:  # of a live one, the strip near its start is enough
                    found = _with_origins(w, histories[w], found, logs, own)
                histories[w] = replace(histories[w], markers=found, markers_from=first)
    return histories, missing


def _with_origins(
    w: OpenTransaction,
    history: History,
    markers: Sequence[Marker],
    logs: Sequence[StateLog],
    own: Sequence[OwnMarker] | None,
) -> Sequence[Marker]:
    """Return the markers by offset, with the origins of those before the open transaction.

    Later ones may be decided by records that the logs did not hold yet.
    """
    if own is None or history.reason == "history-not-read":
        return markers
    start = w.start_offset or 0
    before = [m for m in markers if m.offset < start]
    judged = with_origins(before, history.decisions, past_of(logs, history.producer_id))
    judged = own_first(judged, w.topic_partition, history.producer_id, own)
    return Markers([*judged, *(m for m in markers if m.offset >= start)])


def _late(candidates: Sequence[OpenTransaction], look: Look) -> list[OpenTransaction]:
    """Return those whose id runs past a limit, by the coordinators' clocks; all if none answers.

    A fence is proposed for them only if no decided data is below the open transaction.
    """
    late: list[OpenTransaction] = []
    for w in candidates:
        sample = look.samples[w.topic_partition]
        limits = (sample.over_timeout, sample.over_long)
        ids = {t.transactional_id for t in look.transactions.owners(w.producer_id or 0)}
        if any(limit is None or ids & limit for limit in limits):
            late.append(w)
    return late


def _not_read(w: OpenTransaction, why: Missing) -> History:
    pid = w.producer_id or 0
    return History(pid, (), (), (), "history-not-read", 0, log_error=why.error)


async def _sight(
    cluster: Cluster,
    topics: Sequence[TopicMetadata],
    partitions_in_scope: Collection[TopicPartition],
    logs: Sequence[StateLog],
    cache: StateCache | None,
) -> dict[str, Sightings]:
    """Return the ids that each topic's name had, and note the ids of all topics now.

    topics: described before the logs were read. Records are read by name from the leader: if it
    knows the topic by another id than the broker that described it, the present id is unknown.
    """
    if cache is None:
        return {}
    before = cache.noted_ends()
    now = {t.name: t.topic_id for t in topics if t.topic_id is not None}
    partitions = [
        p for t in topics for p in t.partitions if p.topic_partition in partitions_in_scope
    ]
    of_leaders = await collect.ids_of_leaders(cluster, partitions)
    confirmed = {name for name, ids in of_leaders.items() if ids == {now.get(name)}}
    ends = {log.partition: log.end for log in logs if log.end is not None}
    await cache.sight(now, ends, confirmed, before)
    names = {topic for topic, _ in partitions_in_scope}
    former = cache.sightings(names)
    return {n: Sightings(now[n] if n in confirmed else None, former[n]) for n in names}
