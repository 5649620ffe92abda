"""`merge replay`, killed: a process that runs the command again and again, each time in a child.

Reads a line of JSON for each run: {"words": [...], "kill_at": N or null}; writes its exit status
(-9: killed). The child kills itself at the N-th of the moments that matter, which small
transactions make many: before and after each call of the writer, and after each batch.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from eoctl.cli.main import run
from eoctl.operations.merge import planning as merge
from eoctl.operations.merge import replay as merge_replay
from eoctl.operations.merge import replay_change as merge_acting

assert merge_acting.KIND  # loaded once, for all children


QUIET_SECONDS = 3.0  # after which one that follows and was not killed is ended


def child(words: list[str], kill_at: int | None) -> int:
    moments, last = 0, time.monotonic()

    def moment() -> None:
        nonlocal moments, last
        moments, last = moments + 1, time.monotonic()
        if moments == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def end_once_quiet() -> None:
        while not moments or time.monotonic() - last < QUIET_SECONDS:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            moment()
            try:
                return function(*given, **named)
            finally:
                moment()

        return call

    merge.PAUSE_SECONDS = 0.05
    merge_replay.RECORDS, merge_replay.BATCH, merge_replay.NEW = 25, 7, 9
    merge_replay.TIMEOUT_MS = 10_000  # the next run waits for it
    for name in ("open", "begin", "copy", "commit"):
        setattr(merge_replay._Copier, name, watched(getattr(merge_replay._Copier, name)))
    if "--follow" in words:
        threading.Thread(target=end_once_quiet, daemon=True).start()
    return run(words)


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                status = child(asked["words"], asked["kill_at"])
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
