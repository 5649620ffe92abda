"""Known bugs, tried on releases that have them and on the lab's own, which does not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.doctor.known_bugs import KNOWN_BUGS
from recovery.doctor.versions import by_hand
from tests.kafka.conftest import MakeTopic

pytestmark = pytest.mark.long

RECORD = [NewRecord(b"x")]
TOPIC = "bugs"


@pytest.fixture(scope="module")
def old(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """The newest release here that speaks transactions version 1 alone."""
    lab = start_lab(LabSpec(name="bugs", kafka_version="3.9.1"))
    admin.add_topic(lab, TOPIC, 1, {})
    return lab


def test_each_bug_that_was_tried_is_tried_on_a_release_that_has_it() -> None:
    tried = {bug.number: bug.tried for bug in KNOWN_BUGS if bug.tried}
    assert tried == {
        "KAFKA-14562": ("3.9.1",),
        "KAFKA-20734": ("4.3.1",),  # tests/kafka/test_lost_markers.py
    }
    affected = {bug.number: list(bug.affected()) for bug in KNOWN_BUGS}
    for number, versions in tried.items():
        for version in versions:
            assert any(by_hand(version).within(a) for a in affected[number]), number


def on(lab: Lab, scenario: Callable[[Client], Awaitable[str]]) -> str:
    async def run() -> str:
        async with Client.of(lab.client_properties()) as client:
            return await scenario(client)

    return asyncio.run(run())


def test_14562_a_delayed_end_ends_the_next_transaction(
    old: Lab, lab1: Lab, topic: MakeTopic
) -> None:
    def late_end(name: str) -> Callable[[Client], Awaitable[str]]:
        async def scenario(client: Client) -> str:
            """Return the state of the second transaction after the first one's end comes again."""
            producer = await Producer.init(client, f"{name}-14562")
            await producer.send(name, 0, RECORD)
            delayed = Producer(
                client, producer.producer_id, producer.epoch, producer.transactional_id
            )
            await producer.commit()
            await producer.send(name, 0, RECORD)
            with suppress(WireError):  # refused, as it should be
                await delayed.end(commit=True)
                await delayed.completed()
            transaction = await client.transaction(f"{name}-14562")
            return "" if transaction is None else str(transaction.state)

        return scenario

    assert on(old, late_end(TOPIC)) == "CompleteCommit"
    assert on(lab1, late_end(topic(lab1))) == "Ongoing"
