"""From facts to the rows of `offsets show` and `offsets count`. No judgement."""

from collections.abc import Iterable, Mapping

from recovery.facts import GroupOffsetFacts, PartitionFacts, TopicPartition
from recovery.formats.counting import Counts
from recovery.inspect.cluster_rows import OffsetsCountRow, OffsetsShowRow


def offsets_show_rows(
    offsets: Iterable[GroupOffsetFacts],
    partitions: Mapping[TopicPartition, PartitionFacts],
    *,
    data_records: Mapping[TopicPartition, Mapping[int, int]],
) -> list[OffsetsShowRow]:
    """One row per committed offset, by group, topic, partition.

    data_records: for each committed offset that was counted, records from there to the LSO.
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
                error=o.error or ends.error,
            )
        )
    return rows


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
    """One partition's row: counts, or the error that stood in the way."""
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
