"""Tools that look at the supply chain, and libfaketime for tests, in build/supply.

They would put some fifty packages beside those that the product and its tests run with.
"""

import subprocess
import sys
from pathlib import Path

from release.parts import ROOT

LOCK = ROOT / "requirements-supply.lock"
FOLDER = ROOT / "build" / "supply"


class NotInstalledError(Exception):
    """The tools are not here and could not be installed, as without a registry."""


def tool(name: str) -> Path:
    """Return the path of a tool; install the tools if requirements-supply.lock has changed.

    Raises NotInstalledError.
    """
    stamp = FOLDER / "requirements-supply.lock"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        try:
            _install()
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotInstalledError(
                f"the tools of {LOCK.name} cannot be installed: {error}"
            ) from error
        stamp.write_bytes(LOCK.read_bytes())
    return FOLDER / "bin" / name


def _install() -> None:
    words: list[str | Path] = [sys.executable, "-m", "venv", "--clear", "--without-pip", FOLDER]
    subprocess.run(words, check=True)
    words = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet"]
    words += ["--python", FOLDER / "bin" / "python", "--require-hashes", "-r", LOCK]
    subprocess.run(words, check=True)
