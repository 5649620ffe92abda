"""dist/eoctl.pex by each Python that it names, in an empty home: every base command."""

import shutil
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from release.parts import DIST, PYTHONS
from tests.interpreters import interpreter
from tests.shipped import (
    COMMANDS,
    Program,
    base_commands,
    dashboard,
    end_alike,
    exporter,
    installed,
)
from tests.tools.conftest import NOT_RUN, built

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def pex() -> Path:
    built("release.pex")
    return DIST / "eoctl.pex"


def alone(pex: Path, version: str, home: Path) -> Program:
    """The file where this Python is the only one on PATH."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"{NOT_RUN}no Python {version} here")
    (home / "bin").mkdir(parents=True)
    (home / "bin" / f"python{version}").symlink_to(python)
    for name in ("sh", "env", "uname", "dirname", "basename", "stty"):
        if (path := shutil.which(name)) is not None:
            (home / "bin" / name).symlink_to(path)
    env = {"HOME": str(home), "PATH": str(home / "bin"), "LC_ALL": "C.UTF-8"}
    return Program([str(pex)], env, str(home), home)


@pytest.mark.parametrize("version", PYTHONS)
def test_every_base_command_ends_as_the_installed_one(
    version: str, pex: Path, lab1: Lab, tmp_path: Path
) -> None:
    break_(lab1, "orphan")
    program = alone(pex, version, tmp_path / "home")
    printed = program.run("--version")
    assert f"\nPython {version}." in printed.stdout, printed.stderr
    (tmp_path / "ours").mkdir()
    ours = installed(tmp_path / "ours")
    every = base_commands() if version == PYTHONS[0] else []
    ended = end_alike(program, ours, lab1, [*COMMANDS, *every])
    assert {*ended.values()} >= {0, 1, 2}, ended  # 2: what needs the extra `data`
    assert dashboard(program, lab1) == dashboard(ours, lab1) == 0
    assert exporter(program, lab1) == exporter(ours, lab1) == 130
