"""Large logs with faults in them, on a real broker: batches made once, sent with new numbers.

The broker refuses wrong sequences of producers that it remembers: a lab that is to hold them
forgets producers within a second (FORGETFUL).
"""

import asyncio
import json
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import jsonschema
from kafka.record.util import calc_crc32c

from eoctl.kafka.connection import messages
from eoctl.lab import admin
from eoctl.lab.client import Client, refuse
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.formats.transaction_state import MAX_EPOCH
from tests.kafka.command import Ran
from tests.unit.formats_build import Item, batch

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"

FORGETFUL = {
    "producer.id.expiration.ms": "300",
    "producer.id.expiration.check.interval.ms": "100",
}
FORGET_SECONDS = 0.8

_made: dict[int, bytes] = {}


def flip_a_bit(lab: Lab, topic: str, value: bytes) -> None:
    """Of the record with this value in partition 0, in the file of broker 1."""
    (log,) = lab.data_folder(1).rglob(f"{topic}-0/*.log")
    content = log.read_bytes()
    at = content.index(value)
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), bytes([content[at] ^ 1]), at)


async def led_uncleanly(lab: Lab, topic: str, leader: int, successor: int) -> None:
    """Let partition 0 have these replicas, of which the second may lead without the first's end."""
    async with Client.to(lab.bootstrap_servers) as client:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        await admin.set_config(client, admin.TOPIC, topic, config)
        await led_in_sync(client, topic, (leader, successor))


async def led_in_sync(client: Client, topic: str, replicas: Sequence[int]) -> None:
    """Let the first of the replicas lead partition 0, and wait until all of them are in sync."""
    await admin.set_replicas(client, topic, 0, replicas[:1])
    await admin.set_replicas(client, topic, 0, replicas)
    end = time.monotonic() + 30
    while set((await client.partitions(topic))[0].in_sync or ()) != set(replicas):
        assert time.monotonic() < end, "they are not in sync"
        await asyncio.sleep(0.1)


async def with_last_epoch(client: Client, name: str, timeout_ms: int = 60_000) -> Producer:
    """An id after 32,766 starts: its producer has the last epoch that clients get."""
    first = await Producer.init(client, name, timeout_ms)
    coordinator = await client.coordinator(name)
    start_again = messages.InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    epoch = first.epoch
    while epoch < MAX_EPOCH - 1:
        answer = await client.cluster.ask(coordinator, start_again, most=4)
        refuse(answer.error_code, f"InitProducerId of {name!r}")
        assert answer.producer_id == first.producer_id
        epoch = answer.producer_epoch
    return Producer(client, first.producer_id, epoch, name)


def numbered(count: int, producer_id: int, epoch: int, sequence: int) -> bytes:
    """A batch of `count` records with these numbers."""
    if count not in _made:
        now = int(time.time() * 1000)  # or retention takes it
        _made[count] = batch(0, [Item(i, now, value=b"%d" % i) for i in range(count)])
    out = bytearray(_made[count])
    struct.pack_into(">qhi", out, 43, producer_id, epoch, sequence)
    struct.pack_into(">I", out, 17, calc_crc32c(memoryview(out)[21:]))
    return bytes(out)


KEY = b"key %010d"
KEYED_AT = int(time.time() * 1000)
_keyed: dict[int, tuple[bytes, list[int]]] = {}


def keyed(numbers: Sequence[int]) -> bytes:
    """A batch of unlike records: `KEY % number` each, all of one time and value."""
    count = len(numbers)
    if count not in _keyed:
        made = batch(0, [Item(i, KEYED_AT, key=KEY % 0, value=b"value") for i in range(count)])
        positions, at = [], -1
        for _ in range(count):
            at = made.index(KEY % 0, at + 1)
            positions.append(at)
        _keyed[count] = made, positions
    made, positions = _keyed[count]
    out = bytearray(made)
    for position, number in zip(positions, numbers, strict=True):
        out[position : position + 14] = KEY % number
    struct.pack_into(">I", out, 17, calc_crc32c(memoryview(out)[21:]))
    return bytes(out)


async def send_keyed(
    client: Client, topic: str, partition: int, numbers: Sequence[int], size: int = 5_000
) -> None:
    """The records of these numbers, from offset 0 of an empty partition on."""
    for at in range(0, len(numbers), size):
        offset = await send(client, topic, partition, keyed(numbers[at : at + size]))
        assert offset == at


async def send(client: Client, topic: str, partition: int, records: bytes) -> int:
    """Produce one batch as it is; its first offset."""
    data = messages.ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=partition, records=records)
    question = messages.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[data(name=topic, partition_data=[part])],
    )

    async def attempt() -> int:
        leader = await client.leader(topic, partition)
        answer = await client.cluster.ask(leader, question, least=3, most=11)
        found = answer.responses[0].partition_responses[0]
        refuse(found.error_code, f"Produce to {topic}:{partition}")
        return int(found.base_offset)

    return await client.until(attempt)


def as_published(ran: Ran, name: str) -> Ran:
    """The same, once its JSON is what the published schema says."""
    published = json.loads((SCHEMAS / f"{name}.v1.json").read_text(encoding="utf-8"))
    jsonschema.validate(ran.json, published)
    return ran


def same(rows: Sequence[dict[str, object]], fields: Sequence[str]) -> list[tuple[object, ...]]:
    """Some fields of each row."""
    return [tuple(row[name] for name in fields) for row in rows]
