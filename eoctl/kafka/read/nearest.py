"""Choose followers that leaders name for a reader's rack (KIP-392), and prove their records.

A follower gives bytes and judges nothing: what it refuses, lacks or has damaged is requested from
the leader, which is also asked, after a range was read, whether its log has those records. Kafka's
consumer does likewise (AbstractFetch.selectReadReplica and FetchCollector), except for the last
step: it may have read from a follower what an unclean election took away.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages, raw_fetch
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.raw_fetch import PartitionData
from eoctl.kafka.read.chunks import Range
from recovery.facts import TopicPartition
from recovery.formats.batches import header_positions, verify_crcs

PLACED_SECONDS = 300.0  # Kafka's metadata.max.age.ms: after it the leaders are asked again
BEHIND_SECONDS = 1.5  # a follower in sync learns a high watermark within 0.5 s
MOST_PARTITIONS = 200  # per request

Leaders = Mapping[TopicPartition, tuple[int | None, int]]
"""Leader and leader epoch of each partition."""


class Followers:
    """The followers that one Reader reads from.

    of: the follower that now serves each partition; the leader serves the others. unproven:
    partitions with a follower's records that no leader was asked about since.
    """

    def __init__(self, cluster: Cluster, rack: str) -> None:
        self.of: dict[TopicPartition, int] = {}
        self.unproven: set[TopicPartition] = set()
        self._cluster = cluster
        self._rack = rack
        self._placed = time.monotonic()
        self._not_before: dict[TopicPartition, float] = {}
        self._behind_since: dict[TopicPartition, float] = {}

    async def choose(
        self, todo: Mapping[TopicPartition, Range], leaders: Leaders, isolation: int
    ) -> None:
        """Ask the leaders which follower to read for each range, if any.

        Only one that, says the leader, has the range's start: below the leader's log start, and at
        the end of what it shows, the leader answers.
        """
        self.of = {}
        self._placed = now = time.monotonic()
        if not self._rack:
            return
        by_leader: dict[int, list[Range]] = {}
        for key, r in todo.items():
            leader = leaders[key][0]
            if leader is None or r.start >= r.end or self._not_before.get(key, now) > now:
                continue
            known = self._cluster.brokers.get(leader)
            if known is None or known.rack != self._rack:
                by_leader.setdefault(leader, []).append(r)
        questions = {
            (leader, at): partial(
                self._cluster.ask,
                leader,
                question(
                    ranges[at : at + MOST_PARTITIONS],
                    leaders,
                    isolation,
                    most_bytes=1,
                    partition_bytes=1,
                    max_wait_ms=0,
                    rack=self._rack,
                ),
                least=raw_fetch.LEAST,
                most=raw_fetch.MOST,
            )
            for leader, ranges in by_leader.items()
            for at in range(0, len(ranges), MOST_PARTITIONS)
        }
        answers, _ = await self._cluster.ask_each(questions)  # silent ones show when read
        for (leader, _), answer in answers.items():
            for p in answer.partitions:
                key = TopicPartition(p.topic, p.partition)
                limit = p.last_stable_offset if isolation else p.high_watermark
                start = todo[key].start
                follower = p.preferred_replica
                if p.error_code or not p.log_start_offset <= start < limit:
                    continue
                if follower not in (leader, -1) and follower in self._cluster.brokers:
                    self.of[key] = follower

    @property
    def are_due(self) -> bool:
        """Return True if it is time to ask the leaders again."""
        return bool(self._rack) and time.monotonic() - self._placed > PLACED_SECONDS

    def leave(self, key: TopicPartition) -> None:
        """Read a partition from its leader, for some time."""
        self._not_before[key] = time.monotonic() + PLACED_SECONDS
        self._behind_since.pop(key, None)

    def is_behind(self, key: TopicPartition) -> bool:
        """Return True if a follower that gave nothing again is not worth any more waiting."""
        now = time.monotonic()
        return now - self._behind_since.setdefault(key, now) > BEHIND_SECONDS

    def gave(self, p: PartitionData) -> None:
        """Note records from a follower. Raises CorruptError for a damaged copy."""
        verify_crcs(p.records, header_positions(p.records))
        self._behind_since.pop(p.topic_partition, None)
        self.unproven.add(p.topic_partition)


def question(
    ranges: list[Range],
    leaders: Leaders,
    isolation: int,
    *,
    most_bytes: int,
    partition_bytes: int,
    max_wait_ms: int,
    rack: str = "",
) -> Any:
    """Return a Fetch of these ranges from their starts. rack: the leader may name a follower."""
    request = messages.RawFetchRequest
    topic, partition = request.FetchTopic, request.FetchTopic.FetchPartition
    grouped: dict[str, list[Any]] = {}
    for r in ranges:
        grouped.setdefault(r.topic, []).append(
            partition(
                partition=r.partition,
                current_leader_epoch=leaders[r.topic_partition][1],
                fetch_offset=r.start,
                log_start_offset=-1,
                partition_max_bytes=min(partition_bytes, most_bytes),
            )
        )
    return request(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=most_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=name, partitions=rows) for name, rows in grouped.items()],
        forgotten_topics_data=[],
        rack_id=rack,
    )
