"""`audit mirror-transactions`: transactions that a failover cut."""

from typing import Annotated

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.commands.audit.mirror import Mirror
from eoctl.cli.commands.restart_target import mirrors_named
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.render.columns.audit import MIRROR_TRANSACTIONS
from recovery.errors import UsageError
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
    """Transactions that the source committed, and that its mirror has only in part."""
    from eoctl.operations.audit.mirror_transactions import (
        MirrorTransactionsRequest,
        audit_mirror_transactions,
    )

    other = where.context()
    if other is None:
        raise UsageError("the mirror's cluster is not named", remedy="name it: --mirror-context")
    request = MirrorTransactionsRequest(
        tuple(map(parse_selector, topics)),
        other,
        round(duration(skew, where="--clock-skew") * 1000),
        mirrors_named(names),
    )
    return reads.answered(
        connection,
        output,
        MIRROR_TRANSACTIONS,
        lambda cluster, reading: audit_mirror_transactions(cluster, request, reading),
    )
