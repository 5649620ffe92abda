"""`make release`: everything that a version is published as, in dist/. Nothing is sent anywhere.

Wheel and sdist, the one file, the Debian package, the pex, an SBOM of each, the formula for
Homebrew, the notes, and SHA256SUMS. It is refused where version and changelog do not agree.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from release.old_debian import OLDEST
from release.parts import DIST, ROOT, write_sums
from release.supply import NotInstalledError, tool
from release.version import declared, notes, unready

UV = Path(sys.executable).with_name("uv")


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], cwd=ROOT, check=True)


def formula(version: str, url: str) -> Path:
    """Write Homebrew's formula for the sdist, and return it."""
    sdist = DIST / f"eoctl-{version}.tar.gz"
    values = {
        "@URL@": url.rstrip("/"),
        "@VERSION@": version,
        "@SHA256@": hashlib.sha256(sdist.read_bytes()).hexdigest(),
    }
    text = Path(__file__).with_name("eoctl.rb").read_text().partition("\nclass ")[2]
    for name, value in values.items():
        text = text.replace(name, value)
    path = DIST / "eoctl.rb"
    path.write_text(f"class {text}")
    return path


def lacking(suite: str) -> list[str]:
    """Return what this host needs first, a sentence each: dist/ is not emptied for nothing."""
    programs = ["dpkg-deb", *(["debootstrap"] if suite else [])]
    found = [f"no {name} here" for name in programs if shutil.which(name) is None]
    if suite and os.geteuid() != 0:
        found.append("debootstrap and chroot are for root; DEBIAN= packs this host's Python")
    for name in ("pex", "cyclonedx-py"):
        try:
            tool(name)
        except NotInstalledError as error:
            found.append(str(error))
    return found


def build(suite: str, url: str) -> None:
    """Build all of it, the quickest first."""
    version = declared()
    shutil.rmtree(DIST, ignore_errors=True)
    _run(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable,
         "--out-dir", DIST, ".")  # fmt: skip
    (DIST / "NOTES.md").write_text(f"# eoctl {version}\n\n{notes(version)}\n")
    formula(version, url)
    _run(sys.executable, "-m", "release.sbom")
    _run(sys.executable, "-m", "release.pex")
    _run(sys.executable, "-m", "release.binary", *(["--debian", suite] if suite else []))
    _run(sys.executable, "-m", "release.deb")
    write_sums()


def main() -> None:
    """Refuse a tree that is no release; build; list what there is."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--debian", metavar="SUITE", default=OLDEST, help="'': this host's Python")
    parser.add_argument("--url", default=DIST.as_uri(), help="where its files will be")
    options = parser.parse_args()
    if problems := [*unready(), *lacking(options.debian)]:
        sys.exit("no release: " + "; ".join(problems))
    try:
        build(options.debian, options.url)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"no release: {' '.join(error.cmd)} ended with {error.returncode}, as it says above"
        )
    print((DIST / "SHA256SUMS").read_text(), end="")


if __name__ == "__main__":
    main()
