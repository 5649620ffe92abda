"""A broker's own files say what the broker says, while it runs, after a clean stop, after kill -9.

Oracles: DescribeProducers and ListOffsets of the live broker, and Kafka's own DumpLogSegments.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.docs.pages import follows
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.test_breaks import librdkafka_offsets
from tests.kafka.tools import kafka_tool


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    found = start_lab(
        LabSpec(
            name="segments",
            settings={
                "transaction.partition.verification.enable": "false",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
            },
        )
    )
    for kind in ("open", "overdue", "zombie", "offsets-pending"):
        break_(found, kind, hold=False) if kind == "open" else break_(found, kind)
    for variant in ("marked", "late"):
        break_(found, "orphan", variant=variant, topic=f"orphan-{variant}")
    yield found
    found.down()


def live(lab: Lab) -> list[dict[str, Any]]:
    return eoctl("producers", "--internal", "-o", "json", lab=lab).rows


def folders(lab: Lab) -> list[Path]:
    found = lab.data_folder(1).glob("*-[0-9]*")
    return sorted(p for p in found if p.is_dir() and not p.name.startswith("__cluster"))


def offline(paths: list[Path]) -> dict[str, Any]:
    words = [word for path in paths for word in ("--segment", str(path))]
    ran = eoctl("producers", *words, "-o", "json")
    assert ran.status == 0, ran.stdout[-2000:]
    return ran.json


@contextmanager
def stopped_by(stop: Callable[[int], None], lab: Lab) -> Iterator[None]:
    """The broker is down inside, and up again after it whatever goes wrong."""
    try:
        stop(1)
        yield
    finally:
        lab.start(1)


def write(lab: Lab, topic: str, name: str, rounds: int, *, abort_last: bool = False) -> None:
    """Transactions of two records each; the last one may be aborted."""
    from confluent_kafka import Producer

    producer = Producer({**lab.client_properties(), "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    for number in range(rounds):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, b"value", partition=0)
        producer.flush(20)
        if abort_last and number == rounds - 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


def test_files_agree_with_the_broker_in_every_state(lab: Lab, topic: MakeTopic) -> None:
    name = topic(lab, name="small", config={"segment.bytes": "1048576", "segment.ms": "60000"})
    write(lab, name, "w", 5, abort_last=True)
    paths = folders(lab)
    before = live(lab)
    assert len([r for r in before if r["current_txn_start_offset"] is not None]) >= 4
    # while it runs
    assert offline(paths)["rows"] == before
    # after a clean stop: every partition has a snapshot of its end
    with stopped_by(lab.terminate, lab):
        stopped = offline(paths)
    assert stopped["rows"] == before
    used = [s for s in stopped["segments"] if s["snapshot_offset"] is not None]
    assert {s["clean_shutdown"] for s in stopped["segments"]} == {True}
    assert any(s["topic"] == name and s["snapshot_offset"] == s["log_end_offset"] for s in used)
    # snapshot and log after it: more is written, then kill -9
    write(lab, name, "w", 3)
    write(lab, name, "another", 2, abort_last=True)
    after = live(lab)
    assert after != before
    with stopped_by(lab.kill, lab):
        killed = offline(paths)
    assert killed["rows"] == after
    (mine,) = [s for s in killed["segments"] if s["topic"] == name]
    assert 0 < mine["snapshot_offset"] < mine["log_end_offset"]
    assert mine["aborted_transactions"] == 2
    assert {s["clean_shutdown"] for s in killed["segments"]} == {False}
    for s in killed["segments"]:
        if s["topic"].startswith("__"):
            continue
        stable, high = _offsets(lab, s["topic"], s["partition"])
        assert (s["last_stable_offset"], s["log_end_offset"]) == (stable, high)


def _offsets(lab: Lab, topic: str, partition: int) -> tuple[int, int]:
    """The same once librdkafka has heard of the new leader epoch."""
    from confluent_kafka import KafkaException

    end = time.monotonic() + 20
    while True:
        try:
            return librdkafka_offsets(lab, topic, partition)
        except KafkaException:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@pytest.mark.long
def test_kafkas_own_tool_reads_the_same_snapshot(lab: Lab, topic: MakeTopic) -> None:
    """DumpLogSegments on the snapshot of a cleanly stopped broker."""
    name = topic(lab)
    write(lab, name, "dumped", 4)
    with stopped_by(lab.terminate, lab):
        (folder,) = [p for p in folders(lab) if p.name == f"{name}-0"]
        newest = max(folder.glob("*.snapshot"))
        done = kafka_tool(lab, "org.apache.kafka.tools.DumpLogSegments", "--files", str(newest))
        found = re.findall(
            r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
            r"currentTxnFirstOffset: (\S+)",
            done.stdout,
        )
        rows = offline([folder])["rows"]
        assert [
            (
                str(r["producer_id"]),
                str(r["producer_epoch"]),
                str(-1 if r["coordinator_epoch"] is None else r["coordinator_epoch"]),
            )
            for r in rows
        ] == [row[:3] for row in found]
        assert len(rows) == 1


def test_a_damaged_copy_is_said(lab: Lab, tmp_path: Path, topic: MakeTopic) -> None:
    name = topic(lab)
    write(lab, name, "damaged", 3)
    copy = tmp_path / f"{name}-0"
    shutil.copytree(lab.data_folder(1) / copy.name, copy)
    (log,) = copy.glob("*.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    ran = eoctl("producers", "--segment", str(copy))
    assert ran.status == 0
    assert "no complete batch" in ran.stderr
    # in the first batch's records: its CRC covers all from byte 21 on
    log.write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
    ran = eoctl("producers", "--segment", str(copy))
    assert ran.status == 3
    assert "CORRUPT_MESSAGE" in ran.stderr


def test_blocks_of_a_kraft_cluster(lab: Lab) -> None:
    """Every producer id that lives lies in a block, and the next one is not handed out."""
    folder = lab.data_folder(1) / "__cluster_metadata-0"
    ran = eoctl("producers", "--blocks", "--segment", str(folder), "-o", "json")
    assert ran.status == 0, ran.stderr
    assert all(r["broker"] == 1 for r in ran.rows)
    done = kafka_tool(
        lab,
        "org.apache.kafka.tools.DumpLogSegments",
        *("--cluster-metadata-decoder", "--files", str(folder / f"{0:020}.log")),
    )
    following = [int(n) for n in re.findall(r'"nextProducerId":(\d+)', done.stdout)]
    assert [r["last_producer_id"] + 1 for r in ran.rows] == following != []
    ids = {r["producer_id"] for r in live(lab)}
    assert all(
        any(r["first_producer_id"] <= pid <= r["last_producer_id"] for r in ran.rows) for pid in ids
    )


def test_blocks_need_one_place(lab: Lab, tmp_path: Path) -> None:
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    for words in (
        ("--blocks",),
        ("--zookeeper", "127.0.0.1:1"),
        ("--blocks", "--zookeeper", "x:1", "--segment", "y-0"),
        ("--blocks", "--segment", str(lab.data_folder(1))),
        ("--blocks", "--segment", str(folders(lab)[0])),
    ):
        ran = eoctl("producers", *words, env=env)
        assert (ran.status, ran.stdout) == (2, ""), words
        assert ran.stderr.count("\n") == 1


@pytest.mark.long
def test_a_zookeeper_that_is_gone(tmp_path: Path) -> None:
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    ran = eoctl("producers", "--blocks", "--zookeeper", "127.0.0.1:1", env=env)
    assert ran.status == 5
    assert ran.stderr.startswith("eoctl: 127.0.0.1:1: ZooKeeper: ")


@follows("docs/bundle.md", "A broker's own files")
def test_blocks_of_a_zookeeper_cluster(
    it: Reading, start_lab: Callable[[LabSpec], Lab], topic: MakeTopic
) -> None:
    """Kafka 2.8 wrote the node; the ids it gave lie in its block."""
    lab = start_lab(LabSpec(name="segments-zk", kafka_version="2.8.2"))
    try:
        name = topic(lab)
        write(lab, name, "zk", 1)
        keeper = lab.record.zookeeper
        assert keeper is not None
        it.names["zk1:2181/kafka"] = f"127.0.0.1:{keeper.ports['CLIENT']}"
        ran = it.run("producers --blocks", 0, None, "-o", "json")
        (block,) = ran.rows
        (row,) = eoctl("producers", name, "-o", "json", lab=lab).rows
        assert block["first_producer_id"] <= row["producer_id"] <= block["last_producer_id"]
        assert block["broker"] == lab.broker_ids[0]
        assert block["last_producer_id"] - block["first_producer_id"] == 999
    finally:
        lab.down()
