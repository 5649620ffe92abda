"""The local engine runs a rebuild's tasks in processes of this machine, without Spark.

Workers end with their parent, however it ends, and leave interrupts to it.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from eoctl.engine.rebuild_task import Task, TaskProgress, run_or_find, sharing_rate
from eoctl.stores.state.folder import TaskRow
from recovery.errors import EoctlError, IncompleteError

TOLD_SECONDS = 0.25
WATCH_SECONDS = 1.0


class LocalEngine:
    """Call with tasks; yields their rows as they finish. Use as `with LocalEngine(2) as engine`.

    A failed task ends the others. progress is called with further bytes and offsets. bound: when
    all tasks end at the latest (monotonic clock).
    """

    def __init__(
        self, processes: int, progress: TaskProgress | None = None, bound: float | None = None
    ) -> None:
        self._most = processes
        self._progress = progress
        self._bound = bound
        self._workers: dict[Any, Any] = {}

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._workers.items():
            connection.close()
            process.kill()
        for process in self._workers.values():
            process.join()
        self._workers.clear()

    def __call__(self, tasks: Sequence[Task]) -> Iterator[TaskRow]:
        todo = sharing_rate(tasks, max(1, min(len(tasks), self._most)))[::-1]
        self.start(len(todo))
        idle = list(self._workers)
        busy: set[Any] = set()
        while todo or busy:
            while todo and idle:
                connection = idle.pop()
                busy.add(connection)
                try:
                    connection.send(todo.pop())
                except OSError:
                    raise IncompleteError(self._died(connection)) from None
            ready = wait(list(busy), self._seconds_left())
            if not ready:
                raise IncompleteError(
                    "not done within the time given", remedy="give more with --timeout, or none"
                )
            for connection in busy.intersection(ready):
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    raise IncompleteError(self._died(connection)) from None
                if isinstance(answer, tuple):
                    if self._progress is not None:
                        self._progress(*answer)
                    continue
                busy.remove(connection)
                idle.append(connection)
                if isinstance(answer, BaseException):
                    raise answer
                yield answer

    def start(self, workers: int) -> None:
        """Start this many workers, or as many as allowed; may be called before tasks exist."""
        spawn = multiprocessing.get_context("spawn")  # threads of this process don't survive a fork
        while len(self._workers) < min(workers, self._most):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._workers[ours] = process

    def _seconds_left(self) -> float | None:
        return None if self._bound is None else max(0.0, self._bound - time.monotonic())

    def _died(self, connection: Any) -> str:
        process = self._workers[connection]
        process.join()
        code = process.exitcode
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        return f"a worker process ended ({how}); the same command again goes on from there"


def _work(connection: Connection, parent: int) -> None:
    """Run a worker: receive a task, send its row, repeat."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import crc32c  # noqa: F401 - loaded ahead of the first task, as is what follows
    import pyarrow.parquet  # noqa: F401

    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: TaskRow | BaseException = run_or_find(task, _telling(connection))[0]
        except EoctlError as error:
            answer = type(error)(error.what, where=error.where, remedy=error.remedy)
        except (OSError, MemoryError) as error:
            answer = IncompleteError(
                str(error) or "out of memory", where=f"{task.topic}-{task.partition}"
            )
        except Exception as error:  # the report needs the place; not every exception can be pickled
            answer = RuntimeError("".join(traceback.format_exception(error)))
        with suppress(OSError):  # the parent has ended
            connection.send(answer)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _telling(connection: Connection) -> Callable[[int, int], None]:
    """Return a function that sends progress a few times a second."""
    held = [0, 0]
    due = time.monotonic() + TOLD_SECONDS

    def tell(size: int, offsets: int) -> None:
        nonlocal due
        held[0] += size
        held[1] += offsets
        if time.monotonic() >= due:
            connection.send((held[0], held[1]))
            held[:] = [0, 0]
            due = time.monotonic() + TOLD_SECONDS

    return tell
