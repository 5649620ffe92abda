"""`make binary`: dist/eoctl-linux-MACHINE, eoctl with its Python in one file, from the wheel.

By default of this host's Python; `--debian SUITE` takes that of an old Debian, so that older hosts
run it too (release.old_debian). PyInstaller packs a folder; one_file.sh in front of its archive
unpacks it once per user, so that a start costs what a start of the folder costs and no mount point
need allow programs but one. Beside it SHA256SUMS and an SBOM (CycloneDX 1.6): packages with
their licences, shared libraries by name and hash.
"""

import argparse
import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from release.old_debian import PYTHON, NotBuiltError, debian, inside, python_version
from release.parts import DIST, ROOT, normal, shipped, write_sums
from release.sbom import sbom, write
from release.supply import NotInstalledError

WORK = ROOT / "build" / "binary"
EXTRAS = ("sql", "serde", "exporter")
"""What is in the file beside the base. `data` and `spark` would make it five times as large."""
PACKAGES = ("eoctl", "recovery", "tui", "spark_jobs")
FILES_OF = (*PACKAGES, "textual", "rich", "confluent_kafka", "kafka", "psycopg", "psycopg_binary")
UV = Path(sys.executable).with_name("uv")
WANTED = WORK / "requirements.txt"
DYNAMIC = ("fastavro", "google.protobuf", "sqlalchemy.dialects.postgresql", "prometheus_client")


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def installed() -> Path:
    """Install the wheel with EXTRAS and PyInstaller, versions as in requirements.lock, and return
    the Python of that environment."""
    python = WORK / "venv" / "bin" / "python"
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    build_wheel(WORK / "wheel")
    extras = [f"--extra={extra}" for extra in (*EXTRAS, "binary")]
    _run(UV, "pip", "compile", "--quiet", "--python", sys.executable, "--generate-hashes", *extras,
         "-c", ROOT / "requirements.lock", ROOT / "pyproject.toml", "-o", WANTED)  # fmt: skip
    _run(sys.executable, "-m", "venv", "--without-pip", WORK / "venv")
    _install("--python", python)
    return python


def build_wheel(folder: Path) -> None:
    """Build the wheel of this tree into a folder."""
    _run(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--wheel",
         "--out-dir", folder, ROOT)  # fmt: skip


def _install(*where: object) -> None:
    words = (UV, "pip", "install", "--quiet", *where)
    _run(*words, "--require-hashes", "-r", WANTED)
    _run(*words, "--no-deps", *(WORK / "wheel").glob("*.whl"))


def folder(python: Path) -> Path:
    """Return the folder that PyInstaller makes of this Python: a program and its files."""
    _run(python, *_pyinstaller(python), f"--distpath={WORK}", f"--workpath={WORK / 'work'}",
         f"--specpath={WORK}", Path(__file__).with_name("start.py"))  # fmt: skip
    return WORK / "eoctl"


def old_folder(python: Path, suite: str) -> Path:
    """Return the folder that PyInstaller makes in an old Debian. python: which packages are in."""
    old = debian(suite)
    packages, made = old / "opt/packages", old / "opt/made"
    for path in (packages, made, old / "opt/work"):
        shutil.rmtree(path, ignore_errors=True)
    platform_ = f"{platform.machine()}-manylinux_2_31"
    _install("--python", python, "--target", packages, "--only-binary", ":all:",
             "--python-version", "3.11", "--python-platform", platform_)  # fmt: skip
    shutil.copy(Path(__file__).with_name("start.py"), old / "opt")
    words = [str(word) for word in _pyinstaller(python)]
    words += ["--distpath=/opt/made", "--workpath=/opt/work", "--specpath=/opt", "/opt/start.py"]
    inside(old, [PYTHON, *words], {"PYTHONPATH": "/opt/packages"})
    return Path(shutil.move(made / "eoctl", WORK / "eoctl"))


def _pyinstaller(python: Path) -> list[str]:
    """Return its words. Each package's metadata are in, with the licence that it ships."""
    words = [f"--collect-all={name}" for name in FILES_OF]
    words += [f"--collect-submodules={name}" for name in DYNAMIC]
    words += [f"--copy-metadata={name}" for name in _names(python)]
    for name in ("tkinter", "setuptools", "pkg_resources", "PyInstaller"):
        words.append(f"--exclude-module={name}")
    return ["-m", "PyInstaller", "--noconfirm", "--log-level=ERROR", "--name=eoctl", *words]


def _names(python: Path) -> list[str]:
    """Return the packages of that environment that an install of eoctl brings."""
    found = python.parents[1].glob("lib/python*/site-packages/*.dist-info")
    names = {normal(path.name.partition("-")[0]) for path in found}
    return sorted(names & {"eoctl", *shipped(EXTRAS)})


def archive(made: Path) -> bytes:
    """Return the folder as tar.gz; names sorted, times and owners left out."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime = info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=9) as tar:
        for path in sorted(made.rglob("*")):
            tar.add(path, path.relative_to(made), recursive=False, filter=anonymous)
    return held.getvalue()


def newest_glibc(made: Path) -> str:
    """Return the newest glibc symbol version that a file of the folder asks for."""
    asked = {
        tuple(map(int, found.split(b".")))
        for path in made.rglob("*")
        if path.is_file()
        for found in re.findall(rb"GLIBC_(\d+(?:\.\d+)+)\0", path.read_bytes())
    }
    return ".".join(map(str, max(asked)))


def one_file_path() -> Path:
    """Return where the file is."""
    return DIST / f"eoctl-linux-{platform.machine()}"


def one_file(made: Path) -> Path:
    """Write the file, and return it."""
    packed = archive(made)
    script = Path(__file__).with_name("one_file.sh").read_text()
    values = {
        "MACHINE": platform.machine(),
        "GLIBC": newest_glibc(made),
        "SUM": hashlib.sha256(packed).hexdigest()[:16],
        "FILES": str(sum(path.is_file() and not path.is_symlink() for path in made.rglob("*"))),
        "LINES": str(script.count("\n") + 1),
    }
    script = re.sub(r"@(\w+)@", lambda found: values[found[1]], script)
    DIST.mkdir(exist_ok=True)
    path = one_file_path()
    path.write_bytes(script.encode() + packed)
    path.chmod(0o755)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; needs glibc {values['GLIBC']} or newer")
    return path


def libraries(made: Path) -> list[dict[str, object]]:
    """Return the shared libraries of the folder as files: their versions and licences are not
    known here."""
    found = sorted(p for p in made.rglob("*.so*") if p.is_file() and not p.is_symlink())
    return [
        {
            "type": "file",
            "name": str(path.relative_to(made)),
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
        }
        for path in found
    ]


def binary_sbom(python: Path, version: str) -> Path:
    """Write the packages and shared libraries of the file (CycloneDX), and return its path.

    version: of its Python.
    """
    document = sbom(python, EXTRAS)
    document["components"].append({"type": "platform", "name": "CPython", "version": version})
    document["components"] += libraries(WORK / "eoctl")
    return write(DIST / "eoctl-sbom.cdx.json", document)


def main() -> None:
    """Build all, and write SHA256SUMS."""
    parser = argparse.ArgumentParser(prog="make binary", description=__doc__)
    parser.add_argument("--debian", metavar="SUITE", help="build in this Debian, such as bullseye")
    suite = parser.parse_args().debian
    try:
        python = installed()
        one_file(old_folder(python, suite) if suite else folder(python))
        binary_sbom(python, python_version(suite) if suite else platform.python_version())
    except (NotBuiltError, NotInstalledError, subprocess.CalledProcessError) as error:
        sys.exit(f"no binary: {error}")
    write_sums()


if __name__ == "__main__":
    main()
