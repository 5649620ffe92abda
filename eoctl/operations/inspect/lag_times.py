"""Read for each committed offset the first record that waits: the lag of groups in time.

One small Fetch per offset that lags, all leaders in parallel, and one DescribeConfigs.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Range
from eoctl.operations.inspect.unread import first_timestamps
from recovery.facts import GroupOffsetFacts, Missing, PartitionFacts, TopicPartition
from recovery.inspect.group_offsets import FirstUnread, Retention, TimeLags, retention_of

MOST_OFFSETS = 1_000  # read for one answer, the longest lags first: at most 256 KiB of each
ROUNDS_AT_ONCE = 8  # of many groups on one partition
KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")


async def lag_times(
    cluster: Cluster,
    offsets: Sequence[GroupOffsetFacts],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> tuple[TimeLags, int, list[Missing]]:
    """Return what is known of the lags in time, how many offsets were left out, and what is hidden.

    An offset at the LSO or above is known without a Fetch: nothing waits for it. Of an offset below
    the log start the first record that survives is read.
    """
    first, ranges = _known_or_to_read(offsets, partitions)
    unread: list[Missing] = []
    rounds = _one_per_partition(ranges[:MOST_OFFSETS])
    for at in range(0, len(rounds), ROUNDS_AT_ONCE):
        together = rounds[at : at + ROUNDS_AT_ONCE]
        answers = await asyncio.gather(
            *(first_timestamps(cluster, [*r.values()]) for r in together)
        )
        for asked, (timestamps, more) in zip(together, answers, strict=True):
            unread += more
            for key, timestamp in timestamps.items():
                first.setdefault(key, {})[asked[key].start] = FirstUnread(timestamp)
    retention, missing = await _retention(cluster, {r.topic for r in ranges})
    left_out = max(0, len(ranges) - MOST_OFFSETS)
    return TimeLags(now_ms(), first, retention), left_out, [*dict.fromkeys(unread), *missing]


def _known_or_to_read(
    offsets: Iterable[GroupOffsetFacts], partitions: Mapping[TopicPartition, PartitionFacts]
) -> tuple[dict[TopicPartition, dict[int, FirstUnread]], list[Range]]:
    """Return the offsets that nothing waits for, and what to read for the others, longest first."""
    first: dict[TopicPartition, dict[int, FirstUnread]] = {}
    ranges: list[Range] = []
    committed = {(o.topic_partition, o.committed_offset) for o in offsets if not o.is_share}
    wanted = {
        (p, max(offset, p.log_start_offset or 0))
        for key, offset in committed
        if offset is not None and (p := partitions.get(key)) is not None
    }
    for p, offset in sorted(wanted, key=lambda pair: (pair[0].topic_partition, pair[1])):
        if p.last_stable_offset is None:
            continue
        if offset < p.last_stable_offset:
            ranges.append(Range(*p.topic_partition, offset, p.last_stable_offset))
        elif offset <= (p.high_watermark or 0):
            first.setdefault(p.topic_partition, {})[offset] = FirstUnread(None)
    return first, sorted(ranges, key=lambda r: r.start - r.end)


def _one_per_partition(ranges: Iterable[Range]) -> list[dict[TopicPartition, Range]]:
    """Return rounds with each partition at most once: one read takes one range per partition."""
    rounds: list[dict[TopicPartition, Range]] = []
    for r in ranges:
        free = next((found for found in rounds if r.topic_partition not in found), None)
        if free is None:
            rounds.append(free := {})
        free[r.topic_partition] = r
    return rounds


async def _retention(
    cluster: Cluster, topics: Iterable[str]
) -> tuple[dict[str, Retention], list[Missing]]:
    settings, missing = await configs.topic_configs(cluster, sorted(topics), KEYS)
    found = {topic: retention_of(values) for topic, values in settings.items()}
    return {topic: r for topic, r in found.items() if r is not None}, missing
