"""What is put together of several answers is of one moment, and of one transaction."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks, coordinators
from eoctl.kafka.ask.moments import at_one_moment
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.lab.admin import create_topic, quorum_leader, set_replicas
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.operations.diagnose import judging
from eoctl.operations.inspect.lists import Scope, look_at_partitions
from eoctl.operations.session.session import Session, with_cluster
from eoctl.settings.context import Connect, resolve
from recovery.facts import CoordinatorClock, PartitionFacts, TopicPartition, TransactionFacts
from recovery.inspect.inspection import lso_row
from recovery.inspect.observation import Settings
from recovery.selectors import parse_selector
from recovery.values import replace
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.relay import DESCRIBE_PRODUCERS, LIST_OFFSETS, LIST_TRANSACTIONS, Relay, relayed

T = TypeVar("T")
AN_HOUR = 3_600_000


def asked(
    lab: Lab, use: Callable[[Cluster], Awaitable[T]], hosts: Mapping[str, str] | None = None
) -> T:
    """Ask the lab's brokers, or those that stand in front of them."""
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    return with_cluster(replace(context, hosts=hosts or {}), 60.0, use)


def writer(lab: Lab, name: str) -> Producer:
    producer = Producer({**lab.client_properties(), "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    return producer


def write(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    assert producer.flush(30) == 0


def commit(lab: Lab, producer: Producer, topic: str) -> None:
    """Commit, and wait until the LSO says so."""
    producer.commit_transaction(30)
    settings = {**lab.client_properties(), "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    end = time.monotonic() + 30
    while consumer.get_watermark_offsets(ConfluentPartition(topic, 0), timeout=10)[1] < 2:
        assert time.monotonic() < end
    consumer.close()


def seen(lab: Lab, relay: Relay, topic: str) -> tuple[PartitionFacts, list[int]]:
    """Return the partition, and where the transactions begin that are open on it."""

    async def ask(cluster: Cluster) -> tuple[PartitionFacts, list[int]]:
        topics = (await cluster.metadata([topic])).topics
        [facts], producers, missing = await at_one_moment(
            cluster, topics.values(), topics[topic].partitions
        )
        assert not missing
        rows = producers[TopicPartition(topic, 0)]
        starts = [r.current_txn_start_offset for r in rows]
        return facts, [start for start in starts if start is not None]

    return asked(lab, ask, relay.hosts)


def once(relay: Relay, key: int, work: Callable[[], None], *, after: int | None = None) -> None:
    """Do work before the first such request goes on; after: a key that was to be seen before."""
    done = False

    def before(_broker: int, sent: int) -> None:
        nonlocal done
        ready = after is None or any(k == after for _, k, _ in relay.requests)
        if sent == key and ready and not done:
            done = True
            time.sleep(0.3)  # until what went before is answered
            work()

    relay.before = before


def test_what_begins_between_two_answers_begins_below_the_high_watermark(
    lab1: Lab, topic: MakeTopic
) -> None:
    here = topic(lab1)
    producer = writer(lab1, here)
    with relayed(lab1) as relay:
        once(relay, DESCRIBE_PRODUCERS, lambda: write(producer, here))
        facts, opened = seen(lab1, relay, here)
    producer.abort_transaction(30)
    assert (facts.last_stable_offset, facts.high_watermark, opened) == (0, 1, [0])


def test_what_ends_between_two_answers_is_not_open_below_the_lso(
    lab1: Lab, topic: MakeTopic
) -> None:
    here = topic(lab1)
    producer = writer(lab1, here)
    write(producer, here)
    with relayed(lab1) as relay:
        once(relay, LIST_OFFSETS, lambda: commit(lab1, producer, here), after=DESCRIBE_PRODUCERS)
        facts, opened = seen(lab1, relay, here)
    assert (facts.last_stable_offset, facts.high_watermark, opened) == (2, 2, [])
    assert sum(relay.sent(DESCRIBE_PRODUCERS).values()) == 2


def test_what_began_after_it_is_not_what_holds_a_partition(lab1: Lab, topic: MakeTopic) -> None:
    """`lso` and the dashboard: the LSO of one transaction is not shown with the next one's."""
    here = topic(lab1)
    first, second = writer(lab1, here), writer(lab1, f"{here}-next")

    def next_one() -> None:
        commit(lab1, first, here)
        write(second, here)

    write(first, here)
    with relayed(lab1) as relay:
        once(relay, DESCRIBE_PRODUCERS, next_one)
        scope = Scope((parse_selector(here),))
        facts = asked(lab1, lambda c: look_at_partitions(c, scope), relay.hosts)
    second.abort_transaction(30)
    row = lso_row(facts.partitions[0], facts)
    assert row.blocking is not None
    assert row.blocking.start_offset == row.last_stable_offset == 2
    assert row.blocking.transactional_id == f"{here}-next"


def test_what_ends_above_an_older_open_transaction_is_no_finding(
    lab1: Lab, topic: MakeTopic
) -> None:
    """Its end does not move the LSO, which the older one holds."""
    here = topic(lab1)
    older, newer = writer(lab1, here), writer(lab1, f"{here}-newer")
    write(older, here)
    write(newer, here)

    def commit_newer() -> None:
        newer.commit_transaction(30)
        time.sleep(0.5)  # until its coordinator has all markers

    with relayed(lab1) as relay:
        once(relay, LIST_TRANSACTIONS, commit_newer)
        scope, settings = Scope((parse_selector(here),)), Settings()
        found = asked(lab1, lambda c: judging.diagnose(c, scope, settings, pause=0.3), relay.hosts)
    older.abort_transaction(30)
    assert [(j.verdict.name, j.about.start_offset) for j in found.judged] == [("open", 0)]


def test_a_clock_is_not_measured_by_the_next_transaction_of_an_id(
    lab1: Lab, topic: MakeTopic
) -> None:
    """It is younger than the one that was described: the clock would seem to be behind."""
    here = topic(lab1)
    producer = writer(lab1, here)
    write(producer, here)

    async def measured(cluster: Cluster, older: int) -> tuple[CoordinatorClock, ...]:
        [row], _ = await coordinators.find(cluster, [here])
        assert row.start_timestamp is not None
        described: TransactionFacts = replace(row, start_timestamp=row.start_timestamp - older)
        return await clocks.measured(cluster, [described], now_ms)

    [clock] = asked(lab1, lambda c: measured(c, 0))
    assert clock.ahead == 0
    assert asked(lab1, lambda c: measured(c, AN_HOUR)) == ()
    producer.abort_transaction(30)


def test_a_new_leader_may_take_a_moment_to_give_offsets(lab3: Lab) -> None:
    """It gives none before its followers in sync have fetched from it (OFFSET_NOT_AVAILABLE)."""
    name, successor, follower = asyncio.run(_replicated(lab3))
    settings = {**lab3.client_properties(), "acks": 1, "linger.ms": 0}
    producer = Producer(settings)
    lab3.freeze(follower)
    try:
        producer.produce(name, b"more", partition=0)  # above the high watermark
        assert producer.flush(30) == 0
        thaw = threading.Timer(3, lab3.thaw, [follower])
        asyncio.run(_hand_over(lab3, name, (successor, follower)))
        thaw.start()
        ran = eoctl("lso", name, "-o", "json", lab=lab3)
        thaw.join()
    finally:
        lab3.thaw(follower)
    assert ran.status == 0, ran.stdout
    [row] = ran.rows
    assert (row["leader"], row["high_watermark"]) == (successor, 2)


async def _replicated(lab: Lab) -> tuple[str, int, int]:
    """Return a topic with one record, and its two followers; the last is no controller."""
    async with Client.to(lab.bootstrap_servers) as client:
        controller = await quorum_leader(client)
        leader, successor, follower = sorted(lab.broker_ids, key=lambda b: b != controller)
        name = f"new-leader-{time.time_ns()}"
        await create_topic(client, name, replicas=[[leader, successor, follower]])
        await client.plain(name, 0, [NewRecord(b"one")])
        await client.until(lambda: client.offsets(name, 0))
        return name, successor, follower


async def _hand_over(lab: Lab, name: str, replicas: tuple[int, ...]) -> None:
    """Let the first of the replicas lead: it refuses to give offsets."""
    async with Client.to(lab.bootstrap_servers) as client:
        await set_replicas(client, name, 0, replicas)
        with pytest.raises(WireError) as refused:
            await client.offsets(name, 0)
    assert refused.value.error == "OFFSET_NOT_AVAILABLE"


def test_a_session_outlives_the_seconds_of_its_first_question(lab1: Lab) -> None:
    """The dashboard and the exporter ask for hours on one connection."""

    async def ask() -> None:
        context = resolve(Connect(bootstrap_server=lab1.bootstrap_servers))
        session = Session(context, 2.0)
        try:
            for _ in range(3):
                await session.ask(lambda cluster: cluster.metadata([]))
                await asyncio.sleep(1.2)
        finally:
            session.close()

    asyncio.run(ask())
