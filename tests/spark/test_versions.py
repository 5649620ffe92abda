"""What runs inside a cluster, on the oldest Spark that is tried, in an environment of its own."""

import fcntl
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from eoctl.engine.code_zip import code_zip
from eoctl.lab.cluster import Lab
from tests.kafka.command import environment
from tests.kafka.state_oracle import Rebuilt, dict_state, digest
from tests.spark.test_submit import export, made

OLDEST = "4.0.1"
BESIDE = ("numpy", "pyarrow", "crc32c", "kafka-python", "msgspec", "pydantic", "pandas")

SOURCE = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.source import register
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark, Access({"bootstrap.servers": sys.argv[2]}))
frame = spark.read.format("eoctl-kafka").option("topics", sys.argv[3]).load()
rows = frame.selectExpr("partition", "offset", "hex(key) as k", "hex(value) as v").collect()
import json
print("ROWS" + json.dumps(sorted([r.partition, r.offset, r.k, r.v] for r in rows)))
spark.stop()
"""

STATE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs import checkpoint_state
from spark_jobs.session.job import JobProgress
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
folder = Path(sys.argv[2])
frame = spark.readStream.schema("k string, v long").json(str(folder / "in")).groupBy("k").sum("v")
writer = frame.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
names = ("operator", "store", "join_side", "batch", "key_column", "value_column", "key", "most")
request = dict.fromkeys(names)
request["checkpoint"] = str(folder / "checkpoint")
request["output"] = (folder / "rows").as_uri()
checkpoint_state.work(spark, request, Access({}), JobProgress(None))
rows = spark.read.parquet(str(folder / "rows")).collect()
import json
print("ROWS" + json.dumps(sorted([json.loads(r.key_json), json.loads(r.value_json)] for r in rows)))
spark.stop()
"""


@pytest.fixture(scope="session")
def oldest() -> Path:
    """An environment with that Spark and nothing of eoctl's, kept beside the others of .venv."""
    folder = Path(sys.prefix, f"spark-{OLDEST}")
    with Path(sys.prefix, f"spark-{OLDEST}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "whole"
        if not done.exists():
            uv = str(Path(sys.prefix, "bin", "uv"))
            minor = f"{sys.version_info.major}.{sys.version_info.minor}"
            subprocess.run(
                [uv, "venv", "-q", "--clear", "--python", minor, str(folder)], check=True
            )
            pins = [f"pyspark=={OLDEST}", *(f"{name}=={version(name)}" for name in BESIDE)]
            python = ("--python", str(folder / "bin" / "python"))
            subprocess.run([uv, "pip", "install", "-q", *python, *pins], check=True)
            done.touch()
    return folder


def ran(oldest: Path, *words: str, cwd: Path) -> str:
    """Run something of that environment; its stdout."""
    python = str(oldest / "bin" / "python")
    env = environment(
        PATH=f"{oldest / 'bin'}:{os.environ['PATH']}",
        PYSPARK_PYTHON=python,
        PYSPARK_DRIVER_PYTHON=python,
        SPARK_HOME=None,
        SPARK_SUBMIT_OPTS=None,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def rows(stdout: str) -> object:
    [line] = [line for line in stdout.splitlines() if line.startswith("ROWS")]
    return json.loads(line.removeprefix("ROWS"))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_rebuilds_and_reads_on_the_oldest_spark(lab1: Lab, oldest: Path, tmp_path: Path) -> None:
    changelog = made(lab1, **{"cleanup.policy": "delete", "retention.ms": "-1"})
    python = oldest / "bin" / "python"
    here = [f"spark.pyspark.{which}={python}" for which in ("python", "driver.python")]
    words = ("--master", "local[2]", "--conf", here[0], "--conf", here[1])
    job = tmp_path / "job"
    assert export(lab1, changelog, job, str(tmp_path / "state"), *words).status == 0
    ran(oldest, *shlex.split((job / "submit.txt").read_text()), cwd=job)
    rebuilt = Rebuilt(tmp_path / "state")
    state, _ = dict_state(lab1, changelog, rebuilt.ends)
    assert rebuilt.digest == digest(state)

    code = str(code_zip(tmp_path))
    servers = lab1.bootstrap_servers
    read = rows(ran(oldest, str(python), "-c", SOURCE, code, servers, changelog, cwd=tmp_path))
    assert isinstance(read, list)
    last = {(p, k): v for p, _, k, v in read}
    expected = {(p, key.hex().upper()): v.hex().upper() for (p, key), (_, v) in state.items()}
    assert {entry: v for entry, v in last.items() if v is not None} == expected


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_reads_a_checkpoint_of_the_oldest_spark(oldest: Path, tmp_path: Path) -> None:
    code = str(code_zip(tmp_path))
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"k": str(i % 3), "v": i}) for i in range(9)]
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    words = (str(oldest / "bin" / "python"), "-c", STATE, code, str(tmp_path))
    expected = [[str(k), sum(range(k, 9, 3))] for k in range(3)]
    assert rows(ran(oldest, *words, cwd=tmp_path)) == expected
