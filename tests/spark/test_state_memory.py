"""`state rebuild` on Spark of up to 20 M keys in one partition, in workers of at most 1 GiB."""

import hashlib
import multiprocessing
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

TIME = 1_700_000_000_000
MOST_BYTES = 1 << 30
WRITERS = 2


def written(lab: Lab, topic: str, keys: int) -> tuple[int, str]:
    """Each key once, then every second one again, of those one in a hundred as a tombstone.

    The digest of what is live then, by hashlib.
    """
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(WRITERS) as pool:
        asked = [(lab.client_properties(), topic, keys, writer) for writer in range(WRITERS)]
        sums = pool.starmap(write, asked)
    rows, totals = zip(*sums, strict=True)
    return sum(rows), f"{sum(totals) % MODULUS:064x}"


def write(properties: dict[str, str], topic: str, keys: int, writer: int) -> tuple[int, int]:
    """Write the keys of one writer; how many are live, and the sum of their rows' hashes."""
    from confluent_kafka import Producer

    more = {"linger.ms": 50, "batch.size": 500_000, "queue.buffering.max.messages": 500_000}
    producer = Producer({**properties, **more, "enable.idempotence": True})

    def send(number: int, version: int, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(
                    topic, value, b"key-%d" % number, partition=0, timestamp=TIME + version
                )
                return
            except BufferError:
                producer.poll(0.1)

    rows = total = 0
    for version in (0, 1):
        for number in range(writer, keys, WRITERS):
            # of a writer's keys, every second one comes again
            again = number // WRITERS % 2 == 0
            if version and not again:
                continue
            value = b"%d of %d, and some more bytes" % (version, number)
            deleted = version == 1 and number // WRITERS % 200 == 0
            send(number, version, None if deleted else value)
            if version == int(again) and not deleted:
                key = b"key-%d" % number
                row = struct.pack(">ii", 0, len(key)) + key
                row += struct.pack(">qi", TIME + version, len(value)) + value
                rows += 1
                total += int.from_bytes(hashlib.sha256(row).digest(), "big")
    assert producer.flush(120) == 0
    return rows, total % MODULUS


def high_water(pid: int) -> int:
    """VmHWM of a process in bytes; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0


def most_memory(
    spark: "SparkSession", lab: Lab, folder: Path, keys: int, range_offsets: int
) -> tuple[int, int]:
    """Rebuild keys * 1.5 records; the highest VmHWM of a worker, and the runs that there were."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"keys-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab.client_properties())
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    expected = written(lab, name, keys)
    assert expected[0] == keys - keys // 200
    peaks: dict[int, int] = {}
    runs: set[str] = set()
    ended = threading.Event()
    for pid in python_workers(spark):  # of an earlier size
        Path(f"/proc/{pid}/clear_refs").write_text("5")

    def watch() -> None:
        while not ended.wait(0.1):
            for pid in python_workers(spark):
                peaks[pid] = max(peaks.get(pid, 0), high_water(pid))
            runs.update(path.name for path in folder.glob("runs/*/*.run"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        found = on_session(spark, lab, plain(name, folder, range_offsets=range_offsets), 1800)
    finally:
        ended.set()
        thread.join()
    assert found.digest == expected
    assert found.manifest.peak_bytes <= MOST_BYTES
    most = max(peaks.values())
    print(
        f"{keys:,} keys, {keys * 3 // 2:,} records: VmHWM {most >> 20} MiB, {len(runs)} runs, "
        f"{len(found.manifest.partitions[0].files)} files, {found.manifest.seconds} s"
    )
    admin.delete_topics([name])[name].result(30)
    return most, len(runs)


def test_memory_does_not_grow_with_the_keys(
    spark: "SparkSession", lab1: Lab, tmp_path: Path
) -> None:
    """From 1 M to 20 M keys in one partition, in ranges; the last with 30 M records."""
    peaks = []
    for millions, range_offsets in ((1, 1_000_000), (5, 5_000_000), (20, 20_000_000)):
        keys = millions * 1_000_000
        peak, runs = most_memory(spark, lab1, tmp_path / str(keys), keys, range_offsets)
        assert runs > 1
        assert peak > 100 << 20
        peaks.append(peak)
    assert max(peaks) <= MOST_BYTES
    assert peaks[2] <= 1.2 * peaks[1]


def test_one_task_that_spills(spark: "SparkSession", lab1: Lab, tmp_path: Path) -> None:
    """A partition below the size of a range, all of it in one task and one file."""
    peak, runs = most_memory(spark, lab1, tmp_path / "whole", 10_000_000, 10**9)
    assert runs > 1
    assert peak <= MOST_BYTES
    assert len(list((tmp_path / "whole" / "data").glob("*/*.parquet"))) == 1
