"""A dedup's memory of an input partition, kept between runs so that it is not read again.

Only a shortcut: a run without it reads the input from the job's first offset and comes to the same.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.settings.folders import state_dir
from eoctl.stores.textfile import write_whole
from recovery.errors import EoctlError


def own_folder() -> Path:
    """The folder on this host that keeps it."""
    return state_dir() / "dedup"


def _path(folder: Path, job: str, partition: int) -> Path:
    name = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return folder / name / f"{partition}.json"


def save(
    folder: Path, job: str, partition: int, position: int, settings: str, memory: dict[str, Any]
) -> None:
    """Keep the memory of all records below `position`. A failure to write is no failure."""
    path = _path(folder, job, partition)
    content = {"settings": settings, "position": position, "memory": memory}
    with suppress(EoctlError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(content).encode("ascii"), mode=0o600)


def load(
    folder: Path, job: str, partition: int, settings: str, most: int
) -> tuple[int, dict[str, Any]] | None:
    """Return (position, memory) kept with these settings, up to offset `most`, or None."""
    try:
        content = json.loads(_path(folder, job, partition).read_bytes())
        if content["settings"] != settings or content["position"] > most:
            return None
        return int(content["position"]), dict(content["memory"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
