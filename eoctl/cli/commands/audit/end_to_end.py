"""`audit end-to-end`: inputs without an output, or with several."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.commands.dedup import RecordSource
from eoctl.cli.options import Connection, Format, argument, option
from eoctl.cli.spark_options import SparkOptions
from eoctl.host.clock import now_ms
from eoctl.render.columns.audit import END_TO_END
from recovery.errors import UsageError
from recovery.selectors import Selector, parse_selector
from recovery.shared.offset_bounds import parse_bound

if TYPE_CHECKING:
    from eoctl.operations.audit.end_to_end_map import MapAudit

MAP = "map:"
FollowedBy = Annotated[
    str,
    option(
        "--by source|key|value|header:NAME|json:PATH|map:FILE",
        "what an output has of its input; map: OUTPUT is a mirror of INPUT; FILE is its kept map",
    ),
]


def end_to_end(
    connection: Connection,
    output: Format,
    on: SparkOptions,
    reads: Reads,
    source: RecordSource,
    given: Annotated[str, argument("INPUT[:P]", "the topic that an application reads")],
    made: Annotated[str, argument("OUTPUT", "the topic that it writes")],
    by: FollowedBy,
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
    if by.startswith(MAP):
        if group is not None or start != "earliest" or source != RecordSource():
            raise UsageError("goes with --end lso alone", where=f"--by {by}")
        if on.engine()[0] == "spark":
            raise UsageError("one log is read, in this process", where=f"--by {by}")
        followed = _by_map(_one(given), _one(made, whole=True), by, end)
        return reads.audited(connection, output, on, END_TO_END, followed)
    from eoctl.operations.audit.end_to_end import EndToEndAudit
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
    audit = EndToEndAudit(
        _one(given),
        _one(made, whole=True),
        parse_record_id(by, source.headers(), where="--by"),
        begin,
        None if end is None else parse_bound(end, now, where="--end"),
        group,
    )
    return reads.audited(connection, output, on, END_TO_END, audit)


def _by_map(source: Selector, output: Selector, by: str, end: str | None) -> "MapAudit":
    from eoctl.operations.audit.end_to_end_map import MapAudit

    if end not in (None, "lso"):
        raise UsageError("with a map it is lso: all that the map knows", where="--end")
    assert source.literal is not None
    assert output.literal is not None
    if source.partitions:
        raise UsageError(
            "with a map all partitions are compared: a copy may be in any of the mirror's",
            where="INPUT",
            remedy=f"write {source.literal}",
        )
    path = Path(by.removeprefix(MAP)).resolve()
    return MapAudit(source.literal, output.literal, path, everything=end is not None)


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
