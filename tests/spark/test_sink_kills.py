"""The sink against all that is killed: drivers, executors, brokers, workers that are speculated on;
and jobs that run without eoctl's command, by spark-submit."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.engine.code_zip import code_zip
from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from eoctl.operations.state.rebuild_answer import rebuild_state
from eoctl.settings.context import Connect, resolve
from recovery.errors import EoctlError
from spark_jobs.sink.write import write_exactly_once
from tests.kafka.command import environment
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill
from tests.share import share
from tests.spark.rebuilding import plain
from tests.spark.sinking import staged_values, values, watched
from tests.spark.starting import home, standalone_cluster
from tests.started import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eoctl.engine.rebuild import RebuildJob
    from recovery.state.manifest import Manifest

pytestmark = pytest.mark.timeout(3000)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Master and two Workers, a core each."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


@pytest.mark.long
def test_workers_and_executors_killed_while_spark_speculates(
    lab1: Lab, topic: MakeTopic, standalone: str, tmp_path: Path
) -> None:
    """30 seeded runs in full: 0 duplicates, 0 lost, for rows that differ at each evaluation."""
    name, runs = topic(lab1, 2), share(30)
    asked = {
        "master": standalone,
        "server": lab1.bootstrap_servers,
        "topic": name,
        "folder": str(tmp_path),
        "mark": uuid.uuid4().hex,
        "seeds": runs,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.sink_killed", json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=2900,
        check=False,
        env=environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1"),
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout.splitlines()[-1])
    sent: Counter[bytes] = Counter()
    for seed in range(runs):
        sent += staged_values(tmp_path / f"{name}-{seed}" / "batch-0")
    assert sent.total() == runs * 28_000
    assert values(lab1, name) == sent
    assert told["speculative"] > 0, told
    assert told["kills"] >= runs, told
    print(f"{runs} runs: {told}")  # with -s


DRIVER = """
import sys
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.sink.write import write_exactly_once
server, topic, folder = sys.argv[1:]
spark = (SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").getOrCreate())
frame = spark.range(0, 200000, 1, 4).selectExpr("uuid() value")
write_exactly_once(frame, topic=topic, job=topic, batch=0, staging_folder=folder,
    access=Access({"bootstrap.servers": server}), rows_per_transaction=1000)
"""


@pytest.mark.long
@pytest.mark.parametrize("moment", ["staging", "sending"])
def test_driver_killed_and_the_job_run_again(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, moment: str
) -> None:
    """Of another evaluation of the rows, whose values are others, nothing is sent."""
    name = topic(lab1, 2)
    batch = tmp_path / name / "batch-0"
    words = [sys.executable, "-c", DRIVER, lab1.bootstrap_servers, name, str(tmp_path)]
    env = environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with (
        (tmp_path / "log").open("wb") as log,
        started(words, env=env, stdout=log, stderr=log, start_new_session=True) as driver,
    ):
        with watched(lab1, name, "read_committed") as end:  # something is committed
            while not (list(batch.glob("part-*")) if moment == "staging" else end()):
                assert driver.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.005)
        for pid in session_members(driver.pid):
            os.kill(pid, signal.SIGKILL)
        driver.wait(30)
    staged = batch / "manifest.json"
    before = staged.read_bytes() if moment == "sending" else b""
    if moment == "staging":
        assert not staged.exists()
        assert values(lab1, name) == Counter()
    else:
        there = values(lab1, name)
        assert 0 < there.total() < 200_000
        assert there <= staged_values(batch)
    again = subprocess.run(words, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert again.returncode == 0, again.stderr[-3000:]
    sent = staged_values(batch)
    assert sent.total() == 200_000
    assert values(lab1, name) == sent
    assert moment == "staging" or staged.read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("seed", range(share(10, 2)))
def test_a_broker_killed_while_it_writes(
    spark: "SparkSession", lab3: Lab, topic: MakeTopic, tmp_path: Path, seed: int
) -> None:
    """It leads output and markers and coordinates some transactions; the run goes on, or the same
    batch does. With a unique value in each row."""
    name = topic(lab3, 3, 3, {"min.insync.replicas": "2"})
    rows, draw = 60_000, random.Random(seed)
    killed = draw.randrange(1, 4)
    ended, watching = threading.Event(), threading.Event()
    was_killed: list[int] = []

    def kill() -> None:
        with watched(lab3, name) as end:
            after = draw.randrange(1, rows // 3)
            watching.set()
            while end() < after:
                if ended.wait(0.01):
                    return
        lab3.kill(killed)
        was_killed.append(killed)
        ended.wait(20)
        lab3.start(killed)

    thread = threading.Thread(target=kill)
    thread.start()
    assert watching.wait(60)
    told: list[str] = []
    try:
        for _ in range(6):
            try:
                write_exactly_once(
                    spark.range(0, rows, 1, 4).selectExpr("uuid() value"),
                    topic=name,
                    job=name,
                    batch=0,
                    staging_folder=tmp_path,
                    access=Access(lab3.client_properties()),
                    rows_per_transaction=500,
                )
                break
            except EoctlError as error:
                told.append(error.sentence)
        else:
            raise AssertionError(told)
    finally:
        ended.set()
        thread.join()
    assert was_killed
    sent = staged_values(tmp_path / name / "batch-0")
    assert (sent.total(), len(sent)) == (rows, rows)
    assert values(lab3, name) == sent


class _Asked(Exception):  # noqa: N818 - ends a rebuild before it begins
    pass


@pytest.mark.long
def test_spark_submit_without_eoctl(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """The zip, the job's file and a spec are enough, for a Python that has no eoctl."""
    changelog = topic(lab1, 2, 1, {"cleanup.policy": "delete", "retention.ms": "-1"})
    fill(lab1, changelog, seed=3, records=5000, keys=300, partitions=2)
    output, specs = tmp_path / "out", []

    def keep(request: "RebuildJob", access: Access) -> "Manifest":
        access_ = {"properties": dict(access.properties)}
        specs.append({"access": access_, "request": json.loads(request.to_json())})
        raise _Asked

    wanted = plain(changelog, output)
    context = resolve(Connect(bootstrap_server=lab1.bootstrap_servers))
    with pytest.raises(_Asked):
        rebuild_state(context, wanted, 60, spark=keep)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(specs[0]))
    zipped = code_zip(tmp_path)
    job = tmp_path / "job.py"
    shutil.copy(Path(__file__).resolve().parents[2] / "spark_jobs" / "rebuild.py", job)
    python = tmp_path / "python"  # has every package but eoctl's: the .pth file is not read
    packages, base = home().parent, os.path.realpath(sys.executable)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {base} "$@"\n')
    python.chmod(0o755)
    env = environment(
        PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=str(python), SPARK_LOCAL_IP="127.0.0.1"
    )
    without = [str(python), "-c", "import numpy; import eoctl"]
    said = subprocess.run(without, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'eoctl'" in said.stderr
    submit = [str(home() / "bin" / "spark-submit"), "--master", "local[2,4]"]
    submit += ["--conf", "spark.ui.enabled=false", "--py-files", str(zipped), str(job)]
    ran = subprocess.run(
        [*submit, "--spec", str(spec)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=env,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = Rebuilt(output)
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])
    # spark-submit writes the job's stderr, its progress, to stdout as well: the result is the last
    result = json.loads(ran.stdout[ran.stdout.rindex('{\n "') :])
    assert result["digest"] == found.manifest.digest.model_dump(mode="json")
