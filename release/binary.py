"""`make binary`: dist/eoctl-linux-MACHINE, eoctl with its Python in one file, from the wheel.

PyInstaller packs a folder; one_file.sh in front of its archive unpacks it once per user, so that a
start costs what a start of the folder costs and no mount point need allow programs but one.
Beside it SHA256SUMS and an SBOM (CycloneDX 1.6) of what is in it.
"""

import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from release.parts import ROOT
from release.sbom import sbom, write

WORK = ROOT / "build" / "binary"
DIST = ROOT / "dist"
EXTRAS = ("sql", "serde", "exporter")
"""What is in the file beside the base. `data` and `spark` would make it five times as large."""
PACKAGES = ("eoctl", "recovery", "tui", "spark_jobs")
FILES_OF = (*PACKAGES, "textual", "rich", "confluent_kafka", "kafka", "psycopg", "psycopg_binary")
DYNAMIC = ("fastavro", "google.protobuf", "sqlalchemy.dialects.postgresql", "prometheus_client")


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def installed() -> Path:
    """Install the wheel with EXTRAS and PyInstaller, versions as in requirements.lock, and return
    the Python of that environment."""
    python = WORK / "venv" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    wheels = WORK / "wheel"
    _run(uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--wheel",
         "--out-dir", wheels, ROOT)  # fmt: skip
    wanted = WORK / "requirements.txt"
    extras = [f"--extra={extra}" for extra in (*EXTRAS, "binary")]
    _run(uv, "pip", "compile", "--quiet", "--python", sys.executable, "--generate-hashes", *extras,
         "-c", ROOT / "requirements.lock", ROOT / "pyproject.toml", "-o", wanted)  # fmt: skip
    _run(sys.executable, "-m", "venv", "--without-pip", WORK / "venv")
    _run(uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", wanted)
    _run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *wheels.glob("*.whl"))
    return python


def folder(python: Path) -> Path:
    """Return the folder that PyInstaller makes: a program and the files that it needs."""
    words = [f"--collect-all={name}" for name in FILES_OF]
    words += [f"--collect-submodules={name}" for name in DYNAMIC]
    words += [f"--copy-metadata={name}" for name in ("eoctl", "confluent-kafka", "kafka-python")]
    for name in ("tkinter", "setuptools", "pkg_resources", "PyInstaller"):
        words.append(f"--exclude-module={name}")
    _run(python, "-m", "PyInstaller", "--noconfirm", "--log-level=ERROR", "--name=eoctl", *words,
         f"--distpath={WORK}", f"--workpath={WORK / 'work'}", f"--specpath={WORK}",
         Path(__file__).with_name("start.py"))  # fmt: skip
    return WORK / "eoctl"


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


def binary_sbom(python: Path) -> Path:
    """Write the list of what is in the file (CycloneDX), and return it."""
    document = sbom(python, EXTRAS)
    cpython = {"type": "platform", "name": "CPython", "version": platform.python_version()}
    document["components"].append(cpython)
    return write(DIST / "eoctl-sbom.cdx.json", document)


def main() -> None:
    """Build all, and write SHA256SUMS."""
    python = installed()
    made = [one_file(folder(python)), binary_sbom(python)]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (DIST / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
