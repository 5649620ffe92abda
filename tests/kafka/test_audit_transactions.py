"""`audit transactions` on real brokers: torn transactions and lost markers, and nothing else."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from eoctl.kafka.repairs import write_marker
from eoctl.lab.client import Client, Record
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.repairs import MarkerRequest
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.share import share

LONG = (pytest.mark.long, pytest.mark.timeout(1800))
PARTITIONS = 3
BATCH = [Record(b"k", b"v" * 20)] * 400


def audit(lab: Lab, *words: str) -> Ran:
    return as_published(
        eoctl("audit", "transactions", *words, "-o", "json", lab=lab, timeout=600),
        "audit-transactions",
    )


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


async def _plant(lab: Lab, topic: str, transactions: int) -> list[tuple[Any, ...]]:
    """Good transactions of three ids, and three torn ones among them."""
    torn: list[tuple[Any, ...]] = []
    async with Client.to(lab.bootstrap_servers) as client:
        ids = [f"{topic}-{n}" for n in range(3)]
        producers = [await Producer.init(client, name) for name in ids]
        for number in range(transactions):
            producer = producers[number % 3]
            last = number >= transactions - 3
            epoch = producer.epoch
            first = {p: await producer.send(topic, p, BATCH) for p in range(PARTITIONS)}
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


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
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


@pytest.mark.parametrize(
    "transactions",
    [share(200, 12), pytest.param(4_200, marks=LONG)],  # 5 million records
)
def test_torn_transactions_are_found_and_nothing_else(
    lab1: Lab, topic: MakeTopic, transactions: int
) -> None:
    name = topic(lab1, partitions=PARTITIONS)
    torn = asyncio.run(_plant(lab1, name, transactions))
    ran = audit(lab1, name)
    assert ran.status == 1, ran.stderr
    assert {row["finding"] for row in ran.rows} == {"torn"}
    assert told(ran.rows) == torn
    covered = {c["transactional_id"]: c for c in ran.json["covered"]}
    assert sum(covered[f"{name}-{n}"]["covered"] for n in range(3)) == transactions
    assert covered[f"{name}-open"]["covered"] == 0
    assert covered[f"{name}-fenced"]["covered"] == 1
    assert all(covered[f"{name}-{n}"]["whole"] for n in range(3))
    assert ran.json["markers_without_data"] == 3  # of the decisions that came too late


@pytest.mark.long
def test_torn_transactions_of_version_1(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    lab = start_lab(LabSpec(name="audit-v1", transaction_version=1))
    name = topic(lab, partitions=PARTITIONS)
    torn = asyncio.run(_plant(lab, name, 30))
    ran = audit(lab, name)
    lab.down()
    assert told(ran.rows) == torn
    assert {row["finding"] for row in ran.rows} == {"torn"}
    assert ran.status == 1


def test_a_lost_commit_marker_is_missing(lab3: Lab) -> None:
    made = eoctl(
        *("lab", "break", "marker-lost", "--name", "three", "-o", "json"),
        timeout=120,
    )
    assert made.status == 0, made.stderr
    (truth,) = made.rows
    ran = audit(lab3, truth["topic"])
    (row,) = ran.rows
    assert (ran.status, row["finding"], row["decided"]) == (1, "marker-missing", "commit")
    assert row["producer_id"] == truth["producer_id"]
    assert row["transactional_id"] == truth["transactional_id"]
    (part,) = row["partitions"]
    assert (part["partition"], part["first_offset"]) == (truth["partition"], truth["start_offset"])
    assert (part["marker"], part["marker_offset"]) == (None, None)
