"""The README from top to bottom, as a person would type it: in a shell, on a terminal."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.conftest import RUN_FOLDER
from tests.docs.pages import README, commands, differs

PROMPT = "eoctl-readme> "
KILLED = 128 + 9  # `lab job --die-after` ends itself by SIGKILL


@pytest.fixture
def shell() -> Iterator["pexpect.spawn[str]"]:
    """A shell of someone who has just installed eoctl: an empty home, a terminal of 80 columns."""
    home = Path(os.environ[RUN_FOLDER], "readme")
    home.mkdir()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EOCTL_", "XDG_", "COV"))}
    env = {
        **kept,
        "HOME": str(home),
        "EOCTL_CACHE_DIR": os.environ.get("EOCTL_CACHE_DIR") or str(cache / "eoctl"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PS1": PROMPT,
        "TERM": "dumb",
        "NO_COLOR": "1",
    }
    bash = shutil.which("bash") or "/bin/bash"
    shell = pexpect.spawn(
        bash, ["--norc", "--noprofile"], env=env, cwd=home, encoding="utf-8", dimensions=(50, 80)
    )
    shell.setecho(False)
    shell.expect_exact(PROMPT)
    try:
        yield shell
    finally:
        shell.close(force=True)
        subprocess.run([sys.executable, "-m", "eoctl", "lab", "down"], env=env, check=False)


def _typed(shell: "pexpect.spawn[str]", line: str, answer: str | None) -> tuple[str, int]:
    """What a command line prints, and its exit status. answer: what is typed where it asks."""
    shell.sendline(line)
    asked = shell.expect([re.escape(PROMPT), r"Type \S+: $"], timeout=120)
    printed = str(shell.before)
    if asked:
        assert answer is not None, printed
        printed += f"Type {answer}: {answer}\n"
        shell.sendline(answer)
        shell.expect_exact(PROMPT, timeout=120)
        printed += str(shell.before)
    shell.sendline("echo $?")
    shell.expect_exact(PROMPT)
    return printed, int(str(shell.before).strip())


@pytest.mark.timeout(600)
def test_the_readme_is_true(shell: "pexpect.spawn[str]") -> None:
    for shown in (c for c in commands(README) if c.runs):
        answer = re.search(r"Type \S+: (\S+)", shown.output)
        printed, status = _typed(shell, shown.text, answer and answer.group(1))
        allowed = (KILLED,) if "--die-after" in shown.text else (0, 1)
        assert status in allowed, f"{shown}\n{printed}"
        if shown.output:
            assert not (why := differs(shown.output, printed)), f"{shown}\n{why}"
