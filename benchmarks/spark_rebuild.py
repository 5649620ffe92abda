"""`state rebuild` on warm Spark beside the local engine with warm workers.

The same cut of the same log, whole rebuilds with CRC and digest, the digests compared each time.
Goal: Spark local[2] is no slower than local; a standalone cluster of two workers is printed. So
are the seconds of CPU of all processes but the broker, which others on the machine change less.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import rebuild as local_benchmark
from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, tree_cpu
from eoctl.engine.local import LocalEngine
from eoctl.engine.rebuild import RebuildEngine, RebuildJob, rebuild
from eoctl.engine.rebuild_task import Making
from eoctl.kafka.connection.access import Access
from eoctl.lab.record import LabSpec
from recovery.values import replace
from tests.spark.starting import standalone_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
# settings of an earlier session in this process would hold in a later one
_OF_OTHERS = {"spark.eventLog.enabled": "false", "spark.cores.max": str(CORES)}
ROUNDS = 5


def measure() -> Iterator[Measured]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        lab(LabSpec("spark-rebuild")) as one,
        tempfile.TemporaryDirectory() as folder,
        LocalEngine(CORES) as processes,
    ):
        root, topic = Path(folder), "spark-rebuild"
        local_benchmark.fill(one, topic, "none")
        access = Access(one.client_properties())
        request = request_of(root, one.bootstrap_servers, topic)
        digests: set[object] = set()
        number = iter(range(1000))

        cpu: dict[str, list[float]] = {}

        def run(name: str, engine_of: Callable[[Path], RebuildEngine]) -> None:
            output = root / f"{name}-{next(number)}"
            how = replace(request.how, output=str(output))
            wanted = replace(request, how=how)
            before = tree_cpu()
            found = rebuild(wanted, access, engine_of(output), name).digest
            cpu.setdefault(name, []).append(tree_cpu() - before)
            digests.add((found.rows, found.sha256_sum))

        def beside(master: str, what: str, goal: str) -> Iterator[Measured]:
            from eoctl.stores.storage_address import storage_at
            from spark_jobs.rebuild import SparkEngine

            cpu.clear()
            with session(master) as spark:
                times = alternate(
                    lambda: run("spark", lambda output: SparkEngine(spark, storage_at(output))),
                    lambda: run("local", lambda _: processes),
                    ROUNDS,
                )
            if len(digests) != 1:
                raise SystemExit(f"the digests differ: {digests}")
            title = f"rebuild {local_benchmark.RECORDS:,} records on warm Spark {what}"
            peer = "local, warm workers"
            yield Measured(title, *times, peer, goal)
            title = "  the same in seconds of CPU of all processes but the broker"
            yield Measured(title, cpu["spark"][1:], cpu["local"][1:], peer, "none, printed")

        yield from beside(f"local[{CORES},4]", f"local[{CORES}]", "at least 1x")
        with standalone_cluster(root) as master:
            yield from beside(master, "standalone, two workers", "none, printed")


@contextmanager
def session(master: str, more: Mapping[str, str] = {}) -> Iterator["SparkSession"]:
    """A session for rebuilds; more: of its settings."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config(map={**_OF_OTHERS, **more})
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def request_of(root: Path, servers: str, topic: str) -> RebuildJob:
    """What the command resolves, with the cut of a first run."""
    import asyncio

    from eoctl.engine.rebuild_request import RebuildRequest, resolved
    from eoctl.engine.resolve_cut import parse_at
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.kafka.connection.failures import Deadline
    from eoctl.kafka.connection.properties import client_settings

    first = root / "first"
    words = ["--format", "plain", "--at", "lso", "--output", str(first), "--engine", "local"]
    command([*EOCTL, "--bootstrap-server", servers, "state", "rebuild", topic, *words])()
    wanted = RebuildRequest(
        (topic,), str(first / "cut.json"), Making("plain", {}, str(root / "unused"))
    )

    async def resolve() -> RebuildJob:
        settings = client_settings({"bootstrap.servers": servers})
        async with Cluster(settings, Deadline(60)) as cluster:
            return await resolved(cluster, wanted, parse_at(wanted.at))

    return asyncio.run(resolve())
