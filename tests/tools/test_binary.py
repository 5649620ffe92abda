"""The one file of `make binary`, in an old Debian without Python: it answers as if installed."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from release.binary import one_file_path
from release.old_debian import OLDEST, NotBuiltError, bootstrap
from release.parts import DIST
from tests.shipped import (
    COMMANDS,
    Program,
    base_commands,
    dashboard,
    end_alike,
    exporter,
    installed,
    slower,
)
from tests.tools.conftest import NOT_RUN, built

pytestmark = pytest.mark.timeout(3600)
MOST_MEGABYTES = 60.0
MOST_SLOWER = 1.3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The oldest Debian with nothing but what is always installed, and the file built in it."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}debootstrap and chroot are for root")
    folder = tmp_path_factory.mktemp("debian")
    try:
        bootstrap(folder, OLDEST)
    except NotBuiltError as error:
        pytest.skip(f"{NOT_RUN}{error}")
    built("release.binary", "--debian", OLDEST)
    shutil.copy(one_file_path(), folder / "usr/local/bin/eoctl")
    assert not list(folder.glob("usr/bin/python*"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def there(root: Path) -> Program:
    """eoctl in that Debian, as a user of an empty home."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    return Program([chroot, str(root), "eoctl"], env, "/root")


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own at a folder, as administrators mount /tmp and homes."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_it_is_small_enough(root: Path) -> None:
    assert one_file_path().stat().st_size / 1e6 <= MOST_MEGABYTES


def test_every_command_ends_as_the_installed_one(there: Program, lab1: Lab, tmp_path: Path) -> None:
    break_(lab1, "orphan")
    ours = installed(tmp_path)
    assert there.run("--help").stdout == ours.run("--help").stdout
    ended = end_alike(there, ours, lab1, [*COMMANDS, *base_commands()])
    assert {*ended.values()} >= {0, 1, 2}, ended
    assert dashboard(there, lab1) == dashboard(ours, lab1) == 0
    assert exporter(there, lab1) == exporter(ours, lab1) == 130


def test_it_starts_as_quickly(there: Program, lab1: Lab, tmp_path: Path) -> None:
    there.run("--version")  # unpacks
    ratio = slower(there, installed(tmp_path), lab1)
    print(f"lso takes {ratio:.2f} times as long")
    assert ratio <= MOST_SLOWER


def test_what_it_lacks_is_said(there: Program) -> None:
    done = there.run("audit", "duplicates", "x", "--by", "key", "--bootstrap-server", "127.0.0.1:9")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "which the one-file eoctl does not have" in " ".join(done.stderr.split())


def test_a_folder_for_programs_is_found_or_asked_for(there: Program, root: Path) -> None:
    with mounted(root / "mnt", "noexec"):
        moved = there.run("explain", "lso", HOME="/mnt", XDG_CACHE_HOME="/mnt")
        assert moved.returncode == 0, moved.stderr
        refused = there.run("explain", "lso", EOCTL_BINARY_DIR="/mnt")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "set EOCTL_BINARY_DIR" in refused.stderr


def test_a_home_that_cannot_be_written_and_a_tmp_without_programs(
    there: Program, root: Path, lab1: Lab
) -> None:
    """The program goes elsewhere; the state goes where it is told."""
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    with mounted(root / "tmp", "noexec"), mounted(root / "home", "ro"):
        home = {"HOME": "/home"}
        asked = there.run(*server, "lso", **home)
        assert asked.returncode == 0, asked.stderr
        words = (*server, "journal", "list", "-o", "json")
        done = there.run(*words, **home, EOCTL_STATE_DIR="/root/elsewhere")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == []


def test_sums_are_those_of_the_files(root: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=DIST, check=True)
    document = json.loads((DIST / "eoctl-sbom.cdx.json").read_text())
    assert document["metadata"]["component"]["name"] == "eoctl"
    parts = {part["name"] for part in document["components"]}
    assert {"confluent-kafka", "textual", "psycopg", "CPython"} <= parts
    assert "pyinstaller" not in parts
