"""The Debian package of `make deb`: lintian finds nothing, and a Debian installs and removes it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl import __version__
from release.old_debian import OLDEST, NotBuiltError, bootstrap, inside
from release.parts import DIST
from tests.tools.conftest import NOT_RUN, Program, Run, built

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def package() -> Path:
    """The package, of what is packed in the oldest Debian."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip(f"{NOT_RUN}no dpkg-deb here; it is for Debian's own")
    built("release.binary", "--debian", OLDEST)
    built("release.deb")
    [found] = DIST.glob(f"eoctl_{__version__}_*.deb")
    return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The oldest Debian with nothing but what is always installed."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_RUN}debootstrap and chroot are for root")
    try:
        bootstrap(tmp_path / "debian", OLDEST)
    except NotBuiltError as error:
        pytest.skip(f"{NOT_RUN}{error}")
    yield tmp_path / "debian"
    shutil.rmtree(tmp_path / "debian")


def test_lintian_finds_nothing(program: Program, run: Run, package: Path) -> None:
    found = run([program("lintian"), "--fail-on", "error,warning", "--allow-root", package])
    assert [line for line in found.splitlines() if line[:2] in ("E:", "W:")] == []


def test_a_debian_installs_it_and_removes_it(package: Path, root: Path) -> None:
    shutil.copy(package, root / "eoctl.deb")
    before = names(root)
    inside(root, ["dpkg", "--install", "/eoctl.deb"])
    printed = subprocess.run(
        ["chroot", str(root), "eoctl", "--version"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.startswith(f"eoctl {__version__}\n")
    for name in (
        "usr/share/man/man1/eoctl.1.gz",
        "usr/share/bash-completion/completions/eoctl",
        "usr/share/zsh/vendor-completions/_eoctl",
        "usr/share/fish/vendor_completions.d/eoctl.fish",
        "usr/share/doc/eoctl/copyright",
        "lib/systemd/system/eoctl-check.timer",
    ):
        assert (root / name).is_file(), name
    inside(root, ["dpkg", "--purge", "eoctl"])
    assert names(root) == before


def names(root: Path) -> set[str]:
    """All paths of a Debian, without what dpkg writes about itself."""
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    own = ("var/lib/dpkg", "var/log", "var/cache", "proc", "dev", "sys")
    return {name for name in found if not name.startswith(own)}
