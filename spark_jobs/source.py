"""Kafka as a Spark Data Source: batch reads of explicit ranges, decoded by eoctl's own reader.

    from eoctl.kafka.connection.access import Access
    from spark_jobs.source import register

    register(spark, Access({"bootstrap.servers": "b1:9092", "sasl.password": "env:KAFKA_PASSWORD"}))
    df = spark.read.format("eoctl-kafka").option("topics", "orders").load()

Where ranges begin and end is decided once, at load, so that every action on the DataFrame reads
the same. Credentials are no options (Spark shows those): the source closes over them. Under
Spark Connect a DataFrame is loaded again by each action, so there name the topics in `register`,
which decides on the spot, or give a cut file.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import cuts
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns, read_headers
from recovery.errors import EoctlError, IncompleteError, RefusedError, UsageError
from recovery.facts import PartitionFacts
from recovery.formats.columns import ABORTED, OPEN
from recovery.shared import cut as cut_files
from recovery.shared.cut import Cut
from recovery.shared.cut import ranges as parts
from recovery.shared.offset_bounds import MAX_OFFSET, range_problem
from spark_jobs import source_columns, source_options
from spark_jobs.session import executors
from spark_jobs.source_options import NAME, RANGE_OFFSETS, Edge, Wanted, flag, number

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

MANY = 1 << 20  # tasks: as many as there are
LOAD_SECONDS = 60.0
UNSAFE = (
    "a Python writer of Spark's commits on the driver, behind what its tasks have sent: "
    "rows would be lost or doubled"
)
SINK = "spark_jobs.sink.write.write_exactly_once (docs/spark.md)"


@dataclass(frozen=True)
class Span(InputPartition):
    """One task's reading: offsets [start, end) of a partition; transactional records at or above
    last_stable_offset are open."""

    topic: str
    partition: int
    start: int
    end: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The options, understood."""

    columns: tuple[str, ...]
    headers_only: bool = False
    control: bool = False
    committed: bool = True
    max_rate: float | None = None
    fail_on_data_loss: bool = True

    @property
    def known(self) -> Mapping[str, str]:
        return source_columns.BATCH if self.headers_only else source_columns.RECORD


def register(spark: "SparkSession", access: Access, name: str = NAME, **options: str) -> None:
    """Make `spark.read.format(name)` known to a session; our code goes to its executors first.

    options: of every load. With one that says what is read (`topics`, `subscribe`, `cut`, ...),
    the ranges are decided here and now.
    """
    executors.ship(spark)
    spark.dataSource.register(
        kafka_source(
            access,
            name,
            options,
            each_action_loads=executors.is_connect(spark),
            most_at_once=executors.at_once(spark, MANY),
        )
    )


def kafka_source(
    access: Access,
    name: str = NAME,
    given: Mapping[str, str] | None = None,
    *,
    each_action_loads: bool = False,
    most_at_once: int = MANY,
) -> type[DataSource]:
    """A DataSource class that closes over the access, and over ranges if `given` names them.

    each_action_loads: refuse to decide ranges at load (Spark Connect). most_at_once: tasks that
    Spark runs beside each other, where that is known. Raises what `spans` does.
    """
    fixed = source_options.understood(given or {})
    decided = None
    if source_options.selects(fixed):
        decided = spans(source_options.connection(access, fixed), fixed)

    class KafkaSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self.unreadable: EoctlError | None = None
            try:
                with one_sentence():
                    given = source_options.understood({**fixed, **_lower(options)})
                    self.access = source_options.connection(access, given)
                    self.choice = choice(given)
                    self.spans = self._spans(given)
            except EoctlError as error:
                if source_options.selects(options):
                    raise
                self.unreadable = error  # of a writer, maybe, which Spark makes in the same way
                return
            if self.choice.max_rate is not None:
                share = max(1, min(len(self.spans), most_at_once))
                self.choice = replace(self.choice, max_rate=self.choice.max_rate / share)

        def _spans(self, given: Mapping[str, str]) -> list[Span]:
            same = source_options.of_ranges(given) == source_options.of_ranges(fixed)
            if decided is not None and same:
                return decided
            if each_action_loads and "cut" not in given:
                raise RefusedError(
                    "under Spark Connect each action loads again, and would read other ranges",
                    remedy="name topics, start and end in register(), or give a cut file",
                )
            return spans(self.access, given)

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            self._readable()
            known = self.choice.known
            return source_columns.ddl({c: known[c] for c in self.choice.columns})

        def reader(self, schema: "StructType") -> DataSourceReader:
            self._readable()
            with one_sentence():
                return Reader(self.access, self.choice, self.spans, schema)

        def _readable(self) -> None:
            if self.unreadable is not None:
                with one_sentence():
                    raise self.unreadable

        def streamReader(  # noqa: N802 - Spark's
            self, schema: "StructType"
        ) -> DataSourceStreamReader:
            return NoStream()

        def writer(self, schema: "StructType", overwrite: bool) -> NoReturn:
            raise _refused(UNSAFE, f"call {SINK}")

        def streamWriter(  # noqa: N802 - Spark's
            self, schema: "StructType", overwrite: bool
        ) -> NoReturn:
            raise _refused(UNSAFE, f"use foreachBatch, and call {SINK} in it")

    return KafkaSource


def _refused(what: str, remedy: str) -> RefusedError:
    """Return an error that Spark shows as its sentence, see `one_sentence`."""
    error = RefusedError(what, where=NAME, remedy=remedy)
    with suppress(RefusedError), one_sentence():
        raise error
    return error


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items()}


@contextmanager
def one_sentence() -> Iterator[None]:
    """Let Spark show an error of ours as its sentence, without the stack of its Python worker.

    The worker ends with the error that it tells, so that nothing else loses its stack.
    """
    try:
        yield
    except EoctlError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def choice(given: Mapping[str, str]) -> Choice:
    """Return the columns to give of each record. Raises UsageError."""
    headers_only = flag(given, "headers_only")
    known = source_columns.BATCH if headers_only else source_columns.RECORD
    named = [c.strip() for c in given.get("columns", "").split(",") if c.strip()]
    for column in named:
        if column not in known:
            raise UsageError(
                f"no column {column!r}", where="option columns", remedy=f"one of {', '.join(known)}"
            )
    with_headers = flag(given, "includeheaders")
    if with_headers and (headers_only or (named and "headers" not in named)):
        what = "headers_only has no" if headers_only else "columns does not name the"
        raise UsageError(f"{what} column headers", where="option includeHeaders")
    return Choice(
        columns=tuple(named) or tuple(c for c in known if c != "headers" or with_headers),
        headers_only=headers_only,
        control=flag(given, "control") or headers_only,
        committed=source_options.committed(given),
        max_rate=number(given, "max_rate"),
        fail_on_data_loss=flag(given, "failondataloss", default="true"),
    )


def spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    """The ranges that options mean, in offsets, as the cluster is now.

    Raises UsageError, IncompleteError for what cannot be seen, RefusedError for a cut of other
    topics than those that have its names now.
    """
    key = "range_offsets" if "range_offsets" in given else "maxrecordsperpartition"
    most, least = number(given, key) or RANGE_OFFSETS, number(given, "minpartitions") or 1
    whole = [s for s in asyncio.run(_spans(access, given)) if s.start < s.end]
    if len(whole) < least:
        most = min(most, max(1, sum(s.end - s.start for s in whole) // least))
    if flag(given, "headers_only"):  # a batch on an edge would be in two parts
        most = MAX_OFFSET
    return [
        Span(s.topic, s.partition, start, end, s.last_stable_offset)
        for s in whole
        for start, end in parts(s.start, s.end, most)
    ]


async def _spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    cut = wanted = None
    if "cut" in given:
        if "failondataloss" in given:
            raise UsageError("a cut is read whole or not at all", where="option failOnDataLoss")
        cut = _cut_file(given["cut"])
    else:
        wanted = source_options.wanted(given)
    async with Cluster(access.settings(), Deadline(LOAD_SECONDS), read_only=True) as cluster:
        if cut is not None:
            return await _of_cut(cluster, cut)
        assert wanted is not None
        facts = await _partitions(cluster, wanted)
        places = {(f.topic, f.partition) for f in facts}
        wanted.start.check(places)
        wanted.end.check(places)
        starts = await _bounds(cluster, facts, wanted.start)
        ends = await _bounds(cluster, facts, wanted.end)
        return [_span(f, starts[i], ends[i], wanted) for i, f in enumerate(facts)]


async def _partitions(cluster: Cluster, wanted: Wanted) -> list[PartitionFacts]:
    """The partitions that are read, as they are now. Raises IncompleteError for what is not seen,
    UsageError for one that does not exist."""
    topics = list(wanted.topics) or sorted({topic for topic, _ in wanted.assigned})
    if (pattern := wanted.pattern) is not None:
        metadata = await cluster.metadata(None)
        topics = sorted(
            t.name for t in metadata.topics.values() if not t.internal and pattern.fullmatch(t.name)
        )
    facts = await cuts.offsets(cluster, topics) if topics else []
    if not wanted.assigned:
        return facts
    for topic, partition in sorted(wanted.assigned - {(f.topic, f.partition) for f in facts}):
        raise UsageError(f"no partition {topic}-{partition}", where="option assign")
    return [f for f in facts if (f.topic, f.partition) in wanted.assigned]


async def _bounds(cluster: Cluster, facts: list[PartitionFacts], edge: Edge) -> list[int]:
    """One end of the ranges, in every partition."""
    at: dict[tuple[str, int], int | None] = {}
    bounds = {(f.topic, f.partition): edge.bound((f.topic, f.partition)) for f in facts}
    instants = {bound.value for bound in bounds.values() if bound.kind == "time"}
    if instants:
        metadata = await cluster.metadata(sorted({f.topic for f in facts}))
        every = [p for t in metadata.topics.values() for p in t.partitions]
        for instant in sorted(instants):
            mine = [
                p
                for p in every
                if (bound := bounds.get((p.topic, p.partition))) is not None
                and (bound.kind, bound.value) == ("time", instant)
            ]
            at |= await cuts.offsets_at(cluster, mine, instant)
    return [edge.resolve(f, at.get((f.topic, f.partition))) for f in facts]


def _span(facts: PartitionFacts, start: int, end: int, wanted: Wanted) -> Span:
    assert facts.last_stable_offset is not None
    assert facts.log_start_offset is not None
    where = f"{facts.topic}-{facts.partition}"
    if (problem := range_problem(start, end, facts)) is not None:
        raise IncompleteError(problem[1], where=where)
    if wanted.stable and end > facts.last_stable_offset:
        raise IncompleteError(
            f"{end} is above the last stable offset {facts.last_stable_offset}, where "
            "read_committed ends while a transaction is open",
            where=where,
            remedy="write latest (-1 in JSON), or wait until the transaction is over",
        )
    if start < min(facts.log_start_offset, end):
        if wanted.fail_on_data_loss:
            raise IncompleteError(
                f"{start} is below the log start {facts.log_start_offset}: what was between them "
                "is deleted",
                where=where,
                remedy="start at earliest (-2 in JSON); failOnDataLoss=false reads what is left",
            )
        start = min(facts.log_start_offset, end)
    return Span(facts.topic, facts.partition, start, end, facts.last_stable_offset)


def _cut_file(path: str) -> Cut:
    try:
        return cut_files.load(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot be read: {reason}", where=path) from None


async def _of_cut(cluster: Cluster, cut: Cut) -> list[Span]:
    metadata = await cluster.metadata([t.topic for t in cut.topics])
    for t in cut.topics:
        if metadata.topics[t.topic].topic_id != t.topic_id:
            raise RefusedError(
                "the cut is of another topic of that name, or of another cluster", where=t.topic
            )
    return [
        Span(topic, number, p.start, p.end, p.last_stable_offset)
        for (topic, number), p in cut.places().items()
    ]


class NoStream(DataSourceStreamReader):
    """Refuses a stream when it begins: Spark 4.3.0 loses an error that `streamReader` raises."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's
        raise _refused("streams are not read", "read ranges: spark.read, with start and end")

    def read(self, partition: InputPartition) -> NoReturn:
        """Return nothing: there is no partition of a stream that has not begun."""
        raise NotImplementedError


class Reader(DataSourceReader):
    """Reads spans; made once for each action, from what load has decided.

    It takes no filters (pushFilters): Spark 4.3.0 keeps the reader that one action's filters have
    narrowed, and later actions on the same DataFrame silently lose rows. Narrow with start and end.
    """

    def __init__(
        self, access: Access, chosen: Choice, spans: list[Span], schema: "StructType"
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        for field in schema.fields:
            kind = chosen.known.get(field.name)
            if kind != field.dataType.simpleString() or not (
                field.nullable or source_columns.never_null(field.name)
            ):
                never = "" if field.nullable else " NOT NULL"
                raise UsageError(
                    f"no column {field.name} of type {field.dataType.simpleString()}{never}",
                    where=NAME,
                    remedy=source_columns.ddl(chosen.known),
                )
        self.access, self.choice, self.spans = access, chosen, spans
        # Spark 4.0 does not ask: its timestamps are UTC
        asked = signature(to_arrow_schema).parameters
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in asked else {}
        self.arrow = to_arrow_schema(schema, **zone)

    def partitions(self) -> list[Span]:
        return self.spans

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, Span):  # what Spark makes of no partitions at all
            return
        with one_sentence(), asyncio.Runner() as runner:
            stream = self._stream(partition)
            try:
                while True:
                    yield runner.run(anext(stream))
            except StopAsyncIteration:
                pass
            finally:
                runner.run(stream.aclose())

    async def _stream(self, span: Span) -> "AsyncGenerator[pa.RecordBatch, None]":
        chosen = self.choice
        place = (span.topic, span.partition)
        offsets = Range(*place, span.start, span.end)
        named: dict[str, Any] = {
            "last_stable_offset": span.last_stable_offset,
            "max_rate": chosen.max_rate,
        }
        settings = self.access.settings()
        async with Cluster(settings, Deadline(None), read_only=True) as cluster:
            if not chosen.fail_on_data_loss:
                offsets = await _left(cluster, offsets)
            if chosen.headers_only:
                headers = read_headers(cluster, offsets, **named)
                async with aclosing(headers):
                    async for batches in headers:
                        yield source_columns.batch_rows(batches, *place, self.arrow)
                return
            records = read_columns(cluster, offsets, control=chosen.control, **named)
            async with aclosing(records):
                async for batch in records:
                    if chosen.committed:
                        hidden = (batch.outcome == ABORTED) | (batch.outcome == OPEN)
                        batch = batch.select(~hidden) if hidden.any() else batch
                    if len(batch):
                        yield source_columns.records(batch, *place, self.arrow)


async def _left(cluster: Cluster, offsets: Range) -> Range:
    """Return what retention has left of a range since load. Raises IncompleteError."""
    for f in await cuts.offsets(cluster, [offsets.topic]):
        if f.partition == offsets.partition and f.log_start_offset is not None:
            return replace(offsets, start=min(offsets.end, max(offsets.start, f.log_start_offset)))
    raise IncompleteError("the partition is gone", where=f"{offsets.topic}-{offsets.partition}")
