"""`offsets count` and `offsets show`: exact counts of ranges, and the positions of groups.

Nothing is clamped or guessed: a range that does not exist, or could not be read, is a row with an
error.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, configs, groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import committed, pending_offsets
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.read.fetch import Range
from eoctl.kafka.read.pump import Reading as Reading
from eoctl.kafka.read.start_batches import one_per_partition
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.unread import first_timestamps
from recovery.answers import Answer, error_rows
from recovery.errors import UsageError
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing, PartitionFacts, TopicPartition
from recovery.inspect.group_offsets import (
    FirstUnread,
    Retention,
    TimeLags,
    offsets_count_row,
    offsets_show_rows,
    retention_of,
)
from recovery.plurals import counted
from recovery.selectors import Selector
from recovery.shared.offset_bounds import Bound, range_problem

_MOST_OFFSETS = 1_000  # read for one answer, the longest lags first: at most 256 KiB of each
_ROUNDS_AT_ONCE = 8  # of many groups on one partition
_RETENTION_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")


async def count_offsets(
    cluster: Cluster,
    selectors: Sequence[Selector],
    start: Bound,
    end: Bound,
    reading: Reading,
) -> Answer:
    """Count what became of each offset in [start, end) of the partitions named."""
    if start.kind == end.kind == "offset" and start.value > end.value:
        raise UsageError(f"the range runs backwards: {start.value} is above {end.value}")
    facts, ranges, missing = await bounded(cluster, selectors, start, end)
    cuts: list[Cuts] = []
    errors: dict[TopicPartition, str] = {}
    for f in facts:
        partition = f.topic_partition
        if partition not in ranges:
            errors[partition] = f.error or "OFFSET_NOT_AVAILABLE"
            continue
        problem = range_problem(*ranges[partition], f)
        if problem is not None:
            missing.append(Missing("partition", *problem, None, *partition))
            errors[partition] = problem[0]
            continue
        cuts.append(_cuts(f, ranges[partition]))
    counts, more = await count(cluster, cuts, reading)
    missing += more
    errors |= {TopicPartition(m.topic or "", m.partition or 0): m.error for m in more}
    rows = [
        offsets_count_row(
            partition,
            ranges.get(partition),
            counts[partition][0] if partition in counts else None,
            errors.get(partition),
        )
        for partition in (f.topic_partition for f in facts)
    ]
    return Answer("offsets-count", cluster.cluster_id, now_ms(), rows, error_rows(missing))


async def bounded(
    cluster: Cluster, selectors: Sequence[Selector], start: Bound, end: Bound
) -> tuple[list[PartitionFacts], dict[TopicPartition, tuple[int, int]], list[Missing]]:
    """Return the named partitions, the offsets of the range in each, and what was not seen.

    A partition without offsets from a broker has no range; a range may run backwards.
    """
    metadata, partitions, missing = await selected(cluster, Scope(tuple(selectors)))
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    missing += more
    instants = [b.value for b in (start, end) if b.kind == "time"]
    times, more = await collect.offsets_at(cluster, partitions, instants)
    missing += more
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for f in facts:
        at = times.get(f.topic_partition)
        if f.error is None and at is not None:
            low, high = (b.resolve(f, at.get(b.value)) for b in (start, end))
            ranges[f.topic_partition] = low, high
    return facts, ranges, missing


def _cuts(facts: PartitionFacts, offsets: tuple[int, ...]) -> Cuts:
    assert facts.log_start_offset is not None
    assert facts.last_stable_offset is not None
    return Cuts(
        facts.topic, facts.partition, offsets, facts.log_start_offset, facts.last_stable_offset
    )


async def show_offsets(
    cluster: Cluster,
    names: Sequence[str],
    selectors: Sequence[Selector],
    *,
    counting: Reading | None = None,
    in_time: bool = False,
) -> Answer:
    """Compare the named groups' (none = all) committed offsets with LSO and high watermark.

    counting: read the logs and count the records that wait for each group. in_time: read the first
    of them, for the lag in seconds and the margin before retention.
    """
    missing: list[Missing] = []
    partitions: list[TopicPartition] | None = None
    if selectors:
        _, chosen, missing = await selected(cluster, Scope(tuple(selectors)))
        partitions = [p.topic_partition for p in chosen]
    find = groups.find_groups(cluster, names) if names else groups.list_groups(cluster)
    group_facts, more = await find
    missing += more
    missing += [
        Missing("group", groups.NOT_FOUND, "no such group", id=g.group)
        for g in group_facts
        if g.state == "Dead"
    ]
    group_facts, more = await committed.with_offsets(cluster, group_facts, partitions)
    missing += more
    offsets = [o for g in group_facts for o in g.offsets]
    extra = {"groups": _states(group_facts)}
    return await against_logs(
        cluster, offsets, missing, counting=counting, in_time=in_time, extra=extra
    )


async def against_logs(
    cluster: Cluster,
    offsets: Sequence[GroupOffsetFacts],
    missing: list[Missing],
    *,
    counting: Reading | None,
    in_time: bool,
    extra: Mapping[str, object],
) -> Answer:
    """Return the rows of `offsets show`. missing: what could not be seen of the offsets."""
    facts, more = await _partitions_of(cluster, offsets)
    missing += more
    offsets = await pending_offsets.with_pending(cluster, offsets)
    records: dict[TopicPartition, dict[int, int]] = {}
    if counting is not None:
        records, more = await _waiting(cluster, offsets, facts, counting)
        missing += more
    times, left_out = None, 0
    if in_time:
        times, left_out, more = await lag_times(cluster, offsets, facts)
        missing += more
    return Answer(
        "offsets-show",
        cluster.cluster_id,
        now_ms(),
        offsets_show_rows(offsets, facts, data_records=records, times=times),
        error_rows(missing),
        extra=extra,
        notes=_time_notes(left_out),
    )


def _time_notes(left_out: int) -> tuple[str, ...]:
    if not left_out:
        return ()
    shortest = f"{counted(left_out, 'offset')} with the shortest lags"
    return (f"the lag in seconds was not read for {shortest}: name groups or topics",)


def _states(groups: Sequence[GroupFacts]) -> list[dict[str, object]]:
    """Return every group that was read, even those without any offset."""
    return [{"group": g.group, "type": g.type, "state": g.state} for g in groups]


async def _partitions_of(
    cluster: Cluster, offsets: Sequence[GroupOffsetFacts]
) -> tuple[dict[TopicPartition, PartitionFacts], list[Missing]]:
    """Return the partitions that offsets were committed for, after the offsets were read."""
    facts, missing = await at_partitions(cluster, {o.topic_partition for o in offsets})
    return {f.topic_partition: f for f in facts}, missing


async def at_partitions(
    cluster: Cluster, topic_partitions: Collection[TopicPartition]
) -> tuple[list[PartitionFacts], list[Missing]]:
    """Return the offsets of these partitions, of those among them that exist."""
    metadata = await cluster.metadata(sorted({topic for topic, _ in topic_partitions}))
    topics = metadata.topics.values()
    partitions = [p for t in topics for p in t.partitions if p.topic_partition in topic_partitions]
    return await collect.partition_offsets(cluster, topics, partitions)


async def _waiting(
    cluster: Cluster,
    offsets: Sequence[GroupOffsetFacts],
    facts: dict[TopicPartition, PartitionFacts],
    reading: Reading,
) -> tuple[dict[TopicPartition, dict[int, int]], list[Missing]]:
    """Return committed offset → visible records from there to the LSO. Each log is read once.

    A log that is not read because of `reading.most` has no entry.
    """
    starts: dict[TopicPartition, set[int]] = {}
    for o in offsets:
        if o.committed_offset is not None and not o.is_share:
            starts.setdefault(o.topic_partition, set()).add(o.committed_offset)
    waiting: dict[TopicPartition, dict[int, int]] = {}
    cuts = []
    for partition, commits in starts.items():
        f = facts.get(partition)
        if f is None or f.last_stable_offset is None:
            continue
        stable = f.last_stable_offset
        waiting[partition] = {start: 0 for start in commits if start >= stable}
        below = sorted(start for start in commits if start < stable)
        if below:
            cuts.append(_cuts(f, (*below, stable)))
    if reading.most is not None:
        cuts.sort(key=lambda c: c.offsets[-1] - c.offsets[0])
        ends = accumulate(c.offsets[-1] - c.offsets[0] for c in cuts)
        cuts = [c for c, end in zip(cuts, ends, strict=True) if end <= reading.most]
    counts, missing = await count(cluster, cuts, reading)
    for c in cuts:
        total = 0
        pieces = counts.get(c.topic_partition, [])
        for start, piece in zip(reversed(c.offsets[:-1]), reversed(pieces), strict=False):
            total += piece.data
            waiting[c.topic_partition][start] = total
    return waiting, missing


async def lag_times(
    cluster: Cluster,
    offsets: Sequence[GroupOffsetFacts],
    partitions: Mapping[TopicPartition, PartitionFacts],
) -> tuple[TimeLags, int, list[Missing]]:
    """Return what is known of the lags in time, how many offsets were left out, and what is hidden.

    One small Fetch per offset that lags, all leaders in parallel, and one DescribeConfigs. An
    offset at the LSO or above is known without a Fetch: nothing waits for it. Of an offset below
    the log start the first record that survives is read.
    """
    first, ranges = _known_or_to_read(offsets, partitions)
    unread: list[Missing] = []
    rounds = one_per_partition(ranges[:_MOST_OFFSETS])
    for at in range(0, len(rounds), _ROUNDS_AT_ONCE):
        together = rounds[at : at + _ROUNDS_AT_ONCE]
        answers = await asyncio.gather(*(first_timestamps(cluster, one) for one in together))
        for one, (timestamps, more) in zip(together, answers, strict=True):
            unread += more
            starts = {r.topic_partition: r.start for r in one}
            for key, timestamp in timestamps.items():
                first.setdefault(key, {})[starts[key]] = FirstUnread(timestamp)
    retention, missing = await _retention(cluster, {r.topic for r in ranges})
    left_out = max(0, len(ranges) - _MOST_OFFSETS)
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


async def _retention(
    cluster: Cluster, topics: Iterable[str]
) -> tuple[dict[str, Retention], list[Missing]]:
    settings, missing = await configs.topic_configs(cluster, sorted(topics), _RETENTION_KEYS)
    found = {topic: retention_of(values) for topic, values in settings.items()}
    return {topic: r for topic, r in found.items() if r is not None}, missing
