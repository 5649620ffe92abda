"""Deliver a finished state into a topic, exactly once: its partition p into the topic's p.

How one partition gets there: `eoctl.engine.topic_delivery`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from eoctl.engine.delivered import DeliveredState
from eoctl.engine.topic_delivery import TopicDelivery
from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.steps import Effect, die_here_in_tests
from eoctl.operations.state.delivery import DeliveryRequest
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, no_topic
from recovery.facts import TopicPartition
from recovery.formats.arrays import int64_values, null_mask, one_chunk
from recovery.inspect.rights import Need, needs_of_copy
from recovery.plurals import counted
from recovery.state.manifest import log_facts

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
        self._cluster = cluster
        self._request, self._source, self._topic = request, state, request.topic
        self.there = TopicDelivery(cluster, settings, state, request.topic)

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

    def needs(self, step: Step) -> frozenset[Need]:
        """Return the step's rights: what was delivered is read back."""
        return needs_of_copy([self._topic], [self._topic], self.there.group)

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

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
        now, facts = await self.there.last_committed(), await self.there.facts()
        for p in partitions:
            self.there.rows_of(now.get(TopicPartition(self._topic, p)), topic["topic_id"], facts[p])
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
        p, topic_id = int(step.parameters["partition"]), step.parameters["topic_id"]
        return await self.there.deliver(p, topic_id, ensure_held, _point)

    async def verify(self, step: Step) -> Effect:
        """Read the topic back, and compare its rows with the state's by digest."""
        self._cluster.forgive()
        p, rows = int(step.parameters["partition"]), int(step.parameters["rows"])
        partition = TopicPartition(self._topic, p)
        now, facts = await self.there.last_committed(), (await self.there.facts())[p]
        there = self.there.rows_of(now.get(partition), step.parameters["topic_id"], facts)
        if there is None:
            return Effect(False, None, f"nothing is delivered to {partition}", untouched=True)
        if there < rows:
            return Effect(False, there, f"{partition} has {there:,} of {counted(rows, 'row')}")
        if facts.last_stable_offset != facts.high_watermark:
            return Effect(False, there, f"a transaction is open in {partition}")
        actual = await self.there.digest(facts)
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


def _point(name: str) -> None:
    die_here_in_tests(f"deliver-{name}")
