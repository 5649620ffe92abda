"""Kafka as a Spark Data Source: batch reads of explicit ranges, decoded by eoctl's own reader.

    from eoctl.kafka.connection.access import Access
    from spark_jobs.source import register

    register(spark, Access({"bootstrap.servers": "b1:9092", "sasl.password": "env:KAFKA_PASSWORD"}))
    df = spark.read.format("eoctl-kafka").option("topics", "orders").load()

The start and the end of each range are decided once, at load, so that every action on the DataFrame
reads the same records. Credentials are not options (Spark shows options): the source closes over
them. Under Spark Connect each action loads the DataFrame again, so name the topics in `register`,
which decides the ranges at once, or give a cut file.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from eoctl.kafka.connection.access import Access
from recovery.errors import EoctlError, RefusedError
from recovery.values import replace
from spark_jobs import source_columns, source_options
from spark_jobs.session import executors, slots
from spark_jobs.source_options import NAME
from spark_jobs.source_ranges import Span, spans
from spark_jobs.source_reader import Reader, choice, one_sentence
from spark_jobs.source_stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

MANY = 1 << 20  # tasks: as many as exist
UNSAFE = (
    "a Python writer of Spark's commits on the driver, after its tasks have sent: "
    "rows would be lost or doubled"
)
SINK = "spark_jobs.sink.write.write_exactly_once (docs/spark.md)"
STREAM_SINK = "spark_jobs.sink.foreach.foreach_batch (docs/spark.md)"


def register(spark: "SparkSession", access: Access, name: str = NAME, **options: str) -> None:
    """Make `spark.read.format(name)` known to a session and send our code to its executors.

    options: apply to every load. If one says what is read (`topics`, `subscribe`, `cut`, ...), the
    ranges are decided here and now.
    """
    executors.ship(spark)
    spark.dataSource.register(
        kafka_source(
            access,
            name,
            options,
            each_action_loads=executors.is_connect(spark),
            most_at_once=slots.at_once(spark, MANY),
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
    """Return a DataSource class that closes over the access, and over ranges if `given` names them.

    each_action_loads: refuse to decide ranges at load (Spark Connect). most_at_once: how many tasks
    Spark runs in parallel, if that is known. Raises what `spans` does.
    """
    fixed = source_options.understood(given or {})
    decided = None
    if source_options.selects(fixed):
        decided = spans(source_options.connection(access, fixed), fixed)

    class KafkaSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self.wrong: EoctlError | None = None
            """Why nothing is read: of a writer, maybe, which Spark makes in the same way."""
            self.no_batch: EoctlError | None = None
            """Why no batch is read: of a stream, maybe, which Spark makes in the same way."""
            self.spans: list[Span] = []
            try:
                self.given = source_options.understood({**fixed, **_lower(options)})
                self.access = source_options.connection(access, self.given)
                self.choice = choice(self.given)
                try:
                    self.spans = self._spans(self.given)
                except EoctlError as error:
                    if not source_options.can_stream(self.given):
                        raise
                    self.no_batch = error
            except EoctlError as error:
                if source_options.selects(options):
                    with one_sentence():
                        raise
                self.wrong = error
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
            self._refuse(self.wrong)
            known = self.choice.known
            return source_columns.ddl({c: known[c] for c in self.choice.columns})

        def reader(self, schema: "StructType") -> DataSourceReader:
            self._refuse(self.wrong or self.no_batch)
            with one_sentence():
                return Reader(self.access, self.choice, self.spans, schema)

        def _refuse(self, error: EoctlError | None) -> None:
            if error is not None:
                with one_sentence():
                    raise error

        def streamReader(  # noqa: N802 - Spark's
            self, schema: "StructType"
        ) -> DataSourceStreamReader:
            self._refuse(self.wrong)
            return StreamReader(self.access, self.choice, self.given, schema)

        def writer(self, schema: "StructType", overwrite: bool) -> NoReturn:
            raise _refused(UNSAFE, f"call {SINK}")

        def streamWriter(  # noqa: N802 - Spark's
            self, schema: "StructType", overwrite: bool
        ) -> NoReturn:
            raise _refused(UNSAFE, f"use foreachBatch, with {STREAM_SINK}")

    return KafkaSource


def _refused(what: str, remedy: str) -> RefusedError:
    """Return an error that Spark shows as its sentence, see `one_sentence`."""
    error = RefusedError(what, where=NAME, remedy=remedy)
    with suppress(RefusedError), one_sentence():
        raise error
    return error


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items()}
