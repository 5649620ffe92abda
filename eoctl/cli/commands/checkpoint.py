"""`txn commit --checkpoint`: the transactions that a Flink checkpoint promises."""

import sys
from typing import Annotated

import typer

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Output
from eoctl.cli.runner import show_live
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change import acting
from eoctl.operations.remedy import checkpoint_commit
from eoctl.operations.remedy.checkpoint import committables
from eoctl.operations.remedy.plan import Planned
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.checkpoint import COMMITTABLES
from eoctl.render.sanitise import visible
from eoctl.stores import flink_checkpoint
from recovery.errors import Exit, UsageError
from recovery.remedy.checkpoint import Claims

ACTING_SECONDS = 300.0


def commit(
    connection: Connection,
    output: Output,
    said: Execute,
    limits: Limits,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="a Flink checkpoint or savepoint: its folder, on this host",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="where its sink writes, for what coordinators have forgotten",
        ),
    ] = None,
    is_newest: Annotated[
        bool,
        typer.Option("--is-newest", help="no later one was completed: where Kafka cannot tell"),
    ] = False,
    job_is_dead: Annotated[
        bool, typer.Option("--job-is-dead", help="no process of the job runs: you looked")
    ] = False,
) -> int:
    """What became of each transaction that a Flink checkpoint promises; --execute commits.

    Of an open one: how long until its coordinator aborts it, and how many records are lost then;
    of a lost one: how many, and where they lie. Exit status 1 while one is open or lost, 3 while
    one is unknown. --execute commits all that are open, in a dead job's stead: restore it from this
    checkpoint or a later one afterwards, or never.
    """
    folder = flink_checkpoint.read(checkpoint)
    ended = Exit.OK
    if said.execute:
        if output.interval is not None:
            raise UsageError("goes without --execute", where="--watch")
        ended = _execute(connection, said, limits, folder, Claims(is_newest, job_is_dead))
    shown = show_live(
        connection, output, COMMITTABLES, lambda c: committables(c, folder, topic or ())
    )
    return ended if said.execute else shown


def _execute(
    connection: Connection,
    said: Execute,
    limits: Limits,
    folder: flink_checkpoint.CheckpointFolder,
    claims: Claims,
) -> Exit:
    """Commit all that is open, or what an earlier run left; how that ended."""
    context = connection.one()
    seconds = connection.seconds(ACTING_SECONDS)

    async def planned(cluster: Cluster) -> Planned:
        # an answer lost on the way: the entry it left is ended, not planned anew
        place = checkpoint_commit.scope(folder)
        begun = acting.unfinished_entry("txn-commit", cluster.cluster_id or "", place)
        if begun is not None:
            print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
            return Planned(begun.plan)
        settings = limits.settings(context)
        return await checkpoint_commit.plan(
            cluster, context, folder, claims, settings, limits.interval
        )

    found = with_cluster(context, seconds, planned)
    if found.plan is None:
        print(f"eoctl: {found.done}", file=sys.stderr)
        return Exit.OK
    change = CommandChange("txn-commit", found.plan, context)
    outcome = change.act(said, seconds)
    assert outcome is not None
    for step in outcome.steps:
        print(f"eoctl: {step.step.target}: {step.status}: {visible(step.detail)}", file=sys.stderr)
    print(f"eoctl: journal entry {outcome.entry}", file=sys.stderr)
    return outcome.exit_status
