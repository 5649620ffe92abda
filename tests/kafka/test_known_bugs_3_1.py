"""Known bugs, tried on Kafka 3.1.0, which has them, and on the lab's own release."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.kafka.bugs import controlling, on, paused, until
from tests.kafka.planting import KEY, send_keyed

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAME = "bugs"
STATE = "__transaction_state"
FULL = 45_000
"""More keys than the cleaner can keep in mind at once with the smallest buffer it takes."""
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "1100000",
    "request.timeout.ms": "3000",
    "zookeeper.session.timeout.ms": "60000",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
IDS = 20


@pytest.fixture(scope="module")
def both(start_lab: Callable[[LabSpec], Lab]) -> list[Lab]:
    """A lab of each release, with 3.1.0 first."""
    return [
        start_lab(
            LabSpec(name=f"bugs-{version}", brokers=2, kafka_version=version, settings=SETTINGS)
        )
        for version in ("3.1.0", KAFKA)
    ]


def cleaned_in_part(name: str) -> Callable[[Client], Awaitable[None]]:
    async def scenario(client: Client) -> None:
        """Let the cleaner take a segment in two passes, of which only the second sees an abort."""
        await admin.create_topic(
            client,
            name,
            configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
        )
        await send_keyed(client, name, 0, range(FULL))
        producer = await Producer.init(client, f"{name}-id", version=1)
        await producer.send(name, 0, [NewRecord(b"x", key=b"aborted")])
        await producer.end(commit=False)

        async def ended() -> bool:
            _, stable, end = await client.offsets(name, 0)
            return stable == end == FULL + 2

        await until(ended)
        await client.plain(name, 0, [NewRecord(b"x", key=KEY % 0)])
        await admin.set_config(client, admin.TOPIC, name, {"segment.ms": "1"})

        async def cleaned_twice() -> bool:
            await client.plain(name, 0, [NewRecord(b"x", key=b"rolls")])
            [first, *_] = (await client.batches(name, 0))[0]
            return bool(first.offset > 0)  # the record after the segment's end that has its key

        await until(cleaned_twice)

    return scenario


def committed_keys(lab: Lab, name: str, start: int) -> Iterable[bytes | None]:
    """Keys of the records that a reader of committed data gets, from an offset on."""
    consumer = Consumer(
        lab.client_properties()
        | {"group.id": "g", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(name, 0, start)])
    while (message := consumer.poll(30)) is not None and not message.error():
        yield message.key()
    assert message is not None
    consumer.close()


def test_13727_a_segment_that_is_cleaned_in_part_forgets_an_abort(both: list[Lab]) -> None:
    read = []
    for lab in both:
        on(lab, cleaned_in_part(f"{NAME}-13727"))
        read.append(b"aborted" in committed_keys(lab, f"{NAME}-13727", FULL - 10))
    assert read == [True, False]


def without_controller(lab: Lab) -> Callable[[Client], Awaitable[str]]:
    async def scenario(client: Client) -> str:
        """Return what a broker answers that has no producer ids left and gets no new ones."""
        control = await controlling(client)
        [other] = set(lab.broker_ids) - {control}
        question = messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        await client.cluster.connection(other)
        with paused(lab, control):
            for _ in range(2_100):  # two blocks
                answer = await client.cluster.ask(other, question, most=4)
                if answer.error_code:
                    return messages.error_name(answer.error_code)
        return ""

    return scenario


def test_14417_a_broker_without_producer_ids_says_that_it_timed_out(both: list[Lab]) -> None:
    answers = [on(lab, without_controller(lab)) for lab in both]
    assert answers == ["REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS"]


def one_never_begun(name: str) -> Callable[[Client], Awaitable[set[str]]]:
    async def scenario(client: Client) -> set[str]:
        """Return which idle ids are left long after their time, beside one without an epoch.

        Its first epoch could not be written: the topic takes no batch of that size.
        """
        await Producer.init(client, f"{name}-first", version=1)
        await admin.set_config(client, admin.TOPIC, STATE, {"max.message.bytes": "10"})

        async def refused() -> bool:
            with suppress(WireError):
                await Producer.init(client, f"{name}-never", version=1)
                return False
            return True

        await until(refused)
        await admin.set_config(client, admin.TOPIC, STATE, {"max.message.bytes": None})
        ids = {f"{name}-{number}" for number in range(IDS)}

        async def written() -> bool:
            with suppress(WireError):
                await Producer.init(client, f"{name}-0", version=1)
                return True
            return False

        await until(written)
        for transactional_id in ids:
            await Producer.init(client, transactional_id, version=1)
        await asyncio.sleep(10)
        return {i for i in ids if await client.transaction(i) is not None}

    return scenario


def test_14880_an_id_without_an_epoch_keeps_all_idle_ids(both: list[Lab]) -> None:
    left = [len(on(lab, one_never_begun(f"{NAME}-14880"))) for lab in both]
    assert left == [IDS, 0]
