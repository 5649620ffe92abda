"""Versions of what eoctl uses on this machine, read from files: nothing is loaded or run."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version

from eoctl import __version__
from eoctl.host.java import find_launcher
from recovery.errors import UsageError

PACKAGES = (
    ("confluent-kafka", None),
    ("kafka-python", None),
    ("numpy", "data"),
    ("pyarrow", "data"),
    ("pyspark", "spark"),
)
"""Package and, where it is of an extra, that extra."""


def report() -> str:
    """Return a line for each: eoctl, Python, Kafka clients, Spark, Java, or that it is missing."""
    lines = [f"eoctl {__version__}", f"Python {platform.python_version()}"]
    for name, extra in PACKAGES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} not installed" + (f" (eoctl[{extra}])" if extra else ""))
    return "\n".join([*lines, f"Java {java_version()}"])


def java_version() -> str:
    """Return the version of the Java that would be started, from its `release` file."""
    try:
        program, _ = find_launcher(os.environ)
    except UsageError:
        return "not found (JAVA_HOME, PATH)"
    try:
        release = program.resolve().parent.parent.joinpath("release").read_text("utf-8")
    except (OSError, ValueError):
        release = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    return match[1] if match else f"at {program} (its files do not say the version)"
