"""The wheel as a new user meets it: an empty home, each way to install, base and each extra."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from eoctl.host.extras import PACKAGES
from eoctl.lab.cluster import Lab
from eoctl.settings.folders import cache_dir
from tests.kafka.conftest import MakeTopic
from tests.kafka.test_exporter import Exporter
from tests.started import started

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built as `make dist` does."""
    out = tmp_path_factory.mktemp("dist")
    argv = [str(UV), "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*argv, "--out-dir", str(out), str(ROOT)], check=True)
    assert list(out.glob("*.tar.gz")), "an sdist too"
    [found] = out.glob("*.whl")
    return found


def in_empty_home(home: Path) -> dict[str, str]:
    """An environment in which nothing of this user is known; registries and proxies stay."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EOCTL_", "XDG_", "VIRTUAL"))}
    home.mkdir(exist_ok=True)
    return kept | {"HOME": str(home), "PATH": f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin"}


def run(argv: Sequence[str | Path], env: dict[str, str]) -> str:
    done = subprocess.run(
        argv, env=env, cwd=env["HOME"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout


def answers(program: Path, env: dict[str, str], lab: Lab, topic: str) -> None:
    """The first command of a new user, on a real cluster."""
    server = ("--bootstrap-server", lab.bootstrap_servers)
    [row] = json.loads(run([program, *server, "lso", topic, "-o", "json"], env))["rows"]
    assert (row["topic"], row["last_stable_offset"]) == (topic, 0)
    assert run([program, "--version"], env).startswith("eoctl 0.")
    assert "SYMPTOM" in run([program, "runbook", "zombie"], env)  # its pages are in the wheel


def installed(env: dict[str, str], *packages: str | Path) -> Path:
    """Packages in a new environment below the home; its folder of programs."""
    folder = Path(env["HOME"], "venv")
    run([sys.executable, "-m", "venv", folder], env)
    run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], env)
    return folder / "bin"


@pytest.mark.parametrize("extra", [None, *PACKAGES])
def test_pip(extra: str | None, wheel: Path, lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    env = in_empty_home(tmp_path / "home")
    bin_ = installed(env, f"eoctl[{extra}] @ {wheel.as_uri()}" if extra else wheel)
    answers(bin_ / "eoctl", env, lab1, topic(lab1))
    packages = PACKAGES[extra] if extra else ()
    assert run([bin_ / "python", "-c", "".join(f"import {p}\n" for p in packages)], env) == ""
    if extra in (None, "data"):
        count = [str(bin_ / "eoctl"), "--bootstrap-server", lab1.bootstrap_servers]
        done = subprocess.run(
            [*count, "offsets", "count", "__consumer_offsets:0", "0", "0"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        refused = "needs the extra 'data'" in done.stderr
        assert (done.returncode == 2 and refused) == (extra is None), done.stderr


TOOLS = ("lab", "serde", "msk", "exporter")
"""Extras that are tried as tools too. Others bring numpy or Spark: `test_pip` has them."""


def tools(home: Path, wheel: Path, extras: Sequence[str]) -> tuple[dict[str, str], str]:
    """An empty home's environment, and what an installer of tools is told to install."""
    named = f"eoctl[{','.join(extras)}] @ {wheel.as_uri()}"
    return in_empty_home(home), named if extras else str(wheel)


@pytest.mark.parametrize("extras", [(), TOOLS], ids=["base", "extras"])
def test_pipx(
    extras: Sequence[str], wheel: Path, lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    env, package = tools(tmp_path / "home", wheel, extras)
    pipx = installed(env, "pipx") / "pipx"
    run([pipx, "install", "--quiet", "--python", sys.executable, package], env)
    program = Path(env["HOME"], ".local", "bin", "eoctl")
    answers(program, env, lab1, topic(lab1))
    assert [e for e in extras if not works(e, program, env, lab1)] == []


@pytest.mark.parametrize("extras", [(), TOOLS], ids=["base", "extras"])
def test_uv_tool(
    extras: Sequence[str], wheel: Path, lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    env, package = tools(tmp_path / "home", wheel, extras)
    run([UV, "tool", "install", "--quiet", "--python", sys.executable, package], env)
    program = Path(env["HOME"], ".local", "bin", "eoctl")
    answers(program, env, lab1, topic(lab1))
    assert [e for e in extras if not works(e, program, env, lab1)] == []


def works(extra: str, program: Path, env: dict[str, str], lab: Lab) -> bool:
    """Use what an extra is for, as far as this machine has it: a lab, an endpoint, imports."""
    if extra == "lab":
        with_jars = env | {"EOCTL_CACHE_DIR": str(cache_dir())}
        up = json.loads(run([program, "lab", "up", "-o", "json"], with_jars))
        run([program, "status", "--context", "lab"], with_jars)
        run([program, "lab", "down"], with_jars)
        return [row["state"] for row in up["rows"]] == ["ready"]
    if extra == "exporter":
        server = ("--bootstrap-server", lab.bootstrap_servers)
        argv = [str(program), "exporter", *server, "--listen", "127.0.0.1:0"]
        with started(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
            served = Exporter(process)
            while not (up := served.scrape().all("eoctl_up")):  # until its first look ends
                time.sleep(0.2)
            return up == [1.0]
    python = program.resolve().with_name("python")
    return run([python, "-c", "".join(f"import {p}\n" for p in PACKAGES[extra])], env) == ""
