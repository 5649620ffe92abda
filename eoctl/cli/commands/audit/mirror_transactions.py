"""`audit mirror-transactions`: transactions that a failover cut."""

from typing import Annotated

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.commands.audit.mirror import Mirror
from eoctl.cli.commands.restart_target import mirrors_named
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.render.columns.audit import MIRROR_TRANSACTIONS
from recovery.answers import Answer
from recovery.errors import UnreachableError, UsageError
from recovery.selectors import parse_selector
from recovery.times import duration


def mirror_transactions(
    connection: Connection,
    output: Format,
    where: Mirror,
    reads: Reads,
    topics: Annotated[list[str], argument("TOPIC...", "of the source: all that transactions span")],
    names: Annotated[
        list[str] | None, option("--map TOPIC=MIRROR", "[the same name, or ALIAS.TOPIC]")
    ] = None,
    skew: Annotated[str, option("--clock-skew D", "of the brokers' clocks")] = "5s",
) -> int:
    """Transactions that the source committed, and that its mirror has only in part.

    And those that are open in a mirror of byte copies, each with the command that ends it as the
    source decided. If the source is gone, `--from` names a bundle of it that was made with
    --history: it has the decisions, which tell of byte copies alone.
    """
    from eoctl.operations.audit.mirror_copies import MirrorTransactionsRequest, audit_copies
    from eoctl.operations.audit.mirror_transactions import audit_mirror_transactions

    other = where.context()
    if other is None:
        raise UsageError("the mirror's cluster is not named", remedy="name it: --mirror-context")
    bundle = connection.bundle()
    source = connection.one() if bundle is None else None
    request = MirrorTransactionsRequest(
        tuple(map(parse_selector, topics)),
        other,
        source,
        round(duration(skew, where="--clock-skew") * 1000),
        mirrors_named(names),
    )

    opened: list[Cluster] = []

    async def look(cluster: Cluster, reading: AuditOptions) -> Answer:
        opened.append(cluster)
        if bundle is not None:
            return await audit_copies(cluster, bundle, request, reading)
        return await audit_mirror_transactions(cluster, request, reading)

    try:
        return reads.answered(connection, output, MIRROR_TRANSACTIONS, look, source or other)
    except UnreachableError as error:
        if bundle is not None or opened:  # then it is the mirror that does not answer
            raise
        without = (
            "which transactions are cut is unknown without the source's decisions: if it is gone, "
            "name a bundle of it, --from BUNDLE"
        )
        remedy = f"{error.remedy}; {without}" if error.remedy else without
        raise UnreachableError(error.what, where=error.where, remedy=remedy) from None
