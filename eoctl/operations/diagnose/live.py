"""Answer as a Source from a live cluster: each question goes to the brokers.

Modules are loaded when a request needs them: lists start without the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect import lists as inspect
from eoctl.operations.inspect.lists import Scope, TxnFilter
from recovery.facts import (
    Facts,
    GroupFacts,
    GroupTimes,
    Missing,
    PartitionFacts,
    TopicPartition,
    Transactions,
)
from recovery.values import Value

if TYPE_CHECKING:
    from eoctl.operations.inspect.source import Configs, OnFirstLook, StateLogs
    from recovery.diagnose.contest import Contests
    from recovery.diagnose.diagnosis import Diagnosis
    from recovery.diagnose.group_verdict import Unread
    from recovery.diagnose.waiting_records import Waiting
    from recovery.doctor.findings import DoctorFacts
    from recovery.inspect.cluster_rows import StripRow
    from recovery.inspect.observation import Settings

AROUND = 100  # offsets on each side of the LSO that `why` draws
CHUNKS = 16  # of 4 MiB: read to count the waiting records of one partition
TOPIC_KEYS = ("cleanup.policy", "retention.ms")
BROKER_KEYS = ("transactional.id.expiration.ms", "offsets.retention.minutes")


class Held(Value):
    """The fetched batches of [start, end) of a partition. complete: false = some were not read."""

    buffers: tuple[bytes, ...]
    start: int
    end: int
    complete: bool

    def waiting(self, producer_id: int | None) -> Waiting:
        """Count the waiting records, and those of one producer among them."""
        from recovery.diagnose.waiting_records import waiting

        return waiting(self.buffers, self.start, self.end, producer_id, complete=self.complete)


class Live:
    """A Source whose answers come from the brokers."""

    def __init__(self, cluster: Cluster, *, often: bool = False) -> None:
        """often: asked every few seconds, so less of the newest records is read for contests."""
        self.cluster = cluster
        self._often = often

    @property
    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    def now(self) -> int:
        return now_ms()

    async def look(self, scope: Scope) -> Facts:
        return await inspect.look_at_partitions(self.cluster, scope)

    async def producers(self, scope: Scope, producer_ids: Sequence[int], *, resolve: bool) -> Facts:
        return await inspect.look_at_producers(self.cluster, scope, producer_ids, resolve=resolve)

    async def transactions(self, filter_: TxnFilter, *, describe: bool) -> Transactions:
        return await inspect.look_at_transactions(self.cluster, filter_, describe=describe)

    async def find(self, ids: Sequence[str]) -> tuple[Transactions, int]:
        from eoctl.kafka.ask import clocks, coordinators

        partitions = await coordinators.state_partitions(self.cluster)
        rows, missing = await coordinators.find(self.cluster, ids)
        transactions = Transactions(
            rows=tuple(rows),
            missing=tuple(missing),
            clocks=await clocks.measured(self.cluster, rows, now_ms),
        )
        return transactions, 0 if isinstance(partitions, Missing) else len(partitions)

    async def state_logs(
        self, ids: Sequence[str], producer_ids: Sequence[int], newest: int | None = None
    ) -> StateLogs:
        from eoctl.operations.inspect import history_answer

        return await history_answer.read_state_logs(self.cluster, ids, producer_ids, newest)

    async def diagnose(
        self, scope: Scope, settings: Settings, *, pause: float, on_first_look: OnFirstLook = None
    ) -> Diagnosis:
        from eoctl.operations.diagnose import judging as diagnose

        return await diagnose.diagnose(
            self.cluster,
            scope,
            settings,
            pause=pause,
            on_first_look=on_first_look,
        )

    async def contests(self) -> Contests:
        from eoctl.operations.diagnose import recent_contests

        return await recent_contests.recent_contests(self.cluster, self.now, often=self._often)

    async def examined(
        self, named: Sequence[str], transactions: Transactions | None = None
    ) -> DoctorFacts:
        from eoctl.operations.doctor.collecting import collect

        return await collect(self.cluster, named, transactions)

    async def groups(
        self, partitions: Sequence[TopicPartition] | None
    ) -> tuple[list[GroupFacts], list[Missing]]:
        from eoctl.kafka.ask import configs, groups
        from eoctl.kafka.read import committed

        listed, missing = await groups.list_groups(self.cluster)
        with_commits, more = await committed.with_offsets(self.cluster, listed, partitions)
        if partitions is not None:
            with_commits = [g for g in with_commits if g.offsets]
        described, also = await groups.describe_groups(self.cluster, with_commits)
        described = await configs.with_isolation(self.cluster, described)
        return described, [*missing, *more, *also]

    async def named_groups(self, names: Sequence[str]) -> tuple[list[GroupFacts], list[Missing]]:
        from eoctl.kafka.ask import configs, groups
        from eoctl.kafka.read import committed, pending_offsets

        facts, missing = await groups.find_groups(self.cluster, names)
        with_offsets, more = await committed.with_offsets(self.cluster, facts)
        with_offsets = await pending_offsets.groups_with_pending(self.cluster, with_offsets)
        with_offsets = await configs.with_isolation(self.cluster, with_offsets)
        return with_offsets, [*missing, *more]

    async def group_again(self, group: str, pause: float) -> GroupFacts | None:
        await asyncio.sleep(pause)
        found, _ = await self.named_groups([group])
        return found[0] if found else None

    async def unread(
        self, offsets: Mapping[TopicPartition, int], partitions: Sequence[PartitionFacts]
    ) -> Mapping[TopicPartition, Unread]:
        from eoctl.operations.inspect import unread

        return await unread.unread(self.cluster, offsets, partitions)

    async def group_times(
        self, groups: Sequence[str], since: int
    ) -> tuple[Mapping[str, GroupTimes], list[Missing]]:
        from eoctl.kafka.read import group_commits

        return await group_commits.group_times(self.cluster, groups, since)

    async def group_partition(self, group: str) -> TopicPartition | Missing | None:
        from eoctl.kafka.ask import groups

        metadata = await self.cluster.metadata([groups.CONSUMER_OFFSETS])
        return groups.group_partition(metadata.topics[groups.CONSUMER_OFFSETS], group)

    async def waiting(self, p: PartitionFacts, producer_id: int | None) -> Waiting | None:
        held = await self.held(p)
        return None if held is None else held.waiting(producer_id)

    async def held(self, p: PartitionFacts) -> Held | None:
        """Read from the LSO to the high watermark; return None if that cannot be read."""
        from eoctl.kafka.read.fetch import Range, read_all

        if p.last_stable_offset is None or p.high_watermark is None:
            return None
        held_range = Range(p.topic, p.partition, p.last_stable_offset, p.high_watermark)
        chunks, ended = await read_all(self.cluster, [held_range], most_chunks=CHUNKS)
        key = p.topic_partition
        end = ended[key]
        if end.error not in (None, "ENOUGH"):
            return None
        buffers = tuple(c.records for c in chunks[key])
        return Held(buffers, held_range.start, held_range.end, complete=end.error is None)

    async def strip(self, p: PartitionFacts) -> list[StripRow] | None:
        from eoctl.operations.inspect.marker_origins import strip_with_origins
        from eoctl.operations.inspect.partition_strip import stretches

        rows, missing = await stretches(self.cluster, p, AROUND)
        if missing or not rows:
            return None
        return await strip_with_origins(self.cluster, p.topic_partition, rows)

    async def log_sizes(
        self, topics: Sequence[str]
    ) -> tuple[Mapping[TopicPartition, int], list[Missing]]:
        from eoctl.kafka.ask import coordinators, log_dirs

        metadata = await self.cluster.metadata(list(topics))
        unseen = "the sizes of its logs cannot be found without DESCRIBE on this topic"
        described = [coordinators.partitions_of(t, unseen) for t in metadata.topics.values()]
        hidden = [found for found in described if isinstance(found, Missing)]
        partitions = [p for found in described if not isinstance(found, Missing) for p in found]
        sizes, missing = await log_dirs.log_sizes(self.cluster, partitions)
        return sizes, [*hidden, *missing]

    async def topic_configs(self, topics: Sequence[str]) -> tuple[Configs, list[Missing]]:
        from eoctl.kafka.ask import configs

        return await configs.topic_configs(self.cluster, topics, TOPIC_KEYS)

    async def expirations(self) -> tuple[Configs, list[Missing]]:
        from eoctl.kafka.ask import configs

        return await configs.broker_configs(self.cluster, BROKER_KEYS)
