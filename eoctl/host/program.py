"""eoctl itself as a program: how it is started again, and whether it is the one-file kind."""

import sys
from pathlib import Path

ONE_FILE = bool(getattr(sys, "frozen", False))
"""Packed with its Python (`make binary`): nothing can be installed into it."""


def itself() -> list[str]:
    """Return the words that start eoctl again, to be followed by a command."""
    return [sys.executable] if ONE_FILE else [sys.executable, "-m", "eoctl"]


def shipped(folder: str) -> Path:
    """Return where pages are: in the wheel beside the code, in a checkout among the docs."""
    package = Path(__file__).parents[1]
    beside = package / folder
    return beside if beside.is_dir() else package.parent / "docs" / folder
