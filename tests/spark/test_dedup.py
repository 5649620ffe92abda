"""`dedup --engine spark` on real Kafka and Spark: the local engine's clean copy, once."""

import asyncio
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.lab.cluster import Lab
from eoctl.operations.dedup.copying import find
from eoctl.operations.jobs.job_records import session_members
from recovery.dedup.dedup_request import DedupInput, DedupJob, DedupRequest
from recovery.shared.record_ids import parse_record_id
from spark_jobs.dedup import Tasks
from spark_jobs.sink.taking_over import TakingOver
from tests.kafka.command import EOCTL, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.dedup_world import Copier, check_clean, consumed, firsts, produce, source, topics
from tests.share import only_here
from tests.spark.sinking import kill_members, values
from tests.started import started

pytestmark = pytest.mark.timeout(900)

SPARK = ("--engine", "spark", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
ACT = ("--execute", "--yes")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own: the jobs in it are this test's."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def dirty_and_clean(lab1: Lab, topic: MakeTopic) -> tuple[str, str, Copier]:
    dirty, clean = topics(lab1, topic)
    copier = Copier(lab1, dirty, seed=11)
    copier.run(600)
    return dirty, clean, copier


def dedup(lab: Lab, *words: str, kill_at: str | None = None) -> Ran:
    env = environment(EOCTL_TEST_KILL_AT=kill_at)
    return eoctl("dedup", *words, lab=lab, env=env, timeout=400)


def jobs(state: Path) -> list[dict[str, object]]:
    """The records of the jobs, in the order of their beginning."""
    return [json.loads(path.read_text()) for path in sorted(state.glob("jobs/*/job.json"))]


@pytest.mark.long
def test_begun_here_killed_and_ended_on_spark(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path
) -> None:
    """The first partition is copied, the second one begun; no memory of either is left."""
    dirty, clean, _ = dirty_and_clean
    killed = dedup(lab1, dirty, clean, *ACT, kill_at="step-2-started")
    assert killed.status == -signal.SIGKILL
    assert consumed(lab1, clean, 0)
    shutil.rmtree(state / "dedup")
    ended = dedup(lab1, dirty, clean, *ACT, *SPARK)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert check_clean(lab1, dirty, clean, source) > 50
    [job] = jobs(state)
    assert list(job["result"]["copied"]) == ["1"]  # type: ignore[index]


def tasks_of(lab: Lab, dirty: str, clean: str) -> tuple[Tasks, DedupInput]:
    """What a job that copies all of it gives to its tasks."""
    request = DedupRequest(dirty, clean, parse_record_id("source"), f"{dirty}-{clean}")
    access = Access(lab.client_properties())

    async def ask() -> DedupInput:
        async with Cluster(access.settings(), Deadline(30)) as cluster:
            found = await find(cluster, request)
            assert found is not None
            return DedupInput(
                request=request.plain, topics=dict(found.topics), parts=found.parts, copies=True
            )

    dedup_input = asyncio.run(ask())
    return Tasks(access, DedupJob.of(request, dedup_input.topics), dedup_input), dedup_input


@pytest.mark.parametrize("order", only_here(["fenced first", "position first"], "fenced first"))
def test_a_zombie_sends_nothing_because_it_is_fenced_before_positions_are_read(
    lab1: Lab,
    dirty_and_clean: tuple[str, str, Copier],
    monkeypatch: pytest.MonkeyPatch,
    order: str,
) -> None:
    """Between its two steps another attempt copies all. The wrong order shows that it would."""
    dirty, clean, _ = dirty_and_clean
    tasks, request = tasks_of(lab1, dirty, clean)
    right, part = TakingOver.take_over, request.parts[0]
    other: dict[str, int] = {}

    def interrupted(self: TakingOver) -> int | None:
        monkeypatch.setattr(TakingOver, "take_over", right)
        position = right(self) if order == "fenced first" else self.position()
        other.update(tasks.copy(part))
        if order == "position first":
            self.fence()
        return position

    monkeypatch.setattr(TakingOver, "take_over", interrupted)
    mine = tasks.copy(part)
    assert other["copied"] > 0
    if order == "fenced first":
        assert mine["copied"] == 0
        tasks.copy(request.parts[1])
        check_clean(lab1, dirty, clean, source)
    else:
        there = consumed(lab1, clean, part.partition)
        assert len(there) == 2 * other["copied"]


@pytest.mark.long
def test_planned_copied_and_followed(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path, tmp_path: Path
) -> None:
    """The plan is the local engine's, and so is the copy; memory is in the shared folder."""
    dirty, clean, copier = dirty_and_clean
    local = dedup(lab1, dirty, clean, "--engine", "local", "-o", "json").rows[0]
    planned = dedup(lab1, dirty, clean, "-o", "json", *SPARK)
    assert planned.status == 0, planned.stderr
    same = ("sha256", "summary", "details", "observed")
    assert [planned.rows[0][name] for name in same] == [local[name] for name in same]
    assert [step["does"] for step in planned.rows[0]["steps"]] == [
        step["does"] for step in local["steps"]
    ]
    assert not consumed(lab1, clean, 0)

    shared = ("--staging", str(tmp_path / "shared"))
    done = dedup(lab1, dirty, clean, *ACT, *SPARK, *shared)
    assert done.status == 0, done.stdout + done.stderr
    repeats = check_clean(lab1, dirty, clean, source)
    assert local["details"]["tally"]["duplicates"] == repeats > 50
    copied = jobs(state)[-1]["result"]["copied"]  # type: ignore[index]
    assert sum(c["duplicates"] for c in copied.values()) == repeats
    assert len(list((tmp_path / "shared").glob("*/*.json"))) == 2
    assert not (state / "dedup").exists()
    copier.run(200)
    followed = dedup(lab1, dirty, clean, "--follow", *ACT, *SPARK)
    assert followed.status == 0, followed.stdout + followed.stderr
    assert check_clean(lab1, dirty, clean, source) > repeats
    again = dedup(lab1, dirty, clean, "--follow", *ACT, "--engine", "local")
    assert (again.status, "nothing new" in again.stderr) == (0, True)


@pytest.mark.long
def test_by_an_id(lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path) -> None:
    dirty, clean, _ = dirty_and_clean
    done = dedup(lab1, dirty, clean, "--by", "json:order.id", *ACT, *SPARK)
    assert done.status == 0, done.stdout + done.stderr
    assert check_clean(lab1, dirty, clean, lambda r: r.value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(0, "1", "a"), (0, "3", "b"), (0, "2", "c")], "comes for the first time after"),
        ([(0, "70001", "a"), (1, "70001", "a")], "source 0 offset 70001 is in partitions 0 and 1"),
    ],
    ids=["order", "scattered"],
)
def test_refused_before_anything_is_copied(
    lab1: Lab, topic: MakeTopic, state: Path, rows: list[tuple[int, str, str]], why: str
) -> None:
    dirty, clean = topics(lab1, topic)
    produce(lab1, dirty, rows)
    refused = dedup(lab1, dirty, clean, *ACT, *SPARK)
    assert (refused.status, why in refused.stderr) == (4, True), refused.stderr
    assert [consumed(lab1, clean, p) for p in range(2)] == [[], []]


SLOW = """
import time
from eoctl.kafka.write.exactly_once import Writer
from eoctl.engine import dedup_task
real_commit = Writer.commit
def commit(self, positions):
    self.commits = getattr(self, "commits", 0) + 1
    if self.commits == 2:
        self._producer.flush(60)
        time.sleep(30)
    real_commit(self, positions)
dedup_task.TRANSACTION_RECORDS = 20
Writer.commit = commit
"""
"""A sitecustomize for the job's processes: a transaction of 20 is committed in each partition, and
a second one stands open with its records long enough to be killed in."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """--env-file of a job that copies so."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "sitecustomize.py").write_text(SLOW)
    (folder / "env").write_text(f"PYTHONPATH={folder}\n")
    return f"--env-file={folder / 'env'}"


def killed_while_it_copies(
    lab: Lab, dirty: str, clean: str, slow: str, state: Path, which: bytes
) -> subprocess.CompletedProcess[str]:
    """SIGKILL to those of the copying job's processes whose command line holds `which`, while both
    partitions have a second transaction open; how the command ended."""
    server = ["--bootstrap-server", lab.bootstrap_servers]
    words = [*EOCTL, *server, "dedup", dirty, clean, *ACT, *SPARK, slow]
    with started(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        while values(lab, clean, "read_uncommitted").total() < 80:
            assert running.poll() is None, running.communicate()
        leader = int(str(jobs(state)[-1]["pid"]))
        kill_members(leader, which)
        out, err = running.communicate(timeout=400)
    until = time.monotonic() + 30
    while session_members(leader) and time.monotonic() < until:
        time.sleep(0.1)
    assert not session_members(leader)
    return subprocess.CompletedProcess(words, running.returncode, out, err)


@pytest.mark.long
def test_begun_on_spark_killed_and_ended_here(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path, slow: str
) -> None:
    """SIGKILL to the job and its JVM. Both steps are journaled as begun; nobody knows more."""
    dirty, clean, _ = dirty_and_clean
    killed = killed_while_it_copies(lab1, dirty, clean, slow, state, b"")
    assert killed.returncode == 6, killed.stdout + killed.stderr
    assert "Traceback" not in killed.stderr
    assert "is copied up to offset" in killed.stdout
    there = [consumed(lab1, clean, p) for p in range(2)]
    assert all(
        20 <= len(t) < len(firsts(consumed(lab1, dirty, p), source)) for p, t in enumerate(there)
    )
    ended = dedup(lab1, dirty, clean, *ACT, "--engine", "local")
    assert ended.status == 0, ended.stdout + ended.stderr
    check_clean(lab1, dirty, clean, source)


@pytest.mark.long
def test_python_workers_killed_while_they_copy(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path, slow: str
) -> None:
    """Spark tries the tasks again: they go on after what was committed."""
    dirty, clean, _ = dirty_and_clean
    ended = killed_while_it_copies(lab1, dirty, clean, slow, state, b"pyspark.daemon")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    check_clean(lab1, dirty, clean, source)


@pytest.mark.long
def test_interrupted_it_cancels_its_job_and_the_local_engine_goes_on(
    lab1: Lab, dirty_and_clean: tuple[str, str, Copier], state: Path, slow: str
) -> None:
    dirty, clean, _ = dirty_and_clean
    server = ["--bootstrap-server", lab1.bootstrap_servers]
    with started(
        [*EOCTL, *server, "dedup", dirty, clean, *ACT, *SPARK, slow],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        while values(lab1, clean, "read_uncommitted").total() < 80:
            assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 6, said  # what became of it is looked at next
    assert "stopped before the end" in said
    job = jobs(state)[-1]
    assert job["cancelled"] is True
    assert not session_members(int(str(job["pid"])))
    ended = dedup(lab1, dirty, clean, *ACT, "--engine", "local")
    assert ended.status == 0, ended.stdout + ended.stderr
    check_clean(lab1, dirty, clean, source)
