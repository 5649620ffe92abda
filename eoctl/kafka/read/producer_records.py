"""Read single transactions' records in the logs: how many, where, and which marker ended them.

A transaction is identified by (producer id, producer epoch). The pair is unique if the producer
calls initTransactions for each transaction, as Flink's sink does.
"""

from collections.abc import Collection, Mapping

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import READ_UNCOMMITTED, Chunk, Range
from eoctl.kafka.read.fetch import read
from recovery.facts import Missing, TopicPartition
from recovery.formats.batches import MAX_SEQUENCE, batch_headers
from recovery.formats.records import ControlType, marker
from recovery.remedy.salvage import Written
from recovery.values import replace

Transaction = tuple[int, int]
"""Producer id and producer epoch."""


async def written(
    cluster: Cluster, ranges: Collection[Range], wanted: Collection[Transaction]
) -> tuple[dict[Transaction, dict[TopicPartition, Written]], list[Missing]]:
    """Return what each transaction wrote in these ranges, read batch by batch.

    What could not be read is named in the second part: then the numbers are "at least".
    """
    found: dict[Transaction, dict[TopicPartition, Written]] = {one: {} for one in wanted}
    missing: list[Missing] = []
    kept = [r for r in ranges if r.start < r.end]
    async for item in read(cluster, kept, isolation=READ_UNCOMMITTED):
        if isinstance(item, Chunk):
            _add(found, item)
        elif item.error is not None:
            missing.append(
                Missing(
                    "partition",
                    item.error,
                    f"it was read up to offset {item.position} only: {item.detail or item.error}",
                    topic=item.topic,
                    partition=item.partition,
                )
            )
    return found, missing


def _add(found: Mapping[Transaction, dict[TopicPartition, Written]], chunk: Chunk) -> None:
    partition = chunk.topic_partition
    producers = {pid for pid, _ in found}
    for header in batch_headers(chunk.records):
        if header.producer_id not in producers or header.base_offset < chunk.fetch_offset:
            continue
        if header.is_control:
            said = marker(chunk.records, header)
            if said is None or said.type is ControlType.OTHER:
                continue
            for (pid, epoch), by_partition in found.items():
                ended = by_partition.get(partition)
                # the first marker after its records, with its epoch or a later one, ends it
                if pid != header.producer_id or ended is None or ended.outcome is not None:
                    continue
                if header.producer_epoch >= epoch:
                    by_partition[partition] = replace(
                        ended,
                        outcome=said.type.value,
                        marker=header.base_offset,
                        ended_at=header.max_timestamp,
                    )
            continue
        one = (header.producer_id, header.producer_epoch)
        if not header.is_transactional or one not in found:
            continue
        before = found[one].get(partition) or Written(0, header.base_offset, header.last_offset)
        count, span = header.records_count, header.last_offset - header.base_offset + 1
        gap = (header.base_sequence - before.next) & MAX_SEQUENCE
        found[one][partition] = replace(
            before,
            records=before.records + count,
            last=header.last_offset,
            lacking=before.lacking + gap + span - count,
            next=(header.base_sequence + span) & MAX_SEQUENCE,
            behind=before.behind + (count if before.outcome else 0),
        )
