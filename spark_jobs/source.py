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
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import cuts
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns, read_headers
from eoctl.settings.context import SECRET_KEY
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import PartitionFacts
from recovery.formats.columns import ABORTED, OPEN
from recovery.shared import cut as cut_files
from recovery.shared.cut import Cut
from recovery.shared.cut import ranges as parts
from recovery.shared.offset_bounds import MAX_OFFSET, Bound, parse_bound, range_problem
from spark_jobs import source_columns
from spark_jobs.session import executors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "eoctl-kafka"
MANY = 1 << 20  # tasks: as many as there are
RANGE_OFFSETS = 5_000_000
LOAD_SECONDS = 60.0
RANGES = ("topics", "start", "end", "cut", "range_offsets", "headers_only")
"""The options that say what is read by which task."""
OPTIONS = {
    "topics": "comma-separated",
    "start": "earliest, an offset, or an instant [earliest]",
    "end": "lso, hw, an offset, or an instant [lso]",
    "cut": "a cut file or a manifest, instead of topics, start and end",
    "columns": "comma-separated [all but headers]",
    "headers_only": "true: a row per record batch, nothing decompressed",
    "control": "true: markers too",
    "isolation": "read_committed or read_uncommitted [read_committed]",
    "range_offsets": f"a bigger range is several tasks [{RANGE_OFFSETS}]",
    "max_rate": "bytes per second and broker, of all tasks that run at once together",
}


@dataclass(frozen=True)
class Span(InputPartition):
    """What one task reads: offsets [start, end) of a partition; transactional records at or above
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

    @property
    def known(self) -> Mapping[str, str]:
        return source_columns.BATCH if self.headers_only else source_columns.RECORD


def register(spark: "SparkSession", access: Access, name: str = NAME, **options: str) -> None:
    """Make `spark.read.format(name)` known to a session; our code goes to its executors first.

    options: of every load (with `topics` or `cut`, the ranges are decided here and now).
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
    fixed = dict(given or {})
    check_options(fixed)
    decided = spans(access, fixed) if "topics" in fixed or "cut" in fixed else None

    class KafkaSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            given = {**fixed, **{key.lower(): value for key, value in options.items()}}
            given.pop("path", None)
            check_options(given)
            self.choice = choice(given)
            same = all(given.get(key) == fixed.get(key) for key in RANGES)
            if decided is not None and same:
                self.spans = decided
            elif each_action_loads and "cut" not in given:
                raise RefusedError(
                    "under Spark Connect each action loads again, and would read other ranges",
                    remedy="name topics, start and end in register(), or give a cut file",
                )
            else:
                self.spans = spans(access, given)
            if self.choice.max_rate is not None:
                share = max(1, min(len(self.spans), most_at_once))
                self.choice = replace(self.choice, max_rate=self.choice.max_rate / share)

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            known = self.choice.known
            return source_columns.ddl({c: known[c] for c in self.choice.columns})

        def reader(self, schema: "StructType") -> DataSourceReader:
            return Reader(access, self.choice, self.spans, schema)

    return KafkaSource


def check_options(given: Mapping[str, str]) -> None:
    """Raises UsageError for options we don't have; a value is never quoted."""
    for key in given:
        if key.lower() in OPTIONS or key.lower() == "path":
            continue
        if SECRET_KEY.search(key) or "sasl" in key.lower() or "ssl" in key.lower():
            raise UsageError(
                "credentials are no options: Spark shows options on its pages",
                where=f"option {key}",
                remedy="put them into the Access given to register(), as env:NAME or file:PATH",
            )
        raise UsageError(f"no option {key}", where=NAME, remedy=f"one of {', '.join(OPTIONS)}")


def choice(given: Mapping[str, str]) -> Choice:
    """Return the columns to give of each record. Raises UsageError."""
    headers_only = _flag(given, "headers_only")
    known = source_columns.BATCH if headers_only else source_columns.RECORD
    named = [c.strip() for c in given.get("columns", "").split(",") if c.strip()]
    for column in named:
        if column not in known:
            raise UsageError(
                f"no column {column!r}", where="option columns", remedy=f"one of {', '.join(known)}"
            )
    isolation = given.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"no {isolation!r}", where="option isolation")
    return Choice(
        columns=tuple(named) or tuple(c for c in known if c != "headers"),
        headers_only=headers_only,
        control=_flag(given, "control") or headers_only,
        committed=isolation == "read_committed",
        max_rate=_number(given, "max_rate"),
    )


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in ("true", "false"):
        raise UsageError("write true or false", where=f"option {name}")
    return value == "true"


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise UsageError("not a number above 0", where=f"option {name}")
    return int(value)


def spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    """The ranges that options mean, in offsets, as the cluster is now.

    Raises UsageError, IncompleteError for what cannot be seen, RefusedError for a cut of other
    topics than those that have its names now.
    """
    most = _number(given, "range_offsets") or RANGE_OFFSETS
    if _flag(given, "headers_only"):  # a batch on an edge would be in two parts
        most = MAX_OFFSET
    whole = asyncio.run(_spans(access, given))
    return [
        Span(s.topic, s.partition, start, end, s.last_stable_offset)
        for s in whole
        if s.start < s.end
        for start, end in parts(s.start, s.end, most)
    ]


async def _spans(access: Access, given: Mapping[str, str]) -> list[Span]:
    cut = None
    if "cut" in given:
        if clash := sorted({"topics", "start", "end"} & given.keys()):
            raise UsageError(f"a cut file says {clash[0]} already", where="option cut")
        cut = _cut_file(given["cut"])
    async with Cluster(access.settings(), Deadline(LOAD_SECONDS), read_only=True) as cluster:
        if cut is not None:
            return await _of_cut(cluster, cut)
        topics = [t.strip() for t in given.get("topics", "").split(",") if t.strip()]
        if not topics:
            raise UsageError("no topics are named", where=NAME, remedy="option topics, or cut")
        start = parse_bound(given.get("start", "earliest"), now_ms(), where="option start")
        end = parse_bound(given.get("end", "lso"), now_ms(), where="option end")
        facts = await cuts.offsets(cluster, topics)
        starts = await _bounds(cluster, facts, start)
        ends = await _bounds(cluster, facts, end)
        return [_span(f, starts[i], ends[i]) for i, f in enumerate(facts)]


async def _bounds(cluster: Cluster, facts: list[PartitionFacts], bound: Bound) -> list[int]:
    """A bound in every partition."""
    at: Mapping[Any, int | None] = {}
    if bound.kind == "time":
        metadata = await cluster.metadata(sorted({f.topic for f in facts}))
        every = [p for t in metadata.topics.values() for p in t.partitions]
        at = await cuts.offsets_at(cluster, every, bound.value)
    return [bound.resolve(f, at.get((f.topic, f.partition))) for f in facts]


def _span(facts: PartitionFacts, start: int, end: int) -> Span:
    assert facts.last_stable_offset is not None
    if (problem := range_problem(start, end, facts)) is not None:
        raise IncompleteError(problem[1], where=f"{facts.topic}-{facts.partition}")
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
            if kind != field.dataType.simpleString():
                raise UsageError(
                    f"no column {field.name} of type {field.dataType.simpleString()}",
                    where=NAME,
                    remedy=source_columns.ddl(chosen.known),
                )
        self.access, self.choice, self.spans = access, chosen, spans
        self.arrow = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[Span]:
        return self.spans

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, Span):  # what Spark makes of no partitions at all
            return
        with asyncio.Runner() as runner:
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
