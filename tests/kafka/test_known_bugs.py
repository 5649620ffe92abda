"""Known bugs, tried on releases that have them and on the lab's own, which does not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.client import GROUP, Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.doctor.known_bugs import KNOWN_BUGS
from recovery.doctor.versions import by_hand
from recovery.facts import TopicPartition
from tests.kafka.bugs import RECORD, on, until
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import with_last_epoch

pytestmark = pytest.mark.long

TOPIC = "bugs"
CLEANS = {"log.cleaner.backoff.ms": "100"}
MARKER_KEY = bytes((0, 0, 0, 1))
"""The key of a COMMIT marker."""


@pytest.fixture(scope="module")
def old(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """The newest release here that speaks transactions version 1 alone."""
    lab = start_lab(LabSpec(name="bugs", kafka_version="3.9.1"))
    admin.add_topic(lab, TOPIC, 1, {})
    return lab


@pytest.fixture(scope="module")
def oldest(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """A release that verifies nothing, and cleans compacted topics all the time."""
    lab = start_lab(LabSpec(name="bugs-2.8", kafka_version="2.8.2", settings=CLEANS))
    admin.add_topic(lab, TOPIC, 1, {})
    return lab


def test_each_bug_that_was_tried_is_tried_on_a_release_that_has_it() -> None:
    tried = {bug.number: bug.tried for bug in KNOWN_BUGS if bug.tried}
    assert tried == {
        "KAFKA-14055": ("2.8.2",),
        "KAFKA-14561": ("2.8.2",),
        "KAFKA-15449": ("2.8.2",),
        "KAFKA-16386": ("3.6.0",),  # tests/kafka/test_known_bugs_3_6.py, as all of 3.6.0
        "KAFKA-16229": ("3.6.0",),
        "KAFKA-16352": ("3.6.0",),
        "KAFKA-14562": ("3.9.1",),
        "KAFKA-19690": ("3.6.0",),
        "KAFKA-20090": ("4.0.1",),
        "KAFKA-20734": ("4.3.1",),  # tests/kafka/test_lost_markers.py
    }
    affected = {bug.number: list(bug.affected()) for bug in KNOWN_BUGS}
    for bug in KNOWN_BUGS:
        for version in (*bug.tried, *bug.by_hand):
            assert any(by_hand(version).within(a) for a in affected[bug.number]), bug.number


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


async def late(
    client: Client,
    name: str,
    write: Callable[[Producer], Awaitable[object]],
    again: Callable[[Producer], Awaitable[object]],
    waits: Callable[[], Awaitable[bool]],
) -> bool:
    """Return whether something waits after a producer of version 1 wrote, aborted it, and a write
    came late."""
    producer = await Producer.init(client, f"{name}-id", version=1)
    await write(producer)
    assert await waits()
    await producer.end(commit=False)

    async def over() -> bool:
        return not await waits()

    await until(over)
    with suppress(WireError):  # refused, as it should be
        await again(producer)
    return await waits()


def late_batch(name: str) -> Callable[[Client], Awaitable[bool]]:
    async def scenario(client: Client) -> bool:
        async def held() -> bool:
            _, stable, end = await client.offsets(name, 0)
            return stable < end

        def write(producer: Producer) -> Awaitable[int]:
            return producer.send(name, 0, RECORD)

        def again(producer: Producer) -> Awaitable[int]:
            return producer.write(name, 0, RECORD)

        return await late(client, name, write, again, held)

    return scenario


def test_14561_a_late_batch_opens_an_aborted_transaction_again(
    oldest: Lab, lab1: Lab, topic: MakeTopic
) -> None:
    assert on(oldest, late_batch(TOPIC))
    assert not on(lab1, late_batch(topic(lab1)))


def late_offsets(name: str) -> Callable[[Client], Awaitable[bool]]:
    async def scenario(client: Client) -> bool:
        group, offsets = f"{name}-group", {TopicPartition(name, 0): 1}

        async def pending() -> bool:
            part = messages.OffsetFetchRequest.OffsetFetchRequestTopic
            question = messages.OffsetFetchRequest(
                group_id=group,
                topics=[part(name=name, partition_indexes=[0])],
                require_stable=True,
            )
            broker = await client.coordinator(group, GROUP)
            answer = await client.cluster.ask(broker, question, least=7, most=7)
            code = answer.topics[0].partitions[0].error_code
            return messages.error_name(code) == "UNSTABLE_OFFSET_COMMIT"

        def write(producer: Producer) -> Awaitable[None]:
            return producer.send_offsets(group, offsets)

        def again(producer: Producer) -> Awaitable[None]:
            return producer.write_offsets(group, offsets)

        return await late(client, f"{name}-offsets", write, again, pending)

    return scenario


def test_15449_late_offsets_of_an_aborted_transaction_stay_pending(
    oldest: Lab, lab1: Lab, topic: MakeTopic
) -> None:
    assert on(oldest, late_offsets(TOPIC))
    assert not on(lab1, late_offsets(topic(lab1)))


def cleaned(name: str) -> Callable[[Client], Awaitable[bool]]:
    async def scenario(client: Client) -> bool:
        """Return whether the marker is left once the cleaner has removed an older record.

        The record that it takes for a newer one has the bytes of the marker's key.
        """
        producer = await Producer.init(client, f"{name}-id", version=1)
        start = await producer.send(name, 0, [NewRecord(b"x", key=b"kept")])
        await producer.end(commit=True)

        async def marked() -> bool:
            return any(control for _, control in (await client.read(name, 0)).values())

        await until(marked)
        for key in (MARKER_KEY, b"again", b"again", b"rolls"):
            await client.plain(name, 0, [NewRecord(b"x", key=key)])
            await asyncio.sleep(0.3)  # a segment each

        async def compacted() -> bool:
            await client.plain(name, 0, [NewRecord(b"x", key=b"rolls")])
            keys = [key for key, _ in (await client.read(name, 0)).values()]
            return keys.count(b"again") == 1

        await until(compacted)
        left = await client.read(name, 0)
        assert left[start][0] == b"kept"
        return start + 1 in left

    return scenario


def test_14055_the_cleaner_takes_a_marker_for_a_record(
    oldest: Lab, start_lab: Callable[[LabSpec], Lab]
) -> None:
    today = start_lab(LabSpec(name="cleans", settings=CLEANS))
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    left = []
    for lab in (oldest, today):
        admin.add_topic(lab, f"{TOPIC}-cleaned", 1, settings)
        left.append(on(lab, cleaned(f"{TOPIC}-cleaned")))
    assert left == [False, True]


def exhausted(name: str) -> Callable[[Client], Awaitable[tuple[str, bool]]]:
    async def scenario(client: Client) -> tuple[str, bool]:
        """Return the state of an id whose last epoch timed out, and whether it got another
        producer id."""
        last = await with_last_epoch(client, f"{name}-id", 1_000)
        producer_id = last.producer_id
        await last.send(name, 0, RECORD)
        await asyncio.sleep(15)
        transaction = await client.transaction(f"{name}-id")
        assert transaction is not None
        return str(transaction.state), transaction.producer_id != producer_id

    return scenario


@pytest.mark.timeout(900)
def test_20090_an_id_that_times_out_with_its_last_epoch(
    start_lab: Callable[[LabSpec], Lab],
) -> None:
    found = []
    for version in ("4.0.1", KAFKA):
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
        lab = start_lab(LabSpec(name=f"last-{version}", kafka_version=version, settings=settings))
        admin.add_topic(lab, TOPIC, 1, {})
        found.append(on(lab, exhausted(TOPIC)))
        lab.down()
    assert found == [("CompleteAbort", False), ("CompleteAbort", True)]
