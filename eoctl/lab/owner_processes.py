"""Record a lab's processes beside its brokers, so that `down` ends them.

Owners hold transactions open; a MirrorMaker may write into the lab.
"""

import json
from pathlib import Path

from eoctl.host.processes import Process

FOLDER = "owners"


def owners_folder(lab_folder: Path) -> Path:
    """Return the folder of a lab's owners, with their logs and records; created if missing."""
    folder = lab_folder / FOLDER
    folder.mkdir(exist_ok=True)
    return folder


def adopt(lab_folder: Path, name: str, process: Process) -> None:
    """Record a process as the lab's, to be ended with it."""
    path = owners_folder(lab_folder) / f"{name}.process"
    path.write_text(json.dumps(process), encoding="utf-8")


def find(lab_folder: Path, name: str) -> Process | None:
    """Return a process that was recorded under a name, ended or not; None: none was."""
    path = lab_folder / FOLDER / f"{name}.process"
    return Process(*json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def owners(lab_folder: Path) -> list[Process]:
    """Return every recorded process, ended or not."""
    return [
        Process(*json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((lab_folder / FOLDER).glob("*.process"))
    ]
