"""The sink on a cluster that speculates, its workers and executors killed while they write.

A program for tests: argv[1] is JSON {"master", "server", "topic", "folder", "mark", "seeds"}; it
writes a batch of a job of its own for each seed, and last a line {"speculative", "kills"}. It
kills by the mark, which its executors have in their environment, and no other process.
"""

import json
import os
import random
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.kafka.connection.access import Access
from spark_jobs.sink.write import write_exactly_once

ROWS = (4, 2000), (1, 20_000)  # partitions and rows of each: one is long, so that it is doubled
PARTITIONS = 2  # of the topic
TRIES = 5


def session(asked: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    events = Path(asked["folder"]) / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.executor.memory": "512m",
        "spark.executorEnv.EOCTL_TEST_MARK": asked["mark"],
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": "20",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "300ms",
    }
    builder = SparkSession.builder.master(asked["master"])
    for key, value in conf.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def victims(mark: str) -> tuple[list[int], list[int]]:
    """Python workers and executors of this program, by the mark in their environment."""
    daemons, parents, executors = set(), {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if f"EOCTL_TEST_MARK={mark}".encode() not in (path / "environ").read_bytes():
                continue
            words, pid = (path / "cmdline").read_bytes(), int(path.name)
            if b"CoarseGrainedExecutorBackend" in words:
                executors.append(pid)
            elif b"pyspark.daemon" in words:
                daemons.add(pid)
                parents[pid] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid in daemons if parents[pid] in daemons], executors


class Killer(threading.Thread):
    """Two kills in the midst of writing, once the batch is staged."""

    def __init__(self, asked: dict[str, Any], seed: int, folder: Path) -> None:
        super().__init__(daemon=True)
        self.asked, self.folder, self.draw = asked, folder, random.Random(seed)
        self.ended, self.kills = threading.Event(), 0

    def run(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.asked["server"],
                "group.id": f"watch-{self.asked['mark']}",
                "isolation.level": "read_uncommitted",  # else it tells the last stable offset
            }
        )
        partitions = [TopicPartition(self.asked["topic"], p) for p in range(PARTITIONS)]

        def written() -> int:
            return sum(
                consumer.get_watermark_offsets(partition, timeout=20)[1] for partition in partitions
            )

        while not (self.folder / "manifest.json").exists():
            if self.ended.wait(0.02):
                return
        for _ in range(2):
            begin, more = written(), self.draw.randrange(1, 6000)
            while written() < begin + more:
                if self.ended.wait(0.005):
                    return
            workers, executors = victims(self.asked["mark"])
            among = executors if self.draw.random() < 0.2 else workers
            if among:
                with suppress(ProcessLookupError):
                    os.kill(self.draw.choice(sorted(among)), signal.SIGKILL)
                    self.kills += 1
        consumer.close()


def write(spark: Any, asked: dict[str, Any], seed: int) -> int:
    """One batch of another job; how many processes were killed meanwhile."""
    job = f"{asked['topic']}-{seed}"
    frames = [
        spark.range(0, parts * rows, 1, parts).selectExpr("uuid() value") for parts, rows in ROWS
    ]
    killer = Killer(asked, seed, Path(asked["folder"]) / job / "batch-0")
    killer.start()
    try:
        for left in reversed(range(TRIES)):
            try:
                write_exactly_once(
                    frames[0].union(frames[1]),
                    topic=asked["topic"],
                    job=job,
                    batch=0,
                    staging_folder=asked["folder"],
                    access=Access({"bootstrap.servers": asked["server"]}),
                    rows_per_transaction=1000,
                    allow_speculation=True,
                )
                break
            except Exception:
                traceback.print_exc()
                if not left:
                    raise
    finally:
        killer.ended.set()
        killer.join()
    return killer.kills


def speculated(events: Path) -> int:
    """Speculative attempts that were started, by the event log."""
    return sum(
        json.loads(line)["Task Info"]["Speculative"]
        for path in events.rglob("*")
        if path.is_file()
        for line in path.read_text().splitlines()
        if '"SparkListenerTaskStart"' in line
    )


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(asked)
    kills = sum(write(spark, asked, seed) for seed in range(asked["seeds"]))
    spark.stop()
    found = {"speculative": speculated(Path(asked["folder"]) / "events"), "kills": kills}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
