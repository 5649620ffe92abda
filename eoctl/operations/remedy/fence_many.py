"""Plan fences of many ids on one snapshot of all of them.

The joint snapshot proves no less than one of a single id: the same requests in the same order, two
per partition, just as far apart. If a part is missing, or moved meanwhile, the ids affected get
their own snapshot.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.inspect import history_answer
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy.remedy_plan import Counts, RemedyRequest
from eoctl.settings.context import Context
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import Missing, TopicPartition, TransactionFacts, grouped
from recovery.inspect.observation import Sample, Settings
from recovery.selectors import Selector, parse_selector

AT_ONCE = 16  # ids planned in parallel


async def plan_each(
    cluster: Cluster,
    context: Context,
    requests: Sequence[RemedyRequest],
    settings: Settings,
    interval: float,
    diagnosis: Diagnosis | None = None,
) -> dict[str, Plan | EoctlError]:
    """Plan each id's fence or return why it has none, by id.

    diagnosis: the one that the requests come from. An id that it proves is not checked again.
    """
    names = list(dict.fromkeys(w.transactional_id for w in requests if w.transactional_id))
    looks = {}
    if len(names) > 1:
        looks = await looks_at(cluster, names, settings, interval, diagnosis)
    few = asyncio.Semaphore(AT_ONCE)

    async def one(request: RemedyRequest) -> Plan | EoctlError:
        look = looks.get(request.transactional_id or "")
        async with few:
            try:
                return await remedy_fence.plan(cluster, context, request, settings, interval, look)
            except (RefusedError, IncompleteError) as error:
                return error

    plans = await asyncio.gather(*(one(request) for request in requests))
    return {w.transactional_id or "": p for w, p in zip(requests, plans, strict=True)}


async def looks_at(
    cluster: Cluster,
    names: Sequence[str],
    settings: Settings,
    interval: float,
    before: Diagnosis | None = None,
) -> dict[str, remedy_fence.Look]:
    """Check all these ids together; leave out an id for which the result proves too little.

    before: a diagnosis just made. Only ids for which it proves too little are checked.
    """
    rows, _ = await coordinators.find(cluster, names)
    ongoing = [t for t in rows if t.state == "Ongoing"]
    if not ongoing:
        return {}
    ids = [t.transactional_id for t in ongoing]
    logs = await history_answer.read_state_logs(cluster, ids, (), newest=1)
    partitions: dict[str, tuple[TopicPartition, ...]] = {}
    for row in ongoing:
        try:
            partitions[row.transactional_id] = remedy_fence.partitions_in(logs, row)
        except (RefusedError, IncompleteError):
            continue
    if not partitions:
        return {}
    rows_in = [row for row in ongoing if row.transactional_id in partitions]
    counts = Counts(cluster)
    known = {} if before is None else _proven(rows_in, partitions, before, counts, everywhere=True)
    left = [row for row in rows_in if row.transactional_id not in known]
    if not left:
        return known
    scope = Scope(
        _selectors({partition for row in left for partition in partitions[row.transactional_id]})
    )
    try:
        diagnosis = await diagnose(cluster, scope, settings, pause=interval)
    except IncompleteError:
        return known
    return known | _proven(left, partitions, diagnosis, counts, everywhere=False)


def _proven(
    rows: Sequence[TransactionFacts],
    partitions: Mapping[str, tuple[TopicPartition, ...]],
    diagnosis: Diagnosis,
    counts: Counts,
    *,
    everywhere: bool,
) -> dict[str, remedy_fence.Look]:
    """Return the snapshots of the ids that a diagnosis proves completely.

    everywhere: only if each of an id's partitions was judged, since the diagnosis's scope is not
    known.
    """
    judged = grouped((j.about.topic_partition, j) for j in diagnosis.judged)
    looks = {}
    for row in rows:
        of_id = partitions[row.transactional_id]
        mine = [j for partition in of_id for j in judged.get(partition, ())]
        own = {j.about.topic_partition for j in mine if j.about.producer_id == row.producer_id}
        if everywhere and own != set(of_id):
            continue
        if _is_proven(row, mine, of_id, diagnosis.missing):
            looks[row.transactional_id] = remedy_fence.Look(row, of_id, tuple(mine), counts)
    return looks


def _selectors(partitions: Iterable[TopicPartition]) -> tuple[Selector, ...]:
    by_topic = grouped((topic, str(number)) for topic, number in sorted(partitions))
    return tuple(parse_selector(f"{t}:{','.join(numbers)}") for t, numbers in by_topic.items())


def _is_proven(
    row: TransactionFacts,
    judged: Sequence[Judged],
    partitions: Sequence[TopicPartition],
    missing: Iterable[Missing],
) -> bool:
    """Return True if a snapshot of this id alone would have shown nothing else.

    judged: on its partitions.
    """
    mine = [j for j in judged if j.about.producer_id == row.producer_id]
    return (
        bool(mine)
        and not any(_concerns(m, partitions) for m in missing)
        and all(_is_whole(s, row) for j in judged for s in (j.first, j.second) if s is not None)
    )


def _concerns(missing: Missing, partitions: Sequence[TopicPartition]) -> bool:
    """Return False only if the fact clearly concerns other topics or partitions than these."""
    if missing.topic in (None, coordinators.TRANSACTION_STATE):
        return True
    if missing.partition is None:
        return missing.topic in {topic for topic, _ in partitions}
    return missing.topic_partition in partitions


def _is_whole(sample: Sample, row: TransactionFacts) -> bool:
    """Return True if the snapshot is complete, and has the id as it was described."""
    clocks = (sample.over_timeout, sample.over_long, sample.over_stuck)
    return (
        row in sample.transactions.owners(row.producer_id)
        and all(over is not None for over in clocks)
        and not sample.groups_missing
        and not sample.transactions.missing
    )
