"""README and docs from top to bottom, as a person would type them: in a shell, on a terminal.

Each page is a newcomer's: an empty home, and no lab but the one that the page starts.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.conftest import RUN_FOLDER
from tests.docs.pages import HERE, PAGES, ROOT, commands, differs
from tests.share import only_here

PROMPT = "eoctl-readme> "


@pytest.fixture
def shell() -> Iterator["pexpect.spawn[str]"]:
    """A shell of someone who has just installed eoctl: an empty home, a terminal of 80 columns."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=os.environ[RUN_FOLDER]))
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
    plain = ["--norc", "--noprofile", "--noediting"]  # readline would echo what is typed
    shell = pexpect.spawn(
        bash, plain, env=env, cwd=home, encoding="utf-8", dimensions=(50, 80), echo=False
    )
    shell.expect_exact(PROMPT)
    try:
        yield shell
    finally:
        shell.close(force=True)
        down = [sys.executable, "-m", "eoctl", "lab", "down", "--name"]
        for lab in (home / ".local/state/eoctl/lab").glob("*"):
            subprocess.run([*down, lab.name], env=env, check=False)


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


RUN = {
    page.relative_to(ROOT).as_posix(): page
    for page in PAGES
    if any(shown.runs for shown in commands(page))
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", only_here(RUN, *HERE))
def test_a_page_is_true(name: str, shell: "pexpect.spawn[str]") -> None:
    for shown in (c for c in commands(RUN[name]) if c.runs):
        answer = re.search(r"Type \S+: (\S+)", shown.output)
        printed, status = _typed(shell, shown.text, answer and answer.group(1))
        assert status == shown.status, f"{shown}\n{printed}"
        if shown.output:
            assert not (why := differs(shown.output, printed)), f"{shown}\n{why}"
