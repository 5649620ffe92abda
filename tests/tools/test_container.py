"""The steps of docs/deploy/Containerfile, in a Debian: no engine is asked for.

FROM stands for a Debian with that minor version of Python, which both stages share.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from release.old_debian import NotBuiltError, bootstrap
from release.parts import ROOT
from tests.tools.conftest import NOT_RUN

pytestmark = pytest.mark.timeout(1800)
FILE = ROOT / "docs/deploy/Containerfile"
SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
COPIED = ("eoctl", "recovery", "tui", "spark_jobs", "docs")


def lines() -> list[tuple[str, str]]:
    """The file's instructions, each with its words on one line."""
    text = re.sub(r"\\\n\s*", "", FILE.read_text())
    found = [line.partition(" ") for line in text.splitlines() if line and line[0] != "#"]
    return [(name, rest.strip()) for name, _, rest in found]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with that Python, and this machine's ways to the package registry."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}debootstrap and chroot are for root")
    folder = tmp_path_factory.mktemp("image")
    try:
        bootstrap(folder, SUITE, PACKAGES)
    except NotBuiltError as error:
        pytest.skip(f"{NOT_RUN}{error}")
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        if path := os.environ.get(name):
            (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path[1:])
    yield folder
    shutil.rmtree(folder)


def copied(root: Path, where: str) -> None:
    """`COPY . .`: what git has, which .containerignore would leave too."""
    names = subprocess.run(
        ["git", "ls-files", "-z", *COPIED, "pyproject.toml", "README.md", "LICENSE", "*.lock"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    ).stdout.decode().rstrip("\0").split("\0")  # fmt: skip
    for name in names:
        target = root / where[1:] / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)


def test_each_step_runs_and_the_image_answers(root: Path, lab1: Lab) -> None:
    kept = {k: v for k, v in os.environ.items() if k in ("PIP_CERT", "SSL_CERT_FILE")}
    env = kept | {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root"}
    user: list[str] = []
    where = "/"

    chroot = shutil.which("chroot") or "/usr/sbin/chroot"

    def run(*words: str, ends: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [chroot, *user, str(root), *words], env=env, capture_output=True, text=True
        )  # fmt: skip
        assert done.returncode in ends, (words, done.stderr)
        return str(done.stdout)

    assert (
        f"PYTHON=python:{run('python', '-V').split()[1].rpartition('.')[0]}-slim"
        in FILE.read_text()
    )
    entry: list[str] = []
    for name, rest in lines():
        if name == "ARG" and "PYTHON" not in rest:
            env.update({rest.partition("=")[0]: rest.partition("=")[2]})
        elif name == "WORKDIR":
            where = rest
        elif (name, rest) == ("COPY", ". ."):
            copied(root, where)
        elif name == "RUN":
            run("sh", "-ec", f"cd {where}; {rest}")
        elif name == "ENV":
            told = dict(pair.split("=", 1) for pair in shlex.split(rest))
            told["PATH"] = told["PATH"].replace("$PATH", env["PATH"])
            env.update(told)
        elif name == "USER":
            user[:] = [f"--userspec={rest}"]
        elif name == "ENTRYPOINT":
            entry = re.findall(r'"([^"]+)"', rest)
    assert (entry, user) == (["eoctl"], ["--userspec=10001:10001"])
    assert run(*entry, "--version").startswith("eoctl ")
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    # 1: other tests have left orphans on that lab
    run(*entry, *server, "check", "--sample-interval", "0.3s", ends=(0, 1))
