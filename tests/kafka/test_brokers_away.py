"""Two of three brokers away: a coordinator below its min ISR ends nothing, whoever asks."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from eoctl.lab import admin
from eoctl.lab.breaks.owned import ABORT_CYCLE
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.command import Ran, eoctl
from tests.kafka.diagnosing import judged
from tests.share import only_here

QUICKLY = ("--sample-interval", "0.3s")
TOPIC = "away"


@pytest.fixture(scope="module")
def trio(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Three brokers, of which a test may stop two; an overdue transaction is left alone."""
    lab = start_lab(LabSpec(name="trio", brokers=3, settings={ABORT_CYCLE: "3600000"}))
    yield lab
    lab.down()


class World:
    """Ids of one coordinator, whose broker stays, and a partition that it leads."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.keeper = 0
        self.topic = f"{TOPIC}-{mark}"

    @property
    def alone(self) -> str:
        """A topic whose only replica is on a broker that goes."""
        return f"{self.topic}-alone"

    @property
    def open(self) -> str:
        return f"{self.mark}.open"

    async def plant(self, lab: Lab) -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            self.keeper = await client.until(lambda: client.coordinator(self.open))
            others = [b for b in lab.broker_ids if b != self.keeper]
            replicas = [self.keeper, *others]
            await admin.create_topic(client, self.topic, replicas=[replicas, replicas])
            await admin.create_topic(client, self.alone, replicas=[others[:1]])
            producer = await Producer.init(client, self.open, 600_000)
            await producer.send(self.topic, 0, [NewRecord(b"x")])
            split = await self._beside(client, "split", 0)
            producer = await Producer.init(client, split, 600_000)
            for topic, partition in ((self.topic, 1), (self.alone, 0)):
                await producer.send(topic, partition, [NewRecord(b"x")])
            self.split = split
            self.idle = await self._beside(client, "idle", 0)
            self.nothing = await self._beside(client, "nothing", 1)

    async def _beside(self, client: Client, kind: str, version: int) -> str:
        """An id of the same coordinator: at rest, or (v1) with a partition and no record."""
        homes = len(await client.partitions("__transaction_state"))
        here = coordinator_partition(self.open, homes)
        names = (f"{self.mark}.{kind}.{number}" for number in range(1000))
        name = next(n for n in names if coordinator_partition(n, homes) == here)
        producer = await Producer.init(client, name, 600_000, version=version or None)
        if version:
            await producer.add_partition(self.topic, 0)
        return name


def _why(lab: Lab, world: World, *words: str) -> Ran:
    """Run `why` by the broker that stays."""
    node = next(n for n in lab.record.nodes if n.id == world.keeper)
    server = f"127.0.0.1:{node.ports['PLAINTEXT']}"
    return eoctl(*words, "--bootstrap-server", server)


def _row(ran: Ran) -> Any:
    [row] = ran.rows
    return row


@pytest.mark.long
@pytest.mark.parametrize("end", only_here(["kill", "terminate"], "kill"))
def test_missing_brokers_come_before_any_question_to_an_owner(trio: Lab, end: str) -> None:
    """Killed, the controllers are gone too and the replicas in sync stay as they were."""
    world = World(end)
    asyncio.run(world.plant(trio))
    partition = f"{world.topic}:0"
    before = _row(_why(trio, world, "why", partition, "-o", "json", *QUICKLY))["held_by"]
    assert (before["verdict"], before["remedy"]["action"]) == ("open", "wait")
    others = [b for b in trio.broker_ids if b != world.keeper]
    stop = trio.kill if end == "kill" else trio.terminate
    try:
        stop(others[0])
        _one_of_three_away(trio, world)
        stop(others[1])
        _no_transaction_ends(trio, world)
        story = _row(_why(trio, world, "why", partition, "-o", "json", *QUICKLY))
        held, names = story["held_by"], ", ".join(map(str, others))
        assert held["verdict"] == "open"  # what is missing changes no verdict
        remedy = held["remedy"]
        assert remedy["action"] == "restore-leader", remedy
        assert remedy["does"].startswith(f"start brokers {names}: ")
        assert story["if_you_wait"]["ending"] == "brokers"
        page = _why(trio, world, "why", partition, *QUICKLY).stdout
        assert f"its coordinator cannot end it: brokers {names} away" in page.splitlines()[0]
        nothing = _why(trio, world, "why", "--transactional-id", world.nothing, "-o", "json")
        assert _row(nothing)["held_by"]["remedy"]["action"] == "restore-leader"
        for name in (world.open, world.idle, world.nothing):
            fence = _why(trio, world, "txn", "fence", name, "--owner-is-gone", *QUICKLY)
            assert fence.status == 4, (name, fence.stdout, fence.stderr)
            assert f"start brokers {names}" in fence.stderr
    finally:
        for broker in others:
            trio.start(broker)
    _until(lambda: _remedy(trio, partition) == "wait")
    done = eoctl(
        *("txn", "fence", world.open, "--owner-is-gone", "--execute", "--yes", *QUICKLY), lab=trio
    )
    assert done.status == 0, done.stderr
    assert judged(trio, partition).judged == ()


def _one_of_three_away(lab: Lab, world: World) -> None:
    """Its log takes records; only what is open on the partition without a leader waits for it."""

    def leader_needed() -> bool:
        ran = _why(lab, world, "why", f"{world.topic}:1", "-o", "json", *QUICKLY)
        remedy = ran.rows[0]["held_by"]["remedy"]
        return remedy["action"] == "restore-leader" and world.alone in remedy["does"]

    _until(leader_needed)
    fence = _why(lab, world, "txn", "fence", world.split, "--owner-is-gone", *QUICKLY)
    assert fence.status in (3, 4), fence.stderr
    ran = _why(lab, world, "why", f"{world.topic}:0", "-o", "json", *QUICKLY)
    assert _row(ran)["held_by"]["remedy"]["action"] == "wait"


def _no_transaction_ends(lab: Lab, world: World) -> None:
    """The oracle, librdkafka: its coordinator answers no InitProducerId any more."""

    def refused() -> bool:
        producer = confluent_kafka.Producer(
            lab.client_properties() | {"transactional.id": world.idle}
        )
        try:
            producer.init_transactions(4)
        except confluent_kafka.KafkaException:
            return True
        return False

    _until(refused)


def _remedy(lab: Lab, partition: str) -> str | None:
    found = judged(lab, partition).judged
    return found[0].verdict.remedy.action if found else None


def _until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)
