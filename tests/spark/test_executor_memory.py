"""Python's memory on executors: what is set where nobody has set it, as Spark's JVM knows it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.session.memory import CHOSEN, overhead
from tests.share import only_here

YARN = {"spark.master": "yarn"}


@pytest.mark.parametrize(
    ("conf", "mib"),
    [
        (YARN, 384 + 1024),
        ({**YARN, "spark.executor.cores": "4"}, 384 + 4 * 1024),
        ({**YARN, "spark.executor.cores": "4", "spark.task.cpus": "2"}, 384 + 2 * 1024),
        ({**YARN, "spark.executor.memory": "20G"}, 2048 + 1024),
        ({**YARN, "spark.executor.memory": "20480"}, 2048 + 1024),
        ({**YARN, "spark.executor.memory": "512m"}, 384 + 1024),
        ({"spark.master": "k8s://https://h:443", "spark.executor.cores": "2"}, 384 + 2 * 1024),
        ({"spark.master": "spark://h:7077"}, None),
        ({"spark.master": "local[4]"}, None),
        ({}, None),
        *(({**YARN, key: "1"}, None) for key in CHOSEN),
    ],
)
def test_what_a_container_is_granted(conf: dict[str, str], mib: int | None) -> None:
    assert overhead(conf) == mib


@pytest.mark.long
@pytest.mark.parametrize(
    ("default", "expected"),
    only_here(
        [("spark.executor.cores 3", "3456m"), ("spark.executor.memoryOverhead 2g", None)],
        ("spark.executor.cores 3", "3456m"),
    ),
)
def test_defaults_of_the_cluster_count(tmp_path: Path, default: str, expected: str | None) -> None:
    """As spark-defaults.conf says them, which only Spark's JVM reads."""
    (tmp_path / "spark-defaults.conf").write_text(default + "\n")
    code = "from spark_jobs.session import memory; print(memory.settings({'spark.master': 'yarn'}))"
    env = {"SPARK_CONF_DIR": str(tmp_path), "HADOOP_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    given = {} if expected is None else {"spark.executor.memoryOverhead": expected}
    assert done.stdout.splitlines()[-1:] == [str(given)], done.stderr
    assert ("may take 1024 MiB each" in done.stderr) is (expected is not None)
