"""Running eoctl as people do, by its words: its exit status, stdout and stderr."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eoctl import __main__ as eoctl_main
from eoctl.cli.main import run
from eoctl.lab.cluster import Lab
from recovery.errors import Exit
from tests.docs.contract import check_status
from tests.forked import AT_START, fork
from tests.started import started

EOCTL = (sys.executable, "-m", "eoctl")
FAST = ("--sample-interval", "0.3s")
"""For commands that judge: 0.3 s between the two looks instead of 5 s."""


@dataclass(frozen=True)
class Ran:
    """What one run of eoctl gave. seconds: of the whole process."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    @cached_property
    def json(self) -> dict[str, Any]:
        """The envelope of `-o json`."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def text(self) -> str:
        """stdout, then stderr, on one line: sentences for people are wrapped."""
        return " ".join(f"{self.stdout} {self.stderr}".split())

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json["rows"]
        return rows


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment without what would name another cluster; None removes."""
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("EOCTL_") or key in ("EOCTL_STATE_DIR", "EOCTL_CACHE_DIR")
    }
    for key, value in changes.items():
        environ.pop(key, None)
        if value is not None:
            environ[key] = value
    return environ


def said(stderr: str) -> list[str]:
    """eoctl's own sentences, without the one on what other tests left unfinished in the journal."""
    own = [line for line in stderr.splitlines() if line.startswith("eoctl: ")]
    return [line for line in own if ", unfinished since " not in line]


def eoctl(
    *words: str,
    lab: Lab | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    process: bool = False,
) -> Ran:
    """Run `eoctl WORDS`, against a plaintext lab when one is given.

    In this process, which saves the start of another; in a forked one where this one cannot stand
    for it (`_needs_process`); started anew where `process` says so, and where a fork cannot stand
    for that (`_needs_start`). timeout: of a process of its own. It must end as docs/interface.md
    says that this command may.
    """
    ran = _ran(words, lab, env, timeout, process)
    check_status(words, ran.status)
    return ran


def _ran(
    words: Sequence[str],
    lab: Lab | None,
    env: Mapping[str, str] | None,
    timeout: float,
    process: bool,
) -> Ran:
    server = ["--bootstrap-server", lab.bootstrap_servers] if lab else []
    asked, environ = [*server, *words], dict(environment() if env is None else env)
    begin = time.monotonic()
    if not process and not _needs_process(words, environ):
        return _here(asked, environ)
    if not process and not _needs_start(words, environ):
        with tempfile.TemporaryDirectory(prefix="eoctl-forked-") as files:
            ran = fork(asked, environ, Path(files)).end(timeout)
        return Ran(*ran, time.monotonic() - begin)
    done = subprocess.run(
        [*EOCTL, *asked],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environ,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def _changed(environ: Mapping[str, str]) -> set[str]:
    return {key for key in {*environ, *os.environ} if environ.get(key) != os.environ.get(key)}


def _needs_start(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Spark and completion replace the process, a lab outlives it, and some variables are read
    before anything of eoctl runs."""
    return (
        any(key.startswith(AT_START) for key in _changed(environ))
        or "spark" in words
        or words[:1] in (("completion",), ("lab",), ("tui",))
    )


def _needs_process(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Kills, Spark and completion end or replace the process; threads and event loops of the test
    cannot share it; and only eoctl's own variables are read after its start."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return (
        threading.current_thread() is not threading.main_thread()
        or "EOCTL_TEST_KILL_AT" in environ
        or not all(key.startswith("EOCTL_") for key in _changed(environ))
        or _needs_start(words, environ)
    )


def _here(words: Sequence[str], environ: Mapping[str, str]) -> Ran:
    """Run it in this process: its environment, words and streams are put back afterwards."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    begin, before, argv = time.monotonic(), dict(os.environ), sys.argv
    with redirect_stdout(out), redirect_stderr(err), Path(os.devnull).open() as stdin:
        stood = sys.stdin
        sys.stdin, sys.argv = stdin, [str(Path(eoctl_main.__file__)), *words]
        try:
            _become(environ)
            status = run(list(words))
        finally:
            sys.stdin, sys.argv = stood, argv
            _become(before)
    if status == Exit.INTERRUPTED:  # no test's doing: the whole run was asked to end
        raise KeyboardInterrupt
    return Ran(status, _written(out), _written(err), time.monotonic() - begin)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def _become(environ: Mapping[str, str]) -> None:
    for key in set(os.environ) - set(environ):
        del os.environ[key]
    os.environ.update(environ)


def eoctl_running(
    lab: Lab, *words: str, env: Mapping[str, str] | None = None
) -> AbstractContextManager["subprocess.Popen[str]"]:
    """`eoctl WORDS` against a plaintext lab, while it runs."""
    return started(
        [*EOCTL, "--bootstrap-server", lab.bootstrap_servers, *words],
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def unfinished(kind: str) -> set[str]:
    """The journal's entries of a kind (`txn`, `restart`, ...) that are not ended.

    The journal is shared: tests of another kind leave some behind on purpose.
    """
    rows = eoctl("journal", "list", "-o", "json").rows
    return {
        row["id"]
        for row in rows
        if row["state"] in ("unfinished", "running") and row["kind"].startswith(kind)
    }
