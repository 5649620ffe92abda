"""`txn records`: the records of one open transaction, and the first that wait for it."""

from typing import Annotated

from eoctl.cli.commands.remedy import OpenHere, check_cluster
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, option
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect import records
from eoctl.operations.inspect.beside import Beside
from eoctl.operations.inspect.record_forms import FORMATS
from eoctl.operations.inspect.record_forms import Format as RecordFormat
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.records import notes_of, records_table
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from recovery.values import replace


def txn_records(
    connection: Connection,
    output: Format,
    open_here: OpenHere,
    limit: Annotated[
        int, option("--limit N", "so many of the transaction's, and of those that wait", min=1)
    ] = records.MOST,
    format_: Annotated[str, option(f"--format {'|'.join(FORMATS)}", "of keys and values")] = "auto",
    keys_only: Annotated[bool, option("--keys-only", "no values")] = False,
    headers: Annotated[bool, option("--headers", "their headers too")] = False,
    beside: Annotated[
        str | None, option("--beside OUTPUT[:P]", "does this topic have their keys already?")
    ] = None,
    beside_from: Annotated[
        str | None, option("--beside-from OFFSET|TIME", "where to begin [10m before the first one]")
    ] = None,
) -> int:
    """Show the records of one open transaction, and the first that wait for it to end.

    Nothing of them is kept. `held` are its own, `waiting` those that readers get once it ends.
    """
    context = connection.one()
    records.permit(context)
    partition = TopicPartition.parse(open_here.name())
    producer_id, start_offset = open_here.transaction()
    request = records.Request(
        *partition,
        producer_id,
        start_offset,
        most=limit,
        keys_only=keys_only,
        headers=headers,
        beside=_beside(beside, beside_from),
    )
    forms = records.forms_of(context, _format(format_))

    async def asked(cluster: Cluster) -> Answer:
        check_cluster(cluster, open_here.cluster_id)
        return await records.of_transaction(cluster, context, request, forms)

    answer = with_cluster(context, connection.seconds(), asked)
    emit(replace(answer, notes=notes_of(answer)), records_table(answer), output)
    return answer.exit_status


def _format(text: str) -> RecordFormat:
    for known in FORMATS:
        if text == known:
            return known
    raise UsageError(f"no format {text!r}", where="--format", remedy=f"one of {', '.join(FORMATS)}")


def _beside(output: str | None, begin: str | None) -> Beside | None:
    if output is None:
        if begin is not None:
            raise UsageError("needs --beside OUTPUT", where="--beside-from")
        return None
    bound = None if begin is None else parse_bound(begin, now_ms(), where="--beside-from")
    return Beside(parse_selector(output, where="--beside"), bound)
