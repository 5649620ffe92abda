"""What the audits' jobs share: reading Kafka in tasks, frames of results, and the answer.

The tasks read the partitions. Spark retries what a task cannot read, and what the last try cannot
read is reported in the findings. The job fails only if the cluster cannot be reached at all or our
own code fails.
"""

import asyncio
import json
import math
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eoctl.engine.audit_reading import LASTING, not_read
from eoctl.kafka.ask.same_topic import refuse_other
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read.pump import Reading
from recovery.answers import status_of
from recovery.audit.audit_request import AuditRequest, AuditResult, MirrorPair, TopicOf
from recovery.errors import EoctlError, Exit, IncompleteError, UsageError
from recovery.facts import Missing, TopicPartition
from spark_jobs.session import executors, slots
from spark_jobs.session.progress import JobProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BUCKET_OFFSETS = 5_000_000
ANSWER = "piece int, answer string, content binary"
"""What the last tasks give. piece: of which piece of the ranges it tells, null: of all of them."""

Judge = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
"""A task: of the rows of others, the rows that it gives."""

Give = Callable[[int], "Iterator[pa.RecordBatch]"]
"""A task: by its number, the rows that it gives. Columns `piece` and `told`, where it is not null,
say what `answers` wants to know; they are apart from the other rows."""

CountRecords = Callable[[int], Any]
"""A task tells how many offsets it has read."""

F = TypeVar("F", bound=AuditResult)
T = TypeVar("T")


class StageProgress:
    """The stage of a job, and how far that stage has come."""

    def __init__(
        self, spark: "SparkSession", progress: JobProgress, request: AuditRequest, stages: int
    ) -> None:
        self._spark, self._progress = spark, progress
        self._offsets, self._stages = request.offsets, stages
        self._number, self._name = -1, ""

    def stage(self, name: str) -> CountRecords:
        """Begin a stage and report its name from now on."""
        self._number, self._name = self._number + 1, name
        if executors.is_connect(self._spark):  # Spark Connect has nothing that counts across tasks
            self._tell(self._number, lambda: None)
            return lambda offsets: None
        done = self._spark.sparkContext.accumulator(0)
        self._tell(self._number, lambda: min(int(done.value), self._offsets))
        return done.add

    def end(self) -> None:
        """End the progress: everything was read."""
        self._tell(self._stages, lambda: self._offsets)

    def _tell(self, stages_done: int, records: Callable[[], int | None]) -> None:
        name, stages, total = self._name, self._stages, self._offsets

        def look() -> dict[str, Any]:
            return {
                "stage": name,
                "stages_done": stages_done,
                "stages_total": stages,
                "records": records(),
                "records_total": total,
            }

        self._progress.watch(look)


def reading(spark: "SparkSession", request: AuditRequest, tasks: int) -> Reading:
    """Return how each of so many tasks reads: tasks that run at once share the rate."""
    if request.max_rate is None:
        return Reading(request.check_crc)
    return Reading(request.check_crc, request.max_rate / slots.at_once(spark, tasks))


class Unread:
    """Reports a partition that a task could not read.

    The methods return what the findings say about the partition. They raise instead if another try
    may succeed and Spark has one left.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._tries = executors.tries(spark)

    def lasting(self, failed: Sequence[Missing]) -> tuple[Missing, ...]:
        """Return, in a task, the partitions that `eoctl.engine.audit_reading` could not read."""
        passing = [one for one in failed if one.error not in LASTING]
        if passing and not executors.last_try(self._tries):
            raise IncompleteError(passing[0].detail)
        return tuple(failed)

    def of(self, key: TopicPartition, error: EoctlError) -> tuple[Missing, ...]:
        """Return, in a task, the partition whose reading raised an error."""
        if not executors.lasting(error) and not executors.last_try(self._tries):
            raise error
        return (not_read(key, error),)


def buckets(request: AuditRequest, each: int | None = None) -> int:
    """Return the number of tasks that share the judging. each: offsets of one."""
    return max(1, math.ceil(request.offsets / (each or BUCKET_OFFSETS)))


def stream(
    access: Access, make: Callable[[Cluster], AsyncGenerator[T, None]]
) -> Generator[T, None, None]:
    """Yield, in a task, what an asynchronous generator yields, given an open cluster."""

    async def given() -> AsyncGenerator[T, None]:
        async with (
            Cluster(access.settings(), Deadline(None), read_only=True) as cluster,
            aclosing(make(cluster)) as items,
        ):
            async for one in items:
                yield one

    with asyncio.Runner() as runner:
        whole = given()
        try:
            with suppress(StopAsyncIteration):
                while True:
                    yield runner.run(anext(whole))
        finally:
            runner.run(whole.aclose())


def ask_both(
    access: Access,
    topics: tuple[TopicOf, TopicOf],
    pair: MirrorPair,
    use: Callable[[Cluster, Cluster], Coroutine[Any, Any, T]],
) -> T:
    """Call `use`, in a task, with the open clusters of a source and its mirror. Raises RefusedError
    if they have other topics than these."""
    beside = access.beside or access

    async def asked(source: Cluster) -> T:
        async with Cluster(beside.settings(), Deadline(None), read_only=True) as mirror:
            for cluster, of, r in zip(
                (source, mirror), topics, (pair.source, pair.mirror), strict=True
            ):
                await refuse_other(cluster, of.cluster_id, of.topic_id, r.topic_partition)
            return await use(source, mirror)

    return access.ask(asked, read_only=True)


def read(
    access: Access,
    make: Callable[[Cluster], AsyncGenerator[T, None]],
    unread: Unread,
    key: TopicPartition,
) -> Generator[T, None, tuple[Missing, ...]]:
    """Yield, in a task, what is made of a partition; return why reading stopped early, if it did.

    make: an asynchronous generator, given an open cluster. Raises as `Unread` does.
    """

    async def made(cluster: Cluster) -> AsyncGenerator[T | EoctlError, None]:
        try:
            async with aclosing(make(cluster)) as items:
                async for one in items:
                    yield one
        except EoctlError as error:
            yield error

    with closing(stream(access, made)) as items:
        for one in items:
            if isinstance(one, EoctlError):
                return unread.of(key, one)
            yield one
    return ()


def untold(size: int, offsets: int) -> None:
    """Ignore a task's progress."""


def frame(
    spark: "SparkSession", give: Give, count: int, ddl: str, refusals: executors.Refusals
) -> "DataFrame":
    """Return a frame of what tasks 0 to count - 1 give.

    An EoctlError that no retry fixes goes to `refusals`; Spark retries after any other.
    """
    executors.ship(spark)

    def call(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for one in batches:
            for task in one.column(0).to_pylist():
                try:
                    yield from give(task)
                except EoctlError as error:
                    yield batch({"told": [json.dumps(refusals.lasting(error))]}, ddl)

    return spark.range(0, count, 1, max(1, count)).mapInArrow(call, ddl)


def batch(columns: Mapping[str, Any], ddl: str) -> "pa.RecordBatch":
    """Return a batch of columns of equal length; a column that is not given is null."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    count = len(next(iter(columns.values())))
    made = {}
    for name, kind in (field.split() for field in ddl.split(", ")):
        given = columns.get(name)
        made[name] = pa.nulls(count, kinds[kind]) if given is None else pa.array(given, kinds[kind])
    return pa.RecordBatch.from_pydict(made)


def beside(piece: int, result: AuditResult, ddl: str) -> "pa.RecordBatch":
    """Return a row with only what was found in a piece."""
    return batch({"piece": [piece], "told": [answer_json(result)]}, ddl)


def answer_json(result: AuditResult) -> str:
    """Return findings as `answers` takes them."""
    return json.dumps({"answer": result.model_dump(mode="json")})


def answers(
    spark: "SparkSession",
    rows: "DataFrame",
    kind: type[F],
    what: str,
    refusals: executors.Refusals,
) -> tuple[list[F], list[bytes]]:
    """Return what a frame of ANSWER holds: findings, sorted by piece, and contents.

    Raises what `executors.collected` raises.
    """
    collected = executors.collected(spark, rows, what, refusals)
    content = [bytes(row["content"]) for row in collected if row["content"] is not None]
    by_piece = sorted(
        ((row["piece"], row["answer"]) for row in collected if row["answer"] is not None),
        key=lambda pair: -1 if pair[0] is None else pair[0],
    )
    each = [json.loads(text) for _, text in by_piece]
    executors.raise_first(each)
    return [kind.model_validate(one["answer"]) for one in each], content


def answer_row(
    answer: str | None = None, *, piece: int | None = None, content: bytes | None = None
) -> "pa.RecordBatch":
    """Return one row of ANSWER."""
    return batch({"piece": [piece], "answer": [answer], "content": [content]}, ANSWER)


def apart(
    batches: "Iterator[pa.RecordBatch]", answers_apart: "list[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Yield the rows that tasks gave. Their findings (columns `piece` and `told`) are appended to
    `answers_apart`, as rows of ANSWER."""
    import pyarrow.compute as pc

    for one in batches:
        tells = pc.is_valid(one.column("told"))
        rest = one.filter(pc.invert(tells))
        if len(rest) < len(one):
            pieces, texts = (one.filter(tells).column(n).to_pylist() for n in ("piece", "told"))
            for piece, text in zip(pieces, texts, strict=True):
                answers_apart.append(answer_row(text, piece=piece))
        if len(rest):
            yield rest


def rows_apart(
    batches: "Iterator[pa.RecordBatch]", answers_apart: "list[pa.RecordBatch]"
) -> Iterator[dict[str, Any]]:
    """Yield what `apart` does, row by row."""
    for one in apart(batches, answers_apart):
        yield from one.to_pylist()


def ended(
    request: AuditRequest, audit: AuditResult, findings: int, status: Exit | None = None
) -> dict[str, Any]:
    """Return a job's result. The findings go to the file that the request names, if any.

    status: the exit status, None: that of findings and of what could not be read.
    """
    if status is None:
        status = status_of(not (audit.failed or request.missing), findings > 0)
    result: dict[str, Any] = {"findings": findings, "exit_status": int(status)}
    content = audit.model_dump(mode="json")
    if request.answer is None:
        return {**result, "found": content}
    try:
        Path(request.answer).write_text(json.dumps(content), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=request.answer) from None
    return result
