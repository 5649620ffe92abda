"""`txn abort`, `txn fence`, `txn resolve`, `txn apply`: the remedies, each a plan first."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change import acting
from eoctl.operations.remedy import remedy_change
from eoctl.operations.session.session import with_cluster
from eoctl.stores import plan_files
from recovery.diagnose.diagnosis_rows import Action
from recovery.errors import Exit, RefusedError, UsageError
from recovery.restart.decision import Owner
from recovery.selectors import parse_selector

ACTING_SECONDS = 60.0
MANY_SECONDS = 600.0

ClusterId = Annotated[str | None, option("--cluster-id ID", "refuse any other cluster")]
Pid = Annotated[int | None, option("--pid, --producer-id N")]


@dataclass(frozen=True)
class OpenHere:
    """The one open transaction meant: its partition, its producer id and its first offset."""

    where: Annotated[str | None, argument("TOPIC:P")] = None
    topic: Annotated[str | None, option("--topic TOPIC")] = None
    partition: Annotated[str | None, option("--partition P")] = None
    pid: Pid = None
    start_offset: Annotated[
        int | None, option("--start-offset O", "first offset of the transaction")
    ] = None
    cluster_id: ClusterId = None

    def name(self) -> str:
        """Return the partition, as `orders:3`. Raises UsageError for none or several."""
        given = self.where or self.topic
        if not given:
            raise UsageError("no partition is named", remedy="write TOPIC:P, like orders:3")
        selector = parse_selector(given, partitions=self.partition)
        ranges = selector.partitions
        if (
            selector.literal is None
            or not ranges
            or len(ranges) != 1
            or ranges[0][0] != ranges[0][1]
        ):
            raise UsageError(
                f"{given!r} is not one partition", remedy="write TOPIC:P, like orders:3"
            )
        return f"{selector.literal}:{ranges[0][0]}"

    def transaction(self) -> tuple[int, int]:
        """Return its producer id and its first offset. Raises UsageError if one is not given."""
        return _required(self.pid, "--pid"), _required(self.start_offset, "--start-offset")

    def request(
        self,
        action: Action,
        outcome: str | None = None,
        *,
        without_proof: bool = False,
        owner_is_gone: bool = False,
        source: str | None = None,
        source_topic: str | None = None,
    ) -> remedy_change.RemedyRequest:
        """Return what is requested. Raises UsageError when a part of it is not named."""
        partition = self.name()
        producer_id, start_offset = self.transaction()
        return remedy_change.RemedyRequest(
            action,
            partition=partition,
            producer_id=producer_id,
            start_offset=start_offset,
            outcome=outcome,
            without_proof=without_proof,
            owner_is_gone=owner_is_gone,
            source=source,
            source_topic=source_topic,
        )


def _required(value: int | None, option: str) -> int:
    if value is None:
        raise UsageError("is needed", where=option, remedy="`eoctl txn hanging` shows it")
    return value


def _run(
    connection: Connection,
    output: Format,
    execute: Execute,
    limits: Limits,
    cluster_id: str | None,
    request: remedy_change.RemedyRequest,
) -> int:
    context = connection.one()
    seconds = connection.seconds(ACTING_SECONDS)
    scope = request.partition or f"id {request.transactional_id}"

    async def planned(cluster: Cluster) -> remedy_change.Planned:
        check_cluster(cluster, cluster_id)
        # an answer lost on the way: the entry it left is ended, not planned again
        begun = acting.unfinished_entry(f"txn-{request.action}", cluster.cluster_id or "", scope)
        if begun is not None and execute.execute and remedy_change.is_for(begun.plan, request):
            print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
            return remedy_change.Planned(begun.plan)
        return await remedy_change.plan(
            cluster,
            context,
            request,
            limits.settings(context),
            pause=limits.interval,
        )

    planned_now = with_cluster(context, seconds, planned)
    if planned_now.plan is None:
        print(planned_now.done)
        return Exit.OK
    return CommandChange(f"txn-{request.action}", planned_now.plan, context).run(
        execute, output, seconds
    )


def check_cluster(cluster: Cluster, cluster_id: str | None) -> None:
    """Raise RefusedError if another cluster answers than was judged."""
    if cluster_id is not None and cluster.cluster_id != cluster_id:
        raise RefusedError(
            f"cluster {cluster.cluster_id} answers, not {cluster_id}",
            where="--cluster-id",
            remedy="look again on this cluster: eoctl txn hanging",
        )


def abort(
    connection: Connection, output: Format, execute: Execute, limits: Limits, open_here: OpenHere
) -> int:
    """Abort an orphan: a transaction that no coordinator owns. Shows the plan; --execute acts."""
    return _run(
        connection, output, execute, limits, open_here.cluster_id, open_here.request("abort")
    )


def resolve(
    connection: Connection,
    output: Format,
    execute: Execute,
    limits: Limits,
    open_here: OpenHere,
    outcome: Annotated[
        str | None, option("--outcome commit|abort", "must be the proven one")
    ] = None,
    without_proof: Annotated[
        bool,
        option(
            "--without-proof, --accept-unknown-outcome",
            "the cluster can never tell the outcome, and you know it from elsewhere",
        ),
    ] = False,
    owner_is_gone: Annotated[
        bool,
        option(
            "--owner-is-gone",
            "a lost COMMIT under an open transaction of an owner gone for good: commit both",
        ),
    ] = False,
    source: Annotated[
        str | None,
        option(
            "--from-cluster CONTEXT",
            "the records are byte copies from that cluster: its decision is used",
        ),
    ] = None,
    source_topic: Annotated[
        str | None, option("--from-topic TOPIC", "the topic's name in that cluster [the same name]")
    ] = None,
    link_is_stopped: Annotated[
        bool,
        option("--link-is-stopped", "nothing copies to this topic any more; with --from-cluster"),
    ] = False,
) -> int:
    """Write the marker that a coordinator decided and that got lost. --execute acts.

    --without-proof is for an `unknown` that no look can ever answer, while nobody owns it: the plan
    shows the records at stake and what each outcome costs. --owner-is-gone is for a lost COMMIT
    under a later open transaction (marker-lost, mixed) of an owner that will not come back: its
    coordinator commits that transaction, undecided records with it, before its deadline drops all.
    --from-cluster is for byte copies, as cluster links make them: the source's log must hold the
    same batches at the same offsets, and end them with the marker that its coordinator decided. It
    goes with --link-is-stopped, which no log can show: stop the link or promote the topic first.
    """
    if outcome not in ("commit", "abort"):
        raise UsageError("must be commit or abort", where="--outcome")
    if owner_is_gone and (without_proof or outcome != "commit"):
        raise UsageError(
            "works only with --outcome commit: at the deadline the coordinator aborts anyway",
            where="--owner-is-gone",
        )
    if source is not None and (without_proof or owner_is_gone):
        raise UsageError("the source proves the outcome, or refuses", where="--from-cluster")
    for given, name in ((source_topic, "--from-topic"), (link_is_stopped, "--link-is-stopped")):
        if given and source is None:
            raise UsageError("goes with --from-cluster alone", where=name)
    if source is not None and not link_is_stopped:
        raise UsageError(
            "a link that still runs brings the source's own marker, and after this one the two "
            "logs would differ",
            where="--from-cluster",
            remedy="stop the link or promote the topic here, then say so: --link-is-stopped",
        )
    request = open_here.request(
        "resolve",
        outcome,
        without_proof=without_proof,
        owner_is_gone=owner_is_gone,
        source=source,
        source_topic=source_topic,
    )
    return _run(connection, output, execute, limits, open_here.cluster_id, request)


def fence(
    connection: Connection,
    output: Format,
    execute: Execute,
    limits: Limits,
    transactional_id: Annotated[str, argument("ID")],
    pid: Pid = None,
    epoch: Annotated[int | None, option("--epoch N")] = None,
    owner_is_gone: Annotated[
        bool,
        option("--owner-is-gone", "also within its limits, or idle: its owner is gone for good"),
    ] = False,
    cluster_id: ClusterId = None,
) -> int:
    """Abort a transactional id's open transaction and shut its owner out. --execute acts.

    Refused (exit status 4) while the owner may be at work: within its limits, with signs of life,
    two-phase, idle. Only --owner-is-gone overrides that.
    """
    request = remedy_change.RemedyRequest(
        "fence",
        transactional_id=transactional_id,
        producer_id=pid,
        producer_epoch=epoch,
        owner_is_gone=owner_is_gone,
    )
    return _run(connection, output, execute, limits, cluster_id, request)


def fence_stopped(
    connection: Connection, output: Format, execute: Execute, limits: Limits, owner: Owner
) -> int:
    """Fence the owner of a stopped application's transaction, also within its limits."""
    request = remedy_change.RemedyRequest(
        "fence",
        transactional_id=owner.transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        is_stopped=True,
    )
    return _run(connection, output, execute, limits, None, request)


def apply(
    connection: Connection,
    output: Format,
    execute: Execute,
    file: Annotated[Path, argument("FILE", "of `txn hanging --plan FILE`")],
) -> int:
    """Carry out a plan of many remedies, each checked again right before. --execute acts."""
    plan = plan_files.read(file)
    if plan.kind not in acting.KINDS or not plan.kind.startswith("txn-"):
        raise UsageError(
            f"this is a plan of kind {plan.kind}",
            where=str(file),
            remedy="give one of `txn hanging --plan`",
        )
    context = connection.one()
    return CommandChange("txn-apply", plan, context).run(
        execute, output, connection.seconds(MANY_SECONDS)
    )
