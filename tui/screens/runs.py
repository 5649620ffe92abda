"""Commands started from a form: each a process of its own, its output kept as it arrives.

Only the last lines are kept; stopping a run sends SIGINT, as ctrl-c at the prompt would.
"""

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from eoctl.host.program import itself

MOST_LINES = 2_000


class Run:
    """One command. argv: as shown, beginning with `eoctl`. Starts at once."""

    def __init__(self, title: str, argv: Sequence[str], extra: Sequence[str] = ()) -> None:
        self.title = title
        self.argv = tuple(argv)
        self.began = time.time()
        self.lines: deque[str] = deque(maxlen=MOST_LINES)
        self.out: list[str] = []  # stdout alone, for a command that answers in JSON
        self.renewed = 0  # counts arrivals, so that a screen knows when to draw again
        self._ended: int | None = None
        environ = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"}
        self._process = subprocess.Popen(
            [*itself(), *self.argv[1:], *extra],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environ | {"NO_COLOR": "1"},
            start_new_session=True,  # a ctrl-c at the dashboard is not meant for the run
        )
        self._json = "json" in extra
        self._readers = [
            threading.Thread(target=read, name="run", daemon=True)
            for read in (self._read_out, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._wait, name="run", daemon=True).start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if self._json:
                    self.out.append(line)
                else:
                    self._add(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._add(line)

    def _add(self, line: str) -> None:
        self.lines.append(line.rstrip("\n"))
        self.renewed += 1

    def _wait(self) -> None:
        status = self._process.wait()
        for reader in self._readers:
            reader.join()
        self._ended = status
        self.renewed += 1

    @property
    def exit_status(self) -> int | None:
        """Return None while the run lasts; below 0 the signal that ended it."""
        return self._ended

    @property
    def state(self) -> str:
        """Return the run's state in words."""
        if self._ended is None:
            return "running"
        return "done" if self._ended == 0 else f"exit {self._ended}"

    def stop(self) -> None:
        """Ask the run to end."""
        if self._ended is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
