"""`state rebuild` of 30 M records on a standalone cluster: what does not run side by side.

From Spark's event log: of a rebuild's seconds, those in which no task ran, and those in which only
one did. Beside them, the seconds of CPU of two workers and of one, of all processes but the broker.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import rebuild as local_benchmark
from benchmarks.side_by_side import lab, tree_cpu
from benchmarks.spark_rebuild import request_of, session
from eoctl.engine.rebuild import RebuildJob, rebuild
from eoctl.kafka.connection.access import Access
from eoctl.lab.record import LabSpec
from recovery.values import replace
from tests.spark.starting import standalone_cluster

RECORDS = round(float(os.environ.get("EOCTL_BENCH_SPARK_MILLIONS", "30")) * 1e6)


@dataclass(frozen=True)
class Run:
    """A rebuild's seconds, its seconds of CPU, and those in which none or one of its tasks ran."""

    seconds: float
    cpu: float
    none: float
    one: float


@dataclass(frozen=True)
class Scale:
    """The rebuild on one worker and on two."""

    one: Run
    two: Run

    def lines(self) -> list[str]:
        two, ratio = self.two, self.two.cpu / self.one.cpu
        none, one = (seconds / two.seconds for seconds in (two.none, two.one))
        return [
            f"rebuild {RECORDS:,} records on two warm workers of Spark: {two.seconds:.2f} s",
            f"  no task {none:.1%}   one task {one:.1%}   goal: no task at most 10%",
            f"  CPU {two.cpu:.1f} s, on one {self.one.cpu:.1f} s: {ratio:.2f}x   goal: up to 1.15x",
        ]


def measure() -> Iterator[Scale]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with lab(LabSpec("spark-scale")) as one, tempfile.TemporaryDirectory() as folder:
        root, topic = Path(folder), "spark-scale"
        local_benchmark.fill(one, topic, "none", RECORDS)
        access = Access(one.client_properties())
        request = request_of(root, one.bootstrap_servers, topic)
        with standalone_cluster(root) as master:
            runs = [_run(master, root, request, access, workers) for workers in (1, 2)]
    yield Scale(*runs)


def _run(master: str, root: Path, request: RebuildJob, access: Access, workers: int) -> Run:
    """The second of two rebuilds in a session: the first one warms it."""
    from eoctl.stores.storage_address import storage_at
    from spark_jobs.rebuild import SparkEngine

    log = root / f"log-{workers}"
    log.mkdir()
    more = {
        "spark.cores.max": str(workers),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    times: list[float] = []
    with session(master, more) as spark:
        for number in range(2):
            output = root / f"state-{workers}-{number}"
            how = replace(request.how, output=str(output))
            used, times = tree_cpu(), [time.time()]
            engine = SparkEngine(spark, storage_at(output))
            rebuild(replace(request, how=how), access, engine, "spark")
            times.append(time.time())
            used = tree_cpu() - used
    running = at_once(log, *times)
    return Run(times[1] - times[0], used, running.get(0, 0.0), running.get(1, 0.0))


def at_once(log: Path, began: float, ended: float) -> Mapping[int, float]:
    """Return the seconds of a time in which so many tasks ran, from an event log."""
    moments = [(began, 0), (ended, 0)]
    for path in log.rglob("*"):
        for line in path.read_text().splitlines() if path.is_file() else ():
            event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
            if event.get("Event") == "SparkListenerTaskEnd":
                task = event["Task Info"]
                low, high = task["Launch Time"] / 1000, task["Finish Time"] / 1000
                if low < ended and high > began:
                    moments += [(max(low, began), 1), (min(high, ended), -1)]
    seconds: dict[int, float] = {}
    tasks = 0
    for (now, change), (later, _) in pairwise(sorted(moments)):
        tasks += change
        seconds[tasks] = seconds.get(tasks, 0.0) + later - now
    return seconds
