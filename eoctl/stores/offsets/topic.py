"""Positions in a topic of the application: the JSON object is the value of one key.

Reads what a read_committed reader sees of that key, from the topic's end backwards. Kafka has no
compare-and-set: read, compare, write with acks=all, and read what comes after, so that a record of
another writer in between is found. Without a key the topic is a changelog with offsets attached,
which is only read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.kafka.ask import collect
from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read import fetch
from eoctl.kafka.read.chunks import visible_records
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Range
from eoctl.stores.offsets.bounded import BlockingCall, SilentError, bounded
from eoctl.stores.offsets.json_object import EMPTY, entries_of, kept_of, written
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    StoreEntry,
    Write,
    held_before,
    look_for,
    refuse_differences,
    unsent,
)
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.coast import decode_changelog
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record
from recovery.inspect.rights import missing_right
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition, next_positions
from recovery.shared.app_file import App
from recovery.shared.store_tables import TopicStore
from recovery.values import Value

LEAST_TAIL = 1000  # offsets, in the first read
MESSAGE_SECONDS = 5.0  # from the lock's yes until the record is given up
_REFUSED = frozenset(  # librdkafka's names of answers after which nothing is in the log
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG",
        "INVALID_RECORD",
        "MSG_SIZE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
    }
)


class _LastRecord(Value):
    """The last visible record of the key. None: none exists, or it is a tombstone."""

    ends: Mapping[int, int]  # partition to LSO
    highs: Mapping[int, int]  # partition to high watermark
    partition: int | None = None
    text: str | None = None


class TopicOffsets:
    """The store of [app.store] kind = "topic"."""

    compares = False

    def __init__(
        self, described: TopicStore, cluster: Cluster, app: App | None, seconds: float
    ) -> None:
        self._described = described
        self._cluster = cluster
        self._app = app
        self._seconds = seconds
        self._key = None if described.key is None else described.key.encode()
        under = "" if described.key is None else f" key {described.key}"
        self.name = f"topic {described.topic}{under}"

    async def read(self) -> Contents:
        if self._key is None:
            return await self._changelog()
        return self._contents(await self._find())

    def kept(self, position: StoredPartition) -> StoredValues:
        return kept_of(position, self._described.position)

    def _contents(self, last: _LastRecord) -> Contents:
        if last.text is None:
            return Contents(exists=False)
        return Contents(True, entries_of(last.text, self._described.position, self.name))

    async def _partitions(self) -> list[PartitionFacts]:
        """Return the partitions with their offsets. Raises IncompleteError."""
        self._cluster.forgive()
        topic = self._described.topic
        metadata = (await self._cluster.metadata([topic])).topics[topic]
        if metadata.error is not None:
            raise IncompleteError(f"cannot be read: {metadata.error}", where=self.name)
        facts, missing = await collect.partition_offsets(
            self._cluster, [metadata], metadata.partitions
        )
        if missing:
            raise IncompleteError(f"{missing[0].error}: {missing[0].detail}", where=self.name)
        return list(facts)

    async def _last(
        self, facts: Sequence[PartitionFacts], key: bytes | None
    ) -> dict[TopicPartition, Record]:
        """Return the last visible record of each partition, or the last under the key."""
        lows = {f.topic_partition: f.log_start_offset or 0 for f in facts}
        highs = {f.topic_partition: f.last_stable_offset or 0 for f in facts}
        by_partition: dict[TopicPartition, Record] = {}
        size = LEAST_TAIL
        while ranges := [
            Range(*p, max(lows[p], high - size), high)
            for p, high in highs.items()
            if p not in by_partition and high > lows[p]
        ]:
            for record, partition in await self._read(ranges, READ_COMMITTED):
                if key is None or record.key == key:
                    by_partition[partition] = record
            for r in ranges:
                highs[r.topic_partition] = r.start
            size *= 8
        return by_partition

    async def _read(
        self, ranges: Sequence[Range], isolation: int
    ) -> list[tuple[Record, TopicPartition]]:
        """Return a key's records, or (no key) each partition's last. Raises IncompleteError."""
        by_key = {r.topic_partition: r for r in ranges}
        records: list[tuple[Record, TopicPartition]] = []
        async for item in fetch.read(self._cluster, ranges, isolation=isolation):
            partition = item.topic_partition
            if not isinstance(item, Chunk):
                if item.error is not None:
                    raise IncompleteError(
                        f"{item.error}: {item.detail}", where=f"{self.name}, {partition}"
                    )
                continue
            last: Record | None = None
            for record in visible_records(item, by_key[partition].start, by_key[partition].end):
                if self._key is None:
                    last = record
                elif record.key == self._key:
                    records.append((record, partition))
            if last is not None:
                records.append((last, partition))
        return records

    async def _find(self) -> _LastRecord:
        """Find the key. Raises CorruptError if it is in two partitions."""
        facts = await self._partitions()
        last = await self._last(facts, self._key)
        ends = {f.partition: f.last_stable_offset or 0 for f in facts}
        highs = {f.partition: f.high_watermark or 0 for f in facts}
        topic_partitions = sorted(
            topic_partition for topic_partition, record in last.items() if record.value is not None
        )
        if len(topic_partitions) > 1:
            raise CorruptError(
                f"the key is in the partitions {topic_partitions[0][1]} and "
                f"{topic_partitions[1][1]}: which one "
                "counts is not known",
                where=self.name,
            )
        if not topic_partitions:
            gone = sorted(topic_partition[1] for topic_partition in last)
            return _LastRecord(ends, highs, gone[0] if gone else None)
        try:
            text = (last[topic_partitions[0]].value or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptError("its value is not text", where=self.name) from None
        return _LastRecord(ends, highs, topic_partitions[0][1], text)

    async def _changelog(self) -> Contents:
        """Return the positions that each partition's last record carries."""
        app = self._app
        last = await self._last(await self._partitions(), None)
        if app is None:
            return Contents(exists=bool(last))
        kept = []
        for at, record in sorted(last.items()):
            try:
                change = decode_changelog(record.key, record.value)
            except CorruptError as error:
                raise error.within(f"{at} at {record.offset}") from None
            topic_partition = TopicPartition(app.inputs[0], at.partition)
            [output] = app.outputs_of(topic_partition)[:1]
            start = StoredOffset(
                topic=topic_partition[0], partition=at.partition, offset=change.upstream
            )
            end = StoredOutput(topic=output[0], partition=output[1], offset=change.downstream)
            kept.append(StoredPartition(input=start, output=(end,)))
        return Contents(
            exists=bool(last),
            entries=tuple(
                StoreEntry(p, kept_of(p, self._described.position))
                for p in next_positions(kept, self._described.position)
            ),
        )

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        if self._key is None:
            raise RefusedError("a changelog is its application's: never written", where=self.name)
        self._cluster.refuse_read_only(self.name)
        with unsent():
            last = await self._find()
            refuse_differences(self._contents(last), writes, self.name)
            await self._refuse_open(last)
        after = written(last.text, writes, self.name)
        if after is None and not dissolve:
            after = EMPTY
        if after is None and last.text is None:
            return
        offset = await self._produce(after, last.partition, ensure_held)
        if offset is None:  # no answer: reading again decides
            await look_for(self, writes, "no answer to what was produced")
        await self._look_for_others(last, offset)

    async def _refuse_open(self, last: _LastRecord) -> None:
        """Refuse while a transaction is open: it may hold a newer value, which replaces ours."""
        ranges = self._above(last.ends, last.highs)
        for record, partition in await self._read(ranges, READ_UNCOMMITTED) if ranges else ():
            raise RefusedError(
                f"an open transaction holds the key at {partition} offset {record.offset}",
                where=self.name,
                remedy="see `eoctl why`",
            )

    async def _look_for_others(self, last: _LastRecord, ours: tuple[int, int] | None) -> None:
        """Raise UnverifiedError if another writer's record came since we read.

        ours: None if no answer gave its offset: then it is the last record, which was searched for.
        """
        try:
            now = {f.partition: f.high_watermark or 0 for f in await self._partitions()}
            ranges = self._above(last.ends, now)
            since = await self._read(ranges, READ_UNCOMMITTED) if ranges else []
        except EoctlError as error:
            raise UnverifiedError(
                f"it was written, what came beside it cannot be seen: {error.sentence}",
                where=self.name,
            ) from None
        found = sorted((topic_partition[1], record.offset) for record, topic_partition in since)
        if ours is None and found:
            ours = max(found, key=lambda one: one[1])
        for partition, offset in found:
            if (partition, offset) != ours:
                assert ours is not None
                raise UnverifiedError(
                    f"another writer's record is at offset {offset} of partition {partition}, "
                    f"ours at {ours[1]} of {ours[0]}",
                    where=self.name,
                    remedy="the application is not stopped",
                )

    def _above(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Range]:
        topic = self._described.topic
        return [
            Range(topic, p, start, ends[p]) for p, start in starts.items() if start < ends.get(p, 0)
        ]

    async def _produce(
        self, value: str | None, partition: int | None, ensure_held: EnsureHeld
    ) -> tuple[int, int] | None:
        """Return (partition, offset) of the record; None: no answer. Raises RefusedError."""
        try:
            return await bounded(
                lambda job: self._produced(job, value, partition, ensure_held), 2 * self._seconds
            )
        except SilentError as error:
            if error.sent:
                return None
            raise RefusedError(f"{error}, nothing was written", where=self.name) from None
        except WireError as error:
            raise RefusedError(f"{error.detail}; nothing was written", where=self.name) from None

    def _produced(
        self, job: BlockingCall, value: str | None, partition: int | None, ensure_held: EnsureHeld
    ) -> tuple[int, int] | None:
        from confluent_kafka import KafkaException

        reports: list[tuple[Any, Any]] = []
        config = {
            "acks": "all",
            "retries": 0,  # sent once: a second copy would look like another writer's
            "message.timeout.ms": int(min(self._seconds, MESSAGE_SECONDS) * 1000),
            "partitioner": "murmur2_random",  # where Java's producers put this key
            "linger.ms": 0,
        }
        producer = confluent.producer(self._cluster.settings, config)
        try:  # metadata first: nothing may wait once the lock was checked
            producer.list_topics(self._described.topic, self._seconds)
        except KafkaException as error:
            raise RefusedError(
                f"{error.args[0].name()}; nothing was written", where=self.name
            ) from None
        held_before(ensure_held, written=False)
        job.writing()
        chosen = {} if partition is None else {"partition": partition}
        try:
            producer.produce(
                self._described.topic,
                value,
                self._key,
                on_delivery=lambda error, message: reports.append((error, message)),
                **chosen,
            )
        except KafkaException as error:  # not even queued
            raise RefusedError(
                f"{error.args[0].name()}; nothing was written", where=self.name
            ) from None
        producer.flush(self._seconds + 1)
        if not reports:
            producer.purge()
            producer.flush(1)
            return None
        wrong, message = reports[0]
        if wrong is None:
            return message.partition(), message.offset()
        if wrong.name() in _REFUSED:
            raise RefusedError(
                f"{wrong.name()}; nothing was written",
                where=self.name,
                remedy=missing_right(wrong.name(), self._described.topic),
            )
        return None
