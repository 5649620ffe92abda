"""Rebuild, source and sink beyond local[N]: a standalone cluster of two workers, Spark Connect with
a server that cannot import eoctl, speculative attempts. Long: each starts JVMs of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from tests.docs.pages import follows
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.dedup_world import Copier, check_clean, source, topics
from tests.kafka.merging import World
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill
from tests.spark.sinking import staged_values, values, watched
from tests.spark.starting import free_port, home, running, standalone_cluster, wait_for
from tests.started import started

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Master and two Workers, a core each, by spark-class; their Python is this one."""
    with (
        standalone_cluster(tmp_path_factory.mktemp("standalone")) as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield url


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server whose Python has every package but eoctl's."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    packages = str(home().parent)  # as PYTHONPATH: the .pth file of eoctl's install is not read
    python = folder / "python"
    base = os.path.realpath(sys.executable)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {base} "$@"\n')
    python.chmod(0o755)
    check = [str(python), "-c", "import numpy, pyspark; import eoctl"]
    said = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=False)
    assert "No module named 'eoctl'" in said.stderr
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    server = [
        *(str(home() / "bin" / "spark-submit"), "--master", "local[2,4]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "spark-internal"),
    ]
    with running(folder, server, env=env):
        wait_for(port)
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def changelog(lab1: Lab) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"store-{uuid.uuid4().hex[:8]}-changelog"
    admin = AdminClient(lab1.client_properties())
    new = NewTopic(name, 4, 1, config=KEPT)
    admin.create_topics([new], operation_timeout=10)[name].result(20)
    fill(lab1, name, seed=9, records=40_000, keys=3000, partitions=4)
    return name


def rebuilt(lab: Lab, changelog: str, folder: Path, *words: str) -> Rebuilt:
    ran = eoctl(
        *("state", "rebuild", changelog, "--format", "plain", "--at", "lso"),
        *("--output", str(folder), "--range-offsets", "9000", "-o", "json"),
        *words,
        lab=lab,
        timeout=400,
    )
    assert ran.status == 0, ran.stderr
    return Rebuilt(folder)


@follows("docs/spark.md", "Launching")
def test_the_page(
    it: Reading, lab1: Lab, standalone: str, connect: str, changelog: str, tmp_path: Path
) -> None:
    """A rebuild on a standalone cluster, and one by Spark Connect."""
    it.lab = lab1
    it.names |= {
        "store-changelog": changelog,
        "spark://m:7077": standalone,
        "sc://connect-server:15002": connect,
        "spark.executor.memory=4g": "spark.executor.memory=512m",  # what the workers have
    }
    for number in range(2):
        it.names["/shared/state"] = str(tmp_path / f"state-{number}")
        it.run("state rebuild", 0)
        found = Rebuilt(tmp_path / f"state-{number}")
        assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


def test_digest_of_a_standalone_cluster(
    lab1: Lab, standalone: str, changelog: str, tmp_path: Path
) -> None:
    words = ("--engine", "spark", "--master", standalone, "--conf", "spark.executor.memory=512m")
    found = rebuilt(lab1, changelog, tmp_path / "out", *words)
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


def test_a_killed_executor_changes_nothing(
    lab1: Lab, standalone: str, changelog: str, tmp_path: Path
) -> None:
    """Its tasks are tried again elsewhere; only attempts whose rows came back are listed."""
    folder = tmp_path / "out"
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.3) and not killed:
            if list(folder.glob("runs/progress-*/[0-9]*")):  # a task reads
                for pid in executors(standalone)[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    words = ("--engine", "spark", "--master", standalone, "--conf", "spark.executor.memory=512m")
    try:
        found = rebuilt(lab1, changelog, folder, *words, "--max-rate", "2M")
    finally:
        ended.set()
        thread.join()
    assert killed
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])
    listed = {f.path for p in found.manifest.partitions for f in p.files}
    assert {str(p.relative_to(folder)) for p in folder.glob("data/**/*.parquet")} == listed


def executors(master: str) -> list[int]:
    """Pids of the executors of this master's workers."""
    found = processes()
    parents = workers(master)
    return [
        pid
        for pid, (parent, words) in found.items()
        if parent in parents and "CoarseGrainedExecutorBackend" in words
    ]


def workers(master: str) -> list[int]:
    """Pids of this master's workers."""
    return [
        pid
        for pid, (_, words) in processes().items()
        if "worker.Worker" in words and words.strip().endswith(master)
    ]


def processes() -> dict[int, tuple[int, str]]:
    """Of every process its parent and its command line."""
    found: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            words = (path / "cmdline").read_text().replace("\0", " ")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = parent, words
    return found


def test_digest_over_spark_connect(lab1: Lab, connect: str, changelog: str, tmp_path: Path) -> None:
    words = ("--engine", "spark", "--remote", connect)
    found = rebuilt(lab1, changelog, tmp_path / "out", *words)
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


SOURCE = """
import json, sys
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.source import register
remote, server, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
access = Access({"bootstrap.servers": server})
register(spark, access, topics=topic)
frame = spark.read.format("eoctl-kafka").load()
counts = [frame.count()]
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": server})
for n in range(100):
    producer.produce(topic, b"more", partition=0)
producer.flush(30)
counts.append(frame.filter("partition >= 0").count())
try:
    spark.read.format("eoctl-kafka").option("topics", topic + "-out").load().count()
    said = "read"
except Exception as error:
    said = str(error)
from spark_jobs.sink.write import write_exactly_once
sent = spark.range(0, 3000, 1, 3).selectExpr("uuid() value")
rows = [write_exactly_once(sent, topic=topic + "-out", job=topic, batch=0, staging_folder=folder,
                           access=access)["rows_sent_now"] for run in range(2)]
print(json.dumps({"counts": counts, "said": said, "rows": rows}))
"""


def test_source_and_sink_over_spark_connect(
    lab1: Lab, connect: str, changelog: str, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab1.client_properties())
    name = f"c-{uuid.uuid4().hex[:8]}"
    for made in (name, f"{name}-out"):
        admin.create_topics([NewTopic(made, 2, 1)], operation_timeout=10)[made].result(20)
    ran = run_python(SOURCE, connect, lab1.bootstrap_servers, name, str(tmp_path))
    assert ran["counts"] == [0, 0]
    assert "each action loads again" in ran["said"]
    assert ran["rows"] == [3000, 0]  # run again, it sends nothing
    assert values(lab1, f"{name}-out") == staged_values(tmp_path / name / "batch-0")


STREAM = """
import json, sys
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.sink.foreach import foreach_batch
from spark_jobs.source import register
server, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2,4]").getOrCreate()  # its server's Python has eoctl
access = Access({"bootstrap.servers": server})
register(spark, access)
def run(checkpoint, named):
    rows = spark.readStream.format("eoctl-kafka").option("subscribe", topic)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 90).load()
    send = foreach_batch(topic=topic + "-out", job=topic, staging_folder=folder + "/staging",
                         access=access, checkpoint=named)
    writer = rows.select("key", "value").writeStream.foreachBatch(send).trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        query.awaitTermination()
        return [p["batchId"] for p in query.recentProgress]
    except Exception as error:
        return str(error)
first, other = folder + "/first", folder + "/other"
print(json.dumps([run(first, None), run(first, first), run(other, other), run(other, first)]))
"""


def test_a_stream_over_spark_connect(lab1: Lab, tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin, name = AdminClient(lab1.client_properties()), f"c-{uuid.uuid4().hex[:8]}"
    for made in (name, f"{name}-out"):
        admin.create_topics([NewTopic(made, 2, 1)], operation_timeout=10)[made].result(20)
    producer = Producer(lab1.client_properties())
    for n in range(200):
        producer.produce(name, str(n), partition=n % 2)
    producer.flush(30)
    unnamed, batches, anew, wrong = run_python(STREAM, lab1.bootstrap_servers, name, str(tmp_path))
    assert "give checkpoint=, the query's checkpointLocation" in unnamed
    assert batches[:3] == [0, 1, 2]
    assert "here belongs to run" in anew
    assert "does not say that batch 0 runs" in wrong
    assert values(lab1, f"{name}-out") == values(lab1, name)
    assert values(lab1, name).total() == 200


def test_merge_replay_over_spark_connect(
    lab1: Lab, connect: str, topic: MakeTopic, tmp_path: Path
) -> None:
    world = World(lab1, topic, partitions=2, count=30)
    world.write_logs()
    ran = eoctl(
        *("merge", "replay", *world.words, "--execute", "--yes", "--remote", connect),
        *("--staging", str(tmp_path)),
        lab=lab1,
        timeout=400,
    )
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_merge_replay_over_spark_connect_that_loses_its_client(
    lab1: Lab,
    connect: str,
    topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """While it sends. What the server still does is fenced by the local engine, which goes on."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    world = World(lab1, topic, count=20_000)
    world.write_logs()
    words = ["merge", "replay", *world.words, "--execute", "--yes"]
    words += ["--from-merge-offset=0:0", "--output-offset=0:0"]
    server = ["--bootstrap-server", lab1.bootstrap_servers]
    remote = ["--remote", connect, "--staging", str(tmp_path / "staging")]
    with started(
        [*EOCTL, *server, *words, *remote],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as replaying:
        with watched(lab1, world.output) as end:
            while not end():
                assert replaying.poll() is None, replaying.communicate()[1][-3000:]
                time.sleep(0.01)
        (record,) = (tmp_path / "state").glob("jobs/*/job.json")
        leader = json.loads(record.read_text())["pid"]
        if number == signal.SIGKILL:
            for pid in [replaying.pid, *session_members(leader)]:
                os.kill(pid, number)
        else:
            replaying.send_signal(number)
        _, said = replaying.communicate(timeout=120)
    assert replaying.returncode == (-9 if number == signal.SIGKILL else 6), said
    assert "Traceback" not in said
    assert session_members(leader) == []
    ran = eoctl(*words, "--engine", "local", lab=lab1, timeout=400)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
    time.sleep(20)  # if something of it were alive, it would write by now
    assert world.got == world.expected


def test_audits_over_spark_connect(
    lab1: Lab, connect: str, changelog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog's keys repeat; its batches do not."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    for words in (("duplicates", changelog, "--by", "key"), ("sequences", changelog)):
        answers = []
        for engine in (("--engine", "local"), ("--remote", connect)):
            ran = eoctl("audit", *words, *engine, "-o", "json", lab=lab1, timeout=400)
            answers.append((ran.status, {k: ran.json[k] for k in ("rows", "errors", "findings")}))
            assert ran.json["engine"] == ("local" if "local" in engine else "spark")
        assert answers[0] == answers[1]
        assert (answers[0][0], len(answers[0][1]["rows"])) == (
            (1, 1000) if words[0] == "duplicates" else (0, 0)
        )


def run_python(program: str, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=environment(PYSPARK_PYTHON=sys.executable),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SPECULATING = """
import json, pathlib, sys
from pyspark.sql import SparkSession
from eoctl.kafka.connection.access import Access
from spark_jobs.sink.write import write_exactly_once
master, server, topic, folder = sys.argv[1:]
pathlib.Path(folder, "events").mkdir()
spark = (SparkSession.builder.master(master)
    .config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", pathlib.Path(folder, "events").as_uri())
    .config("spark.executor.memory", "512m").config("spark.driver.host", "127.0.0.1")
    .config("spark.speculation", "true").config("spark.speculation.interval", "200ms")
    .config("spark.speculation.multiplier", "1.1").config("spark.speculation.quantile", "0.3")
    .config("spark.speculation.minTaskRuntime", "500ms").config("spark.ui.enabled", "false")
    .getOrCreate())
access = Access({"bootstrap.servers": server})
frame = spark.range(0, 40000, 1, 4).selectExpr(
    "uuid() value")
# one partition is long, so that its attempt is doubled
long = frame.union(spark.range(0, 200000, 1, 1).selectExpr("uuid() value"))
report = write_exactly_once(long, topic=topic, job=topic, batch=0, staging_folder=folder,
    access=access, rows_per_transaction=2000, allow_speculation=True)
spark.stop()
logs = [p for p in pathlib.Path(folder, "events").rglob("*") if p.is_file()]
attempts = sum(
    json.loads(line)["Task Info"]["Speculative"]
    for p in logs for line in p.read_text().splitlines() if '"SparkListenerTaskStart"' in line)
print(json.dumps({"speculative": attempts, "takeovers": report["takeovers"]}))
"""


def test_speculative_attempts_neither_double_nor_lose(
    lab1: Lab, standalone: str, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab1.client_properties())
    name = f"s-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=10)[name].result(20)
    ran = run_python(SPECULATING, standalone, lab1.bootstrap_servers, name, str(tmp_path))
    assert ran["speculative"] > 0
    sent: Counter[bytes] = staged_values(tmp_path / name / "batch-0")
    assert sent.total() == 240_000
    assert values(lab1, name) == sent


@pytest.mark.parametrize("where", ["connect", "standalone"])
def test_dedup_beyond_this_process(
    lab1: Lab,
    topic: MakeTopic,
    request: pytest.FixtureRequest,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its plan too. What was seen is kept where a folder is shared, and read again elsewhere."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    url, folder = request.getfixturevalue(where), tmp_path / "shared"
    words = {
        "connect": ("--remote", url),
        "standalone": ("--master", url, "--staging", str(folder)),
    }
    dirty, clean = topics(lab1, topic)
    copier = Copier(lab1, dirty, seed=5)
    for _ in range(2):
        copier.run(300)
        done = eoctl(
            *("dedup", dirty, clean, "--follow", "--execute", "--yes", *words[where]),
            lab=lab1,
            timeout=800,
        )
        assert done.status == 0, done.stdout + done.stderr
        assert check_clean(lab1, dirty, clean, source)
    assert folder.exists() == (where == "standalone")
    assert not (tmp_path / "state" / "dedup").exists()
