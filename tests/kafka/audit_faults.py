"""Faults for audits to find, planted on real brokers: each returns what must be found, no more."""

import asyncio
import json
import random
from collections import defaultdict
from typing import Any

from confluent_kafka import Producer as ConfluentProducer

from eoctl.kafka.write.markers import write_marker
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.remedy.repairs import MarkerRequest
from tests.kafka.planting import FORGET_SECONDS, numbered, send

PAIR, THREE = 2, 3  # partitions: of duplicates and sequences, of transactions
WRAP = 2**31
BATCH = [NewRecord(b"k", b"v" * 20)] * 400
Planted = dict[str, dict[bytes, list[tuple[int, int, bytes]]]]
"""Way of telling records apart → id → (partition, offset, key and value) of each copy."""


async def plant_sequences(lab: Lab, topic: str, records: int) -> list[tuple[object, ...]]:
    """Good batches of four producers in two partitions, with a fault of each in every round.

    lab: forgetful. Of each fault partition, kind, producer id, offset and records.
    """
    rng = random.Random(7)
    found: list[tuple[object, ...]] = []
    size, rounds = 500, 4
    # (epoch, next sequence); one of them is not the producer's first: what came before is missing
    states = {
        (partition, pid): (0, WRAP - 700 if pid == 9001 else 0)
        for partition in (0, 1)
        for pid in range(9000, 9004)
    }
    async with Client.to(lab.bootstrap_servers) as client:

        async def put(key: tuple[int, int], count: int, epoch: int, sequence: int) -> int:
            partition, pid = key
            return await send(client, topic, partition, numbered(count, pid, epoch, sequence))

        for number in range(rounds):
            faults = {key: rng.choice(("gap", "repeat", "epoch-back")) for key in states}
            for key, fault in faults.items() if number else ():
                if fault == "epoch-back":  # the newer epoch, behind which the old one comes
                    epoch = states[key][0] + 1
                    await put(key, 2, epoch, 0)
                    states[key] = epoch, 2
            await asyncio.sleep(FORGET_SECONDS)
            for key, fault in faults.items() if number else ():
                epoch, sequence = states[key]
                if fault == "epoch-back":
                    offset, wrong = await put(key, 3, epoch - 1, rng.randrange(99)), 3
                elif fault == "gap":
                    offset, wrong = await put(key, 3, epoch, (sequence + 11) % WRAP), 11
                    states[key] = epoch, (sequence + 14) % WRAP
                else:
                    offset, wrong = await put(key, 3, epoch, (sequence - 2) % WRAP), 2
                    states[key] = epoch, (sequence + 1) % WRAP
                found.append((key[0], fault, key[1], offset, wrong))
            await asyncio.sleep(FORGET_SECONDS)
            for key in states:
                for _ in range(-(-records // (rounds * len(states) * size))):
                    epoch, sequence = states[key]
                    offset = await put(key, size, epoch, sequence)
                    if sequence == WRAP - 700:
                        found.append((key[0], "gap", key[1], offset, sequence))
                    states[key] = epoch, (sequence + size) % WRAP
    return sorted(found, key=lambda f: f[::3])


def plant_duplicates(lab: Lab, topic: str, count: int) -> tuple[Planted, int]:
    """Transactions of unlike records; a few are repeated by each id, some in aborted ones.

    What is repeated, and how many records are visible.
    """
    rng = random.Random(11)
    producer = ConfluentProducer(
        {**lab.client_properties(), "transactional.id": topic, "linger.ms": 20}
    )
    producer.init_transactions(20)
    seen: dict[str, list[tuple[bytes, int, int, bytes]]] = defaultdict(list)
    visible = 0
    size = max(50, count // 40)
    chances = {
        n: rng.choice(("key", "value", "header", "json", "source")) for n in range(0, size, 7)
    }
    for number in range(0, count, size):
        producer.begin_transaction()
        sent: list[tuple[str, bytes, int, int, bytes]] = []
        for i in range(number, number + size):
            unlike = i
            # every 7th record bears the id of one long before it, or of its neighbour
            alike = i - i % 700 if i % 14 else i - 7
            repeats = chances.get(i % size) if i % 7 == 0 and rng.random() < 0.05 else None
            ids = {
                name: alike if name == repeats else unlike
                for name in ("key", "value", "header", "json", "source")
            }
            key = b"k%d" % ids["key"]
            # equal values are equal JSON too: those records differ in the key alone
            field = ids["value"] if repeats == "value" else ids["json"]
            value = json.dumps(
                {"order": {"id": field}, "n": field if repeats == "value" else unlike}
            ).encode()
            headers = [
                ("id", b"h%d" % ids["header"]),
                ("source.partition", b"3"),
                ("source.offset", b"%d" % ids["source"]),
            ]
            told = {
                "key": key,
                "value": value,
                "header:id": headers[0][1],
                "json:order.id": json.dumps(field).encode(),
                "source": b"('', 3, %d, 0)" % ids["source"],
            }

            def delivered(
                error: Any, message: Any, told: dict[str, bytes] = told, whole: bytes = key + value
            ) -> None:
                assert error is None, error
                for by, one in told.items():
                    sent.append((by, one, message.partition(), message.offset(), whole))  # noqa: B023

            producer.produce(
                topic,
                value,
                key,
                partition=i % PAIR,
                headers=headers,
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        if (number // size) % 5 == 4:
            producer.abort_transaction(20)
            continue
        producer.commit_transaction(20)
        visible += size
        for by, one, partition, offset, whole in sent:
            seen[by].append((one, partition, offset, whole))
    planted: Planted = {}
    for by, all_of_them in seen.items():
        grouped: dict[bytes, list[tuple[int, int, bytes]]] = defaultdict(list)
        for one, partition, offset, whole in all_of_them:
            grouped[one].append((partition, offset, whole))
        planted[by] = {one: sorted(g) for one, g in grouped.items() if len(g) > 1}
    return planted, visible


async def _marker(client: Client, topic: str, producer: Producer, outcome: str) -> None:
    """A marker that no coordinator decided, as an operator's tool writes it."""
    version = 2 if client.transaction_version >= 2 else 0
    marker = MarkerRequest(
        topic=topic,
        partition=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch + (1 if version else 0),
        coordinator_epoch=0,
        outcome=outcome,
        transaction_version=version,
    )
    answered = await write_marker(client.cluster, await client.leader(topic, 0), marker)
    assert answered == "NONE"


async def plant_transactions(lab: Lab, topic: str, transactions: int) -> list[tuple[Any, ...]]:
    """Good transactions of three ids, and three torn ones among them: see `torn_of`."""
    torn: list[tuple[Any, ...]] = []
    async with Client.to(lab.bootstrap_servers) as client:
        ids = [f"{topic}-{n}" for n in range(3)]
        producers = [await Producer.init(client, name) for name in ids]
        for number in range(transactions):
            producer = producers[number % 3]
            last = number >= transactions - 3
            epoch = producer.epoch
            first = {p: await producer.send(topic, p, BATCH) for p in range(THREE)}
            if last:
                await _marker(client, topic, producer, "abort" if number % 2 else "commit")
            decided = (
                "commit" if last and number % 2 else "abort" if last or number % 4 else "commit"
            )
            await (producer.commit() if decided == "commit" else producer.abort())
            if last:
                opposite = "abort" if decided == "commit" else "commit"
                where = [(0, first[0], opposite)]
                if client.transaction_version >= 2:
                    where += [(p, first[p], decided) for p in (1, 2)]
                torn.append((ids[number % 3], producer.producer_id, epoch, decided, where))
        fenced = await Producer.init(client, f"{topic}-fenced")
        await fenced.send(topic, 2, BATCH)
        await Producer.init(client, f"{topic}-fenced")  # the coordinator aborts it
        stays_open = await Producer.init(client, f"{topic}-open")
        await stays_open.send(topic, 1, BATCH)
    return sorted(torn, key=lambda t: t[1])


def torn_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows of `audit transactions` as `plant_transactions` tells of them."""
    return [
        (
            r["transactional_id"],
            r["producer_id"],
            r["producer_epoch"],
            r["decided"],
            [(p["partition"], p["first_offset"], p["marker"]) for p in r["partitions"]],
        )
        for r in rows
    ]
