"""The remedies: abort an orphan, fence an owned transaction, resolve a lost marker.

Each is planned on a full diagnosis, judged once more right before it acts, and verified by
DescribeProducers and the LSO, never by what the broker answered. `acting` does the rest.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from eoctl.config import Context
from eoctl.kafka import collect, coordinators, evidence, repairs
from eoctl.kafka.cluster import Cluster, PartitionMetadata
from eoctl.kafka.failures import Deadline, WireError
from eoctl.kafka.properties import client_settings
from eoctl.operations.diagnose import diagnose, look_again
from eoctl.operations.inspect import Scope
from eoctl.operations.live import Live
from eoctl.operations.session import now_ms
from eoctl.operations.steps import Seen
from eoctl.stores.locks import lock_words
from recovery.case import is_two_phase
from recovery.diagnosis import Diagnosis, Judged
from recovery.errors import IncompleteError, RefusedError, UnverifiedError
from recovery.facts import TransactionFacts
from recovery.observation import OpenTransaction, Settings
from recovery.plan import VALID_MS, Plan, Step
from recovery.remedies import Action
from recovery.repairs import (
    EndRequest,
    InitRequest,
    MarkerRequest,
    abort_marker,
    fence_requests,
    remedy_allowed,
    resolve_marker,
)
from recovery.selectors import parse_selector

CHANGED_NOTHING = frozenset(
    {
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "NOT_COORDINATOR",
        "NOT_LEADER_OR_FOLLOWER",
        "TRANSACTION_COORDINATOR_FENCED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asks for. outcome, and the two acceptances: of resolve and fence."""

    action: Action
    partition: str | None = None  # orders:3
    producer_id: int | None = None
    start_offset: int | None = None
    transactional_id: str | None = None
    producer_epoch: int | None = None
    outcome: str | None = None
    owner_is_gone: bool = False
    accept_unknown_outcome: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, or why there is nothing to do: `done` says how the transaction ended."""

    plan: Plan | None
    done: str | None = None


def is_wish(plan: Plan, wish: Wish) -> bool:
    """Does a plan do what is asked for now? An unfinished one of another transaction does not."""
    [step] = plan.steps
    p = step.parameters
    if wish.action == "fence":
        return step.target == wish.transactional_id and (
            (wish.producer_id in (None, p["producer_id"]))
            and wish.producer_epoch in (None, p["producer_epoch"])
        )
    return (p["producer_id"], p["start_offset"], p["outcome"]) == (
        wish.producer_id,
        wish.start_offset,
        wish.outcome or "abort",
    )


async def plan(
    cluster: Cluster, context: Context, wish: Wish, settings: Settings, *, sample_interval: float
) -> Planned:
    """The plan of one remedy. Raises RefusedError, which names the right remedy, and
    IncompleteError where it cannot be judged."""
    if wish.action == "fence":
        return Planned(await _plan_fence(cluster, context, wish, settings, sample_interval))
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
        if found.missing and not any(p.held == 0 for p in found.partitions) and found.partitions:
            raise IncompleteError(found.missing[0].detail, where=wish.partition)
        return Planned(None, await _how_it_ended(cluster, wish))
    _refuse(judged, wish)
    step, observed = _marker_step(judged, wish, found.transaction_version)
    return Planned(
        _made(
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


def _facts(judged: Judged) -> dict[str, Any]:
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


def _subject(about: OpenTransaction) -> str:
    return f"{about.name} pid {about.producer_id}"


def _marker_step(
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
    subject = _subject(about)
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
        stands_on=(subject,),
    )
    return step, {subject: _facts(judged)}


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


def _made(
    cluster: Cluster,
    context: Context,
    *,
    kind: str,
    action: str,
    scope: str,
    summary: str,
    steps: tuple[Step, ...],
    observed: Mapping[str, Any],
    settings: Settings,
    sample_interval: float,
    independent: bool = False,
) -> Plan:
    now = now_ms()
    if cluster.cluster_id is None:
        raise IncompleteError("the brokers do not tell their cluster id", where=context.title)
    return Plan(
        kind=kind,
        action=action,
        created_at=now,
        expires_at=now + VALID_MS,
        context=context.title,
        argv=context.argv,
        cluster_id=cluster.cluster_id,
        scope=scope,
        summary=summary,
        lock=lock_words(context.lock_zookeeper),
        observed=dict(observed),
        steps=steps,
        independent=independent,
        details={
            "sample_interval_ms": round(sample_interval * 1000),
            "long_after_ms": settings.long_after,
            "stuck_after_ms": settings.stuck_after,
            "clock_skew_ms": settings.clock_skew,
        },
    )


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


async def _plan_fence(
    cluster: Cluster, context: Context, wish: Wish, settings: Settings, interval: float
) -> Plan:
    assert wish.transactional_id is not None
    row = await _described(cluster, wish.transactional_id)
    if (wish.producer_id, wish.producer_epoch) != (None, None) and (
        (wish.producer_id or row.producer_id) != row.producer_id
        or (wish.producer_epoch is not None and wish.producer_epoch != row.producer_epoch)
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
    await _fence_allowed(cluster, row, wish, settings, interval)
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
    return _made(
        cluster,
        context,
        kind="txn-fence",
        action="fence",
        scope=f"id {row.transactional_id}",
        summary=f"{row.transactional_id}: its open transaction on "
        f"{len(row.partitions or ())} partitions is aborted, its owner shut out; "
        "an owner that still lives is killed by it",
        steps=(step,),
        observed={subject: _fence_facts(row)},
        settings=settings,
        sample_interval=interval,
    )


def _fence_facts(row: TransactionFacts) -> dict[str, Any]:
    return {
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "start_timestamp": row.start_timestamp,
        "timeout_ms": row.timeout_ms,
        "partitions": [f"{t}:{p}" for t, p in row.partitions or ()],
    }


async def _described(cluster: Cluster, name: str) -> TransactionFacts:
    rows, missing = await coordinators.find(cluster, [name])
    if rows:
        return rows[0]
    error = missing[0] if missing else None
    if error is not None and error.error == coordinators.NOT_FOUND:
        raise RefusedError("no coordinator knows this transactional id", where=name)
    raise IncompleteError(error.detail if error else "it could not be described", where=name)


async def _fence_allowed(
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


@asynccontextmanager
async def opened(
    plan: Plan, context: Context, seconds: float | None
) -> AsyncIterator["RemedyOperation"]:
    """The operation that carries a remedy's plan out, on an open cluster."""
    settings = client_settings(context.properties, hosts=context.hosts, socks5=context.socks5)
    async with Cluster(settings, Deadline(seconds), read_only=context.read_only) as cluster:
        yield RemedyOperation(cluster, context, plan)


class RemedyOperation:
    """Observes, performs and verifies the steps of one plan of remedies."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan) -> None:
        self._cluster = cluster
        limits = plan.details
        self._settings = Settings(
            long_after=limits["long_after_ms"],
            stuck_after=limits["stuck_after_ms"],
            clock_skew=limits["clock_skew_ms"],
            two_phase_patterns=context.two_phase_patterns,
        )
        self._interval = limits["sample_interval_ms"] / 1000
        self._plan = plan
        self._judged: dict[str, Judged] | None = None

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Two looks at all partitions of the plan, then one fresh look before each step."""
        self._cluster.forgive()
        now: dict[str, object] = {}
        for step in steps:
            if step.action == "fence":
                row = await _described(self._cluster, step.target)
                wish = Wish(
                    "fence",
                    transactional_id=step.target,
                    owner_is_gone=bool(step.parameters["owner_is_gone"]),
                )
                if row.state == "Ongoing":
                    await _fence_allowed(self._cluster, row, wish, self._settings, self._interval)
                now[f"id {step.target}"] = _fence_facts(row)
        markers = [step for step in steps if step.action == "write-marker"]
        if markers:
            now |= await self._observe_partitions(markers)
        return now

    async def _observe_partitions(self, steps: Sequence[Step]) -> dict[str, object]:
        fresh = self._judged is None
        if self._judged is None:
            targets = {s.target for s in self._plan.steps if s.action == "write-marker"}
            found = await diagnose(
                self._cluster,
                Scope(tuple(parse_selector(t) for t in sorted(targets))),
                self._settings,
                sample_interval=self._interval,
            )
            self._judged = {_subject(j.about): j for j in found.judged}
        subjects = [s.stands_on[0] for s in steps]
        known = [self._judged[name] for name in subjects if name in self._judged]
        if not fresh and known:
            again = await look_again(self._cluster, known, self._settings)
            known = [j for j in again if j is not None]
        return {_subject(j.about): _facts(j) for j in known}

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Send it. RefusedError: the broker said that it changed nothing."""
        try:
            if step.action == "fence":
                return await self._fence(step, ensure_held)
            return await self._write_marker(step)
        except WireError as error:
            if error.error == "UNSUPPORTED_VERSION":
                raise RefusedError(error.detail, where=step.target) from None
            raise UnverifiedError(
                f"no answer: {error.detail}", where=step.target, remedy="run the same again"
            ) from None

    async def _write_marker(self, step: Step) -> object:
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
        name = await repairs.write_marker(self._cluster, p["leader"], marker)
        if name in CHANGED_NOTHING:
            raise RefusedError(f"the broker refused the marker: {name}", where=step.target)
        return {"error": name}

    async def _fence(self, step: Step, ensure_held: Callable[[], None]) -> object:
        p = step.parameters
        end = EndRequest(p["end_version"], step.target, p["producer_id"], p["producer_epoch"])
        name = await repairs.end_transaction(self._cluster, p["coordinator"], end)
        if name in CHANGED_NOTHING or name in repairs.RETRIABLE:
            raise RefusedError(
                f"the coordinator refused, nothing was changed: {name}", where=step.target
            )
        if not p["initialise"]:
            return {"end": name}
        ensure_held()
        init = InitRequest(step.target, p["producer_id"], p["producer_epoch"], p["timeout_ms"])
        second = await repairs.initialise_producer(
            self._cluster, p["coordinator"], init, self._cluster.silence()
        )
        return {"end": name, "initialise": second}

    async def verify(self, step: Step) -> Seen:
        """Is it over? From DescribeProducers and the LSO, or from the coordinator."""
        self._cluster.forgive()
        if step.action == "fence":
            return await self._fenced(step)
        p = step.parameters
        return await self._ended(p["topic"], p["partition"], p["producer_id"], p["start_offset"])

    async def _ended(self, topic: str, partition: int, pid: int, start: int) -> Seen:
        metadata = await self._cluster.metadata([topic])
        found: Sequence[PartitionMetadata] = [
            p for p in metadata.topics[topic].partitions if p.partition == partition
        ]
        offsets, _ = await collect.partition_offsets(self._cluster, metadata.topics.values(), found)
        rows, _ = await collect.producers(self._cluster, found)
        if not offsets or offsets[0].error is not None or (topic, partition) not in rows:
            return Seen(None, None, f"{topic}:{partition} could not be read")
        here = rows[topic, partition]
        lso = offsets[0].last_stable_offset
        open_here = any(r.producer_id == pid and r.current_txn_start_offset == start for r in here)
        if open_here:
            return Seen(False, {"last_stable_offset": lso}, "the transaction is still open")
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

    async def _fenced(self, step: Step) -> Seen:
        p = step.parameters
        row = await _described(self._cluster, step.target)
        same = (
            row.state == "Ongoing"
            and row.producer_id == p["producer_id"]
            and row.start_timestamp == p["start_timestamp"]
        )
        saw = {"state": row.state, "producer_epoch": row.producer_epoch}
        if same or row.state.startswith("Prepare"):
            return Seen(False, saw, f"{step.target} is still {row.state}")
        for name in p["partitions"]:
            topic, _, partition = name.rpartition(":")
            metadata = await self._cluster.metadata([topic])
            found = [m for m in metadata.topics[topic].partitions if m.partition == int(partition)]
            rows, _ = await collect.producers(self._cluster, found)
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


MANY_VERDICTS = ("orphan", "marker-lost", "overdue")
"""What one plan of many carries remedies for; `long` and `two-phase` must be asked for by name."""


async def plan_many(
    cluster: Cluster,
    context: Context,
    found: Diagnosis,
    verdicts: Collection[str],
    *,
    sample_interval: float,
) -> Plan | None:
    """One plan of all remedies of a diagnosis that may be carried out; each step for itself.

    None where nothing may be. An id that is open on several partitions is fenced once.
    """
    steps: dict[str, Step] = {}
    observed: dict[str, Any] = {}
    for judged in found.judged:
        verdict = judged.verdict
        action = verdict.remedy.action
        if verdict.name not in verdicts or action not in ("abort", "resolve", "fence"):
            continue
        wish = Wish(action, outcome=verdict.proven_outcome if action == "resolve" else None)
        if action == "fence":
            name = verdict.remedy.transactional_id
            if name is None or f"id {name}" in observed:
                continue
            try:
                one = await _plan_fence(
                    cluster,
                    context,
                    Wish(
                        "fence",
                        transactional_id=name,
                        producer_id=verdict.remedy.producer_id,
                        producer_epoch=verdict.remedy.producer_epoch,
                    ),
                    found.settings,
                    sample_interval,
                )
            except RefusedError:
                continue  # one of its partitions forbids it; the table says which
            steps[name] = one.steps[0]
            observed |= one.observed
        elif remedy_allowed(verdict, action) is None:
            step, facts = _marker_step(judged, wish, found.transaction_version)
            steps[step.stands_on[0]] = step
            observed |= facts
    if not steps:
        return None
    kinds = Counter(
        "fence" if s.action == "fence" else s.parameters["outcome"] for s in steps.values()
    )
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return _made(
        cluster,
        context,
        kind="txn-many",
        action="apply",
        scope="transactions",
        summary=f"{len(steps)} transactions: {words}",
        steps=tuple(steps.values()),
        observed=observed,
        settings=found.settings,
        sample_interval=sample_interval,
        independent=True,
    )
