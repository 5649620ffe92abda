"""`txn commit --checkpoint --execute`: commit what a Flink checkpoint promises, its job being dead.

EndTxn (commit) in version 4 with the checkpoint's own producer id and epoch, which changes nothing
if either is stale. That version leaves the epoch as it is: the restore that follows sends the same
and is answered NONE, where version 5 would make it log a loss of data that did not happen. It also
leaves the epoch open to an owner that still lives: so the job must be dead, which is looked at.
"""

import asyncio
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.operations.remedy import checkpoint as remedy_checkpoint
from eoctl.operations.remedy import commit as remedy_commit
from eoctl.operations.remedy import fence as remedy_fence
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy.checkpoint import Seen
from eoctl.operations.remedy.plan import Planned, made, told
from eoctl.render.words import counted
from eoctl.settings.context import Context
from eoctl.stores import flink_checkpoint
from eoctl.stores.flink_checkpoint import CheckpointFolder
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TransactionFacts
from recovery.inspect.observation import Settings
from recovery.remedy.checkpoint import Claims, prefixes, quiet_for, refused
from recovery.times import format_duration

ACTION = "commit-checkpoint"
_OTHERS = "others of its sinks"
_CHECKPOINT = "checkpoint"
_AT_ONCE = 16  # transactions judged side by side


async def plan(
    cluster: Cluster,
    context: Context,
    folder: CheckpointFolder,
    claims: Claims,
    settings: Settings,
    interval: float,
) -> Planned:
    """Plan the commit of all that is open. Raises RefusedError and IncompleteError.

    interval: between two looks at each transaction's producer, in s.
    """
    seen = await remedy_checkpoint.look(cluster, folder)
    where = str(folder.path)
    rows = [f.row for f in seen.fates if f.committable and f.judgement.fate == "open" and f.row]
    if seen.missing or any(f.judgement.fate == "unknown" for f in seen.fates):
        why = seen.missing[0].detail if seen.missing else "a transaction of it is unknown"
        raise IncompleteError(why, where=where, remedy="see it without --execute")
    if not rows:
        return Planned(None, "nothing of this checkpoint is open: there is nothing to commit")
    others = [f.row for f in seen.fates if f.committable is None and f.row]
    why_not = refused(
        folder.content,
        is_savepoint=folder.is_savepoint,
        newer_in_folder=folder.newer,
        newer_in_kafka=seen.later,
        quiet=quiet_for(rows, others, seen.at, seen.ahead),
        claims=claims,
    )
    if why_not is not None:
        raise RefusedError(why_not[0], where=where, remedy=why_not[1])
    few = asyncio.Semaphore(_AT_ONCE)

    async def one(row: TransactionFacts) -> tuple[Step, dict[str, Any]]:
        async with few:
            judgement = await remedy_commit.judged(cluster, row, settings, interval)
            step = await _step(cluster, row, judgement, where)
            return step, {step.stands_on[0]: remedy_commit.facts(row, judgement)}

    steps = await asyncio.gather(*(one(row) for row in rows))
    number = folder.content.checkpoint_id
    lost = sum(f.judgement.fate == "lost" for f in seen.fates)
    summary = (
        f"{counted(len(rows), 'transaction')} of checkpoint {number} are committed in their "
        f"job's stead. Restore this job from checkpoint {number} or a later one, or never: an "
        "older one writes their records twice"
    )
    if lost:
        summary += f"; {counted(lost, 'other')} of this checkpoint cannot be saved: lost already"
    return Planned(
        made(
            cluster,
            context,
            kind="txn-commit",
            action="commit",
            scope=scope(folder),
            summary=summary,
            steps=tuple(step for step, _ in steps),
            observed={name: value for _, facts in steps for name, value in facts.items()}
            | _facts(folder, others),
            settings=settings,
            sample_interval=interval,
            hits=f"restore-from-{number}-or-later-or-never",
        )
    )


def scope(folder: CheckpointFolder) -> str:
    """Return what a plan of this checkpoint is on, as the journal names it."""
    return f"checkpoint {folder.content.checkpoint_id} of {', '.join(prefixes(folder.content))}"


def _facts(folder: CheckpointFolder, others: list[TransactionFacts]) -> dict[str, Any]:
    """Return what must not change besides the transactions: a job that lives changes it."""
    return {
        _CHECKPOINT: {"number": folder.content.checkpoint_id, "newer": list(folder.newer)},
        _OTHERS: [
            [t.transactional_id, t.producer_id, t.producer_epoch, t.state]
            for t in sorted(others, key=lambda t: t.transactional_id)
        ],
    }


async def _step(
    cluster: Cluster, row: TransactionFacts, judgement: remedy_fence.Judgement, path: str
) -> Step:
    name = row.transactional_id
    mixed = next((j.about.name for j in judgement.mine if j.verdict.mixed), None)
    if mixed is not None:
        raise RefusedError(
            f"an earlier lost marker lies on {mixed}: one marker would decide both",
            where=name,
            remedy=f"eoctl why {mixed}",
        )
    version = await _end_version(cluster, row.coordinator)
    left = "" if row.timeout_ms is None else f" {format_duration(row.timeout_ms / 1000)}"
    return Step(
        action=ACTION,
        target=name,
        parameters=remedy_fence.request_of(row, judgement, version, initialise=False)
        | {
            "outcome": "commit",
            "checkpoint": path,
            "ends": {j.about.name: j.partition.high_watermark for j in judgement.mine},
        },
        does=remedy_fence.does(row, "commit", version, initialise=False),
        stands_on=(remedy_raise.subject(name), _CHECKPOINT, _OTHERS),
        about=[await told(cluster, j, "commit") for j in judgement.mine],
        harms=(
            f"the other outcome: its coordinator aborts it by itself after its timeout of{left}",
            "a job that still lives, or is restored from an older checkpoint, writes twice",
        ),
    )


async def _end_version(cluster: Cluster, coordinator: int) -> int:
    """4, or 3 of brokers before Kafka 3.8: both leave the epoch as it is."""
    try:
        connection = await cluster.connection(coordinator)
    except WireError as error:
        raise IncompleteError(error.detail, where=f"broker {coordinator}") from None
    return 4 if connection.supports(messages.EndTxnRequest, 4) else 3


async def observe(
    cluster: Cluster, steps: list[Step], settings: Settings, interval: float
) -> dict[str, Any]:
    """Read again all that these steps stand on: their transactions, the checkpoint, the others."""
    if not steps:
        return {}
    now: dict[str, Any] = {}
    for step in steps:
        now |= await remedy_commit.observe(cluster, step, settings, interval)
    folder = flink_checkpoint.read(steps[0].parameters["checkpoint"])
    seen: Seen = await remedy_checkpoint.look(cluster, folder)
    if seen.missing:
        raise IncompleteError(seen.missing[0].detail, where=str(folder.path))
    others = [f.row for f in seen.fates if f.committable is None and f.row]
    return now | _facts(folder, others)
