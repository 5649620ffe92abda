"""`merge verify`, `merge plan`, `merge replay`."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.emit import emit
from eoctl.cli.options import ADDRESSES, Connection, Format, Ranked, argument, option
from eoctl.cli.progress import Progress, note
from eoctl.cli.spark_options import JobProgress, SparkOptions
from eoctl.operations.merge import planning
from eoctl.operations.merge.planning import Merge
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.merge import PLAN, VERIFY
from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.sizes import byte_rate

if TYPE_CHECKING:
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.operations.change.acting import Opened
    from eoctl.operations.jobs.spark_launch import Spark
    from eoctl.settings.context import Context
    from recovery.change.plan import Plan


AppFile = Annotated[Path | None, argument("[APP.toml]", "an application file with [app.merge]")]
MaxRate = Annotated[str | None, option("--max-rate BYTES/S", "read inputs no faster: 20MiB")]


@dataclass(frozen=True)
class MergeLogOptions(Ranked):
    """The options that name a merge log: an application file's, or one described by options."""

    panel: ClassVar[str] = "Merge log"
    merge_log: Annotated[str | None, option("--merge-log TOPIC")] = None
    format: Annotated[str | None, option("--format coast|json")] = None
    input: Annotated[list[str] | None, option("--input TOPIC", "each input")] = None
    output_topic: Annotated[str | None, option("--output-topic, --to TOPIC")] = None
    isolation: Annotated[
        str | None,
        option("--isolation LEVEL", "what the inputs were read with [read_committed]"),
    ] = None
    partition: Annotated[list[int] | None, option("--partition P", "of the merge log [all]")] = None
    from_merge_offset: Annotated[
        list[str] | None,
        option("--from-merge-offset [P:]OFFSET", "a commit: the next entry"),
    ] = None
    output_offset: Annotated[
        list[str] | None,
        option("--output-offset [P:]OFFSET", "and the output's next offset with it"),
    ] = None

    def merge(self, file: Path | None) -> Merge:
        """Return the merge that the options name. Raises UsageError."""
        partitions = tuple(sorted(set(self.partition or ())))
        if any(p < 0 for p in partitions):
            raise UsageError("a partition is 0 or above", where="--partition")
        bases = self._bases(partitions)
        if file is not None:
            from eoctl.operations.restart.restart_request import read_app_file

            if self.merge_log or self.format or self.input or self.output_topic or self.isolation:
                raise UsageError(
                    "the application file names log, inputs and output", where=str(file)
                )
            of_file = planning.of_app(read_app_file(file).app, str(file))
            return planning.chosen(of_file, partitions, bases)
        for name, given in (
            ("--merge-log", self.merge_log),
            ("--format", self.format),
            ("--input", self.input),
        ):
            if not given:
                raise UsageError("is missing", where=name, remedy="or name an application file")
        if self.isolation not in (None, "read_committed", "read_uncommitted"):
            raise UsageError(
                f"{quoted(self.isolation or '')} is not an isolation level",
                where="--isolation",
                remedy="write read_committed or read_uncommitted",
            )
        return Merge(
            topic=self.merge_log or "",
            format=self.format or "",
            inputs=tuple(self.input or ()),
            output=self.output_topic,
            isolation=self.isolation or "read_committed",
            partitions=partitions,
            bases=bases,
        )

    def _bases(self, partitions: tuple[int, ...]) -> dict[int, tuple[int, int]]:
        merges = _offsets(self.from_merge_offset, "--from-merge-offset", partitions)
        outputs = _offsets(self.output_offset, "--output-offset", partitions)
        if merges.keys() != outputs.keys():
            raise UsageError(
                "a commit is a pair: give both, for the same partitions",
                where="--from-merge-offset, --output-offset",
            )
        return {p: (merges[p], outputs[p]) for p in merges}


def _offsets(given: list[str] | None, where: str, partitions: tuple[int, ...]) -> dict[int, int]:
    by_partition: dict[int, int] = {}
    for text in given or ():
        number, colon, offset = text.rpartition(":")
        if not colon:
            if len(partitions) != 1:
                raise UsageError(
                    f"{quoted(text)} names no partition",
                    where=where,
                    remedy="write P:OFFSET, or name one --partition",
                )
            number = str(partitions[0])
        if not (number.isascii() and number.isdigit() and offset.isascii() and offset.isdigit()):
            raise UsageError(f"{quoted(text)} is not P:OFFSET", where=where)
        if int(number) in by_partition:
            raise UsageError(f"partition {number} is named twice", where=where)
        by_partition[int(number)] = int(offset)
    return by_partition


def verify(
    connection: Connection,
    output: Format,
    asked: MergeLogOptions,
    app: AppFile = None,
    max_rate: MaxRate = None,
) -> int:
    """Compare every entry of a merge log with its input, and the tip with the output."""
    from eoctl.operations.merge.merge_verify import verify as verified

    merge, rate = asked.merge(app), _rate(max_rate)
    with _progress("verifying: offsets of the log") as on_progress:
        answer = with_cluster(
            connection.one(),
            connection.seconds(None),
            lambda c: verified(c, merge, max_rate=rate, progress=on_progress),
        )
    emit(answer, VERIFY, output)
    return answer.exit_status


def plan(
    connection: Connection, output: Format, asked: MergeLogOptions, app: AppFile = None
) -> int:
    """Show what a replay from a commit to the tip reads, and how many outputs it drops."""
    merge = asked.merge(app)
    if merge.output is None:
        raise UsageError("is missing: n is counted there", where="--output-topic")
    answer = with_cluster(
        connection.one(), connection.seconds(None), lambda c: planning.plan(c, merge)
    )
    emit(answer, PLAN, output)
    return answer.exit_status


def replay(
    connection: Connection,
    output: Format,
    asked: MergeLogOptions,
    execute: Execute,
    on: SparkOptions,
    app: AppFile = None,
    follow: Annotated[
        bool, option("--follow", "then extend the log from the inputs as they come")
    ] = False,
    max_rate: MaxRate = None,
    staging: Annotated[
        Path | None,
        option("--staging DIR", "a folder that Spark's executors share, or s3://..."),
        ADDRESSES,
    ] = None,
) -> int:
    """Emit the merged stream again in the log's order: shows the plan, --execute acts."""
    from eoctl.operations.merge.killed_replay import own_ended
    from eoctl.operations.merge.replay_change import in_the_way, plan_replay
    from eoctl.operations.merge.replay_on_spark import check_engine, choose_engine

    merge, rate, context = asked.merge(app), _rate(max_rate), connection.one()
    engine, spark = on.engine()
    check_engine(engine, follow=follow)

    async def planned(cluster: "Cluster") -> "Plan":
        if execute.execute:
            await own_ended(cluster, merge, note)
        return await plan_replay(
            cluster, context, merge, follow=follow, max_rate=rate, thoroughly=not execute.execute
        )

    plan = with_cluster(context, connection.seconds(None), planned)
    chosen = choose_engine(engine, plan, spark is not None, follow=follow)
    note(f" engine   {chosen[0]}: {chosen[1]}")
    with _running(chosen[0], spark, context, staging) as operation:
        change = CommandChange(
            "merge-replay", plan, context, opened=operation, replaces=in_the_way(plan)
        )
        outcome = change.execute(execute, connection.seconds(None))
    return change.show(outcome, output)


@contextmanager
def _running(
    engine: str, spark: "Spark | None", context: "Context", staging: Path | None
) -> "Iterator[Opened]":
    """Return what carries the replay out, watched while it runs."""
    from eoctl.operations.merge.replay_change import Running, opened
    from eoctl.operations.merge.replay_on_spark import on_spark

    if engine == "spark":
        assert spark is not None
        with JobProgress() as show:
            made = on_spark(spark, context, show, staging)
            yield partial(opened, running=Running(), engine=made)
        return
    with _progress("replaying: offsets of the log") as on_progress:
        yield partial(opened, running=Running() if on_progress is None else Running(on_progress))


def _rate(text: str | None) -> float | None:
    return None if text is None else byte_rate(text, where="--max-rate")


@contextmanager
def _progress(what: str) -> Iterator["_Line | None"]:
    """Show all partitions on one changing line of a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with Progress() as line:
        yield _Line(what, line)


class _Line:
    def __init__(self, what: str, line: Progress) -> None:
        self._what, self._line = what, line
        self._each: dict[int, tuple[int, int]] = {}
        self._one_at_a_time = threading.Lock()
        self._due = 0.0

    def __call__(self, partition: int, done: int, total: int) -> None:
        with self._one_at_a_time:
            self._each[partition] = done, total
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + 0.25
                sums = [sum(column) for column in zip(*self._each.values(), strict=True)]
                self._line(self._what, *sums)
