"""`state rebuild`, with --into into another place too, and `jobs export`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from eoctl.cli.commands.offsets import MaxRate, NoCrc
from eoctl.cli.commands.state.deliver import INTO, Delivering, planned
from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.emit import emit
from eoctl.cli.options import ADDRESSES, FORMATS, Connection, Format, Ranked, argument, option
from eoctl.cli.progress import Progress
from eoctl.cli.spark_options import Conf, JobProgress, SparkOptions
from eoctl.engine.rebuild_request import WAIT_SECONDS, RebuildRequest
from eoctl.engine.rebuild_task import Making
from eoctl.operations.state import rebuild_answer
from eoctl.operations.state.delivery import STREAMS
from eoctl.operations.state.spark_rebuild import on_spark
from eoctl.render.columns.state import REBUILD
from eoctl.render.sanitise import visible
from eoctl.render.words import size
from eoctl.settings.context import Context
from recovery.answers import Answer, worst
from recovery.errors import EoctlError, Exit, UsageError
from recovery.sizes import byte_rate
from recovery.times import duration, format_duration
from recovery.values import replace

Changelogs = Annotated[list[str], argument("CHANGELOG...", "topics, with one cut")]
FormatName = Annotated[
    str,
    option(
        "--format FORMAT",
        "streams-kv, streams-window, streams-session, streams-versioned, samza, coast, "
        "debezium, connect-offsets, plain, or module:Class",
    ),
]
At = Annotated[str, option("--at CUT", "lso, hw, an instant, or a cut file")]
To = Annotated[
    Path, option("--output DIR", "a new folder, or s3://BUCKET/PATH, gs://..."), ADDRESSES
]


@dataclass(frozen=True)
class ShortFormat(Format):
    """The options for how the answer is written, where --output is a folder."""

    output: Annotated[str, option(f"-o {'|'.join(FORMATS)}")] = "table"


@dataclass(frozen=True)
class Rebuilding(Ranked):
    """The options that say how a state is made, besides those that must be given."""

    panel: ClassVar[str] = "How the state is made"
    help_rank: ClassVar[int] = 1

    retention: Annotated[
        str | None, option("--retention D", "of the store [from the topic's settings]")
    ] = None
    wait: Annotated[str | None, option("--wait D", "for what is open below --at hw [60s]")] = None
    range_offsets: Annotated[
        int | None, option("--range-offsets", "the most of a range; without it by size", min=1)
    ] = None
    format_option: Annotated[list[str] | None, option("--format-option K=V", "for the format")] = (
        None
    )
    since: Annotated[
        Path | None, option("--since DIR", "an earlier state: read only what came since"), ADDRESSES
    ] = None
    clean: Annotated[
        bool, option("--clean", "throw away what an earlier run left unfinished there")
    ] = False
    max_rate: MaxRate = None
    no_crc: NoCrc = False

    def request(
        self,
        changelogs: list[str],
        form: str,
        at: str,
        to: Path,
        *,
        engine: str = "spark",
        processes: int | None = None,
    ) -> RebuildRequest:
        """Return what is asked for. Raises UsageError."""
        rate = self.max_rate
        return RebuildRequest(
            changelogs=rebuild_answer.topics_of(changelogs),
            at=at,
            how=Making(
                format=form,
                options=_options(self.format_option or ()),
                output=str(to),
                check_crc=not self.no_crc,
                max_rate=None if rate is None else byte_rate(rate, where="--max-rate"),
                range_offsets=self.range_offsets,
            ),
            engine=engine,
            retention_ms=None
            if self.retention is None
            else round(duration(self.retention, where="--retention") * 1000),
            processes=processes,
            wait_seconds=WAIT_SECONDS if self.wait is None else duration(self.wait, where="--wait"),
            clean=self.clean,
            since=None if self.since is None else str(self.since),
        )


def rebuild(
    connection: Connection,
    output: ShortFormat,
    on: SparkOptions,
    execute: Execute,
    how: Delivering,
    making: Rebuilding,
    changelogs: Changelogs,
    format_: FormatName,
    at: At,
    to: To,
    processes: Annotated[
        int | None, option("--processes", "of the local engine [one per core]", min=1)
    ] = None,
    into: Annotated[
        str | None, option(f"--into {INTO}", "deliver it there, as `state deliver` does")
    ] = None,
) -> int:
    """Rebuild a state from its changelogs, up to one cut, with the proof of what it is."""
    engine, spark = on.engine()
    if into is None and (how.given or execute != Execute()):
        raise UsageError("a rebuild changes nothing: name where the state goes", where="--into")
    if into is not None:
        if len(changelogs) > 1 and not into.startswith(STREAMS):
            raise UsageError(
                "takes one changelog",
                where="--into",
                remedy="rebuild them without it, then `eoctl state deliver DIR --changelog TOPIC`",
            )
        how.request(str(to), into)
    request = making.request(changelogs, format_, at, to, engine=engine, processes=processes)
    context, seconds = connection.one(), connection.seconds(None)
    with _progress() as progress, JobProgress() as show:
        there = None if spark is None else on_spark(spark, context, show, seconds)
        answer = rebuild_answer.rebuild_state(context, request, seconds, progress, there)
    if into is None:
        emit(answer, REBUILD, output)
        return answer.exit_status
    return _Onward(answer, str(to), into, how).deliver(context, execute, output, seconds)


@dataclass(frozen=True)
class _Onward:
    """A state that was published and goes on to another place."""

    answer: Answer
    folder: str
    into: str
    how: Delivering

    def deliver(
        self, context: Context, execute: Execute, output: Format, seconds: float | None
    ) -> int:
        """Both answers in one envelope, or one after the other for eyes; the worse exit status."""
        answer, delivery, status = self.answer, None, int(Exit.OK)
        for_eyes = output.output in ("table", "wide")
        if for_eyes:
            emit(answer, REBUILD, output)
        try:
            plan = planned(self.how.request(self.folder, self.into), context, seconds)
            if plan is None:
                print("all of it is there already", file=sys.stderr)
            else:
                words = ("state", "deliver", self.folder, "--into", self.into)
                again = (*plan.argv, *words, *self.how.words())
                change = CommandChange("state-deliver", plan, context, words=again)
                if for_eyes:
                    status = change.run(execute, output, seconds)
                else:
                    outcome = change.execute(execute, seconds)
                    delivery = change.row(outcome).json_values()
                    status = Exit.OK if outcome is None else outcome.exit_status
        except EoctlError as error:
            print(f"eoctl: {visible(error.sentence, spaces=False)}", file=sys.stderr)
            status = error.exit_status
        if not for_eyes:
            emit(replace(answer, extra={**answer.extra, "delivery": delivery}), REBUILD, output)
        return worst([answer.exit_status, Exit(status)])


def _options(given: "list[str] | tuple[()]") -> dict[str, str]:
    options = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is not key=value", where="--format-option")
        options[key] = value
    return options


@contextmanager
def _progress() -> Iterator[rebuild_answer.RebuildProgress | None]:
    """Show bytes, offsets and the time left on one changing line of a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    began, due = time.monotonic(), 0.0
    with Progress() as line:

        def told(bytes_read: int, done: int, total: int) -> None:
            nonlocal due
            now = time.monotonic()
            if now >= due and done:
                due = now + 0.25
                left = (now - began) * (total - done) / done
                about = f", about {format_duration(left)} left" if now - began > 3 else ""
                line(f"reading: {size(bytes_read)}{about}, offsets", done, total)

        yield told


def export(
    connection: Connection,
    output: ShortFormat,
    making: Rebuilding,
    folder: Annotated[Path, argument("DIR", "a new folder, for the job")],
    changelogs: Changelogs,
    format_: FormatName,
    at: At,
    to: To,
    master: Annotated[
        str | None, option("--master URL", "spark://HOST:7077, yarn, ... [of spark-defaults.conf]")
    ] = None,
    conf: Conf = [],  # noqa: B006 - as Typer declares a list
) -> int:
    """Export a rebuild for a scheduler: a folder with code, spec and the spark-submit line."""
    from eoctl.operations.jobs.spark_launch import read_options
    from eoctl.operations.state.export import export_rebuild
    from eoctl.render.columns.jobs import EXPORT

    request = making.request(changelogs, format_, at, to)
    spark = read_options(master, None, conf, None)
    answer = export_rebuild(connection.one(), request, spark, folder, connection.seconds())
    emit(answer, EXPORT, output)
    return answer.exit_status
