"""The one file of `make binary`, in a Debian without Python: it answers as the installed eoctl."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eoctl.host.program import itself
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from release.binary import DIST, one_file_path
from tests.kafka.command import FAST, environment
from tests.tools.conftest import NOT_RUN, PACKAGES

pytestmark = pytest.mark.timeout(1200)
SUITE = "bookworm"  # the oldest whose glibc the file's Python takes
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("lso",),
    ("why", *FAST),
    ("txn", "hanging", "--plan", *FAST),
    ("check", *FAST),
    ("bundle", "create", "/root/incident.eoctl", *FAST),
    ("report", "/root/incident.eoctl", "--output", "/root/report.html"),
    ("state", "rebuild", "no-topic", "--output", "/root/state"),
    ("journal", "list"),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with nothing but what is always installed, and the file in it."""
    debootstrap = shutil.which("debootstrap")
    if debootstrap is None:
        pytest.skip(f"{NOT_RUN}no debootstrap here; apt-get install {PACKAGES['debootstrap']}")
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}debootstrap and chroot are for root")
    subprocess.run([sys.executable, "-m", "release.binary"], check=True, timeout=900)
    folder = tmp_path_factory.mktemp("debian")
    words = [debootstrap, "--variant=minbase", SUITE, str(folder)]
    subprocess.run(words, check=True, timeout=900, stdout=subprocess.DEVNULL)
    shutil.copy(one_file_path(), folder / "usr/local/bin/eoctl")
    assert not list(folder.glob("usr/bin/python*"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def there(root: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """there(WORDS): eoctl in that Debian, as a new user of an empty home."""

    def run(words: Sequence[str], **environ: str) -> "subprocess.CompletedProcess[str]":
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [shutil.which("chroot") or "/usr/sbin/chroot", str(root), "eoctl", *words],
            env=env | environ,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


def test_every_command_ends_as_the_installed_one(
    there: Callable[..., "subprocess.CompletedProcess[str]"], lab1: Lab, tmp_path: Path
) -> None:
    break_(lab1, "orphan")
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    ended = {}
    for words in COMMANDS:
        asked = words if words == ("--help",) else (*server, *words)
        mine = [str(tmp_path / Path(w).name) if w.startswith("/root/") else w for w in asked]
        ours = subprocess.run(
            [*itself(), *mine],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        theirs = there(asked)
        ended[words] = (theirs.returncode, ours.returncode)
        assert "Traceback" not in theirs.stderr, theirs.stderr
        assert theirs.returncode == ours.returncode, (words, theirs.stderr, ours.stderr)
    assert {status for status, _ in ended.values()} >= {0, 1, 2}, ended


def test_what_it_lacks_is_said(there: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    done = there(["audit", "duplicates", "x", "--by", "key", "--bootstrap-server", "127.0.0.1:9"])
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "which the one-file eoctl does not have" in " ".join(done.stderr.split())


def test_a_folder_for_programs_is_found_or_asked_for(
    there: Callable[..., "subprocess.CompletedProcess[str]"], root: Path
) -> None:
    (root / "mnt").mkdir(exist_ok=True)
    mount = str(root / "mnt")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", mount], check=True)
    try:
        moved = there(["explain", "lso"], HOME="/mnt", XDG_CACHE_HOME="/mnt")
        assert moved.returncode == 0, moved.stderr
        refused = there(["explain", "lso"], EOCTL_BINARY_DIR="/mnt")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "set EOCTL_BINARY_DIR" in refused.stderr
    finally:
        subprocess.run(["umount", mount], check=True)


def test_state_goes_where_it_is_told(
    there: Callable[..., "subprocess.CompletedProcess[str]"], root: Path, lab1: Lab
) -> None:
    """A home that cannot be written: the cache is left out, the state folder is named."""
    words = ["--bootstrap-server", lab1.bootstrap_servers, "journal", "list", "-o", "json"]
    done = there(words, HOME="/proc/none", EOCTL_STATE_DIR="/root/elsewhere")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == []


def test_sums_are_those_of_the_files(root: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=DIST, check=True)
    document = json.loads((DIST / "eoctl-sbom.cdx.json").read_text())
    assert document["metadata"]["component"]["name"] == "eoctl"
    parts = {part["name"] for part in document["components"]}
    assert {"confluent-kafka", "textual", "psycopg", "CPython"} <= parts
    assert "pyinstaller" not in parts
