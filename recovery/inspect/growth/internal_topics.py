"""How full `__transaction_state` and `__consumer_offsets` are, and where the log cleaner stops.

Kafka's log cleaner compacts a log up to its last stable offset (LogCleanerManager's
cleanableOffsets, KIP-664): records above an open transaction stay, whatever newer ones with their
keys follow. What is not known here: whether the cleaner's threads live, and how much of a log is
already clean (its checkpoint is a file of the broker, its metrics are JMX).
"""

from collections.abc import Mapping, Sequence

from recovery.facts import Facts, TopicPartition, grouped
from recovery.inspect.growth.growth_rows import InternalPartitionRow, InternalTopicRow
from recovery.inspect.inspection import lso_row


def internal_topics(facts: Facts, sizes: Mapping[TopicPartition, int]) -> list[InternalTopicRow]:
    """Return one row per topic. facts: its partitions, with what holds the held ones.

    sizes: bytes of the leaders' logs; a partition that is absent is unknown.
    """
    rows = grouped(
        (
            p.topic,
            InternalPartitionRow.of(
                lso_row(p, facts),
                offsets=_difference(p.high_watermark, p.log_start_offset),
                bytes=sizes.get(p.topic_partition),
            ),
        )
        for p in facts.partitions
    )
    return [_topic_row(topic, mine) for topic, mine in rows.items()]


def _topic_row(topic: str, rows: Sequence[InternalPartitionRow]) -> InternalTopicRow:
    sized = [(row.bytes, row.partition) for row in rows if row.bytes is not None]
    largest = max(sized, key=lambda pair: (pair[0], -pair[1]), default=(None, None))
    return InternalTopicRow(
        topic=topic,
        partitions=len(rows),
        offsets=_sum([row.offsets for row in rows]),
        bytes=_sum([row.bytes for row in rows]),
        largest_partition=largest[1],
        largest_bytes=largest[0],
        held=_sum([None if row.held is None else int(row.held > 0) for row in rows]),
        logs=list(rows),
    )


def _difference(end: int | None, start: int | None) -> int | None:
    return None if end is None or start is None else end - start


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
