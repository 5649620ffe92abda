"""Make one plan of many remedies: `txn hanging --plan` writes it, `txn apply` carries it out."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.inspect import history_answer
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.living import with_evidence
from eoctl.operations.remedy.remedy_plan import Counts, RemedyRequest, amounts, judged_with
from eoctl.render.verdicts.remedy_words import remedy_words
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import Missing, TopicPartition, TransactionFacts, grouped
from recovery.inspect.observation import Sample, Settings
from recovery.plurals import counted
from recovery.quoting import some
from recovery.selectors import Selector, parse_selector
from recovery.values import Value

MANY_VERDICTS = ("orphan", "marker-lost", "overdue")
"""What one plan of many carries remedies for; `long` and `two-phase` must be asked for by name."""
AT_ONCE = 16  # fences planned in parallel
QUIET = ("open", "prepare")  # no findings: silently left out of a plan, unless requested


class Many(Value):
    """plan: None if nothing may be carried out. left_out: every transaction without a step.

    Each with transactional_id, partition, producer_id, verdict, rule and reason.
    """

    plan: Plan | None
    left_out: tuple[Mapping[str, Any], ...]


async def plan_many(
    cluster: Cluster,
    context: Context,
    diagnosis: Diagnosis,
    verdicts: Collection[str],
    *,
    pause: float,
    named: bool = False,
) -> Many:
    """Plan all remedies of a diagnosis that may be carried out, each step independent.

    An id that is open on several partitions is fenced once. named: the verdicts were marked by
    hand: then transactions within their limits are listed too, with the reason.
    """
    steps: dict[str, Step] = {}
    observed: dict[str, Any] = {}
    left_out: list[Mapping[str, Any]] = []
    fences = await plan_each(
        cluster, context, fences_named(diagnosis, verdicts), diagnosis.settings, pause, diagnosis
    )
    for judged in diagnosis.judged:
        verdict = judged.verdict
        if verdict.name in QUIET and not named and verdict.name not in verdicts:
            continue
        try:
            if verdict.name not in verdicts:
                raise RefusedError(f"{verdict.name} was not requested (--verdict {verdict.name})")
            if verdict.remedy.action == "fence" and verdict.remedy.transactional_id is not None:
                one = fences[verdict.remedy.transactional_id]
                if isinstance(one, EoctlError):
                    raise one
                steps[verdict.remedy.transactional_id] = one.steps[0]
                observed |= one.observed
                continue
            step, facts = await _marker(cluster, judged)
        except (RefusedError, IncompleteError) as error:
            left_out.append(_left_out(judged, error))
            continue
        steps[step.stands_on[0]] = step
        observed |= facts
    for bare in diagnosis.ids:
        v = bare.verdict
        if v.name in QUIET and not named and v.name not in verdicts:
            continue
        left_out.append(
            {
                "transactional_id": bare.name,
                "partition": None,
                "producer_id": v.about.producer_id,
                "verdict": v.name,
                "rule": v.rule,
                "reason": "it holds no partition and needs a plan of its own: "
                + remedy_words(v.remedy.does),
            }
        )
    if not steps:
        return Many(None, tuple(left_out))
    plan = new_plan(
        context,
        cluster.cluster_id,
        kind="txn-many",
        action="apply",
        scope="transactions",
        summary=_summary(steps.values(), left_out),
        steps=tuple(steps.values()),
        observed=observed,
        details=judged_with(diagnosis.settings, pause, left_out),
        hits=f"{len(steps)}-{_worst(steps.values())}",
        independent=True,
    )
    plan = await with_evidence(cluster, plan, pause)
    return Many(plan, tuple(left_out))


def fences_named(diagnosis: Diagnosis, verdicts: Collection[str]) -> list[RemedyRequest]:
    """Return the fences that the verdicts name, each id once."""
    return list(
        {
            r.transactional_id: RemedyRequest(
                "fence",
                transactional_id=r.transactional_id,
                producer_id=r.producer_id,
                producer_epoch=r.producer_epoch,
            )
            for v in (j.verdict for j in diagnosis.judged)
            if v.name in verdicts and (r := v.remedy).action == "fence" and r.transactional_id
        }.values()
    )


async def _marker(cluster: Cluster, judged: Judged) -> tuple[Step, dict[str, Any]]:
    """Return the one marker of this transaction. Raises RefusedError, IncompleteError."""
    verdict = judged.verdict
    action = verdict.remedy.action
    if action not in ("abort", "resolve"):
        raise RefusedError(f"its remedy is {action}: {remedy_words(verdict.remedy.does)}")
    request = RemedyRequest(action, outcome=verdict.proven_outcome if action == "resolve" else None)
    remedy_marker.refuse(judged, request, cluster.transaction_version)
    steps, facts = await remedy_marker.marker_steps(cluster, judged, request)
    if len(steps) > 1:
        name = next(s.target for s in steps if s.action == remedy_raise.ACTION)
        raise RefusedError(
            f"{name} is idle with its producer id: an application that runs would have to be "
            f"restarted, so do it one at a time (txn {action} {judged.about.name})"
        )
    return steps[0], facts


def _left_out(judged: Judged, error: EoctlError) -> Mapping[str, Any]:
    owner = judged.verdict.owner
    return {
        "transactional_id": owner.transactional_id if owner else None,
        "partition": judged.about.name,
        "producer_id": judged.about.producer_id,
        "verdict": judged.verdict.name,
        "rule": judged.verdict.rule,
        "reason": error.what,
    }


def _worst(steps: Collection[Step]) -> str:
    """Return the step that drops most records; of equal ones the first."""

    def dropped(step: Step) -> int:
        return sum(about["dropped"] or 0 for about in step.about)

    return max(steps, key=dropped).target


def _summary(steps: Collection[Step], left_out: Collection[object]) -> str:
    kinds = Counter("fence" if s.action == "fence" else s.parameters["outcome"] for s in steps)
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    names = some([step.target for step in steps])
    text = f"{counted(len(steps), 'transaction')} ({names}): {words}; {_amounts(steps)}"
    if len(steps) > 1:
        text += f"; the worst is {_worst(steps)}"
    return text + (f"; {len(left_out)} left out" if left_out else "")


def _amounts(steps: Collection[Step]) -> str:
    """Return what all steps drop and free; "at least" if one could not be counted."""
    rows = [row for step in steps for row in step.about]
    known = [row for row in rows if row["dropped"] is not None]
    return amounts(
        {
            "dropped": sum(row["dropped"] for row in known) if known else None,
            "freed": sum(row["freed"] for row in known),
            "counted_whole": len(known) == len(rows) and all(r["counted_whole"] for r in known),
        }
    )


async def plan_each(
    cluster: Cluster,
    context: Context,
    requests: Sequence[RemedyRequest],
    settings: Settings,
    interval: float,
    diagnosis: Diagnosis | None = None,
) -> dict[str, Plan | EoctlError]:
    """Plan each id's fence or return why it has none, by id, on one snapshot of all of them.

    The joint snapshot proves no less than one of a single id: the same requests in the same order,
    two per partition, just as far apart. If a part is missing, or moved meanwhile, the ids affected
    get their own snapshot.

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
