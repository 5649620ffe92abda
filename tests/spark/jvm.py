"""Flags with which Spark's JVMs start in half of the time: one compiler, classes from an archive.

The archive (AppCDS, JEP 350) stands in the environment of pyspark, whose jars it is for; whoever
comes first makes it, with a small job. A small job takes 6 CPU seconds then, instead of 20.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from eoctl.host.java import find_java

SWIFT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUIET = "-Xlog:disable"  # an archive that does not fit is not used, and nothing is said on stdout

JOB = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2")
for name in ("bindAddress", "host"):
    builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
spark = builder.getOrCreate()
spark.range(99).selectExpr("id % 9 as k", "id").groupBy("k").sum("id").collect()
spark.range(99).repartition(2).rdd.map(lambda row: row.id).sum()
spark.stop()
"""


def environment() -> dict[str, str]:
    """Variables for Spark's launcher, driver (in client mode) and daemons."""
    archive = _archive()
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return {
        "SPARK_LAUNCHER_OPTS": SWIFT,
        "SPARK_DAEMON_JAVA_OPTS": SWIFT,
        "SPARK_SUBMIT_OPTS": f"{SWIFT} {QUIET} -XX:SharedArchiveFile={archive}",
    }


def _archive() -> Path:
    """The JVM takes it only with the same build and the same jars."""
    told = hashlib.sha256(find_java().banner.encode())
    for jar in sorted((Path(pyspark.__file__).parent / "jars").iterdir()):
        told.update(f"{jar} {jar.stat().st_mtime_ns}".encode())
    folder = Path(sys.prefix, "classes")
    folder.mkdir(exist_ok=True)
    return folder / f"spark-{pyspark.__version__}-{told.hexdigest()[:16]}.jsa"


def _make(archive: Path) -> None:
    """Where it cannot be made, the tests only take longer."""
    fresh = archive.with_suffix(".making")
    options = {"SPARK_SUBMIT_OPTS": f"{SWIFT} {QUIET} -XX:ArchiveClassesAtExit={fresh}"}
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, **options, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        check=False,
        timeout=240,
    )
    if done.returncode == 0 and fresh.exists():
        for old in archive.parent.glob("spark-*.jsa"):
            old.unlink(missing_ok=True)
        fresh.replace(archive)
