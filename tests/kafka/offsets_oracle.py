"""What every offset of a partition is, as Kafka's own kind of clients see it, one by one."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab


@dataclass(frozen=True)
class Seen:
    """Offsets by kind. visible: given to a read_committed consumer; data: to a read_uncommitted
    one; control: markers as kafka-python decodes them."""

    log_start: int
    stable: int
    high: int
    visible: frozenset[int]
    data: frozenset[int]
    control: frozenset[int]

    def counts(self, start: int, end: int) -> dict[str, int]:
        """The five counts of [start, end) by the contract's words."""
        data = {o for o in self.data if start <= o < end}
        found = {
            "data_records": len(data & self.visible),
            "aborted_records": sum(o < self.stable for o in data - self.visible),
            "control_records": sum(start <= o < end for o in self.control),
            "open_records": sum(o >= self.stable for o in data),
        }
        return found | {"missing_offsets": end - start - sum(found.values())}


def look(lab: Lab, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Seen]:
    """Read these partitions from beginning to end, three times."""
    partitions = list(partitions)

    async def ends() -> tuple[list[tuple[int, int, int]], list[frozenset[int]]]:
        async with Client.to(lab.bootstrap_servers) as client:
            found = [await client.offsets(*partition) for partition in partitions]
            return found, [await _control(client, *partition) for partition in partitions]

    bounds, control = asyncio.run(ends())
    ranges = dict(zip(partitions, bounds, strict=True))
    visible = _consumed(lab, "read_committed", {p: (b[0], b[1]) for p, b in ranges.items()})
    data = _consumed(lab, "read_uncommitted", {p: (b[0], b[2]) for p, b in ranges.items()})
    return {
        partition: Seen(*ranges[partition], visible[partition], data[partition], marks)
        for partition, marks in zip(partitions, control, strict=True)
    }


async def _control(client: Client, topic: str, partition: int) -> frozenset[int]:
    return frozenset(
        record.offset
        for batch in await client.batches(topic, partition)
        if batch.is_control_batch
        for record in batch
    )


Ranges = dict[tuple[str, int], tuple[int, int]]


def consumed_number(lab: Lab, isolation: str, ranges: Ranges) -> int:
    """How many records a consumer gives out."""
    return sum(1 for _ in _messages(lab, isolation, ranges))


def _consumed(lab: Lab, isolation: str, ranges: Ranges) -> dict[tuple[str, int], frozenset[int]]:
    """Offsets that a consumer gives out, up to the end at its isolation level."""
    found: dict[tuple[str, int], set[int]] = {partition: set() for partition in ranges}
    for partition, offset in _messages(lab, isolation, ranges):
        found[partition].add(offset)
    return {partition: frozenset(offsets) for partition, offsets in found.items()}


def _messages(lab: Lab, isolation: str, ranges: Ranges) -> Iterator[tuple[tuple[str, int], int]]:
    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "error",
        }
    )
    left = {partition for partition, (start, end) in ranges.items() if start < end}
    consumer.assign([TopicPartition(*partition, ranges[partition][0]) for partition in left])
    while left:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            partition = (message.topic(), message.partition())
            if error is None:
                yield partition, message.offset()
            elif error.name() == "_PARTITION_EOF":
                left.discard(partition)
            else:
                raise AssertionError(error)
    consumer.close()
