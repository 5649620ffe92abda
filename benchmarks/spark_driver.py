"""What a task costs the process that starts a rebuild, when the task itself has nothing to do.

The plan of a large rebuild whose tasks were all done by an earlier run: executors verify their rows
and files in object storage (moto's, a fake), the driver plans, counts, publishes and tidies up. The
logs are not looked at again. Measured: seconds of CPU of the driver's Python and its JVM, and the
driver's requests.
"""

import hashlib
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark_rebuild import session
from eoctl.engine import rebuild
from eoctl.engine.rebuild import RebuildJob
from eoctl.engine.rebuild_task import BucketTask, Making
from eoctl.kafka.connection.access import Access
from eoctl.stores.state.files import StateFile
from eoctl.stores.state.folder import REQUEST, Attempts, TaskRow
from eoctl.stores.state.runs import RunFile
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.cut import Cut, CutJudgement, CutPartition, CutTopic
from tests.object_store import environment, make_bucket, s3_server
from tests.spark.starting import standalone_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eoctl.stores.storage import Storage

TASKS_IN_ALL = int(os.environ.get("EOCTL_BENCH_SPARK_TASKS", "10000"))
EACH = 50  # ranges of a partition, and buckets
GOAL_MS, GOAL_REQUESTS = 6, 2
_RUN = bytes(EACH)


@dataclass(frozen=True)
class Driver:
    """Seconds of CPU of Python and of the JVM, and requests, for so many tasks."""

    tasks: int
    python: float
    jvm: float
    requests: int

    def lines(self) -> list[str]:
        python, jvm = (seconds / self.tasks * 1000 for seconds in (self.python, self.jvm))
        return [
            f"rebuild on Spark, {self.tasks:,} tasks that have nothing to do: the driver's part",
            f"  CPU of a task: {python:.2f} ms Python, {jvm:.2f} ms JVM   goal: {GOAL_MS} ms",
            f"  {self.requests / self.tasks:.3f} requests a task   goal: at most {GOAL_REQUESTS}",
        ]


def measure() -> Iterator[Driver]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with s3_server() as port, tempfile.TemporaryDirectory() as folder:
        make_bucket(port, "bench")
        os.environ |= environment(port)
        request = request_of(max(1, TASKS_IN_ALL // (2 * EACH)))
        fill(request.how.storage, request)
        rebuild._look_again = unchanged
        with (
            standalone_cluster(Path(folder), environment(port)) as master,
            session(master) as spark,
        ):
            yield driver(spark, request)


def driver(spark: "SparkSession", request: RebuildJob) -> Driver:
    from spark_jobs.rebuild import SparkEngine

    storage = request.how.storage
    engine = SparkEngine(spark, storage)
    engine.slots()  # ships the code, and starts executors
    before, asked = cpu(spark), storage.requests
    rebuild.rebuild(request, Access({}), engine, "spark")
    python, jvm = (now - then for now, then in zip(cpu(spark), before, strict=True))
    if engine.counters.kept != engine.counters.tasks:
        raise SystemExit("a task had something to do")
    return Driver(engine.counters.tasks, python, jvm, storage.requests - asked)


def cpu(spark: "SparkSession") -> tuple[float, float]:
    """Seconds of CPU so far, of this process and of its JVM."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own.ru_utime + own.ru_stime, sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")


def request_of(partitions: int) -> RebuildJob:
    end = EACH * 100
    parts = tuple(
        CutPartition(
            partition=p,
            start=0,
            end=end,
            last_stable_offset=end,
            high_watermark=end,
            leader_epoch=1,
        )
        for p in range(partitions)
    )
    topics = (CutTopic(topic="log", topic_id="id", partitions=parts),)
    cut = Cut(cluster_id="c", created_at="2026-01-01T00:00:00.000Z", at="lso", topics=topics)
    how = Making("plain", {}, "s3://bench/state", range_offsets=100, memory_bytes=8)
    return RebuildJob(cut, how, 1_767_225_600_000, {"log": {"cleanup.policy": "compact"}})


def fill(storage: "Storage", request: RebuildJob) -> None:
    """Write what the tasks of an earlier run have left."""
    storage.put(REQUEST, request.to_json().encode("ascii"))
    partitions = [p.partition for p in request.cut.topics[0].partitions]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: fill_partition(storage, request, one), partitions))


def fill_partition(storage: "Storage", request: RebuildJob, partition: int) -> None:
    digest = hashlib.sha256(b"PAR1").hexdigest()
    rows = []
    for number in range(EACH):
        bounds = {"start": number * 100, "end": number * 100 + 100}
        of_range = row_of(partition, **bounds)
        run = RunFile(f"runs/{of_range.key()}/x.run", 1, len(_RUN), len(_RUN), "")
        rows.append(row_of(partition, **bounds, runs=(run,)))
        keep(storage, rows[-1], run.path, _RUN)
    for task in rebuild._bucket_tasks(
        request, {TopicPartition("log", partition): rows}, request.how.form()
    ).values():
        assert isinstance(task, BucketTask)
        file = StateFile(f"data/log/{partition}-{task.bucket}.parquet", 0, 4, digest)
        buckets: dict[str, Any] = {"bucket": task.bucket, "buckets": EACH, "files": (file,)}
        merged = tuple(int(number == task.bucket) for number in range(EACH))
        row = row_of(partition, **buckets, token=task.token(), merged=merged)
        keep(storage, row, file.path, b"PAR1")


def keep(storage: "Storage", row: TaskRow, path: str, content: bytes) -> None:
    storage.put(path, content)
    Attempts(storage).keep(row.key(), row)


def row_of(partition: int, **fields: Any) -> TaskRow:
    usual: dict[str, Any] = dict.fromkeys(("start", "end", "bucket", "buckets", "last_read_ms"))
    usual |= dict.fromkeys(("digest_rows", "expired", "bytes_read", "peak_bytes"), 0)
    usual |= {name: {} for name in ("counts", "seen", "producers", "versions")}
    usual |= {"files": (), "runs": (), "digest": "0" * 64, "seconds": 0.0}
    return TaskRow(topic="log", partition=partition, **(usual | fields))


async def unchanged(
    request: RebuildJob, access: Access, by_partition: object, earlier: object
) -> tuple[CutJudgement, dict[TopicPartition, PartitionFacts]]:
    """Return what `rebuild._look_again` says of logs that nobody has changed."""
    logs = {
        at: PartitionFacts(*at, log_start_offset=0, last_stable_offset=p.end, high_watermark=p.end)
        for at, p in request.cut.by_partition().items()
    }
    return CutJudgement((), (), (), True), logs
