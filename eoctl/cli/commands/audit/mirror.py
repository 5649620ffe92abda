"""`audit mirror`: a topic against its mirror, here or in another cluster."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from eoctl.cli.commands.audit.logs import Reads
from eoctl.cli.emit import beside, emit
from eoctl.cli.options import Connection, Format, Ranked, argument, option
from eoctl.cli.progress import note
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.ranges import AuditOptions
from eoctl.render.columns.audit import MIRROR, MIRROR_KEEP
from recovery.answers import Answer
from recovery.errors import IncompleteError, UnreachableError, UsageError
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import parse_bound
from recovery.times import rfc3339

if TYPE_CHECKING:
    from eoctl.operations.audit.mirror import MirrorRequest
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
    from eoctl.operations.audit.mirror import MirrorRequest, audit_mirror

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
    request = MirrorRequest(
        source=selector,
        mirror=copy or (selector.literal if alias is None else f"{alias}.{selector.literal}"),
        cluster=other,
        start=bound,
        ignored=frozenset(ignore or ()),
        offset_syncs=syncs,
        checkpoints=checkpoints,
    )
    own = connection.one()
    if keep is not None:
        return _kept(connection, output, reads, request, keep, follow=follow)
    if follow:
        raise UsageError("goes with --keep alone", where="--follow")
    return reads.answered(
        connection,
        output,
        MIRROR,
        lambda cluster, reading: audit_mirror(cluster, own, request, reading),
    )


def _kept(
    connection: Connection,
    output: Format,
    reads: Reads,
    request: "MirrorRequest",
    path: Path,
    *,
    follow: bool,
) -> int:
    """Bring a map up to date, once or until it is stopped."""
    from eoctl.operations.audit.mirror_keep import keep_mirror

    if request.start.kind != "earliest" or request.offset_syncs or request.checkpoints:
        raise UsageError(
            "does not go with --start, --offset-syncs and --checkpoints", where="--keep"
        )
    own, file = connection.one(), path.resolve()

    async def keep(cluster: Cluster, reading: AuditOptions) -> Answer:
        return await keep_mirror(cluster, own, request, file, reading)

    if not follow:
        return reads.answered(connection, output, MIRROR_KEEP, keep)
    while True:
        try:
            _tell(reads.asked(connection, keep), output)
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
