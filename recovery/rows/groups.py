"""From facts to the rows of `offsets show` and `offsets count`. No judgement."""

from collections.abc import Iterable, Mapping

from recovery.facts import GroupOffsetFacts, PartitionFacts, TopicPartition
from recovery.formats.counting import Counts
from recovery.rows.offsets import OffsetsCountRow, OffsetsShowRow

GroupPartition = tuple[str, str, int]


def offsets_show_rows(
    offsets: Iterable[GroupOffsetFacts],
    partitions: Mapping[TopicPartition, PartitionFacts],
    *,
    pending_producers: Mapping[GroupPartition, int],
    data_records: Mapping[TopicPartition, Mapping[int, int]],
) -> list[OffsetsShowRow]:
    """One row per committed offset, by group, topic, partition.

    data_records: for each committed offset that was counted, records from there to the LSO.
    """
    rows = []
    for o in sorted(offsets, key=lambda o: (o.group, o.topic, o.partition)):
        ends = partitions.get((o.topic, o.partition), PartitionFacts(o.topic, o.partition))
        stable, high, committed = ends.last_stable_offset, ends.high_watermark, o.committed_offset
        counted = data_records.get((o.topic, o.partition), {})
        rows.append(
            OffsetsShowRow.of(
                o,
                committed_offset=committed,
                pending_producer_id=pending_producers.get((o.group, o.topic, o.partition)),
                last_stable_offset=stable,
                high_watermark=high,
                lag=None if stable is None or committed is None else stable - committed,
                lag_hw=None if high is None or committed is None else high - committed,
                data_records=None if committed is None else counted.get(committed),
                error=o.error or ends.error,
            )
        )
    return rows


def offsets_count_row(
    place: TopicPartition,
    bounds: tuple[int, int] | None,
    counts: Counts | None,
    error: str | None = None,
) -> OffsetsCountRow:
    """One partition's row: counts, or the error that stood in the way."""
    return OffsetsCountRow(
        topic=place[0],
        partition=place[1],
        start=None if bounds is None else bounds[0],
        end=None if bounds is None else bounds[1],
        data_records=None if counts is None else counts.data,
        aborted_records=None if counts is None else counts.aborted,
        control_records=None if counts is None else counts.control,
        open_records=None if counts is None else counts.open,
        missing_offsets=None if counts is None else counts.missing,
        error=error,
    )
