"""`eoctl --help` against the imports of a Typer program that prints with Rich."""

import sys
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, command


def measure() -> Iterator[Measured]:
    ours, peer = alternate(
        command([*EOCTL, "--help"], least=10),
        command([sys.executable, "-c", "import typer, rich.console"]),
        rounds=11,
    )
    goal = "0.5x or more (no slower than twice the imports)"
    yield Measured("eoctl --help", ours, peer, "typer + rich", goal)
