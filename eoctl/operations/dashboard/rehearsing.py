"""`lab rehearse`: carry a plan out on the twin of its incident, and show before and after."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.lab.jars import FetchProgress, nothing
from eoctl.lab.twin.build import broker_on_twin
from eoctl.lab.twin.rows import RehearsalRow
from eoctl.operations.change import acting, rehearsals
from eoctl.operations.change.acting import Door, Outcome
from eoctl.operations.dashboard import twins
from eoctl.operations.dashboard.twins import Started, about, by_subject, verdict_text
from eoctl.operations.restart.observe import opened_stores
from eoctl.operations.restart.restart_plan import decision_of
from eoctl.operations.restart.restart_request import asked_again
from eoctl.operations.session.session import with_cluster
from eoctl.stores import bundle_files, plan_files
from eoctl.stores.bundle_files import Bundle
from eoctl.stores.journal_files import kept_apart
from eoctl.stores.offsets.store import StoredValues
from recovery.answers import Answer, error_rows, worst
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import Diagnosis
from recovery.errors import Exit, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.values import Value

SECONDS = 300.0
_BROKERS = frozenset({"leader", "coordinator"})
_TIMES = frozenset({"start_timestamp"})


class Rehearsed(Value):
    """What became of a plan on the twin."""

    answer: Answer
    outcome: Outcome

    @property
    def exit_status(self) -> Exit:
        """Return the worst of the steps' statuses and the answer's: 1 = it does not count."""
        return worst([self.outcome.exit_status, self.answer.exit_status])


def read(path: Path, bundle: Path) -> Plan:
    """Return a plan that can be rehearsed on the twin of a bundle. Raises UsageError, RefusedError.

    A restart's plan needs a bundle that took along what it stands on.
    """
    plan = read_plan(path)
    seen, _ = bundle_files.read(bundle)
    _check_bundle(plan, seen)
    return plan


def read_plan(path: Path) -> Plan:
    """Return a plan that can be rehearsed. Raises UsageError, RefusedError (edited)."""
    plan = plan_files.read(path)
    if why_not := rehearsals.why_not(plan):
        raise UsageError(
            why_not,
            where=str(path),
            remedy="a rehearsal takes plans of remedies, and of restarts that move a group by "
            "its offsets or by the strategy commit-pair",
        )
    return plan


def _check_bundle(plan: Plan, bundle: Bundle) -> None:
    """Raise RefusedError if the bundle is of another cluster, or lacks what a restart stands on."""
    if bundle.cluster_id != plan.cluster_id:
        raise RefusedError(
            f"the plan is for cluster {plan.cluster_id}, the bundle is of {bundle.cluster_id}",
            remedy="make a bundle of the cluster that the plan is for",
        )
    if plan.kind == rehearsals.RESTART and bundle.plan_sha256 != plan.sha256:
        raise RefusedError(
            "the bundle was not made for this plan, and lacks the records that it stands on",
            remedy="eoctl bundle create incident.eoctl --for PLAN",
        )
    if bundle.plan_sha256 == plan.sha256 and bundle.planned_missing:
        first = bundle.planned_missing[0]
        raise RefusedError(
            f"the bundle lacks records that the plan stands on: {first.detail or first.error}",
            where=f"{first.topic}:{first.partition}",
            remedy="make it again once they can be read; what is too large cannot be rehearsed",
        )


@contextmanager
def twin_for(bundle: Path, name: str, progress: FetchProgress = nothing) -> Iterator[Started]:
    """Start a twin, and take it down at the end of the block."""
    started = twins.start(bundle, name, progress)
    try:
        yield started
    finally:
        started.lab.down()


def rehearse(plan: Plan, twin: Started) -> Rehearsed:
    """Carry a plan out on a twin. Raises RefusedError if the twin is not as the plan expects it.

    It counts as a rehearsal only if the twin's verdicts were the bundle's, and each step was done
    and verified.
    """
    _check_bundle(plan, twin.bundle)
    before = twin.judged()
    there = on_twin(plan, twin)
    offsets = _offsets(there, twin)
    door = Door(
        twin.context,
        confirm=lambda question, word: None,
        execute=True,
        yes=True,
        plan_sha256=there.sha256,
        although_it_writes=True,
    )
    with kept_apart():
        acting.permit(there, door)
        outcome = acting.execute(there, door, SECONDS)
    after = twin.judged()
    why_not = _why_not(twin.bundle, before, after, outcome)
    moves = _moves(plan, offsets, _offsets(there, twin))
    if why_not is None:
        rehearsals.keep(plan.sha256)
    return Rehearsed(_answer(plan, twin, before, after, moves, outcome, why_not), outcome)


def _offsets(there: Plan, twin: Started) -> Mapping[TopicPartition, StoredValues]:
    """Return what the group of a restart's plan has committed on the twin; {} for other plans."""
    if there.kind != rehearsals.RESTART:
        return {}
    request = asked_again(there.details["asked"])

    async def read(cluster: Cluster) -> Mapping[TopicPartition, StoredValues]:
        async with opened_stores(cluster, request) as stores:
            return {} if stores.main is None else (await stores.main.read()).kept

    return with_cluster(twin.context, SECONDS, read)


def _moves(
    plan: Plan,
    before: Mapping[TopicPartition, StoredValues],
    after: Mapping[TopicPartition, StoredValues],
) -> list[RehearsalRow]:
    """Return a row for each partition that a restart's plan is about."""
    if plan.kind != rehearsals.RESTART:
        return []
    return [
        RehearsalRow(
            topic=i.topic,
            partition=i.partition,
            group=plan.scope.removeprefix("group "),
            offset_before=before.get(i.topic_partition, {}).get("offset"),
            offset_after=after.get(i.topic_partition, {}).get("offset"),
        )
        for i in decision_of(plan).inputs
    ]


def _why_not(bundle: Bundle, before: Diagnosis, after: Diagnosis, outcome: Outcome) -> str | None:
    """Return why what was done is no rehearsal; None: it is one."""
    if before.missing or after.missing:
        return "not all of the twin could be seen"
    differing = twins.differing(twins.rows_of(bundle, before))
    if differing:
        return f"{counted(differing, 'verdict')} of the twin differ from the bundle's"
    if any(step.status != "done" for step in outcome.steps):
        return "not every step was done there"
    return None


def on_twin(plan: Plan, twin: Started) -> Plan:
    """Return the plan for the twin: its cluster, its brokers and its times; all else is equal."""
    now = now_ms()
    fields = _moved(plan.model_dump(mode="json"), twin)
    return Plan.model_validate(
        fields
        | {
            "cluster_id": twin.lab.record.cluster_id,
            "context": twin.context.title,
            "argv": twin.context.argv,
            "created_at": now,
            "expires_at": now + plan.expires_at - plan.created_at,
        }
    )


def _moved(value: Any, twin: Started) -> Any:
    """Return a plan's value with the twin's brokers and times."""
    if isinstance(value, list):
        return [_moved(item, twin) for item in value]
    if not isinstance(value, Mapping):
        return value
    fields = {key: _moved(item, twin) for key, item in value.items()}
    for key, item in value.items():
        if isinstance(item, int) and key in _TIMES:
            fields[key] = item + twin.shift - _ahead(twin, value.get("producer_id", -1))
        elif isinstance(item, int) and key in _BROKERS:
            fields[key] = broker_on_twin(twin.bundle, item)
    return fields


def _ahead(twin: Started, producer_id: int) -> int:
    """Return how far the clock of a producer id's coordinator was ahead, ms: the twin's is not."""
    transactions = twin.bundle.transactions
    owners = transactions.owners(producer_id)
    return transactions.ahead(owners[0].coordinator) or 0 if owners else 0


def _answer(
    plan: Plan,
    twin: Started,
    before: Diagnosis,
    after: Diagnosis,
    moves: list[RehearsalRow],
    outcome: Outcome,
    why_not: str | None,
) -> Answer:
    first, then = by_subject(before.everything), by_subject(after.everything)
    held = [{p.topic_partition: p.held for p in d.partitions} for d in (before, after)]
    free = [None if d.missing else 0 for d in (before, after)]  # a diagnosis lists held ones only

    def row(subject: twins.Subject) -> RehearsalRow:
        topic, partition, *_ = subject
        where = None if topic is None else TopicPartition(topic, partition or 0)
        return RehearsalRow(
            **about(subject, first.get(subject), then.get(subject)),
            verdict_before=verdict_text(first.get(subject)),
            verdict_after=verdict_text(then.get(subject)),
            held_before=None if where is None else held[0].get(where, free[0]),
            held_after=None if where is None else held[1].get(where, free[1]),
        )

    steps = [{"target": s.step.target, "status": s.status} for s in outcome.steps]
    done = sum(s["status"] == "done" for s in steps)
    return Answer(
        "lab-rehearse",
        after.cluster_id,
        now_ms(),
        [*moves, *(row(subject) for subject in sorted({*first, *then}, key=str))],
        error_rows([*before.missing, *after.missing]),
        extra={
            "plan_sha256": plan.sha256,
            "of_cluster_id": plan.cluster_id,
            "outcome": f"{done} of {counted(len(steps), 'step')} done on the twin; "
            + ("kept as a rehearsal" if why_not is None else f"not kept as a rehearsal: {why_not}"),
            "steps": steps,
            "twin_lacks": twin.lacks,
        },
        judging=True,
        finding=why_not is not None,
    )
