"""Deliver a partition of a finished state into a topic's, on either engine; read it back.

Each transaction also commits how many rows the partition has (group NAME-eoctl-deliver, on the
topic's own partitions). The first one commits 0 and no row, before any row is sent: a topic with
records and no number is not from an earlier attempt. An attempt fences all others before it reads
how far they came.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable

from eoctl.engine.delivered import DeliveredState
from eoctl.engine.sending import Sending
from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer, committed, last_committed
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.columns import ABORTED
from recovery.plurals import counted
from recovery.shared.digest import Digest, digest

SETTLE_SECONDS = 10.0  # how long a new leader's last stable offset may lag
TRANSACTION_MS = 60_000
AT_ONCE = 2_000  # rows between two checks of the time


class TopicDelivery:
    """A state's way into one topic. group: whose offsets say how many rows are there."""

    def __init__(
        self, cluster: Cluster, settings: ClientSettings, state: DeliveredState, topic: str
    ) -> None:
        self._cluster, self._settings = cluster, settings
        self._state, self._topic = state, topic
        self.group = f"{topic}-eoctl-deliver"
        self.read: dict[tuple[int, int, int], Digest] = {}  # partition, start and end

    async def deliver(
        self,
        p: int,
        topic_id: str | None,
        ensure_held: Callable[[], None],
        at: Callable[[str], None] = lambda point: None,
    ) -> dict[str, int]:
        """Send a partition's missing rows. Return how many were sent, and how many are there.

        ensure_held: called before each transaction ends; raises if the lock is lost. at: see
        Sending. Raises RefusedError if nothing of it was written, IncompleteError.
        """
        writer = Writer(self._settings, f"{self.group}-{p}", self.group, timeout_ms=TRANSACTION_MS)
        partition, metadata = TopicPartition(self._topic, p), self._metadata(topic_id, p)
        sending = Sending(writer, partition, metadata, ensure_held, at)
        await asyncio.to_thread(writer.open)  # first: it fences, then the position is final
        try:
            sending.first = sending.rows = await self._begin(p, topic_id, sending)
            await asyncio.to_thread(self._send, p, sending)
        except RefusedError as error:
            await asyncio.to_thread(writer.abort)
            if sending.rows == sending.first:
                raise
            raise IncompleteError(  # not a refusal: some of it is written
                f"{error.what}; {counted(sending.rows, 'row is', 'rows are')} there",
                where=error.where,
            ) from None
        except BaseException:
            await asyncio.to_thread(writer.abort)
            raise
        finally:
            await asyncio.to_thread(writer.close)
        return {"sent": sending.rows - sending.first, "rows": sending.rows}

    async def settled(self, p: int) -> PartitionFacts:
        """Return a partition's offsets once all of it is stable, or after a few seconds."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            facts = (await self.facts())[p]
            if facts.last_stable_offset == facts.high_watermark or time.monotonic() > until:
                return facts
            await asyncio.sleep(0.5)

    async def _begin(self, p: int, topic_id: str | None, sending: Sending) -> int:
        """Return how many rows are written. Raises RefusedError for rows of another writer."""
        partition = TopicPartition(self._topic, p)
        now, facts = await committed(self._cluster, self.group, [partition]), await self.facts()
        rows = self.rows_of(now.get(partition), topic_id, facts[p])
        if rows is None:
            await asyncio.to_thread(sending.commit, 0)
            return 0
        end = time.monotonic() + SETTLE_SECONDS  # a new leader's last stable offset may lag
        while (visible := await self._visible(p)) != rows:
            if time.monotonic() > end:
                raise RefusedError(
                    f"{counted(rows, 'row was', 'rows were')} delivered there, but it holds "
                    f"{counted(visible, 'record')}: somebody else writes or deletes",
                    where=str(partition),
                    remedy="deliver into a new topic",
                )
            await asyncio.sleep(0.5)
        return rows

    def _send(self, p: int, sending: Sending) -> None:
        for rows in self._state.rows.in_order(
            TopicPartition(self._state.changelog, p), sending.first
        ):
            for low in range(0, len(rows), AT_ONCE):
                sending.send(rows.slice(low, AT_ONCE))
            sending.end()  # reading the next rows may take longer than a transaction may be open

    async def last_committed(self) -> dict[TopicPartition, CommittedPosition]:
        """Return what deliveries have committed, by partition of the topic."""
        partitions = [TopicPartition(self._topic, p) for p in self._state.partitions]
        return (await last_committed(self._cluster, self.group, partitions))[0]

    def _identity(self, topic_id: str | None, p: int) -> str:
        """Return a digest of what must not change between attempts."""
        text = json.dumps([self._state.facts, self._topic, topic_id, p], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]

    def _metadata(self, topic_id: str | None, p: int) -> str:
        return json.dumps({"deliver": self._identity(topic_id, p)}, separators=(",", ":"))

    def rows_of(
        self, position: CommittedPosition | None, topic_id: str | None, facts: PartitionFacts
    ) -> int | None:
        """Return how many rows are committed, None if this delivery may begin.

        Raises RefusedError for what it did not write.
        """
        try:
            fields = {} if position is None else json.loads(position.metadata)
            same = fields["deliver"] == self._identity(topic_id, facts.partition)
        except (ValueError, KeyError, TypeError):
            same = False
        if same:
            assert position is not None
            return position.offset
        if not facts.high_watermark and (position is None or position.offset == 0):
            return None  # another delivery may have ended before its first row
        why = "it has been written to, and not by an earlier attempt that is still known"
        if position is not None:
            why = "another state was delivered there"
        raise RefusedError(why, where=str(facts.topic_partition), remedy="deliver into a new topic")

    async def facts(self) -> dict[int, PartitionFacts]:
        """Return all partitions with all offsets. Raises IncompleteError."""
        topics = (await self._cluster.metadata([self._topic])).topics.values()
        partitions = [p for t in topics for p in t.partitions]
        facts, missing = await collect.partition_offsets(self._cluster, topics, partitions)
        if missing or any(f.error or f.last_stable_offset is None for f in facts):
            why = missing[0].detail if missing else "the broker did not return its offsets"
            raise IncompleteError(f"cannot be read: {why}", where=self._topic)
        return {f.partition: f for f in facts}

    async def _visible(self, p: int) -> int:
        """Count the records that a read_committed reader gets, from the first offset on."""
        facts = (await self.facts())[p]
        assert facts.log_start_offset is not None
        assert facts.last_stable_offset is not None
        if facts.last_stable_offset == facts.log_start_offset:
            return 0
        cuts = Cuts(
            self._topic,
            p,
            (facts.log_start_offset, facts.last_stable_offset),
            facts.log_start_offset,
            facts.last_stable_offset,
        )
        counted, missing = await count(self._cluster, [cuts])
        if missing:
            raise IncompleteError(missing[0].detail, where=f"{self._topic}:{p}")
        return counted[TopicPartition(self._topic, p)][0].data

    async def digest(self, facts: PartitionFacts) -> Digest:
        """Return the digest of all visible records; records read before are not read again."""
        start, end = facts.log_start_offset or 0, facts.last_stable_offset or 0
        key = (facts.partition, start, end)
        if key not in self.read:
            total = Digest()
            async for records in read_columns(
                self._cluster, Range(self._topic, facts.partition, start, end)
            ):
                visible = records.select(records.outcome != ABORTED).rows()
                total += await asyncio.to_thread(digest, facts.partition, visible)
            self.read[key] = total
        return self.read[key]
