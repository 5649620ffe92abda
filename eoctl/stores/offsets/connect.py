"""Source offsets of a Kafka Connect connector: read from its topics, changed by its workers.

A connector with its own `offsets.storage.topic` writes them there, in its records' transactions;
the workers' topic then holds a copy, and offsets that the own topic lacks. Tasks start from the
topics; the workers' GET must agree. A PATCH is accepted only while the connector is STOPPED. Kafka
Connect has no compare-and-set: read, compare, PATCH, read again.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import fetch
from eoctl.kafka.read.chunks import visible_records
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Range
from eoctl.stores.offsets.bounded import BlockingCall, SilentError, bounded
from eoctl.stores.offsets.connect_rest import Connector, ConnectRest
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    Write,
    held_before,
    refuse_differences,
    unsent,
    write_at_once,
)
from recovery.errors import IncompleteError, RefusedError, UnreachableError
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record
from recovery.quoting import quoted
from recovery.restart.source_offsets import canonical, source_partition
from recovery.restart.stored import StoredPartition
from recovery.shared.store_tables import ConnectStore
from recovery.state.changelogs.connect_offsets import decode_key

OWN_TOPIC = "offsets.storage.topic"
_OWN_CLUSTER = "producer.override.bootstrap.servers"
PATCH_SECONDS = 95.0  # a worker gives up after 90 s (its RequestTimeout)


class ConnectOffsets:
    """The store of [app.store] kind = "connect"."""

    compares = False

    def __init__(self, described: ConnectStore, cluster: Cluster, seconds: float) -> None:
        self._described = described
        self._cluster = cluster
        self._seconds = seconds
        self._rest = ConnectRest(described, seconds)
        self.name = f"connector {described.connector} at {described.url.rstrip('/')}"

    async def read(self) -> Contents:
        connector = await self._connector()
        self._refuse_others(connector)
        topics = [self._described.offsets_topic]
        if own := connector.config.get(OWN_TOPIC):
            topics.append(str(own))  # later topics override earlier ones
        by_topic = await asyncio.gather(*(self._topic(name) for name in dict.fromkeys(topics)))
        offsets = {p: o for found in by_topic for p, o in found.items() if o is not None}
        self._refuse_disagreement(connector, offsets)
        entries = {source_partition(p): {"offset": offset} for p, offset in sorted(offsets.items())}
        return Contents(True, sources=entries)

    def kept(self, position: StoredPartition) -> StoredValues:
        raise RefusedError("it holds source offsets, none of a topic", where=self.name)

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        self._cluster.refuse_read_only(self.name)
        with unsent():
            refuse_differences(await self.read(), writes, self.name)
        rows = [
            {
                "partition": json.loads(w.topic),
                "offset": None if w.after is None else json.loads(w.after["offset"]),
            }
            for w in writes
        ]
        if not rows:
            return
        rest = ConnectRest(self._described, PATCH_SECONDS)

        def work(job: BlockingCall) -> None:
            held_before(ensure_held, written=False)
            rest.patch(job, rows)

        lost = "the answer to the PATCH was lost"
        await write_at_once(self, writes, work, PATCH_SECONDS + 1, lost)

    async def _connector(self) -> Connector:
        try:
            return await bounded(lambda job: self._rest.connector(), 4 * self._seconds)
        except SilentError as error:
            raise UnreachableError(str(error), where=self.name) from None

    def _refuse_others(self, connector: Connector) -> None:
        """Refuse connectors whose offsets cannot be read or changed."""
        name = self._described.connector
        if connector.type != "source":
            group = connector.config.get("consumer.override.group.id") or f"connect-{name}"
            raise RefusedError(
                f"it is a sink connector: its offsets are those of group {quoted(group)}",
                where=self.name,
                remedy=f"stop it, then: eoctl restart plan --group {group} and where to",
            )
        if connector.cluster_id not in (None, self._cluster.cluster_id):
            raise RefusedError(
                f"its workers use Kafka cluster {connector.cluster_id}, this is "
                f"{self._cluster.cluster_id}",
                where=self.name,
            )
        if connector.config.get(OWN_TOPIC) and _OWN_CLUSTER in connector.config:
            raise RefusedError(
                f"its own offsets topic is in another cluster ({_OWN_CLUSTER})", where=self.name
            )
        if connector.state != "STOPPED" or connector.tasks:
            left = ", with tasks" if connector.tasks else ""
            raise RefusedError(
                f"the connector is {connector.state}{left}: its offsets may move, and cannot be "
                "changed",
                where=self.name,
                remedy=f"stop it: {self._rest.stop_command()}",
            )

    def _refuse_disagreement(self, connector: Connector, offsets: dict[str, str]) -> None:
        told: dict[str, str | None] = {}
        for row in connector.offsets:
            if not isinstance(row, dict) or not {"partition", "offset"} <= row.keys():
                raise CorruptError(f"an offset is {quoted(canonical(row))}", where=self.name)
            told[canonical(row["partition"])] = (
                None if row["offset"] is None else canonical(row["offset"])
            )
        for partition in sorted({*told, *offsets}):
            here, there = offsets.get(partition), told.get(partition)
            if here != there:
                raise RefusedError(
                    f"the topic holds {here or 'nothing'} for {partition}, the worker says "
                    f"{there or 'nothing'}",
                    where=self.name,
                    remedy="a moment after a change, try again; else the worker cannot find what "
                    "the task wrote (the order of the partition's keys), see docs/connect.md",
                )

    async def _topic(self, topic: str) -> dict[str, str | None]:
        """Return the connector's offsets in a topic, by source partition; None: removed.

        Raises IncompleteError, CorruptError.
        """
        self._cluster.forgive()
        where = f"{self.name}, topic {topic}"
        metadata = (await self._cluster.metadata([topic])).topics[topic]
        if metadata.error is not None:
            raise IncompleteError(f"cannot be read: {metadata.error}", where=where)
        facts, missing = await collect.partition_offsets(
            self._cluster, [metadata], metadata.partitions
        )
        if missing:
            raise IncompleteError(f"{missing[0].error}: {missing[0].detail}", where=where)
        stable, open_ = [], []
        for f in facts:
            low, lso, high = f.log_start_offset, f.last_stable_offset, f.high_watermark
            if low is None or lso is None or high is None:
                raise IncompleteError(
                    "its offsets could not be read", where=f"{where}:{f.partition}"
                )
            stable += [Range(topic, f.partition, low, lso)] if low < lso else []
            open_ += [Range(topic, f.partition, lso, high)] if lso < high else []
        by_key: dict[bytes, tuple[int, str, str | None]] = {}
        for record, number, partition in await self._records(stable, READ_COMMITTED, where):
            known = by_key.get(record.key or b"")
            if known is not None and known[0] != number:
                raise CorruptError(
                    f"{partition} is in its partitions {known[0]} and {number}", where=where
                )
            by_key[record.key or b""] = number, partition, _offset(record, where)
        for record, number, partition in await self._records(open_, READ_UNCOMMITTED, where):
            raise IncompleteError(
                f"an open transaction holds an offset of {partition} at {topic}:{number}, offset "
                f"{record.offset}",
                where=self.name,
                remedy="see `eoctl why`",
            )
        offsets: dict[str, str | None] = {}
        for _, partition, offset in by_key.values():
            if offset is not None and offsets.get(partition) is not None:
                raise RefusedError(
                    f"{partition} is stored under two keys that differ in the order of their "
                    "fields: the task reads one of them, the workers' GET and PATCH the other",
                    where=where,
                    remedy="see docs/connect.md",
                )
            offsets[partition] = offset or offsets.get(partition)
        return offsets

    async def _records(
        self, ranges: Sequence[Range], isolation: int, where: str
    ) -> list[tuple[Record, int, str]]:
        """Return the connector's records, each with its partition and source partition."""
        by_key = {r.topic_partition: r for r in ranges}
        found: list[tuple[Record, int, str]] = []
        if not ranges:
            return found
        async for item in fetch.read(self._cluster, ranges, isolation=isolation):
            if not isinstance(item, Chunk):
                if item.error is not None:
                    raise IncompleteError(f"{item.error}: {item.detail}", where=where)
                continue
            mine = by_key[item.topic_partition]
            for record in visible_records(item, mine.start, mine.end):
                connector, partition = decode_key(record.key or b"")
                if connector == self._described.connector and partition is not None:
                    found.append((record, item.partition, partition))
        return found


def _offset(record: Record, where: str) -> str | None:
    """Return a record's source offset; None for a tombstone. Raises CorruptError."""
    if record.value is None:
        return None
    try:
        value: Any = json.loads(record.value)
    except (ValueError, RecursionError):
        raise CorruptError(
            f"the value at offset {record.offset} is not JSON", where=where
        ) from None
    return None if value is None else canonical(value)
