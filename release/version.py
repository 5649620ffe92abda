"""`make version VERSION=1.2.3`: write a version where it stands, and date what is unreleased.

Nothing is committed. What a release needs of these places, `release.all` checks.
"""

import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from release.parts import ROOT

CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"
PLACES = {
    "pyproject.toml": r'(?m)^(version = ")([^"]+)(")',
    "eoctl/__init__.py": r'(__version__ = ")([^"]+)(")',
    "docs/deploy.md": r"(-t eoctl:)(\S+)( )",
    "docs/deploy/Containerfile": r"(-t eoctl:)(\S+)( )",
}
"""File → where the version is in it, between what stays."""


def declared(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml has."""
    found: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return found


def notes(version: str, root: Path = ROOT) -> str:
    """Return what CHANGELOG.md has below a version's heading, "" without one."""
    text = (root / CHANGELOG).read_text()
    found = re.search(
        rf"(?ms)^## \[{re.escape(version)}\](?: - [0-9-]+)?\n(.*?)(?=^## \[|\Z)", text
    )
    return found[1].strip() if found else ""


def unready(root: Path = ROOT) -> list[str]:
    """Return what is missing before this tree is a release, a sentence each."""
    version = declared(root)
    found = []
    for name, pattern in PLACES.items():
        said = re.search(pattern, (root / name).read_text())
        if said is None or said[2] != version:
            found.append(f"{name} does not say {version}, which pyproject.toml has")
    if notes("Unreleased", root):
        found.append(f"{CHANGELOG} has entries under [Unreleased]: make version VERSION=...")
    if not notes(version, root):
        found.append(f"{CHANGELOG} says nothing about {version}")
    return found


def write(version: str, root: Path = ROOT) -> None:
    """Write the version in its places, and put what is unreleased under its heading."""
    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        sys.exit(f"{version!r} is no version: write it as 1.2.3")
    if notes(version, root):
        sys.exit(f"{CHANGELOG} has {version} already")
    for name, pattern in PLACES.items():
        path = root / name
        path.write_text(re.sub(pattern, rf"\g<1>{version}\g<3>", path.read_text()))
    heading = f"{UNRELEASED}\n## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
    path = root / CHANGELOG
    path.write_text(path.read_text().replace(UNRELEASED, heading, 1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which version? make version VERSION=1.2.3")
    write(sys.argv[1])
    print(f"written: {', '.join([*PLACES, CHANGELOG])}; read the diff, then commit it")
