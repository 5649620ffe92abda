"""A cluster of cells in a folder, and eoctl run against it as processes of their own."""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked import Forked, fork
from tests.kafka.command import eoctl
from tests.unit import cell_change

SET = ("set", "a=5", "b=7")
ACT = ("--execute", "--yes")


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Started:
    forked: Forked

    @property
    def pid(self) -> int:
        pid = self.forked.process.pid
        assert pid is not None
        return pid

    def end(self) -> Ran:
        ran = Ran(*self.forked.end(60))
        assert "Traceback" not in ran.stderr, ran.stderr
        return ran


@dataclass
class Cells:
    """One cluster of cells, its own state folder, and eoctl run against both."""

    folder: Path

    def __post_init__(self) -> None:
        self.file.write_text('{"a": 1, "b": 2}')
        self.config.write_text(
            "[contexts.cells]\nbootstrap_servers = 'here:1'\n"
            "[contexts.looked-at]\nbootstrap_servers = 'here:1'\nread_only = true\n"
            "[contexts.dear]\nbootstrap_servers = 'here:1'\nprotected = true\n"
        )

    @property
    def file(self) -> Path:
        return self.folder / "cells.json"

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    @property
    def writes(self) -> list[str]:
        log = self.file.with_suffix(".log")
        return log.read_text().split() if log.exists() else []

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EOCTL_", "HOME", "XDG"))}
        return {
            **kept,
            "CELLS": str(self.file),
            "EOCTL_STATE_DIR": str(self.folder / "state"),
            "EOCTL_CONFIG": str(self.config),
            "EOCTL_CONTEXT": "cells",
            **more,
        }

    def start(self, *words: str, **more: str) -> "Started":
        environ = self.environment(**more)
        call = cell_change.main
        return Started(fork(words, environ, self.folder, cwd=self.folder, call=call))

    def run(self, *words: str, **more: str) -> "Ran":
        return self.start(*words, **more).end()

    def kill_at(self, point: str, *words: str) -> None:
        done = self.run(*words, EOCTL_TEST_KILL_AT=point)
        assert done.returncode == -signal.SIGKILL, done.stderr

    def entries(self, *words: str) -> list[dict[str, Any]]:
        here = {k: v for k, v in os.environ.items() if not k.startswith("EOCTL_")}
        own = {k: v for k, v in self.environment().items() if k.startswith("EOCTL_")}
        return eoctl("journal", "list", "-o", "json", *words, env=here | own).rows
