"""`audit duplicates` on real topics: what was planted is found, and nothing else."""

import asyncio
import base64
import itertools
import random
from collections import Counter, defaultdict

import pytest
from confluent_kafka import Producer

from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from tests.kafka.audit_faults import PAIR, plant_duplicates
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import KEY, as_published, send_keyed
from tests.share import share

LONG = (pytest.mark.long, pytest.mark.timeout(1800))
PARTITIONS = PAIR


def audit(lab: Lab, topic: str, by: str, *words: str) -> Ran:
    ran = eoctl(
        *("audit", "duplicates", topic, "--by", by, "-o", "json", "--limit", "100000"),
        *words,
        lab=lab,
        timeout=900,
    )
    return ran if ran.status == 2 else as_published(ran, "audit-duplicates")


@pytest.mark.parametrize("count", [share(100_000), pytest.param(5_000_000, marks=LONG)])
def test_planted_keys_are_found_and_nothing_else(lab1: Lab, topic: MakeTopic, count: int) -> None:
    """One record in some thousand bears the key of another, anywhere in either partition."""
    name, rng = topic(lab1, partitions=PARTITIONS), random.Random(13)
    numbers = list(range(count))
    for _ in range(max(20, count // 5_000)):
        numbers[rng.randrange(count)] = rng.randrange(count)
    logs = [numbers[partition::PARTITIONS] for partition in range(PARTITIONS)]

    async def fill() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for partition, log in enumerate(logs):
                await send_keyed(client, name, partition, log)

    asyncio.run(fill())
    copies: dict[int, list[tuple[int, int]]] = defaultdict(list)
    often = {number for number, times in Counter(numbers).items() if times > 1}
    for partition, log in enumerate(logs):
        for offset, number in enumerate(log):
            if number in often:
                copies[number].append((partition, offset))
    ran = audit(lab1, name, "key")
    assert ran.status == 1, ran.stderr
    assert (ran.json["records"], ran.json["without_id"]) == (count, 0)
    assert ran.json["repeats"] == sum(len(where) - 1 for where in copies.values())
    found = {
        base64.b64decode(row["id"]): [(p["partition"], p["offset"]) for p in row["places"]]
        for row in ran.rows
    }
    assert found == {KEY % number: where for number, where in copies.items()}


def test_planted_duplicates_are_found_and_nothing_else(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=PARTITIONS)
    planted, visible = plant_duplicates(lab1, name, share(50_000, 10_000))
    assert all(planted[by] for by in planted)
    assert len(planted) == 5
    for by, expected in planted.items():
        ran = audit(lab1, name, by)
        assert ran.status == 1, ran.stderr
        assert ran.json["records"] == visible
        assert ran.json["without_id"] == 0
        assert ran.json["findings"] == len(ran.rows) == len(expected)
        assert ran.json["repeats"] == sum(len(where) - 1 for where in expected.values())
        for row in ran.rows:
            copies = expected[base64.b64decode(row["id"])]
            where = [(p, o) for p, o, _ in copies]
            assert [(p["partition"], p["offset"]) for p in row["places"]] == where[:10]
            assert row["copies"] == len(where)
            assert row["partitions"] == len({p for p, _ in where})
            assert row["same_value"] == (len({whole for *_, whole in copies}) == 1)
            far = [
                (min(b - a for a, b in itertools.pairwise(at)), at[-1] - at[0])
                for partition in range(PARTITIONS)
                if len(at := [o for p, o in where if p == partition]) > 1
            ]
            assert row["nearest_offsets"] == (min(n for n, _ in far) if far else None)
            assert row["farthest_offsets"] == (max(f for _, f in far) if far else None)


def test_without_duplicates_and_without_ids(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    producer = Producer(lab1.client_properties())
    for i in range(1_000):
        producer.produce(name, b"%d" % i, None if i % 2 else b"%d" % i)
    producer.flush(20)
    ran = audit(lab1, name, "key")
    assert (ran.status, ran.rows) == (0, [])
    assert (ran.json["records"], ran.json["without_id"]) == (1_000, 500)
    assert audit(lab1, name, "value", "--end", "hw").status == 0
    assert audit(lab1, name, "header:none").json["without_id"] == 1_000


def test_what_is_asked_wrongly_is_exit_2(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    for by in ("keys", "header:", "json:a..b", ""):
        ran = audit(lab1, name, by)
        assert ran.status == 2, by
        assert "--by" in ran.stderr
    assert audit(lab1, "no-such-topic", "key").status == 3


def test_a_partition_whose_ids_cannot_be_read_is_said_and_the_others_are_judged(
    lab1: Lab, topic: MakeTopic
) -> None:
    name = topic(lab1, partitions=3)
    producer = Producer(lab1.client_properties())
    for partition in range(3):
        for number in (b"4", b"5", b"no number" if partition == 1 else b"4"):
            headers = [("source.partition", b"%d" % partition), ("source.offset", number)]
            producer.produce(name, b"v", partition=partition, headers=headers)
    assert producer.flush(20) == 0
    ran = audit(lab1, name, "source")
    assert ran.status == 3, ran.stderr
    where = sorted(tuple((p["partition"], p["offset"]) for p in row["places"]) for row in ran.rows)
    assert where == [((0, 0), (0, 2)), ((2, 0), (2, 2))]
    [error] = ran.json["errors"]
    assert (error["topic"], error["partition"]) == (name, 1)
    assert f"{name}:1" in error["detail"]
    assert "offset 2" in error["detail"]
    assert ran.json["partitions"] == 2
