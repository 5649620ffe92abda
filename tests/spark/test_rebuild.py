"""Rebuilds on Spark: the state of a dict; jobs launched, seen, cancelled; no secret shown."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from eoctl.engine.rebuild_request import RebuildRequest
from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from eoctl.settings.context import Context
from recovery.errors import UsageError
from spark_jobs.source import register
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill
from tests.spark.rebuilding import on_session, plain
from tests.spark.sinking import python_workers
from tests.started import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
RECORDS, KEYS, PARTITIONS = 12_000, 500, 2


@pytest.fixture(scope="module")
def changelog(lab1: Lab) -> str:
    """A changelog with aborted transactions and tombstones, about 2.5 MB."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"store-{uuid.uuid4().hex[:8]}-changelog"
    admin = AdminClient(lab1.client_properties())
    new = NewTopic(name, PARTITIONS, 1, config=KEPT)
    admin.create_topics([new], operation_timeout=10)[name].result(20)
    fill(lab1, name, seed=4, records=RECORDS, keys=KEYS, partitions=PARTITIONS)
    return name


def test_state_is_that_of_a_dict_whole_and_in_ranges(
    spark: "SparkSession", lab1: Lab, changelog: str, tmp_path: Path
) -> None:
    for name, most in (("whole", 10**9), ("ranges", 1500)):
        wanted = plain(changelog, tmp_path / name, range_offsets=most)
        found = on_session(spark, lab1, wanted)
        expected, _ = dict_state(lab1, changelog, found.ends)
        assert found.state() == expected
        assert found.digest == digest(expected)
        assert found.manifest.engine == "spark"


def test_a_killed_worker_changes_nothing(
    spark: "SparkSession", lab1: Lab, changelog: str, tmp_path: Path
) -> None:
    """The task is tried again; only the attempt whose row came back is listed."""
    ended = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not ended.wait(0.3) and len(killed) < 2:
            progress = list((tmp_path / "out" / "runs").glob("progress-*/[0-9]*"))
            for pid in {int(path.name.split("-")[1]) for path in progress} - set(killed):
                if pid in python_workers(spark):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    wanted = plain(changelog, tmp_path / "out", max_rate=800_000.0)
    try:
        found = on_session(spark, lab1, wanted)
    finally:
        ended.set()
        thread.join()
    assert killed
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])
    listed = {f.path for p in found.manifest.partitions for f in p.files}
    there = {str(p.relative_to(found.folder)) for p in found.folder.glob("data/**/*.parquet")}
    assert there == listed


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def jobs_of(state: Path) -> list[dict[str, Any]]:
    ran = eoctl("jobs", "list", "-o", "json", env=environment(EOCTL_STATE_DIR=str(state)))
    assert ran.status == 0, ran.stderr
    return ran.rows


@pytest.fixture
def launched() -> Iterator[ExitStack]:
    """Of processes that are ended with the test, with the jobs that they launched."""
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, state: Path, *words: str, **env: str) -> "subprocess.Popen[str]":
    process = started(
        [*EOCTL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        # as cron has it
        env=environment(EOCTL_STATE_DIR=str(state), HOME=None, EOCTL_CACHE_DIR="/nonexistent")
        | env,
    )
    return stack.enter_context(process)


def reading(state: Path, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The one job, once a task of it has read something."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        rows = jobs_of(state)
        if rows and rows[0]["records"]:
            assert rows[0]["state"] == "running"
            return rows[0]
        time.sleep(0.5)
    raise AssertionError(f"nothing was read: {jobs_of(state)}")


def at_work(state: Path, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The one job, once Spark has Python workers for it."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        rows = jobs_of(state)
        if rows and len(session_members(rows[0]["pid"])) >= 4:  # itself, JVM, daemon, worker
            return rows[0]
        time.sleep(0.5)
    raise AssertionError(f"no worker came: {jobs_of(state)}")


def test_job_shows_no_secret_and_gives_the_local_digest(
    secure_lab: Lab, tmp_path: Path, launched: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on Spark's pages, in its event log, in logs, command lines, environments, records.

    What it leaves is for its owner alone, and nothing of it stays in the temporary folder.
    """
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    from confluent_kafka.admin import AdminClient, NewTopic

    properties = secure_lab.client_properties()
    secret = properties["sasl.password"]
    admin = AdminClient(properties)
    changelog = f"secret-{uuid.uuid4().hex[:8]}"
    new = NewTopic(changelog, 1, 1, config=KEPT)
    admin.create_topics([new], operation_timeout=10)[changelog].result(20)
    fill(secure_lab, changelog, seed=5, records=8000, keys=300, partitions=1)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    state, events, port = tmp_path / "state", tmp_path / "events", free_port()
    events.mkdir()
    connection = ("--command-config", str(file))
    words = (*connection, "state", "rebuild", changelog, "--format", "plain")
    process = start(
        launched,
        state,
        *(*words, "--at", "lso", "--output", str(tmp_path / "spark"), "-o", "json"),
        *("--engine", "spark", "--master", "local[2]", "--max-rate", "300k"),
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}"),
        *("--conf", f"spark.ui.port={port}"),
    )
    job = reading(state, process)
    members = session_members(job["pid"])
    assert len(members) >= 3  # the job, its JVM, Python workers
    seen = {}
    for pid in members:
        for name in ("cmdline", "environ"):
            try:
                seen[f"{pid}/{name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
    workers = [int(n.split("/")[0]) for n, c in seen.items() if b"pyspark.daemon" in c]
    assert workers
    for pid in workers:  # the pages are there while the job runs, so it must not end meanwhile
        os.kill(pid, signal.SIGSTOP)
    app = json.loads(_page(port, "api/v1/applications"))[0]["id"]
    api = f"api/v1/applications/{app}"
    for page in (
        *("jobs/", "environment/", "SQL/", "SQL/execution/?id=1", "jobs/job/?id=1"),
        *(f"{api}/environment", f"{api}/sql?details=true", "stages/stage/?id=1&attempt=0"),
    ):
        seen[page] = _page(port, page)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    stage = f"eoctl state rebuild: read ranges of {changelog}, stage 1 of 1"
    assert stage.encode() in seen["jobs/"]  # pages of this job indeed
    stdout, stderr = process.communicate(timeout=250)
    assert process.returncode == 0, stderr
    for folder in (state, events, tmp_path / "spark"):
        for path in folder.rglob("*"):
            if path.is_file():
                seen[str(path)] = path.read_bytes()
    assert any(str(events) in name for name in seen)
    assert any(name.endswith("/job.json") for name in seen)
    seen |= {"stdout": stdout.encode(), "stderr": stderr.encode()}
    assert [name for name, content in seen.items() if secret.encode() in content] == []
    reports = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert reports[-1]["records"] == reports[-1]["records_total"] > 8000
    local = eoctl(
        *(*words, "--at", str(tmp_path / "spark" / "cut.json"), "--engine", "local"),
        *("--output", str(tmp_path / "local"), "-o", "json"),
    )
    assert local.json["digest"] == json.loads(stdout)["digest"]
    (row,) = jobs_of(state)
    assert (row["state"], row["exit_status"], row["records"]) == (
        "succeeded",
        0,
        row["records_total"],
    )
    counters, (_, end) = row["result"]["counters"], ends(secure_lab, changelog)
    assert (counters["tasks"], counters["kept"], counters["offsets"]) == (1, 0, end)
    assert counters["bytes"] > 8000
    assert (row["application_id"], urlsplit(row["ui"]).port) == (app, port)
    assert session_members(job["pid"]) == []
    made = [*state.rglob("*"), *(tmp_path / "spark").rglob("*")]
    assert [p for p in made if p.stat().st_mode & 0o077] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def ends(lab: Lab, topic: str) -> tuple[int, int]:
    """The low and the high watermark of partition 0."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**lab.client_properties(), "group.id": "oracle"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        return low, high
    finally:
        consumer.close()


def _page(port: int, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


@pytest.mark.long
def test_explain_shows_no_secret(spark: "SparkSession", secure_lab: Lab) -> None:
    from eoctl.kafka.connection.access import Access

    name = f"secret-{uuid.uuid4().hex[:8]}"
    properties = secure_lab.client_properties()
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(properties)
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=10)[name].result(20)
    register(spark, Access(properties), name="secret-kafka")
    frame = spark.read.format("secret-kafka").option("topics", name).load()
    assert frame.count() == 0
    plan = frame._jdf.queryExecution().toString()
    assert "partition" in plan
    assert properties["sasl.password"] not in plan


@pytest.mark.long
def test_cancelled_job_leaves_no_java_and_no_result(
    lab1: Lab, changelog: str, tmp_path: Path, launched: ExitStack
) -> None:
    state, output = tmp_path / "state", tmp_path / "out"
    words = (
        *("--bootstrap-server", lab1.bootstrap_servers, "state", "rebuild", changelog),
        *("--format", "plain", "--at", "lso", "--output", str(output)),
    )
    process = start(
        launched, state, *words, "--engine", "spark", "--master", "local[2]", "--max-rate", "40k"
    )
    job = reading(state, process)
    assert len(session_members(job["pid"])) >= 3
    env = environment(EOCTL_STATE_DIR=str(state))
    ran = eoctl("jobs", "cancel", job["id"][:-2], "-o", "json", env=env)
    assert ran.status == 0, ran.stderr
    assert [row["state"] for row in ran.rows] == ["cancelled"]
    assert session_members(job["pid"]) == []
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "the job was cancelled" in stderr
    assert not (output / "manifest.json").exists()
    again = eoctl("jobs", "cancel", job["id"], env=env)
    assert (again.status, "it has ended: cancelled" in again.stderr) == (4, True)
    # a second run goes on from there
    ran = eoctl(*words, "--engine", "local", "-o", "json", env=env)
    assert ran.status == 0, ran.stderr
    found = Rebuilt(output)
    assert found.digest == digest(dict_state(lab1, changelog, found.ends)[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "number"),
    [("rebuild", signal.SIGTERM), ("rebuild", signal.SIGINT), ("audit", signal.SIGTERM)],
)
def test_an_interrupted_launcher_cancels_its_job_and_leaves_nothing(
    lab1: Lab,
    changelog: str,
    tmp_path: Path,
    launched: ExitStack,
    command: str,
    number: signal.Signals,
) -> None:
    """Also when it is told twice, as by somebody who does not wait: the way out is begun once."""
    state, output, temporary = tmp_path / "state", tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    rebuild = ("state", "rebuild", changelog, "--format", "plain", "--at", "lso")
    words = {
        "rebuild": (*rebuild, "--output", str(output)),
        "audit": ("audit", "duplicates", changelog, "--by", "key"),
    }[command]
    process = start(
        launched,
        state,
        *("--bootstrap-server", lab1.bootstrap_servers, *words),
        *("--engine", "spark", "--master", "local[2]", "--max-rate", "40k"),
        TMPDIR=str(temporary),
    )
    job = at_work(state, process) if command == "audit" else reading(state, process)
    assert list(temporary.iterdir())  # of Spark's, and of the audit's own
    process.send_signal(number)
    if number == signal.SIGTERM:
        time.sleep(0.3)
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    said = [line for line in stderr.splitlines() if not line.startswith("{")]
    assert said == ["eoctl: interrupted"]
    assert [row["state"] for row in jobs_of(state)] == ["cancelled"]
    assert session_members(job["pid"]) == []
    assert list(temporary.iterdir()) == []
    assert not (output / "manifest.json").exists()


@pytest.mark.long
def test_killed_job_is_lost_and_its_java_ends(
    lab1: Lab, changelog: str, tmp_path: Path, launched: ExitStack
) -> None:
    state, output = tmp_path / "state", tmp_path / "out"
    words = (
        *("--bootstrap-server", lab1.bootstrap_servers, "state", "rebuild", changelog),
        *("--format", "plain", "--at", "lso", "--output", str(output)),
    )
    on = ("--engine", "spark", "--max-rate", "40k")
    # nobody is left to remove the code that it sent
    process = start(launched, state, *words, *on, TMPDIR=str(tmp_path))
    job = reading(state, process)
    process.kill()  # nobody is left to say how the job ended
    process.communicate(timeout=60)
    os.kill(job["pid"], signal.SIGKILL)
    until = time.monotonic() + 60
    while session_members(job["pid"]) and time.monotonic() < until:
        time.sleep(0.2)
    assert session_members(job["pid"]) == []
    assert [row["state"] for row in jobs_of(state)] == ["lost"]
    assert not (output / "manifest.json").exists()


def test_auto_takes_spark_where_it_is_named_and_does_without_it_where_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the command hands to the choice of an engine, seen where it is made."""
    from eoctl.cli.main import run
    from eoctl.operations.state import rebuild_answer

    asked: list[tuple[str, bool]] = []

    def seen(
        context: Context, wanted: RebuildRequest, timeout: Any, progress: Any, spark: Any
    ) -> None:
        asked.append((wanted.engine, spark is not None))
        raise UsageError("seen")

    monkeypatch.setattr(rebuild_answer, "rebuild_state", seen)
    words = ["--bootstrap-server", "127.0.0.1:1", "state", "rebuild", "c", "--format", "plain"]
    words += ["--at", "lso", "--output", str(tmp_path / "out")]
    absent = {"JAVA_HOME": str(tmp_path)}
    for more, env, expected in (
        ([], {}, ("auto", True)),
        (["--master", "local[2]"], {}, ("spark", True)),
        (["--remote", "sc://h:1"], absent, ("spark", True)),  # no Java is needed for it
        ([], absent, ("auto", False)),
        (["--master", "local[2]"], absent, None),  # says what is missing
        (["--engine", "spark"], absent, None),
    ):
        asked.clear()
        with monkeypatch.context() as patched:
            for key, value in env.items():
                patched.setenv(key, value)
            assert run([*words, *more]) == 2
        assert asked == ([] if expected is None else [expected]), more
    asked.clear()
    assert run([*words, "--engine", "local", "--master", "local[2]"]) == 2
    assert asked == []  # two engines are asked for: nothing is chosen


@pytest.mark.long
def test_what_is_missing_is_one_sentence(lab1: Lab, changelog: str, tmp_path: Path) -> None:
    words = (
        *("state", "rebuild", changelog, "--format", "plain", "--at", "lso"),
        *("--output", str(tmp_path / "out"), "--engine", "spark"),
    )
    env = environment(JAVA_HOME=str(tmp_path))
    for more, sentence, with_env in (
        ((), "not a program", env),
        (("--conf", "spark.x.password=hunter2"), "Spark shows its confs", environment()),
        (("--remote", "http://x"), "write sc://HOST:PORT", environment()),
        (("--master", "local", "--remote", "sc://x"), "not both", environment()),
        (("--env-file", str(tmp_path / "absent")), "cannot be read", environment()),
    ):
        ran = eoctl(*words, *more, lab=lab1, env=with_env)
        assert (ran.status, ran.stdout) == (2, "")
        assert sentence in ran.stderr
        assert "Traceback" not in ran.stderr
        assert "hunter2" not in ran.stderr
