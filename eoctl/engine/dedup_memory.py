"""A dedup's memory of an input partition, kept between runs so that it is not read again.

Only a shortcut: a run without it reads the input from the job's first offset, with equal results.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.settings.folders import state_dir
from eoctl.stores.storage import Storage
from recovery.errors import EoctlError


def own_folder() -> Path:
    """Return the folder on this host for such memories."""
    return state_dir() / "dedup"


def _name(job: str, partition: int) -> str:
    folder = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{folder}/{partition}.json"


def save(
    storage: Storage, job: str, partition: int, position: int, settings: str, memory: dict[str, Any]
) -> None:
    """Keep the memory of all records below `position`. A failure to write is ignored."""
    content = {"settings": settings, "position": position, "memory": memory}
    with suppress(EoctlError, OSError):
        storage.put(_name(job, partition), json.dumps(content).encode("ascii"))


def load(
    storage: Storage, job: str, partition: int, settings: str, most: int
) -> tuple[int, dict[str, Any]] | None:
    """Return (position, memory) kept with these settings, up to offset `most`, or None.

    Raises UnreachableError.
    """
    try:
        content = json.loads(storage.get(_name(job, partition)))
        if content["settings"] != settings or content["position"] > most:
            return None
        return int(content["position"]), dict(content["memory"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
