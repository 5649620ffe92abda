"""Groups whose offsets Kafka is about to delete: warned of before, and then Kafka does delete them.

The clock is the broker's own: `offsets.retention.minutes` is one minute, and what is gone is what
another client no longer sees. What stands in `__consumer_offsets` is what Kafka's own
formatter prints of it.
"""

import asyncio
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import astuple

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.fetch import Range, read_all
from eoctl.lab import secure
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.formats.batches import batch_headers
from recovery.formats.consumer_offsets import GroupKey, decode_group, decode_key
from recovery.formats.records import records
from tests.flink.job import Job, topics
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.test_commit_history import in_text, printed, shown
from tests.kafka.test_groups import commit, produce
from tests.kafka.tools import kafka_tool

OFFSETS = "__consumer_offsets"
TOOLS = "org.apache.kafka.tools"
RETENTION = 60.0  # seconds: the least that Kafka takes
NEAR = RETENTION / 2


@pytest.fixture(scope="module")
def brief(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """A broker that keeps offsets for a minute, and looks every second."""
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
    }
    lab = start_lab(LabSpec(name="brief", settings=settings))
    yield lab
    lab.down()


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:6]}"


def member(lab: Lab, group: str, topic: str, **more: str) -> Consumer:
    """A consumer of a group that has been given its partitions."""
    consumer = Consumer(lab.client_properties() | {"group.id": group, **more})
    consumer.subscribe([topic])
    end = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < end
        consumer.poll(0.2)
    return consumer


def save(consumer: Consumer, topic: str) -> float:
    """Commit an offset; when that was done."""
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    return time.time()


def looked(folder: Path, lab: Lab) -> tuple[Ran, dict[str, Any]]:
    """Run check with no rule but this one."""
    path = folder / "config.toml"
    off = (
        *("held_records", "held_age", "coordinators_unavailable"),
        *("producer_id_expiry", "deadline", "two_phase_age", "contested_ids"),
    )
    lines = ["[check]", 'group_expiry = "1d"', *(f"{key} = false" for key in off)]
    path.write_text("\n".join([*lines, "[check.verdicts]", ""]))
    words = ("check", "-o", "json", "--sample-interval", "300ms")
    ran = eoctl(*words, lab=lab, env=environment(EOCTL_CONFIG=str(path)))
    (row,) = ran.rows
    return ran, row


def kept(lab: Lab, groups: Iterable[str], topic: str) -> set[str]:
    """Those of the groups that have an offset on partition 0, as librdkafka is told."""

    def offset(group: str) -> int:
        # no AdminClient: asked before __consumer_offsets exists, it has ended this process
        asking = Consumer(lab.client_properties() | {"group.id": group})
        [partition] = asking.committed([TopicPartition(topic, 0)], timeout=30)
        asking.close()
        return int(partition.offset)

    return {group for group in groups if offset(group) >= 0}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_it_warns_before_kafka_deletes_and_not_of_who_commits(
    brief: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    where = topic(brief)
    produce(brief, where, 2)
    left, simple, newer, flink, stays = map(new_name, ("left", "simple", "newer", "flink", "stays"))
    staying = member(brief, stays, where)
    save(staying, where)

    done = threading.Event()
    at_work = Consumer(brief.client_properties() | {"group.id": flink})
    at_work.assign([TopicPartition(where, 0)])

    def work() -> None:
        while not done.wait(1.0):
            save(at_work, where)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        ends: dict[str, float] = {}
        leaving = member(brief, left, where)
        newest = member(brief, newer, where, **{"group.protocol": "consumer"})
        save(leaving, where)
        ends[newer] = save(newest, where) + RETENTION
        commit(brief, simple, where, 1)
        ends[simple] = time.time() + RETENTION
        time.sleep(8)
        leaving.close()
        newest.close()
        ends[left] = time.time() + RETENTION  # from when it left, eight seconds after its commit
        time.sleep(8)
        commit(brief, left, where, 2)  # which prolongs nothing, as Kafka has it
        ran, row = looked(tmp_path, brief)
        assert (ran.status, row["ok"], row["observed"]) == (0, True, None), ran.text

        warned: dict[str, float] = {}  # group → when it was named first
        gone: dict[str, float] = {}
        while len(gone) < len(ends) and time.time() < max(ends.values()) + 20:
            before = time.time()
            ran, row = looked(tmp_path, brief)
            named = set(row["detail"].split("'")[1::2])
            assert named <= ends.keys(), row
            assert (ran.status, row["ok"]) == ((1, False) if named else (0, True)), ran.text
            for name in named:
                warned.setdefault(name, before)
            if named:
                soonest = min(ends[name] for name in named)
                assert row["observed"] == pytest.approx(soonest - before, abs=4)
                assert row["observed"] <= NEAR
            for name in ends.keys() - kept(brief, ends, where):
                gone.setdefault(name, time.time())
            time.sleep(0.5)
        assert gone.keys() == ends.keys() == warned.keys()
        for name, end in ends.items():
            assert warned[name] < gone[name] - 5, name
            assert gone[name] == pytest.approx(end, abs=6), name
        assert kept(brief, [flink, stays], where) == {flink, stays}
        for name in ends:
            past = eoctl("offsets", "history", name, "-o", "json", lab=brief).rows
            assert (past[-1]["event"], past[-1]["proven"]) == ("expired", False)
            assert shown(past) == in_text(printed(brief, name)), name
        assert looked(tmp_path, brief)[0].status == 0
    finally:
        done.set()
        worker.join()
        at_work.close()
        staying.close()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_job_of_flink_is_a_finding_only_once_it_is_dead(brief: Lab, tmp_path: Path) -> None:
    """For longer than the retention it has nothing to read; its checkpoints go on, and commit."""
    name = new_name("idle")
    topics(brief, f"in-{name}", f"out-{name}", 100)
    group, source = f"flink-out-{name}", f"in-{name}"
    job = Job(brief, tmp_path / "job", source=source, sink=f"out-{name}")
    job.start()
    try:
        job.until(lambda: kept(brief, [group], source) == {group}, "it commits no offsets")
        end = time.monotonic() + RETENTION + 15
        looks = 0
        while time.monotonic() < end:
            ran, row = looked(tmp_path, brief)
            assert group not in row["detail"], ran.text
            looks += 1
            time.sleep(1)
        assert looks >= 20
        assert kept(brief, [group], source) == {group}
        job.kill()
        died = time.time()
        while group not in looked(tmp_path, brief)[1]["detail"]:
            assert time.time() < died + RETENTION, "Kafka deletes its offsets now"
            time.sleep(1)
        assert kept(brief, [group], source) == {group}
        while kept(brief, [group], source):
            assert time.time() < died + RETENTION + 20
            time.sleep(1)
    finally:
        job.kill()


def test_records_of_groups_are_what_kafkas_own_formatter_prints(
    lab1: Lab, topic: MakeTopic
) -> None:
    """Of a group that stands, and of one that is left."""
    where = topic(lab1, partitions=2)
    left, stands = new_name("left"), new_name("stands")
    member(lab1, left, where).close()
    first = member(lab1, stands, where)
    try:
        printed = formatted(lab1)
        assert [value and len(value["members"]) for value in printed[stands]][-1:] == [1]
        assert [value and len(value["members"]) for value in printed[left]][-1:] == [0]
        mine = asyncio.run(decoded(lab1))
        for name in (left, stands):
            told = [
                value
                and (
                    value["protocolType"],
                    value["currentStateTimestamp"],
                    tuple(
                        (m["clientId"], m["clientHost"].removeprefix("/")) for m in value["members"]
                    ),
                )
                for value in printed[name]
            ]
            assert mine[name] == told
            assert abs(told[-1][1] / 1000 - time.time()) < 300
    finally:
        first.close()


def formatted(lab: Lab) -> dict[str, list[Any]]:
    """Group → the values of its records, by Kafka's formatter; None: a tombstone."""
    done = kafka_tool(
        lab,
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", OFFSETS, "--from-beginning"),
        *("--formatter", f"{TOOLS}.consumer.GroupMetadataMessageFormatter"),
        *("--timeout-ms", "1500", "--command-property", "fetch.wait.max.ms=20"),
    )
    assert done.stdout.lstrip().startswith("{"), (done.stdout[:300], done.stderr[:600])
    groups: dict[str, list[Any]] = {}
    decoder, text = json.JSONDecoder(), done.stdout.lstrip()
    while text.startswith("{"):
        record, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        value = (record["value"] or {}).get("data")
        groups.setdefault(record["key"]["data"]["group"], []).append(value)
    return groups


async def decoded(lab: Lab) -> dict[str, list[tuple[Any, ...] | None]]:
    """Group → (protocol type, time, its members' clients) of its records, read and decoded here."""
    async with Cluster(client_settings(lab.client_properties()), Deadline(60)) as cluster:
        there = (await cluster.metadata([OFFSETS])).topics[OFFSETS].partitions
        ranges = []
        admin = Consumer(lab.client_properties() | {"group.id": "watermarks"})
        for p in there:
            low, high = admin.get_watermark_offsets(TopicPartition(OFFSETS, p.partition), 20)
            ranges.append(Range(OFFSETS, p.partition, low, high))
        admin.close()
        chunks, _ = await read_all(cluster, ranges)
    groups: dict[str, list[tuple[Any, ...] | None]] = {}
    for some in chunks.values():
        for chunk in some:
            for header in batch_headers(chunk.records):
                for record in [] if header.is_control else records(chunk.records, header):
                    key = decode_key(record.key or b"")
                    if isinstance(key, GroupKey):
                        value: Any = decode_group(record.value)
                        groups.setdefault(key.group, []).append(value and astuple(value))
    return groups


def test_without_read_on_the_log_of_groups_it_is_unknown(
    secure_lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """A group without members is there: whether it commits nobody can tell without that right."""
    where = topic(secure_lab)
    commit(secure_lab, new_name("simple"), where, 1)
    client = secure.client_file(secure_lab.folder, "no-topic-read", "SCRAM")
    path = tmp_path / "config.toml"

    def asked(accepted: str) -> Ran:
        path.write_text(
            '[check]\ngroup_expiry = "1d"\n[contexts.s]\n'
            f'bootstrap_servers = "{secure_lab.record.bootstrap_servers("SCRAM")}"\n'
            f'command_config = "{client}"\naccept_missing = {accepted}\n'
        )
        env = environment(EOCTL_CONFIG=str(path))
        return eoctl(
            *("check", "--context", "s", "-o", "json", "--sample-interval", "300ms"), env=env
        )

    def about(rows: list[dict[str, Any]]) -> list[str]:
        return [r["detail"] for r in rows if r["topic"] == OFFSETS and r["scope"] == "group"]

    ran = asked("[]")
    [row] = [r for r in ran.rows if r["rule"] == "group_expiry"]
    assert (row["ok"], row["observed"]) == (None, None)
    none_seen = r"\b(1 of 1 group|(\d+) of \2 groups) without members not seen"
    assert re.search(none_seen, row["detail"]), row["detail"]
    [why] = about(ran.json["errors"])
    assert "grant READ on that topic" in why
    ran = asked('["group-commits"]')
    assert (about(ran.json["errors"]), about(ran.json["notes"])) == ([], [why])
