"""Running eoctl as people do: a process of its own, its exit status, stdout and stderr."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eoctl.lab.cluster import Lab
from tests.started import started

EOCTL = (sys.executable, "-m", "eoctl")


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
    *words: str, lab: Lab | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> Ran:
    """Run `eoctl WORDS`, against a plaintext lab when one is given."""
    server = ["--bootstrap-server", lab.bootstrap_servers] if lab else []
    begin = time.monotonic()
    done = subprocess.run(
        [*EOCTL, *server, *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        env=dict(environment() if env is None else env),
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def eoctl_running(lab: Lab, *words: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """`eoctl WORDS` against a plaintext lab, while it runs."""
    return started(
        [*EOCTL, "--bootstrap-server", lab.bootstrap_servers, *words],
        env=environment(),
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
