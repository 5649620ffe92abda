"""`make pex`: dist/eoctl.pex, for Linux hosts with one of PYTHONS, its SBOM beside it.

The base install and `exporter`; what is compiled is in it once for each Python. The first start
unpacks it below PEX_ROOT, else ~/.cache/pex, else a temporary folder.
"""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.tags import compatible_tags, cpython_tags

from eoctl import __version__
from release.parts import DIST, LOCK, PYTHONS, ROOT, write_sums
from release.sbom import sbom, write
from release.supply import NotInstalledError, tool

WORK = ROOT / "build" / "pex"
EXTRAS = ("exporter",)
GLIBC = ("2_17", "2_28")
UV = Path(sys.executable).with_name("uv")


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def _platforms() -> list[str]:
    machine = platform.machine()
    return [
        *(f"manylinux_{glibc}_{machine}" for glibc in reversed(GLIBC)),
        f"manylinux2014_{machine}",
    ]


def wheels() -> Path:
    """Return the folder of all wheels that are packed, and no others: as locked, by their hashes,
    and eoctl's."""
    found = WORK / "wheels"
    shutil.rmtree(found, ignore_errors=True)
    _run(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--wheel",
         "--out-dir", found, ROOT)  # fmt: skip
    extras = [f"--extra={extra}" for extra in EXTRAS]
    platforms = [f"--platform={name}" for name in _platforms()]
    for version in PYTHONS:
        wanted = WORK / f"requirements-{version}.txt"
        _run(UV, "pip", "compile", "--quiet", "--python-version", version, "--generate-hashes",
             *extras, "-c", LOCK, ROOT / "pyproject.toml", "-o", wanted)  # fmt: skip
        _fetch(wanted, found, f"--python-version={version}", *platforms)
    return found


def _fetch(wanted: Path, found: Path, *options: str) -> None:
    """Copy the wheels of a list by their hashes; those that were fetched before need no network."""
    fetched = WORK / "fetched"
    fetched.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
    words += ["--only-binary=:all:", *options, "-r", str(wanted)]
    here = [*words, "--no-index", "--find-links", str(fetched), "-d", str(found)]
    if subprocess.run(here, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        _run(*words, "-d", fetched)
        _run(*here)


def target(version: str) -> Path:
    """Write what pex must know of a Python that need not be here, and return the file."""
    numbers = tuple(map(int, version.split(".")))
    tags = [*cpython_tags(numbers, platforms=_platforms())]
    tags += compatible_tags(numbers, f"cp{version.replace('.', '')}", _platforms())
    marker = {
        "implementation_name": "cpython",
        "implementation_version": f"{version}.0",
        "os_name": "posix",
        "platform_machine": platform.machine(),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": "linux",
    }
    path = WORK / f"target-{version}.json"
    known = {"marker_environment": marker, "compatible_tags": [str(tag) for tag in tags]}
    path.write_text(json.dumps(known))
    return path


def main() -> None:
    """Build the file, its SBOM and SHA256SUMS."""
    WORK.mkdir(parents=True, exist_ok=True)
    DIST.mkdir(exist_ok=True)
    path = DIST / "eoctl.pex"
    targets = [f"--complete-platform={target(version)}" for version in PYTHONS]
    named = f"eoctl[{','.join(EXTRAS)}]=={__version__}"
    _run(tool("pex"), "--no-pypi", "--find-links", wheels(), *targets, named, "-c", "eoctl",
         "-o", path, "--sh-boot", "--venv", "--pex-root", WORK / "root")  # fmt: skip
    write(DIST / "eoctl-pex-sbom.cdx.json", sbom(sys.executable, EXTRAS))
    write_sums()
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; Python {', '.join(PYTHONS)}")


if __name__ == "__main__":
    try:
        main()
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        sys.exit(f"no pex: {error}")
