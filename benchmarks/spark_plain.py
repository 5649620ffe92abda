"""A rebuild as plain DataFrame code beside ours, on one log in 12 partitions, by two workers.

Plain: the Data Source, `max_by` per key, Parquet, with adaptive execution; without digest, proof of
completeness and resumption. Ours: `rebuild`, with all three. Both in warm sessions, the second of
two runs counts. The rows of both are compared. Beside the seconds: the CPU of all processes but the
broker, their most memory together, and the bytes that were shuffled, from Spark's event log.
"""

import inspect
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import rebuild as local_benchmark
from benchmarks.side_by_side import lab, tree_cpu
from benchmarks.spark_rebuild import request_of, session
from eoctl.engine.rebuild import rebuild
from eoctl.kafka.connection.access import Access
from eoctl.lab.record import LabSpec
from recovery.values import replace
from tests.spark.starting import standalone_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = round(float(os.environ.get("EOCTL_BENCH_SPARK_MILLIONS", "50")) * 1e6)
PARTITIONS = 12


def plain(spark: "SparkSession", cut: Path, output: Path) -> None:
    """The rebuild that a user of Spark would write."""
    from pyspark.sql.functions import max_by, struct

    source = spark.read.format("eoctl-kafka").option("cut", str(cut))
    log = source.option("columns", "key,value,partition,offset,timestamp").load()
    record = struct("offset", "timestamp", "value")
    last = log.groupBy("partition", "key").agg(max_by(record, "offset").alias("r"))
    live = last.select("partition", "r.offset", "r.timestamp", "key", "r.value")
    live.where("value is not null").write.parquet(str(output))


@dataclass(frozen=True)
class Way:
    """What one way took. peak, shuffled: bytes."""

    name: str
    seconds: float
    cpu: float
    peak: int
    shuffled: int

    def line(self) -> str:
        return (
            f"  {self.name:<18} {self.seconds:.2f} s  CPU {self.cpu:.1f} s  "
            f"{self.peak >> 20} MiB at most  {self.shuffled >> 20} MiB shuffled"
        )


@dataclass(frozen=True)
class Ways:
    """Both ways on the same records."""

    ours: Way
    plain: Way

    def lines(self) -> list[str]:
        longer, more = self.plain.seconds / self.ours.seconds, self.plain.cpu / self.ours.cpu
        code = len(inspect.getsource(plain).splitlines())
        return [
            f"rebuild {RECORDS:,} records in {PARTITIONS} partitions, two warm workers of Spark",
            self.ours.line(),
            f"{self.plain.line()}  ({code} lines of code, the rows are equal)",
            f"  plain / ours: {longer:.2f}x the time, {more:.2f}x the CPU   to use it: 1.3x",
        ]


def measure() -> Iterator[Ways]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with lab(LabSpec("spark-plain")) as one, tempfile.TemporaryDirectory() as folder:
        root, topic = Path(folder), "spark-plain"
        local_benchmark.fill(one, topic, "none", RECORDS, PARTITIONS)
        access = Access(one.client_properties())
        request = request_of(root, one.bootstrap_servers, topic)
        log = root / "log"
        log.mkdir()
        more = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.compress": "false",
        }
        with standalone_cluster(root) as master, session(master, more) as spark:
            from eoctl.stores.storage_address import storage_at
            from spark_jobs.rebuild import SparkEngine
            from spark_jobs.source import register

            register(spark, access)
            cut = root / "first" / "cut.json"

            def ours(output: Path) -> None:
                engine = SparkEngine(spark, storage_at(output))
                how = replace(request.how, output=str(output))
                rebuild(replace(request, how=how), access, engine, "spark", engine.slots)

            mine = measured("eoctl", root, log, ours)
            theirs = measured("plain DataFrames", root, log, lambda to: plain(spark, cut, to))
            compare(spark, root)
        yield Ways(mine, theirs)


def measured(name: str, root: Path, log: Path, run: Callable[[Path], None]) -> Way:
    """Run twice; return what the second run took."""
    run(root / f"{name}-0")
    before, used, began = shuffled(log), tree_cpu(), time.perf_counter()
    with most_memory() as peaks:
        run(root / f"{name}-1")
    seconds, used = time.perf_counter() - began, tree_cpu() - used
    time.sleep(2)  # the event log is written behind
    return Way(name, seconds, used, max(peaks), shuffled(log) - before)


def compare(spark: "SparkSession", root: Path) -> None:
    columns = ["partition", "offset", "timestamp", "key", "value"]

    def rows(path: str) -> "DataFrame":
        read = spark.read.option("recursiveFileLookup", "true").parquet(path)
        # the source has a timestamp, a state has milliseconds
        made = (
            "unix_millis(timestamp)" if "timestamp" in dict(read.dtypes).values() else "timestamp"
        )
        return read.selectExpr(*[made if c == "timestamp" else c for c in columns])

    a, b = rows(str(root / "eoctl-1" / "data")), rows(str(root / "plain DataFrames-1"))
    if a.exceptAll(b).count() or b.exceptAll(a).count():
        raise SystemExit("the rows differ")


@contextmanager
def most_memory() -> Iterator[list[int]]:
    """Collect, ten times a second, the resident bytes of all processes but the broker."""
    ended, found = threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.1):
            found.append(resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def resident() -> int:
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"kafka.Kafka" not in (path / "cmdline").read_bytes():
                words = (path / "stat").read_text().rpartition(")")[2].split()
                parents[int(path.name)], pages[int(path.name)] = int(words[1]), int(words[21])
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += pages.get(pid, 0)
        todo += [child for child, parent in parents.items() if parent == pid]
    return total * os.sysconf("SC_PAGE_SIZE")


def shuffled(log: Path) -> int:
    """Bytes that all tasks so far have written for a shuffle, from an event log."""
    total = 0
    for path in log.rglob("*"):
        for line in path.read_text().splitlines() if path.is_file() else ():
            with suppress(ValueError):
                metrics = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total
