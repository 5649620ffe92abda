"""Looking at every open transaction of a cluster and judging it: what `status`, `why`,
`txn hanging`, `check` and the remedies begin with.

Only partitions with LSO < HW are asked further; the history is read and the second look is taken
only when the first leaves a verdict open. The rules are `recovery.diagnose.verdicts`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, collect, coordinators
from eoctl.kafka.ask.standing import leaderless, standing, with_least_in_sync
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, TopicMetadata
from eoctl.kafka.read import evidence
from eoctl.kafka.read.state_logs import state_logs
from eoctl.operations.diagnose.ids import PREPARING, JudgedIds, Past, judge_ids, past_limits
from eoctl.operations.diagnose.owners import Owners, look_for_life
from eoctl.operations.inspect.lists import Scope, matching_nothing, selected
from eoctl.operations.inspect.source import OnFirstLook
from eoctl.stores.history_cache import StateCache, state_cache
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.diagnose.verdicts import judge
from recovery.errors import IncompleteError
from recovery.facts import Missing, PartitionFacts, TopicPartition, TransactionFacts, Transactions
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.chains import wanted_of
from recovery.inspect.history import History, StateLog, read_history
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.observation import (
    CLOSED_STATES,
    OpenTransaction,
    Sample,
    Settings,
    StartBatch,
)
from recovery.inspect.topic_sightings import Sightings
from recovery.inspect.two_phase import looks_precommitted
from recovery.times import format_duration

SECOND_LOOK_RULES = frozenset(
    {"one-sample", "lost-seen-once", "past-timeout", "past-long", "refused-seen-once"}
)
QUIET = frozenset({"open", "prepare"})  # verdicts that stand where the history cannot be read
NOT_JUDGED = frozenset({"partition-not-seen", "producers-not-seen", "no-open-transaction"})


@dataclass(frozen=True, slots=True)
class _Look:
    """One sample of many partitions at once."""

    samples: dict[TopicPartition, Sample]
    transactions: Transactions
    missing: tuple[Missing, ...]
    at: float  # monotonic


async def diagnose(
    cluster: Cluster,
    scope: Scope,
    settings: Settings,
    *,
    pause: float = 5.0,
    on_first_look: OnFirstLook = None,
) -> Diagnosis:
    """Judge every open transaction on the held partitions in scope.

    Without selectors also every transactional id that is not at rest and holds no partition.
    on_first_look: called before the pause where a second look is needed, with what one look
    judges; ids that hold no partition are looked at later.
    Raises IncompleteError when the second look does not fit into the deadline.
    """
    metadata, chosen, missing = await selected(cluster, scope)
    offsets, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    missing += more
    behind = {(p.topic, p.partition) for p in offsets if p.held}
    held = [p for p in chosen if (p.topic, p.partition) in behind]
    known = {p.id for p in metadata.brokers.values()} | {
        replica for p in chosen for replica in p.replicas
    }
    unseen = [p for p, facts in zip(chosen, offsets, strict=True) if facts.error is not None]
    topics = tuple(metadata.topics.values())
    look: _Look | None = None
    if held or unseen:
        look = await _look(cluster, topics, held, settings, unseen)
    judged: list[Judged] = []
    paused: float | None = None

    def diagnosis(judged: Sequence[Judged], ids: Sequence[JudgedId]) -> Diagnosis:
        newest = {j.about.topic_partition: j.partition for j in judged}
        return Diagnosis(
            cluster_id=cluster.cluster_id,
            collected_at=now_ms(),
            scanned=len(chosen),
            transaction_version=cluster.transaction_version,
            brokers_up=len(metadata.brokers) - len(cluster.silent),
            brokers_known=len(known),
            partitions=tuple(
                newest.get((p.topic, p.partition), p)
                for p in offsets
                if p.held or p.error is not None
            ),
            judged=tuple(judged),
            transactions=look.transactions if look else Transactions(),
            missing=tuple(dict.fromkeys(missing)),
            pause=None,
            settings=settings,
            notes=matching_nothing(scope, chosen),
            ids=tuple(ids),
        )

    def first_look(judged: Sequence[Judged], ids: Sequence[JudgedId] = ()) -> None:
        if on_first_look is not None:
            on_first_look(diagnosis(judged, ids))

    if look is not None:
        judged, paused, more = await _judge_all(
            cluster, look, topics, held, unseen, settings, pause, first_look
        )
        missing += [*look.missing, *more]
    others = JudgedIds((), look.transactions if look else Transactions(), ())
    if not scope.selectors:
        holding = {
            t.transactional_id
            for j in judged
            if (t := j.verdict.owner) and j.about.topic_partition in (t.partitions or ())
        }
        others = await judge_ids(
            cluster,
            holding,
            settings,
            pause=pause,
            on_first_look=lambda ids: first_look(judged, ids),
        )
        missing += others.missing
    return replace(
        diagnosis(judged, others.ids),
        transactions=look.transactions if look else others.transactions,
        pause=paused if others.pause is None else others.pause,
    )


async def look_again(
    cluster: Cluster, before: Sequence[Judged], settings: Settings
) -> list[Judged | None]:
    """Judge each once more on a fresh second look; None: it is over.

    For the moment before a remedy acts: first look and history are those of `before`.
    """
    names = sorted({j.about.topic for j in before})
    metadata = await cluster.metadata(names)
    unread = {j.about.topic_partition for j in before if j.about.start_offset is None}
    places = {j.about.topic_partition for j in before}
    here = [
        p
        for t in metadata.topics.values()
        for p in t.partitions
        if (p.topic, p.partition) in places
    ]
    held = [p for p in here if (p.topic, p.partition) not in unread]
    unseen = [p for p in here if (p.topic, p.partition) in unread]
    look = await _look(cluster, tuple(metadata.topics.values()), held, settings, unseen)
    result: list[Judged | None] = []
    for j in before:
        second = look.samples.get(j.about.topic_partition)
        if second is None:
            raise IncompleteError("the partition is not there any more", where=j.about.name)
        verdict = judge(j.about, j.start, j.first, second, j.history, settings)
        result.append(None if verdict is None else replace(j, second=second, verdict=verdict))
    return result


async def _look(
    cluster: Cluster,
    topics: Sequence[TopicMetadata],
    held: Sequence[PartitionMetadata],
    settings: Settings,
    unseen: Sequence[PartitionMetadata] = (),
) -> _Look:
    """The partitions first, then the coordinators: an owner that ends meanwhile is no orphan.

    unseen: partitions whose leader did not answer. What waits for them is seen from the other
    side: an id in Prepare* that names them cannot write its markers.
    """
    at = time.monotonic()
    offsets, missing = await collect.partition_offsets(cluster, topics, [*held, *unseen])
    rows, more = await collect.producers(cluster, held)
    missing += more
    pids = {
        p.producer_id
        for states in rows.values()
        for p in states
        if p.current_txn_start_offset is not None
    }
    transactions = Transactions()
    past = Past(None, None, None)
    ids: tuple[IdFacts, ...] = ()
    owners = Owners()
    if unseen:
        preparing = await coordinators.transactions(cluster, states=PREPARING)
        missing += preparing.missing
        pids |= {t.producer_id for t in preparing.rows}
    if pids:
        listed = await coordinators.transactions(cluster, producer_ids=sorted(pids))
        listed = await with_least_in_sync(cluster, listed)
        described, more = await coordinators.described(cluster, listed.rows)
        # an id that could not be described keeps its row: the rules know what to do with it
        transactions = listed.but(
            rows=tuple(described),
            missing=(*listed.missing, *more),
            clocks=await clocks.measured(cluster, described, now_ms),
        )
        missing += transactions.missing
        past = await past_limits(cluster, described, settings, pids)
        preparing_rows = [t for t in described if t.state in PREPARING]
        id_facts = await standing(cluster, preparing_rows, now_ms()) if preparing_rows else []
        ids = tuple(_young_or_not(i, past) for i in id_facts)
        guessed = [t for t in described if looks_precommitted(t, settings)]
        owners = await look_for_life(cluster, _late(described, past), guessed)
    named = {p.topic_partition: p.facts for i in ids for p in i.named or ()}
    named |= await leaderless(cluster, transactions)
    no_rows = {
        (m.topic, m.partition): m for m in missing if m.scope == "partition" and m.topic is not None
    }
    samples = {
        (p.topic, p.partition): Sample(
            partition=p,
            producers=rows.get((p.topic, p.partition)),
            transactions=transactions,
            collected_at=now_ms(),
            topic_describe=p.error is None,
            producers_missing=no_rows.get((p.topic, p.partition)),
            over_timeout=past.over_timeout,
            over_long=past.over_long,
            over_stuck=past.over_stuck,
            list_version=None if past.over_long is None else 1,
            named=tuple(named.values()),
            abort_cycles=owners.abort_cycles,
            groups=owners.groups,
            groups_missing=owners.groups_missing,
            ids=ids,
        )
        for p in offsets
    }
    return _Look(samples, transactions, tuple(missing), at)


def _young_or_not(look: IdFacts, past: Past) -> IdFacts:
    """The look with what its coordinator's clock says: begun lately, it was not decided before."""
    young = past.over_stuck is not None and look.row.transactional_id not in past.over_stuck
    return replace(look, decided_long_ago=False) if young else look


def _late(rows: Sequence[TransactionFacts], past: Past) -> list[TransactionFacts]:
    """Those past a limit; all that are Ongoing where no coordinator's clock could be asked."""
    ongoing = [t for t in rows if t.state == "Ongoing"]
    if past.over_timeout is None or past.over_long is None:
        return ongoing
    return [t for t in ongoing if t.transactional_id in past.over_timeout | past.over_long]


def _open_transactions(look: _Look, held: Collection[TopicPartition]) -> list[OpenTransaction]:
    """Return each producer's open transaction per partition, None where nobody could tell.

    On a partition that was not seen at all: those of ids in Prepare* that name it.
    """
    transactions: list[OpenTransaction] = []
    for (topic, partition), sample in sorted(look.samples.items()):
        if (topic, partition) not in held:
            transactions += [
                OpenTransaction(topic, partition, t.producer_id, None)
                for t in sample.transactions.rows
                if t.state in PREPARING and (topic, partition) in (t.partitions or ())
            ]
            continue
        opened = [
            OpenTransaction(topic, partition, p.producer_id, p.current_txn_start_offset)
            for p in sample.producers or ()
            if p.current_txn_start_offset is not None
        ]
        if not opened and sample.partition.held != 0:
            opened = [OpenTransaction(topic, partition, None, None)]
        transactions += sorted(opened, key=lambda o: o.start_offset or 0)
    return transactions


def _last_epochs(look: _Look, opened: Sequence[OpenTransaction]) -> dict[OpenTransaction, int]:
    """Return the epoch of each producer's last batch, as the partition's leader describes it."""
    rows = {o: look.samples[o.topic_partition].producer(o.producer_id or 0) for o in opened}
    return {o: row.producer_epoch for o, row in rows.items() if row is not None}


async def _judge_all(
    cluster: Cluster,
    look: _Look,
    topics: Sequence[TopicMetadata],
    held: Sequence[PartitionMetadata],
    unseen: Sequence[PartitionMetadata],
    settings: Settings,
    pause: float,
    on_first_look: Callable[[Sequence[Judged]], None],
) -> tuple[list[Judged], float | None, list[Missing]]:
    opened = _open_transactions(look, {(p.topic, p.partition) for p in held})
    facts = {key: sample.partition for key, sample in look.samples.items()}
    starts = await evidence.start_batches(
        cluster, [o for o in opened if o.producer_id is not None], facts, _last_epochs(look, opened)
    )
    judged = _judge(opened, starts, look, None, {}, settings)
    # even of open ones: under transactions v1 a lost marker may lie below the same epoch
    unclear = [j for j in judged if j.verdict.rule not in NOT_JUDGED]
    if not unclear:
        return judged, None, []
    histories, missing = await _histories(
        cluster, [j.about for j in unclear], starts, look, facts, topics
    )
    if all(j.verdict.name in QUIET for j in unclear):
        missing = []
    judged = _judge(opened, starts, look, None, histories, settings)
    again = {j.about.topic_partition for j in judged if j.verdict.rule in SECOND_LOOK_RULES}
    if not again:
        return judged, None, missing
    wait = max(0.0, look.at + pause - time.monotonic())
    left = cluster.deadline.seconds_left
    if left is not None and left < wait + 1.0:
        raise IncompleteError(
            f"the second look, {format_duration(pause)} after the first, does not fit into the "
            "time",
            remedy="give more time with --timeout",
        )
    on_first_look(judged)
    await asyncio.sleep(max(0.0, look.at + pause - time.monotonic()))
    second = await _look(
        cluster,
        topics,
        [p for p in held if (p.topic, p.partition) in again],
        settings,
        [p for p in unseen if (p.topic, p.partition) in again],
    )
    missing += second.missing
    return _judge(opened, starts, look, second, histories, settings), pause, missing


def _judge(
    opened: Sequence[OpenTransaction],
    starts: dict[OpenTransaction, StartBatch],
    first: _Look,
    second: _Look | None,
    histories: dict[OpenTransaction, History],
    settings: Settings,
) -> list[Judged]:
    judged: list[Judged] = []
    for about in opened:
        one = first.samples[about.topic_partition]
        two = None if second is None else second.samples.get(about.topic_partition)
        history = histories.get(about)
        verdict = judge(about, starts.get(about), one, two, history, settings)
        if verdict is not None:
            judged.append(Judged(about, starts.get(about), one, two, history, verdict))
    return judged


async def _histories(
    cluster: Cluster,
    transactions: Sequence[OpenTransaction],
    starts: dict[OpenTransaction, StartBatch],
    look: _Look,
    facts: dict[TopicPartition, PartitionFacts],
    topics: Sequence[TopicMetadata],
) -> tuple[dict[OpenTransaction, History], list[Missing]]:
    """Read what `__transaction_state` and, for transactions v1, the data logs' markers say."""
    partitions = await coordinators.state_partitions(cluster)
    if isinstance(partitions, Missing):
        return {}, [partitions]
    starts = starts | {
        # nobody could read the batch: the epoch that its coordinator decided bounds it
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
        # an id lives where its records are, and that need not be where its hash points
        others = [p for p in partitions if p.partition not in homes]
        logs += await state_logs(cluster, others, pids, ids, cache)
    sighted = await _sight(cluster, topics, {w.topic_partition for w in candidates}, logs, cache)
    unread = [log for log in logs if log.error is not None]
    missing = [
        Missing(
            "partition",
            log.error or "",
            "the history of its transactional ids could not be read",
            topic=coordinators.TRANSACTION_STATE,
            partition=log.partition,
        )
        for log in unread
    ]

    def history(w: OpenTransaction, markers: evidence.Markers | None) -> History:
        known = look.transactions.owners(w.producer_id or 0)
        return read_history(
            starts[w],
            w.topic_partition,
            logs,
            len(partitions),
            known_ids=[t.transactional_id for t in known],
            confirmed_ids=[t.transactional_id for t in known if t.error is None],
            sightings=sighted.get(w.topic),
            markers=markers.found if markers else (),
            markers_from=markers.first if markers else None,
        )

    histories = {w: history(w, None) for w in candidates}
    owned = {
        (t.producer_id, place)
        for t in look.transactions.rows
        if t.state not in CLOSED_STATES and not t.ghost
        for place in t.partitions or ()
    }
    # v1 tells by order; of what nobody owns the markers are shown, and must be explained
    uncertain = [
        w
        for w, h in histories.items()
        if any(d.client_version < 2 for d in h.decisions)
        or (w.producer_id, w.topic_partition) not in owned
    ]
    if uncertain:
        read = await evidence.markers(cluster, uncertain, facts)
        histories |= {w: history(w, read.get(w)) for w in uncertain}
    return histories, missing


async def _sight(
    cluster: Cluster,
    topics: Sequence[TopicMetadata],
    places_in_scope: Collection[TopicPartition],
    logs: Sequence[StateLog],
    cache: StateCache | None,
) -> dict[str, Sightings]:
    """Return the ids that each topic's name had, and note the ids of all topics now.

    topics: described before the logs were read. Records are read by name from the leader: where it
    knows the topic by another id than the broker that described it, the present id is not known.
    """
    if cache is None:
        return {}
    before = cache.noted_ends()
    now = {t.name: t.topic_id for t in topics if t.topic_id is not None}
    places = [p for t in topics for p in t.partitions if (p.topic, p.partition) in places_in_scope]
    of_leaders = await collect.ids_of_leaders(cluster, places)
    confirmed = {name for name, ids in of_leaders.items() if ids == {now.get(name)}}
    ends = {log.partition: log.end for log in logs if log.end is not None}
    await cache.sight(now, ends, confirmed, before)
    names = {topic for topic, _ in places_in_scope}
    former = cache.sightings(names)
    return {n: Sightings(now[n] if n in confirmed else None, former[n]) for n in names}
