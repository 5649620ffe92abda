"""Markers that no coordinator decided, on real brokers: written by Kafka's own tool, or by eoctl.

What is expected is what the test did itself. Where a marker is and what it says comes from the raw
log, as kafka-python decodes it.
"""

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer as Librdkafka

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.truth import STRAY_NOT_YET
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.formats.coordinator import coordinator_partition
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.kafka.test_rule_names import compacted
from tests.kafka.tools import kafka_tool
from tests.share import only_here

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
RECORDS = [NewRecord(b"k", b"v")] * 3


class Control(NamedTuple):
    """A marker as the raw log has it."""

    offset: int
    timestamp: str
    outcome: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def _rfc3339(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def controls(lab: Lab, topic: str) -> list[Control]:
    """All markers of partition 0."""

    async def read() -> list[Control]:
        async with Client.to(lab.bootstrap_servers) as client:
            found = []
            for batch in await client.batches(topic, 0):
                if batch.is_control_batch:
                    [record] = batch
                    _, kind = struct.unpack(">hh", bytes(record.key))
                    _, coordinator_epoch = struct.unpack(">hi", bytes(record.value)[:6])
                    found.append(
                        Control(
                            batch.base_offset,
                            _rfc3339(batch.max_timestamp),
                            {0: "abort", 1: "commit"}[kind],
                            batch.producer_id,
                            batch.producer_epoch,
                            coordinator_epoch,
                        )
                    )
            return found

    return asyncio.run(read())


def shown(row: dict[str, Any]) -> tuple[Control, str]:
    """A marker as eoctl shows it, and whose it is."""
    return Control(*(row[name] for name in Control._fields)), row["origin"]


async def stray(client: Client, topic: str, name: str, version: int) -> int:
    """Commit three records, let three more arrive that nobody ends; the offset of these."""
    producer = await Producer.init(client, name, version=version)
    await producer.send(topic, 0, RECORDS)
    await producer.commit()
    async with unverified(client):
        write = partial(producer.write, topic, 0, RECORDS)
        return await client.until(write, also=STRAY_NOT_YET)


def orphan(lab: Lab, topic: str, version: int) -> int:
    async def make() -> int:
        async with Client.of(lab.client_properties()) as client:
            return await stray(client, topic, topic, version)

    return asyncio.run(make())


def abort_with_kafkas_tool(lab: Lab, topic: str, start: int) -> None:
    where = ("--topic", topic, "--partition", "0", "--start-offset", str(start))
    server = ("--bootstrap-server", lab.bootstrap_servers)
    done = kafka_tool(lab, TRANSACTIONS, *server, "abort", *where)
    assert done.returncode == 0, done.stderr


def audited(lab: Lab, topic: str) -> Ran:
    ran = eoctl("audit", "transactions", topic, "-o", "json", lab=lab, timeout=120)
    return as_published(ran, "audit-transactions")


def why(lab: Lab, topic: str, *words: str) -> Ran:
    return eoctl("why", f"{topic}:0", *FAST, *words, lab=lab, timeout=120)


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_by_kafkas_own_tool_is_named(lab1: Lab, topic: MakeTopic, version: int) -> None:
    name = topic(lab1)
    start = orphan(lab1, name, version)
    abort_with_kafkas_tool(lab1, name, start)
    commit, by_hand = controls(lab1, name)
    assert (commit.outcome, by_hand.outcome) == ("commit", "abort")
    assert by_hand.offset == start + len(RECORDS)

    ran = as_published(why(lab1, name, "-o", "json"), "why")
    [row] = ran.rows
    assert [shown(m) for m in row["markers"]] == [(by_hand, "foreign")]
    origins = {s["first_offset"]: s["origin"] for s in row["strip"] if s["kind"] == "control"}
    assert origins == {commit.offset: "decided", by_hand.offset: "foreign"}
    page = why(lab1, name)
    assert f"ABORT at offset {by_hand.offset}, " in page.text
    assert "another tool or a person wrote it" in page.text
    assert "===Cxxx!" in page.stdout

    ran = audited(lab1, name)
    assert [shown(m) for m in ran.json["markers"]] == [(by_hand, "foreign")]
    counts = [ran.json[n] for n in ("foreign_markers", "own_markers", "decisions_gone", "findings")]
    assert counts == [1, 0, 0, 0]


def test_a_held_partition_names_it_too(lab1: Lab, topic: MakeTopic) -> None:
    """Aborted by Kafka's tool, and then the next record that nobody ends."""
    name = topic(lab1)
    abort_with_kafkas_tool(lab1, name, orphan(lab1, name, 2))
    by_hand = controls(lab1, name)[-1]
    start = orphan(lab1, name, 2)
    [row] = why(lab1, name, "-o", "json").rows
    assert (row["stuck"], row["held_by"]["start_offset"]) == (True, start)
    assert [shown(m) for m in row["markers"]] == [(by_hand, "foreign")]


def test_what_eoctl_wrote_is_ours(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    orphan(lab1, name, 2)
    judged = why(lab1, name, "-o", "json").rows[0]["held_by"]
    plan = [*judged["remedy"]["argv"][1:], *FAST]
    done = eoctl(*plan, "--execute", "--yes", lab=lab1, timeout=120)
    assert done.status == 0, done.text
    ours = controls(lab1, name)[-1]
    assert ours.outcome == "abort"
    [row] = why(lab1, name, "-o", "json").rows
    assert [shown(m) for m in row["markers"]] == [(ours, "ours")]
    ran = audited(lab1, name)
    assert (ran.json["foreign_markers"], ran.json["own_markers"]) == (0, 1)


def test_a_marker_against_the_decision_is_named(lab1: Lab) -> None:
    """Its coordinator decided COMMIT, and an ABORT of a made-up coordinator epoch came first."""
    [truth] = break_(lab1, "coordinator-fenced", variant="contradicted")
    by_hand = controls(lab1, truth.topic)[-1]
    assert by_hand.outcome == "abort"
    ran = audited(lab1, truth.topic)
    assert [shown(m) for m in ran.json["markers"]] == [(by_hand, "foreign")]


def ended(lab: Lab, topic: str, how: str, version: int) -> None:
    """A transaction that ends as a coordinator ends it."""

    async def end() -> None:
        async with Client.of(lab.client_properties()) as client:
            timeout = 1000 if how == "timeout" else 60_000
            producer = await Producer.init(client, topic, timeout, version=version)
            await producer.send(topic, 0, RECORDS)
            if how in ("commit", "abort"):
                await producer.end(commit=how == "commit")
            elif how == "fence":
                fence = ("txn", "fence", topic, "--owner-is-gone", "--execute", "--yes", *FAST)
                ran = await asyncio.to_thread(eoctl, *fence, lab=lab, timeout=120)
                assert ran.status == 0, ran.text
            elif how == "init":
                await Producer.init(client, topic, version=version)
            await producer.completed()

    asyncio.run(end())


@pytest.mark.parametrize("version", only_here([1, 2], 2))
def test_no_end_by_a_coordinator_is_foreign(lab1: Lab, topic: MakeTopic, version: int) -> None:
    name = topic(lab1)
    ways = ("commit", "abort", "timeout", "init", "fence", "commit")
    for how in ways:
        ended(lab1, name, how, version)
    outcomes = ["commit" if how == "commit" else "abort" for how in ways]
    assert [c.outcome for c in controls(lab1, name)] == outcomes
    ran = audited(lab1, name)
    counts = [ran.json[n] for n in ("foreign_markers", "own_markers", "decisions_gone", "findings")]
    assert counts == [0, 0, 0, 0]
    # a record that nobody ends, so that the page shows the log
    orphan(lab1, name, version)
    [row] = why(lab1, name, "-o", "json").rows
    assert row["markers"] == []
    found = [s["origin"] for s in row["strip"] if s["kind"] == "control"]
    assert found == ["decided"] * (len(ways) + 1)


@contextmanager
def busy(lab: Lab, topic: str) -> Iterator[list[int]]:
    """An application commits one transaction after the other; yields how many, in a list."""
    stop, committed = threading.Event(), [0]

    def work() -> None:
        producer = Librdkafka({**lab.client_properties(), "transactional.id": f"{topic}-busy"})
        producer.init_transactions(30)
        while not stop.is_set():
            producer.begin_transaction()
            producer.produce(topic, b"v", b"k", partition=0)
            producer.commit_transaction(30)
            committed[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not committed[0]:
            assert time.monotonic() < until, "it has committed nothing"
            time.sleep(0.1)
        yield committed
    finally:
        stop.set()
        thread.join(60)


def test_a_busy_partition_has_none(lab1: Lab, topic: MakeTopic) -> None:
    """Each look comes between a decision and its marker, or before both."""
    name = topic(lab1)
    with busy(lab1, name) as committed:
        for _ in range(4):
            before = committed[0]
            ran = audited(lab1, name)
            assert (ran.json["foreign_markers"], ran.json["decisions_gone"]) == (0, 0)
            [row] = [r for r in why(lab1, name, "-o", "json").rows if r["partition"] == 0] or [{}]
            assert row.get("markers", []) == []
            assert committed[0] > before


@pytest.mark.long
def test_a_marker_whose_decision_was_compacted_away_is_nobodys(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    """Neither foreign nor decided: the Prepare record is gone, as it soon is everywhere."""
    lab = start_lab(LabSpec(name="gone", settings={"log.cleaner.backoff.ms": "500"}))
    name = topic(lab)

    async def make() -> None:
        async with Client.of(lab.client_properties()) as client:
            producer = await Producer.init(client, name, version=1)
            state = len(await client.partitions("__transaction_state"))
            home = coordinator_partition(name, state)
            for _ in range(3):
                await producer.send(name, 0, RECORDS)
                await producer.commit()
            other = next(
                f"{name}-{n}"
                for n in range(1000)
                if coordinator_partition(f"{name}-{n}", state) == home
            )
            rolls = await Producer.init(client, other, version=1)
            await compacted(client, home, rolls, name)
            await rolls.abort()

    asyncio.run(make())
    ran = audited(lab, name)
    committed = [c for c in controls(lab, name) if c.outcome == "commit"]
    assert len(committed) == 3
    assert (ran.json["foreign_markers"], ran.json["decisions_gone"]) == (0, len(committed))
