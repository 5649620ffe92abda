"""What runs inside a cluster, on each minor version of Spark but the lab's, which all other tests
have; each in an environment of its own, below 4.2 with the oldest numpy and pyarrow."""

import fcntl
import json
import os
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from eoctl.engine.code_zip import code_zip
from eoctl.lab.cluster import Lab
from tests.kafka.command import environment
from tests.kafka.state_oracle import Rebuilt, dict_state, digest
from tests.spark.test_submit import export, made

VERSIONS = ("4.0.1", "4.1.4", "4.2.1")
NEWER = "4.2"  # needs pyarrow 18 itself
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
from spark_jobs.session.progress import JobProgress
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


STREAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.source import register
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark, Access({"bootstrap.servers": sys.argv[2]}))
frame = spark.readStream.format("eoctl-kafka").option("topics", sys.argv[3]).load()
writer = frame.writeStream.format("noop").option("checkpointLocation", sys.argv[4])
import json
try:
    writer.trigger(availableNow=True).start().awaitTermination()
    print("ROWS" + json.dumps("read"))
except Exception as error:
    print("ROWS" + json.dumps(str(error)))
spark.stop()
"""


def floors() -> dict[str, str]:
    """The lowest versions that pyproject.toml takes of what Spark below 4.2 is tried with."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    asked = (line.partition(">=") for line in project["optional-dependencies"]["data"])
    return {name: lowest for name, _, lowest in asked if name in BESIDE}


@pytest.fixture(params=VERSIONS)
def older(request: pytest.FixtureRequest) -> Path:
    """An environment with a Spark and nothing of eoctl's, kept beside the others of .venv."""
    spark = request.param
    beside = {name: version(name) for name in BESIDE}
    beside |= floors() if spark < NEWER else {}
    name = f"spark-{spark}-numpy-{beside['numpy']}-pyarrow-{beside['pyarrow']}"
    folder = Path(sys.prefix, name)
    with Path(sys.prefix, f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "whole"
        if not done.exists():
            uv = str(Path(sys.prefix, "bin", "uv"))
            minor = f"{sys.version_info.major}.{sys.version_info.minor}"
            subprocess.run(
                [uv, "venv", "-q", "--clear", "--python", minor, str(folder)], check=True
            )
            pins = [f"{name}=={pinned}" for name, pinned in {"pyspark": spark, **beside}.items()]
            python = ("--python", str(folder / "bin" / "python"))
            subprocess.run([uv, "pip", "install", "-q", *python, *pins], check=True)
            done.touch()
    return folder


def ran(older: Path, *words: str, cwd: Path) -> str:
    """Run something of that environment; its stdout."""
    python = str(older / "bin" / "python")
    env = environment(
        PATH=f"{older / 'bin'}:{os.environ['PATH']}",
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
def test_rebuilds_and_reads_on_older_sparks(lab1: Lab, older: Path, tmp_path: Path) -> None:
    changelog = made(lab1, **{"cleanup.policy": "delete", "retention.ms": "-1"})
    python = older / "bin" / "python"
    here = [f"spark.pyspark.{which}={python}" for which in ("python", "driver.python")]
    words = ("--master", "local[2]", "--conf", here[0], "--conf", here[1])
    job = tmp_path / "job"
    assert export(lab1, changelog, job, str(tmp_path / "state"), *words).status == 0
    ran(older, *shlex.split((job / "submit.txt").read_text()), cwd=job)
    rebuilt = Rebuilt(tmp_path / "state")
    state, _ = dict_state(lab1, changelog, rebuilt.ends)
    assert rebuilt.digest == digest(state)

    code = str(code_zip(tmp_path))
    servers = lab1.bootstrap_servers
    read = rows(ran(older, str(python), "-c", SOURCE, code, servers, changelog, cwd=tmp_path))
    assert isinstance(read, list)
    last = {(p, k): v for p, _, k, v in read}
    expected = {(p, key.hex().upper()): v.hex().upper() for (p, key), (_, v) in state.items()}
    assert {entry: v for entry, v in last.items() if v is not None} == expected
    stream = ("-c", STREAM, code, servers, changelog, str(tmp_path / "checkpoint"))
    told = rows(ran(older, str(python), *stream, cwd=tmp_path))
    needs = "streams need Spark 4.2"
    assert told == "read" if older.name >= "spark-4.2" else needs in str(told), told


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_reads_a_checkpoint_of_older_sparks(older: Path, tmp_path: Path) -> None:
    code = str(code_zip(tmp_path))
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"k": str(i % 3), "v": i}) for i in range(9)]
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    words = (str(older / "bin" / "python"), "-c", STATE, code, str(tmp_path))
    expected = [[str(k), sum(range(k, 9, 3))] for k in range(3)]
    assert rows(ran(older, *words, cwd=tmp_path)) == expected
