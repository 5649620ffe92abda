"""Read the Data Source's ranges in tasks, and pass its errors on to the user.

Batches and streams read in the same way.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import cut_offsets, positions
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns, read_headers
from recovery.errors import EoctlError, IncompleteError, UsageError
from recovery.facts import PartitionFacts
from recovery.formats.columns import ABORTED, OPEN
from recovery.shared.stream_offset import Position, StreamOffset
from recovery.values import Value, replace
from spark_jobs import source_columns, source_options
from spark_jobs.source_options import NAME, flag, number
from spark_jobs.source_ranges import Span, patient

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Choice(Value):
    """The parsed options."""

    columns: tuple[str, ...]
    headers_only: bool = False
    control: bool = False
    committed: bool = True
    max_rate: float | None = None
    fail_on_data_loss: bool = True

    @property
    def known(self) -> Mapping[str, str]:
        return source_columns.BATCH if self.headers_only else source_columns.RECORD


@contextmanager
def one_sentence() -> Iterator[None]:
    """Let Spark show an EoctlError as its sentence, without the stack of its Python worker.

    The worker ends with the error that it reports, so no other error loses its stack.
    """
    try:
        yield
    except EoctlError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def choice(given: Mapping[str, str]) -> Choice:
    """Return the columns to give for each record. Raises UsageError."""
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


class Reader(DataSourceReader):
    """Reads spans; created once for each action, from what load has decided.

    Accepts no filters (pushFilters): Spark 4.3.0 keeps the reader that one action's filters have
    narrowed, and later actions on the DataFrame silently lose rows. Narrow with start and end.
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
        # Spark 4.0 does not ask for it: its timestamps are UTC
        asked = signature(to_arrow_schema).parameters
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in asked else {}
        self.arrow = to_arrow_schema(schema, **zone)

    def partitions(self) -> list[Span]:
        return self.spans

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, Span):  # what Spark passes if there are no partitions
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
        partition = span.topic_partition
        offsets = Range(*partition, span.start, span.end)
        named: dict[str, Any] = {
            "last_stable_offset": span.last_stable_offset,
            "max_rate": chosen.max_rate,
            "nearest": True,
        }
        settings = self.access.settings()
        async with Cluster(settings, Deadline(None), read_only=True) as cluster:
            if not chosen.fail_on_data_loss:
                offsets = await _left(cluster, offsets)
            if chosen.headers_only:
                headers = read_headers(cluster, offsets, **named)
                async with aclosing(headers):
                    async for batches in headers:
                        yield source_columns.batch_rows(batches, *partition, self.arrow)
                await patient(lambda: _refuse_other_log(cluster, span))
                return
            records = read_columns(cluster, offsets, control=chosen.control, **named)
            async with aclosing(records):
                async for batch in records:
                    if chosen.committed:
                        hidden = (batch.outcome == ABORTED) | (batch.outcome == OPEN)
                        batch = batch.select(~hidden) if hidden.any() else batch
                    if len(batch):
                        yield source_columns.records(batch, *partition, self.arrow)
            await patient(lambda: _refuse_other_log(cluster, span))


async def _refuse_other_log(cluster: Cluster, span: Span) -> None:
    """Fail a task, so that its rows do not count, if its log is not the one that was planned.

    Raises RefusedError and IncompleteError, see `positions.refuse_other_streams`.
    """
    cluster.forgive()
    partition = span.topic_partition
    position = Position(span.end, span.leader_epoch)
    if span.record_epoch is not None and span.log_end is not None:
        position = Position(span.log_end, span.leader_epoch, record_epoch=span.record_epoch)
    metadata = (await cluster.metadata([span.topic])).topics[span.topic]
    for p in metadata.partitions:
        if p.partition == span.partition:
            facts = PartitionFacts(*partition, metadata.topic_id, p.leader, p.leader_epoch)
            offset = StreamOffset({span.topic: span.topic_id}, {partition: position})
            await positions.refuse_other_streams(cluster, offset, [facts])
            return
    raise IncompleteError("the partition is gone", where=f"{span.topic}-{span.partition}")


async def _left(cluster: Cluster, offsets: Range) -> Range:
    """Return what retention has left of a range since load. Raises IncompleteError."""
    for f in await cut_offsets.offsets(cluster, [offsets.topic]):
        if f.partition == offsets.partition and f.log_start_offset is not None:
            return replace(offsets, start=min(offsets.end, max(offsets.start, f.log_start_offset)))
    raise IncompleteError("the partition is gone", where=f"{offsets.topic}-{offsets.partition}")
