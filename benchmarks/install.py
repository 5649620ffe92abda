"""The base install from the wheel: its size, and how fast it answers on a small cluster."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.side_by_side import Measured, Size, alternate, command, lab
from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec

ROOT = Path(__file__).parents[1]
MOST = 120 << 20


def build(folder: Path) -> Path:
    """Build the wheel of this tree into a folder."""
    uv = Path(sys.executable).with_name("uv")
    argv = [str(uv), "build", "--wheel", "--quiet", "--no-build-isolation", str(ROOT)]
    subprocess.run([*argv, "--out-dir", str(folder), "--python", sys.executable], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel and what its base needs into a new environment; the program."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    argv: Sequence[str | Path] = [uv, "pip", "install", "--quiet", "--compile-bytecode"]
    subprocess.run([*argv, "--python", python, wheel], check=True)
    return folder / "bin" / "eoctl"


def measure() -> Iterator[Size | Measured]:
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as name:
        folder = Path(name)
        program = str(installed(build(folder), folder / "base"))
        size = sum(p.lstat().st_size for p in (folder / "base").rglob("*") if not p.is_dir())
        yield Size("base install, byte code included", size, MOST)
        python = str(folder / "base" / "bin" / "python")
        bare = command([python, "-c", "import asyncio, typer, msgspec"])
        with lab(LabSpec("install")) as one:
            break_(one, "open", count=3, hold=False)  # without any there is no log of transactions
            server = ("--bootstrap-server", one.bootstrap_servers)
            for words in (("--help",), (*server, "lso"), (*server, "txn", "list")):
                ours, peer = alternate(command([program, *words]), bare, rounds=11)
                name = " ".join(w for w in words if w not in server)
                goal = "as ever" if name == "--help" else "0.150 s or less"
                yield Measured(f"base: {name}", ours, peer, "its libraries", goal)
