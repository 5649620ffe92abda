"""Running the steps of `eoctl lab demo`: each sentence, each command, and what it prints."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

from eoctl.host.program import itself
from eoctl.lab import demo
from eoctl.lab.cluster import lab_names, load
from eoctl.lab.job import job_folder
from eoctl.render.shell import command
from eoctl.settings.folders import state_dir
from eoctl.stores import private
from recovery.errors import UnverifiedError

WIDTH = 80


def show() -> int:
    """Start the lab afresh and run every step in it. Raises UnverifiedError when one fails."""
    if demo.NAME in lab_names():
        load(demo.NAME).down()
    environ = {k: v for k, v in os.environ.items() if k not in _OTHER_CLUSTERS}
    environ["EOCTL_CONTEXT"] = demo.CONTEXT
    with private.temporary("demo") as temporary:
        _steps({**environ, "TMPDIR": str(temporary)}, temporary)
    _say("The lab is still up. What to type next:")
    for line in demo.NEXT:
        print(f"  {_typed(line)}")
    print("and to stop it and delete its data:")
    print(f"  {_typed(demo.STOP)}")
    return 0


def _steps(environ: dict[str, str], temporary: Path) -> None:
    """Run every step, and look what it left behind."""
    began = time.time()
    for number, step in enumerate(demo.STEPS, 1):
        _say(f"[{number}/{len(demo.STEPS)}] {step.says}")
        if number == 2:
            print(f"$ export EOCTL_CONTEXT={demo.CONTEXT}")
        folder = str(job_folder(demo.NAME))
        words = [word.replace("{job}", folder) for word in step.command]
        into = None if step.into is None else Path(step.into.replace("{job}", folder))
        typed = command(["eoctl", *words]) or " ".join(words)
        print(f"$ {typed}" + (f" > {into}" if into else ""), flush=True)
        status = _run(words, into, environ)
        if status not in step.exits:
            raise UnverifiedError(
                f"`{typed}` ended with {status}",
                remedy=f"the lab is still there to look at; end it with `{_typed(demo.STOP)}`",
            )
        if status:
            print("(killed)" if status == -signal.SIGKILL else f"(exit status {status})")
        _refuse_left(typed, temporary, began)


def _refuse_left(typed: str, temporary: Path, began: float) -> None:
    """Raise UnverifiedError where a step left something in the temporary folder, or made something
    that others may read: it may hold keys, values and names. began: the demo, epoch seconds."""
    if left := sorted(path.name for path in temporary.iterdir()):
        raise UnverifiedError(f"`{typed}` left {', '.join(left)} in the temporary folder")
    for path in state_dir().rglob("*"):
        with suppress(FileNotFoundError):  # the broker's files come and go
            status = path.lstat()
            if status.st_ctime >= began and status.st_mode & 0o077 and not path.is_symlink():
                raise UnverifiedError(f"`{typed}` made something that others may read: {path}")


def _run(words: list[str], into: Path | None, environ: dict[str, str]) -> int:
    """Run eoctl. What it prints into a file is shown as well."""
    argv = [*itself(), *words]
    if into is None:
        return subprocess.run(argv, env=environ, check=False).returncode
    done = subprocess.run(argv, env=environ, check=False, stdout=subprocess.PIPE)
    into.write_bytes(done.stdout)
    print(done.stdout.decode("utf-8", "replace"), end="", flush=True)
    return done.returncode


def _typed(line: str) -> str:
    """The command as it can be typed here: `make demo` puts eoctl into .venv, not on PATH."""
    program = Path(sys.argv[0])
    if shutil.which("eoctl") or program.name != "eoctl":
        return line
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return str(program) + line.removeprefix("eoctl")


# They would win over the demo's own context.
_OTHER_CLUSTERS = ("EOCTL_BOOTSTRAP_SERVER", "EOCTL_COMMAND_CONFIG")


def _say(sentence: str) -> None:
    print()
    print(textwrap.fill(sentence, WIDTH, break_long_words=False, break_on_hyphens=False))
