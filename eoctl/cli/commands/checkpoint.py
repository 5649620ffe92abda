"""`txn commit --checkpoint` and `txn salvage`: what a Flink checkpoint promises; `restart
checkpoint`: what a Spark one lacks."""

import sys
from pathlib import Path
from typing import Annotated

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.dialog.confirm import ask
from eoctl.cli.emit import emit
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format, Output, argument, option
from eoctl.cli.runner import show_live
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change import acting
from eoctl.operations.remedy import checkpoint_commit, salvage_change
from eoctl.operations.remedy.checkpoint_commit import Ending
from eoctl.operations.remedy.flink_transactions import committables
from eoctl.operations.remedy.remedy_plan import Planned
from eoctl.operations.restart.spark_checkpoint_copy import MendRequest
from eoctl.operations.restart.spark_checkpoint_copy import checkpoint as diagnose_checkpoint
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.flink_checkpoint import COMMITTABLES, SALVAGE
from eoctl.render.columns.spark_checkpoint import CHECKPOINT
from eoctl.render.sanitise import visible
from eoctl.stores import flink_checkpoint
from recovery.answers import Answer
from recovery.errors import Exit, RefusedError, UsageError
from recovery.formats.flink_checkpoint import Committable
from recovery.remedy.transaction_fates import Claims, prefixes
from recovery.values import replace

ACTING_SECONDS = 300.0

SinkTopics = Annotated[
    list[str] | None,
    option("--topic TOPIC", "where its sink writes, for what coordinators have forgotten"),
]


def commit(
    connection: Connection,
    output: Output,
    said: Execute,
    limits: Limits,
    checkpoint: Annotated[
        str,
        option(
            "--checkpoint PATH",
            "a Flink checkpoint or savepoint: its folder, or s3://..., gs://...",
        ),
    ],
    topic: SinkTopics = None,
    is_newest: Annotated[
        bool, option("--is-newest", "you know that no later one was completed")
    ] = False,
    job_is_dead: Annotated[
        bool, option("--job-is-dead", "you checked that no process of the job runs")
    ] = False,
    rest: Annotated[
        str, option("--rest leave|fence", "fence ends open transactions that are not in it")
    ] = "leave",
    never_restored: Annotated[
        bool, option("--never-restored", "the job never comes back: shut its ids out too")
    ] = False,
) -> int:
    """Show what became of each transaction that a Flink checkpoint promises; --execute commits.

    For an open one it shows when its coordinator aborts it and how many records are lost then;
    for a lost one how many, and where they are. Exit status 1 while one is open or lost, 3 while
    one is unknown. --execute commits all that are open, in a dead job's stead: restore it from this
    checkpoint or a later one afterwards, or never. --rest fence then ends what its sinks began
    after it, as Flink's restore would.
    """
    if rest not in ("leave", "fence"):
        raise UsageError("must be leave or fence", where="--rest")
    topics = tuple(topic or ())
    ending = Ending(Claims(is_newest, job_is_dead), topics, rest == "fence", never_restored)
    if not said.execute and (ending.fence_rest or never_restored):
        raise UsageError("is for --execute", where="--rest, --never-restored")
    folder = flink_checkpoint.read(checkpoint)
    ended = Exit.OK
    if said.execute:
        if output.interval is not None:
            raise UsageError("goes without --execute", where="--watch")
        ended = _execute(connection, said, limits, folder, ending)
    shown = show_live(connection, output, COMMITTABLES, lambda c: committables(c, folder, topics))
    return ended if said.execute else shown


def _execute(
    connection: Connection,
    said: Execute,
    limits: Limits,
    folder: flink_checkpoint.CheckpointFolder,
    ending: Ending,
) -> Exit:
    """Commit all that is open, or what an earlier run left; how that ended."""
    context = connection.one()
    seconds = connection.seconds(ACTING_SECONDS)

    async def planned(cluster: Cluster) -> Planned:
        # an answer lost on the way: the entry it left is ended, not planned again
        scope = checkpoint_commit.scope(folder)
        begun = acting.unfinished_entry(checkpoint_commit.KIND, cluster.cluster_id or "", scope)
        if begun is not None:
            print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
            return Planned(begun.plan)
        settings = limits.settings(context)
        return await checkpoint_commit.plan(
            cluster, context, folder, ending, settings, limits.interval
        )

    return _carried_out(connection, said, with_cluster(context, seconds, planned), "txn-commit")


def _carried_out(connection: Connection, said: Execute, found: Planned, schema: str) -> Exit:
    """Carry a plan out and tell what became of each step; how that ended."""
    if found.plan is None:
        print(f"eoctl: {found.done}", file=sys.stderr)
        return Exit.OK
    change = CommandChange(schema, found.plan, connection.one())
    outcome = change.execute(said, connection.seconds(ACTING_SECONDS))
    assert outcome is not None
    for step in outcome.steps:
        print(f"eoctl: {step.step.target}: {step.status}: {visible(step.detail)}", file=sys.stderr)
    print(f"eoctl: journal entry {outcome.entry}", file=sys.stderr)
    return outcome.exit_status


def salvage(
    connection: Connection,
    output: Output,
    said: Execute,
    subject: Annotated[
        str, argument("CHECKPOINT|ID", "a checkpoint's folder, or a transactional id")
    ],
    pid: Annotated[
        int | None, option("--pid N", "of an id: the lost transaction's producer id")
    ] = None,
    epoch: Annotated[int | None, option("--epoch N", "of an id: its producer epoch")] = None,
    topic: SinkTopics = None,
    to: Annotated[str | None, option("--to TOPIC", "copy there, not to its own topic")] = None,
    never_salvaged: Annotated[
        bool,
        option("--never-salvaged", "you know that none was salvaged before"),
    ] = False,
) -> int:
    """Copy the aborted records of lost transactions, in their order, exactly once.

    Without --execute it only looks: what is lost, where it is, whether all of it is there. The
    records of one transaction are copied in one transaction, to the ends of their own partitions.
    If it is killed midway, run the same command again. Exit status 1 while something lost is
    not salvaged.
    """
    if flink_checkpoint.is_one(subject):
        if (pid, epoch) != (None, None):
            raise UsageError("a checkpoint names them", where="--pid, --epoch")
        content = flink_checkpoint.read(subject).content
        scope = f"checkpoint {content.checkpoint_id} of {', '.join(prefixes(content))}"
    elif pid is None or epoch is None:
        raise UsageError(
            "is not a checkpoint; a transactional id needs --pid and --epoch",
            where=subject,
            remedy=f"eoctl txn history {subject}",
        )
    else:
        content = salvage_change.of_transaction(Committable(subject, pid, epoch, -1, ""))
        scope = f"id {subject}"
    request = salvage_change.SalvageRequest(content, tuple(topic or ()), to, never_salvaged)
    ended = Exit.OK
    if said.execute:
        if output.interval is not None:
            raise UsageError("goes without --execute", where="--watch")
        ended = _salvage(connection, said, request, scope)

    async def rows(cluster: Cluster) -> Answer:
        found = await salvage_change.find(cluster, request)
        return salvage_change.answer(cluster.cluster_id, request, found)

    shown = show_live(connection, output, SALVAGE, rows)
    return ended if said.execute else shown


def _salvage(
    connection: Connection, said: Execute, request: salvage_change.SalvageRequest, scope: str
) -> Exit:
    """Copy all that can be copied, or what an earlier run left; how that ended."""
    context = connection.one()
    seconds = connection.seconds(ACTING_SECONDS)

    async def planned(cluster: Cluster) -> Planned:
        begun = acting.unfinished_entry(salvage_change.KIND, cluster.cluster_id or "", scope)
        if begun is not None:
            print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
            return Planned(begun.plan)
        return Planned(
            await salvage_change.plan(cluster, context, request, scope),
            "there is nothing to salvage",
        )

    return _carried_out(connection, said, with_cluster(context, seconds, planned), "txn-salvage")


def spark(
    output: Format,
    said: Execute,
    folder: Annotated[str, argument("DIR", "a Structured Streaming checkpoint on this host")],
    copy: Annotated[Path | None, option("--copy NEW", "a new folder for the repaired copy")] = None,
    progress: Annotated[
        Path | None,
        option("--progress FILE", "progress events: as JSON, an event log, or the driver's log"),
    ] = None,
    rewind: Annotated[
        bool, option("--rewind", "go back to an earlier batch, where nothing better is safe")
    ] = False,
) -> int:
    """Show what a Spark checkpoint lacks; make a repaired copy. The checkpoint is never changed.

    Without --execute it only looks. A copy is made where the query then goes on as it would have,
    or repeats its last batch in exactly its ranges; what is written into it is proven by other
    files, or marked GUESSED. Exit status 1 while something is wrong, 4 where no copy is safe.
    """
    if said.plan_sha256 is not None:
        raise UsageError("is of a plan; here there is none", where="--plan-sha256")
    request = MendRequest(folder, copy, progress, rewind, said.execute)
    if said.execute and not said.yes:
        shown = diagnose_checkpoint(replace(request, execute=False))
        if shown.extra["meaning"] is not None:
            question = f"In a copy {shown.extra['meaning']}. Type repair to make it:"
            if not ask(question, "repair"):
                raise RefusedError("declined")
    answer = diagnose_checkpoint(request)
    emit(answer, CHECKPOINT, output)
    return answer.exit_status
