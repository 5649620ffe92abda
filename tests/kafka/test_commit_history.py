"""`offsets history` and `restart plan --as-of` on real brokers, beside Kafka's own formatter."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.admin import TOPIC
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.facts import TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.times import rfc3339
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit, committed, producing, until, write
from tests.kafka.test_state_compaction import CLEANED, configure, eager_cleaner
from tests.kafka.tools import kafka_tool

TOOLS = "org.apache.kafka.tools"
OFFSETS = "__consumer_offsets"


def new_group() -> str:
    return f"past-{uuid.uuid4().hex[:8]}"


def home(group: str) -> int:
    """The partition that keeps a group: a lab of tests has 10."""
    return coordinator_partition(group, 10)


def printed(lab: Lab, group: str) -> list[tuple[Any, ...]]:
    """The group's records in their order, by Kafka's consumer and formatter."""
    done = kafka_tool(
        lab,
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", OFFSETS),
        *("--partition", str(home(group)), "--offset", "earliest"),
        *("--formatter", f"{TOOLS}.consumer.OffsetsMessageFormatter"),
        *("--timeout-ms", "1500", "--command-property", "fetch.wait.max.ms=20"),
    )
    found: list[tuple[Any, ...]] = []
    decoder, text = json.JSONDecoder(), done.stdout.lstrip()
    while text.startswith("{"):
        record, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        key, value = record["key"]["data"], (record["value"] or {}).get("data")
        if key["group"] == group:
            fields = ("offset", "leaderEpoch", "metadata", "commitTimestamp")
            mine = (None,) * 4 if value is None else tuple(value[f] for f in fields)
            found.append((key["topic"], key["partition"], *mine))
    return found


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows of `offsets history` in the form of `printed`."""
    found: list[tuple[Any, ...]] = []
    for row in rows:
        mine: tuple[Any, ...] = (None,) * 4
        if not row["deleted"]:
            epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
            mine = (row["committed_offset"], epoch, row["metadata"] or "", row["timestamp"])
        found.append((row["topic"], row["partition"], *mine))
    return found


def in_text(records: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Kafka's commit times as JSON has them here."""
    return [(*r[:5], None if r[5] is None else rfc3339(r[5])) for r in records]


def history(lab: Lab, group: str, *words: str) -> Ran:
    ran = eoctl("offsets", "history", group, *words, "-o", "json", lab=lab)
    assert ran.status == 0, ran.stderr
    return ran


def column(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def reset(lab: Lab, group: str, *words: str) -> None:
    """Kafka's own tool, as a person uses it."""
    done = kafka_tool(
        lab,
        f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "--group", group, *words),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout


def filled(lab: Lab, topic: MakeTopic, partitions: int = 1) -> str:
    """A topic of 100 records in each partition."""
    name = topic(lab, partitions, name="past")
    producer = producing(lab)
    for partition in range(partitions):
        write(producer, name, ["x"] * 100, partition)
    return name


@contextmanager
def member(lab: Lab, group: str, topic: str, protocol: str = "classic") -> Iterator[Any]:
    """A consumer that is in the group and has its partitions."""
    from confluent_kafka import Consumer

    settings = {"group.id": group, "enable.auto.commit": False, "group.protocol": protocol}
    consumer = Consumer(lab.client_properties() | settings)
    consumer.subscribe([topic])
    end = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < end
    try:
        yield consumer
    finally:
        consumer.close()


def commits(consumer: Any, topic: str, *offsets: int, partition: int = 0) -> None:
    """One by one."""
    from confluent_kafka import TopicPartition as Position

    for offset in offsets:
        [done] = consumer.commit(offsets=[Position(topic, partition, offset)], asynchronous=False)
        assert done.error is None


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_a_group_through_time(lab1: Lab, topic: MakeTopic, tmp_path: Path, protocol: str) -> None:
    """Its member, Kafka's tool, eoctl, transactions that were committed, aborted, are open."""
    where, group = filled(lab1, topic), new_group()
    with member(lab1, group, where, protocol) as consumer:
        commits(consumer, where, 10, 20, 30, 25)
    reset(lab1, group, "--reset-offsets", "--topic", where, "--to-offset", "3", "--execute")
    plan = str(tmp_path / "plan.json")
    words = ("--group", group, "--topic", where, "--to-offset", "7", "--out", plan)
    assert eoctl("restart", "plan", *words, "--pause", "0.1s", lab=lab1).status == 0
    applied = eoctl("restart", "apply", plan, "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.stderr
    entry = applied.stderr.split("journal entry ")[1].split()[0]
    pids = asyncio.run(in_transactions(lab1, group, where))

    rows = history(lab1, group).rows
    assert shown(rows) == in_text(printed(lab1, group))
    expected = [
        *((10, "member", None), (20, "member", None), (30, "member", None)),
        *((25, "member", None), (3, "no-member", None), (7, "no-member", None)),
        *((40, "transaction", "committed"), (50, "transaction", "aborted")),
        (60, "transaction", "pending"),
    ]
    assert column(rows, "committed_offset", "committed_by", "outcome") == expected
    assert [row["event"] for row in rows] == [
        *(None, None, None, "back", "reset", "reset", None, None, None)
    ]
    assert [row["moved"] for row in rows] == [None, 10, 10, -5, -22, 4, 33, None, None]
    assert [row["journal_entry"] for row in rows] == [*[None] * 5, entry, *[None] * 3]
    assert [row["counts"] for row in rows] == [*[True] * 7, False, None]
    assert column(rows[6:], "producer_id", "transactional_id") == [
        *((pids[0], f"{group}-a"), (pids[0], f"{group}-a"), (pids[1], f"{group}-b"))
    ]
    assert committed(lab1, group) == {(where, 0): 40}

    people = eoctl("offsets", "history", group, where, lab=lab1)
    for text in (
        f"{where}:0 went back from 30 to 25: what is between is read again, by a member",
        f"{where}:0 moved from 25 to 3 while the group had no members",
        f"{where}:0 moved from 3 to 7 by eoctl: journal entry {entry}",
        "9 records of 1 partition, 1 back, 2 reset",
    ):
        assert text in people.text
    asyncio.run(aborted(lab1, f"{group}-b"))


async def in_transactions(lab: Lab, group: str, where: str) -> tuple[int, int]:
    """40 is committed, 50 aborted, 60 pending of another id; their producer ids."""
    async with Client.to(lab.bootstrap_servers) as client:
        one = await Producer.init(client, f"{group}-a")
        pid = one.producer_id
        await one.send_offsets(group, {TopicPartition(where, 0): 40})
        await one.commit()
        await one.send_offsets(group, {TopicPartition(where, 0): 50})
        await one.abort()
        other = await Producer.init(client, f"{group}-b")
        await other.send_offsets(group, {TopicPartition(where, 0): 60})
        return pid, other.producer_id


def test_a_step_back_of_a_restarted_application(lab1: Lab, topic: MakeTopic) -> None:
    """Its id is initialised again, and commits less: the transaction log says so."""
    where, group = filled(lab1, topic), new_group()

    async def committing(*offsets: int) -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, f"{group}-a")
            for offset in offsets:
                await owner.send_offsets(group, {TopicPartition(where, 0): offset})
                await owner.commit()

    asyncio.run(committing(10, 20))
    begun = now()
    asyncio.run(committing(5, 6))
    rows = history(lab1, group).rows
    assert [row["event"] for row in rows] == [None, None, "back", None]
    times = [row["initialised_at"] for row in rows]
    assert times == [None, None, times[2], None]
    assert (rfc3339(begun) or "") < times[2] < rows[2]["timestamp"]
    people = eoctl("offsets", "history", group, lab=lab1)
    assert f"went back from 20 to 5: what is between is read again, by {group}-a;" in people.text
    assert f"that id was initialised at {times[2]}" in people.text


@pytest.mark.long
def test_an_offset_that_is_deleted_while_a_transaction_holds_a_newer_one(
    lab1: Lab, topic: MakeTopic
) -> None:
    """Kafka drops the pending one too: its COMMIT brings nothing back."""
    where, group = filled(lab1, topic), new_group()
    commit(lab1, group, {(where, 0): 10})

    async def in_between() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, f"{group}-a")
            await owner.send_offsets(group, {TopicPartition(where, 0): 20})
            await asyncio.to_thread(reset, lab1, group, "--delete-offsets", "--topic", where)
            await owner.commit()

    asyncio.run(in_between())
    assert committed(lab1, group) == {}
    rows = history(lab1, group).rows
    assert column(rows, "committed_offset", "outcome", "counts") == [
        *((10, None, True), (20, "committed", False), (None, None, True))
    ]


async def aborted(lab: Lab, name: str) -> None:
    """End what an id has open, by its next initialisation."""
    async with Client.to(lab.bootstrap_servers) as client:
        await Producer.init(client, name)


def test_offsets_that_were_deleted(lab1: Lab, topic: MakeTopic) -> None:
    """By Kafka's tool: one partition's, then the group. The group is gone, its past is not."""
    where, group = filled(lab1, topic, 2), new_group()
    commit(lab1, group, {(where, 0): 10, (where, 1): 11})
    reset(lab1, group, "--delete-offsets", "--topic", f"{where}:1")
    reset(lab1, group, "--delete")
    until(lambda: not committed(lab1, group))
    ran = history(lab1, group)
    assert shown(ran.rows) == in_text(printed(lab1, group))
    assert column(ran.rows, "partition", "committed_offset", "event", "previous_offset") == [
        *((0, 10, None, None), (1, 11, None, None)),
        *((1, None, "deleted", 11), (0, None, "deleted", 10)),
    ]
    assert ran.json["offsets_retention_ms"] == 7 * 86_400_000
    assert (ran.json["whole"], ran.json["state"]) == (True, "Dead")
    one = history(lab1, group, f"{where}:1", "--newest", "1")
    assert column(one.rows, "partition", "event") == [(1, "deleted")]
    assert one.json["left_out"] == 1


def test_what_is_no_history(lab1: Lab) -> None:
    nobody = eoctl("offsets", "history", new_group(), "-o", "json", lab=lab1)
    assert (nobody.status, nobody.json["errors"][0]["error"]) == (3, "GROUP_ID_NOT_FOUND")
    wrong = eoctl("offsets", "history", "g", "--since", "soon", lab=lab1)
    assert (wrong.status, "is not an instant" in wrong.stderr) == (2, True)


def then(lab: Lab, group: str, at: int, *words: str) -> Ran:
    """A plan as of a time."""
    pause = ("--pause", "0.1s")
    return eoctl(
        *("restart", "plan", "--group", group, "--as-of", rfc3339(at) or "", *pause, *words),
        lab=lab,
    )


def now() -> int:
    """A time between two commits, by the clock that the broker has too."""
    time.sleep(0.05)
    at = int(time.time() * 1000)
    time.sleep(0.05)
    return at


def test_a_plan_as_of_a_time(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Each time gives what the group had then; what is applied has its leader epoch."""
    from confluent_kafka import TopicPartition as Position

    where, group = filled(lab1, topic, 2), new_group()
    times = [now()]
    with member(lab1, group, where) as consumer:
        for offset in (10, 20, 40):
            one = Position(where, 0, offset, leader_epoch=0)
            consumer.commit(offsets=[one], asynchronous=False)
            times.append(now())
        commits(consumer, where, 7, partition=1)
    times.append(now())
    reset(lab1, group, "--delete-offsets", "--topic", f"{where}:1")
    times.append(now())

    def at(time: int) -> dict[int, int]:
        ran = then(lab1, group, time, "--all-topics", "--export")
        assert ran.status == 0, ran.stderr
        rows = [line.split(",") for line in ran.stdout.splitlines()]
        return {int(partition): int(offset) for _, partition, offset in rows}

    assert [at(t) for t in times[1:]] == [{0: 10}, {0: 20}, {0: 40}, {0: 40, 1: 7}, {0: 40}]
    never = then(lab1, group, times[0], "--topic", f"{where}:0")
    assert (never.status, "the group had no offset of it at" in never.text) == (4, True)

    plan = str(tmp_path / "plan.json")
    made = then(lab1, group, times[2], "--topic", f"{where}:0", "--out", plan, "-o", "json")
    assert made.status == 0, made.stderr
    checks = {check["name"]: check for check in made.rows[0]["checks"]}
    [row] = [r for r in history(lab1, group).rows if r["committed_offset"] == 20]
    assert f"{OFFSETS}:{home(group)} offset {row['record_offset']}" in checks["as-of"]["detail"]
    assert (checks["as-of"]["held"], checks["leader-epoch"]["held"]) == (True, True)
    applied = eoctl("restart", "apply", plan, "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.stderr
    assert printed(lab1, group)[-1][:4] == (where, 0, 20, 0)
    for words in (("--to-earliest", "--all-topics"), ("--all-topics", "--topic", where), ()):
        assert then(lab1, group, times[2], *words).status == 2


async def ended(lab: Lab, group: str, where: TopicPartition) -> None:
    """One transaction aborts 50, the next commits 40."""
    async with Client.to(lab.bootstrap_servers) as client:
        owner = await Producer.init(client, f"{group}-a")
        await owner.send_offsets(group, {where: 50})
        await owner.abort()
        await owner.send_offsets(group, {where: 40})
        await owner.commit()


def test_a_log_that_was_compacted(start_lab: Callable[[LabSpec], Lab], topic: MakeTopic) -> None:
    """What is left is what Kafka's formatter prints, and is said to be not all. As of a time, an
    idle partition is known, and one whose commits of then are gone is refused.

    Of partition 3 the offset is deleted; 4 is committed in a transaction, after one that aborts. A
    lab of its own: open transactions of other tests may stop the cleaner."""
    lab1 = start_lab(LabSpec(name="compacted"))
    where, group = filled(lab1, topic, 5), new_group()
    commit(lab1, group, {(where, 0): 10, (where, 1): 5, (where, 3): 8})
    reset(lab1, group, "--delete-offsets", "--topic", f"{where}:3")
    asyncio.run(ended(lab1, group, TopicPartition(where, 4)))
    first = now()
    commit(lab1, group, {(where, 0): 20})
    middle = now()
    commit(lab1, group, {(where, 0): 30})
    last = now()
    settings: dict[str, str | None] = {k: v for k, v in CLEANED.items() if k != "cleanup.policy"}
    configure(lab1, TOPIC, OFFSETS, settings)
    try:
        with eager_cleaner(lab1):
            end, number = time.monotonic() + 90, 0
            while sum(r[1] == 0 for r in printed(lab1, group)) > 1:
                assert time.monotonic() < end, "the cleaner did not take the commits"
                time.sleep(1.1)  # segment.ms
                commit(lab1, group, {(where, 2): (number := number + 1)})
    finally:
        configure(lab1, TOPIC, OFFSETS, dict.fromkeys(settings))
    ran = history(lab1, group)
    assert shown(ran.rows) == in_text(printed(lab1, group))
    assert ran.json["whole"] is False
    left = column(ran.rows, "partition", "committed_offset", "earlier_missing")
    assert {(1, 5, True), (0, 30, True)} <= set(left)
    [row] = [row for row in ran.rows if row["partition"] == 4 and row["counts"]]
    assert (row["committed_offset"], row["outcome"]) == (40, "committed")
    assert all(row["deleted"] for row in ran.rows if row["partition"] == 3)
    since = ran.json["complete_since"]
    assert since > (rfc3339(middle) or "")
    people = eoctl("offsets", "history", group, lab=lab1)
    assert f"complete since {since}: before, each partition's newest is left" in people.text

    idle = then(lab1, group, first, "--topic", f"{where}:1", "--export")
    assert (idle.status, idle.stdout) == (0, f"{where},1,5\n"), idle.stderr
    later = then(lab1, group, last, "--topic", f"{where}:0,1,4", "--export")
    assert later.status == 0, later.stderr
    assert later.stdout == f"{where},0,30\n{where},1,5\n{where},4,40\n"
    unknown = then(lab1, group, first, "--topic", f"{where}:0,1")
    assert unknown.status == 4
    assert "is not known: compaction may have removed its commits" in unknown.text
    assert f"{where}:0" in unknown.text
