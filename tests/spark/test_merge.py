"""`merge replay --engine spark` on real Kafka and Spark: the stream of the local engine, once."""

import json
import os
import random
import signal
import subprocess
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from eoctl.host.processes import identify
from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.job_records import session_members
from tests.kafka.command import eoctl, eoctl_running
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import World, write_copies
from tests.share import share
from tests.spark.sinking import kill_members, values, watched

pytestmark = pytest.mark.timeout(1200)

SPARK = ("--engine", "spark", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=3")
KEPT = {"retention.ms": "-1"}
WHOLE = ("--from-merge-offset=0:0", "--output-offset=0:0")  # also where another output came before


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own: the jobs in it are this test's."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def job(state: Path) -> dict[str, object]:
    """The newest job's record."""
    found: dict[str, object] = json.loads(max(state.glob("jobs/*/job.json")).read_text())
    return found


def words(world: World, *more: str) -> list[str]:
    return ["merge", "replay", *world.words, "--execute", "--yes", *more]


def ended_session(pid: int) -> bool:
    until = time.monotonic() + 30
    while session_members(pid) and time.monotonic() < until:
        time.sleep(0.1)
    return not session_members(pid)


@pytest.mark.parametrize("form", ["json", pytest.param("coast", marks=pytest.mark.long)])
def test_the_same_stream_as_the_local_engine_s(
    lab1: Lab, topic: MakeTopic, state: Path, form: str
) -> None:
    """A dead application left a commit and 13 outputs more in partition 0, nothing in 1."""
    world = World(lab1, topic, form, partitions=2)
    world.write_logs()
    at = world.log_offsets[50]
    commit = [f"--from-merge-offset=0:{at}", "--output-offset=0:50"]
    commit += ["--from-merge-offset=1:0", "--output-offset=1:0"]
    outputs = []
    for engine in (("--engine", "local"), SPARK):
        world.output = topic(lab1, 2, 1, KEPT)
        write_copies(lab1, (world.output, 0), world.expected[0][:63])
        ran = eoctl(*words(world, *commit, *engine), lab=lab1, timeout=300)
        assert ran.status == 0, ran.stderr
        outputs.append(world.got)
    assert outputs[0] == outputs[1] == world.expected
    assert job(state)["result"] == {"sent": {"0": 57, "1": 120}, "takeovers": 0}
    assert not list((state / "merge-staging").rglob("*.parquet"))
    # the local engine finds nothing left to do: both commit the same
    again = eoctl(*words(world, "--engine", "local"), lab=lab1)
    assert again.status == 0, again.stderr
    assert world.got == world.expected


@pytest.mark.long
def test_a_log_without_entries_after_the_base(lab1: Lab, topic: MakeTopic, state: Path) -> None:
    """There is nothing to join, so nothing to stage: the position is committed all the same."""
    world = World(lab1, topic, count=5)
    ran = eoctl(*words(world, *WHOLE, *SPARK), lab=lab1, timeout=300)
    assert ran.status == 0, ran.stderr
    assert job(state)["result"] == {"sent": {"0": 0}, "takeovers": 0}
    assert world.got == {0: []}
    world.write_logs()
    ran = eoctl(*words(world, "--engine", "local"), lab=lab1)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected


@pytest.mark.long
@pytest.mark.parametrize("how", ["hole", "absent"])
def test_a_log_that_is_not_true_is_refused_before_anything_is_sent(
    lab1: Lab, topic: MakeTopic, state: Path, how: str
) -> None:
    """In the local engine's words, which names the entry and the record."""
    world = World(lab1, topic, count=20)
    order = world.orders[0]
    entry = order[12]
    if how == "hole":
        world.orders[0] = order[:12] + order[13:]
    else:
        gone = next(o for o in range(entry[2] + 1, 99) if (*entry[:2], o) not in world.records)
        after = next(n for n, e in enumerate(order) if e[0] == entry[0] and e[2] > gone)
        world.orders[0] = [*order[:after], (*entry[:2], gone), *order[after:]]
    world.write_logs()
    ran = eoctl(*words(world, *SPARK), lab=lab1, timeout=300)
    assert ran.status == 4, ran.stderr
    assert world.got == {0: []}
    local = eoctl(*words(world, "--engine", "local"), lab=lab1, timeout=300)
    assert local.status == (6 if world.got[0] else 4), local.stderr
    line = local.stderr.splitlines()[-1].removeprefix("eoctl: ")
    said = line.rpartition("was not seen to be done: ")[2].partition(" (")[0]
    sentence = said.partition(";")[0]  # which then tells how many records came before it
    assert f"names {entry[0]}:0 at" in sentence
    assert sentence in ran.stderr
    assert job(state)["exit_status"] == 4


def test_follow_and_what_auto_takes(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic, count=5)
    world.write_logs()
    ran = eoctl("merge", "replay", *world.words, "--follow", "--engine", "spark", lab=lab1)
    assert ran.status == 2, ran.stderr
    assert "cannot follow" in ran.stderr
    ran = eoctl("merge", "replay", *world.words, lab=lab1)
    assert ran.status == 0, ran.stderr
    assert "local: " in ran.stderr
    assert "replayed faster here than by a Spark job" in ran.stderr


SLOW = """
import time
from eoctl.kafka.write.exactly_once import Writer
from recovery.values import replace
from spark_jobs.sink.commit import Attempt
real_init, real_commit = Attempt.__init__, Writer.commit
def init(self, work):
    real_init(self, replace(work, rows_per_transaction=100))
def commit(self, positions):
    self.commits = getattr(self, "commits", 0) + 1
    if self.commits == 3:
        self._producer.flush(60)
        time.sleep(20)
    real_commit(self, positions)
Attempt.__init__, Writer.commit = init, commit
"""
"""A sitecustomize for the job's processes: two transactions of 100 are committed, and a third one
stands open with its records long enough to be killed in."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """--env-file of a job that sends so."""
    return env_file(tmp_path_factory.mktemp("slow"), SLOW)


def env_file(folder: Path, sitecustomize: str) -> str:
    """The option for a job whose processes import this first."""
    (folder / "sitecustomize.py").write_text(sitecustomize)
    (folder / "env").write_text(f"PYTHONPATH={folder}\n")
    return f"--env-file={folder / 'env'}"


@pytest.fixture(scope="module")
def large(lab1: Lab) -> World:
    """600 entries of one partition."""
    from tests.kafka.conftest import topic

    made = World(lab1, topic.__wrapped__(), count=300)  # type: ignore[attr-defined]
    made.write_logs()
    return made


def replaying(world: World, *more: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return eoctl_running(world.lab, *words(world, *WHOLE, *SPARK, *more))


def kill_while_it_sends(
    world: World, running: "subprocess.Popen[str]", state: Path, which: bytes = b""
) -> int:
    """SIGKILL to those of the job's processes whose command line holds `which`, while its third
    transaction is open; the pid of the job's own process."""
    while values(world.lab, world.output, "read_uncommitted").total() < 250:
        assert running.poll() is None, running.communicate()[1][-3000:]
    leader = int(str(job(state)["pid"]))
    kill_members(leader, which)
    return leader


@pytest.mark.long
def test_driver_killed_while_it_sends_and_run_again(
    large: World, topic: MakeTopic, state: Path, slow: str
) -> None:
    """SIGKILL to the job and its JVM; what stays open is waited for, then the rest is sent."""
    world = large
    world.output = topic(world.lab, 1, 1, KEPT)
    with replaying(world, slow) as running:
        leader = kill_while_it_sends(world, running, state)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 6, said
    assert "Traceback" not in said
    assert ended_session(leader)
    assert world.got[0] == world.expected[0][:200]
    ran = eoctl(*words(world, *WHOLE, *SPARK), lab=world.lab, timeout=400)
    assert ran.status == 0, ran.stderr
    assert "an earlier replay left a transaction open" in ran.stderr
    assert world.got == world.expected
    assert job(state)["result"] == {"sent": {"0": 400}, "takeovers": 0}
    assert not list((state / "merge-staging").rglob("*.parquet"))


@pytest.mark.long
def test_workers_killed_while_they_send(
    large: World, topic: MakeTopic, state: Path, slow: str
) -> None:
    """Spark tries the task again: it goes on after what was committed."""
    world = large
    world.output = topic(world.lab, 1, 1, KEPT)
    with replaying(world, slow) as running:
        kill_while_it_sends(world, running, state, b"pyspark.daemon")
        _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    assert world.got == world.expected


PACED = """
import time
from eoctl.kafka.write.exactly_once import Writer
from recovery.values import replace
from spark_jobs.sink.commit import Attempt
real_init, real_commit = Attempt.__init__, Writer.commit
def init(self, work):
    real_init(self, replace(work, rows_per_transaction=20))
def commit(self, positions):
    self._producer.flush(60)
    time.sleep(0.3)
    real_commit(self, positions)
Attempt.__init__, Writer.commit = init, commit
"""
"""Transactions of 20 that stand open for 0.3 s, one after another: most kills meet one."""


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> str:
    """--env-file of a job that sends so."""
    return env_file(tmp_path_factory.mktemp("paced"), PACED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(share(10, 2)))
def test_workers_killed_at_any_moment(
    lab1: Lab, topic: MakeTopic, state: Path, paced: str, seed: int
) -> None:
    """Once while the log is read, joined or staged, twice while it is sent."""
    world = World(lab1, topic, partitions=2, count=100)
    world.write_logs()
    draw, sending = random.Random(seed), 0
    whole_of_1 = ("--from-merge-offset=1:0", "--output-offset=1:0")
    with (
        replaying(world, paced, *whole_of_1) as running,
        watched(lab1, world.output) as end,  # 400 records, and a marker for 20 or fewer
    ):
        for written in (0, draw.randrange(1, 200), draw.randrange(200, 380)):
            while running.poll() is None and end() < written:
                time.sleep(0.05)
            found: list[int] = []
            while running.poll() is None and not (found := python_workers_of(state)):
                time.sleep(0.05)
            if not written:
                time.sleep(draw.uniform(0, 4))
                found = python_workers_of(state)
            if running.poll() is None and found:
                sending += bool(end())
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(found), signal.SIGKILL)
        _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said  # a task is tried four times
    assert ended_session(int(str(job(state)["pid"])))
    assert sending == 2
    assert world.got == world.expected
    assert not list((state / "merge-staging").rglob("*.parquet"))


def python_workers_of(state: Path) -> list[int]:
    """Pids of the workers of the newest job: children of its JVM's daemon."""
    parents = {}
    for pid in (
        session_members(int(str(job(state)["pid"]))) if list(state.glob("jobs/*/job.json")) else ()
    ):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                stat = Path(f"/proc/{pid}/stat").read_text()
                parents[pid] = int(stat.rpartition(")")[2].split()[1])
    return [pid for pid, parent in parents.items() if parent in parents]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["reading", "sending"])
def test_interrupted_replay_cancels_its_job_and_the_local_engine_goes_on(
    large: World, topic: MakeTopic, state: Path, slow: str, number: int, moment: str
) -> None:
    """No process of the job is left; what it committed stays, what it left open does not."""
    world = large
    world.output = topic(world.lab, 1, 1, KEPT)
    with replaying(world, *([slow] if moment == "sending" else [])) as running:
        while (
            not list(state.glob("jobs/*/progress.jsonl"))
            if moment == "reading"
            else values(world.lab, world.output, "read_uncommitted").total() < 250
        ):
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        members = session_members(int(str(job(state)["pid"])))
        assert any(b"java" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in members)
        processes = [identify(pid) for pid in members]
        running.send_signal(number)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 6, said  # it had begun: what became of it is looked at next
    assert "stopped before the end" in said
    record = job(state)
    assert record["cancelled"] is True
    assert ended_session(int(str(record["pid"])))
    # one that has ended may wait for whoever took it over to look at it
    assert not [process for process in processes if process.alive]
    if moment == "sending":
        assert world.got[0] == world.expected[0][:200]
    ran = eoctl(*words(world, *WHOLE, "--engine", "local"), lab=world.lab, timeout=400)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
