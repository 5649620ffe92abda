"""A Debian in build/ with a Python built in it: what is packed there runs on older hosts.

A program asks for the glibc that it was built with, or a newer one; Python's modules do so too. The
sources of OpenSSL and Python are those of a newer Debian, with the fixes that it still gets.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.parts import ROOT

OLDEST = "bullseye"  # glibc 2.31, that of 2020
SOURCES = "bookworm"  # OpenSSL 3.0 and Python 3.11; its security support ends in June 2028
NEEDED = (
    "build-essential",
    "ca-certificates",
    "libbz2-dev",
    "libexpat1-dev",
    "libffi-dev",
    "liblzma-dev",
    "libmpdec-dev",
    "libsqlite3-dev",
    "uuid-dev",
    "zlib1g-dev",
)
PYTHON = "/opt/python/bin/python3.11"
BUILD = """\
set -eu
exec 3>&1 >/opt/build.log 2>&1
cd /opt/source
apt-get -qq update
if ! apt-get -qq source openssl python3.11; then # a mirror without the newest security fixes
    echo "NOT in it: the security updates of that Debian, whose mirror does not answer here" >&3
    sed -i /-security/d /etc/apt/sources.list
    apt-get -qq update
    apt-get -qq source openssl python3.11
fi
cd openssl-*/
./config --prefix=/opt/openssl --libdir=lib no-tests no-module
make -s -j"$(nproc)" build_libs
make -s install_dev
cd ../python3.11-*/
./configure -q --prefix=/opt/python --enable-shared --without-ensurepip --disable-test-modules \\
    --with-openssl=/opt/openssl LDFLAGS="-s -Wl,-rpath,/opt/python/lib:/opt/openssl/lib"
make -s -j"$(nproc)"
make -s install
"$1" -c 'import _decimal, _uuid, bz2, ctypes, lzma, pyexpat, sqlite3, zlib' # none was left out
"$1" -c 'import ssl, sys; print("Python", sys.version.split()[0], "with", ssl.OPENSSL_VERSION)' >&3
rm -rf /opt/source
"""


class NotBuiltError(Exception):
    """The Debian cannot be made here; the message says what is missing."""


def debian(suite: str = OLDEST) -> Path:
    """Return the folder of that Debian, made if it is not there. Raises NotBuiltError."""
    folder = ROOT / "build" / f"debian-{suite}"
    built, recipe = folder / "opt" / "built", f"{suite} {SOURCES} {NEEDED}\n{BUILD}"
    if built.exists() and built.read_text() == recipe:
        return folder
    if os.geteuid() != 0:
        raise NotBuiltError("debootstrap and chroot are for root")
    bootstrap(folder, suite, NEEDED)
    sources = folder / "opt" / "source"
    sources.mkdir(parents=True)
    apt = folder / "etc/apt/sources.list"
    mirror = apt.read_text().split()[1]
    lines = [f"deb-src {mirror} {SOURCES} main"]
    lines.append(f"deb-src {mirror}-security {SOURCES}-security main")
    apt.write_text("\n".join(lines) + "\n")
    try:
        inside(folder, ["sh", "-c", BUILD, "build", PYTHON])
    except subprocess.CalledProcessError:
        log = folder / "opt/build.log"
        raise NotBuiltError(f"its Python could not be built; {log} says why") from None
    built.write_text(recipe)
    return folder


def python_version(suite: str) -> str:
    """Return the version of the Python that was built there."""
    header = debian(suite) / "opt/python/include/python3.11/patchlevel.h"
    found = re.search(r'PY_VERSION\s+"([^"]+)"', header.read_text())
    assert found is not None
    return found[1]


def bootstrap(folder: Path, suite: str, packages: Sequence[str] = ()) -> None:
    """Make a Debian in a folder. Raises NotBuiltError where there is no debootstrap."""
    program = shutil.which("debootstrap")
    if program is None:
        raise NotBuiltError("no debootstrap here; apt-get install debootstrap")
    shutil.rmtree(folder, ignore_errors=True)
    words = [program, "--variant=minbase"]
    words += [f"--include={','.join(packages)}"] if packages else []
    subprocess.run([*words, suite, str(folder)], check=True, stdout=subprocess.DEVNULL)
    for name in ("etc/resolv.conf", "etc/hosts"):
        shutil.copy(f"/{name}", folder / name)


def inside(folder: Path, words: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
    """Run a command in that Debian, and fail if it fails."""
    known = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    subprocess.run([chroot, str(folder), *words], env=known | dict(environ or {}), check=True)
