"""Real systems on Java for the tests: jars, pinned as the lab's are, and one source compiled."""

import hashlib
import os
import subprocess
from pathlib import Path

from eoctl.host.java import find_java
from eoctl.lab.jars import Jar, fetch
from eoctl.settings.context import cache_dir


def locked_jars(lock: Path) -> list[Jar]:
    """The jars of a lock file: `sha256  bytes  organisation:name:revision` on each line."""
    lines = [line.split() for line in lock.read_text().splitlines() if not line.startswith("#")]
    return [Jar(sha256, int(size), *names.split(":")) for sha256, size, names in lines]


def class_path(jars: list[Jar], source: Path | None = None) -> str:
    """The jars, fetched where they are not there, behind the classes of a source file.

    The source is compiled when it, its jars or Java are new.
    """
    java = find_java()
    path = os.pathsep.join(map(str, fetch(jars, java)))
    if source is None:
        return path
    told = hashlib.sha256(source.read_bytes() + path.encode() + java.banner.encode()).hexdigest()
    classes = cache_dir().absolute() / "classes" / f"{source.stem}-{told[:16]}"
    if not classes.exists():
        arriving = classes.with_suffix(f".{os.getpid()}")
        arriving.mkdir(parents=True)
        compiler = java.path.resolve().with_name("javac")
        subprocess.run([compiler, "-d", arriving, "-cp", path, source], check=True, timeout=120)
        arriving.rename(classes)
    return f"{classes}{os.pathsep}{path}"
