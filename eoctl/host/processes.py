"""Start processes that outlive eoctl, recognise them later, end exactly those.

A pid alone identifies no process: after a reboot or a wrap-around it belongs to somebody else. A
process is known by its pid and the moment it started, and every signal checks that first.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from recovery.errors import IncompleteError
from recovery.plurals import listed


class Process(NamedTuple):
    """One process for good: `started` is an opaque text that differs for every reuse of `pid`."""

    pid: int
    started: str

    @property
    def state(self) -> str:
        """Return `running`, `frozen` (stopped by a signal) or `ended`."""
        _reap(self.pid)
        look = _look(self.pid)
        if look is None or look[0] != self.started or look[1] in "ZX":
            return "ended"
        return "frozen" if look[1] in "Tt" else "running"

    @property
    def alive(self) -> bool:
        return self.state != "ended"

    def send(self, number: signal.Signals) -> bool:
        """Signal this process; False if it has ended (or its pid belongs to another)."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def spawn(
    argv: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None
) -> Process:
    """Start argv in its own session (Ctrl-C at this terminal does not reach it).

    stdin is empty; stdout and stderr are appended to `log`.
    """
    # Not subprocess.Popen: its object complains when it is dropped before its process ends.
    pid = os.posix_spawn(
        argv[0],
        [str(word) for word in argv],
        dict(os.environ if environ is None else environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
    )
    return identify(pid)


def identify(pid: int) -> Process:
    """Return the process that has this pid now."""
    look = _look(pid)
    return Process(pid, look[0] if look else "ended before it was seen")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the started process is recorded."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def wait_ended(processes: Sequence[Process], seconds: float) -> list[Process]:
    """Wait until all have ended, at most `seconds`; those that have not."""
    end = time.monotonic() + seconds
    while left := [process for process in processes if process.alive]:
        if time.monotonic() >= end:
            break
        time.sleep(0.02)
    return left


def end(processes: Sequence[Process], grace: float) -> None:
    """SIGTERM, `grace` seconds, then SIGKILL. Frozen ones are woken. Raises IncompleteError."""
    for process in processes:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)
    left = wait_ended(processes, grace)
    for process in left:
        process.send(signal.SIGKILL)
    if left := wait_ended(left, 10):
        pids = listed([process.pid for process in left], "process", "processes")
        raise IncompleteError(f"{pids} did not end, even by SIGKILL")


def _reap(pid: int) -> None:
    """Reap a dead child: it stays a zombie until its parent, which may be us, waits for it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _look(pid: int) -> tuple[str, str] | None:
    """Return (start moment, letter of state) of the process that has this pid now."""
    try:
        # man proc_pid_stat: the name in parentheses may hold anything; 3 state, 22 starttime
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {fields[19]}", fields[0]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    line = subprocess.run(
        ["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    started, _, state = line.rpartition(" ")
    return (started.strip(), state[:1]) if line else None
