"""What grows is counted as Kafka counts it; lags in time follow the timestamps that were written.

Oracles: kafka-transactions.sh describe-producers, a dump of `__transaction_state`'s files,
kafka-log-dirs.sh, GetOffsetShell, and the timestamps and retention that a test chose itself.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.stage import batch
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.facts import TopicPartition
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit
from tests.kafka.rights import as_user, rights
from tests.kafka.test_inspect_oracles import described_producers, shell_offsets, tool
from tests.kafka.tools import kafka_tool

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
HOUR_MS = 3_600_000


def leaders(lab: Lab, topic: str) -> dict[int, int]:
    """The leader of each partition, as librdkafka sees it."""
    described = AdminClient(lab.client_properties()).list_topics(topic, timeout=20).topics[topic]
    return {number: p.leader for number, p in described.partitions.items()}


async def _write_to(lab: Lab, topic: str, writers: dict[str | None, list[int]]) -> None:
    """Each transactional id writes a committed record to its partitions; None: an idempotent
    producer."""
    async with Client.to(lab.bootstrap_servers) as client:
        for name, partitions in writers.items():
            producer = await Producer.init(client, name)
            for partition in partitions:
                await producer.send(topic, partition, batch(1, "r"))
            if name is not None:
                await producer.commit()


def test_producers_are_counted_as_kafka_describes_them(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3, partitions=6, replicas=3)
    pay, flink = f"{name}-pay", f"{name}-flink"
    writers: dict[str | None, list[int]] = {f"{pay}-{n}": [n, 5] for n in range(4)}
    writers |= {f"{flink}-0-{n}": [0] for n in range(3)} | {None: [1, 2]}
    asyncio.run(_write_to(lab3, name, writers))
    theirs = {number: described_producers(lab3, name, number) for number in range(6)}
    led = leaders(lab3, name)
    assert set(led.values()) == {1, 2, 3}

    ran = eoctl("producers", name, "--summary", "--resolve", "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    by_broker = Counter(led[n] for n, rows in theirs.items() for _ in rows)
    rows = {by: [r for r in ran.rows if r["by"] == by] for by in {r["by"] for r in ran.rows}}
    assert {r["broker"]: r["producer_states"] for r in rows["broker"]} == by_broker
    assert {r["partition"]: r["producer_states"] for r in rows["partition"]} == {
        number: len(found) for number, found in theirs.items() if found
    }
    assert all(r["broker"] == led[r["partition"]] for r in rows["partition"])
    [of_topic] = rows["topic"]
    everyone = {pid for found in theirs.values() for pid in found}
    assert (of_topic["producer_states"], of_topic["producer_ids"]) == (
        sum(map(len, theirs.values())),
        len(everyone),
    )
    # 4 ids on two partitions each, 3 on one, and the idempotent one, which has no id, on two
    assert [(r["prefix"], r["producer_ids"], r["producer_states"]) for r in rows["prefix"]] == [
        (f"{pay}-", 4, 8),
        (f"{flink}-", 3, 3),
        (None, 1, 2),
    ]
    counts = [r["producer_states"] for r in rows["partition"]]
    assert counts == sorted(counts, reverse=True)
    few = eoctl("producers", name, "--summary", "--top", "1", "-o", "json", lab=lab3)
    assert [r["by"] for r in few.rows] == ["broker", "topic", "partition"]
    assert few.json["left_out"] == {"broker": 2, "topic": 0, "partition": 4}  # nobody wrote to 4


def dumped_ids(lab: Lab) -> set[str]:
    """The ids of `__transaction_state`, by DumpLogSegments of every leader's files.

    The last record of an id counts; without a value it is a tombstone.
    """
    files = [
        str(path)
        for number, broker in leaders(lab, STATE).items()
        for path in sorted(Path(lab.data_folder(broker), f"{STATE}-{number}").glob("*.log"))
    ]
    done = kafka_tool(  # an id lives in one partition: of all files at once the order is right
        lab,
        "org.apache.kafka.tools.DumpLogSegments",
        *("--transaction-log-decoder", "--files", ",".join(files)),
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, bool] = {}
    for line in done.stdout.splitlines():
        if '"transactionalId"' in line:  # an id may hold whatever JSON must escape
            text = line.partition(" key: ")[2]
            key, end = json.JSONDecoder().raw_decode(text)
            value = text[end:].removeprefix(" payload: ")
            last[key["data"]["transactionalId"]] = value.startswith("{")
    return {name for name, lives in last.items() if lives}


def test_ids_are_counted_as_the_transaction_log_has_them(lab3: Lab, topic: MakeTopic) -> None:
    mine = topic(lab3)
    odd = f'{mine}"quoted"}}}}'
    names = [*(f"{mine}-a-{n}" for n in range(7)), *(f"{mine}-b-{n}-9" for n in range(3)), odd]
    asyncio.run(_write_to(lab3, mine, {name: [0] for name in names}))
    ran = eoctl("txn", "list", "--summary", "--top", "0", "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    dumped = dumped_ids(lab3)
    assert set(names) <= dumped
    assert ran.json["transactional_ids"] == len(dumped)
    ours = {r["prefix"]: r for r in ran.rows}
    for prefix, count in ((f"{mine}-a-", 7), (f"{mine}-b-", 3)):
        assert sum(name.startswith(prefix) for name in dumped) == count
        assert ours[prefix]["transactional_ids"] == ours[prefix]["idle"] == count
        assert ours[prefix]["states"] == {"CompleteCommit": count}
        assert 0 <= ours[prefix]["oldest_idle_seconds"] < 300
        assert ours[prefix]["new_ids"] is None  # one look
    filtered = eoctl(
        "txn", "list", "--summary", "--pattern", f"{mine}-a-.*", "-o", "json", lab=lab3
    )
    assert [r["prefix"] for r in filtered.rows] == [f"{mine}-a-"]


def test_internal_topics_are_as_full_as_kafkas_tools_say(lab3: Lab, topic: MakeTopic) -> None:
    name = topic(lab3)
    asyncio.run(_write_to(lab3, name, {f"{name}-0": [0]}))
    commit(lab3, f"{name}-group", {(name, 0): 1})
    ran = eoctl("txn", "list", "--summary", "-o", "json", lab=lab3)
    assert ran.status == 0, ran.stderr
    topics = {row["topic"]: row for row in ran.json["internal_topics"]}
    assert set(topics) == {STATE, OFFSETS}
    said = tool(lab3, "LogDirsCommand", "--describe", "--topic-list", f"{STATE},{OFFSETS}")
    dirs = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    sizes = {
        (broker["broker"], partition["partition"]): partition["size"]
        for broker in dirs["brokers"]
        for log_dir in broker["logDirs"]
        for partition in log_dir["partitions"]
    }
    starts, ends = (shell_offsets(lab3, [STATE, OFFSETS], at) for at in ("-2", "-1"))
    for internal, row in topics.items():
        led = leaders(lab3, internal)
        expected = {n: sizes[broker, f"{internal}-{n}"] for n, broker in led.items()}
        assert {p["partition"]: p["bytes"] for p in row["logs"]} == expected
        assert row["bytes"] == sum(expected.values()) > 0
        assert row["largest_bytes"] == max(expected.values())
        offsets = {n: ends[internal, n] - starts[internal, n] for n in led}
        assert {p["partition"]: p["offsets"] for p in row["logs"]} == offsets


def test_two_looks_count_what_is_new(lab1: Lab, topic: MakeTopic) -> None:
    """New ids from before the first look until after the second: some are new, not all."""
    name = topic(lab1)
    made: list[float] = []
    stop = threading.Event()

    async def make() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            while not stop.is_set():
                await Producer.init(client, f"{name}-{len(made)}")
                made.append(time.monotonic())
                await asyncio.sleep(0.02)

    maker = threading.Thread(target=lambda: asyncio.run(make()))
    maker.start()
    try:
        while len(made) < 5:
            time.sleep(0.02)
        before, began = len(made), time.monotonic()
        ran = eoctl(
            *("txn", "list", "--summary", "--sample-interval", "2s"),
            *("--pattern", f"{name}-.*", "-o", "json"),
            lab=lab1,
        )
        after, took = len(made), time.monotonic() - began
    finally:
        stop.set()
        maker.join()
    [row] = ran.rows
    pause = ran.json["pause_seconds"]
    assert 2 <= pause <= took
    assert before <= row["transactional_ids"] <= after
    assert 0 < row["new_ids"] <= after - before
    assert row["new_per_hour"] == pytest.approx(row["new_ids"] / pause * 3600, abs=0.1)
    quiet = eoctl(
        *("producers", name, "--summary", "--sample-interval", "0.2s", "-o", "json"), lab=lab1
    )
    assert quiet.rows == []  # none of them wrote anything


def group_row(lab: Lab, topic: str, group: str, *words: str) -> dict[str, object]:
    ran = eoctl("offsets", "show", topic, "--group", group, "-o", "json", *words, lab=lab)
    assert ran.status == 0, ran.stderr
    [row] = ran.rows
    return dict(row)


def test_lag_in_seconds_and_margin_follow_the_timestamps_that_were_written(
    lab1: Lab, topic: MakeTopic
) -> None:
    name = topic(lab1, config={"retention.ms": str(2 * HOUR_MS)})
    now = int(time.time() * 1000)
    ages = (1_800, 1_200, 600, 60)  # seconds, of offsets 0 to 3

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for age in ages:
                await client.plain(name, 0, [NewRecord(b"v", timestamp=now - age * 1000)])

    asyncio.run(write())
    for offset, age in enumerate(ages):
        commit(lab1, f"{name}-{offset}", {(name, 0): offset})
        row = group_row(lab1, name, f"{name}-{offset}", "--lag-seconds")
        passed = time.time() - now / 1000
        assert isinstance(row["lag_seconds"], float)
        assert age <= row["lag_seconds"] <= age + passed
        assert isinstance(row["retention_margin_seconds"], float)
        assert 7_200 - age - passed <= row["retention_margin_seconds"] <= 7_200 - age
        assert row["retention"] == "time"
    commit(lab1, f"{name}-end", {(name, 0): 4})
    row = group_row(lab1, name, f"{name}-end", "--lag-seconds")
    assert (row["lag"], row["lag_seconds"], row["retention_margin_seconds"]) == (0, 0.0, None)
    plain = group_row(lab1, name, f"{name}-0")
    assert (plain["lag"], plain["lag_seconds"], plain["retention"]) == (4, None, None)
    table = eoctl("offsets", "show", name, "--lag-seconds", lab=lab1)
    assert "LAG TIME" in table.stdout
    assert "MARGIN" in table.stdout


def test_what_no_committed_reader_gets_does_not_wait(lab1: Lab, topic: MakeTopic) -> None:
    """An aborted record of an hour ago, then a committed one of a minute ago, then its marker."""
    name = topic(lab1, config={"retention.ms": "-1", "retention.bytes": "1000000"})
    now = int(time.time() * 1000)

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            aborts = await Producer.init(client, f"{name}-aborts")
            await aborts.send(name, 0, [NewRecord(b"a", timestamp=now - HOUR_MS)])
            await aborts.abort()
            commits = await Producer.init(client, f"{name}-commits")
            await commits.send(name, 0, [NewRecord(b"c", timestamp=now - 60_000)])
            await commits.commit()

    asyncio.run(write())  # 0 aborted, 1 its marker, 2 committed, 3 its marker
    commit(lab1, f"{name}-first", {(name, 0): 0})
    row = group_row(lab1, name, f"{name}-first", "--lag-seconds")
    assert isinstance(row["lag_seconds"], float)
    assert 60 <= row["lag_seconds"] <= 60 + time.time() - now / 1000
    assert (row["retention_margin_seconds"], row["retention"]) == (None, "size")
    commit(lab1, f"{name}-read", {(name, 0): 3})
    row = group_row(lab1, name, f"{name}-read", "--lag-seconds")
    assert (row["lag"], row["lag_seconds"]) == (1, 0.0)  # a marker, which nobody waits for


def test_of_records_that_were_deleted_unread_the_first_that_is_left_gives_the_age(
    lab1: Lab, topic: MakeTopic
) -> None:
    name = topic(lab1, config={"retention.ms": str(2 * HOUR_MS)})
    now = int(time.time() * 1000)

    async def write() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for age in (1_800, 1_200, 600):
                await client.plain(name, 0, [NewRecord(b"v", timestamp=now - age * 1000)])

    asyncio.run(write())
    for offset in (0, 1):  # two groups that both lost records
        commit(lab1, f"{name}-{offset}", {(name, 0): offset})
    admin = AdminClient(lab1.client_properties())
    for deleted in admin.delete_records([Position(name, 0, 2)]).values():
        deleted.result(20)
    for offset in (0, 1):
        row = group_row(lab1, name, f"{name}-{offset}", "--lag-seconds")
        assert isinstance(row["lag_seconds"], float)
        assert 600 <= row["lag_seconds"] <= 600 + time.time() - now / 1000
        assert (row["retention_margin_seconds"], row["retention"]) == (0.0, "time")


def test_a_lag_in_time_that_may_not_be_read_is_unknown_and_says_so(
    secure_lab: Lab, topic: MakeTopic
) -> None:
    name = topic(secure_lab)

    async def write() -> None:
        async with Client.of(secure_lab.client_properties()) as client:
            await client.plain(name, 0, [NewRecord(b"v")])

    asyncio.run(write())
    commit(secure_lab, f"{name}-g", {(name, 0): 0})
    words = ("offsets", "show", name, "--group", f"{name}-g", "--lag-seconds", "-o", "json")
    ran = as_user(secure_lab, "no-topic-read", *words)
    assert ran.status == 3, ran.stderr
    [row] = ran.rows
    assert (row["lag"], row["lag_seconds"], ran.json["complete"]) == (1, None, False)
    assert [(e["error"], e["topic"], e["partition"]) for e in ran.json["errors"]] == [
        ("TOPIC_AUTHORIZATION_FAILED", name, 0)
    ]
    assert "READ on the topic is not granted" in ran.json["errors"][0]["detail"]


def growth(lab: Lab) -> list[dict[str, object]]:
    ran = eoctl("status", "-o", "json", *FAST, lab=lab)
    return list(ran.json["growth"])


@pytest.mark.long
def test_status_says_where_the_cleaner_stops_for_an_hour_and_nothing_else(
    lab1: Lab, topic: MakeTopic
) -> None:
    compacted = topic(lab1, config={"cleanup.policy": "compact"})
    deleted, young = topic(lab1), topic(lab1, config={"cleanup.policy": "compact"})
    mine = {compacted, deleted, young}
    assert [row for row in growth(lab1) if row["topic"] in mine] == []
    [truth] = break_(lab1, "orphan", topic=compacted, age_seconds=7_200.0)
    break_(lab1, "orphan", topic=deleted, age_seconds=7_200.0)
    break_(lab1, "orphan", topic=young, age_seconds=1_800.0)
    [row] = [row for row in growth(lab1) if row["topic"] in mine]
    assert (row["kind"], row["topic"], row["partition"]) == ("cleaner-held", compacted, 0)
    assert (row["producer_id"], row["last_stable_offset"], row["held"]) == (
        truth.producer_id,
        truth.last_stable_offset,
        truth.high_watermark - truth.last_stable_offset,
    )
    said = eoctl("status", *FAST, lab=lab1).stderr
    assert f"the log cleaner cannot pass offset {truth.last_stable_offset} of {compacted}:0" in said


def test_rules_of_check_count_as_kafkas_tools_do(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, tmp_path: Path
) -> None:
    """A lab of its own: Kafka's tool is run for each partition of the cluster."""
    lab = start_lab(LabSpec(name="counted"))
    name = topic(lab, partitions=2)
    asyncio.run(_write_to(lab, name, {f"{name}-{n}": [0, 1] for n in range(3)}))
    described = AdminClient(lab.client_properties()).list_topics(timeout=20).topics
    states = sum(  # the only broker leads every partition of every topic, internal ones too
        len(described_producers(lab, each, number))
        for each, found in described.items()
        for number in found.partitions
    )
    ids = len(dumped_ids(lab))
    assert states >= 6
    assert ids >= 3
    config = tmp_path / "config.toml"
    config.write_text(
        f"[check]\nproducer_states = {states}\n"
        f'transactional_ids = {ids + 1}\ninternal_topic_bytes = "1TiB"\n'
    )
    ran = eoctl(*("check", "-o", "json", *FAST), lab=lab, env=environment(EOCTL_CONFIG=str(config)))
    rows = {row["rule"]: row for row in ran.rows}
    assert rows["producer_states"]["observed"] == states
    assert (rows["producer_states"]["ok"], rows["transactional_ids"]["ok"]) == (False, True)
    assert rows["transactional_ids"]["observed"] == ids
    assert rows["internal_topic_bytes"]["ok"] is True
    assert rows["internal_topic_bytes"]["observed"] > 0


def test_sizes_that_are_hidden_are_unknown_and_name_the_right(
    secure_lab: Lab, topic: MakeTopic
) -> None:
    name = topic(secure_lab)

    async def use() -> None:  # so that both internal topics exist
        async with Client.of(secure_lab.client_properties()) as client:
            owner = await Producer.init(client, f"{name}-id")
            await owner.send(name, 0, batch(1, "r"))
            await owner.send_offsets(f"{name}-group", {TopicPartition(name, 0): 1})
            await owner.commit()

    asyncio.run(use())
    with rights(secure_lab, "viewer", ("CLUSTER", "kafka-cluster", "DESCRIBE"), deny=True):
        ran = as_user(secure_lab, "viewer", "txn", "list", "--summary", "-o", "json")
        status = as_user(secure_lab, "viewer", "status", "-o", "json", *FAST)
    assert status.json["growth"] is None
    assert ran.status == 3, ran.stderr
    hidden = [e for e in ran.json["errors"] if e["error"] == "CLUSTER_AUTHORIZATION_FAILED"]
    assert hidden
    assert all("DESCRIBE on the cluster is not granted" in e["detail"] for e in hidden)
    assert {row["topic"] for row in ran.json["internal_topics"]} == {STATE, OFFSETS}
    for row in ran.json["internal_topics"]:
        assert (row["bytes"], row["largest_bytes"]) == (None, None)
        assert row["offsets"] is not None
    assert as_user(secure_lab, "viewer", "status", "-o", "json", *FAST).json["growth"] == []
