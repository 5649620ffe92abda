"""Records of jobs, and ending all that belongs to one: with real processes, without Spark."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from eoctl.host.processes import identify
from eoctl.kafka.connection.access import Access
from eoctl.operations.jobs import job_records as jobs
from eoctl.operations.jobs.spark_launch import launch, read_options
from eoctl.stores.job_folders import Job, JobFolder, Jobs
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.values import replace
from tests.started import started


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("HOME")  # as from cron
    return tmp_path


def record(pid: int, folder: JobFolder | None = None) -> tuple[JobFolder, Job]:
    folder = folder or Jobs().new()
    process = identify(pid)
    job = Job(
        id=folder.path.name,
        job="rebuild",
        engine="spark",
        summary="a test",
        argv=("eoctl", "state", "rebuild"),
        user="me",
        host=socket.gethostname(),
        pid=pid,
        process=process.started,
        started=1,
    )
    folder.write(job)
    return folder, job


def test_states_are_told_by_the_end_or_the_process() -> None:
    folder, job = record(os.getpid())
    assert jobs.row(folder).state == "running"
    folder.write(replace(job, process="another start"))  # the pid was used again
    assert jobs.row(folder).state == "lost"
    folder.write(replace(job, host="elsewhere", process="x"))
    assert jobs.row(folder).state == "running"  # nobody here can say otherwise
    for status, error, cancelled, expected, mark in (
        (0, None, False, "succeeded", None),
        (3, None, False, "succeeded", "?"),  # done, and not provably complete
        (5, "no broker answers", False, "failed", "!"),
        (130, "cancelled", True, "cancelled", None),
    ):
        folder, _ = record(os.getpid())
        folder.end(status, error=error, cancelled=cancelled)
        assert (jobs.row(folder).state, jobs.row(folder).mark) == (expected, mark)
        folder.end(0)  # the first end stands
        assert jobs.row(folder).exit_status == status


def test_progress_survives_a_torn_line() -> None:
    folder, _ = record(os.getpid())
    for n in range(3):
        folder.report({"stage": "read", "records": n, "records_total": 10, "eta_seconds": 1.5})
    with folder.progress.open("a") as file:
        file.write('{"at": 1, "reco')
    row = jobs.row(folder)
    assert (row.stage, row.records, row.records_total, row.eta_seconds) == ("read", 2, 10, 1.5)
    assert len(folder.reports()) == 3


def test_ids_by_their_start() -> None:
    first, _ = record(os.getpid())
    record(os.getpid())
    assert Jobs().get(first.path.name).path == first.path
    with pytest.raises(UsageError, match="2 jobs begin with"):
        Jobs().get("2")
    with pytest.raises(UsageError, match="no job 'x'"):
        Jobs().get("x")


def test_the_empty_id_names_no_job() -> None:
    """`jobs cancel "$ID"` with ID unset must not end the only job there is."""
    record(os.getpid())
    with pytest.raises(UsageError, match="the id is empty"):
        Jobs().get("")


STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_cancel_ends_the_whole_session() -> None:
    """Also a child in a process group of its own that ignores SIGTERM, as Python workers may."""
    folder = Jobs().new()
    with started(
        [sys.executable, "-c", STUBBORN],
        stdout=subprocess.PIPE,
        env={**os.environ, jobs.JOB_VARIABLE: folder.path.name},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        child = identify(int(process.stdout.readline()))
        try:
            record(process.pid, folder)
            assert sorted(jobs.session_members(process.pid)) == sorted([process.pid, child.pid])
            row = jobs.cancel(folder.path.name)
            assert row.state == "cancelled"
            assert jobs.session_members(process.pid) == []
            with pytest.raises(RefusedError, match="it has ended: cancelled"):
                jobs.cancel(folder.path.name)
            process.wait(10)
        finally:
            child.send(signal.SIGKILL)


def test_cancel_refuses_another_hosts_job_and_never_signals_a_reused_pid() -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        folder, job = record(process.pid)
        folder.write(replace(job, host="elsewhere"))
        with pytest.raises(RefusedError, match="launched on elsewhere"):
            jobs.cancel(job.id)
        folder.write(replace(job, process="an earlier process"))
        jobs.cancel(job.id)
        time.sleep(0.2)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


@pytest.mark.parametrize(
    ("boot", "mark", "ended"), [("this", "own", True), ("this", None, False), ("old", "own", False)]
)
def test_cancel_of_a_lost_job_ends_only_what_belongs_to_it(
    boot: str, mark: str | None, ended: bool
) -> None:
    """A session whose leader is gone and whose number the job's had: ours only by boot and mark."""
    folder = Jobs().new()
    env = dict(os.environ) if mark is None else {**os.environ, "EOCTL_JOB": folder.path.name}
    with started(
        ["sh", "-c", "sleep 600 >&- & echo $!; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        child = identify(int(leader.stdout.readline()))
        try:
            _, job = record(leader.pid, folder)
            if boot == "old":
                folder.write(replace(job, process=f"{uuid.uuid4()} {job.process.split()[-1]}"))
            leader.communicate(b"\n", 10)
            assert jobs.session_members(leader.pid) == [child.pid]
            jobs.cancel(job.id)
            assert child.alive is not ended
        finally:
            child.send(signal.SIGKILL)


def test_a_process_that_is_ending_is_left_until_it_has_ended() -> None:
    """Its environment is gone while the kernel still frees its memory."""
    big = "x = b'x' * (1 << 30); print('up', flush=True); import time; time.sleep(600)"
    with started(
        [sys.executable, "-c", big],
        stdout=subprocess.PIPE,
        env={**os.environ, "EOCTL_JOB": "j"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        leader = identify(process.pid)
        process.kill()
        while jobs.left_of(leader, "j"):
            pass
        assert jobs.session_members(process.pid) == []
        process.wait(10)


def test_options(tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.write_text("# secrets\n\nAWS_SECRET=a=b\n")
    spark = read_options("local[3]", None, ["spark.x=1=2"], env)
    assert (spark.where, spark.conf, spark.env) == (
        "local[3,4]",
        {"spark.x": "1=2"},
        {"AWS_SECRET": "a=b"},
    )
    assert "a=b" not in repr(spark)
    assert read_options("local[3,1]", None, [], None).where == "local[3,1]"
    assert read_options(None, "sc://h:1/;token=t", [], None).where == "sc://h:1"
    env.write_text("not a pair\n")
    with pytest.raises(UsageError, match="line 1: not NAME=VALUE"):
        read_options(None, None, [], env)
    with pytest.raises(UsageError, match=r"write spark\.KEY=VALUE"):
        read_options(None, None, ["x"], None)


def test_the_token_of_a_remote_reaches_the_job_and_no_record(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}/;token=hunter2"

        def answer() -> None:
            """Whoever calls has been told where: it is cancelled then."""
            server.settimeout(120)
            with server.accept()[0] as called:
                said.append(called.recv(1))
                jobs.cancel(jobs.list_jobs()[0].id)

        monkeypatch.setattr(sys, "argv", ["eoctl", "state", "rebuild", "--remote", remote])
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(IncompleteError, match="the job was cancelled"):
            launch(
                "rebuild",
                {},
                Access({"bootstrap.servers": "127.0.0.1:1"}),
                read_options(None, remote, [], None),
                summary="a test",
                show=lambda report: None,
            )
        thread.join()
    assert said  # the job called the address
    files = {str(path): path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert any(name.endswith("/spec.json") for name in files)
    assert [name for name, content in files.items() if b"hunter2" in content] == []
    (row,) = jobs.list_jobs()
    assert (row.argv[-1], row.master) == (remote.partition("/;")[0],) * 2


def test_record_is_whole_or_absent(state: Path) -> None:
    folder, _ = record(os.getpid())
    json.loads((folder.path / "job.json").read_text())
    (folder.path / "job.json").write_text("{")
    assert jobs.list_jobs() == []  # a record that cannot be read hides no other
    record(os.getpid())
    assert len(jobs.list_jobs()) == 1
