"""A page's own commands, run in their order with other names in place of the page's."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect

from eoctl.lab.cluster import Lab
from tests.docs.pages import Shown, differs
from tests.kafka.command import EOCTL, Ran, environment, eoctl

SECONDS = 180
Talk = Sequence[tuple[str, str | Callable[[str], str]]]
"""What a terminal shows, as a pattern, and what is typed then: given what was matched."""
SHELL = re.compile(r"\||&&")


def line_of(shown: Shown, names: Mapping[str, str]) -> str:
    """A command line without its comment, and what is optional given, in other names."""
    olds = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)"
    page_name = re.compile(rf"(?<![\w-])(?:{olds})(?![\w:-])")
    text = page_name.sub(lambda m: names[m[0]], re.sub(r"\s+# .*", "", shown.text))
    return re.sub(r"\[(--[^]]*)\]", r"\1", text)


def words_of(shown: Shown, names: Mapping[str, str]) -> tuple[list[str], str | None]:
    """The words of eoctl's command with other names; the file that its output goes to."""
    words = shlex.split(line_of(shown, names).removeprefix("eoctl "))
    return (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)


class Reading:
    """A page followed from top to bottom: each of its commands is run, in the page's order.

    names: what stands in place of the page's names. lab: the cluster, where the page's commands
    name none. env: variables of the commands; eoctl's own alone can be given where nothing else
    needs a process of its own.
    """

    def __init__(
        self, left: Sequence[Shown], names: Mapping[str, str], lab: Lab | None = None
    ) -> None:
        self.left, self.names, self.lab = list(left), dict(names), lab
        self.heading = self.left[0].heading if self.left else ""
        self.env: dict[str, str] = {}

    def next(self, begins: str, names: Mapping[str, str] | None = None, *more: str) -> Ran:
        """Run the page's next command, which begins so. names: other ones for this command."""
        [shown] = self.taken(1, begins)
        names = {**self.names, **(names or {})}
        line, env = line_of(shown, names), environment(**self.env)
        if SHELL.search(line) or not line.startswith("eoctl "):
            return self.shell(line)
        words, file = words_of(shown, names)
        ran = eoctl(*words, *more, lab=self.lab, env=env, timeout=SECONDS)
        if file is not None:
            Path(file).write_text(ran.stdout, encoding="utf-8")
        if shown.output:
            assert not (why := differs(shown.output, ran.stdout + ran.stderr)), f"{shown}\n{why}"
        return ran

    def run(
        self, begins: str, status: int, names: Mapping[str, str] | None = None, *more: str
    ) -> Ran:
        """Run the page's next command; it ends with this exit status."""
        ran = self.next(begins, names, *more)
        assert ran.status == status, f"{begins}: {ran.status}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def contexts(self, labs: Mapping[str, Lab]) -> None:
        """Let the configuration file have these contexts, and no others."""
        file = Path("config.toml").absolute()
        tables = (
            f'[contexts.{name}]\nbootstrap_servers = "{lab.bootstrap_servers}"\n'
            for name, lab in labs.items()
        )
        file.write_text("".join(tables), encoding="utf-8")
        self.env["EOCTL_CONFIG"] = str(file)

    def line(self, shown: Shown) -> str:
        """A command line in this world's names."""
        return line_of(shown, self.names)

    def shell(self, text: str) -> Ran:
        """Run lines as they stand, by a shell that finds eoctl."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        begin = time.monotonic()
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            env=environment(**{"PATH": path, **self.env}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    def typed(self, begins: str, talk: Talk, *more: str, status: int = 0) -> str:
        """Run the page's next command on a terminal; what it prints.

        It ends with this exit status, or by the signal of the number below 0.
        """
        [shown] = self.taken(1, begins)
        words, _ = words_of(shown, self.names)
        server = ["--bootstrap-server", self.lab.bootstrap_servers] if self.lab else []
        screen = pexpect.spawn(
            sys.executable,
            [*EOCTL[1:], *server, *words, *more],
            env=environment(**{"TERM": "xterm-256color", "NO_COLOR": "1", **self.env}),
            encoding="utf-8",
            dimensions=(40, 120),
            timeout=60,
        )
        printed = ""
        try:
            for pattern, answer in talk:
                screen.expect(pattern)
                assert isinstance(screen.match, re.Match)
                printed += f"{screen.before}{screen.match[0]}"
                screen.send(answer if isinstance(answer, str) else answer(screen.match[0]))
            screen.expect(pexpect.EOF)
            printed += str(screen.before)
        finally:
            screen.close(force=True)
        ended = screen.exitstatus if screen.signalstatus is None else -screen.signalstatus
        assert ended == status, f"{shown}: {ended}\n{printed}"
        return printed

    def asked(self, begins: str, *more: str) -> str:
        """Run the page's next command, which asks for a word, and type it."""
        return self.typed(
            begins, [(r"Type \S+[^\n]*: $", lambda said: f"{said.split()[1].rstrip(':')}\n")], *more
        )

    def taken(self, lines: int, begins: str = "") -> list[Shown]:
        """Take lines that are run in another way: of a script, which is run as a whole, say."""
        taken, self.left = self.left[:lines], self.left[lines:]
        assert len(taken) == lines, begins
        assert taken[0].text.removeprefix("eoctl ").startswith(begins), taken[0]
        return taken

    def end(self) -> None:
        """All of it was run."""
        assert not self.left, "not run"
