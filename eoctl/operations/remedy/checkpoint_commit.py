"""`txn commit --checkpoint --execute`: commit what a dead job's Flink checkpoint promises.

EndTxn (commit) in version 4 with the checkpoint's own producer id and epoch, which changes nothing
if either is stale. That version leaves the epoch unchanged: the restore that follows sends the same
request and gets NONE; after version 5 it would log a loss of data that did not happen. An unchanged
epoch also stays usable for a live owner: so the job must be dead, which is checked. For a job that
never comes back, version 5 shuts its owner out as well (`Ending.never_restored`).

All transactions of a checkpoint are one plan. None is begun unless all are as planned; once the
first is committed, a refused one does not stop the others: the checkpoint promises them as well,
and their deadlines approach.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.remedy import commit as remedy_commit
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import flink_transactions as remedy_checkpoint
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.flink_transactions import Fate, Seen
from eoctl.operations.remedy.living import with_evidence
from eoctl.operations.remedy.remedy_plan import (
    Planned,
    RemedyRequest,
    judged_with,
    step_evidence,
    told_of_id,
)
from eoctl.settings.context import Context
from eoctl.stores import flink_checkpoint
from eoctl.stores.flink_checkpoint import CheckpointFolder
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TransactionFacts
from recovery.inspect.observation import Settings
from recovery.inspect.two_phase import deadline
from recovery.plurals import counted
from recovery.remedy.transaction_fates import Claims, prefixes, quiet_for, refused
from recovery.times import format_duration
from recovery.values import Value

KIND = "txn-commit"
ACTION = "commit-checkpoint"
_OTHERS = "others of its sinks"
_CHECKPOINT = "checkpoint"
_AT_ONCE = 16  # transactions judged in parallel


class Ending(Value):
    """What the operator requests besides the commits, and says about the job.

    topics: those its sinks write to. fence_rest: end open transactions that are not in the
    checkpoint. never_restored: the job does not come back, so that its epochs are raised as well.
    """

    claims: Claims
    topics: tuple[str, ...] = ()
    fence_rest: bool = False
    never_restored: bool = False


class _Limits(Value):
    """How a transaction is judged. interval: between two checks of its producer, in s."""

    settings: Settings
    interval: float


async def plan(
    cluster: Cluster,
    context: Context,
    folder: CheckpointFolder,
    ending: Ending,
    settings: Settings,
    interval: float,
) -> Planned:
    """Plan the commit of all open transactions. Raises RefusedError and IncompleteError.

    interval: between two checks of each transaction's producer, in s.
    """
    seen = await remedy_checkpoint.look(cluster, folder.content, ending.topics)
    where = folder.path
    promised = [f for f in seen.fates if f.committable]
    rows = [f.row for f in promised if f.judgement.fate == "open" and f.row]
    if seen.missing or any(f.judgement.fate == "unknown" for f in promised):
        why = seen.missing[0].detail if seen.missing else "a transaction of it is unknown"
        raise IncompleteError(why, where=where, remedy="see it without --execute")
    others = [f.row for f in seen.fates if f.committable is None and f.row]
    ended = [row for row in others if row.state == "Ongoing"] if ending.fence_rest else []
    if not rows and not ended:
        return Planned(None, "nothing of this checkpoint is open: there is nothing to commit")
    why_not = refused(
        folder.content,
        is_savepoint=folder.is_savepoint,
        newer_in_folder=folder.newer,
        newer_in_kafka=seen.later,
        quiet=quiet_for(rows, others, seen.at, seen.ahead),
        claims=ending.claims,
    )
    if why_not is not None:
        raise RefusedError(why_not[0], where=where, remedy=why_not[1])
    few, limits = asyncio.Semaphore(_AT_ONCE), _Limits(settings, interval)
    named = {"checkpoint": where, "topics": list(ending.topics)}

    async def one(row: TransactionFacts, *, commit: bool) -> tuple[Step, dict[str, Any]]:
        async with few:
            if not commit:
                return await _fence(cluster, row, limits, named)
            judgement = await remedy_commit.judged(cluster, row, settings, interval)
            step = await _step(cluster, row, judgement, named, ending)
            return step, {step.stands_on[0]: remedy_commit.facts(row, judgement)}

    rows.sort(key=lambda row: (deadline(row) or 0, row.transactional_id))  # the next to be lost
    steps = await asyncio.gather(
        *(one(row, commit=True) for row in rows), *(one(row, commit=False) for row in ended)
    )
    number = folder.content.checkpoint_id
    hits = "never-restored" if ending.never_restored else f"restore-from-{number}-or-later-or-never"
    plan_ = new_plan(
        context,
        cluster.cluster_id,
        kind=KIND,
        action="commit",
        scope=scope(folder),
        summary=_summary(number, seen, len(rows), len(ended), ending),
        steps=tuple(step for step, _ in steps),
        observed={name: value for _, facts in steps for name, value in facts.items()}
        | _facts(folder, seen),
        details=judged_with(settings, interval),
        hits=hits + (f"-and-fence-{len(ended)}" if ended else ""),
        independent=True,
        all_or_none=True,
    )
    return Planned(await with_evidence(cluster, plan_, interval))


def _summary(number: int, seen: Seen, commits: int, fences: int, ending: Ending) -> str:
    text = f"commits {counted(commits, 'transaction')} of checkpoint {number} in the job's stead. "
    if not commits:
        text = f"no transaction of checkpoint {number} is open. "
    if ending.never_restored:
        text += (
            "This job is never restored: it would write their records twice from an older "
            "checkpoint, and log a loss that did not happen from this one"
        )
    else:
        text += (
            f"Restore this job from checkpoint {number} or a later one, or never: an older one "
            "writes their records twice"
        )
    if fences:
        text += f"; then aborts {counted(fences, 'transaction')} begun after it"
    lost = sum(f.judgement.fate == "lost" for f in seen.fates)
    if lost:
        text += (
            f"; {counted(lost, 'other')} of this checkpoint can no longer be committed: already "
            "aborted, see `eoctl txn salvage`"
        )
    return text


def scope(folder: CheckpointFolder) -> str:
    """Return the subject of a checkpoint's plan, as the journal names it."""
    return f"checkpoint {folder.content.checkpoint_id} of {', '.join(prefixes(folder.content))}"


def _facts(folder: CheckpointFolder, seen: Seen) -> dict[str, Any]:
    """Return what must not change besides the transactions: a live job changes it."""
    return {
        _CHECKPOINT: {
            "number": folder.content.checkpoint_id,
            "newer": list(folder.newer),
            "newer_in_kafka": list(seen.later),
        },
        _OTHERS: {_words(f): _records(f) for f in seen.fates if f.committable is None and f.row},
    }


def _words(fate: Fate) -> str:
    row = fate.row
    assert row is not None
    return f"{row.transactional_id} {row.producer_id} {row.producer_epoch}"


def _records(fate: Fate) -> int:
    return sum(w.records for w in fate.written.values())


def _still(planned: Mapping[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the others as they were planned if nothing was added to them and none has grown.

    An ended transaction is no sign of life: its timeout, or an earlier run of this plan, ended it.
    """
    same = all(planned.get(name) == records for name, records in now.items())
    return dict(planned) if same else now


async def _fence(
    cluster: Cluster, row: TransactionFacts, limits: _Limits, named: dict[str, Any]
) -> tuple[Step, dict[str, Any]]:
    """Return the step that ends a transaction which the checkpoint does not name, and its facts.

    The operator said that its owner is gone, and it looked so; two checks must confirm that.
    """
    request = RemedyRequest("fence", transactional_id=row.transactional_id, owner_is_gone=True)
    pid, partitions = row.producer_id, await remedy_fence.partitions_of(cluster, row)
    before = await remedy_commit.stands(cluster, partitions, pid)
    judgement = await remedy_fence.judged_for(
        cluster, row, request, limits.settings, interval=limits.interval
    )
    after = await remedy_commit.stands(cluster, partitions, pid)
    await remedy_commit.refuse_life(cluster, row, judgement.mine, before, after)
    about = [await step_evidence(cluster, j, "abort") for j in judgement.mine]
    about = about or await told_of_id(cluster, row, limits.settings, limits.interval)
    step = await remedy_fence.fence_step(cluster, row, request, judgement, about)
    subject = remedy_raise.subject(row.transactional_id)
    changes = {
        "parameters": step.parameters | named,
        "stands_on": (subject, _CHECKPOINT, _OTHERS),
    }
    return step.model_copy(update=changes), {subject: remedy_fence.facts(row, judgement, request)}


async def _step(
    cluster: Cluster,
    row: TransactionFacts,
    judgement: remedy_fence.Judgement,
    named: dict[str, Any],
    ending: Ending,
) -> Step:
    name = row.transactional_id
    mixed = next((j.about.name for j in judgement.mine if j.verdict.mixed), None)
    if mixed is not None:
        raise RefusedError(
            f"an earlier transaction with a lost marker is on {mixed}: one marker would decide "
            "both",
            where=name,
            remedy=f"eoctl why {mixed}",
        )
    if ending.never_restored:
        end = await remedy_fence.end_of(cluster, row)
        version, initialise = end.version, True
    else:
        version, initialise = await _end_version(cluster, row.coordinator), False
    left = "" if row.timeout_ms is None else f" {format_duration(row.timeout_ms / 1000)}"
    return Step(
        action=ACTION,
        target=name,
        parameters=remedy_fence.request_of(row, judgement, version, initialise=initialise)
        | named
        | {
            "outcome": "commit",
            "ends": {j.about.name: j.partition.high_watermark for j in judgement.mine},
        },
        does=remedy_fence.does(row, "commit", version, initialise=initialise),
        stands_on=(remedy_raise.subject(name), _CHECKPOINT, _OTHERS),
        about=[await step_evidence(cluster, j, "commit") for j in judgement.mine],
        harms=(
            f"the other outcome: its coordinator aborts it after its timeout of{left}",
            "a job that still lives, or is restored from an older checkpoint, writes twice",
        ),
    )


async def _end_version(cluster: Cluster, coordinator: int) -> int:
    """Return 4, or 3 for brokers before Kafka 3.8: both leave the epoch unchanged."""
    try:
        connection = await cluster.connection(coordinator)
    except WireError as error:
        raise IncompleteError(error.detail, where=f"broker {coordinator}") from None
    return 4 if connection.supports(messages.EndTxnRequest, 4) else 3


async def observe(
    cluster: Cluster,
    plan_: Plan,
    steps: Sequence[Step],
    settings: Settings,
    interval: float,
) -> dict[str, Any]:
    """Read again what these steps rest on: their transactions, the checkpoint, the others."""
    if plan_.kind != KIND or not steps:
        return {}
    now: dict[str, Any] = {}
    few = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Step) -> dict[str, Any]:
        async with few:
            return await remedy_commit.observe(cluster, step, settings, interval)

    for facts in await asyncio.gather(*(one(step) for step in steps if step.action == ACTION)):
        now |= facts
    named = steps[0].parameters
    folder = flink_checkpoint.read(named["checkpoint"])
    seen: Seen = await remedy_checkpoint.look(cluster, folder.content, named["topics"])
    if seen.missing:
        raise IncompleteError(seen.missing[0].detail, where=folder.path)
    facts = _facts(folder, seen)
    return now | facts | {_OTHERS: _still(plan_.observed[_OTHERS], facts[_OTHERS])}
