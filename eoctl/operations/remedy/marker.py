"""Abort and resolve: plan, send and verify one marker, sent to one partition's leader.

The rule for every marker is in `recovery.remedy.repairs`: if an idle id could still write with the
marker's epoch, the plan raises that id first.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read import producer_markers, start_batches
from eoctl.kafka.read.fetch import Range, read_all
from eoctl.kafka.write import markers as repairs
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import Effect
from eoctl.operations.diagnose.judging import diagnose, look_again
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import copied
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy import stake as remedy_stake
from eoctl.operations.remedy.copied import Proof
from eoctl.operations.remedy.remedy_plan import (
    Planned,
    RemedyRequest,
    amounts,
    ensure_held_first,
    judged_with,
    refusal,
    step_evidence,
)
from eoctl.render.verdicts.remedy_words import remedy_words
from eoctl.settings.context import Context
from recovery.change.plan import Step
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import ProducerFacts, TopicPartition, TransactionFacts, Transactions
from recovery.formats.batches import batch_headers
from recovery.formats.records import ControlType, marker
from recovery.inspect.observation import OpenTransaction, Settings
from recovery.inspect.rights import missing_right
from recovery.plurals import counted
from recovery.remedy.repairs import (
    MARKER_ACTION,
    DistantEpochError,
    MarkerRequest,
    marker_for,
    raise_first,
    remedy_allowed,
    still_able_to_write,
    undecided_refused,
)
from recovery.selectors import parse_selector
from recovery.values import Value, replace

_MAY_BE_COPIED = (
    "if this topic is a mirror of byte copies (a cluster link), the other cluster may have "
    "committed these records: ask `eoctl audit mirror-transactions` first"
)
"""Harm of an orphan's abort: clusters give out equal producer ids, from 0 on, and a decision here
may be on an earlier topic of that name."""


async def plan(
    cluster: Cluster, context: Context, request: RemedyRequest, settings: Settings, pause: float
) -> Planned:
    """Return the plan of an abort or a resolve. Raises RefusedError and IncompleteError."""
    assert request.partition is not None
    diagnosis = await diagnose(
        cluster,
        Scope((parse_selector(request.partition),)),
        settings,
        pause=pause,
    )
    judged = next(
        (
            j
            for j in diagnosis.judged
            if (j.about.producer_id, j.about.start_offset)
            == (request.producer_id, request.start_offset)
        ),
        None,
    )
    if judged is None:
        if diagnosis.missing and diagnosis.partitions:
            raise IncompleteError(diagnosis.missing[0].detail, where=request.partition)
        return Planned(None, await how_it_ended(cluster, request))
    if judged.verdict.proven_outcome is not None:
        request = replace(request, without_proof=False)  # it is known: no need to do without
    if (request.without_proof or request.source) and judged.second is None:
        # what can never be known is judged after one check; its possible owner is not
        await asyncio.sleep(pause)
        [again] = await look_again(cluster, [judged], settings)
        if again is None:
            raise RefusedError("it ended meanwhile", where=request.partition, remedy="look again")
        judged = again
    refuse(judged, request, cluster.transaction_version)
    proof = None
    if request.source is not None:
        proof = await copied.proof(cluster, request, judged.about, settings.clock_skew)
    steps, observed = await marker_steps(cluster, judged, request, proof)
    return Planned(
        new_plan(
            context,
            cluster.cluster_id,
            kind=f"txn-{request.action}",
            action=request.action,
            scope=judged.about.name,
            summary=_summary(steps),
            steps=steps,
            observed=observed,
            details=judged_with(settings, pause),
            hits=_hits(steps, request),
        )
    )


def _hits(steps: Sequence[Step], request: RemedyRequest) -> str:
    """Return what must be typed: partition, an outcome not evident, an owner shut out."""
    words = [request.outcome] if request.outcome else []
    words += ["without-proof"] if request.without_proof else []
    words += ["link-is-stopped"] if request.source is not None else []
    words.append(steps[-1].target)
    words += [f"restart-{s.target}" for s in steps if s.action == remedy_raise.ACTION]
    return "-".join(words)


def _summary(steps: Sequence[Step]) -> str:
    [about] = steps[-1].about
    name = about["transactional_id"]
    text = f"{about['partition']} pid {about['producer_id']}" + (f" ({name})" if name else "")
    text += f"; {amounts(about)}"
    for step in steps[:-1]:
        text += f"; the application of {step.target}, if it runs, must be restarted"
    return text


def refuse(judged: Judged, request: RemedyRequest, transaction_version: int) -> None:
    """Raise RefusedError or IncompleteError if this remedy does not fit this verdict."""
    why = remedy_allowed(
        judged.verdict,
        request.action,
        owner_is_gone=request.owner_is_gone,
        without_proof=request.without_proof,
        by_source=request.source is not None,
    )
    if why is not None and not request.without_proof:
        raise refusal(judged, why, transaction_version)
    decides_elsewhere = request.without_proof or request.source is not None
    if why is None and decides_elsewhere:
        why = undecided_refused(judged)
    if why is not None:
        raise RefusedError(remedy_words(why), where=judged.about.name)
    proven = judged.verdict.proven_outcome
    if request.action == "resolve" and proven is not None and request.outcome != proven:
        raise RefusedError(
            f"__transaction_state proves {proven}, not {request.outcome}",
            where=judged.about.name,
            remedy=f"--outcome {proven}",
        )


def facts(judged: Judged) -> dict[str, Any]:
    """Return what must not change before the marker is written."""
    row = judged.newest.producer(judged.about.producer_id or 0)
    decision = judged.verdict.decision
    return {
        "topic_id": judged.partition.topic_id,
        "leader": judged.partition.leader,
        "leader_epoch": judged.partition.leader_epoch,
        "start_offset": judged.about.start_offset,
        "start_batch_epoch": judged.start.producer_epoch if judged.start else None,
        "producer_epoch": row.producer_epoch if row else None,
        "last_sequence": row.last_sequence if row else None,
        "coordinator_epoch": row.coordinator_epoch if row else None,
        "verdict": judged.verdict.name,
        "rule": judged.verdict.rule,
        "proven_outcome": judged.verdict.proven_outcome,
        "decision_offset": decision.offset if decision else None,
    }


def subject(about: OpenTransaction) -> str:
    """Return the name under which a plan keeps what it observed of a transaction."""
    return f"{about.name} pid {about.producer_id}"


async def marker_steps(
    cluster: Cluster, judged: Judged, request: RemedyRequest, proof: Proof | None = None
) -> tuple[tuple[Step, ...], dict[str, Any]]:
    """Return the marker, after the raise of an idle id if one is needed, and the facts of both.

    proof: of another cluster, from which the records were copied.

    Raises RefusedError if somebody may write with its epoch and no raise can prevent that.
    """
    about, row = judged.about, judged.newest.producer(judged.about.producer_id or 0)
    leader = judged.partition.leader
    if row is None or leader is None:
        raise IncompleteError("its producer state was not seen", where=about.name)
    outcome = request.outcome or "abort"
    observed: dict[str, Any] = {subject(about): facts(judged)}
    steps: list[Step] = []
    raised = await _raise(cluster, judged, row)
    if raised is not None:
        step, facts_of_id = raised
        if outcome == "commit":
            # no request raises an id only while it is idle: EndTxn and InitProducerId abort
            harm = (
                f"a transaction that its application begins at this moment on {about.name} is "
                "aborted, and that abort drops the committed records that wait there"
            )
            step = step.model_copy(update={"harms": (*step.harms, harm)})
        if proof is not None:
            harm = (
                f"{step.target} has the source's producer id by chance: its application has "
                "nothing to do with these records, and must be restarted all the same"
            )
            step = step.model_copy(update={"harms": (*step.harms, harm)})
        steps.append(step)
        observed |= facts_of_id
    sent = marker_for(about, row, outcome, write_version=await _write_version(cluster, leader))
    facts_told = await step_evidence(cluster, judged, outcome)
    harms: tuple[str, ...] = (_MAY_BE_COPIED,) if request.action == "abort" else ()
    if request.without_proof:
        facts_told |= await remedy_stake.of(cluster, judged)
        harms = remedy_stake.costs(facts_told, outcome)
    stands_on = [subject(about)]
    elsewhere: dict[str, Any] = {}
    if proof is not None:
        observed[proof.subject] = proof.facts()
        stands_on.append(proof.subject)
        elsewhere = {copied.PARAMETER: proof.parameter}
        facts_told["evidence"].append(proof.evidence(about))
        harms = proof.harms()
    steps.append(
        Step(
            action=MARKER_ACTION,
            target=about.name,
            parameters={
                **sent.as_dict(),
                "leader": leader,
                "start_offset": about.start_offset,
                "described_epoch": row.producer_epoch,
                "last_sequence": row.last_sequence,
                "end_offset": judged.partition.high_watermark,
                "without_proof": request.without_proof,
                **elsewhere,
            },
            does=f"WriteTxnMarkers {sent.outcome.upper()} for producer id {sent.producer_id} "
            f"(epoch {sent.producer_epoch}) to the leader of {about.name}, broker "
            f"{leader}, and to no other partition",
            stands_on=tuple(stands_on),
            about=[facts_told],
            harms=harms,
        )
    )
    return tuple(steps), observed


async def _raise(
    cluster: Cluster, judged: Judged, row: ProducerFacts
) -> tuple[Step, dict[str, Any]] | None:
    transactions = judged.newest.transactions
    try:
        request = raise_first(row, transactions, end_version=None)
        if request is None:
            return None
        named = request.transactional_id
        idle = next(t for t in transactions.rows if t.transactional_id == named)
        await remedy_raise.refuse_short_log(cluster, named)
        version = await remedy_raise.end_version(cluster, idle.coordinator)
        request = raise_first(row, transactions, end_version=version)
        assert request is not None
        if version is None:
            await remedy_raise.refuse_timeout(cluster, idle)
    except DistantEpochError as error:
        raise RefusedError(
            str(error),
            where=judged.about.name,
            remedy="give that application a new transactional id, and look again once the old one "
            "has expired (transactional.id.expiration.ms)",
        ) from None
    except ValueError as error:
        raise RefusedError(
            f"{error}: somebody may write with the marker's epoch",
            where=judged.about.name,
            remedy="wait until it has ended, then look again",
        ) from None
    step = remedy_raise.step(request, idle, owner_is_gone=False)
    return step, {remedy_raise.subject(named): remedy_raise.facts(idle)}


async def _write_version(cluster: Cluster, leader: int) -> int:
    """Return the highest version of WriteTxnMarkers that the leader and eoctl speak."""
    try:
        connection = await cluster.connection(leader)
    except WireError as error:
        raise IncompleteError(error.detail, where=f"broker {leader}") from None
    return 2 if connection.supports(messages.WriteTxnMarkersRequest, 2) else 1


async def how_it_ended(cluster: Cluster, request: RemedyRequest) -> str:
    """Return the marker that ended a transaction that is no longer open. Raises RefusedError."""
    assert request.partition is not None
    selector = parse_selector(request.partition)
    metadata = await cluster.metadata([selector.literal or ""])
    partitions = [
        p
        for t in metadata.topics.values()
        for p in t.partitions
        if selector.matches(p.topic, p.partition)
    ]
    facts, missing = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    if missing or not facts:
        detail = missing[0].detail if missing else "no such partition"
        raise IncompleteError(detail, where=request.partition)
    p = facts[0]
    about = OpenTransaction(p.topic, p.partition, request.producer_id, request.start_offset)
    read = await producer_markers.markers(cluster, [about], {about.topic_partition: p})
    markers = read.get(about)
    after = [m for m in markers.found if m.offset > (request.start_offset or 0)] if markers else []
    if not after:
        raise RefusedError(
            f"producer id {request.producer_id} has no transaction open from offset "
            f"{request.start_offset}",
            where=request.partition,
            remedy=f"see `eoctl why {request.partition}`",
        )
    wanted_outcome = request.outcome or "abort"
    if after[0].outcome != wanted_outcome:
        raise RefusedError(
            f"it ended meanwhile: {after[0].outcome} marker at offset {after[0].offset}",
            where=request.partition,
        )
    return f"done already: its {after[0].outcome} marker is at offset {after[0].offset}"


async def write(cluster: Cluster, step: Step, ensure_held: Callable[[], None]) -> object:
    """Send the marker to the partition's leader, and to nobody else, after one more check.

    ensure_held: called again after that check. Raises RefusedError: nothing was sent, or the leader
    refused it before it wrote anything.
    """
    p = step.parameters
    try:
        await _refuse_if_somebody_may_write(cluster, step)
    except RefusedError:
        raise
    except EoctlError as error:
        raise RefusedError(f"{error.what}; nothing was sent", where=step.target) from None
    request = MarkerRequest(**{name: p[name] for name in MarkerRequest.__struct_fields__})
    ensure_held_first(ensure_held, step.target)
    name = await repairs.write_marker(cluster, p["leader"], request)
    if name in repairs.MARKER_REFUSED:
        raise RefusedError(
            f"the broker refused the marker: {name}",
            where=step.target,
            remedy=missing_right(name, step.target),
        )
    if name != "NONE":
        raise UnverifiedError(
            f"the broker answered {name}, which may come after the marker was written",
            where=step.target,
        )
    return {"error": name}


async def _refuse_if_somebody_may_write(cluster: Cluster, step: Step) -> None:
    """Check a last time, partition before coordinators. Raises RefusedError: nothing was sent."""
    p = step.parameters
    if "described_epoch" not in p:  # begun by an earlier version of eoctl
        raise RefusedError("its plan does not say for which epoch it was made", where=step.target)
    row = next((r for r in await _producers(cluster, p) if r.producer_id == p["producer_id"]), None)
    now = row and (row.current_txn_start_offset, row.producer_epoch, row.last_sequence)
    if row is None or now != (p["start_offset"], p["described_epoch"], p["last_sequence"]):
        raise RefusedError(
            "its producer's state changed right before the marker; nothing was sent",
            where=step.target,
            remedy="plan again",
        )
    listed = await coordinators.transactions(cluster, producer_ids=[row.producer_id])
    rows, missing = await coordinators.described(cluster, listed.rows)
    if missing or not listed.complete:
        told_of = (*missing, *listed.missing)
        why = told_of[0].detail if told_of else "a coordinator was not seen"
        raise RefusedError(f"{why}: who may write is unknown; nothing was sent")
    able = still_able_to_write(row, Transactions(tuple(rows)))
    if able:
        raise RefusedError(
            f"{_named(able)} may write with epoch {row.producer_epoch}; nothing was sent",
            where=step.target,
            remedy="plan again",
        )


def _named(rows: Sequence[TransactionFacts]) -> str:
    return ", ".join(f"{t.transactional_id} ({t.state})" for t in rows)


async def _producers(cluster: Cluster, p: dict[str, Any]) -> Sequence[ProducerFacts]:
    """Send DescribeProducers for the partition. Raises IncompleteError."""
    metadata = await cluster.metadata([p["topic"]])
    members = [m for m in metadata.topics[p["topic"]].partitions if m.partition == p["partition"]]
    rows, _ = await collect.producers(cluster, members)
    here = rows.get(TopicPartition(p["topic"], p["partition"]))
    if here is None:
        raise IncompleteError("its producers could not be read")
    return here


async def ended(cluster: Cluster, step: Step) -> Effect:
    """Check with DescribeProducers and the LSO whether the transaction is over."""
    p = step.parameters
    partition = TopicPartition(p["topic"], p["partition"])
    pid, start = p["producer_id"], p["start_offset"]
    metadata = await cluster.metadata([partition.topic])
    members: Sequence[PartitionMetadata] = [
        p for p in metadata.topics[partition.topic].partitions if p.topic_partition == partition
    ]
    offsets, _ = await collect.partition_offsets(cluster, metadata.topics.values(), members)
    rows, _ = await collect.producers(cluster, members)
    if not offsets or offsets[0].error is not None or partition not in rows:
        return Effect(None, None, f"{partition} could not be read")
    here = rows[partition]
    lso = offsets[0].last_stable_offset
    open_here = any(r.producer_id == pid and r.current_txn_start_offset == start for r in here)
    if open_here:
        return Effect(
            False, {"last_stable_offset": lso}, "the transaction is still open", untouched=True
        )
    others = [
        r.current_txn_start_offset
        for r in here
        if r.current_txn_start_offset is not None and r.current_txn_start_offset <= start
    ]
    if lso is not None and lso <= start and not others:
        return Effect(False, {"last_stable_offset": lso}, f"the LSO is still {lso}")
    detail = f"the transaction is over, the LSO is {lso}"
    if others:
        detail += f", held by another transaction from {min(others)}"
    planned = step.parameters.get("end_offset")
    high = offsets[0].high_watermark
    if planned is None or high is None:
        return Effect(True, {"last_stable_offset": lso}, detail)
    end = await _end_of(cluster, pid, Range(*partition, planned, high))
    saw = {"last_stable_offset": lso, "planned_end": planned, "marker_offset": end.marker}
    if end.marker is None:
        beyond = "which marker ended it was not found"
    elif end.outcome != step.parameters["outcome"]:
        beyond = f"another marker ended it first: {end.outcome} at offset {end.marker}"
    elif end.records:
        fate = "dropped" if end.outcome == "abort" else "delivered"
        beyond = (
            f"its producer wrote {counted(end.records, 'more record')}, from offset {end.first} "
            f"on, before the marker at offset {end.marker}: {fate} too"
        )
        saw |= {"records_beyond": end.records, "first_beyond": end.first}
    else:
        return Effect(True, saw, f"{detail}, its {end.outcome} marker is at offset {end.marker}")
    return Effect(True, saw, detail, beyond=beyond)


class End(Value):
    """The log from the planned end on: records of the producer, and the marker after them."""

    records: int = 0
    first: int | None = None
    marker: int | None = None
    outcome: str | None = None


async def end_of(cluster: Cluster, name: str, producer_id: int, planned: int) -> End:
    """Return how a transaction that was open up to the planned end ended on a partition."""
    partition = TopicPartition.parse(name)
    metadata = await cluster.metadata([partition.topic])
    members = [
        p for p in metadata.topics[partition.topic].partitions if p.topic_partition == partition
    ]
    offsets, _ = await collect.partition_offsets(cluster, metadata.topics.values(), members)
    if not offsets or (high := offsets[0].high_watermark) is None:
        return End()
    return await _end_of(cluster, producer_id, Range(*partition, planned, high))


async def _end_of(cluster: Cluster, producer_id: int, where: Range) -> End:
    """Check the marker's offset against the planned end; where: from that end to the watermark.

    The transaction was open up to the planned end, so its marker cannot be before it.
    """
    if where.start >= where.end:
        return End()
    chunks, _ = await read_all(cluster, [where], most_chunks=start_batches.MARKER_CHUNKS)
    records, first = 0, None
    for chunk in chunks[where.topic_partition]:
        for h in batch_headers(chunk.records):
            if h.base_offset < where.start or h.producer_id != producer_id:
                continue
            if not h.is_control:
                records += h.records_count
                first = h.base_offset if first is None else first
                continue
            end_marker = marker(chunk.records, h)
            if end_marker is not None and end_marker.type is not ControlType.OTHER:
                return End(records, first, h.base_offset, end_marker.type.value)
    return End(records, first)
