"""Whom a plan says that it concerns: the transaction's other partitions, and groups past its first
record. Held against Kafka's own tools."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.truth import STRAY_NOT_YET
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.rights import as_user, rights
from tests.kafka.test_breaks import TOOLS, table
from tests.kafka.tools import kafka_tool

GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


def read(lab: Lab, group: str, topic: str, partition: int, isolation: str, to: int) -> None:
    """Consume as an application does, commit, and leave: up to offset `to`, which must be all."""
    consumer = Consumer(
        lab.client_properties()
        | {"group.id": group, "isolation.level": isolation, "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    end = time.monotonic() + 30
    while True:
        message = consumer.poll(0.3)
        if message is None and consumer.position(consumer.assignment())[0].offset == to:
            break
        assert time.monotonic() < end, f"{group} stands before {to}"
    consumer.commit(offsets=[TopicPartition(topic, partition, to)], asynchronous=False)
    consumer.close()


def committed(lab: Lab, group: str) -> dict[tuple[str, int], int]:
    """Return where a group stands, by kafka-consumer-groups.sh."""
    words = ("--describe", "--group", group, "--bootstrap-server", lab.bootstrap_servers)
    lines = kafka_tool(lab, GROUPS, *words).stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(group)]
    return {(row[1], int(row[2])): int(row[3]) for row in rows}


def start_of(lab: Lab, topic: str, partition: int, producer_id: int) -> int:
    """Return the first offset of its open transaction, by kafka-transactions.sh."""
    rows = table(lab, "describe-producers", "--topic", topic, "--partition", str(partition))
    (row,) = [r for r in rows if r["ProducerId"] == str(producer_id)]
    return int(row["CurrentTransactionStartOffset"])


def about(ran: Ran) -> dict[str, Mapping[str, Any]]:
    """Return what a plan's last step says of each partition."""
    assert ran.status == 0, ran.stdout + ran.stderr
    return {row["partition"]: row for row in ran.rows[0]["steps"][-1]["about"]}


def words_of(ran: Ran, label: str) -> str:
    """Return a shown plan's text under a label, on one line."""
    lines = ran.stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f" {label} "))
    below = takewhile(lambda line: line.startswith(" " * 10), lines[at + 1 :])
    return " ".join(" ".join([lines[at].removeprefix(f" {label} "), *below]).split())


def test_a_fence_of_three_partitions_and_a_group_past_one(lab1: Lab, topic: MakeTopic) -> None:
    """One plain record on each, then two open ones: they begin at 1. A group that reads
    uncommitted records stands at 3, one that reads committed ones is held at 1."""
    one, two = topic(lab1, 2), topic(lab1)
    partitions, name = [(one, 0), (one, 1), (two, 0)], f"{one}-id"
    past, held = f"{one}-past", f"{one}-held"

    async def scenario() -> None:
        async with Client.of(lab1.client_properties()) as client:
            plain = await Producer.init(client)
            owner = await Producer.init(client, name)
            for partition in partitions:
                await plain.send(*partition, [NewRecord(b"plain")])
                await owner.send(*partition, [NewRecord(b"open"), NewRecord(b"open")])
            await asyncio.to_thread(looked_at, owner.producer_id)
            await owner.commit()

    def looked_at(producer_id: int) -> None:
        read(lab1, past, one, 1, "read_uncommitted", 3)
        read(lab1, held, one, 1, "read_committed", 1)
        assert (committed(lab1, past), committed(lab1, held)) == ({(one, 1): 3}, {(one, 1): 1})
        (row,) = table(lab1, "describe", "--transactional-id", name)
        oracle = {tuple(p.rsplit("-", 1)) for p in row["TopicPartitions"].split(",")}
        assert oracle == {(t, str(p)) for t, p in partitions}
        fence = ("txn", "fence", name, "--owner-is-gone", *FAST)
        found = about(eoctl(*fence, "-o", "json", lab=lab1))
        names = [f"{t}:{p}" for t, p in sorted(partitions)]
        assert sorted(found) == names
        for (t, p), here in ((pair, f"{pair[0]}:{pair[1]}") for pair in partitions):
            row_ = found[here]
            assert row_["start_offset"] == start_of(lab1, t, p, producer_id) == 1
            assert row_["also_holds"] == [n for n in names if n != here]
            beyond = [{"group": past, "committed_offset": 3}] if (t, p) == (one, 1) else []
            assert row_["groups_beyond"] == beyond
            assert (row_["also_holds_more"], row_["groups_beyond_more"]) == (0, 0)
            assert (row_["partitions_unseen"], row_["groups_unseen"]) == ([], [])
            assert (row_["records"], row_["dropped"]) == (2, 2)
        shown = eoctl(*fence, lab=lab1)
        assert words_of(shown, "also") == (
            f"The transaction is on 3 partitions: {', '.join(names)}. This step ends it on all of "
            "them."
        )
        assert words_of(shown, "groups").startswith(
            f"Past its first record: {past} ({one}:1, at 3)."
        )

    asyncio.run(scenario())


async def stray(client: Client, name: str, partitions: list[tuple[str, int]]) -> int:
    """Leave an orphan of one producer id on each partition, from offset 1 on; its producer id."""
    plain, owner = await Producer.init(client), await Producer.init(client, name)
    for partition in partitions:
        await plain.send(*partition, [NewRecord(b"plain")])
    async with unverified(client):
        for partition in partitions:
            await client.until(
                partial(owner.write, *partition, [NewRecord(b"stray")]), also=STRAY_NOT_YET
            )
    await Producer.init(client, name)  # its id has a later epoch: nobody writes with this one
    return owner.producer_id


def test_an_abort_names_where_its_producer_id_stays_open(secure_lab: Lab, topic: MakeTopic) -> None:
    """An orphan on three partitions; then to users who may not see a group, and not all topics."""
    lab = secure_lab
    one, two = topic(lab, 2), topic(lab)
    name, group = f"{one}-id", f"{one}-past"

    async def plant() -> int:
        async with Client.of(lab.client_properties()) as client:
            return await stray(client, name, [(one, 0), (one, 1), (two, 0)])

    pid = asyncio.run(plant())
    read(lab, group, one, 0, "read_uncommitted", 2)
    start = ("--pid", str(pid), "--start-offset", "1")
    abort = ("txn", "abort", f"{one}:0", *start, *FAST)

    def planned(user: str, until: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        end = time.monotonic() + 20
        while True:  # until the broker applies its rights
            ran = as_user(lab, user, *abort, "-o", "json")
            if ran.status == 0 and until(row := about(ran)[f"{one}:0"]):
                return row
            assert time.monotonic() < end, ran.stdout + ran.stderr

    others = sorted([f"{one}:1", f"{two}:0"])
    row = planned("operator", lambda row: True)
    assert row["also_holds"] == others
    assert row["groups_beyond"] == [{"group": group, "committed_offset": 2}]
    assert (row["partitions_unseen"], row["groups_unseen"]) == ([], [])
    shown = as_user(lab, "operator", *abort)
    assert words_of(shown, "also") == (
        f"Its producer id also holds {', '.join(others)}. This step does not end it there."
    )

    with rights(lab, "operator", ("GROUP", group, "DESCRIBE"), deny=True):
        row = planned("operator", lambda row: row["groups_unseen"] != [])
        shown = as_user(lab, "operator", *abort)
    assert row["groups_beyond"] == []
    assert [(u["scope"], u["id"], u["error"]) for u in row["groups_unseen"]] == [
        ("group", group, "GROUP_AUTHORIZATION_FAILED")
    ]
    assert words_of(shown, "groups") == (
        "No group that can be seen has committed an offset past its first record."
    )
    assert words_of(shown, "unseen") == (
        f"There may be more groups: {group}: DESCRIBE on the group is not granted "
        "(GROUP_AUTHORIZATION_FAILED)."
    )

    few = [("TOPIC", t, o) for t in (one, "__transaction_state") for o in ("DESCRIBE", "READ")]
    few += [("TRANSACTIONAL_ID", "*", "DESCRIBE"), ("TOPIC", "__consumer_offsets", "DESCRIBE")]
    with rights(lab, "nobody", *few):
        row = planned("nobody", lambda row: row["also_holds"] == [f"{one}:1"])
    assert row["groups_beyond"] == []
    assert ("topic", "TOPIC_AUTHORIZATION_FAILED") in {
        (u["scope"], u["error"]) for u in row["partitions_unseen"]
    }
    assert {u["error"] for u in row["groups_unseen"]} == {"GROUP_AUTHORIZATION_FAILED"}
