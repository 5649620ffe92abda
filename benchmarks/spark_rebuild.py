"""`state rebuild` on a warm Spark local[2] beside the local engine with warm workers.

The same cut of the same log, whole rebuilds with CRC and digest, the digests compared each time.
Goal: Spark is no slower than local.
"""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import rebuild as local_benchmark
from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab
from eoctl.kafka.access import Access
from eoctl.lab.record import LabSpec
from eoctl.stores.local_engine import LocalEngine
from eoctl.stores.rebuild import Engine, Request, rebuild

CORES = 2
ROUNDS = 5


def measure() -> Iterator[Measured]:
    from pyspark.sql import SparkSession

    from spark_jobs.rebuild import SparkEngine

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{CORES},4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with (
            lab(LabSpec("spark-rebuild")) as one,
            tempfile.TemporaryDirectory() as folder,
            LocalEngine(CORES) as processes,
        ):
            root, topic = Path(folder), "spark-rebuild"
            local_benchmark._fill(one, topic, "none")
            access = Access(one.client_properties())
            request = _request(root, one.bootstrap_servers, topic)
            digests: set[object] = set()
            number = iter(range(1000))

            def run(name: str) -> None:
                output = root / f"{name}-{next(number)}"
                wanted = dataclasses.replace(request, output=str(output))
                engine: Engine = processes if name == "local" else SparkEngine(spark, output)
                found = rebuild(wanted, access, engine, name).digest
                digests.add((found.rows, found.sha256_sum))

            times = alternate(lambda: run("spark"), lambda: run("local"), ROUNDS)
            if len(digests) != 1:
                raise SystemExit(f"the digests differ: {digests}")
            what = f"rebuild {local_benchmark.RECORDS:,} records on warm Spark local[{CORES}]"
            yield Measured(what, *times, "local, warm workers", "at least 1x")
    finally:
        spark.stop()


def _request(root: Path, servers: str, topic: str) -> Request:
    """What the command resolves, with the cut of a first run."""
    import asyncio

    from eoctl.kafka.cluster import Cluster
    from eoctl.kafka.failures import Deadline
    from eoctl.kafka.properties import client_settings
    from eoctl.operations import state
    from eoctl.operations.cut import parse_at

    first = root / "first"
    words = ["--format", "plain", "--at", "lso", "--output", str(first), "--engine", "local"]
    command([*EOCTL, "--bootstrap-server", servers, "state", "rebuild", topic, *words])()
    wanted = state.Wanted((topic,), "plain", str(first / "cut.json"), root / "unused")

    async def resolve() -> Request:
        settings = client_settings({"bootstrap.servers": servers})
        async with Cluster(settings, Deadline(60)) as cluster:
            return await state._request(cluster, wanted, parse_at(wanted.at))

    return asyncio.run(resolve())
