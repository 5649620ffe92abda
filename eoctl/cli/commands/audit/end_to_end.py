"""`audit end-to-end`: inputs without an output, or with several."""

from typing import Annotated

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.commands.dedup import By, RecordSource
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.host.clock import now_ms
from eoctl.render.columns.audit import END_TO_END
from recovery.errors import UsageError
from recovery.selectors import Selector, parse_selector
from recovery.shared.offset_bounds import parse_bound


def end_to_end(
    connection: Connection,
    output: Format,
    reads: Reads,
    source: RecordSource,
    given: Annotated[str, argument("INPUT[:P]", "the topic that an application reads")],
    made: Annotated[str, argument("OUTPUT", "the topic that it writes")],
    by: By,
    group: Annotated[
        str | None, option("--group G", "its commits: what it has read must be there")
    ] = None,
    start: Annotated[
        str, option("--start FROM", "earliest, or an instant in both topics")
    ] = "earliest",
    end: Annotated[
        str | None, option("--end TO", "inputs from there on may still wait for an output")
    ] = None,
) -> int:
    """Inputs without an output, with several, or aborted ones that have an output."""
    from eoctl.operations.audit.end_to_end import EndToEndRequest, audit_end_to_end
    from recovery.shared.record_ids import parse_record_id

    if source.index_header:
        raise UsageError(
            "several outputs of one input cannot be followed",
            where="--source-index",
            remedy="leave it out: an input with several outputs is then a finding",
        )
    if group is not None and end is not None:
        raise UsageError("say up to where once", where="--end", remedy="--group or --end, not both")
    now = now_ms()
    begin = parse_bound(start, now, where="--start")
    if begin.kind not in ("earliest", "time"):
        raise UsageError(
            "an offset is another record in the output",
            where="--start",
            remedy="write earliest, or an instant like '2h ago'",
        )
    request = EndToEndRequest(
        _one(given),
        _one(made, whole=True),
        parse_record_id(by, source.headers(), where="--by"),
        begin,
        None if end is None else parse_bound(end, now, where="--end"),
        group,
    )
    return reads.answered(
        connection,
        output,
        END_TO_END,
        lambda cluster, reading: audit_end_to_end(cluster, request, reading),
    )


def _one(text: str, *, whole: bool = False) -> Selector:
    """Return one topic. whole: all of its partitions. Raises UsageError."""
    selector = parse_selector(text)
    if selector.literal is None:
        raise UsageError("name one topic", where=text)
    if whole and selector.partitions:
        raise UsageError(
            "an output may be in any partition", where=text, remedy=f"write {selector.literal}"
        )
    return selector
