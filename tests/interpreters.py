"""Pythons of this machine, besides the one that runs the tests."""

import shutil
import subprocess
from pathlib import Path

PRINTED = "import sys; print('{}.{}'.format(*sys.version_info), sys._base_executable)"


def interpreter(version: str) -> Path | None:
    """Return a Python of a minor version: the first on PATH that starts, or one of pyenv's."""
    named = shutil.which(f"python{version}")
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for path in (*([Path(named)] if named else []), *pyenv):
        done = subprocess.run(
            [path, "-c", PRINTED],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.startswith(f"{version} "):
            return Path(done.stdout.split()[1]).resolve()
    return None
