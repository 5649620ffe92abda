"""Completion for zsh and fish: what they are offered; in the shells themselves where they are."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from eoctl.cli.commands import completion
from eoctl.cli.main import run


def answer(shell: str, line: str) -> list[str]:
    argv = [sys.executable, "-m", "eoctl", "completion", shell, "--line", line]
    env = os.environ | {"EOCTL_COMPLETION_SECONDS": "20"}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=True).stdout.split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_and_the_answer_it_gets(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"completion {shell} " in script
    assert "/dev/null 2>/dev/null" in script, "silent, and never at the terminal"
    assert answer(shell, "eoctl txn h") == ["words", "hanging", "history"]
    assert answer(shell, "eoctl lso --command-config /e") == ["files"]


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["a b", "$(touch x)", "a;b", "it's", "*", "~", "=ls", "", "a\n"])
def test_an_id_that_needs_quotes_is_not_offered_to_zsh_and_fish(word: str) -> None:
    assert completion._plain(word) is None
    assert completion._plain("orders.eu-1:0,2") == "orders.eu-1:0,2"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with this `eoctl`."""
    program = tmp_path / "eoctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m eoctl "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("fish") is None, reason="NOT RUN: there is no fish")
def test_in_fish(path: str) -> None:
    program = "eoctl completion fish | source; complete -C 'eoctl txn h'"
    env = os.environ | {"PATH": path, "EOCTL_COMPLETION_SECONDS": "20"}
    argv = ["fish", "--no-config", "-c", program]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hanging", "history"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="NOT RUN: there is no zsh")
def test_in_zsh(path: str) -> None:
    env = os.environ | {"PATH": path, "EOCTL_COMPLETION_SECONDS": "20", "TERM": "dumb"}
    child = pexpect.spawn("zsh", ["-f", "-i"], env=env, timeout=30, encoding="utf-8")
    load = 'autoload -Uz compinit; compinit -u -D; eval "$(eoctl completion zsh)"'
    child.sendline(f"{load}; echo DO''NE")
    child.expect("DONE\r")
    child.send("eoctl txn hang\t")
    child.expect("txn hanging ")
    child.close(force=True)
