"""Abort and resolve: one marker to one partition's leader, planned, sent, and looked for after."""

from collections.abc import Sequence
from typing import Any

from eoctl.config import Context
from eoctl.kafka import collect, evidence, repairs
from eoctl.kafka.cluster import Cluster, PartitionMetadata
from eoctl.operations.diagnose import diagnose
from eoctl.operations.inspect import Scope
from eoctl.operations.live import Live
from eoctl.operations.remedy_plan import CHANGED_NOTHING, Planned, Wish, made
from eoctl.operations.steps import Seen
from recovery.diagnosis import Judged
from recovery.errors import IncompleteError, RefusedError
from recovery.observation import OpenTransaction, Settings
from recovery.plan import Step
from recovery.repairs import MarkerRequest, abort_marker, remedy_allowed, resolve_marker
from recovery.selectors import parse_selector


async def plan(
    cluster: Cluster, context: Context, wish: Wish, settings: Settings, sample_interval: float
) -> Planned:
    """The plan of an abort or a resolve. Raises RefusedError and IncompleteError."""
    assert wish.partition is not None
    found = await diagnose(
        cluster,
        Scope((parse_selector(wish.partition),)),
        settings,
        sample_interval=sample_interval,
    )
    judged = next(
        (
            j
            for j in found.judged
            if (j.about.producer_id, j.about.start_offset) == (wish.producer_id, wish.start_offset)
        ),
        None,
    )
    if judged is None:
        if found.missing and found.partitions:
            raise IncompleteError(found.missing[0].detail, where=wish.partition)
        return Planned(None, await _how_it_ended(cluster, wish))
    _refuse(judged, wish)
    step, observed = marker_step(judged, wish, found.transaction_version)
    return Planned(
        made(
            cluster,
            context,
            kind=f"txn-{wish.action}",
            action=wish.action,
            scope=judged.about.name,
            summary=await _summary(cluster, judged, wish),
            steps=(step,),
            observed=observed,
            settings=settings,
            sample_interval=sample_interval,
        )
    )


def _refuse(judged: Judged, wish: Wish) -> None:
    sentence = remedy_allowed(
        judged.verdict,
        wish.action,
        owner_is_gone=wish.owner_is_gone,
        accept_unknown_outcome=wish.accept_unknown_outcome,
    )
    if sentence is not None:
        if judged.verdict.name == "unknown":
            reasons = judged.verdict.evidence[-1:]
            raise IncompleteError(
                f"{sentence}" + (f" ({reasons[0].text})" if reasons else ""),
                where=judged.about.name,
            )
        raise RefusedError(sentence, where=judged.about.name)
    proven = judged.verdict.proven_outcome
    if wish.action == "resolve" and proven is not None and wish.outcome != proven:
        raise RefusedError(
            f"__transaction_state proves {proven}, not {wish.outcome}",
            where=judged.about.name,
            remedy=f"--outcome {proven}",
        )


def facts(judged: Judged) -> dict[str, Any]:
    """What must be the same when the marker is written."""
    row = judged.newest.producer(judged.about.producer_id or 0)
    decision = judged.verdict.decision
    return {
        "topic_id": judged.partition.topic_id,
        "leader": judged.partition.leader,
        "leader_epoch": judged.partition.leader_epoch,
        "start_offset": judged.about.start_offset,
        "start_batch_epoch": judged.start.producer_epoch if judged.start else None,
        "producer_epoch": row.producer_epoch if row else None,
        "coordinator_epoch": row.coordinator_epoch if row else None,
        "verdict": judged.verdict.name,
        "rule": judged.verdict.rule,
        "proven_outcome": judged.verdict.proven_outcome,
        "decision_offset": decision.offset if decision else None,
    }


def subject(about: OpenTransaction) -> str:
    """The name under which a plan keeps what it observed of a transaction."""
    return f"{about.name} pid {about.producer_id}"


def marker_step(
    judged: Judged, wish: Wish, transaction_version: int
) -> tuple[Step, dict[str, Any]]:
    about, row = judged.about, judged.newest.producer(judged.about.producer_id or 0)
    assert row is not None
    decision = judged.verdict.decision
    if wish.action == "resolve" and decision is not None:
        marker = resolve_marker(about, row, decision)
    else:
        marker = abort_marker(
            about, row, judged.newest.transactions, transaction_version, wish.outcome or "abort"
        )
    name = subject(about)
    parameters = {
        "topic": marker.topic,
        "partition": marker.partition,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "outcome": marker.outcome,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
        "leader": judged.partition.leader,
        "start_offset": about.start_offset,
        "accept_unknown_outcome": wish.accept_unknown_outcome,
    }
    step = Step(
        action="write-marker",
        target=about.name,
        parameters=parameters,
        does=f"WriteTxnMarkers {marker.outcome.upper()} for producer id {marker.producer_id} "
        f"(epoch {marker.producer_epoch}) to the leader of {about.name}, broker "
        f"{judged.partition.leader}, and to no other partition",
        stands_on=(name,),
    )
    return step, {name: facts(judged)}


async def _summary(cluster: Cluster, judged: Judged, wish: Wish) -> str:
    about = judged.about
    text = f"{about.name} pid {about.producer_id}"
    counted = await Live(cluster).waiting(judged.partition, about.producer_id)
    if counted is None:
        return text
    least = "" if counted.complete else "at least "
    if wish.action == "abort" or wish.outcome == "abort":
        return f"{text}; {least}{counted.mine} records dropped, {counted.freed} freed"
    return f"{text}; {least}{counted.mine + counted.freed} records freed, none dropped"


async def _how_it_ended(cluster: Cluster, wish: Wish) -> str:
    """A transaction that is not open any more: the marker that ended it. Raises RefusedError."""
    assert wish.partition is not None
    selector = parse_selector(wish.partition)
    metadata = await cluster.metadata([selector.literal or ""])
    wanted = [
        p
        for t in metadata.topics.values()
        for p in t.partitions
        if selector.matches(p.topic, p.partition)
    ]
    facts, missing = await collect.partition_offsets(cluster, metadata.topics.values(), wanted)
    if missing or not facts:
        detail = missing[0].detail if missing else "no such partition"
        raise IncompleteError(detail, where=wish.partition)
    p = facts[0]
    about = OpenTransaction(p.topic, p.partition, wish.producer_id, wish.start_offset)
    read = await evidence.markers(cluster, [about], {about.topic_partition: p})
    found = read.get(about)
    after = [m for m in found.found if m.offset > (wish.start_offset or 0)] if found else []
    if not after:
        raise RefusedError(
            f"producer id {wish.producer_id} has no transaction open from offset "
            f"{wish.start_offset}",
            where=wish.partition,
            remedy=f"see `eoctl why {wish.partition}`",
        )
    wanted_outcome = wish.outcome or "abort"
    if after[0].outcome != wanted_outcome:
        raise RefusedError(
            f"it ended meanwhile: {after[0].outcome} marker at offset {after[0].offset}",
            where=wish.partition,
        )
    return f"done already: its {after[0].outcome} marker is at offset {after[0].offset}"


async def write(cluster: Cluster, step: Step) -> object:
    """Send the marker to the partition's leader, and to nobody else."""
    p = step.parameters
    marker = MarkerRequest(
        topic=p["topic"],
        partition=p["partition"],
        producer_id=p["producer_id"],
        producer_epoch=p["producer_epoch"],
        outcome=p["outcome"],
        coordinator_epoch=p["coordinator_epoch"],
        transaction_version=p["transaction_version"],
    )
    name = await repairs.write_marker(cluster, p["leader"], marker)
    if name in CHANGED_NOTHING:
        raise RefusedError(f"the broker refused the marker: {name}", where=step.target)
    return {"error": name}


async def ended(cluster: Cluster, step: Step) -> Seen:
    """Is it over? From DescribeProducers and the LSO."""
    p = step.parameters
    topic, partition = p["topic"], p["partition"]
    pid, start = p["producer_id"], p["start_offset"]
    metadata = await cluster.metadata([topic])
    found: Sequence[PartitionMetadata] = [
        p for p in metadata.topics[topic].partitions if p.partition == partition
    ]
    offsets, _ = await collect.partition_offsets(cluster, metadata.topics.values(), found)
    rows, _ = await collect.producers(cluster, found)
    if not offsets or offsets[0].error is not None or (topic, partition) not in rows:
        return Seen(None, None, f"{topic}:{partition} could not be read")
    here = rows[topic, partition]
    lso = offsets[0].last_stable_offset
    open_here = any(r.producer_id == pid and r.current_txn_start_offset == start for r in here)
    if open_here:
        return Seen(
            False, {"last_stable_offset": lso}, "the transaction is still open", untouched=True
        )
    others = [
        r.current_txn_start_offset
        for r in here
        if r.current_txn_start_offset is not None and r.current_txn_start_offset <= start
    ]
    if lso is not None and lso <= start and not others:
        return Seen(False, {"last_stable_offset": lso}, f"the LSO is still {lso}")
    detail = f"the transaction is over, the LSO is {lso}"
    if others:
        detail += f", held by another transaction from {min(others)}"
    return Seen(True, {"last_stable_offset": lso}, detail)
