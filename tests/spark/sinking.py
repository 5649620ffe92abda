"""What the sink's tests share: an oracle that knows nothing of eoctl, and workers to kill."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def values(lab: Lab, topic: str, isolation: str = "read_committed") -> Counter[bytes]:
    """How often each value stands in a topic, as a plain consumer sees it."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
        }
    )
    found: Counter[bytes] = Counter()
    try:
        parts = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in parts])
        ended: set[int] = set()
        until = time.monotonic() + 60
        while len(ended) < len(parts) and time.monotonic() < until:
            for message in consumer.consume(5000, 1.0):
                error = message.error()
                if error is None:
                    found[message.value()] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        assert len(ended) == len(parts)
    finally:
        consumer.close()
    return found


@contextmanager
def watched(
    lab: Lab, topic: str, isolation: str = "read_uncommitted"
) -> Iterator[Callable[[], int]]:
    """What tells how many offsets of a topic are taken, whatever becomes of them; quickly.

    isolation: with read_committed those below the last stable offset, which are decided.
    """
    from confluent_kafka import Consumer, TopicPartition

    reading = {"group.id": "watch", "isolation.level": isolation}
    consumer = Consumer({**lab.client_properties(), **reading})
    try:
        parts = consumer.list_topics(topic, 20).topics[topic].partitions
        partitions = [TopicPartition(topic, p) for p in parts]
        yield lambda: sum(consumer.get_watermark_offsets(p, timeout=20)[1] for p in partitions)
    finally:
        consumer.close()


def staged_values(folder: Path) -> Counter[bytes]:
    """The values that a batch's manifest lists, read with pyarrow alone."""
    import json

    import pyarrow.parquet as pq

    manifest = json.loads((folder / "manifest.json").read_text())
    found: Counter[bytes] = Counter()
    for one in manifest["files"]:
        found.update(pq.read_table(folder / one["file"]).column("value").to_pylist())
    return found


def python_workers(spark: "SparkSession") -> list[int]:
    """Pids of this session's Python workers: children of the daemon that its JVM started."""
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    parents = _parents()
    daemons = {pid for pid, parent in parents.items() if parent == jvm}
    return [pid for pid, parent in parents.items() if parent in daemons]


def kill_one(spark: "SparkSession", draw: random.Random) -> int:
    """Kill one of this session's Python workers, if there is one. How many were killed."""
    if workers := python_workers(spark):
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers), signal.SIGKILL)
            return 1
    return 0


def _parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def members(leader: int, which: bytes) -> list[int]:
    """The processes of a job's session whose command line holds `which`."""
    found = []
    for pid in session_members(leader):
        with suppress(OSError):  # it has ended meanwhile
            if which in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def kill_members(leader: int, which: bytes) -> None:
    """SIGKILL to them, of which there is one at least."""
    killed = 0
    for pid in members(leader, which):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert killed
