"""List, show and cancel recovery jobs launched from here.

A job is a process in its own session. Each process of that session (the JVM, Python workers in
their own process groups) that has the job's id in its environment ends with it: cancelling asks the
job to stop, then finds the remaining processes, ends them, and checks again.
"""

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from eoctl.host.processes import Process, identify, wait_ended
from eoctl.stores.job_folders import Job, JobFolder, Jobs
from recovery.change.job_rows import JobRow, JobState
from recovery.errors import Exit, RefusedError, UnverifiedError, UsageError
from recovery.plurals import listed

GRACE_SECONDS = 20.0
LEFTOVER_SECONDS = 5.0
REPORTED = (
    *("stage", "stages_done", "stages_total", "records", "records_total", "bytes"),
    *("records_per_second", "application_id", "ui"),
)
JOB_VARIABLE = "EOCTL_JOB"  # in the environment of everything that a job starts: its id


def list_jobs() -> list[JobRow]:
    """List the jobs known here, oldest first. A folder without a readable record is left out."""
    rows = []
    for folder in Jobs().all():
        with suppress(UsageError):
            rows.append(row(folder))
    return rows


def show(job_id: str) -> tuple[JobRow, list[str]]:
    """Return one job, and the last lines of its log. Raises UsageError."""
    folder = Jobs().get(job_id)
    return row(folder), folder.log_tail(20)


def cancel(job_id: str, grace: float = GRACE_SECONDS) -> JobRow:
    """Stop a job and all processes of its session; return its row, read afterwards.

    Raises UsageError for an unknown job, RefusedError for one that has ended or runs on another
    host, UnverifiedError if one of its processes is still alive.
    """
    folder = Jobs().get(job_id)
    job = folder.read()
    if job.host != socket.gethostname():
        raise RefusedError(
            f"it was launched on {job.host}", where=job.id, remedy="cancel it from that host"
        )
    process = Process(job.pid, job.process)
    if state(job) not in ("running", "lost"):
        raise RefusedError(f"it has ended: {state(job)}", where=job.id)
    process.send(signal.SIGTERM)
    process.send(signal.SIGCONT)
    wait_ended([process], grace)
    end_session(process, job.id)
    if left := left_of(process, job.id):
        pids = listed(left, "process", "processes")
        raise UnverifiedError(f"{pids} did not end", where=job.id)
    folder.end(Exit.INTERRUPTED, error="cancelled", cancelled=True)
    return row(folder)


def end_session(leader: Process, job_id: str) -> None:
    """Send SIGTERM, then SIGKILL, to the remaining processes of the session that a job led."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left_of(leader, job_id):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + LEFTOVER_SECONDS
        while left_of(leader, job_id) and time.monotonic() < end:
            time.sleep(0.05)


def left_of(leader: Process, job_id: str) -> list[int]:
    """Return the living processes of the session that `leader` led for a job.

    A pid is not reused while a process of its session lives: if another process has the leader's
    pid now, none is left, and a session with that number is somebody else's. This also holds after
    a reboot, and if its processes do not name the job.
    """
    now = identify(leader.pid)
    if now.started != leader.started and now.alive:
        return []
    if _boot(leader) != _boot(identify(os.getpid())):
        return []
    return [pid for pid in session_members(leader.pid) if _names(pid, job_id)]


def _boot(process: Process) -> str:
    """Return which start of this machine a process belongs to."""
    return process.started.partition(" ")[0]


def _names(pid: int, job_id: str) -> bool:
    """Return True if a process has the job in its environment, or is ending without one."""
    words: list[bytes] = []
    with suppress(OSError):  # ended, ending, or not ours
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    if f"{JOB_VARIABLE}={job_id}".encode() in words:
        return True
    with suppress(OSError, IndexError):
        # 23 vsize: none once the kernel takes its memory back, after which signals do nothing
        return int(_stat(pid)[20]) == 0
    return False


def _stat(pid: int) -> list[str]:
    """Return fields 3 and later of man proc_pid_stat; the name before them may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def session_members(session: int) -> list[int]:
    """Return the living processes of a session, by its number."""
    own = os.getpid()
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        with suppress(OSError, IndexError):
            fields = _stat(pid)  # 3 state, 6 session
            if int(fields[3]) == session and fields[0] not in "ZX" and pid != own:
                pids.append(pid)
    return pids


def state(job: Job) -> JobState:
    """Return running, succeeded, failed, cancelled, or lost: no end recorded, and no process."""
    if job.ended is not None:
        if job.cancelled:
            return "cancelled"
        # a finding (1), an unproven result (3): the job did its work
        done = (Exit.OK, Exit.FINDING, Exit.INCOMPLETE)
        return "succeeded" if job.exit_status in done and job.error is None else "failed"
    if job.host != socket.gethostname() or Process(job.pid, job.process).alive:
        return "running"
    return "lost"


def row(folder: JobFolder) -> JobRow:
    """Return a job as it is now. Raises UsageError for an unreadable record."""
    job = folder.read()
    now_state = state(job)
    if now_state == "lost":  # it may have ended between the two checks
        job = folder.read()
        now_state = state(job)
    last = folder.last_report() or {}
    return JobRow.of(
        job,
        state=now_state,
        argv=list(job.argv),
        log=str(folder.log),
        **{name: last.get(name) for name in REPORTED},
        eta_seconds=last.get("eta_seconds") if now_state == "running" else None,
        reported=last.get("at"),
        result=dict(job.result),
    )
