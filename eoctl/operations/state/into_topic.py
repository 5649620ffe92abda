"""Deliver a finished state into a topic, exactly once: its partition p into the topic's p.

Each transaction also commits how many rows the partition has (group NAME-eoctl-deliver, on the
topic's own partitions). The first one commits 0 and no row, before any row is sent: a topic with
records and no number is not from an earlier attempt.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer, committed, last_committed
from eoctl.operations.change.granted import refuse_ungranted
from eoctl.operations.change.steps import SETTLE_SECONDS, Effect
from eoctl.operations.state.delivery import DeliveredState, DeliveryRequest
from eoctl.operations.state.sending import Sending
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, no_topic
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.arrays import int64_values, null_mask, one_chunk
from recovery.formats.columns import ABORTED
from recovery.inspect.rights import needs_of_copy
from recovery.plurals import counted
from recovery.shared.digest import Digest, digest
from recovery.state.manifest import log_facts

TRANSACTION_MS = 60_000
AT_ONCE = 2_000  # rows between two checks of the time
_SETTINGS = ("message.timestamp.type", "cleanup.policy", "retention.ms", "retention.bytes")
_KEEPS_TOMBSTONES = ("streams-versioned",)


class IntoTopic:
    """See `steps.Operation`: a step for each partition."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        request: DeliveryRequest,
        state: DeliveredState,
    ) -> None:
        assert request.topic is not None
        self._cluster, self._settings = cluster, settings
        self._request, self._source, self._topic = request, state, request.topic
        self._group = f"{self._topic}-eoctl-deliver"
        self._read: dict[tuple[int, int], Digest] = {}

    @property
    def name(self) -> str:
        return f"topic {self._topic}"

    @property
    def note(self) -> str:
        return ""

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Return the state, and the topic with the settings that matter."""
        self._cluster.forgive()
        topic = (await self._cluster.metadata([self._topic])).topics.get(self._topic)
        if topic is None or topic.error == "UNKNOWN_TOPIC_OR_PARTITION":
            raise no_topic(
                self._topic,
                len(self._source.partitions),
                self._cluster.settings.bootstrap_servers,
            )
        if topic.error is not None:
            raise IncompleteError(f"cannot be seen: {topic.error}", where=self._topic)
        settings, missing = await configs.topic_configs(self._cluster, [self._topic], _SETTINGS)
        if missing:
            raise IncompleteError(missing[0].detail, where=self._topic)
        return {
            "state": self._source.facts,
            self.name: {
                "topic_id": topic.topic_id,
                "partitions": len(topic.partitions),
                "settings": settings[self._topic],
            },
        }

    async def refuse_ungranted(self, steps: Sequence[Step]) -> None:
        """Raise RefusedError if the topic may not be read and written, or its group not."""
        needs = needs_of_copy([self._topic], [self._topic], self._group)
        await refuse_ungranted(self._cluster, needs)

    async def steps(self) -> list[Step]:
        topic: Any = (await self.observe(()))[self.name]
        partitions = self._source.partitions
        if topic["partitions"] != len(partitions):
            raise RefusedError(
                f"it has {counted(topic['partitions'], 'partition')}, {self._source.changelog} has "
                f"{len(partitions)}: partition p goes to partition p",
                where=self._topic,
            )
        self._refuse_format()
        oldest = await asyncio.to_thread(self._oldest)
        self._refuse_settings(topic["settings"], oldest)
        now, facts = await self._last_committed(), await self._facts()
        for p in partitions:
            self._rows_of(now.get(TopicPartition(self._topic, p)), topic["topic_id"], facts[p])
        return [
            Step(
                action="deliver",
                target=f"{self._topic}:{p}",
                parameters={
                    "wish": self._request.facts,
                    "partition": p,
                    "topic_id": topic["topic_id"],
                    "rows": part.digest.rows,
                },
                does=f"{counted(part.digest.rows, 'entry', 'entries')} in the order of their "
                f"offsets to {self._topic}:{p}",
                stands_on=("state", self.name),
            )
            for p, part in sorted(partitions.items())
        ]

    def _refuse_format(self) -> None:
        """Refuse a format whose rows are not the complete changelog that a restore needs."""
        source = self._source
        if source.manifest.format in _KEEPS_TOMBSTONES:
            raise RefusedError(
                "entries alone do not show a version that a null value ended",
                where=f"a {source.manifest.format} state into {self.name}",
            )
        if source.manifest.format == "coast":
            for p, part in source.partitions.items():
                last: dict[str, Any] = {}
                first = max(0, part.digest.rows - 1)
                for rows in source.rows.in_order(TopicPartition(source.changelog, p), first):
                    last = rows.slice(len(rows) - 1).to_pylist()[0]
                if part.seen and any(last.get(k) != part.seen.get(k) for k in part.seen):
                    raise RefusedError(
                        "the last attached offsets are those of a deleted entry: without its "
                        "record a restore would begin too early",
                        where=f"{source.changelog}-{p}",
                        remedy="deliver it into a table with --with-offsets",
                    )

    def _oldest(self) -> int:
        """Return the lowest timestamp. Raises RefusedError for a row that cannot keep its own."""
        oldest = now_ms()
        for p in self._source.partitions:
            topic_partition = TopicPartition(self._source.changelog, p)
            for rows in self._source.rows.all_rows(topic_partition):
                times = one_chunk(rows.column("timestamp"))
                values = int64_values(times)
                wrong = null_mask(times) | (values <= 0)
                if wrong.any():
                    offset = int64_values(one_chunk(rows.column("offset")))[wrong][0]
                    raise RefusedError(
                        "its timestamp is none, or not after 1970-01-01T00:00:00Z: it would be "
                        "written with the present time",
                        where=f"{topic_partition[0]}-{p}, offset {offset}",
                    )
                oldest = min(oldest, int(values.min(initial=oldest)))
        return oldest

    def _refuse_settings(self, settings: Mapping[str, str | None], oldest: int) -> None:
        """Refuse a topic that would change or drop written rows."""
        why = None
        facts = log_facts(settings, 0, now_ms())
        if settings.get("message.timestamp.type") != "CreateTime":
            why = "message.timestamp.type is not CreateTime: timestamps would be lost"
        elif "delete" in facts.cleanup_policy:
            if facts.retention_bytes is not None:
                why = "it deletes above retention.bytes"
            elif facts.retention_ms is not None and oldest < facts.now_ms - facts.retention_ms:
                why = "its retention.ms would delete the oldest entry, because timestamps are kept"
        if why is not None:
            raise RefusedError(
                why,
                where=self._topic,
                remedy="use a topic with other settings, like cleanup.policy=compact",
            )

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Send the missing rows. Return how many rows, for the journal."""
        p = int(step.parameters["partition"])
        writer = Writer(
            self._settings, f"{self._group}-{p}", self._group, timeout_ms=TRANSACTION_MS
        )
        sending = Sending(
            writer, TopicPartition(self._topic, p), self._metadata(step, p), ensure_held
        )
        await asyncio.to_thread(writer.open)  # first: it fences, then the position is final
        try:
            sending.first = sending.rows = await self._begin(step, p, sending)
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

    async def _begin(self, step: Step, p: int, sending: "Sending") -> int:
        """Return how many rows are written. Raises RefusedError for rows of another writer."""
        partition = TopicPartition(self._topic, p)
        now, facts = await committed(self._cluster, self._group, [partition]), await self._facts()
        rows = self._rows_of(now.get(partition), step.parameters["topic_id"], facts[p])
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

    def _send(self, p: int, sending: "Sending") -> None:
        for rows in self._source.rows.in_order(
            TopicPartition(self._source.changelog, p), sending.first
        ):
            for low in range(0, len(rows), AT_ONCE):
                sending.send(rows.slice(low, AT_ONCE))
            sending.end()  # reading the next rows may take longer than a transaction may be open

    async def verify(self, step: Step) -> Effect:
        """Read the topic back, and compare its rows with the state's by digest."""
        self._cluster.forgive()
        p, rows = int(step.parameters["partition"]), int(step.parameters["rows"])
        partition = TopicPartition(self._topic, p)
        now, facts = await self._last_committed(), (await self._facts())[p]
        there = self._rows_of(now.get(partition), step.parameters["topic_id"], facts)
        if there is None:
            return Effect(False, None, f"nothing is delivered to {partition}", untouched=True)
        if there < rows:
            return Effect(False, there, f"{partition} has {there:,} of {counted(rows, 'row')}")
        if facts.last_stable_offset != facts.high_watermark:
            return Effect(False, there, f"a transaction is open in {partition}")
        actual = await self._digest(facts)
        expected = self._source.partitions[p].digest.digest()
        saw = {"rows": actual.rows, "sha256_sum": actual.hex}
        if actual != expected:
            has = f"{partition} has {counted(actual.rows, 'record')}"
            detail = f"{has} and not the state's digest: others write"
            return Effect(False, saw, detail)
        return Effect(
            True,
            saw,
            f"{partition} holds the state's {counted(rows, 'row')}, digest {actual.hex[:16]}…",
        )

    async def _last_committed(self) -> dict[TopicPartition, CommittedPosition]:
        partitions = [TopicPartition(self._topic, p) for p in self._source.partitions]
        return (await last_committed(self._cluster, self._group, partitions))[0]

    def _digest_of(self, topic_id: str | None, p: int) -> str:
        """Return a digest of what must not change between attempts."""
        text = json.dumps([self._source.facts, self._topic, topic_id, p], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]

    def _metadata(self, step: Step, p: int) -> str:
        fields = {"deliver": self._digest_of(step.parameters["topic_id"], p)}
        return json.dumps(fields, separators=(",", ":"))

    def _rows_of(
        self, position: CommittedPosition | None, topic_id: str | None, facts: PartitionFacts
    ) -> int | None:
        """Return how many rows are committed, None if this delivery may begin.

        Raises RefusedError for what it did not write.
        """
        try:
            fields = {} if position is None else json.loads(position.metadata)
            same = fields["deliver"] == self._digest_of(topic_id, facts.partition)
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

    async def _facts(self) -> dict[int, PartitionFacts]:
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
        facts = (await self._facts())[p]
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

    async def _digest(self, facts: PartitionFacts) -> Digest:
        """Return the digest of all visible records; records read before are not read again."""
        end = facts.last_stable_offset or 0
        key = (facts.partition, end)
        if key not in self._read:
            total = Digest()
            start = facts.log_start_offset or 0
            async for records in read_columns(
                self._cluster, Range(self._topic, facts.partition, start, end)
            ):
                visible = records.select(records.outcome != ABORTED).rows()
                total += await asyncio.to_thread(digest, facts.partition, visible)
            self._read[key] = total
        return self._read[key]
