"""The records of single transactions in the logs: how many, where, and which marker ended them.

A transaction is meant by (producer id, producer epoch), which names one alone where its producer
calls initTransactions for each, as Flink's sink does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import READ_UNCOMMITTED, Chunk, Range
from eoctl.kafka.read.fetch import read
from recovery.facts import Missing, TopicPartition
from recovery.formats.batches import batch_headers
from recovery.formats.records import ControlType, marker

Transaction = tuple[int, int]
"""Producer id and producer epoch."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a transaction wrote to one partition. first, last: offsets of its records.

    outcome: `commit` or `abort` of the marker at offset `marker` that ended it here; None = none
    was read.
    """

    records: int
    first: int
    last: int
    outcome: str | None = None
    marker: int | None = None


async def written(
    cluster: Cluster, ranges: Collection[Range], wanted: Collection[Transaction]
) -> tuple[dict[Transaction, dict[TopicPartition, Written]], list[Missing]]:
    """Return what each transaction wrote in these ranges; read exactly, batch by batch.

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
    place = (chunk.topic, chunk.partition)
    producers = {pid for pid, _ in found}
    for header in batch_headers(chunk.records):
        if header.producer_id not in producers or header.base_offset < chunk.fetch_offset:
            continue
        if header.is_control:
            said = marker(chunk.records, header)
            if said is None or said.type is ControlType.OTHER:
                continue
            for (pid, epoch), places in found.items():
                ended = places.get(place)
                # the first marker behind its records, with its epoch or a later one, ends it
                if pid != header.producer_id or ended is None or ended.outcome is not None:
                    continue
                if header.producer_epoch >= epoch:
                    places[place] = replace(
                        ended, outcome=said.type.value, marker=header.base_offset
                    )
            continue
        one = (header.producer_id, header.producer_epoch)
        if not header.is_transactional or one not in found:
            continue
        before = found[one].get(place)
        first = header.base_offset if before is None else before.first
        count = header.records_count + (before.records if before else 0)
        found[one][place] = Written(count, first, header.last_offset)
