"""Commit a dead owner's open transaction, since an earlier lost COMMIT lies below it.

One marker will decide both: the timeout of the open transaction destroys the committed records, its
commit saves them and delivers what its owner had written without a decision. Only the operator can
say which of the two is right, and only if the owner is gone: EndTxn with the observed producer id
and epoch, which changes nothing if either is stale.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import Effect
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.diagnose.owner_traces import look_for_life
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy import stake as remedy_stake
from eoctl.operations.remedy.remedy_plan import (
    Planned,
    RemedyRequest,
    amounts,
    judged_with,
    refusal,
    step_evidence,
)
from eoctl.operations.remedy.shutting_out import ShutOut
from eoctl.settings.context import Context
from recovery.change.plan import Step
from recovery.diagnose.case import life_of
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition, TransactionFacts
from recovery.inspect.observation import Settings
from recovery.plurals import counted
from recovery.remedy.group_offsets import COMMIT_OPEN
from recovery.remedy.repairs import commit_refused, remedy_allowed
from recovery.selectors import parse_selector
from recovery.times import format_duration

ACTION = COMMIT_OPEN


async def plan(
    cluster: Cluster, context: Context, request: RemedyRequest, settings: Settings, interval: float
) -> Planned:
    """Return the plan of this commit. Raises RefusedError and IncompleteError."""
    assert request.partition is not None
    where = request.partition
    diagnosis = await diagnose(cluster, Scope((parse_selector(where),)), settings, pause=interval)
    mixed = _meant(diagnosis, request)
    if mixed is None:
        if diagnosis.missing and diagnosis.partitions:
            raise IncompleteError(diagnosis.missing[0].detail, where=where)
        return Planned(None, await remedy_marker.how_it_ended(cluster, request))
    why = remedy_allowed(mixed.verdict, "resolve", owner_is_gone=True)
    if why is not None:
        raise refusal(mixed, why, cluster.transaction_version)
    assert mixed.verdict.owner is not None
    row = await remedy_fence.described(cluster, mixed.verdict.owner.transactional_id)
    judgement = await judged(cluster, row, settings, interval)
    mixed = next((j for j in judgement.mine if j.about == mixed.about), None)
    if mixed is None:
        raise RefusedError("it ended meanwhile", where=where, remedy="look again")
    step = await _step(cluster, row, mixed, judgement)
    subject = remedy_raise.subject(row.transactional_id)
    words = "; ".join(f"{a['partition']}: {amounts(a)}" for a in step.about)
    return Planned(
        new_plan(
            context,
            cluster.cluster_id,
            kind="txn-resolve",
            action="resolve",
            scope=mixed.about.name,
            summary=f"{row.transactional_id}: its open transaction is committed in its owner's "
            f"stead, undecided records with it ({words}); an owner that still lives is shut out",
            steps=(step,),
            observed={subject: facts(row, judgement)},
            details=judged_with(settings, interval),
            hits=f"commit-owner-is-gone-{mixed.about.name}",
        )
    )


def _meant(diagnosis: Diagnosis, request: RemedyRequest) -> Judged | None:
    start = request.producer_id, request.start_offset
    return next(
        (j for j in diagnosis.judged if (j.about.producer_id, j.about.start_offset) == start), None
    )


async def observe(
    cluster: Cluster, step: Step, settings: Settings, interval: float
) -> dict[str, Any]:
    """Judge all its partitions again; return what must be as planned."""
    row = await remedy_fence.described(cluster, step.target)
    subject = remedy_raise.subject(step.target)
    if row.state != "Ongoing":
        return {subject: remedy_raise.facts(row)}
    return {subject: facts(row, await judged(cluster, row, settings, interval))}


def facts(row: TransactionFacts, judgement: remedy_fence.Judgement) -> dict[str, Any]:
    """Return what must not change before it is sent; a move of the producer is a sign of life."""
    everything = remedy_fence.facts(row, judgement, RemedyRequest("resolve"))
    lost = {
        j.about.name: [j.about.start_offset, j.verdict.decision.offset]
        for j in judgement.mine
        if j.verdict.mixed and j.verdict.decision
    }
    return everything | {"lost_commits": lost}


async def judged(
    cluster: Cluster, row: TransactionFacts, settings: Settings, interval: float
) -> remedy_fence.Judgement:
    """Judge every partition of the open transaction: all of it is committed, or nothing is.

    Raises RefusedError if its commit would deliver aborted records, if somebody else may own it, or
    if its owner shows a sign of life; IncompleteError if that is unknown.
    """
    name, pid = row.transactional_id, row.producer_id
    if row.state != "Ongoing":
        raise RefusedError(f"it is {row.state}: its outcome is decided", where=name)
    partitions = await remedy_fence.partitions_of(cluster, row)
    before = await stands(cluster, partitions, pid)
    selectors = tuple(parse_selector(str(tp)) for tp in partitions)
    diagnosis = await diagnose(cluster, Scope(selectors), settings, pause=interval)
    if diagnosis.missing:
        raise IncompleteError(diagnosis.missing[0].detail, where=name)
    mine = [j for j in diagnosis.judged if j.about.producer_id in (None, pid)]
    version = cluster.transaction_version
    refused = [refusal(j, why, version, name) for j in mine if (why := commit_refused(j.verdict))]
    if refused:
        raise next((e for e in refused if isinstance(e, IncompleteError)), refused[0])
    if all(j.second is None for j in mine):
        await asyncio.sleep(interval)
    await refuse_life(cluster, row, mine, before, await stands(cluster, partitions, pid))
    return remedy_fence.Judgement(partitions, tuple(mine))


async def stands(
    cluster: Cluster, partitions: Sequence[TopicPartition], producer_id: int
) -> dict[TopicPartition, object]:
    """Return the producer's position on each partition. Raises IncompleteError."""
    metadata = await cluster.metadata(sorted({topic for topic, _ in partitions}))
    topic_partitions = set(partitions)
    metadata_rows = [
        p
        for t in metadata.topics.values()
        for p in t.partitions
        if p.topic_partition in topic_partitions
    ]
    rows, missing = await collect.producers(cluster, metadata_rows)
    if missing or set(rows) != topic_partitions:
        raise IncompleteError(
            missing[0].detail if missing else "its producers could not be read",
            where=", ".join(map(str, sorted(topic_partitions - set(rows)))) or None,
        )
    return {
        tp: next(
            (
                (r.producer_epoch, r.last_sequence, r.current_txn_start_offset)
                for r in here
                if r.producer_id == producer_id
            ),
            None,
        )
        for tp, here in rows.items()
    }


async def refuse_life(
    cluster: Cluster,
    row: TransactionFacts,
    mine: Sequence[Judged],
    before: dict[TopicPartition, object],
    after: dict[TopicPartition, object],
) -> None:
    """Raise RefusedError if the owner is seen alive, or another id may own it."""
    name = row.transactional_id
    for j in mine:
        for sample in (j.first, j.newest):
            if not sample.sees_all_coordinators:
                raise IncompleteError("not every coordinator was seen: another may own it")
            others = [t for t in sample.live(row.producer_id) if t.transactional_id != name]
            if others:
                raise RefusedError(
                    f"{others[0].transactional_id} is {others[0].state} with its producer id too",
                    where=name,
                )
    if before != after:
        raise RefusedError("its owner wrote between two looks: it is not gone", where=name)
    life = await look_for_life(cluster, [row])
    of_its_name = life_of(name, life.groups, life.groups_missing)
    if of_its_name.living:
        raise RefusedError(
            f"the group of its name has members ({of_its_name.names}): its owner may not be gone",
            where=name,
            remedy="stop that application first",
        )
    if of_its_name.unseen:
        raise IncompleteError(
            f"whether a group of its name has members is not known: {of_its_name.unseen[0]}",
            where=name,
        )
    await remedy_fence.refuse_members(cluster, mine, name)


async def _step(
    cluster: Cluster,
    row: TransactionFacts,
    mixed: Judged,
    judgement: remedy_fence.Judgement,
) -> Step:
    end = await remedy_fence.end_of(cluster, row)
    name, verdict = row.transactional_id, mixed.verdict
    about, harms = [], []
    for j in judgement.mine:
        # a lost commit of transactions v1 has the open transaction's epoch: no batch distinguishes
        # them, and all is shown
        mine_only = j.start is not None and j.start.producer_epoch < (row.producer_epoch or 0)
        stake = await remedy_stake.of(
            cluster, j, above=j.start.producer_epoch if mine_only and j.start else None
        )
        about.append(await step_evidence(cluster, j, "commit") | stake)
        harms.append(_delivered(j, stake["at_stake"], apart=mine_only or not j.verdict.mixed))
    if verdict.deadline_in is not None:
        left = verdict.deadline_in
        by_itself = (
            f"within {format_duration(left // 1000)}" if left > 0 else "at any moment, it is due"
        )
        harms.append(
            f"the other outcome: its coordinator aborts it {by_itself}, which drops the committed "
            "records too"
        )
    harms.append(f"an owner of {name} that still lives is shut out")
    return Step(
        action=ACTION,
        target=name,
        parameters=remedy_fence.request_of(row, judgement, end.version, initialise=True)
        | {
            "outcome": "commit",
            "partition": mixed.about.name,
            "start_offset": mixed.about.start_offset,
            "ends": {j.about.name: j.partition.high_watermark for j in judgement.mine},
            "owner_is_gone": True,
        },
        does=remedy_fence.does(row, "commit", end.version, initialise=True),
        stands_on=(remedy_raise.subject(name),),
        about=about,
        harms=tuple(harms),
    )


def _delivered(j: Judged, stake: dict[str, Any], *, apart: bool) -> str:
    """Return what this commit delivers on one partition. apart: only undecided ones counted."""
    least = "" if stake["whole"] else "at least "
    text = f"{j.about.name}: delivers {least}{counted(stake['records'], 'record')}"
    if stake["records"]:
        text += f" (offsets {stake['first_offset']} to {stake['last_offset']})"
    if apart:
        text += " that its owner wrote and never decided"
    else:
        text += (
            ": those that were committed, and those that its owner wrote after and never decided"
        )
    if j.start is not None and j.start.groups:
        text += f"; the offsets in them of {', '.join(sorted(j.start.groups))} are committed"
    return text


async def ended(cluster: Cluster, step: Step, raised: ShutOut | None) -> Effect:
    """Check with coordinator and logs whether a COMMIT marker ended it on each partition.

    raised: see `remedy_fence.ended`.
    """
    effect = await remedy_fence.ended(cluster, step, raised)
    if not effect.done:
        return effect
    p = step.parameters
    offsets: dict[str, int | None] = {}
    for name, end in p["ends"].items():
        end_here = await remedy_marker.end_of(cluster, name, p["producer_id"], end)
        offsets[name] = end_here.marker
        beyond = None
        if end_here.marker is None:
            beyond = f"which marker ended it on {name} was not found"
        elif end_here.outcome != "commit":
            beyond = (
                f"another marker ended it first on {name}: {end_here.outcome} at offset "
                f"{end_here.marker}, the committed records are dropped"
            )
        elif end_here.records:
            beyond = (
                f"its producer wrote {counted(end_here.records, 'more record')} to {name}, from "
                f"offset {end_here.first} on, before its marker: delivered too"
            )
        if beyond is not None:
            return Effect(True, effect.saw, effect.detail, beyond=beyond)
    saw = {"markers": offsets} | _shut_out(effect)
    where = ", ".join(f"{name} at offset {offset}" for name, offset in offsets.items())
    detail = f"{effect.detail}; its commit markers: {where}"
    return Effect(True, saw, detail, beyond=effect.beyond)


def _shut_out(effect: Effect) -> dict[str, Any]:
    saw = effect.saw
    return {"shut_out": saw["shut_out"]} if isinstance(saw, dict) and "shut_out" in saw else {}
