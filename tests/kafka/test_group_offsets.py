"""Where groups stand once a plan's transaction has ended: as the plan says, by Kafka's own clients.

Before it acts, a plan is held against what was written and what a plain consumer counts; afterwards
against the AdminClient, and against where a consumer of the group begins.
"""

import asyncio
import shlex
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka import Producer as Confluent
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.truth import STRAY_NOT_YET
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.operations.dashboard.bundling import source
from recovery.facts import TopicPartition as Partition
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.rights import as_user, rights

OFFSETS = "__consumer_offsets"


def written(lab: Lab, topic: str) -> None:
    """40 records, 5 of an aborted transaction with its marker, 20 records."""
    plain = Confluent(lab.client_properties())
    aborts = Confluent({**lab.client_properties(), "transactional.id": f"{topic}-aborts"})
    aborts.init_transactions(20)
    for count, producer in ((40, plain), (5, aborts), (20, plain)):
        if producer is aborts:
            aborts.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"in", partition=0)
        assert producer.flush(20) == 0
        if producer is aborts:
            aborts.abort_transaction(20)


def consumed(
    lab: Lab, topic: str, start: int = OFFSET_STORED, group: str = "oracle", reset: str = "error"
) -> list[int]:
    """The offsets that a read_committed consumer gets up to the end, one by one.

    start: without one, where its group and its auto.offset.reset have it begin.
    """
    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "enable.auto.commit": "false",
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": reset,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    offsets: list[int] = []
    end = time.monotonic() + 60
    while True:
        message = consumer.poll(0.5)
        assert time.monotonic() < end
        if message is not None and message.error() is None:
            offsets.append(message.offset())
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return offsets


def committed(lab: Lab, group: str, topic: str) -> int | None:
    """What the group has committed, by Kafka's AdminClient; None: nothing."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    admin = AdminClient(lab.client_properties())
    [row] = admin.list_consumer_group_offsets([asked])[group].result(20).topic_partitions
    return None if row.offset == OFFSET_INVALID else int(row.offset)


def offsets_of(ran: Ran, step: int = -1) -> dict[str, Mapping[str, Any]]:
    """Return what a plan's step says of each group."""
    assert ran.status == 0, ran.stdout + ran.stderr
    about = ran.rows[0]["steps"][step]["about"]
    return {o["group"]: o for row in about for o in row.get("group_offsets", ())}


def harms(ran: Ran) -> list[str]:
    return list(ran.rows[0]["steps"][-1]["harms"])


def two_homes(topic: str, homes: int) -> tuple[str, str]:
    """Two groups that different partitions of `__consumer_offsets` keep."""
    from recovery.formats.coordinator import coordinator_partition

    one = f"{topic}-only"
    names = (f"{topic}-earlier-{n}" for n in range(100))
    two = next(
        n for n in names if coordinator_partition(n, homes) != coordinator_partition(one, homes)
    )
    return one, two


def test_a_fence_ends_the_only_commit_of_one_group_and_the_newest_of_another(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """One transaction: a record in an output, and offsets of two groups on two partitions of
    `__consumer_offsets`."""
    lab, source_topic, output = lab1, topic(lab1), topic(lab1)
    name, pending = f"{output}-id", 50
    written(lab, source_topic)
    visible = consumed(lab, source_topic, 0)
    before = sum(offset < pending for offset in visible)
    after = len(visible) - before
    assert len(visible) == 60
    assert before not in (pending, 0)  # aborted records and a marker are below the offset
    fence = ("txn", "fence", name, "--owner-is-gone", *FAST)

    async def plant() -> tuple[str, str, int]:
        async with Client.of(lab.client_properties()) as client:
            only, earlier = two_homes(output, len(await client.partitions(OFFSETS)))
            consumer = Consumer({**lab.client_properties(), "group.id": earlier})
            at = TopicPartition(source_topic, 0, 20)
            consumer.commit(offsets=[at], asynchronous=False)
            consumer.close()
            owner = await Producer.init(client, name)
            await owner.send(output, 0, [NewRecord(b"out")])
            for group in (only, earlier):
                await owner.send_offsets(group, {Partition(source_topic, 0): 10})
                await owner.send_offsets(group, {Partition(source_topic, 0): pending})
            return only, earlier, owner.producer_id

    only, earlier, pid = asyncio.run(plant())
    assert (committed(lab, only, source_topic), committed(lab, earlier, source_topic)) == (None, 20)
    shown = eoctl("offsets", "show", "--group", only, "--group", earlier, "-o", "json", lab=lab)
    assert {(r["group"], r["committed_offset"], r["pending_offset"]) for r in shown.rows} == {
        (only, None, pending),
        (earlier, 20, pending),
    }
    table = eoctl("offsets", "show", "--group", only, lab=lab).stdout
    assert f"{pending} by pid {pid}" in table
    file = tmp_path / "now.eoctl"
    assert eoctl("bundle", "create", str(file), *FAST, lab=lab).status in (0, 1)
    groups, _ = asyncio.run(source(file).groups(None))
    kept = {g.group: [o.pending_offset for o in g.offsets] for g in groups}
    assert (kept[only], kept[earlier]) == ([pending], [pending])

    plan = eoctl(*fence, "-o", "json", lab=lab)
    found = offsets_of(plan)
    assert set(found) == {only, earlier}
    assert found[only]["on"] != found[earlier]["on"]
    assert all(o["ends"] and o["pending_offset"] == pending for o in found.values())
    commits = {"commit": {"offset": pending, "known": True}}  # as its owner still might
    assert found[only]["after"] == {"abort": {"offset": None, "known": True}} | commits
    assert found[earlier]["after"] == {"abort": {"offset": 20, "known": True}} | commits
    assert (found[only]["records_before"], found[only]["records_after"]) == (before, after)
    [first, *others] = harms(plan)
    assert first.startswith(f"group {only} has NO offset of {source_topic}:0 after the abort")
    assert f"earliest: up to {before} again, latest: up to {before + after} skipped" in first
    assert not any(earlier in harm for harm in (first, *others))
    text = " ".join(eoctl(*fence, lab=lab).stdout.split())
    assert f"groups {only} in {source_topic}:0 now - pending {pending} after abort NONE" in text
    assert f"groups {earlier} in {source_topic}:0 now 20 pending {pending} after abort 20" in text

    assert eoctl(*fence, "--execute", "--yes", lab=lab).status == 0
    assert (committed(lab, only, source_topic), committed(lab, earlier, source_topic)) == (None, 20)
    begins = {
        reset: consumed(lab, source_topic, group=only, reset=reset)
        for reset in ("earliest", "latest")
    }
    assert sum(offset < pending for offset in begins["earliest"]) == before
    assert len(visible) - len(begins["latest"]) == before + after

    line = first.split("To set one afterwards: ")[1].removesuffix(" (or --to-offset N)")
    command = shlex.split(line)[1:]
    at = ("--to-offset", str(pending))
    for words, offset in (
        (command, 0),
        ([*command[: command.index("--to-earliest")], *at], pending),
    ):
        planned = tmp_path / f"{offset}.json"
        made = eoctl(*words, "--out", str(planned))
        assert made.status == 0, made.stdout + made.stderr
        applied = eoctl("restart", "apply", str(planned), "--execute", "--yes", lab=lab)
        assert applied.status == 0, applied.stdout + applied.stderr
        assert committed(lab, only, source_topic) == offset


def test_a_commit_makes_the_pending_offset_count(lab2: Lab) -> None:
    """A lost COMMIT of a group's offsets: the outcome is proven, and only that one is shown."""
    [truth] = break_(lab2, "offsets-marker-lost")
    assert truth.group is not None
    assert truth.group_topic is not None
    at = (f"{truth.topic}:{truth.partition}", "--pid", str(truth.producer_id))
    start = ("--start-offset", str(truth.start_offset))
    resolve = ("txn", "resolve", *at, *start, "--outcome", "commit", *FAST)
    plan = eoctl(*resolve, "-o", "json", lab=lab2)
    found = offsets_of(plan)[truth.group]
    assert (found["committed_offset"], found["pending_offset"]) == (2, 5)
    assert found["after"] == {"commit": {"offset": 5, "known": True}}
    assert committed(lab2, truth.group, truth.group_topic) == 2
    assert eoctl(*resolve, "--execute", "--yes", lab=lab2).status == 0
    assert committed(lab2, truth.group, truth.group_topic) == 5


async def strays(lab: Lab, name: str, output: str, group: str, source_topic: str) -> int:
    """Leave a record and a group's offset to a producer id that no coordinator knows as open."""
    async with Client.of(lab.client_properties()) as client:
        owner = await Producer.init(client, name)
        async with unverified(client):
            await client.until(
                partial(owner.write, output, 0, [NewRecord(b"stray")]), also=STRAY_NOT_YET
            )
            await client.until(
                partial(owner.write_offsets, group, {Partition(source_topic, 0): 3}),
                also=STRAY_NOT_YET,
            )
        await Producer.init(client, name)
    return owner.producer_id


def test_a_marker_on_the_output_leaves_the_offset_pending_and_what_is_hidden_is_told(
    secure_lab: Lab, topic: MakeTopic
) -> None:
    """A transaction of an output and `__consumer_offsets`: a marker ends one of them at a time."""
    lab, source_topic, output = secure_lab, topic(secure_lab), topic(secure_lab)
    group, name = f"{output}-group", f"{output}-id"
    plain = Confluent(lab.client_properties())
    for _ in range(4):
        plain.produce(source_topic, b"in", partition=0)
    assert plain.flush(20) == 0
    pid = asyncio.run(strays(lab, name, output, group, source_topic))

    def abort(place: str, number: str) -> tuple[str, ...]:
        start = start_of_secure(lab, place, int(number), pid)
        at = ("--pid", str(pid), "--start-offset", str(start))
        return ("txn", "abort", f"{place}:{number}", *at, *FAST)

    first = abort(output, "0")
    plan = as_user(lab, "operator", *first, "-o", "json")
    found = offsets_of(plan)[group]
    assert (found["ends"], found["committed_offset"], found["pending_offset"]) == (False, None, 3)
    assert set(found["after"]) == {"abort", "commit"}
    assert not any(group in harm for harm in harms(plan))
    shown = as_user(lab, "operator", *first)
    assert f"this step does not end it on {found['on']}" in " ".join(shown.stdout.split())

    with rights(lab, "operator", ("TOPIC", OFFSETS, "READ"), deny=True):
        end = time.monotonic() + 20
        while True:  # until the broker applies it
            hidden = as_user(lab, "operator", *first, "-o", "json")
            [row] = hidden.rows[0]["steps"][-1]["about"]
            if row.get("group_offsets_unseen"):
                break
            assert time.monotonic() < end, hidden.stdout
        words = as_user(lab, "operator", *first)
        listed = as_user(lab, "operator", "offsets", "show", "--group", group, "-o", "json")
    home = found["on"].split(":")
    assert "group_offsets" not in row
    unseen = row["group_offsets_unseen"]
    assert (home[0], int(home[1])) in {(u["topic"], u["partition"]) for u in unseen}
    assert {u["error"] for u in unseen} == {"TOPIC_AUTHORIZATION_FAILED"}
    text = " ".join(words.stdout.split())
    assert "There may be more offsets of groups in this transaction: " in text
    assert [(r["pending"], r["pending_offset"]) for r in listed.rows] == [(True, None)]

    second = abort(*home)
    plan = as_user(lab, "operator", *second, "-o", "json")
    found = offsets_of(plan)[group]
    assert found["ends"]
    assert found["after"] == {"abort": {"offset": None, "known": True}}
    assert (found["records_before"], found["records_after"]) == (3, 1)
    assert harms(plan)[0].startswith(f"group {group} has NO offset of {source_topic}:0 after")
    for command in (first, second):
        assert as_user(lab, "operator", *command, "--execute", "--yes").status == 0
    assert committed(lab, group, source_topic) is None


def start_of_secure(lab: Lab, topic: str, partition: int, producer_id: int) -> int:
    """The first offset of its open transaction, by eoctl's own list: it only makes the command."""
    ran = as_user(lab, "operator", "producers", f"{topic}:{partition}", "-o", "json")
    [row] = [r for r in ran.rows if r["producer_id"] == producer_id]
    return int(row["current_txn_start_offset"])
