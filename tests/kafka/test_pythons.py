"""Newer Pythons than the one that runs the tests: each one's unit tests, and commands on a lab."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from release.parts import PYTHONS, ROOT
from tests.interpreters import interpreter
from tests.kafka.command import FAST, environment
from tests.kafka.conftest import MakeTopic
from tests.shipped import Program, end_alike, installed

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]
UV = Path(sys.executable).with_name("uv")
OWN = "{}.{}".format(*sys.version_info)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lso",),
    ("status", *FAST),
    ("why", *FAST),
    ("txn", "list"),
    ("txn", "hanging", "--plan", *FAST),
    ("producers",),
    ("offsets", "show"),
    ("offsets", "count", "TOPIC:0", "0", "latest"),
    ("doctor",),
    ("check", *FAST),
    ("bundle", "create", "FOLDER/incident.eoctl", *FAST),
    ("audit", "duplicates", "TOPIC", "--by", "key"),
)


def _environ() -> dict[str, str]:
    """What a process of another Python gets: nothing that leads to this one's packages."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "EOCTL_TEST_RUN")
    return {key: value for key, value in os.environ.items() if key not in left_out}


@pytest.fixture(scope="module", params=[version for version in PYTHONS if version != OWN])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with everything of requirements.lock and this tree installed in it."""
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} here")
    made = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", found, made], check=True)
    here = [str(UV), "pip", "install", "--quiet", "--python", str(made / "bin/python")]
    for lock in ("requirements.lock", "requirements-uv.lock"):  # a test builds the wheel with uv
        subprocess.run([*here, "--require-hashes", "-r", str(ROOT / lock)], check=True)
    subprocess.run([*here, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    return made / "bin/python"


def test_its_unit_tests_pass(python: Path) -> None:
    words = [str(python), "-m", "pytest", "-p", "no:xdist", "tests/unit"]
    done = subprocess.run(words, cwd=ROOT, env=_environ(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


def test_its_commands_end_alike(python: Path, lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1)
    break_(lab1, "orphan", topic=name, partition=0, hold=False)
    env = environment(EOCTL_CONFIG=str(tmp_path / "theirs.toml"), PYTHONPATH=None)
    (tmp_path / "theirs").mkdir()
    theirs = Program([str(python), "-m", "eoctl"], env, str(tmp_path / "theirs"), tmp_path)
    (tmp_path / "ours").mkdir()
    commands = [tuple(w.replace("TOPIC", name) for w in words) for words in COMMANDS]
    ended = end_alike(theirs, installed(tmp_path / "ours"), lab1, commands)
    assert 0 in ended.values()
    assert 1 in ended.values()
