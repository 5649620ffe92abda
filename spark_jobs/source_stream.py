"""The Data Source as a stream: how far it has come, and which offsets each batch reads.

Spark keeps the offsets (see `recovery.shared.stream_offset`) in the query's checkpoint and plans an
unfinished batch again from them: equal offsets give equal tasks. Before a batch is planned, and
after each task's last record, the logs must still be those from which the offsets were taken.

Spark makes a reader in a process of its own, which lives as long as the query, and others for the
tasks. Spark 4.3.0 loses an error raised while a reader is made, so the first call raises it.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.read import positions
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import PartitionFacts
from recovery.shared import stream_offset
from recovery.shared.stream_offset import ANEW, Position, StreamOffset
from spark_jobs import source_options, source_ranges
from spark_jobs.source_options import NAME, Wanted, number
from spark_jobs.source_ranges import LOAD_SECONDS, Span
from spark_jobs.source_reader import Choice, Reader, one_sentence

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    ReadLimits: Any
    AvailableNow: Any
else:
    try:
        from pyspark.sql.streaming import datasource as ReadLimits  # noqa: N812
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
    except ImportError:  # Spark before 4.2
        ReadLimits, AvailableNow = None, object

T = TypeVar("T")


class StreamReader(DataSourceStreamReader, AvailableNow):  # type: ignore[misc]
    """Reads what the options name, from where a new query starts or an earlier one stopped."""

    def __init__(
        self, access: Access, chosen: Choice, given: Mapping[str, str], schema: "StructType"
    ) -> None:
        self.access, self.choice, self.given, self.schema = access, chosen, given, schema
        self.target: StreamOffset | None = None
        self.end: StreamOffset | None = None  # as last seen
        self.noted: set[str] = set()  # printed positions that are not proven
        self.wrong: EoctlError | None = None
        try:
            self.wanted: Wanted = source_options.wanted(given, stream=True)
            self.most = number(given, "maxoffsetspertrigger")
            self.reader = Reader(access, chosen, [], schema)
        except EoctlError as error:
            self.wrong = error

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Let Spark show an EoctlError as its sentence, also the one raised in the constructor."""
        with one_sentence():
            if self.wrong is not None:
                raise self.wrong
            yield

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's
        with self._answering():
            most = self.most
            return ReadLimits.ReadAllAvailable() if most is None else ReadLimits.ReadMaxRows(most)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        with self._answering():
            return stream_offset.encode(asyncio.run(self._asked(self._first)))

    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        with self._answering():
            if limit is None:
                raise RefusedError(
                    "streams need Spark 4.2: older ones do not tell a source where it stopped",
                    where=NAME,
                )
            most = None
            if not isinstance(limit, ReadLimits.ReadAllAvailable):
                most = limit.max_rows
            before = stream_offset.decode(start)
            after = self._patient(lambda cluster: self._latest(cluster, before, most))
            return stream_offset.encode(after)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        with self._answering():
            return None if self.end is None else stream_offset.encode(self.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        with self._answering():
            facts = self._patient(lambda cluster: self._standing(cluster, StreamOffset()))
            committed = self.choice.committed
            self.target = stream_offset.advanced(StreamOffset(), facts, committed=committed)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Span]:
        with self._answering():
            first, last = stream_offset.decode(start), stream_offset.decode(end)
            whole = []
            for partition, position in sorted(last.positions.items()):
                begin = first.positions.get(partition, Position(0)).offset
                stable = position.last_stable_offset
                span = Span(
                    *(*partition, begin, position.offset),
                    last_stable_offset=position.offset if stable is None else stable,
                    topic_id=last.ids[partition.topic],
                    leader_epoch=position.leader_epoch,
                    record_epoch=position.record_epoch,
                    log_end=position.offset,
                )
                if span.start < span.end:
                    whole.append(span)
            if whole:
                facts = self._patient(lambda cluster: self._unchanged(cluster, last, whole))
                self._refuse_deleted(first, facts)
            return source_ranges.shared_out(whole, self.given)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return self.reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Kafka keeps no offsets of the stream, its checkpoint does."""

    async def _first(self, cluster: Cluster) -> StreamOffset:
        facts, begins = await source_ranges.first_positions(cluster, self.wanted)
        first = StreamOffset({f.topic: f.topic_id for f in facts}, begins)
        return await positions.stamped(cluster, first, StreamOffset())

    async def _latest(
        self, cluster: Cluster, before: StreamOffset, most: int | None
    ) -> StreamOffset:
        """Return how far the stream may read. Raises what `_standing` raises."""
        facts = await self._standing(cluster, before)
        self._refuse_deleted(before, facts)
        committed, nowhere = self.choice.committed, StreamOffset()
        self.end = stream_offset.advanced(nowhere, facts, committed=committed)
        after = stream_offset.advanced(
            before, facts, committed=committed, most=most, target=self.target
        )
        return await positions.stamped(cluster, after, before)

    async def _standing(self, cluster: Cluster, before: StreamOffset) -> list[PartitionFacts]:
        """Return the partitions that are read from `before` on, as they are now.

        Raises RefusedError and IncompleteError if the stream cannot continue.
        """
        lossy = not self.choice.fail_on_data_loss
        facts = await source_ranges.partitions(cluster, self.wanted, lossy=lossy)
        topic_partitions = {f.topic_partition for f in facts}
        gone = sorted(before.positions.keys() - topic_partitions)
        if gone and not lossy:
            topic, partition = gone[0]
            raise IncompleteError(
                "the stream has read it, and it is gone, or is not what the options name any more",
                where=f"{topic}-{partition}",
                remedy="name it again; failOnDataLoss=false goes on without it",
            )
        for text in await positions.refuse_other_streams(cluster, before, facts):
            if text not in self.noted:
                self.noted.add(text)
                print(f"eoctl: {text}", file=sys.stderr)
        return facts

    async def _unchanged(
        self, cluster: Cluster, last: StreamOffset, spans: list[Span]
    ) -> list[PartitionFacts]:
        """Return the partitions that a batch reads, as they are now.

        Raises RefusedError and IncompleteError if they are not the ones that the batch has to read.
        """
        topics = sorted({s.topic for s in spans})
        topic_partitions = {s.topic_partition for s in spans}
        there = await source_ranges.existing(cluster, topics)
        facts = [f for f in there if f.topic_partition in topic_partitions]
        for topic, partition in sorted(topic_partitions - {f.topic_partition for f in facts}):
            raise IncompleteError(
                "it is gone, with records that a batch has to read",
                where=f"{topic}-{partition}",
                remedy=ANEW,
            )
        await positions.refuse_other_streams(cluster, last, facts)
        return facts

    def _refuse_deleted(self, before: StreamOffset, facts: list[PartitionFacts]) -> None:
        if self.choice.fail_on_data_loss:
            stream_offset.refuse_deleted(before, facts)

    async def _asked(self, ask: Callable[[Cluster], Awaitable[T]]) -> T:
        settings, deadline = self.access.settings(), Deadline(LOAD_SECONDS)
        async with Cluster(settings, deadline, read_only=True) as cluster:
            return await ask(cluster)

    def _patient(self, ask: Callable[[Cluster], Awaitable[T]]) -> T:
        """Return what the cluster answers, see `source_ranges.patient`."""
        return asyncio.run(source_ranges.patient(lambda: self._asked(ask)))
