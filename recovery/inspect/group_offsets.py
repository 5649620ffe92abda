"""From facts to the rows of `offsets show` and `offsets count`. No judgement."""

from collections.abc import Iterable, Mapping
from typing import Literal

from recovery.facts import GroupOffsetFacts, PartitionFacts, TopicPartition, known
from recovery.formats.counting import Counts
from recovery.inspect.cluster_rows import OffsetsCountRow, OffsetsShowRow
from recovery.inspect.inspection import seconds_since
from recovery.values import Value

RetentionLimit = Literal["time", "size", "time-and-size", "none"]


class FirstUnread(Value):
    """Of a committed offset: the first record that waits for a read_committed reader.

    timestamp: the record's own, ms; None: nothing waits.
    """

    timestamp: int | None


class Retention(Value):
    """When a topic deletes records: after ms, above so many bytes; None = never for that."""

    ms: int | None
    size: int | None

    @property
    def limit(self) -> RetentionLimit:
        """Return which of both is in force."""
        if self.ms is None:
            return "none" if self.size is None else "size"
        return "time" if self.size is None else "time-and-size"


def retention_of(settings: Mapping[str, str | None]) -> Retention | None:
    """Return the retention that a topic's settings mean; None: they are not known.

    Only the cleanup policy `delete` deletes for age or size (KIP-71). -1 is no limit.
    """
    policy, ms, size = (
        settings.get(key) for key in ("cleanup.policy", "retention.ms", "retention.bytes")
    )
    if policy is None or ms is None or size is None:
        return None
    if "delete" not in policy.split(","):
        return Retention(None, None)
    return Retention(known(int(ms)), known(int(size)))


class TimeLags(Value):
    """What was read for lags in time. now: epoch ms, our clock.

    first: by partition and committed offset, or log start if that is above; one that was not read
    is left out. retention: by
    topic; a topic whose settings are hidden is left out.
    """

    now: int
    first: Mapping[TopicPartition, Mapping[int, FirstUnread]]
    retention: Mapping[str, Retention]


def offsets_show_rows(
    offsets: Iterable[GroupOffsetFacts],
    partitions: Mapping[TopicPartition, PartitionFacts],
    *,
    data_records: Mapping[TopicPartition, Mapping[int, int]],
    times: TimeLags | None = None,
) -> list[OffsetsShowRow]:
    """Return one row per committed offset, by group, topic, partition.

    data_records: for each committed offset that was counted, records from there to the LSO.
    times: None = no record was read for its timestamp.
    """
    rows = []
    for o in sorted(offsets, key=lambda o: (o.group, o.topic, o.partition)):
        ends = partitions.get(o.topic_partition, PartitionFacts(o.topic, o.partition))
        stable, high, committed = ends.last_stable_offset, ends.high_watermark, o.committed_offset
        counted = data_records.get(o.topic_partition, {})
        rows.append(
            OffsetsShowRow.of(
                o,
                committed_offset=committed,
                last_stable_offset=stable,
                high_watermark=high,
                lag=_lag(o, stable),
                lag_hw=_lag(o, high),
                data_records=None if committed is None or o.is_share else counted.get(committed),
                **_in_time(o, ends, times),
                error=o.error or ends.error,
            )
        )
    return rows


def _in_time(
    o: GroupOffsetFacts, ends: PartitionFacts, times: TimeLags | None
) -> dict[str, float | str | None]:
    """Return the row's lag in seconds, the margin before retention and what limits the topic."""
    row: dict[str, float | str | None] = dict.fromkeys(
        ("lag_seconds", "retention_margin_seconds", "retention")
    )
    committed, start = o.committed_offset, ends.log_start_offset
    if times is None or o.is_share or committed is None or start is None:
        return row
    retention = times.retention.get(o.topic)
    row["retention"] = None if retention is None else retention.limit
    first = times.first.get(o.topic_partition, {}).get(max(committed, start))
    if committed < start:
        row["retention_margin_seconds"] = 0.0
    if first is None:
        return row
    if first.timestamp is None:
        return row | {"lag_seconds": 0.0}
    row["lag_seconds"] = seconds_since(first.timestamp, times.now)
    if committed >= start and retention is not None and retention.ms is not None:
        row["retention_margin_seconds"] = (first.timestamp + retention.ms - times.now) / 1000
    return row


def _lag(o: GroupOffsetFacts, end: int | None) -> int | None:
    """Return how many offsets lie between a group and an end; of a share group what Kafka says.

    A share group acknowledges records one by one: many above its start offset may be done.
    """
    if o.is_share:
        return o.lag
    return None if end is None or o.committed_offset is None else end - o.committed_offset


def offsets_count_row(
    topic_partition: TopicPartition,
    bounds: tuple[int, int] | None,
    counts: Counts | None,
    error: str | None = None,
) -> OffsetsCountRow:
    """Return one partition's row: counts, or the error that prevented them."""
    return OffsetsCountRow(
        topic=topic_partition[0],
        partition=topic_partition[1],
        start=None if bounds is None else bounds[0],
        end=None if bounds is None else bounds[1],
        data_records=None if counts is None else counts.data,
        aborted_records=None if counts is None else counts.aborted,
        control_records=None if counts is None else counts.control,
        open_records=None if counts is None else counts.open,
        missing_offsets=None if counts is None else counts.missing,
        error=error,
    )
