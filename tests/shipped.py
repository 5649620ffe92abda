"""What is shipped, run where nothing else of eoctl is: it ends as the installed eoctl does."""

import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pexpect

from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.host.program import itself
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, environment
from tests.kafka.test_base_install import required
from tests.kafka.test_exporter import Exporter
from tests.started import started

LONG = (("exporter",), ("tui",))
"""Commands that run until they are stopped."""
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lso",),
    ("why", *FAST),
    ("txn", "hanging", "--plan", *FAST),
    ("check", *FAST),
    ("bundle", "create", "FOLDER/incident.eoctl", *FAST),
    ("report", "FOLDER/incident.eoctl", "--output", "FOLDER/report.html"),
    ("state", "rebuild", "no-topic", "--output", "FOLDER/state"),
    ("journal", "list"),
)


class Program:
    """Words that start eoctl, its environment, a folder that it may write to, and where it runs.

    The folder is one of the program's, which may run in a chroot.
    """

    def __init__(
        self, words: Sequence[str], env: dict[str, str], folder: str, cwd: Path | None = None
    ) -> None:
        self.words = [*words]
        self.env = env
        self.folder = folder
        self.cwd = cwd

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.words, *words],
            env=self.env | environ,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


def installed(folder: Path) -> Program:
    """The eoctl of this environment."""
    env = environment(EOCTL_CONFIG=str(folder / "config.toml"))
    return Program(itself(), env, str(folder), folder)


def base_commands(branch: Branch = TREE, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command that needs no extra, with what its parser requires; not those of LONG."""
    found: list[tuple[str, ...]] = []
    for name, node in branch.commands.items():
        here = (*path, name)
        if not isinstance(node, Leaf):
            found += base_commands(node, here)
        elif node.extra is None and here not in LONG and here[0] != "lab":
            words = required(here)
            found.append((*here, *(w if w.startswith("--") else "x" for w in words)))
    return found


def end_alike(
    shipped: Program, ours: Program, lab: Lab, commands: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], int]:
    """Both run the commands and end alike; the statuses."""
    server = ("--bootstrap-server", lab.bootstrap_servers)
    ended = {}
    for words in commands:
        done, expected = (
            p.run(*server, *(word.replace("FOLDER", p.folder) for word in words))
            for p in (shipped, ours)
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == expected.returncode, (words, done.stderr, expected.stderr)
        ended[words] = done.returncode
    return ended


def dashboard(program: Program, lab: Lab) -> int:
    """Open the dashboard in a terminal, wait for the orphan, and leave by its key."""
    words = [*program.words, "--bootstrap-server", lab.bootstrap_servers, "tui"]
    env = program.env | {"TERM": "xterm-256color"}
    shown = pexpect.spawn(words[0], words[1:], env=env, dimensions=(40, 120), timeout=60)
    try:
        shown.expect(b"orphan")
        shown.send(b"q")
        shown.expect(pexpect.EOF)
    finally:
        shown.close()
    assert shown.exitstatus is not None
    return int(shown.exitstatus)


def exporter(program: Program, lab: Lab) -> int:
    """Serve metrics until the first look has ended, and stop by SIGTERM."""
    words = [*program.words, "--bootstrap-server", lab.bootstrap_servers, "exporter"]
    words += ["--listen", "127.0.0.1:0"]
    with started(words, env=program.env, stderr=subprocess.PIPE, text=True) as process:
        served = Exporter(process)
        end = time.monotonic() + 60
        while served.scrape().all("eoctl_up") != [1.0]:
            assert time.monotonic() < end
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        return int(process.wait(30))


def seconds(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def slower(shipped: Program, ours: Program, lab: Lab, times: int = 11) -> float:
    """How much longer `lso` takes: the ratio of the medians, run in turns."""
    words = ("--bootstrap-server", lab.bootstrap_servers, "lso")
    taken: list[list[float]] = [[], []]
    for _ in range(times):
        for program, found in zip((shipped, ours), taken, strict=True):
            found.append(seconds(lambda program=program: program.run(*words)))  # type: ignore[misc]
    mine, theirs = map(statistics.median, taken)
    return mine / theirs
