"""`contested-id`: owners of one transactional id that fence each other, and restarts that do not.

The test counts itself how many transactions it ended by initialising the id again.
"""

import asyncio

import pytest
from confluent_kafka import Producer as Librdkafka

from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic

TURNS = 6


def librdkafka(lab: Lab, name: str, timeout_ms: int = 60_000) -> Librdkafka:
    settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
    return Librdkafka({**lab.client_properties(), **settings})


def test_two_owners_that_fence_each_other_are_named(lab1: Lab, topic: MakeTopic) -> None:
    """Two librdkafka clients, one with another timeout, each starting again when it is fenced."""
    topic_name, name = topic(lab1), "storm-librdkafka"
    for turn in range(TURNS):
        owner = librdkafka(lab1, name, (60_000, 45_000)[turn % 2])
        owner.init_transactions(30)
        owner.begin_transaction()
        owner.produce(topic_name, b"x")
        owner.flush(30)
    ran = eoctl("txn", "history", name, "-o", "json", lab=lab1)
    [contest] = ran.json["contests"]
    assert (contest["transactional_id"], contest["aborted"]) == (name, TURNS - 1)
    assert contest["causes"] == ["two-owners"]
    assert set(contest["timeouts_ms"]) == {60_000, 45_000}
    assert f"{name} is contested: " in ran.stderr

    why = eoctl("why", "--transactional-id", name, lab=lab1)
    assert why.status == 1
    assert "two owners that fence each other" in why.stdout
    owner.abort_transaction(30)
    why = eoctl("why", "--transactional-id", name, lab=lab1)
    assert why.status == 1, "it holds nothing now, and is contested as before"
    assert "two owners that fence each other" in why.stderr


@pytest.mark.parametrize("version", [1, 2])
def test_one_that_restarts_may_be_two(lab1: Lab, topic: MakeTopic, version: int) -> None:
    topic_name, name = topic(lab1), f"storm-v{version}"
    asyncio.run(killed(lab1, name, topic_name, version, times=TURNS))
    [contest] = eoctl("txn", "history", name, "-o", "json", lab=lab1).json["contests"]
    assert contest["aborted"] == TURNS - 1
    assert contest["causes"] == ["two-owners", "restarts", "raises-its-own-epoch"]


def test_a_rolling_restart_and_a_producer_for_each_transaction_are_none(
    lab1: Lab, topic: MakeTopic
) -> None:
    topic_name = topic(lab1)
    rolling = [f"rolling-{number}" for number in range(10)]

    async def live() -> None:
        await asyncio.gather(*(killed(lab1, name, topic_name, 2, times=3) for name in rolling))
        async with Client.to(lab1.bootstrap_servers) as client:
            for _ in range(TURNS):  # as Flink's
                owner = await Producer.init(client, "one-each")
                await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
                await owner.commit()

    asyncio.run(live())
    ran = eoctl("txn", "history", *rolling, "one-each", "-o", "json", lab=lab1)
    assert ran.json["transactional_ids"] == len(rolling) + 1
    assert ran.json["contests"] == []


async def killed(lab: Lab, name: str, topic_name: str, version: int, times: int) -> None:
    """An owner that begins a transaction and dies, so many times."""
    async with Client.to(lab.bootstrap_servers) as client:
        for _ in range(times):
            owner = await Producer.init(client, name, version=version)
            await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
