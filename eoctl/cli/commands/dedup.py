"""`dedup INPUT OUTPUT`: the clean copy of a topic that holds repeats, written exactly once."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from eoctl.cli.commands.offsets import MaxRate
from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.options import ADDRESSES, Connection, Format, Ranked, argument, option
from eoctl.cli.progress import Progress, note
from eoctl.cli.spark_options import JobProgress, SparkOptions
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.change import acting
from eoctl.operations.session.session import with_cluster
from recovery.change.plan import Plan
from recovery.errors import Exit, UsageError
from recovery.sizes import byte_rate
from recovery.times import duration

if TYPE_CHECKING:
    from eoctl.operations.dedup.copying import DedupRun
    from eoctl.settings.context import Context
    from recovery.dedup.dedup_request import DedupRequest
    from recovery.shared.record_ids import SourceHeaders

By = Annotated[
    str, option("--by source|key|value|header:NAME|json:PATH", "what makes two records the same")
]


@dataclass(frozen=True)
class RecordSource(Ranked):
    """For `--by source`: which headers tell what a record was made of."""

    panel: ClassVar[str] = "Headers that name a record's source"
    partition_header: Annotated[str, option("--source-partition HEADER")] = "source.partition"
    offset_header: Annotated[str, option("--source-offset HEADER")] = "source.offset"
    index_header: Annotated[
        str | None,
        option("--source-index HEADER", "which of the records made of one source record"),
    ] = None
    topic_header: Annotated[
        str | None,
        option("--source-topic HEADER", "where there are several source topics"),
    ] = None
    numbers: Annotated[
        str,
        option(
            "--numbers text|int",
            "decimal digits, or big-endian integers of 4 or 8 bytes",
        ),
    ] = "text"

    def headers(self) -> "SourceHeaders":
        """Return where source records name themselves. Raises UsageError."""
        from recovery.shared.record_ids import SourceHeaders

        if self.numbers not in ("text", "int"):
            raise UsageError("must be text or int", where="--numbers")
        return SourceHeaders(
            self.partition_header,
            self.offset_header,
            self.index_header,
            self.topic_header,
            "int" if self.numbers == "int" else "text",
        )


def dedup(
    connection: Connection,
    output: Format,
    execute: Execute,
    source: RecordSource,
    on: SparkOptions,
    topic: Annotated[str, argument("INPUT", "the topic with repeats")],
    clean: Annotated[str, argument("OUTPUT", "empty, with as many partitions")],
    by: By = "source",
    horizon: Annotated[
        str | None, option("--horizon D|N", "compare ids so far back: 7d, or 1000000 offsets")
    ] = None,
    job: Annotated[str | None, option("--job NAME", "whose position [INPUT-OUTPUT]")] = None,
    create: Annotated[
        bool, option("--create", "make CLEAN first, as TOPIC is, if it is missing")
    ] = False,
    follow: Annotated[
        bool, option("--follow", "go on with what came since the last run, for cron")
    ] = False,
    max_rate: MaxRate = None,
    staging: Annotated[
        Path | None,
        option(
            "--staging DIR",
            "keep what was seen there: a folder that Spark's executors share, or s3://... "
            "[this host's]",
        ),
        ADDRESSES,
    ] = None,
) -> int:
    """Copy a topic without its repeats, exactly once. Shows the plan; --execute copies.

    Reads everything once to plan, and once more to copy. If it is killed, run the same command
    again: it goes on.
    """
    from eoctl.operations.dedup import copying, dedup_on_spark
    from recovery.dedup.dedup_request import DedupRequest
    from recovery.shared.record_ids import parse_record_id

    record_id = parse_record_id(by, source.headers(), where="--by")
    if horizon is not None and record_id.kind == "source":
        raise UsageError(
            "has no meaning with --by source, which needs one number per source", where="--horizon"
        )
    plain = horizon is not None and horizon.isascii() and horizon.isdigit()
    count = int(horizon or 0) if plain else None
    seconds = None
    if horizon is not None and count is None:
        seconds = duration(horizon, where="--horizon")
    if count == 0 or seconds == 0:
        raise UsageError("must be above zero", where="--horizon", remedy="write 7d or 1000000")
    engine_name, spark = on.engine()
    request = DedupRequest(
        source=topic,
        output=clean,
        by=record_id,
        job=job or f"{topic}-{clean}",
        horizon_ms=None if seconds is None else round(seconds * 1000),
        horizon_offsets=count,
        follow=follow,
        max_rate=None if max_rate is None else byte_rate(max_rate, where="--max-rate"),
    )
    context = connection.one()
    limit = connection.seconds(None)
    if create and (status := _made(context, request, execute, output, limit)) is not None:
        return status

    async def begin(cluster: Cluster) -> "Plan | DedupRun | None":
        begun = acting.unfinished_entry(
            copying.KIND, cluster.cluster_id or "", copying.scope(request)
        )
        if begun is not None and execute.execute and copying.is_for(begun.plan, request):
            print(f"eoctl: going on with journal entry {begun.id}", file=sys.stderr)
            return copying.at_rate(begun.plan, request)
        return await copying.find(cluster, request)

    run_or_plan = with_cluster(context, limit, begin)
    if run_or_plan is None:
        print("nothing new to copy", file=sys.stderr)
        return Exit.OK
    parts = (
        dedup_on_spark.parts_of(run_or_plan) if isinstance(run_or_plan, Plan) else run_or_plan.parts
    )
    engine, why = dedup_on_spark.choose_engine(engine_name, parts, spark is not None)
    note(f" engine   {engine}: {why}")
    if engine == "spark":
        assert spark is not None
        line = JobProgress()
        there = dedup_on_spark.OnSpark(spark, context, line, staging)
        with line:
            plan = run_or_plan if isinstance(run_or_plan, Plan) else there.plan(run_or_plan, limit)
        change = CommandChange("dedup", plan, context, opened=there.opened)
        with line:
            outcome = change.execute(execute, limit)
        return change.show(outcome, output)
    here = copying.Here(context, staging)
    with Progress() as progress:
        plan = (
            run_or_plan
            if isinstance(run_or_plan, Plan)
            else here.plan(run_or_plan, limit, progress)
        )
    return CommandChange("dedup", plan, context, opened=here.opened).run(execute, output, limit)


def _made(
    context: "Context",
    request: "DedupRequest",
    execute: Execute,
    output: Format,
    limit: float | None,
) -> int | None:
    """Make the copy's topic, if it is missing. None: it is there, and the copy can be planned."""
    from eoctl.operations.dedup import creating

    plan = with_cluster(context, limit, lambda cluster: creating.plan(cluster, context, request))
    if plan is None:
        return None
    change = CommandChange("dedup", plan, context)
    outcome = change.execute(execute, limit)
    if outcome is None or outcome.exit_status or execute.plan_sha256 is not None:
        return change.show(outcome, output)
    note(f" created  {plan.summary}")
    return None
