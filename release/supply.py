"""Tools that look at the supply chain, and libfaketime for tests, in build/supply.

They would put some fifty packages beside those that the product and its tests run with.
"""

import subprocess
import sys
from pathlib import Path

from release.parts import ROOT

LOCK = ROOT / "requirements-supply.lock"
FOLDER = ROOT / "build" / "supply"


def tool(name: str) -> Path:
    """Return the path of a tool; install the tools if requirements-supply.lock has changed."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "requirements-supply.lock"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", "--without-pip", FOLDER], check=True
        )
        uv = Path(sys.executable).with_name("uv")
        words: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--require-hashes",
            "-r",
            LOCK,
        ]
        subprocess.run(words, check=True)
        stamp.write_bytes(LOCK.read_bytes())
    return FOLDER / "bin" / name
