"""For the tests of known bugs: clients of releases with and without one, brokers that pause."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from eoctl.kafka.connection import messages
from eoctl.lab import admin
from eoctl.lab.client import TRANSACTION, Client, NewRecord, refuse
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer

T = TypeVar("T")
RECORD = [NewRecord(b"x")]
SECONDS = 60.0


class OldClient(Client):
    """For brokers with ZooKeeper, of which only the controller changes topics.

    Finds coordinators as Kafka 2.8 lets it: one at a time.
    """

    controller: int | None = None

    @property
    def any_broker(self) -> int:
        return super().any_broker if self.controller is None else self.controller

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.controller = (await self.cluster.metadata([])).controller
        return self

    async def coordinator(self, key: str, key_type: int = TRANSACTION) -> int:
        question = messages.FindCoordinatorRequest(key=key, key_type=key_type)
        answer = await self.cluster.ask(self.any_broker, question, most=3)
        refuse(answer.error_code, f"FindCoordinator of {key!r}")
        return int(answer.node_id)


def on(lab: Lab, scenario: Callable[[Client], Awaitable[T]]) -> T:
    kind = OldClient if lab.record.spec.uses_zookeeper else Client

    async def run() -> T:
        async with kind.of(lab.client_properties()) as client:
            return await scenario(client)

    return asyncio.run(run())


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + SECONDS
    while not await seen():
        assert time.monotonic() < end
        await asyncio.sleep(0.2)


async def controlling(client: Client) -> int:
    """The broker that controls the cluster: ZooKeeper's controller, or the leader of the quorum."""
    if isinstance(client, OldClient):
        return client.any_broker
    return await admin.quorum_leader(client)


@contextmanager
def paused(lab: Lab, broker: int) -> Iterator[None]:
    lab.freeze(broker)
    try:
        yield
    finally:
        lab.thaw(broker)


async def begun(client: Client, name: str) -> tuple[Producer, int]:
    """A transaction of version 1 with one partition, of a topic that is new; its coordinator.

    Another broker leads the partition, and the coordinator does not control the cluster.
    """
    control = await controlling(client)
    for number in range(50):
        producer = await Producer.init(client, f"{name}-id-{number}", version=1)
        home = await client.coordinator(f"{name}-id-{number}")
        if home != control:
            break
    else:
        raise AssertionError("the controller coordinates every id")
    await admin.create_topic(client, name, replicas=[[control]])
    await producer.add_partition(name, 0)
    return producer, home


async def first_batch(client: Client, producer: Producer, name: str) -> int:
    """Write the transaction's first batch with a client of its own, once; its offset."""
    return await client.write(
        name,
        0,
        RECORD,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        sequence=0,
        transactional_id=producer.transactional_id,
    )
