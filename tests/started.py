"""Processes that tests start and look at while they run."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

GRACE_SECONDS = 30.0


@contextmanager
def started(words: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """`subprocess.Popen` whose process and pipes end with the block, also when its test fails.

    What a failed first try leaves open is otherwise warned of later, which fails another test.
    A process group of its own is killed; else SIGTERM comes first: eoctl ends its Spark job then.
    """
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            if not options.get("start_new_session"):
                process.terminate()
                process.send_signal(signal.SIGCONT)  # where a test has stopped it
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_SECONDS)
                process.kill()
            elif process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def left_of(session: int) -> list[str]:
    """The processes of a session that are still there, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(stat.parent.name)
    return found


def connected(pid: int, port: int) -> bool:
    """Whether a process has a TCP connection to this port of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{words[9]}]" for words in lines if words[2].endswith(f":{port:04X}")}
    with suppress(OSError):
        return any(str(fd.readlink()) in sockets for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False
