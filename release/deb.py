"""`make deb`: dist/eoctl_VERSION_ARCHITECTURE.deb, of the folder that `make binary` packed.

Beside the program: the man page, completion for bash, zsh and fish, the systemd units (none is
enabled), their user, the licence, and why lintian's remarks on packed libraries are overridden.
"""

import gzip
import re
import shutil
import subprocess
import sys
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.licences_table import licences
from docs.man import page as man_page
from eoctl import __version__
from eoctl.cli.commands.completion import FISH, SCRIPT, ZSH
from release.binary import WORK, build_wheel, newest_glibc
from release.parts import DIST, ROOT, shipped, write_sums

ADDED = Path(__file__).with_name("debian")
"""What is in the package as it is: scripts of its life, its user, overrides."""
PROGRAM = WORK / "eoctl"
SCRIPTS = ("postinst", "prerm")
CHANGES = """\
eoctl ({version}) unstable; urgency=medium

  * What changed is in CHANGELOG.md.gz beside this file.

 -- {maintainer}  {date}
"""
MAINTAINER = "eoctl maintainers <maintainers@eoctl.example.org>"
CONTROL = """\
Package: eoctl
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: libc6 (>= {glibc}), zlib1g
Section: admin
Priority: optional
Description: find and fix what holds exactly-once back in Kafka
 eoctl names the transaction that holds readers back, says why, and plans a
 remedy that it proves before and verifies after. It brings its own Python.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: eoctl
Comment: /usr/lib/eoctl holds, beside eoctl, CPython (PSF-2.0) and these packages; the licence of
 each that ships one is in its folder *.dist-info there. Their shared libraries, and those of
 CPython, are not in this list: the SBOM beside the package names the files, not their licences.
 Libraries under the LGPL can be replaced: put another build of the file in its place.
{packages}

Files: *
Copyright: 2026 the eoctl authors
License: Apache-2.0
 On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0.
"""


def main() -> None:
    """Build the package, and write SHA256SUMS."""
    if shutil.which("dpkg-deb") is None:
        sys.exit("no package: no dpkg-deb here; it is for Debian's own")
    if not PROGRAM.is_dir():
        sys.exit("no package: run `make binary` first, whose folder is packed")
    if not is_of_these_sources():
        sys.exit("no package: what was packed is of other sources; run `make binary` again")
    tree = WORK / "deb"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(PROGRAM, tree / "usr/lib/eoctl", symlinks=True)
    program = tree / "usr/lib/eoctl/eoctl"
    without_interpreters(tree)
    _files(tree)
    _control(tree)
    for path in tree.rglob("*"):  # no file is a program but one, and the scripts of its life
        if not path.is_symlink():
            runs = path.is_dir() or path in (program, *(tree / "DEBIAN" / n for n in SCRIPTS))
            path.chmod(0o755 if runs else 0o644)
    DIST.mkdir(exist_ok=True)
    path = DIST / f"eoctl_{__version__}_{_architecture()}.deb"
    words = ["dpkg-deb", "--root-owner-group", "--build", "-Zxz", "-z3", str(tree), str(path)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    write_sums()
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def is_of_these_sources() -> bool:
    """Return True if the wheel that was packed is the one that the tree makes now."""
    packed = [path.read_bytes() for path in (WORK / "wheel").glob("*.whl")]
    with TemporaryDirectory() as folder:
        build_wheel(Path(folder))
        return packed == [path.read_bytes() for path in Path(folder).glob("*.whl")]


def without_interpreters(tree: Path) -> None:
    """Take `#!` from modules: they are loaded, not run, and its `python` may not be there."""
    for path in tree.rglob("*.py"):
        text = path.read_bytes()
        if text.startswith(b"#!"):
            path.write_bytes(b"# " + text[2:])


def _architecture() -> str:
    done = subprocess.run(
        ["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def _files(tree: Path) -> None:
    """Write what is beside the program."""
    share = tree / "usr/share"
    _packed(share / "man/man1/eoctl.1.gz", man_page())
    _packed(
        share / "doc/eoctl/changelog.gz",
        CHANGES.format(version=__version__, maintainer=MAINTAINER, date=_date()),
    )
    _packed(share / "doc/eoctl/CHANGELOG.md.gz", (ROOT / "CHANGELOG.md").read_text())
    names = ", ".join(
        f"{n} ({licences()[n]})" for n in sorted(shipped(("sql", "serde", "exporter")))
    )
    _text(share / "doc/eoctl/copyright", COPYRIGHT.format(packages=_folded(names)))
    _text(share / "bash-completion/completions/eoctl", SCRIPT)
    _text(
        share / "zsh/vendor-completions/_eoctl", ZSH.replace("compdef _eoctl eoctl", '_eoctl "$@"')
    )
    _text(share / "fish/vendor_completions.d/eoctl.fish", FISH)
    for unit in (ROOT / "docs/deploy/systemd").iterdir():
        text = unit.read_text().replace("/usr/local/bin/eoctl", "/usr/bin/eoctl")
        _text(tree / "lib/systemd/system" / unit.name, text)
    _text(tree / "usr/lib/sysusers.d/eoctl.conf", (ADDED / "sysusers").read_text())
    _text(share / "lintian/overrides/eoctl", (ADDED / "overrides").read_text())
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/eoctl").symlink_to("../lib/eoctl/eoctl")


def _control(tree: Path) -> None:
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())
    glibc = newest_glibc(PROGRAM)
    _text(
        tree / "DEBIAN/control",
        CONTROL.format(
            version=__version__,
            architecture=_architecture(),
            maintainer=MAINTAINER,
            size=size // 1024,
            glibc=glibc,
        ),
    )
    for name in SCRIPTS:
        _text(tree / "DEBIAN" / name, (ADDED / name).read_text())


def _date() -> str:
    """Return the day of this version by the changelog, as Debian writes it; else the epoch."""
    heading = rf"(?m)^## \[{re.escape(__version__)}\] - ([0-9-]+)$"
    found = re.search(heading, (ROOT / "CHANGELOG.md").read_text())
    return format_datetime(datetime.fromisoformat(f"{found[1] if found else '1970-01-01'}T00:00Z"))


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _packed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _folded(names: str) -> str:
    """Return a line as a field of Debian's: folded, each line indented by one."""
    return re.sub(r"(.{1,88})(?:\s+|$)", r" \1\n", names).rstrip("\n")


if __name__ == "__main__":
    main()
