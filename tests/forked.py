"""Processes of eoctl, forked from one that has loaded it: a fifth of the time of fresh ones.

They are as real: an environment, a folder, files for stdout and stderr, and an end of their own.
"""

import multiprocessing
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

# as eoctl does: what is loaded below starts no threads, which do not survive a fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.forked",
        "tests.kafka.restart_app",
        "tests.unit.cell_change",
        "eoctl.cli.main",
        "eoctl.cli.progress",
        "eoctl.cli.commands.journal",
        "eoctl.cli.commands.restart",
        "eoctl.cli.commands.state",
        "confluent_kafka.admin",
        "crc32c",
        "pyarrow.parquet",
        # what these load when they are first used
        "importlib.metadata",
        "importlib.resources",
        "pydantic.plugin._loader",
        "pydantic.type_adapter",
        "typer._adapters",
        "typer._click.decorators",
    ]
)

AT_START = ("PYTHON", "LANG", "LC_", "TZ")
"""How variables begin that a process reads at its start."""


@dataclass(frozen=True)
class Forked:
    """A process that runs or ran; its output stands in two files."""

    process: BaseProcess
    out: Path
    err: Path

    def end(self, seconds: float) -> tuple[int, str, str]:
        """Wait for its end: its status as subprocess has it, stdout, stderr."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"not done within {seconds} s: {self.err.read_text()}")
        return self.process.exitcode, self.out.read_text(), self.err.read_text()


def fork(
    words: Sequence[str],
    environ: Mapping[str, str],
    files: Path,
    *,
    cwd: Path | None = None,
    call: Callable[[], None] | None = None,
) -> Forked:
    """Start `eoctl WORDS`, or `call` with these words. files: a folder for its output."""
    number = uuid.uuid4().hex
    out, err = files / f"{number}.out", files / f"{number}.err"
    arguments = (words, dict(environ), cwd or Path.cwd(), out, err, call)
    process = FORKS.Process(target=_child, args=arguments)
    process.start()
    return Forked(process, out, err)


def _child(
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    out: Path,
    err: Path,
    call: Callable[[], None] | None,
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
    sys.argv = ["eoctl", *words]
    from eoctl.__main__ import main

    (call or main)()
