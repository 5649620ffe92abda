"""`audit mirror`: a topic against its mirror, here or in another cluster."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.emit import beside, emit
from eoctl.cli.options import Connection, Format, Ranked, argument, option
from eoctl.cli.progress import note
from eoctl.cli.spark_options import SparkOptions
from eoctl.host.clock import now_ms
from eoctl.render.columns.audit import MIRROR, MIRROR_KEEP
from recovery.answers import Answer
from recovery.errors import IncompleteError, UnreachableError, UsageError
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from recovery.times import rfc3339

if TYPE_CHECKING:
    from eoctl.operations.audit.mirror_keep import MirrorKeep
    from eoctl.settings.context import Context

_IGNORED = ("timestamp", "headers")
FOLLOW_SECONDS = 10.0
"""From the end of a round to the next one."""


@dataclass(frozen=True)
class Mirror(Ranked):
    """The options that say how to reach the mirror's cluster."""

    panel: ClassVar[str] = "The mirror's cluster [the source's own]"
    mirror_context: Annotated[str | None, option("--mirror-context NAME")] = None
    mirror_server: Annotated[str | None, option("--mirror-bootstrap-server HOSTS")] = None
    mirror_config: Annotated[
        str | None,
        option(
            "--mirror-command-config FILE",
            "client properties, Java's or librdkafka's",
        ),
    ] = None

    def context(self) -> "Context | None":
        """None where nothing is said. Raises UsageError."""
        from eoctl.settings.context import Connect, resolve

        if not (self.mirror_context or self.mirror_server or self.mirror_config):
            return None
        return resolve(Connect(self.mirror_context, self.mirror_server, self.mirror_config))


def mirror(
    connection: Connection,
    output: Format,
    where: Mirror,
    on: SparkOptions,
    reads: Reads,
    source: Annotated[str, argument("TOPIC[:P]", "of the source")],
    copy: Annotated[
        str | None, argument("MIRROR", "its mirror [ALIAS.TOPIC, or the same name]")
    ] = None,
    alias: Annotated[
        str | None, option("--source-alias ALIAS", "MirrorMaker's name of the source")
    ] = None,
    start: Annotated[
        str, option("--start FROM", "earliest, or an instant in both logs")
    ] = "earliest",
    ignore: Annotated[
        list[str] | None, option("--ignore timestamp|headers", "do not compare these")
    ] = None,
    syncs: Annotated[
        str | None, option("--offset-syncs TOPIC|none", "[mm2-offset-syncs.*.internal]")
    ] = None,
    checkpoints: Annotated[
        str | None, option("--checkpoints TOPIC|none", "[*.checkpoints.internal]")
    ] = None,
    keep: Annotated[
        Path | None, option("--keep MAP", "write which record is which, for a plan without A")
    ] = None,
    follow: Annotated[
        bool, option("--follow", "keep the map up to date until it is stopped, every 10 s")
    ] = False,
) -> int:
    """Records that a mirror lacks, has twice, changed or out of order; MirrorMaker's offsets."""
    from eoctl.operations.audit.mirror import MirrorAudit, MirrorRequest
    from eoctl.operations.audit.mirror_keep import MirrorKeep

    selector = parse_selector(source)
    if selector.literal is None:
        raise UsageError(
            "name one topic", where=source, remedy="a mirror is compared topic by topic"
        )
    bound = parse_bound(start, now_ms(), where="--start")
    if bound.kind not in ("earliest", "time"):
        raise UsageError(
            "an offset is another record in the mirror",
            where="--start",
            remedy="write earliest, or an instant like '2h ago'",
        )
    for name in ignore or ():
        if name not in _IGNORED:
            raise UsageError(f"must be {' or '.join(_IGNORED)}", where="--ignore")
    other = where.context()
    if copy is None and alias is None and other is None:
        raise UsageError(
            "the mirror is not named",
            where=source,
            remedy="name its topic, --source-alias, or its cluster with --mirror-context",
        )
    question = MirrorRequest(
        own=connection.one(),
        source=selector,
        mirror=copy or (selector.literal if alias is None else f"{alias}.{selector.literal}"),
        cluster=other,
        start=bound,
        ignored=frozenset(ignore or ()),
        offset_syncs=syncs,
        checkpoints=checkpoints,
    )
    if follow and keep is None:
        raise UsageError("goes with --keep alone", where="--follow")
    if keep is None:
        return reads.audited(connection, output, on, MIRROR, MirrorAudit(question))
    if start != "earliest" or syncs or checkpoints:
        raise UsageError(
            "does not go with --start, --offset-syncs and --checkpoints", where="--keep"
        )
    kept = MirrorKeep(question, keep.resolve())
    if not follow:
        return reads.audited(connection, output, on, MIRROR_KEEP, kept)
    if on.engine()[0] == "spark":
        raise UsageError(
            "a round reads what is new, in this process",
            where="--follow",
            remedy="make the map on Spark without it, then follow without Spark",
        )
    return _follow(connection, output, SparkOptions(asked_engine="local"), reads, kept)


def _follow(
    connection: Connection, output: Format, on: SparkOptions, reads: Reads, kept: "MirrorKeep"
) -> int:
    """Bring a map up to date until it is stopped."""
    while True:
        try:
            _tell(reads.judged(connection, on, kept), output)
        except (UnreachableError, IncompleteError) as error:  # the map is as it was
            note(f"eoctl: {error.sentence}")
        time.sleep(FOLLOW_SECONDS)


def _tell(answer: Answer, output: Format) -> None:
    """Write a round's answer: for people the last line alone."""
    if output.output not in ("table", "wide"):
        emit(answer, MIRROR_KEEP, output, prefix={})
        return
    beside(answer)
    note(f"{rfc3339(answer.collected_at)} {MIRROR_KEEP.summary(answer)}")
