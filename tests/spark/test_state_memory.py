"""`state rebuild` on Spark of 10 M distinct keys in one partition, in a worker of at most 1 GiB."""

import hashlib
import struct
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.state_oracle import MODULUS
from tests.spark.rebuilding import on_session, plain
from tests.spark.sinking import python_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

KEYS = 10_000_000
CHANGED, DELETED = 200_000, 100_000
TIME = 1_700_000_000_000
MOST_BYTES = 1 << 30


def written(lab: Lab, topic: str) -> tuple[int, str]:
    """Each key once, some again, some deleted; the digest of what is live, from what was sent."""
    from confluent_kafka import Producer

    producer = Producer(
        lab.client_properties()
        | {"linger.ms": 50, "batch.size": 500_000, "queue.buffering.max.messages": 500_000}
    )
    rows = total = 0

    def send(number: int, version: int, *, live: bool, before: bool = False) -> None:
        nonlocal rows, total
        key, value = b"key-%d" % number, b"%d of %d, and some more bytes" % (version, number)
        while True:
            try:
                sent = value if live else None
                producer.produce(topic, sent, key, partition=0, timestamp=TIME + version)
                break
            except BufferError:
                producer.poll(0.1)
        if before:
            rows, total = rows - 1, total - row(number, version - 1)
        if live:
            rows, total = rows + 1, total + row(number, version)

    def row(number: int, version: int) -> int:
        key, value = b"key-%d" % number, b"%d of %d, and some more bytes" % (version, number)
        found = struct.pack(">ii", 0, len(key)) + key
        found += struct.pack(">qi", TIME + version, len(value)) + value
        return int.from_bytes(hashlib.sha256(found).digest(), "big")

    for number in range(KEYS):
        send(number, 0, live=True)
    for number in range(0, KEYS, KEYS // CHANGED):
        send(number, 1, live=True, before=True)
    for number in range(1, KEYS, KEYS // DELETED):
        send(number, 1, live=False, before=True)
    assert producer.flush(120) == 0
    return rows, f"{total % MODULUS:064x}"


def high_water(pid: int) -> int:
    """VmHWM of a process in bytes; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0


def test_more_keys_than_fit_are_spilt(spark: "SparkSession", lab1: Lab, tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"keys-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab1.client_properties())
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    expected = written(lab1, name)
    assert expected[0] == KEYS - DELETED
    seen: dict[int, int] = {}
    runs: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            for pid in python_workers(spark):
                seen[pid] = max(seen.get(pid, 0), high_water(pid))
            runs.update(path.name for path in tmp_path.glob("out/runs/*.parquet"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        wanted = plain(name, tmp_path / "out")
        found = on_session(spark, lab1, wanted, seconds=1800)
    finally:
        ended.set()
        thread.join()
    assert found.digest == expected
    (part,) = found.manifest.partitions
    (file,) = part.files
    assert pq.ParquetFile(found.folder / file.path).metadata.num_rows == expected[0]
    print(f"VmHWM {max(seen.values()) >> 20} MiB, {len(runs)} runs, {found.manifest.seconds} s")
    assert len(runs) > 1
    assert 200 << 20 < max(seen.values()) <= MOST_BYTES
    assert found.manifest.peak_bytes <= MOST_BYTES
