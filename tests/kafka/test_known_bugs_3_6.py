"""Known bugs, tried on Kafka 3.6.0, which has them, and on the lab's own release."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.breaks.markers import write_marker
from eoctl.lab.breaks.stage import BreakTarget
from eoctl.lab.client import GROUP, Client, refuse
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.facts import TopicPartition
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.bugs import RECORD, begun, controlling, first_batch, on, paused
from tests.kafka.planting import numbered

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAME = "bugs"
STATE = "__transaction_state"
SETTINGS = {
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.retention.check.interval.ms": "3000",
    "producer.id.expiration.check.interval.ms": "2000",
    "zookeeper.session.timeout.ms": "60000",
    "broker.session.timeout.ms": "60000",  # a broker that pauses goes on leading its partitions
}
OFFSETS_PARTITIONS = STATE_PARTITIONS = 10


@pytest.fixture(scope="module")
def both(start_lab: Callable[[LabSpec], Lab]) -> list[Lab]:
    """A lab of each release, with 3.6.0 first."""
    return [
        start_lab(
            LabSpec(name=f"bugs-{version}", brokers=3, kafka_version=version, settings=SETTINGS)
        )
        for version in ("3.6.0", KAFKA)
    ]


def reloaded(lab: Lab, name: str) -> Callable[[Client], Awaitable[tuple[str, bool]]]:
    async def scenario(client: Client) -> tuple[str, bool]:
        """Return the id's state and whether all is readable, long after its markers were written.

        Its coordinator changes and changes back while a marker waits for a broker.
        """
        first = await controlling(client)
        second, waits = sorted(set(lab.broker_ids) - {first})
        await admin.create_topic(client, name, replicas=[[waits]])
        producer = await Producer.init(client, name, version=1)
        home = coordinator_partition(name, STATE_PARTITIONS)
        await admin.set_replicas(client, STATE, home, [first])
        await producer.send(name, 0, RECORD)
        async with client.without(waits) as rest:
            with paused(lab, waits):
                producer.client = rest
                await producer.end(commit=True)
                await asyncio.sleep(0.5)
                await admin.set_replicas(rest, STATE, home, [second])
                await admin.set_replicas(rest, STATE, home, [first])
                await rest.until(lambda: rest.transaction(name))
                await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        transaction = await client.transaction(name)
        assert transaction is not None
        _, stable, end = await client.offsets(name, 0)
        return str(transaction.state), stable == end

    return scenario


def test_16352_a_coordinator_that_reloads_forgets_that_a_marker_is_under_way(
    both: list[Lab],
) -> None:
    found = [on(lab, reloaded(lab, f"{NAME}-16352")) for lab in both]
    assert found == [("PrepareCommit", True), ("CompleteCommit", True)]


def impatient(lab: Lab, name: str) -> Callable[[Client], Awaitable[str]]:
    async def scenario(client: Client) -> str:
        """Return what a write is answered that has to wait for a silent coordinator, if another
        comes after it.
        """
        producer, home = await begun(client, name)
        async with (
            client.without(home) as one,
            client.without(home) as two,
            client.without(home) as three,
        ):
            writes = []
            with paused(lab, home):
                for each in (one, two, three):
                    writes.append(asyncio.create_task(first_batch(each, producer, name)))
                    await asyncio.sleep(0.5)
                done, _ = await asyncio.wait(writes, timeout=5)
                answers = [task.exception() for task in done]
            await asyncio.gather(*writes, return_exceptions=True)
        [error] = answers
        assert isinstance(error, WireError)
        return error.error

    return scenario


def test_16386_a_coordinator_that_is_away_is_a_network_exception(both: list[Lab]) -> None:
    answers = [on(lab, impatient(lab, f"{NAME}-16386")) for lab in both]
    assert answers == ["NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS"]


def overtaken(lab: Lab, name: str) -> Callable[[Client], Awaitable[str]]:
    async def scenario(client: Client) -> str:
        """Return what a write is answered if the marker of an abort came while it was verified.

        The marker is like the coordinator's, which raises the epoch when it aborts by itself.
        """
        producer, home = await begun(client, name)
        fenced = Producer(
            client, producer.producer_id, producer.epoch + 1, producer.transactional_id
        )
        async with client.without(home) as writer, client.without(home) as rest:
            with paused(lab, home):
                write = asyncio.create_task(first_batch(writer, producer, name))
                await asyncio.sleep(0.5)
                target = BreakTarget(name, 0, name)
                await write_marker(rest, target, fenced, commit=False, coordinator_epoch=0)
            [error] = await asyncio.gather(write, return_exceptions=True)
        assert isinstance(error, WireError)
        return error.error

    return scenario


def test_19690_a_write_that_an_abort_overtook_is_in_no_transaction(both: list[Lab]) -> None:
    answers = [on(lab, overtaken(lab, f"{NAME}-19690")) for lab in both]
    assert answers == ["INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH"]


GROUPS = 10_000
EXPIRES_MS = 20_000
LOOKS_SECONDS = 30.0


async def expiring(client: Client, group: str, topic: str) -> None:
    """Give many groups of this one's coordinator an offset that expires: it will be busy then."""
    home = await client.coordinator(group, GROUP)
    partition = coordinator_partition(group, OFFSETS_PARTITIONS)
    rows = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    row = rows.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )

    async def commit(name: str) -> None:
        question = messages.OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=EXPIRES_MS,
            topics=[rows(name=topic, partitions=[row])],
        )
        answer = await client.cluster.ask(home, question, least=2, most=4)
        refuse(answer.topics[0].partitions[0].error_code, "OffsetCommit")

    names = (f"{group}-{number}" for number in count())
    beside = (n for n in names if coordinator_partition(n, OFFSETS_PARTITIONS) == partition)
    for _ in range(GROUPS // 500):
        await asyncio.gather(*(commit(next(beside)) for _ in range(500)))


def while_offsets_expire(name: str) -> Callable[[Client], Awaitable[Counter[str]]]:
    async def scenario(client: Client) -> Counter[str]:
        """Count what is wrong with a group's offset while its coordinator drops others'.

        Even offsets are committed, odd ones aborted.
        """
        group, place = f"{name}-group", TopicPartition(name, 0)
        await admin.create_topic(client, name)
        producer = await Producer.init(client, name, version=1)
        await producer.send_offsets(group, {place: 0})
        await producer.commit()
        await expiring(client, group, name)
        wrong: Counter[str] = Counter()
        end = time.monotonic() + LOOKS_SECONDS
        for committed in count(2, 2):
            for offset in (committed, committed + 1):
                await producer.send_offsets(group, {place: offset})
                await producer.end(commit=offset == committed)
                await producer.completed()
                seen = await committed_offset(client, group, place)
                if seen != committed:
                    wrong["aborted" if seen % 2 else "stale"] += 1
            if time.monotonic() > end:
                return wrong
        raise AssertionError

    return scenario


async def committed_offset(client: Client, group: str, place: TopicPartition) -> int:
    part = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    question = messages.OffsetFetchRequest(
        group_id=group,
        topics=[part(name=place.topic, partition_indexes=[place.partition])],
        require_stable=False,
    )
    broker = await client.coordinator(group, GROUP)
    answer = await client.cluster.ask(broker, question, least=7, most=7)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_17507_a_transaction_is_complete_before_its_offsets_are(both: list[Lab]) -> None:
    bad, good = [on(lab, while_offsets_expire(f"{NAME}-17507")) for lab in both]
    assert bad.keys() == {"stale", "aborted"}
    assert not good


PRODUCERS = 30_000


def slowest_write(name: str) -> Callable[[Client], Awaitable[float]]:
    async def scenario(client: Client) -> float:
        """Return the seconds of the slowest write while a partition's producer ids expire."""
        leader = client.any_broker
        await admin.create_topic(client, name, replicas=[[leader]])
        for first in range(0, PRODUCERS, 500):
            batches = (numbered(1, 1_000_000 + n, 0, 0) for n in range(first, first + 500))
            await asyncio.gather(*(produce(client, leader, name, b) for b in batches))
        setting = "producer.id.expiration.ms"
        await admin.set_config(client, admin.BROKER, str(leader), {setting: "1"})
        slowest, end = 0.0, time.monotonic() + 20
        while time.monotonic() < end:
            began = time.monotonic()
            await produce(client, leader, name, numbered(1, -1, -1, -1))
            slowest = max(slowest, time.monotonic() - began)
        await admin.set_config(client, admin.BROKER, str(leader), {setting: None})
        assert not await client.producers(name, 0)
        return slowest

    return scenario


async def produce(client: Client, leader: int, topic: str, records: bytes) -> Any:
    data = messages.ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=records)
    question = messages.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[data(name=topic, partition_data=[part])],
    )
    answer = await client.cluster.ask(leader, question, least=3, most=9)
    refuse(answer.responses[0].partition_responses[0].error_code, f"Produce to {topic}")


def test_16229_writes_wait_while_producer_ids_expire(both: list[Lab]) -> None:
    bad, good = [on(lab, slowest_write(f"{NAME}-16229")) for lab in both]
    assert bad > 0.5
    assert bad > 3 * good
